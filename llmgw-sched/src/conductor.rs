//! What the loop does besides deciding, without I/O and without a clock.
//!
//! A [`Conductor`] takes [`Event`]s in, has [`reconcile::step`](crate::reconcile::step) decide, and says what follows as
//! [`Effects`]: which node is told what, what the gateway routes by, who gets an answer, what is worth a line in the log.
//! Whoever owns it has the streams, the store, the clock and the ids: the `controller`, or a simulation.
//!
//! ```
//! use std::time::Duration;
//! use llmgw_core::{clock::Timestamp, id::ReplicaId};
//! use llmgw_sched::conductor::{Conductor, Moment, Setup};
//!
//! let mut conductor = Conductor::new(Setup { epoch: 1, ..Setup::default() });
//! let moment = Moment { now: Duration::from_secs(1), at: Timestamp(0), leading: Some(1) };
//! let effects = conductor.step(moment, &mut ReplicaId::generate);
//! assert!(effects.desired.is_empty(), "no agent has said anything");
//! ```

mod chronicle;
pub mod effects;
pub mod event;
pub mod findings;
#[cfg(feature = "sim")]
pub mod planted;
pub mod snapshot;
mod subjects;
mod telling;
pub mod weights;

use std::{
    collections::{BTreeMap, btree_map::Entry as Slot},
    sync::Arc,
    time::Duration,
};

use llmgw_core::{
    api::{admin::Origin, agent::NodeReport, decision::Outcome},
    clock::Timestamp,
    cluster::{
        engine::WantedEngine,
        order::{Order, Orders, StoredOrder, Subject},
        pool::Pools,
        replica::{ReplicaSpec, ReplicaStatus},
        weights::WeightsOrders,
    },
    id::{ModelName, NodeId, ReplicaId},
    reason::Report,
    route::{ModelRoute, Waiting},
};

use self::{
    chronicle::Source,
    findings::{Answered, Finding},
    snapshot::{Entry, Snapshot},
    telling::Telling,
};
pub use self::{
    effects::{Effects, Note, OwnOrder},
    event::{Event, Ticket},
};
use crate::{
    planner::policy::PolicyName,
    reconcile::{Action, Calls, Intent, Memory, ObservedNode, Pacing, Wish, lacks, step},
};

/// What a conductor begins with.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The models, by name.
    pub entries: BTreeMap<ModelName, Entry>,
    /// Engines that nodes should have, by the settings.
    pub engines: Vec<WantedEngine>,
    /// Pools of nodes, by the settings.
    pub pools: Pools,
    /// How fast to follow what is asked for.
    pub pacing: Pacing,
    /// What operators have ordered, and the loop itself.
    pub orders: Orders,
    /// Which policy places.
    pub policy: PolicyName,
    /// What nodes are to do about weights; what is collected is ordered later.
    pub weights: WeightsOrders,
    /// What it remembers already, such as until when it listens only.
    pub memory: Memory,
    /// The lease epoch that it leads with.
    pub epoch: u64,
}

/// What nodes are to have of these engines, as far as placing goes.
pub(crate) fn wishes(engines: &[WantedEngine]) -> Vec<Wish> {
    let wishes = engines.iter().map(|one| Wish {
        engine: one.name.clone(),
        pool: one.pool.clone(),
    });
    wishes.collect()
}

fn bare(one: &WantedEngine) -> WantedEngine {
    WantedEngine {
        release: None,
        ..one.clone()
    }
}

/// When a step is taken, and with what right.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Moment {
    /// By the caller's monotonic clock, which all its times are of.
    pub now: Duration,
    /// By the wall clock.
    pub at: Timestamp,
    /// The lease epoch that the caller leads with now; absent while it does not, or decides nothing any more.
    pub leading: Option<u64>,
}

/// All state of the loop, and what it does with it.
#[derive(Debug)]
pub struct Conductor {
    state: Snapshot,
    engines: Vec<WantedEngine>,
    /// The engines of the settings, without what was found out about them.
    settings: Vec<WantedEngine>,
    /// What was found out about engines.
    told: Vec<WantedEngine>,
    epoch: u64,
    telling: Telling,
    routed: Vec<ModelRoute>,
    /// Who waits for the next step to hear what a model waits for.
    asked: Vec<(Ticket, ModelName)>,
    outranked: Option<u64>,
    orders: Vec<OwnOrder>,
    notes: Vec<Note>,
    #[cfg(feature = "sim")]
    planted: Option<planted::Planted>,
}

impl Conductor {
    /// A conductor that knows no node yet.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let Setup {
            entries,
            engines,
            pools,
            pacing,
            orders,
            policy,
            weights,
            memory,
            epoch,
        } = setup;
        let mut conductor = Self {
            state: Snapshot {
                entries,
                memory,
                orders: Arc::new(orders),
                pools: Arc::new(pools),
                pacing,
                policy,
                weights_orders: weights,
                ..Snapshot::default()
            },
            engines: Vec::new(),
            settings: engines.iter().map(bare).collect(),
            told: engines,
            epoch,
            telling: Telling::default(),
            routed: Vec::new(),
            asked: Vec::new(),
            outranked: None,
            orders: Vec::new(),
            notes: Vec::new(),
            #[cfg(feature = "sim")]
            planted: None,
        };
        conductor.want_engines();
        conductor
    }

    /// The engines that are wanted: what operators chose, over what the settings say.
    #[must_use]
    pub fn engines_wanted(&self) -> Vec<WantedEngine> {
        self.state.orders.engines_over(&self.settings)
    }

    /// Wants these on the nodes that they are for, with what was found out about them.
    fn want_engines(&mut self) {
        self.engines = subjects::with_releases(&self.engines_wanted(), &self.told);
        self.state.engines = wishes(&self.engines);
    }

    /// All that it knows.
    #[must_use]
    pub fn state(&self) -> &Snapshot {
        &self.state
    }

    /// Takes in what happened. Nothing follows from it before the next [`step`](Self::step).
    pub fn take_in(&mut self, event: Event, now: Duration) {
        match event {
            Event::Opened { node } => {
                for given in self.state.memory.assignments.values_mut() {
                    if given.node == node {
                        given.revision = None;
                    }
                }
                self.telling.open(node);
            }
            Event::Closed { node } => self.telling.close(node),
            Event::Report { node, report } => self.take_in_report(node, *report, now),
            Event::Engines(engines) => {
                self.told = engines;
                self.want_engines();
            }
            Event::Terms {
                entries,
                engines,
                pools,
                pacing,
                policy,
                weights,
            } => {
                self.settings = engines.iter().map(bare).collect();
                self.state.pools = Arc::new(pools);
                self.state.pacing = pacing;
                self.state.policy = policy;
                self.state.weights_orders = *weights;
                self.want_engines();
                self.declare(entries);
            }
            Event::Leading {
                epoch,
                entries,
                orders,
                raised,
            } => {
                self.state.orders = Arc::new(orders);
                #[cfg(feature = "sim")]
                self.forget_planted();
                self.want_engines();
                self.take_over(epoch, entries, raised, now);
            }
            Event::Added { entry } => self.put(*entry),
            Event::Removed { model } => self.remove(&model),
            Event::Found { answered } => self.take_in_finding(*answered, now),
            Event::Collect { orders } => {
                for (node, digest) in orders {
                    self.state.collect.entry(node).or_default().insert(digest);
                }
            }
            Event::Thaw => {
                self.state.memory.thaw(now);
            }
            #[cfg(feature = "sim")]
            Event::Ordered { order } if self.is_forgotten(&order) => {}
            Event::Ordered { order } => {
                Arc::make_mut(&mut self.state.orders).put(*order);
                self.want_engines();
            }
            Event::Lifted { subject } => {
                Arc::make_mut(&mut self.state.orders).lift(&subject);
                self.want_engines();
            }
            Event::Retry { model } => {
                self.state.memory.absolve(&model);
                // Else it would be recalled by the order that stands.
                let parked = Subject::Park(model);
                if Arc::make_mut(&mut self.state.orders).lift(&parked) {
                    self.orders.push(OwnOrder::Lift(parked));
                }
            }
            Event::Asked { model, ticket } => {
                self.state.observed.ask(&model, now);
                self.asked.push((ticket, model));
            }
        }
    }

    /// Takes in how many calls each replica is answering now, by the gateway.
    pub fn observe_traffic(&mut self, outstanding: impl Fn(ReplicaId) -> u64) {
        let given = self.state.memory.assignments.keys();
        self.state.observed.outstanding = given
            .map(|replica| (*replica, outstanding(*replica)))
            .collect();
    }

    /// Takes in how many calls each replica was given in all, and how many of them failed, by the gateway.
    pub fn observe_calls(&mut self, calls: impl Fn(ReplicaId) -> Calls) {
        let given = self.state.memory.assignments.keys();
        self.state.observed.calls = given.map(|replica| (*replica, calls(*replica))).collect();
    }

    /// Takes in how many calls wait for each model, by the gateway.
    pub fn observe_waiting(&mut self, waiting: impl Fn(&ModelName) -> u64) {
        let Snapshot {
            entries, observed, ..
        } = &mut self.state;
        observed.asked.retain(|name, _| entries.contains_key(name));
        for name in entries.keys() {
            let waiting = waiting(name);
            if waiting > 0 || observed.asked.contains_key(name) {
                observed.asked.entry(name.clone()).or_default().waiting = waiting;
            }
        }
    }

    /// Decides if it leads, and says what follows. `mint` gives ids to new replicas; later ones must be greater.
    pub fn step(&mut self, moment: Moment, mint: &mut dyn FnMut() -> ReplicaId) -> Effects {
        let Moment { now, at, leading } = moment;
        self.state.at = at;
        let intent = self.state.intent();
        let Snapshot {
            memory, observed, ..
        } = &mut self.state;
        memory.observe(&intent, observed, now);
        let mut desired = Vec::new();
        if leading == Some(self.epoch) {
            self.decide(&intent, moment, mint);
            desired = self
                .telling
                .tell(&mut self.state, &self.engines, self.epoch, now);
        }
        Effects {
            desired,
            ..self.publish(now)
        }
    }

    /// What can be said before the first step: what the store holds, and not nothing.
    pub fn publish(&mut self, now: Duration) -> Effects {
        let routed = self.state.routes(now);
        let asked = std::mem::take(&mut self.asked).into_iter();
        let answers = asked.map(|(ticket, model)| (ticket, waits_for(&routed, &model)));
        let answers = answers.collect();
        let routes = (routed != self.routed).then(|| routed.clone());
        self.routed = routed;
        Effects {
            desired: Vec::new(),
            routes,
            answers,
            outranked: self.outranked.take(),
            orders: std::mem::take(&mut self.orders),
            notes: std::mem::take(&mut self.notes),
        }
    }

    fn decide(&mut self, intent: &Intent, moment: Moment, mint: &mut dyn FnMut() -> ReplicaId) {
        let Moment { now, at, .. } = moment;
        let decided = step(intent, &self.state.observed, &self.state.memory, now);
        #[cfg(feature = "sim")]
        let decided = self.spoilt(decided, intent, now);
        let mut outcomes = Vec::new();
        for action in decided.actions {
            let what = chronicle::what(&action, &self.state);
            let placed = self.carry_out(&action, now, mint);
            outcomes.extend(what.or(placed));
            self.notes.push(Note::Acted(action));
        }
        let source = Source {
            at,
            epoch: self.epoch,
            inputs: &decided.inputs,
            policy: decided.policy,
        };
        let journal = Arc::make_mut(&mut self.state.journal);
        chronicle::write_down(journal, &source, outcomes, &decided.reports);
        self.state.turns = decided.turns;
        self.keep_reports(decided.reports, intent, now);
    }

    /// Notes an action; of a placement, which gets its id here, answers with what is to be written down.
    fn carry_out(
        &mut self,
        action: &Action,
        now: Duration,
        mint: &mut dyn FnMut() -> ReplicaId,
    ) -> Option<(ModelName, Outcome)> {
        self.state.memory.apply(action, now);
        self.note_order(action);
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
            id: mint(),
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

    /// Takes in the loop's own orders.
    fn note_order(&mut self, action: &Action) {
        let own = match action {
            Action::Park { model, parked } => OwnOrder::Put(StoredOrder {
                order: Order::Park {
                    model: model.clone(),
                    parked: parked.clone(),
                },
                by: "llmgw".to_owned(),
                since: self.state.at,
            }),
            Action::Unpark { model } => OwnOrder::Lift(Subject::Park(model.clone())),
            Action::EndRoll { model, .. } => OwnOrder::Lift(Subject::Roll(model.clone())),
            _ => return,
        };
        let orders = Arc::make_mut(&mut self.state.orders);
        match &own {
            OwnOrder::Put(stored) => orders.put(stored.clone()),
            OwnOrder::Lift(subject) => {
                orders.lift(subject);
            }
        }
        self.orders.push(own);
    }

    /// Keeps the last report of every model that lacks replicas.
    fn keep_reports(
        &mut self,
        reports: BTreeMap<ModelName, Report>,
        intent: &Intent,
        now: Duration,
    ) {
        let Snapshot {
            observed,
            memory,
            reports: kept,
            ..
        } = &mut self.state;
        let lacking = |name: &ModelName| lacks(intent, observed, memory, name, now);
        kept.retain(|name, _| lacking(name));
        kept.extend(reports.into_iter().filter(|(name, _)| lacking(name)));
    }

    fn take_over(&mut self, epoch: u64, entries: Vec<Entry>, raised: bool, now: Duration) {
        self.epoch = epoch;
        self.state.memory.settle_again(now);
        self.state.store_was_older |= raised;
        let known = &mut self.state.entries;
        known.retain(|name, entry| {
            entry.origin == Origin::Declared || entries.iter().any(|one| one.model.name() == name)
        });
        for entry in entries {
            match known.entry(entry.model.name().clone()) {
                Slot::Occupied(slot) if slot.get().origin == Origin::Declared => {}
                // While another led, it may have been removed and added otherwise.
                Slot::Occupied(mut slot) => {
                    if *slot.get() != entry {
                        self.state.memory.absolve(entry.model.name());
                        slot.insert(entry);
                    }
                }
                Slot::Vacant(slot) => {
                    slot.insert(entry);
                }
            }
        }
    }

    fn put(&mut self, entry: Entry) {
        let name = entry.model.name().clone();
        let known = self.state.entries.get(&name);
        // What failed is what runs: another description of that forgives nothing.
        if known.is_none_or(|known| known.definition != entry.definition) {
            self.state.memory.absolve(&name);
        }
        self.state.entries.insert(name, entry);
    }

    /// Has these be the models that are declared.
    fn declare(&mut self, entries: Vec<Entry>) {
        let stays = |name: &ModelName| entries.iter().any(|entry| entry.model.name() == name);
        let known = self.state.entries.iter();
        let gone = known.filter(|(name, entry)| entry.origin == Origin::Declared && !stays(name));
        let gone: Vec<ModelName> = gone.map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.remove(&name);
        }
        for entry in entries {
            // One that stays as it is was made known when it was.
            let known = self.state.entries.get(entry.model.name());
            if known.is_none_or(|known| known.model != entry.model || known.origin != entry.origin)
            {
                self.put(entry);
            }
        }
    }

    fn remove(&mut self, model: &ModelName) {
        self.state.entries.remove(model);
        self.state.memory.absolve(model);
        self.state.reports.remove(model);
        if Arc::make_mut(&mut self.state.findings)
            .remove(model)
            .is_some()
        {
            let sizes = findings::sizes(&self.state.findings, &self.state.sizes);
            self.state.sizes = Arc::new(sizes);
        }
    }

    fn take_in_finding(&mut self, answered: Answered, now: Duration) {
        let name = answered.model.clone();
        // Whose model is gone, or another by now, is asked anew.
        let Some(entry) = self.state.entries.get(&name) else {
            return;
        };
        let findings = Arc::make_mut(&mut self.state.findings);
        let finding = Finding::of(answered, findings.get(&name), &entry.model, now);
        findings.insert(name, finding);
        self.state.sizes = Arc::new(findings::sizes(findings, &self.state.sizes));
    }

    fn take_in_report(&mut self, node: NodeId, report: NodeReport, now: Duration) {
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
            headers,
        } = report;
        if highest_epoch > LAST_EPOCH {
            let note = Note::ImpossibleEpoch {
                node,
                highest_epoch,
            };
            self.notes.push(note);
        } else if (highest_epoch, highest_revision) > (self.epoch, self.telling.revision()) {
            self.outranked = self.outranked.max(Some(highest_epoch));
        }
        self.telling.heard(node);
        // What was to go and is there no more has gone.
        if let (Some(ordered), Some(there)) = (self.state.collect.get_mut(&node), &weights) {
            ordered.retain(|digest| there.iter().any(|one| one.sha256 == *digest));
        }
        let replicas: BTreeMap<ReplicaId, ReplicaStatus> = replicas
            .into_iter()
            .map(|status| (status.spec.id, status))
            .collect();
        for answered in findings::told_by_node(&self.state, &headers) {
            self.take_in_finding(answered, now);
        }
        findings::take_in_measured(&mut self.state.sizes, replicas.values());
        let observed = ObservedNode {
            heard_at: now,
            left: leaving,
            revision: if epoch == self.epoch { revision } else { 0 },
            facts,
            provision,
            replicas,
            weights,
        };
        self.state.observed.nodes.insert(node, Arc::new(observed));
    }
}

fn waits_for(routed: &[ModelRoute], model: &ModelName) -> Option<Waiting> {
    let route = routed.iter().find(|route| route.name == *model);
    let unserved = route.filter(|route| route.endpoints.is_empty());
    unserved.map(|route| route.waiting.clone())
}

/// More turns than there will be, as the store counts them: who claims to have followed a later one is not believed.
const LAST_EPOCH: u64 = 1 << 53;

#[cfg(test)]
mod tests;
