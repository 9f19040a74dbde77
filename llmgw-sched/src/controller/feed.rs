//! Tells followers what happens, by what has changed from one step of the loop to the next.
//!
//! It runs beside the loop and is held up by nobody: what is told goes into a bounded channel, and a follower that is
//! behind by more than that misses the oldest.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use llmgw_core::{
    api::{admin::JobView, event::Event},
    cluster::{node::NodeState, replica::ReplicaState},
    control::{ControlError, Events, Following, jobs},
    id::{ModelName, NodeId, ReplicaId},
};
use tokio::sync::broadcast::{self, error::RecvError};

use super::{ControllerHandle, Shared, views};
use crate::conductor::snapshot::Snapshot;

#[async_trait]
impl Events for ControllerHandle {
    async fn follow(&self) -> Result<Box<dyn Following>, ControlError> {
        Ok(Box::new(Follower(self.shared.feed.subscribe())))
    }
}

/// Somebody who follows.
#[derive(Debug)]
struct Follower(broadcast::Receiver<Event>);

#[async_trait]
impl Following for Follower {
    async fn next(&mut self) -> Option<Result<Event, ControlError>> {
        match self.0.recv().await {
            Ok(event) => Some(Ok(event)),
            Err(RecvError::Lagged(count)) => Some(Ok(Event::Missed { count })),
            Err(RecvError::Closed) => None,
        }
    }
}

/// What is told of a step.
#[derive(Clone, Debug, Default)]
struct Seen {
    nodes: BTreeMap<NodeId, (String, NodeState)>,
    replicas: BTreeMap<ReplicaId, Shown>,
    jobs: BTreeMap<String, JobView>,
    last_decision: u64,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Shown {
    model: ModelName,
    hostname: String,
    state: ReplicaState,
    error: Option<String>,
}

/// Tells what changes, until the controller stops.
pub(super) async fn keep_telling(shared: Arc<Shared>) {
    let mut snapshots = shared.snapshot.clone();
    let mut leading = shared.leading.clone();
    // Whoever comes hears of all that changes from the step on that was the last when they came.
    let mut before = (
        Arc::clone(&snapshots.borrow_and_update()),
        shared.clock.monotonic(),
    );
    let mut seen: Option<Seen> = None;
    loop {
        tokio::select! {
            changed = snapshots.changed() => if changed.is_err() {
                return;
            },
            changed = leading.changed() => {
                if changed.is_err() {
                    return;
                }
                let epoch = *leading.borrow_and_update();
                // Nobody may follow.
                drop(shared.feed.send(Event::Leading { epoch }));
                continue;
            }
            () = shared.stopping.cancelled() => return,
        }
        let snapshot = Arc::clone(&snapshots.borrow_and_update());
        let now = shared.clock.monotonic();
        if shared.feed.receiver_count() == 0 {
            (before, seen) = ((snapshot, now), None);
            continue;
        }
        let was = seen.take().unwrap_or_else(|| Seen::of(&before.0, before.1));
        let is = Seen::of(&snapshot, now);
        for event in is.since(&was, &snapshot) {
            drop(shared.feed.send(event));
        }
        (before, seen) = ((snapshot, now), Some(is));
    }
}

// === impl Seen ===

impl Seen {
    fn of(snapshot: &Snapshot, now: Duration) -> Self {
        let replicas = views::replicas(snapshot, None, None, now);
        let nodes = views::nodes(snapshot, now);
        let jobs = jobs(&nodes, &replicas);
        let shown = |view: llmgw_core::api::admin::ReplicaView| {
            let shown = Shown {
                model: view.model,
                hostname: view.hostname,
                state: view.state,
                error: view.error,
            };
            (view.id, shown)
        };
        Self {
            nodes: nodes
                .into_iter()
                .map(|node| (node.id, (node.hostname, node.state)))
                .collect(),
            jobs: jobs.into_iter().map(|job| (job.id.clone(), job)).collect(),
            replicas: replicas.into_iter().map(shown).collect(),
            last_decision: snapshot.journal.last_number(),
        }
    }

    /// What has happened between `before` and this.
    fn since(&self, before: &Self, snapshot: &Snapshot) -> Vec<Event> {
        let mut events = Vec::new();
        let decided = snapshot
            .journal
            .decisions(None, before.last_decision, usize::MAX);
        events.extend(decided.into_iter().map(|decision| Event::Decision {
            decision: Box::new(decision),
        }));
        for (id, known) in &self.nodes {
            if before.nodes.get(id) != Some(known) {
                let (hostname, state) = known.clone();
                events.push(Event::Node {
                    id: *id,
                    hostname,
                    state,
                });
            }
        }
        for (id, shown) in &self.replicas {
            if before.replicas.get(id) != Some(shown) {
                events.push(told(*id, shown, shown.state));
            }
        }
        for (id, shown) in &before.replicas {
            if !self.replicas.contains_key(id) && shown.state != ReplicaState::Failed {
                events.push(told(*id, shown, ReplicaState::Stopped));
            }
        }
        for (id, job) in &self.jobs {
            if before.jobs.get(id) != Some(job) {
                let job = Box::new(job.clone());
                events.push(Event::Job { job });
            }
        }
        let ended = before.jobs.keys().filter(|id| !self.jobs.contains_key(*id));
        events.extend(ended.map(|id| Event::JobEnded { id: id.clone() }));
        events
    }
}

fn told(id: ReplicaId, shown: &Shown, state: ReplicaState) -> Event {
    Event::Replica {
        id,
        model: shown.model.clone(),
        hostname: shown.hostname.clone(),
        state,
        error: shown.error.clone(),
    }
}
