//! The promises of pools.

use super::{
    Fixture, Violation,
    promises::{definition, name},
    verdict::{done, equal, holds, refused},
};
use crate::{
    api::orders::HoldRequest,
    cluster::{catalog::ModelDefinition, order::HoldScope},
    error::Code,
    id::{HoldName, IdError},
    units::Bytes,
};

pub(super) async fn only_pools_that_there_are_are_held_and_asked_for(
    fixture: &Fixture,
) -> Result<(), Violation> {
    let control = &fixture.control;
    let pools = done("settings", control.settings.settings().await)?.pools;
    let hold = |pool: &str| -> Result<HoldRequest, Violation> {
        let name: Result<HoldName, IdError> = "conformance-pool".parse();
        Ok(HoldRequest {
            name: name.map_err(|error| Violation {
                promise: "the suite's own names are names",
                found: error.to_string(),
            })?,
            scope: HoldScope::Pool(pool.to_owned()),
            reason: String::new(),
            lasts: None,
        })
    };
    let asking = |pool: &str| -> ModelDefinition {
        let mut asking = definition("conformance/pooled", &[], Bytes::gib(1 << 20));
        for profile in &mut asking.profiles {
            profile.pool = Some(pool.to_owned());
        }
        asking
    };
    let unknown = "conformance: no pool";
    for (says, error) in [
        (
            "scope.pool: there is no pool ",
            refused(
                "a pool that there is not can't be held",
                Code::InvalidRequest,
                control.holds.hold(hold(unknown)?).await,
            )?,
        ),
        (
            "profiles[0].pool: there is no pool ",
            refused(
                "a model of a pool that there is not is refused",
                Code::InvalidRequest,
                control.catalog.add(asking(unknown)).await,
            )?,
        ),
    ] {
        holds(
            "the refusal names the field and the pools there are",
            error.message.starts_with(says)
                && error.hint.as_ref().is_some_and(|hint| {
                    hint.contains("pool") && pools.keys().all(|pool| hint.contains(pool.as_str()))
                }),
            &error,
        )?;
    }
    for pool in pools.keys() {
        let held = done("a hold of a pool", control.holds.hold(hold(pool)?).await)?;
        equal("its place", &HoldScope::Pool(pool.clone()), &held.scope)?;
        done("a hold lifted", control.holds.lift(&held.name).await)?;
        let model = done("a model of a pool", control.catalog.add(asking(pool)).await)?;
        equal("its name", &name("conformance/pooled")?, &model)?;
        done("a removal", control.catalog.remove(&model).await)?;
    }
    let nodes = done("nodes", control.fleet.nodes().await)?;
    for node in &nodes {
        let has = |labels: &crate::cluster::pool::Labels| {
            let mut labels = labels.iter();
            labels.all(|(key, value)| node.labels.get(key) == Some(value))
        };
        let own: Vec<&String> = pools
            .iter()
            .filter(|(_, asked)| has(asked))
            .map(|(pool, _)| pool)
            .collect();
        equal(
            "a node says which pools it is in",
            &own,
            &node.pools.iter().collect(),
        )?;
    }
    Ok(())
}
