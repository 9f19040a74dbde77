//! The conformance suite of the control roles, and an in-memory control plane to run it on.
//!
//! [`conformance`] asks a [`Control`] everything that the contracts of its roles promise. [`same_answers`] asks
//! two handles on one control plane the same questions: an adapter between them must lose nothing. Both answer
//! with the first [`Violation`], so that third parties can run them on roles of their own.

mod accounts;
mod decisions;
mod fallbacks;
mod guard;
mod logs;
mod memory;
mod more;
mod ordering;
mod orders;
mod pools;
mod promises;
mod replacing;
mod sample;
mod settings;
mod tenancy;
mod trial;
mod verdict;
mod what_if;

use std::time::Duration;

pub use memory::MemoryControl;

use self::verdict::equal;
use crate::{
    api::{admin::ModelView, usage::UsageBy},
    control::Control,
    id::ModelName,
    units::Bytes,
};

/// A control plane under test, and what the suite must know of it.
///
/// The suite adds models whose names begin with `conformance/`, and removes them again. Nobody else may change
/// the models while it runs.
#[derive(Clone, Debug)]
pub struct Fixture {
    /// The roles under test.
    pub control: Control,
    /// A declared model that it has.
    pub declared: ModelName,
    /// An alias of that model.
    pub alias: ModelName,
    /// A parked model that it has, where one can be made; it is not parked afterwards.
    pub parked: Option<ModelName>,
}

/// A promise that was not kept.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{promise}: {found}")]
pub struct Violation {
    /// What the contract says.
    pub promise: &'static str,
    /// What happened instead.
    pub found: String,
}

/// Checks the contracts of all the roles of a [`Control`].
///
/// # Errors
/// The first promise that was not kept.
pub async fn conformance(fixture: &Fixture) -> Result<(), Violation> {
    let Fixture { control, .. } = fixture;
    let before = promises::models(control).await?;
    promises::lists_are_ordered(control).await?;
    accounts::usage_is_summed_up_as_asked(control).await?;
    accounts::a_price_is_kept_with_its_history(fixture).await?;
    promises::a_model_is_listed_from_its_addition_to_its_removal(control).await?;
    promises::what_cannot_be_right_is_refused(control).await?;
    promises::taken_names_are_refused(fixture).await?;
    promises::unknown_names_are_not_found(fixture).await?;
    fallbacks::a_fallback_is_a_model_and_stays_one(control).await?;
    fallbacks::a_fallback_that_is_no_model_is_refused(fixture).await?;
    replacing::an_added_model_is_defined_otherwise(fixture).await?;
    replacing::what_cannot_take_its_place_is_refused(fixture).await?;
    promises::declared_models_stay(fixture).await?;
    promises::aliases_stand_for_their_model(fixture).await?;
    promises::what_fits_nowhere_is_explained(control).await?;
    promises::a_retry_unparks(fixture).await?;
    decisions::decisions_come_by_number(fixture).await?;
    more::a_key_is_listed_from_its_making_to_its_revocation(control).await?;
    more::keys_that_cannot_be_are_refused(control).await?;
    tenancy::a_level_is_listed_from_its_making_to_its_removal(control).await?;
    tenancy::a_key_belongs_to_a_level_that_there_is(control).await?;
    more::declared_models_are_in_the_settings(fixture).await?;
    settings::a_document_is_in_force_until_another_is(fixture).await?;
    settings::documents_that_cannot_be_right_are_refused(control).await?;
    more::jobs_are_ordered(control).await?;
    more::what_is_not_listed_is_not_collected(control).await?;
    more::orders_are_written_down(control).await?;
    more::a_question_says_what_would_be_and_changes_nothing(fixture).await?;
    more::changes_that_cannot_be_made_are_named(fixture).await?;
    ordering::a_scale_is_in_force_until_the_model_goes(fixture).await?;
    ordering::scales_that_cannot_be_are_refused(fixture).await?;
    ordering::only_what_is_stale_is_rolled(fixture).await?;
    ordering::a_node_is_used_as_ordered(control).await?;
    more::what_is_frozen_is_thawed_once(control).await?;
    ordering::an_engine_is_wanted_as_it_was_chosen(control).await?;
    ordering::engines_that_no_node_could_have_are_refused(control).await?;
    ordering::a_hold_stands_until_it_is_lifted(control).await?;
    pools::only_pools_that_there_are_are_held_and_asked_for(fixture).await?;
    ordering::a_measurement_is_kept_and_replaced(fixture).await?;
    ordering::a_token_is_listed_from_its_making_to_its_revocation(control).await?;
    ordering::logs_are_of_a_model_that_is_there(fixture).await?;
    logs::a_log_is_read_part_after_part(control).await?;
    guard::rules_are_shown_and_tried(control).await?;
    guard::what_was_done_is_listed_newest_first(control).await?;
    ordering::orders_are_written_down_under_their_actor(control).await?;
    let after = promises::models(control).await?;
    let names = |views: &[ModelView]| -> Vec<ModelName> {
        views.iter().map(|view| view.name.clone()).collect()
    };
    equal(
        "models that were added and removed leave no trace",
        &names(&before),
        &names(&after),
    )
}

/// Checks that two handles on the same control plane answer alike, in success and in failure.
///
/// # Errors
/// The first difference.
pub async fn same_answers(left: &Control, right: &Control) -> Result<(), Violation> {
    equal(
        "models",
        &left.catalog.models().await,
        &right.catalog.models().await,
    )?;
    equal(
        "summary",
        &left.fleet.summary().await,
        &right.fleet.summary().await,
    )?;
    equal(
        "nodes",
        &left.fleet.nodes().await,
        &right.fleet.nodes().await,
    )?;
    equal(
        "replicas",
        &left.fleet.replicas(None).await,
        &right.fleet.replicas(None).await,
    )?;
    equal(
        "usage",
        &left.accounts.usage(UsageBy::BOTH, YEAR).await,
        &right.accounts.usage(UsageBy::BOTH, YEAR).await,
    )?;
    equal(
        "prices",
        &left.accounts.prices().await,
        &right.accounts.prices().await,
    )?;
    equal(
        "keys",
        &left.tenancy.keys().await,
        &right.tenancy.keys().await,
    )?;
    equal(
        "levels",
        &left.tenancy.levels().await,
        &right.tenancy.levels().await,
    )?;
    settings::same_answers(left, right).await?;
    ordering::same_answers(left, right).await?;
    logs::same_answers(left, right).await?;
    guard::same_answers(left, right).await?;
    equal("jobs", &left.jobs.jobs().await, &right.jobs.jobs().await)?;
    equal(
        "audit",
        &left.audit.audit(0, 1_000).await,
        &right.audit.audit(0, 1_000).await,
    )?;
    equal(
        "snapshot",
        &left.fleet.snapshot().await.map(|snapshot| snapshot.models),
        &right.fleet.snapshot().await.map(|snapshot| snapshot.models),
    )?;
    for changes in more::questions(left).await {
        equal(
            "what changes would do",
            &left.fleet.plan(&changes).await,
            &right.fleet.plan(&changes).await,
        )?;
    }
    equal(
        "decisions",
        &left.catalog.decisions(None, 0, 1_000).await,
        &right.catalog.decisions(None, 0, 1_000).await,
    )?;
    let mut names = vec![promises::name("conformance/unknown")?];
    for view in left.catalog.models().await.unwrap_or_default() {
        names.push(view.name);
        names.extend(view.aliases);
    }
    for name in &names {
        equal(
            "replicas of a model",
            &left.fleet.replicas(Some(name)).await,
            &right.fleet.replicas(Some(name)).await,
        )?;
        equal(
            "explanation",
            &left.catalog.explain(name).await,
            &right.catalog.explain(name).await,
        )?;
        equal(
            "decisions on a model",
            &left.catalog.decisions(Some(name), 1, 2).await,
            &right.catalog.decisions(Some(name), 1, 2).await,
        )?;
    }
    let wrong = promises::definition("conformance/wrong", &[], Bytes::ZERO);
    equal(
        "refusal of a wrong definition",
        &left.catalog.add(wrong.clone()).await,
        &right.catalog.add(wrong).await,
    )
}

const YEAR: Duration = Duration::from_secs(365 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::frozen::{Frozen, SilentNode},
        cluster::pool::Pools,
        control::ControlError,
        error::Code,
        id::NodeId,
    };

    #[tokio::test]
    async fn the_memory_control_plane_keeps_every_promise() {
        let fixture = MemoryControl::sample().fixture();
        conformance(&fixture).await.unwrap();
    }

    #[tokio::test]
    async fn a_control_plane_with_pools_keeps_every_promise() {
        let memory = MemoryControl::sample();
        let nodes = memory.control().fleet.nodes().await.unwrap();
        let labels = nodes.into_iter().map(|node| node.labels);
        let some = labels
            .into_iter()
            .find(|labels| !labels.is_empty())
            .unwrap();
        let none = [("rack".to_owned(), "no node has this".to_owned())];
        let pools = [("some".to_owned(), some), ("none".to_owned(), none.into())];
        memory.set_pools(Pools::checked(pools.into()).unwrap());
        conformance(&memory.fixture()).await.unwrap();
        let nodes = memory.control().fleet.nodes().await.unwrap();
        assert!(nodes.iter().any(|node| node.pools == ["some"]));
    }

    #[tokio::test]
    async fn one_that_moves_nothing_goes_on_when_it_is_told_to() {
        let memory = MemoryControl::sample();
        let silent = SilentNode {
            hostname: "beta".to_owned(),
            id: NodeId::imagined(2),
        };
        memory.freeze(Frozen {
            seconds: 130,
            silent: vec![silent],
            of: 1,
        });
        conformance(&memory.fixture()).await.unwrap();
    }

    #[tokio::test]
    async fn a_control_plane_agrees_with_itself_and_not_with_another() {
        let one = MemoryControl::sample().fixture().control;
        same_answers(&one, &one).await.unwrap();
        let other = std::sync::Arc::new(MemoryControl::default());
        let violation = same_answers(&one, &other.control()).await.unwrap_err();
        assert_eq!(violation.promise, "models");
    }

    #[tokio::test]
    async fn a_control_plane_that_fails_is_found_out() {
        let memory = MemoryControl::sample();
        memory.fail_with(Some(ControlError::new(Code::Unavailable, "no store")));
        let violation = conformance(&memory.fixture()).await.unwrap_err();
        assert_eq!(violation.to_string(), "models: no store (unavailable)");
    }
}
