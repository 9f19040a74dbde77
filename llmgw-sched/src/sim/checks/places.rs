//! What must hold of what was just placed and moved: room, turns, and operators' holds.

use std::collections::{BTreeMap, BTreeSet};

use llmgw_core::{
    cluster::{
        order::{Hold, HoldScope, Order, StoredOrder},
        replica::ReplicaSpec,
        weights::{DISK_RESERVE, Sha256Digest},
    },
    id::{ModelName, NodeId, ReplicaId},
    units::Bytes,
};

use super::{super::gpus::Promised, Broken, Invariant, World, is_ready};
use crate::{
    conductor::snapshot::Snapshot,
    fleet::FACILITY,
    reconcile::{Action, Memory, Why},
};

/// What is promised of a node that something was placed on, and what still runs there, fits into it.
pub(super) fn no_overload(state: &Snapshot, acted: &[Action]) -> Option<Broken> {
    acted.iter().find_map(|action| {
        let Action::Place { node, model, .. } = action else {
            return None;
        };
        let observed = state.observed.nodes.get(node)?;
        let has = observed.facts.memory?.allocatable;
        let mut held: BTreeMap<ReplicaId, &ReplicaSpec> = BTreeMap::new();
        for (id, given) in &state.memory.assignments {
            if given.node == *node {
                held.insert(*id, &given.spec);
            }
        }
        for (id, status) in &observed.replicas {
            if status.state.holds_memory() {
                held.entry(*id).or_insert(&status.spec);
            }
        }
        let mut gpus = Promised::default();
        for spec in held.values() {
            gpus.add(spec);
        }
        let sum: Bytes = held.values().map(|spec| spec.profile.memory).sum();
        let what = if sum > has {
            let held: Vec<_> = held.keys().collect();
            format!("{sum} are promised of {has} on {node}: {held:?}")
        } else if let Some(what) = gpus.too_much(&observed.facts) {
            format!("{what}, on {node}")
        } else {
            too_much_disk(state, *node, model).map(|what| format!("{what} on {node}"))?
        };
        Some((Invariant::Capacity, what))
    })
}

/// The weights that are still to come to a node where something was placed that needs some have room on its disk.
fn too_much_disk(state: &Snapshot, node: NodeId, placed: &ModelName) -> Option<String> {
    let observed = state.observed.nodes.get(&node)?;
    let free = observed.facts.disk.as_ref()?.free - DISK_RESERVE;
    let there = observed.weights.iter().flatten().map(|one| one.sha256);
    let there: BTreeSet<Sha256Digest> = there.collect();
    let of_node = |model: Option<&ModelName>| {
        let given = state.memory.assignments.iter();
        given
            .filter(|(_, given)| given.node == node && given.draining.is_none())
            .filter(|(_, given)| model.is_none_or(|model| given.spec.model == *model))
            .count()
    };
    // Where a replica of the model is already, its weights are taken to be there or to come.
    if of_node(Some(placed)) > 1 {
        return None;
    }
    let mut coming: BTreeMap<Sha256Digest, Bytes> = BTreeMap::new();
    let mut is_of_placed = false;
    for (id, given) in &state.memory.assignments {
        let weights = &given.spec.weights;
        let (Some(digest), Some(size)) = (weights.sha256, weights.total()) else {
            continue;
        };
        if given.node != node || given.draining.is_some() || there.contains(&digest) {
            continue;
        }
        let fetch = observed.replicas.get(id).and_then(|one| one.fetch.as_ref());
        let done = fetch.map_or(Bytes::ZERO, |fetch| fetch.bytes_done);
        let left = coming.entry(digest).or_insert(size);
        *left = (*left).min(size - done);
        is_of_placed |= given.spec.model == *placed;
    }
    let need: Bytes = coming.values().copied().sum();
    (is_of_placed && need > free)
        .then(|| format!("{need} of weights are to come to {free} of disk"))
}

/// Nothing starts on a GPU where another start is under way.
pub(super) fn no_double_start(
    state: &Snapshot,
    before: &Memory,
    acted: &[Action],
) -> Option<Broken> {
    let places = |action: &Action| matches!(action, Action::Place { gpus, .. } if !gpus.is_empty());
    if !acted.iter().any(places) {
        return None;
    }
    let mut starting: BTreeMap<(NodeId, u32), ReplicaId> = BTreeMap::new();
    for (id, given) in &state.memory.assignments {
        if given.draining.is_some() || is_ready(state, *id, given.node) {
            continue;
        }
        for gpu in &given.spec.gpus {
            let other = starting.insert((given.node, *gpu), *id);
            // What was taken over now was started by others.
            let placed = |id: &ReplicaId| {
                let is_adopted = |action: &Action| matches!(action, Action::Adopt { spec, .. } if spec.id == *id);
                !before.assignments.contains_key(id) && !acted.iter().any(is_adopted)
            };
            if let Some(other) = other.filter(|other| placed(other) || placed(id)) {
                let what = format!("{other} and {id} start on GPU {gpu} of {}", given.node);
                return Some((Invariant::Starts, what));
            }
        }
    }
    None
}

impl World {
    /// Nothing is placed, and nothing is moved by the loop's own idea, where an operator wants neither.
    pub(super) fn no_move_in_hold(
        &self,
        state: &Snapshot,
        before: &Memory,
        acted: &[Action],
        writes: bool,
    ) -> Option<Broken> {
        acted.iter().find_map(|action| {
            let (node, what) = match action {
                Action::Place { node, model, .. } => (*node, format!("{model} is placed")),
                Action::Drain {
                    replica,
                    why: why @ (Why::Moved | Why::Rolled | Why::RoomFor(_)),
                } => {
                    let given = before.assignments.get(replica)?;
                    (given.node, format!("{replica} leaves ({why:?})"))
                }
                _ => return None,
            };
            let hold = self.hold_on(state, node, writes)?;
            let what = format!("{what} on {node}, which {} holds", hold.name);
            Some((Invariant::Held, what))
        })
    }

    /// The hold on a node: by the store while what this control plane writes counts, else by what it knows.
    pub(in crate::sim) fn hold_on<'w>(
        &'w self,
        state: &'w Snapshot,
        node: NodeId,
        writes: bool,
    ) -> Option<&'w Hold> {
        let facility = self.nodes.get(&node)?.facts.labels.get(FACILITY);
        let holds = |stored: &'w StoredOrder| match &stored.order {
            Order::Hold(hold) if !hold.has_ended(state.at) => Some(hold),
            _ => None,
        };
        let is_there = |hold: &&Hold| match &hold.scope {
            HoldScope::Node(held) => *held == node,
            HoldScope::Facility(name) => facility == Some(name),
            HoldScope::Pool(_) => false,
        };
        if writes {
            self.store.orders.values().filter_map(holds).find(is_there)
        } else {
            state.orders.iter().filter_map(holds).find(is_there)
        }
    }
}
