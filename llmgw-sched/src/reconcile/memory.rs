//! What the loop remembers between steps: what it gave to whom, and how each model has fared.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use llmgw_core::{
    api::decision::RollEnd,
    cluster::{
        catalog::Model,
        order::Subject,
        replica::{ReplicaSpec, ReplicaState},
    },
    id::{ModelName, NodeId, ReplicaId},
};

use super::{
    Action, Intent, Observed, Why,
    demand::{Demand, follows_load},
    is_lost,
    roll::Roll,
    silence::Frozen,
    state_of,
};

/// All that the loop remembers. Kept in memory only: after a restart it is learnt again from the agents, and what must
/// not be forgotten is an order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// What was given to nodes, and not yet let go.
    pub assignments: BTreeMap<ReplicaId, Assignment>,
    /// How models have fared; only those that failed.
    pub histories: BTreeMap<ModelName, History>,
    /// Nothing is placed, moved or stopped before this time: agents that ran on must be heard first.
    pub settle_until: Duration,
    /// How long that takes once moves are frozen no more.
    pub settle: Duration,
    /// Replicas that were let go and that a node may still report: never adopted again.
    pub ended: BTreeSet<ReplicaId>,
    /// What models are asked for whose number of replicas follows their load.
    pub demands: BTreeMap<ModelName, Demand>,
    /// The last roll of each model.
    pub rolls: BTreeMap<ModelName, Roll>,
    /// Replicas that end to make room for a model, until their memory is free.
    pub room: BTreeMap<ReplicaId, ModelName>,
    /// Models that made room for another, which they leave it until it is placed; and since when.
    pub yielded: BTreeMap<ModelName, (ModelName, Duration)>,
    /// Moves are frozen, and why.
    pub frozen: Option<Frozen>,
    /// Silent nodes that an operator has given up: they freeze nothing until they are heard again.
    pub given_up: BTreeSet<NodeId>,
    /// What was last warned of: the reason that a model is not placed, and when.
    pub warned: BTreeMap<ModelName, (String, Duration)>,
    /// When something was last given to be written, by what it is about.
    pub told: BTreeMap<Subject, Duration>,
}

/// A replica that was given to a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// What was given.
    pub spec: Arc<ReplicaSpec>,
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
    /// When it was last at work; when it was given, while it has not been.
    pub used_at: Duration,
    /// Calls that it had been given when it was last looked at.
    calls: u64,
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
    /// When it failed last.
    pub failed_at: Duration,
}

// === impl Memory ===

impl Memory {
    /// Notes a decision. [`Action::Place`] is not noted here: it needs an id; see [`Memory::given`].
    pub fn apply(&mut self, action: &Action, now: Duration) {
        match action {
            Action::Adopt { spec, node } => {
                let model = spec.model.clone();
                self.given((**spec).clone(), *node, now);
                // What runs was asked for: it is not taken away before it was idle.
                let serving = u32::try_from(self.serving(&model)).unwrap_or(u32::MAX);
                if let Some(demand) = self.demands.get_mut(&model) {
                    demand.target = demand.target.max(serving);
                }
            }
            Action::Place { .. } => {}
            Action::Drain { replica, why } => self.drain(*replica, why, now),
            Action::Keep { replica } => {
                if let Some(given) = self.assignments.get_mut(replica) {
                    given.draining = None;
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
                if given.draining.is_some() {
                    return;
                }
                let model = &given.spec.model;
                let history = self.histories.entry(model.clone()).or_default();
                history.fail(error, log_tail, now);
                if let Some(roll) = self.rolls.get_mut(model)
                    && roll.ended.is_none()
                    && given.since >= roll.since
                {
                    roll.failures = roll.failures.saturating_add(1);
                    roll.last_error = Some(error.clone());
                }
            }
            Action::Absolve { model } => {
                self.histories.remove(model);
            }
            Action::Scale { model, to, why, .. } => {
                let demand = self.demands.entry(model.clone()).or_default();
                demand.set(*to, why.clone());
            }
            Action::Park { model, .. } => {
                self.told.insert(Subject::Park(model.clone()), now);
            }
            Action::Unpark { model } => {
                self.histories.remove(model);
                self.told.insert(Subject::Park(model.clone()), now);
            }
            Action::Recall { model, parked } => {
                let history = History {
                    failures: parked.failures,
                    parked: true,
                    last_error: Some(parked.error.clone()),
                    first_log: parked.first_log.clone(),
                    ..History::default()
                };
                self.histories.insert(model.clone(), history);
            }
            Action::BeginRoll { model, number } => {
                let roll = Roll {
                    number: *number,
                    since: now,
                    replaced: 0,
                    failures: 0,
                    last_error: None,
                    ended: None,
                };
                self.rolls.insert(model.clone(), roll);
            }
            Action::EndRoll {
                model,
                number,
                ended,
            } => self.end_roll(model, *number, ended, now),
            Action::Freeze { silent, of } => {
                self.frozen = Some(Frozen {
                    since: now,
                    silent: silent.clone(),
                    of: *of,
                });
            }
            Action::Thaw => {
                self.frozen = None;
                self.settle_until = self.settle_until.max(now + self.settle);
            }
            Action::Warn { model, reason } => {
                self.warned.insert(model.clone(), (reason.clone(), now));
            }
        }
    }

    fn drain(&mut self, replica: ReplicaId, why: &Why, now: Duration) {
        let Some(given) = self.assignments.get_mut(&replica) else {
            return;
        };
        given.draining = Some((now, why.clone()));
        let model = given.spec.model.clone();
        match why {
            Why::RoomFor(other) => {
                self.room.insert(replica, other.clone());
                if let Some(demand) = self.demands.get_mut(&model) {
                    demand.target = demand.target.saturating_sub(1);
                }
                self.yielded.insert(model, (other.clone(), now));
            }
            Why::Rolled | Why::RolledByForce => {
                if let Some(roll) = self.rolls.get_mut(&model) {
                    roll.replaced = roll.replaced.saturating_add(1);
                }
            }
            _ => {}
        }
    }

    fn end_roll(&mut self, model: &ModelName, number: u64, ended: &RollEnd, now: Duration) {
        // What failed is not what runs on.
        if matches!(ended, RollEnd::BackedOut { .. }) {
            self.histories.remove(model);
        }
        let roll = self.rolls.entry(model.clone()).or_insert_with(|| Roll {
            number,
            since: now,
            replaced: 0,
            failures: 0,
            last_error: None,
            ended: None,
        });
        roll.number = number;
        roll.ended = Some(ended.clone());
        self.told.insert(Subject::Roll(model.clone()), now);
    }

    /// Notes that a replica was given to a node.
    pub fn given(&mut self, spec: ReplicaSpec, node: NodeId, now: Duration) {
        let assignment = Assignment {
            node,
            since: now,
            revision: None,
            ready_since: None,
            draining: None,
            used_at: now,
            calls: 0,
            spec: Arc::new(spec),
        };
        self.assignments.insert(assignment.spec.id, assignment);
    }

    /// Takes in what is observed: since when replicas serve and when they were last at work, what models are asked for,
    /// and which ended replicas nobody reports any more.
    pub fn observe(&mut self, intent: &Intent, observed: &Observed, now: Duration) {
        for (id, given) in &mut self.assignments {
            let ready = state_of(observed, *id, given) == Some(ReplicaState::Ready);
            given.ready_since = if ready {
                given.ready_since.or(Some(now))
            } else {
                None
            };
            let outstanding = observed.outstanding.get(id).copied().unwrap_or(0);
            let calls = observed.calls.get(id).map_or(0, |calls| calls.given);
            if outstanding > 0 || calls != given.calls || !ready {
                given.used_at = now;
                given.calls = calls;
            }
        }
        let reported = |id: &ReplicaId| {
            observed
                .nodes
                .values()
                .any(|node| node.replicas.contains_key(id))
        };
        self.ended.retain(reported);
        let (assignments, ended) = (&self.assignments, &self.ended);
        self.room
            .retain(|id, _| assignments.contains_key(id) || ended.contains(id));
        self.given_up.retain(|id| {
            observed
                .nodes
                .get(id)
                .is_some_and(|node| is_lost(node, now))
        });
        self.observe_demand(intent, observed, now);
        let models = &intent.models;
        self.rolls.retain(|model, _| models.contains_key(model));
        self.warned.retain(|model, _| models.contains_key(model));
        self.told
            .retain(|_, at| now.saturating_sub(*at) < Duration::from_secs(60));
        self.forget_yielded(intent, now);
    }

    fn observe_demand(&mut self, intent: &Intent, observed: &Observed, now: Duration) {
        let mut demands = std::mem::take(&mut self.demands);
        demands.retain(|name, _| intent.models.get(name).is_some_and(follows_load));
        for model in intent.models.values().filter(|model| follows_load(model)) {
            let serving = u32::try_from(self.serving(model.name())).unwrap_or(u32::MAX);
            let scaling = model.scaling();
            let demand = demands
                .entry(model.name().clone())
                .or_insert_with(|| Demand::new(serving));
            demand.target = demand.target.clamp(scaling.min(), scaling.max());
            demand.observe(model, observed, self, now);
        }
        self.demands = demands;
    }

    /// A model that made room waits no longer once the other is placed, is not wanted any more, or finds no place all the
    /// same.
    fn forget_yielded(&mut self, intent: &Intent, now: Duration) {
        let mut yielded = std::mem::take(&mut self.yielded);
        yielded.retain(|_, (other, since)| {
            let wanted = intent.models.get(other).is_some_and(|model| {
                let parked = self.histories.get(other);
                u64::from(self.target(model)) > self.serving(other)
                    && parked.is_none_or(|history| history.may_try(now))
            });
            wanted && now.saturating_sub(*since) < YIELD_AT_MOST
        });
        self.yielded = yielded;
    }

    /// How many replicas a model should have now.
    #[must_use]
    pub fn target(&self, model: &Model) -> u32 {
        let scaling = model.scaling();
        let demand = self.demands.get(model.name());
        demand.map_or_else(
            || scaling.min(),
            |demand| demand.target.clamp(scaling.min(), scaling.max()),
        )
    }

    /// Moves replicas of silent nodes all the same: an operator says that those nodes are gone. Says whether moves were
    /// frozen.
    pub fn thaw(&mut self, now: Duration) -> bool {
        let Some(frozen) = self.frozen.take() else {
            return false;
        };
        self.given_up.extend(frozen.silent);
        self.settle_until = self.settle_until.max(now + self.settle);
        true
    }

    /// Begins to lead anew: nothing is placed, moved or stopped before agents have had the time to be heard.
    pub fn settle_again(&mut self, now: Duration) {
        self.settle_until = self.settle_until.max(now + self.settle);
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
        self.failed_at = now;
        self.last_error = Some(error.to_owned());
        self.parked = self.failures >= PARKED_AFTER;
        // 1, 4, 16, 64 seconds: a network that is away for a minute parks nothing.
        let steps = self.failures.saturating_sub(1).min(PARKED_AFTER);
        self.retry_at = now + Duration::from_secs(1 << (2 * steps));
    }
}

/// Failures in a row after which a model is not tried again by itself.
pub const PARKED_AFTER: u32 = 5;
/// Room that was made is kept for this long: for a replica to end, and for one to be placed.
const YIELD_AT_MOST: Duration = Duration::from_secs(900);
