//! One node while a plan is made: what it has left, and what it would have to fetch.

use std::collections::{BTreeMap, BTreeSet};

use llmgw_core::{
    cluster::{catalog::Model, weights::Source},
    id::ModelName,
    units::Bytes,
};

use super::{Ask, states::States};
use crate::{
    fleet::{FleetNode, FleetReplica, Phase},
    planner::{
        demand::{Classes, bytes},
        room::{Direction, Room},
        score::Ties,
    },
};

/// One node of a [`Working`].
#[derive(Debug)]
pub(crate) struct WorkingNode<'f> {
    pub(crate) node: &'f FleetNode,
    pub(super) state: usize,
    /// Bytes that may still be written; absent when not known.
    pub(crate) disk: Option<i64>,
    /// Replicas that were starting when the fleet was seen.
    pub(crate) starting: BTreeMap<usize, u32>,
    pub(super) kinds: [u32; 16],
    pub(super) tie: u64,
    /// Models whose weights were promised to it by this plan.
    pub(super) promised: BTreeSet<ModelName>,
}

// === impl WorkingNode ===

impl<'f> WorkingNode<'f> {
    pub(super) fn of(
        node: &'f FleetNode,
        states: &mut States,
        classes: &mut Classes,
        ties: &Ties,
    ) -> Self {
        let mut room = Room::of(node, classes);
        let mut kinds = [0; 16];
        let mut starting = BTreeMap::new();
        for replica in &node.replicas {
            hold(&mut room, &mut kinds, node, replica, Direction::Take);
            if replica.phase == Phase::Starting {
                for place in places(node, replica) {
                    *starting.entry(place).or_insert(0) += 1;
                }
            }
        }
        room.kinds = kinds_of(&kinds);
        Self {
            node,
            state: states.number(room),
            disk: node.disk_free.map(bytes),
            starting,
            kinds,
            tie: ties.of(node.id),
            promised: BTreeSet::new(),
        }
    }

    /// Whether weights would have to be fetched to it.
    pub(crate) fn fetches(&self, model: Option<&Model>, replicas: i64) -> bool {
        let Some(model) = model else {
            return false;
        };
        let there = || {
            let mut digests = model.weights().digests().peekable();
            digests.peek().is_some() && digests.all(|digest| self.node.weights.contains(&digest))
        };
        replicas == 0 && !is_on_the_node(model) && !there() && !self.promised.contains(model.name())
    }

    pub(crate) fn has_disk(&self, ask: &Ask<'_>, fetches: bool) -> bool {
        let need = disk_need(ask, fetches);
        need == Bytes::ZERO || self.disk.is_some_and(|free| free >= bytes(need))
    }
}

/// Disk that a replica would take.
pub(crate) fn disk_need(ask: &Ask<'_>, fetches: bool) -> Bytes {
    let model = ask.model.filter(|_| fetches);
    let weights = model.and_then(|model| model.weights().total());
    // A size that is not known can't be checked here: the agent checks again before it writes.
    weights.unwrap_or(Bytes::ZERO) + ask.profile.needs.disk.unwrap_or(Bytes::ZERO)
}

/// Whether the first source of its weights is a file that the node has of itself.
fn is_on_the_node(model: &Model) -> bool {
    matches!(model.weights().sources.first(), Some(Source::File { .. }))
}

/// The places of a replica's GPUs among those of its node.
fn places(node: &FleetNode, replica: &FleetReplica) -> Vec<usize> {
    let gpus = node.gpus.as_deref().unwrap_or_default();
    let place = |index: u32| gpus.iter().position(|gpu| gpu.index == index);
    // A share of a GPU that is gone keeps its turn, so that shares and places stay in step.
    replica
        .gpus
        .iter()
        .map(|share| place(share.index).unwrap_or(usize::MAX))
        .collect()
}

pub(super) fn hold(
    room: &mut Room,
    kinds: &mut [u32; 16],
    node: &FleetNode,
    replica: &FleetReplica,
    direction: Direction,
) {
    room.hold(replica, &places(node, replica), direction);
    let kind = match replica.gpus.as_slice() {
        [] => 0,
        [share] if share.memory.is_some() => 1,
        shares => 1 << shares.len().min(15),
    };
    count_kind(kinds, kind, direction);
}

pub(super) fn count_kind(kinds: &mut [u32; 16], kind: u16, direction: Direction) {
    if kind == 0 {
        return;
    }
    let place = usize::try_from(kind.trailing_zeros()).unwrap_or(0);
    if let Some(count) = kinds.get_mut(place) {
        *count = match direction {
            Direction::Take => count.saturating_add(1),
            Direction::Give => count.saturating_sub(1),
        };
    }
}

pub(super) fn kinds_of(kinds: &[u32; 16]) -> u16 {
    let set = kinds.iter().enumerate().filter(|(_, count)| **count > 0);
    set.fold(0, |bits, (place, _)| bits | 1 << place)
}
