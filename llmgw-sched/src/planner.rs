//! `plan(&Fleet, &Wanted) -> (Plan, reports)`: filter, score, place.
//!
//! Synchronous and deterministic: no clock, no random, and the order of the input changes nothing. New replicas
//! have no ids here; whoever carries a plan out mints them.

pub mod filter;
pub mod score;

use std::collections::BTreeMap;

use llmgw_core::{
    cluster::catalog::{Model, Profile},
    id::{ModelName, NodeId, ProfileName},
    reason::Report,
    units::Bytes,
};
use serde::{Deserialize, Serialize};

use self::{filter::failing, score::Score};
use crate::{
    fleet::{Fleet, FleetNode},
    report,
};

/// What should run.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// The models, each with its number of replicas. Names are unique; the last of a name counts.
    pub models: Vec<Model>,
}

/// What to do about it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Plan {
    /// Replicas to start, by model, then in the order in which they were placed.
    pub placements: Vec<Placement>,
}

/// A replica to start.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Placement {
    /// The model.
    pub model: ModelName,
    /// How to run it.
    pub profile: ProfileName,
    /// Where.
    pub node: NodeId,
    /// What people call that node.
    pub hostname: String,
    /// What to reserve there.
    pub memory: Bytes,
}

/// Places what is wanted and not there yet.
///
/// Models are taken by the size of their first profile, largest first, then by name: what is hardest to place
/// chooses first. The reports are one for each model that lacks replicas, by name: of the trial that failed, or
/// of the last that succeeded.
#[must_use]
pub fn plan(fleet: &Fleet, wanted: &Wanted) -> (Plan, Vec<Report>) {
    let fleet = &fleet.sorted();
    let models: BTreeMap<&ModelName, &Model> = wanted
        .models
        .iter()
        .map(|model| (model.name(), model))
        .collect();
    let mut order: Vec<&Model> = models.into_values().collect();
    order.sort_by(|a, b| {
        first_memory(b)
            .cmp(&first_memory(a))
            .then(a.name().cmp(b.name()))
    });

    let mut working = Working::of(fleet);
    let mut plan = Plan::default();
    let mut reports = Vec::new();
    for model in order {
        let missing = u64::from(model.replicas()).saturating_sub(working.count(model.name()));
        for trial in 0..missing {
            let choice = choose(&working, model);
            let placed = choice.map(|(profile, node)| working.place(model, profile, node));
            let failed = placed.is_none();
            if failed || trial + 1 == missing {
                reports.push(report::build(fleet, &working, model, placed.as_ref()));
            }
            plan.placements.extend(placed);
            if failed {
                break;
            }
        }
    }
    plan.placements.sort_by(|a, b| a.model.cmp(&b.model));
    reports.sort_by(|a, b| a.model.cmp(&b.model));
    debug_assert!(
        no_node_is_promised_more_than_it_has(fleet, &plan),
        "{plan:?}"
    );
    (plan, reports)
}

/// Tries to place one more replica of `model`, whatever runs already, and says where or why not.
#[must_use]
pub fn trial(fleet: &Fleet, model: &Model) -> Report {
    let fleet = &fleet.sorted();
    let mut working = Working::of(fleet);
    let choice = choose(&working, model);
    let placed = choice.map(|(profile, node)| working.place(model, profile, node));
    report::build(fleet, &working, model, placed.as_ref())
}

/// The first profile that fits anywhere, on its best node.
pub(crate) fn choose<'m>(working: &Working<'_>, model: &'m Model) -> Option<(&'m Profile, usize)> {
    model.profiles().iter().find_map(|profile| {
        working
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| failing(node, model, profile).is_empty())
            .min_by_key(|(_, node)| Score::of(node, model, profile))
            .map(|(index, _)| (profile, index))
    })
}

/// The fleet while a plan is being made: what was placed so far is reserved.
#[derive(Clone, Debug)]
pub(crate) struct Working<'f> {
    pub(crate) nodes: Vec<WorkingNode<'f>>,
}

/// One node of a [`Working`].
#[derive(Clone, Debug)]
pub(crate) struct WorkingNode<'f> {
    pub(crate) node: &'f FleetNode,
    /// Main memory that is left; absent when not known.
    pub(crate) memory_free: Option<Bytes>,
    /// Replicas there by model, those placed so far included.
    pub(crate) replicas: BTreeMap<&'f ModelName, u64>,
    pub(crate) placed: BTreeMap<ModelName, u64>,
}

// === impl Working ===

impl<'f> Working<'f> {
    pub(crate) fn of(fleet: &'f Fleet) -> Self {
        Self {
            nodes: fleet.nodes.iter().map(WorkingNode::of).collect(),
        }
    }

    fn count(&self, model: &ModelName) -> u64 {
        self.nodes.iter().map(|node| node.count(model)).sum()
    }

    /// Reserves a replica on the node of that index.
    fn place(&mut self, model: &Model, profile: &Profile, index: usize) -> Placement {
        let node = &mut self.nodes[index];
        node.memory_free = node.memory_free.map(|free| free - profile.memory);
        *node.placed.entry(model.name().clone()).or_insert(0) += 1;
        Placement {
            model: model.name().clone(),
            profile: profile.name.clone(),
            node: node.node.id,
            hostname: node.node.hostname.clone(),
            memory: profile.memory,
        }
    }
}

impl<'f> WorkingNode<'f> {
    fn of(node: &'f FleetNode) -> Self {
        let mut replicas = BTreeMap::new();
        for replica in node.replicas.iter().filter(|replica| !replica.leaving) {
            *replicas.entry(&replica.model).or_insert(0) += 1;
        }
        Self {
            node,
            memory_free: node.memory_free(),
            replicas,
            placed: BTreeMap::new(),
        }
    }

    /// Replicas of a model there, those placed so far included.
    pub(crate) fn count(&self, model: &ModelName) -> u64 {
        let there = self.replicas.get(model).copied().unwrap_or(0);
        there + self.placed.get(model).copied().unwrap_or(0)
    }
}

fn first_memory(model: &Model) -> Bytes {
    model
        .profiles()
        .first()
        .map_or(Bytes::ZERO, |profile| profile.memory)
}

fn no_node_is_promised_more_than_it_has(fleet: &Fleet, plan: &Plan) -> bool {
    fleet.nodes.iter().all(|node| {
        let promised: Bytes = plan
            .placements
            .iter()
            .filter(|placement| placement.node == node.id)
            .map(|placement| placement.memory)
            .sum();
        promised == Bytes::ZERO || node.memory_free().is_some_and(|free| promised <= free)
    })
}

#[cfg(test)]
mod tests;
