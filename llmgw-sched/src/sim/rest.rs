//! Once all is well: whether the cluster has come to rest, and whether that is the right one.

use std::{collections::BTreeMap, time::Duration};

use llmgw_core::{
    cluster::{catalog::Model, order::Duty, replica::ReplicaState, weights::DISK_RESERVE},
    id::{ModelName, NodeId},
    units::Bytes,
};

use super::{Invariant, gpus::Promised, world::World};
use crate::conductor::snapshot::Snapshot;

impl World {
    /// Nothing was decided or ordered for longer than anything waits by itself; or too long has passed.
    pub(super) fn is_at_rest(&mut self) -> bool {
        let quiet = self.now.saturating_sub(self.stirred_at);
        if quiet >= QUIET {
            return true;
        }
        let calm = self.calm_at.get_or_insert(self.now);
        if self.now.saturating_sub(*calm) > LONGEST {
            let what = format!("no rest within {} s", LONGEST.as_secs());
            self.broken(Invariant::Rest, what);
        }
        false
    }

    /// Everything that fits is served, and nothing else runs.
    pub(super) fn check_rest(&mut self) {
        let Some(at) = self.leader() else {
            self.broken(Invariant::Rest, "nobody leads".to_owned());
            return;
        };
        let Some(mind) = self.planes.get(at).and_then(|plane| plane.mind.as_ref()) else {
            return;
        };
        let state = mind.conductor.state();
        let found = self
            .wrong_models(state)
            .or_else(|| self.unknown_models(state))
            .or_else(|| self.stray_processes(state));
        if let Some(what) = found {
            self.broken(Invariant::Rest, what);
        }
    }

    fn unknown_models(&self, state: &Snapshot) -> Option<String> {
        let same = state.entries.len() == self.store.models.len()
            && state
                .entries
                .iter()
                .all(|(name, entry)| self.store.models.get(name) == Some(entry));
        (!same).then(|| "the leader knows other models than the store".to_owned())
    }

    fn stray_processes(&self, state: &Snapshot) -> Option<String> {
        for (node, machine) in &self.nodes {
            for replica in machine.processes.keys() {
                let given = state.memory.assignments.get(replica);
                if given.is_none_or(|given| given.node != *node) {
                    return Some(format!("{replica} runs on {node} for nobody"));
                }
            }
        }
        None
    }

    fn wrong_models(&self, state: &Snapshot) -> Option<String> {
        let mut ready: BTreeMap<&ModelName, u32> = BTreeMap::new();
        for (id, given) in &state.memory.assignments {
            let node = state.observed.nodes.get(&given.node);
            let status = node.and_then(|node| node.replicas.get(id));
            if status.is_some_and(|status| status.state == ReplicaState::Ready) {
                *ready.entry(&given.spec.model).or_default() += 1;
            } else {
                let model = &given.spec.model;
                return Some(format!("{id} of {model} never comes to serve"));
            }
        }
        for (name, entry) in &state.entries {
            let model = state.completed(entry);
            let has = ready.get(name).copied().unwrap_or(0);
            let (min, max) = (model.scaling().min(), model.scaling().max());
            let parked = state
                .memory
                .histories
                .get(name)
                .is_some_and(|history| history.parked);
            if has > max {
                return Some(format!("{name} has {has} replicas and may have {max}"));
            }
            if has >= min || parked {
                continue;
            }
            let mut nodes = self.nodes.keys();
            if let Some(node) = nodes.find(|node| self.has_room(state, **node, &model)) {
                return Some(format!(
                    "{name} has {has} of {min} replicas though it fits on {node}"
                ));
            }
        }
        None
    }

    /// Whether a node that may be used has room for one more; counted from its processes, and not by what was promised.
    fn has_room(&self, state: &Snapshot, id: NodeId, model: &Model) -> bool {
        let duty = state.orders.node(id).map(|order| order.duty);
        let off = matches!(duty, Some(Duty::Cordoned | Duty::Draining));
        let (Some(node), Some(profile)) = (self.nodes.get(&id), model.profiles().first()) else {
            return false;
        };
        if off || self.hold_on(state, id, false).is_some() {
            return false;
        }
        let mut gpus = Promised::default();
        let mut used = Bytes::ZERO;
        for process in node.processes.values() {
            gpus.add(&process.spec);
            used = used + process.spec.profile.memory;
        }
        let shelf = &node.disk.shelf;
        let weights = model.weights();
        let there = weights
            .sha256
            .is_some_and(|digest| shelf.whole.contains_key(&digest));
        let to_come = weights.total().filter(|_| !there);
        let to_come = to_come.unwrap_or(Bytes::ZERO);
        profile.memory <= node.memory() - used
            && gpus.has_room(&node.facts, profile)
            && to_come <= shelf.free() - DISK_RESERVE
    }
}

/// Longer than the longest pause between two tries, than a replica must serve to be trusted, and than a model must be idle.
const QUIET: Duration = Duration::from_secs(100);
/// How long it may take until nothing happens any more.
const LONGEST: Duration = Duration::from_secs(1_200);
