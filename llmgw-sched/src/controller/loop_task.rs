//! The task that owns all state: takes events in, steps, tells agents, publishes.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry as Slot},
    sync::Arc,
    time::Duration,
};

use llmgw_core::{
    api::{
        agent::{DesiredState, NodeReport},
        decision::Outcome,
    },
    cluster::{
        engine::WantedEngine,
        replica::{ReplicaSpec, ReplicaStatus},
        weights::{Sha256Digest, WeightsOrders},
    },
    id::{ModelName, NodeId, ReplicaId},
    route::{ModelRoute, RouteTable, Waiting},
    store::{Epoch, StoredModel},
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{MissedTickBehavior, interval},
};

use super::{
    Shared,
    chronicle::{self, Source},
    findings::{self, Answered, Finding},
    session::Outbox,
    snapshot::{Entry, Snapshot},
    storage,
};
use crate::planner::policy::PolicyName;
use crate::reconcile::{Action, Memory, ObservedNode, is_lost, step};

/// What the loop is told.
#[derive(Debug)]
pub(super) enum Event {
    /// An agent's session was opened.
    Opened { node: NodeId, outbox: Outbox },
    /// An agent said what is.
    Report {
        node: NodeId,
        report: Box<NodeReport>,
    },
    /// This control plane leads again, with what the store holds.
    Leading {
        epoch: u64,
        models: Vec<StoredModel>,
        /// Whether the epoch had to be raised above one that agents have followed.
        raised: bool,
    },
    /// A model was added to the store.
    Added {
        model: Box<StoredModel>,
        done: oneshot::Sender<()>,
    },
    /// A model was removed from the store.
    Removed {
        model: ModelName,
        done: oneshot::Sender<()>,
    },
    /// A model's failures are forgiven.
    Retry {
        model: ModelName,
        done: oneshot::Sender<()>,
    },
    /// What weights are was found out, or not.
    Found {
        answered: Box<Answered>,
        done: oneshot::Sender<()>,
    },
    /// Weights that no model refers to are to go.
    Collect {
        orders: Vec<(NodeId, Sha256Digest)>,
        done: oneshot::Sender<()>,
    },
    /// Other engines are wanted on every node, or more is known of them.
    Engines(Vec<WantedEngine>),
    /// A client asked for a model that nothing serves.
    Asked {
        model: ModelName,
        answer: oneshot::Sender<Option<Waiting>>,
    },
}

/// What the loop begins with.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) entries: BTreeMap<ModelName, Entry>,
    pub(super) engines: Vec<WantedEngine>,
    pub(super) policy: PolicyName,
    pub(super) weights: WeightsOrders,
    pub(super) memory: Memory,
    pub(super) epoch: u64,
    pub(super) shared: Arc<Shared>,
    pub(super) received: mpsc::Receiver<Event>,
    pub(super) snapshot: watch::Sender<Arc<Snapshot>>,
    pub(super) routes: watch::Sender<Arc<RouteTable>>,
}

/// The loop.
#[derive(Debug)]
pub(super) struct LoopTask {
    shared: Arc<Shared>,
    received: mpsc::Receiver<Event>,
    state: Snapshot,
    engines: Vec<WantedEngine>,
    epoch: u64,
    revision: u64,
    sessions: BTreeMap<NodeId, Session>,
    snapshot: watch::Sender<Arc<Snapshot>>,
    routes: watch::Sender<Arc<RouteTable>>,
    routed: Vec<ModelRoute>,
    /// Answers that wait for the next step.
    answers: Vec<Answer>,
}

#[derive(Debug)]
struct Session {
    outbox: Outbox,
    /// Nothing is told to an agent before it has said what it runs.
    reported: bool,
    told: Option<Arc<DesiredState>>,
}

#[derive(Debug)]
enum Answer {
    Done(oneshot::Sender<()>),
    Waiting(ModelName, oneshot::Sender<Option<Waiting>>),
}

impl LoopTask {
    pub(super) fn new(setup: Setup) -> Self {
        let Setup {
            entries,
            engines,
            policy,
            weights,
            memory,
            epoch,
            shared,
            received,
            snapshot,
            routes,
        } = setup;
        let mut task = Self {
            state: Snapshot {
                entries,
                memory,
                engines: engines.iter().map(|engine| engine.name.clone()).collect(),
                policy,
                weights_orders: weights,
                ..Snapshot::default()
            },
            shared,
            received,
            engines,
            epoch,
            revision: 0,
            sessions: BTreeMap::new(),
            snapshot,
            routes,
            routed: Vec::new(),
            answers: Vec::new(),
        };
        // Whoever asks before the first step gets what the store holds, not nothing.
        task.publish(task.shared.clock.monotonic());
        task
    }

    /// Runs until nobody can send events any more.
    pub(super) async fn run(mut self) {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.step();
        loop {
            tokio::select! {
                event = self.received.recv() => match event {
                    Some(event) => self.take_in(event),
                    None => return,
                },
                _ = tick.tick() => {}
            }
            // Whatever else has come in is taken in with the same step.
            for _ in 0..BATCH {
                let Ok(event) = self.received.try_recv() else {
                    break;
                };
                self.take_in(event);
            }
            self.step();
        }
    }

    fn take_in(&mut self, event: Event) {
        match event {
            Event::Opened { node, outbox } => {
                for given in self.state.memory.assignments.values_mut() {
                    if given.node == node {
                        given.revision = None;
                    }
                }
                let session = Session {
                    outbox,
                    reported: false,
                    told: None,
                };
                self.sessions.insert(node, session);
            }
            Event::Report { node, report } => self.take_in_report(node, *report),
            Event::Engines(engines) => {
                self.state.engines = engines.iter().map(|one| one.name.clone()).collect();
                self.engines = engines;
            }
            Event::Leading {
                epoch,
                models,
                raised,
            } => {
                self.epoch = epoch;
                self.state.store_was_older |= raised;
                let names: Vec<&ModelName> =
                    models.iter().map(|stored| stored.model.name()).collect();
                self.state.entries.retain(|name, entry| {
                    entry.origin == llmgw_core::api::admin::Origin::Declared
                        || names.contains(&name)
                });
                for StoredModel { model, added_at } in models {
                    if let Slot::Vacant(slot) = self.state.entries.entry(model.name().clone()) {
                        slot.insert(Entry::added(model, added_at));
                    }
                }
            }
            Event::Added { model, done } => {
                let StoredModel { model, added_at } = *model;
                self.state.memory.absolve(model.name());
                self.state
                    .entries
                    .insert(model.name().clone(), Entry::added(model, added_at));
                self.answers.push(Answer::Done(done));
            }
            Event::Removed { model, done } => {
                self.state.entries.remove(&model);
                self.state.memory.absolve(&model);
                self.state.reports.remove(&model);
                if Arc::make_mut(&mut self.state.findings)
                    .remove(&model)
                    .is_some()
                {
                    self.state.sizes = Arc::new(findings::sizes(&self.state.findings));
                }
                self.answers.push(Answer::Done(done));
            }
            Event::Found { answered, done } => {
                self.take_in_finding(*answered);
                self.answers.push(Answer::Done(done));
            }
            Event::Collect { orders, done } => {
                for (node, digest) in orders {
                    self.state.collect.entry(node).or_default().insert(digest);
                }
                self.answers.push(Answer::Done(done));
            }
            Event::Retry { model, done } => {
                self.state.memory.absolve(&model);
                self.answers.push(Answer::Done(done));
            }
            Event::Asked { model, answer } => self.answers.push(Answer::Waiting(model, answer)),
        }
    }

    fn take_in_finding(&mut self, answered: Answered) {
        let name = answered.model.clone();
        // Whose model is gone, or another by now, is asked anew.
        let Some(entry) = self.state.entries.get(&name) else {
            return;
        };
        let now = self.shared.clock.monotonic();
        let findings = Arc::make_mut(&mut self.state.findings);
        let finding = Finding::of(answered, findings.get(&name), &entry.model, now);
        findings.insert(name, finding);
        self.state.sizes = Arc::new(findings::sizes(findings));
    }

    fn take_in_report(&mut self, node: NodeId, report: NodeReport) {
        let NodeReport {
            revision,
            epoch,
            highest_epoch,
            highest_revision,
            leaving,
            facts,
            provision,
            replicas,
            weights,
        } = report;
        if highest_epoch > Epoch::MAX.0 {
            tracing::warn!(%node, highest_epoch, "a node says that it has followed an epoch that can't be");
        } else if (highest_epoch, highest_revision) > (self.epoch, self.revision) {
            self.shared.outranked.send_if_modified(|highest| {
                let higher = highest_epoch > *highest;
                *highest = highest_epoch.max(*highest);
                higher
            });
        }
        if let Some(session) = self.sessions.get_mut(&node) {
            session.reported = true;
        }
        // What was to go and is there no more has gone.
        if let (Some(ordered), Some(there)) = (self.state.collect.get_mut(&node), &weights) {
            ordered.retain(|digest| there.iter().any(|one| one.sha256 == *digest));
        }
        let replicas: BTreeMap<ReplicaId, ReplicaStatus> = replicas
            .into_iter()
            .map(|status| (status.spec.id, status))
            .collect();
        let observed = ObservedNode {
            heard_at: self.shared.clock.monotonic(),
            left: leaving,
            revision: if epoch == self.epoch { revision } else { 0 },
            facts,
            provision,
            replicas,
            weights,
        };
        self.state.observed.nodes.insert(node, observed);
    }

    fn step(&mut self) {
        let now = self.shared.clock.monotonic();
        self.observe_traffic();
        self.state.memory.observe(&self.state.observed, now);
        let leading = *self.shared.leading.borrow() == Some(self.epoch);
        if leading && !self.shared.standing_down.is_cancelled() {
            let intent = self.state.intent();
            let decided = step(&intent, &self.state.observed, &self.state.memory, now);
            let mut outcomes = Vec::new();
            for action in &decided.actions {
                log(action);
                let what = chronicle::what(action, &self.state);
                let placed = self.carry_out(action, now);
                outcomes.extend(what.or(placed));
            }
            let source = Source {
                at: self.shared.clock.now(),
                epoch: self.epoch,
                inputs: &decided.inputs,
                policy: decided.policy,
            };
            let journal = Arc::make_mut(&mut self.state.journal);
            chronicle::write_down(journal, &source, outcomes, &decided.reports);
            self.keep_reports(decided.reports);
            self.tell_agents();
        }
        self.publish(now);
    }

    fn observe_traffic(&mut self) {
        let Some(traffic) = self.shared.traffic.get() else {
            return;
        };
        self.state.observed.outstanding = self
            .state
            .memory
            .assignments
            .keys()
            .map(|replica| (*replica, traffic.outstanding(*replica)))
            .collect();
    }

    /// Notes an action; of a placement, which gets its id here, answers with what is to be written down.
    fn carry_out(&mut self, action: &Action, now: Duration) -> Option<(ModelName, Outcome)> {
        self.state.memory.apply(action, now);
        let Action::Place {
            model,
            profile,
            node,
            gpus,
        } = action
        else {
            return None;
        };
        let entry = self.state.entries.get(model)?;
        // Whether it is stale is told by what people wrote, and what it runs on by what was found of that.
        let written = entry.model.profile(profile)?;
        let completed = self.state.completed(entry);
        let spec = ReplicaSpec {
            id: ReplicaId::generate(),
            model: model.clone(),
            fingerprint: entry.model.fingerprint(written),
            weights: completed.weights().clone(),
            profile: completed.profile(profile)?.clone(),
            gpus: gpus.clone(),
        };
        let placed = Outcome::Placed {
            replica: spec.id,
            profile: spec.profile.name.clone(),
            node: *node,
            hostname: self.state.hostname(*node),
            gpus: spec.gpus.clone(),
        };
        self.state.memory.given(spec, *node, now);
        Some((model.clone(), placed))
    }

    /// Keeps the last report of every model that lacks replicas. A reason that changed is logged.
    fn keep_reports(&mut self, reports: BTreeMap<ModelName, llmgw_core::reason::Report>) {
        for (model, report) in &reports {
            // What passes by itself, such as an engine that is being installed, is no cause for a warning.
            let lasting = report.fits.is_none() && report.pending.is_none() && report.nodes > 0;
            let known = self.state.reports.get(model);
            if lasting && known.is_none_or(|known| known.summary != report.summary) {
                tracing::warn!(reason = %llmgw_core::reason::render::headline(report), "not placed");
            }
        }
        let memory = &self.state.memory;
        let lacking = |name: &ModelName, entries: &BTreeMap<ModelName, Entry>| {
            entries
                .get(name)
                .is_some_and(|entry| memory.serving(name) < u64::from(entry.model.replicas()))
        };
        let entries = &self.state.entries;
        self.state.reports.retain(|name, _| lacking(name, entries));
        for (name, report) in reports {
            if lacking(&name, entries) {
                self.state.reports.insert(name, report);
            }
        }
    }

    fn tell_agents(&mut self) {
        let now = self.shared.clock.monotonic();
        let orders: BTreeMap<NodeId, WeightsOrders> = self
            .sessions
            .keys()
            .map(|node| (*node, storage::orders(&self.state, *node)))
            .collect();
        let nodes = self.state.observed.nodes.iter();
        let lost: BTreeSet<NodeId> = nodes
            .filter(|(_, node)| is_lost(node, now))
            .map(|(id, _)| *id)
            .collect();
        for (node, session) in self
            .sessions
            .iter_mut()
            // A node that is lost has nothing assigned, and would end what it runs: it is told again when it is
            // heard, and what it runs has been taken back.
            .filter(|(node, session)| session.reported && !lost.contains(node))
        {
            let given = self
                .state
                .memory
                .assignments
                .values_mut()
                .filter(|given| given.node == *node);
            let mut given: Vec<_> = given.collect();
            let replicas: Vec<ReplicaSpec> = given.iter().map(|given| given.spec.clone()).collect();
            let same = session.told.as_ref().is_some_and(|told| {
                told.epoch == self.epoch
                    && told.engines == self.engines
                    && told.replicas == replicas
                    && orders.get(node) == Some(&told.weights)
            });
            if same {
                continue;
            }
            self.revision += 1;
            for given in &mut given {
                given.revision.get_or_insert(self.revision);
            }
            let desired = Arc::new(DesiredState {
                epoch: self.epoch,
                revision: self.revision,
                engines: self.engines.clone(),
                replicas,
                weights: orders.get(node).cloned().unwrap_or_default(),
            });
            session.told = Some(Arc::clone(&desired));
            session.outbox.send_replace(Some(desired));
        }
        // A session whose task has ended reads no more; its node stays known until it is heard again.
        self.sessions
            .retain(|_, session| !session.outbox.is_closed());
    }

    fn publish(&mut self, now: Duration) {
        let routed = self.state.routes(now);
        if routed != self.routed {
            self.routes
                .send_replace(Arc::new(RouteTable::new(routed.clone())));
            self.routed = routed;
        }
        self.snapshot.send_replace(Arc::new(self.state.clone()));
        for answer in self.answers.drain(..) {
            // Whoever asked may have gone.
            match answer {
                Answer::Done(done) => drop(done.send(())),
                Answer::Waiting(model, answer) => {
                    let route = self.routed.iter().find(|route| route.name == model);
                    let waiting = route
                        .filter(|route| route.endpoints.is_empty())
                        .map(|route| route.waiting.clone());
                    drop(answer.send(waiting));
                }
            }
        }
    }
}

fn log(action: &Action) {
    match action {
        Action::Adopt { spec, node } => {
            tracing::info!(replica = %spec.id, model = %spec.model, %node, "adopted");
        }
        Action::Place {
            model,
            profile,
            node,
            gpus,
        } => {
            tracing::info!(%model, %profile, %node, ?gpus, "placed");
        }
        Action::Drain { replica, why } => tracing::info!(%replica, ?why, "draining"),
        Action::Stop { replica, why } => tracing::info!(%replica, ?why, "stopping"),
        Action::Fail { replica, error, .. } => tracing::warn!(%replica, %error, "failed"),
        Action::Forget { replica, why } => tracing::warn!(%replica, ?why, "let go"),
        Action::Absolve { model } => tracing::info!(%model, "serves well again"),
    }
}

/// The loop looks by itself this often: for deadlines, backoff and silence.
const TICK: Duration = Duration::from_secs(1);
/// Events that are taken in before a step, at most.
const BATCH: usize = 256;
