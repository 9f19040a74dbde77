//! What the loop remembers between steps: what it gave to whom, and how each model has fared.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use llmgw_core::{
    cluster::replica::{ReplicaSpec, ReplicaState},
    id::{ModelName, NodeId, ReplicaId},
};

use super::{Action, Observed, Why, state_of};

/// All that the loop remembers. Kept in memory only: after a restart it is learnt again from the agents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// What was given to nodes, and not yet let go.
    pub assignments: BTreeMap<ReplicaId, Assignment>,
    /// How models have fared; only those that failed.
    pub histories: BTreeMap<ModelName, History>,
    /// Nothing is placed before this time: agents that ran on must be heard first.
    pub settle_until: Duration,
    /// Replicas that were let go and that a node may still report: never adopted again.
    pub ended: BTreeSet<ReplicaId>,
}

/// A replica that was given to a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// What was given.
    pub spec: ReplicaSpec,
    /// To whom.
    pub node: NodeId,
    /// When it was given or adopted.
    pub since: Duration,
    /// The node's desired revision that said so first; absent until it was sent.
    pub revision: Option<u64>,
    /// Since when it serves; absent while it does not.
    pub ready_since: Option<Duration>,
    /// Since when it takes no new calls, and why.
    pub draining: Option<(Duration, Why)>,
}

/// How a model has fared.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct History {
    /// Failures in a row.
    pub failures: u32,
    /// Not tried again until an operator says so or the model is changed.
    pub parked: bool,
    /// Not tried before this time.
    pub retry_at: Duration,
    /// The last failure.
    pub last_error: Option<String>,
    /// The last lines of the log of the *first* failure in the row.
    pub first_log: Vec<String>,
}

// === impl Memory ===

impl Memory {
    /// Notes a decision. [`Action::Place`] is not noted here: it needs an id; see [`Memory::given`].
    pub fn apply(&mut self, action: &Action, now: Duration) {
        match action {
            Action::Adopt { spec, node } => self.given((**spec).clone(), *node, now),
            Action::Place { .. } => {}
            Action::Drain { replica, why } => {
                if let Some(given) = self.assignments.get_mut(replica) {
                    given.draining = Some((now, *why));
                }
            }
            Action::Stop { replica, .. } => {
                self.assignments.remove(replica);
                self.ended.insert(*replica);
            }
            Action::Forget { replica, why } => {
                self.assignments.remove(replica);
                if *why != Why::NodeLost {
                    self.ended.insert(*replica);
                }
            }
            Action::Fail {
                replica,
                error,
                log_tail,
            } => {
                let Some(given) = self.assignments.remove(replica) else {
                    return;
                };
                self.ended.insert(*replica);
                // A failure on the way out is no mark against the model.
                if given.draining.is_none() {
                    let history = self.histories.entry(given.spec.model).or_default();
                    history.fail(error, log_tail, now);
                }
            }
            Action::Absolve { model } => {
                self.histories.remove(model);
            }
        }
    }

    /// Notes that a replica was given to a node.
    pub fn given(&mut self, spec: ReplicaSpec, node: NodeId, now: Duration) {
        let assignment = Assignment {
            node,
            since: now,
            revision: None,
            ready_since: None,
            draining: None,
            spec,
        };
        self.assignments.insert(assignment.spec.id, assignment);
    }

    /// Takes in what is observed: since when replicas serve, and which ended ones nobody reports any more.
    pub fn observe(&mut self, observed: &Observed, now: Duration) {
        for (id, given) in &mut self.assignments {
            let ready = state_of(observed, *id, given) == Some(ReplicaState::Ready);
            given.ready_since = if ready {
                given.ready_since.or(Some(now))
            } else {
                None
            };
        }
        let reported = |id: &ReplicaId| {
            observed
                .nodes
                .values()
                .any(|node| node.replicas.contains_key(id))
        };
        self.ended.retain(reported);
    }

    /// Forgets the failures of a model, so that it is tried at once. Says whether there were any.
    pub fn absolve(&mut self, model: &ModelName) -> bool {
        self.histories.remove(model).is_some()
    }

    /// Replicas of a model that count: given, and not on their way out.
    #[must_use]
    pub fn serving(&self, model: &ModelName) -> u64 {
        let counts = |given: &&Assignment| given.spec.model == *model && given.draining.is_none();
        u64::try_from(self.assignments.values().filter(counts).count()).unwrap_or(u64::MAX)
    }

    /// Whether a replica was given, or was let go.
    #[must_use]
    pub fn knows(&self, id: ReplicaId) -> bool {
        self.assignments.contains_key(&id) || self.ended.contains(&id)
    }
}

// === impl History ===

impl History {
    /// Whether the model may be tried at `now`.
    #[must_use]
    pub fn may_try(&self, now: Duration) -> bool {
        !self.parked && now >= self.retry_at
    }

    fn fail(&mut self, error: &str, log_tail: &[String], now: Duration) {
        if self.failures == 0 {
            self.first_log = log_tail.to_vec();
        }
        self.failures = self.failures.saturating_add(1);
        self.last_error = Some(error.to_owned());
        self.parked = self.failures >= PARKED_AFTER;
        // 1, 4, 16, 64 seconds: a network that is away for a minute parks nothing.
        let steps = self.failures.saturating_sub(1).min(PARKED_AFTER);
        self.retry_at = now + Duration::from_secs(1 << (2 * steps));
    }
}

/// Failures in a row after which a model is not tried again by itself.
pub const PARKED_AFTER: u32 = 5;
