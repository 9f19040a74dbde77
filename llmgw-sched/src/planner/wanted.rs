//! What should run, and what in it can't be right on a given fleet.

use std::collections::{BTreeMap, BTreeSet};

use llmgw_core::{
    cluster::{
        catalog::{DefinitionError, FallbackFault, Model, Profile, fallback_faults},
        scaling::Scaling,
    },
    id::ModelName,
};
use serde::{Deserialize, Serialize};

use super::{
    demand::{Classes, Demand},
    mix::Mix,
    room::Room,
};
use crate::fleet::Fleet;

/// What should run.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// The models, each with its number of replicas. Names are unique; the last of a name counts.
    pub models: Vec<Model>,
}

impl Wanted {
    /// The models by name.
    #[must_use]
    pub fn by_name(&self) -> BTreeMap<&ModelName, &Model> {
        self.models
            .iter()
            .map(|model| (model.name(), model))
            .collect()
    }

    /// The same, where each model whose number of replicas follows its load has as many as it has now, within its
    /// bounds: what runs was asked for, and only the loop, which sees the load, says that it is asked for no more.
    #[must_use]
    pub fn as_it_runs(self, fleet: &Fleet) -> Self {
        let mut running: BTreeMap<&ModelName, u32> = BTreeMap::new();
        let replicas = fleet.nodes.iter().flat_map(|node| &node.replicas);
        for replica in replicas.filter(|replica| replica.counts()) {
            let count = running.entry(&replica.model).or_default();
            *count = count.saturating_add(1);
        }
        let as_it_runs = |model: Model| {
            let scaling = model.scaling();
            let now = running.get(model.name()).copied().unwrap_or(0);
            let now = now.clamp(scaling.min(), scaling.max());
            // None is not none ever: a model on demand stays one.
            if now == scaling.min() {
                return model;
            }
            model.scaled(Scaling::fixed(now))
        };
        Self {
            models: self.models.into_iter().map(as_it_runs).collect(),
        }
    }

    /// What is typically asked for: the first profile of each model, as often as it has replicas and shards.
    #[must_use]
    pub fn mix(&self, classes: &mut Classes) -> Mix {
        let mut counted: BTreeMap<Demand, u64> = BTreeMap::new();
        for model in self.by_name().into_values() {
            let Some(profile) = model.profiles().first() else {
                continue;
            };
            let mut demand = Demand::of(profile, classes);
            demand.memory = 0;
            let shards = profile.needs.shards.map_or(1, |shards| shards.count);
            let count = u64::from(model.replicas()) * u64::from(shards);
            *counted.entry(demand).or_insert(0) += count;
        }
        Mix::of(counted.into_iter().collect())
    }

    /// What can't be right on this fleet: a shard that is larger than any of its nodes, were they empty; labels that no
    /// node of the pool can have; a name that stands twice; and fallbacks that are no models here, or lead in a circle.
    ///
    /// A model without shards that is too large is no error: its report says by how much.
    #[must_use]
    pub fn check(&self, fleet: &Fleet) -> Vec<DefinitionError> {
        let mut classes = Classes::of(fleet);
        let rooms: Vec<Room> = fleet
            .nodes
            .iter()
            .map(|node| Room::of(node, &mut classes))
            .collect();
        let mut errors = Vec::new();
        for (at, model) in self.models.iter().enumerate() {
            for (index, profile) in model.profiles().iter().enumerate() {
                if !profile.is_sized() {
                    errors.push(DefinitionError {
                        field: format!("models[{at}].profiles[{index}].memory"),
                        problem: "missing, and nothing is known of the weights".to_owned(),
                        hint: Some(
                            "`llmgw fit` estimates it; `--weights NAME=FILE` does so here"
                                .to_owned(),
                        ),
                    });
                }
                let demand = Demand::of(profile, &mut classes);
                let sharded = profile.needs.shards.is_some();
                if sharded && !rooms.iter().any(|room| room.fits(&demand)) {
                    errors.push(DefinitionError {
                        field: format!("models[{at}].profiles[{index}].shards"),
                        problem: format!(
                            "one shard of {} is larger than any of the {} nodes",
                            model.name(),
                            fleet.nodes.len()
                        ),
                        hint: Some("cut it into more shards".to_owned()),
                    });
                }
                let field = format!("models[{at}].profiles[{index}].labels");
                errors.extend(contradiction(fleet, profile, &field));
            }
        }
        let mut names = BTreeSet::new();
        for (at, model) in self.models.iter().enumerate() {
            if !names.insert(model.name()) {
                errors.push(DefinitionError {
                    field: format!("models[{at}].name"),
                    problem: format!("{} is named twice", model.name()),
                    hint: None,
                });
            }
        }
        let models: Vec<&Model> = self.models.iter().collect();
        for FallbackFault { at, error } in fallback_faults(&models) {
            errors.push(DefinitionError {
                field: format!("models[{at}].{}", error.field),
                ..error
            });
        }
        errors
    }
}

/// A label that a profile asks for and that its pool's nodes have otherwise.
fn contradiction(fleet: &Fleet, profile: &Profile, field: &str) -> Option<DefinitionError> {
    let pool = profile.needs.pool.as_ref()?;
    let of_pool = fleet.pools.get(pool)?;
    profile.needs.labels.iter().find_map(|(key, value)| {
        let other = of_pool.get(key).filter(|other| *other != value)?;
        Some(DefinitionError {
            field: format!("{field}.{key}"),
            problem: format!("{value} is asked for, and the nodes of the pool {pool} have {other}"),
            hint: Some("leave the pool or the label out".to_owned()),
        })
    })
}
