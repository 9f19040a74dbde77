//! Room for a replica by stopping idle ones that were started for a call and that nobody asks to keep; and others of
//! those that have had their turn, when it is another's.

use std::collections::{BTreeMap, BTreeSet};

use llmgw_core::{
    cluster::catalog::Model,
    id::{ModelName, ReplicaId},
};

use super::working::{Ask, Spot, Working};
use crate::fleet::{FleetReplica, Phase};

/// Which replicas may be stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evictable<'a> {
    /// Idle for so many seconds at least.
    pub(crate) idle_seconds: u64,
    /// Not these: something else was decided about them.
    pub(crate) spared: &'a BTreeSet<ReplicaId>,
    /// Not those of these models: they are asked for.
    pub(crate) wanted: &'a BTreeMap<&'a ModelName, &'a Model>,
}

/// The node where stopping least makes room: the place there, and what has to stop. Takes nothing.
pub(crate) fn make_room(
    working: &mut Working<'_>,
    ask: &Ask<'_>,
    evictable: Evictable<'_>,
) -> Option<(Spot, Vec<ReplicaId>)> {
    // Several nodes at once for one replica: what would be lost is more than what is gained.
    if ask.profile.needs.shards.is_some() {
        return None;
    }
    let mut best: Option<(Cost, Spot, Vec<ReplicaId>)> = None;
    for index in 0..working.nodes.len() {
        let victims = fewest(working, index, ask, evictable);
        if victims.is_empty() {
            continue;
        }
        for victim in &victims {
            working.release(index, victim);
        }
        let spot = working.best_of(ask, |node| node == index);
        for victim in &victims {
            working.restore(index, victim);
        }
        let Some(spot) = spot else { continue };
        let cost = Cost::of(&victims, spot);
        if best.as_ref().is_none_or(|(known, _, _)| cost < *known) {
            best = Some((cost, spot, victims.iter().map(|victim| victim.id).collect()));
        }
    }
    best.map(|(_, spot, victims)| (spot, victims))
}

/// What stopping costs: less is better, compared field by field in this order.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Cost {
    /// How many stop.
    replicas: usize,
    /// The one that was idle for least, the longer the better.
    shortest_idle: std::cmp::Reverse<u64>,
    /// How good the place is.
    score: super::score::Score,
}

impl Cost {
    fn of(victims: &[&FleetReplica], spot: Spot) -> Self {
        // One that is at work is idle for no time at all.
        let idle = victims
            .iter()
            .map(|victim| victim.idle_seconds.unwrap_or(0));
        let idle = idle.min();
        Self {
            replicas: victims.len(),
            shortest_idle: std::cmp::Reverse(idle.unwrap_or(0)),
            score: spot.score,
        }
    }
}

/// Those idle for longest that make room together, less those that prove not needed; empty when nothing helps.
fn fewest<'f>(
    working: &mut Working<'f>,
    index: usize,
    ask: &Ask<'_>,
    evictable: Evictable<'_>,
) -> Vec<&'f FleetReplica> {
    let Some(node) = working.nodes.get(index).map(|node| node.node) else {
        return Vec::new();
    };
    let may_stop = |replica: &&FleetReplica| {
        replica.on_demand
            && replica.phase == Phase::Ready
            && replica.rank.is_none()
            && (replica.yields
                || replica
                    .idle_seconds
                    .is_some_and(|idle| idle >= evictable.idle_seconds))
            && !evictable.spared.contains(&replica.id)
            && !evictable.wanted.contains_key(&replica.model)
            && ask.model.is_none_or(|model| *model.name() != replica.model)
    };
    let mut candidates: Vec<&FleetReplica> = node.replicas.iter().filter(may_stop).collect();
    candidates.sort_by_key(|replica| (std::cmp::Reverse(replica.idle_seconds), replica.id));
    let fits = |working: &Working<'_>| {
        working
            .room(index)
            .is_some_and(|room| room.fits(&ask.demand))
    };
    let mut stopped: Vec<&FleetReplica> = Vec::new();
    let mut waiting = candidates.into_iter();
    while !fits(working) {
        let Some(replica) = waiting.next() else { break };
        working.release(index, replica);
        stopped.push(replica);
    }
    let mut needed = Vec::new();
    let makes_room = fits(working);
    for replica in stopped.into_iter().rev() {
        working.restore(index, replica);
        if makes_room && !fits(working) {
            working.release(index, replica);
            needed.push(replica);
        }
    }
    for replica in &needed {
        working.restore(index, replica);
    }
    needed
}
