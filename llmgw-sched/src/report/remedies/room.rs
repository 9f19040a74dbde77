//! Room that others give up: replicas that stop or are ending, and disk.

use llmgw_core::{
    id::ReplicaId,
    reason::{
        Check,
        remedy::{Awaited, Change, Remedy, Stoppable},
    },
};

use super::{
    super::trial::{Candidate, Trials},
    first_of_each, on_nodes,
};
use crate::fleet::{FleetNode, FleetReplica, Phase};

/// Replicas of other models, those idle for longest first, and none that is not needed.
pub(super) fn stop(trials: &Trials<'_, '_>) -> Vec<Remedy> {
    let other = |replica: &FleetReplica| {
        replica.model != *trials.model.name()
            && replica.phase != Phase::Leaving
            && replica.rank.is_none()
            // What only the plan has begun can't be stopped.
            && !replica.id.is_imagined()
    };
    let mut found: Vec<Remedy> = trials
        .lacking(ROOM)
        .into_iter()
        .filter_map(|candidate| {
            let node = trials.node(candidate.index)?;
            let stopped = fewest(trials, candidate, &node, other)?;
            let hostname = &node.hostname;
            let replicas = stopped.iter().map(|replica| Stoppable {
                replica: replica.id,
                model: replica.model.clone(),
                hostname: hostname.clone(),
                idle_seconds: replica.idle_seconds,
            });
            let change = Change::Stop {
                replicas: replicas.collect(),
            };
            without(trials, candidate, node.clone(), &stopped, change)
        })
        .collect();
    // The fewest first, and of those the ones that are idle for longest.
    found.sort_by_key(|remedy| match &remedy.change {
        Change::Stop { replicas } => {
            let idle = replicas.iter().map(|replica| replica.idle_seconds).min();
            (replicas.len(), std::cmp::Reverse(idle.flatten()))
        }
        _ => (usize::MAX, std::cmp::Reverse(None)),
    });
    let mut least: Vec<Remedy> = Vec::new();
    for remedy in found {
        if !least.iter().any(|known| asks_for_no_more(known, &remedy)) {
            least.push(remedy);
        }
    }
    first_of_each(least.into_iter())
}

/// Whether everything that stops in one also stops in the other.
fn asks_for_no_more(one: &Remedy, other: &Remedy) -> bool {
    match (&one.change, &other.change) {
        (Change::Stop { replicas }, Change::Stop { replicas: others }) => replicas
            .iter()
            .all(|replica| others.iter().any(|other| other.replica == replica.replica)),
        _ => false,
    }
}

/// A replica that is on its way out, and whose end is enough.
pub(super) fn leaving(trials: &Trials<'_, '_>) -> Vec<Remedy> {
    let found = trials.lacking(ROOM).into_iter().filter_map(|candidate| {
        let node = trials.node(candidate.index)?;
        let ending = |replica: &FleetReplica| replica.phase == Phase::Leaving;
        let ended = fewest(trials, candidate, &node, ending)?;
        let [last] = &ended[..] else { return None };
        let change = Change::Wait {
            until: Awaited::Leaving {
                replica: last.id,
                model: last.model.clone(),
                hostname: node.hostname.clone(),
            },
            percent: None,
            seconds: None,
        };
        without(trials, candidate, node.clone(), &ended, change)
    });
    first_of_each(found)
}

/// Exactly as much disk as is missing.
pub(super) fn disk(trials: &Trials<'_, '_>) -> Vec<Remedy> {
    on_nodes(trials, trials.lacking(&[Check::Disk]), |node, candidate| {
        let mut reasons = candidate.rejection.reasons.iter();
        let free = reasons.find_map(|reason| reason.short_by)?;
        node.disk_free = node.disk_free.map(|known| known + free);
        Some(Change::Disk {
            node: node.id,
            hostname: node.hostname.clone(),
            free,
        })
    })
}

/// Those idle for longest that make room together, less those that prove not needed; `None` when all do not help.
fn fewest<'n>(
    trials: &Trials<'_, '_>,
    candidate: Candidate<'_>,
    node: &'n FleetNode,
    may: impl Fn(&FleetReplica) -> bool,
) -> Option<Vec<&'n FleetReplica>> {
    let mut candidates: Vec<&FleetReplica> = node
        .replicas
        .iter()
        .filter(|replica| may(replica))
        .collect();
    candidates.sort_by_key(|replica| (std::cmp::Reverse(replica.idle_seconds), replica.id));
    let helps = |gone: &[&FleetReplica]| {
        let left = left(node.clone(), gone.iter().map(|replica| replica.id));
        trials.with_node(left, candidate.profile).is_some()
    };
    let enough = (1..=candidates.len().min(MOST_STOPPED))
        .find(|count| candidates.get(..*count).is_some_and(helps))?;
    let mut needed: Vec<&FleetReplica> = candidates.into_iter().take(enough).collect();
    // The last one made it fit. Of the others some may have been too small to matter.
    for at in (0..enough.saturating_sub(1)).rev() {
        let mut fewer = needed.clone();
        fewer.remove(at);
        if helps(&fewer) {
            needed = fewer;
        }
    }
    Some(needed)
}

fn without(
    trials: &Trials<'_, '_>,
    candidate: Candidate<'_>,
    node: FleetNode,
    gone: &[&FleetReplica],
    change: Change,
) -> Option<Remedy> {
    let left = left(node, gone.iter().map(|replica| replica.id));
    let places = trials.with_node(left, candidate.profile)?;
    Some(Remedy {
        change,
        places: Some(places),
    })
}

fn left(mut node: FleetNode, gone: impl Iterator<Item = ReplicaId>) -> FleetNode {
    let gone: Vec<ReplicaId> = gone.collect();
    node.replicas.retain(|replica| !gone.contains(&replica.id));
    node
}

const ROOM: &[Check] = &[Check::GpuMemory, Check::Cpu, Check::Memory];

/// Who has to stop more than this for one model will not.
const MOST_STOPPED: usize = 8;
