//! What a decision of the loop looks at, with the questions that several of them ask.

use std::{collections::BTreeMap, time::Duration};

use llmgw_core::{
    cluster::{
        catalog::Model,
        order::{Duty, HoldScope},
        replica::{ReplicaSpec, ReplicaState},
    },
    id::{ModelName, NodeId, ReplicaId},
};

use super::{Assignment, Intent, Memory, Observed, is_lost, roll, state_of, statuses};
use crate::fleet::FACILITY;

/// What is intended, observed and remembered at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene<'s> {
    pub(super) intent: &'s Intent,
    pub(super) observed: &'s Observed,
    pub(super) memory: &'s Memory,
    pub(super) now: Duration,
}

/// A replica that was given to a node.
pub(super) type Given<'s> = (ReplicaId, &'s Assignment);

/// The replicas of one model that count, by whether they may stay where they are.
#[derive(Debug, Default)]
pub(super) struct Places<'s> {
    /// Those that stay.
    pub(super) kept: Vec<Given<'s>>,
    /// Those on nodes that are draining and not held.
    pub(super) leaving: Vec<Given<'s>>,
}

impl<'s> Scene<'s> {
    /// How many replicas a model should have now.
    pub(super) fn target(&self, model: &Model) -> usize {
        usize::try_from(self.memory.target(model)).unwrap_or(usize::MAX)
    }

    /// The replicas of each model that are not on their way out.
    pub(super) fn by_model(&self) -> BTreeMap<&'s ModelName, Vec<Given<'s>>> {
        let mut by_model: BTreeMap<&ModelName, Vec<Given<'s>>> = BTreeMap::new();
        for (id, given) in &self.memory.assignments {
            if given.draining.is_none() {
                let of_model = by_model.entry(&given.spec.model).or_default();
                of_model.push((*id, given));
            }
        }
        by_model
    }

    /// The same for one model.
    pub(super) fn of_model(&self, name: &ModelName) -> Vec<Given<'s>> {
        let given = self.memory.assignments.iter();
        given
            .filter(|(_, given)| given.draining.is_none() && given.spec.model == *name)
            .map(|(id, given)| (*id, given))
            .collect()
    }

    pub(super) fn places(&self, replicas: Vec<Given<'s>>) -> Places<'s> {
        let (leaving, kept) = replicas
            .into_iter()
            .partition(|(_, given)| self.must_move(given.node));
        Places { kept, leaving }
    }

    /// Whether it serves, as far as is known: its node is heard and says so.
    pub(super) fn is_ready(&self, (id, given): Given<'_>) -> bool {
        let heard = self.observed.nodes.get(&given.node);
        heard.is_some_and(|node| !is_lost(node, self.now))
            && state_of(self.observed, id, given) == Some(ReplicaState::Ready)
    }

    /// Whether it has served for so long.
    pub(super) fn is_steady(&self, given: Given<'_>, span: Duration) -> bool {
        let since = given.1.ready_since;
        self.is_ready(given) && since.is_some_and(|since| self.now.saturating_sub(since) >= span)
    }

    /// Whether it is answering calls.
    pub(super) fn is_busy(&self, id: ReplicaId) -> bool {
        self.observed
            .outstanding
            .get(&id)
            .is_some_and(|calls| *calls > 0)
    }

    /// Whether what runs on a node is to run elsewhere: it is draining, and nobody holds it.
    pub(super) fn must_move(&self, node: NodeId) -> bool {
        let ordered = self.intent.orders.node(node);
        ordered.is_some_and(|order| order.duty == Duty::Draining) && !self.is_held(node)
    }

    /// Whether what runs on a node is to go even where it has no place elsewhere.
    pub(super) fn must_go(&self, node: NodeId) -> bool {
        self.must_move(node) && self.intent.orders.forces_drain(node)
    }

    /// Whether replicas of a model are on their way out, or have been told to end and are still there.
    pub(super) fn has_leaving(&self, model: &ModelName) -> bool {
        let mut given = self.memory.assignments.values();
        let drains = given.any(|given| given.draining.is_some() && given.spec.model == *model);
        drains
            || statuses(self.observed, self.now).any(|(_, status)| {
                status.spec.model == *model
                    && status.state.holds_memory()
                    && self.memory.ended.contains(&status.spec.id)
            })
    }

    /// Whether an operator wants nothing placed or moved there.
    pub(super) fn is_held(&self, node: NodeId) -> bool {
        let heard = self.observed.nodes.get(&node);
        let labels = heard.map(|heard| &heard.facts.labels);
        let mut holds = self.intent.orders.holds(self.intent.at);
        holds.any(|hold| match &hold.scope {
            HoldScope::Node(held) => *held == node,
            HoldScope::Facility(name) => {
                labels.is_some_and(|labels| labels.get(FACILITY) == Some(name))
            }
            HoldScope::Pool(name) => {
                labels.is_some_and(|labels| self.intent.pools.has(name, labels))
            }
        })
    }

    /// Whether the definition of a replica has changed since it was started. One of which that was not recorded, and
    /// one whose model or profile is gone, are not stale: other states say those.
    pub(super) fn is_stale(&self, given: &Assignment) -> bool {
        self.is_of_older(&given.spec)
    }

    /// The same of one that is not given yet.
    pub(super) fn is_of_older(&self, spec: &ReplicaSpec) -> bool {
        let current = self.intent.fingerprint(&spec.model, &spec.profile.name);
        spec.fingerprint.0 != 0 && current.is_some_and(|current| current != spec.fingerprint)
    }

    /// Whether agents that ran on have had the time to say so.
    pub(super) fn is_settled(&self) -> bool {
        self.now >= self.memory.settle_until
    }

    /// Whether replicas may be moved, or stopped for less load: the fleet has settled, and not too much of it is silent.
    pub(super) fn may_move(&self) -> bool {
        self.is_settled() && self.memory.frozen.is_none()
    }

    /// How many replicas are to be had now: one more than the target while a roll replaces one after another.
    pub(super) fn wants(&self, model: &Model) -> usize {
        let surge = self.may_move() && roll::wants_surge(self, model.name());
        let target = self.target(model);
        target.saturating_add(usize::from(surge && target > 0))
    }
}
