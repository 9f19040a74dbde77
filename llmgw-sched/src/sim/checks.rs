//! What must hold after each step, judged from outside of what decided it.

mod places;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use llmgw_core::{
    cluster::{order::Subject, replica::ReplicaState},
    id::{ModelName, NodeId, ReplicaId},
};

use super::{Invariant, world::World};
use crate::{
    conductor::snapshot::Snapshot,
    reconcile::{Action, Memory, Why},
};

impl World {
    /// Checks what a control plane has just done; `before` is what it remembered.
    pub(super) fn check_step(&mut self, at: usize, before: &Memory, acted: &[Action]) {
        if acted.is_empty() {
            return;
        }
        let world_now = self.now;
        let Some(mind) = self.planes.get(at).and_then(|plane| plane.mind.as_ref()) else {
            return;
        };
        let state = mind.conductor.state();
        let now = mind.now(world_now);
        let writes = mind.leading.is_some_and(|epoch| self.store.takes(epoch));
        let broken = [
            no_last_ready(state, before, acted),
            self.no_parked(state, acted, writes),
            places::no_overload(state, acted),
            places::no_double_start(state, before, acted),
            self.no_move_in_hold(state, before, acted, writes),
            self.no_busy_idle(state, before, acted),
            self.no_broken_stream(before, acted, now),
            self.no_double(),
        ];
        if let Some((invariant, what)) = broken.into_iter().flatten().next() {
            self.broken(invariant, format!("plane {at}: {what}"));
        }
    }

    fn no_parked(&self, state: &Snapshot, acted: &[Action], writes: bool) -> Option<Broken> {
        let unparked: BTreeSet<&ModelName> = acted
            .iter()
            .filter_map(|action| match action {
                Action::Unpark { model } => Some(model),
                _ => None,
            })
            .collect();
        acted.iter().find_map(|action| {
            let Action::Place { model, .. } = action else {
                return None;
            };
            let history = state.memory.histories.get(model);
            let known = history.is_some_and(|history| history.parked);
            let subject = Subject::Park(model.clone());
            let stands =
                writes && self.store.orders.contains_key(&subject) && !unparked.contains(model);
            (known || stands).then(|| (Invariant::Parked, format!("{model} is parked and placed")))
        })
    }

    /// What is taken for idle has not been at work for as long as its model says, by the gateway's own count.
    fn no_busy_idle(&self, state: &Snapshot, before: &Memory, acted: &[Action]) -> Option<Broken> {
        acted.iter().find_map(|action| {
            let Action::Drain {
                replica,
                why: Why::Idle,
            } = action
            else {
                return None;
            };
            let given = before.assignments.get(replica)?;
            let name = &given.spec.model;
            let reason = if self.clients.outstanding(*replica) > 0 {
                "it answers calls".to_owned()
            } else if !is_ready(state, *replica, given.node) {
                "it is loading".to_owned()
            } else {
                let used_at = self.clients.used_at.get(replica)?;
                let model = &state.entries.get(name)?;
                let idle = self.now.saturating_sub(*used_at);
                let least = state.completed(model).scaling().idle_timeout();
                if idle + Duration::from_secs(2) >= least {
                    return None;
                }
                format!("it was at work {} ms ago", idle.as_millis())
            };
            let what = format!("{replica} of {name} is taken for idle though {reason}");
            Some((Invariant::Idle, what))
        })
    }

    fn no_broken_stream(&self, before: &Memory, acted: &[Action], now: Duration) -> Option<Broken> {
        acted.iter().find_map(|action| {
            let Action::Stop { replica, .. } = action else {
                return None;
            };
            let calls = self.clients.outstanding(*replica);
            let since = before
                .assignments
                .get(replica)
                .and_then(|given| given.draining.as_ref())
                .map(|(since, _)| *since);
            let patient = since.is_none_or(|since| now.saturating_sub(since) < DRAIN);
            (calls > 0 && patient).then(|| {
                let what = format!("{replica} is stopped while it answers {calls} calls");
                (Invariant::Streams, what)
            })
        })
    }

    /// No replica has a process on two nodes.
    fn no_double(&self) -> Option<Broken> {
        let mut seen: BTreeMap<ReplicaId, NodeId> = BTreeMap::new();
        for (node, machine) in &self.nodes {
            for replica in machine.processes.keys() {
                if let Some(other) = seen.insert(*replica, *node) {
                    let what = format!("{replica} runs on {other} and on {node}");
                    return Some((Invariant::Fence, what));
                }
            }
        }
        None
    }
}

type Broken = (Invariant, String);

/// Whether a replica serves, by what its node said last.
fn is_ready(state: &Snapshot, replica: ReplicaId, node: NodeId) -> bool {
    let node = state.observed.nodes.get(&node);
    let status = node.and_then(|node| node.replicas.get(&replica));
    status.is_some_and(|status| status.state == ReplicaState::Ready)
}

/// A move that nobody ordered or forced leaves one replica that serves.
fn no_last_ready(state: &Snapshot, before: &Memory, acted: &[Action]) -> Option<Broken> {
    acted.iter().find_map(|action| {
        let Action::Drain { replica, why } = action else {
            return None;
        };
        // That many more are there than wanted is what an operator said; the others are the loop's own idea.
        let voluntary = matches!(
            why,
            Why::Surplus | Why::LessLoad | Why::Moved | Why::Rolled | Why::BackedOut
        );
        let given = before
            .assignments
            .get(replica)
            .or_else(|| state.memory.assignments.get(replica))?;
        let model = &given.spec.model;
        if !voluntary || !is_ready(state, *replica, given.node) {
            return None;
        }
        // What is idle may go at the same time, as the last one too.
        let idle = |id: &ReplicaId| {
            acted.iter().any(|action| match action {
                Action::Drain { replica, why } => {
                    replica == id && matches!(why, Why::Idle | Why::RoomFor(_))
                }
                _ => false,
            })
        };
        let serves = state.memory.assignments.iter().any(|(id, other)| {
            other.spec.model == *model
                && (other.draining.is_none() || idle(id))
                && is_ready(state, *id, other.node)
        });
        (!serves).then(|| {
            let what = format!("the last ready replica {replica} of {model} is drained: {why:?}");
            (Invariant::LastReady, what)
        })
    })
}

/// How long calls may take to end, as the loop has it.
const DRAIN: Duration = Duration::from_secs(60);
