//! The task that owns all state: hands events to the conductor, and does what follows.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::Duration,
};

use llmgw_core::{
    api::agent::{DesiredState, NodeReport},
    id::{ModelName, NodeId, ReplicaId},
    route::{RouteTable, Waiting},
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use super::{Shared, session::Outbox};
use crate::{
    conductor::{self, Conductor, Effects, Moment, Note, OwnOrder, Ticket, snapshot::Snapshot},
    reconcile::{Action, Calls},
};

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
    /// Something that nobody waits for.
    Happened(conductor::Event),
    /// Something that somebody did, and waits until a step was taken with it.
    Done(conductor::Event, oneshot::Sender<()>),
    /// A client asked for a model that nothing serves.
    Asked {
        model: ModelName,
        answer: oneshot::Sender<Option<Waiting>>,
    },
}

/// What the loop begins with.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) conductor: Conductor,
    pub(super) shared: Arc<Shared>,
    pub(super) received: mpsc::Receiver<Event>,
    pub(super) snapshot: watch::Sender<Arc<Snapshot>>,
    pub(super) routes: watch::Sender<Arc<RouteTable>>,
    /// Where the loop's own orders are kept.
    pub(super) own: mpsc::Sender<OwnOrder>,
}

/// The loop.
#[derive(Debug)]
pub(super) struct LoopTask {
    conductor: Conductor,
    shared: Arc<Shared>,
    received: mpsc::Receiver<Event>,
    outboxes: BTreeMap<NodeId, Outbox>,
    snapshot: watch::Sender<Arc<Snapshot>>,
    routes: watch::Sender<Arc<RouteTable>>,
    own: mpsc::Sender<OwnOrder>,
    /// Who waits until the next step is done.
    done: Vec<oneshot::Sender<()>>,
    asked: BTreeMap<Ticket, oneshot::Sender<Option<Waiting>>>,
    tickets: u64,
}

impl LoopTask {
    pub(super) fn new(setup: Setup) -> Self {
        let Setup {
            conductor,
            shared,
            received,
            snapshot,
            routes,
            own,
        } = setup;
        let mut task = Self {
            conductor,
            shared,
            received,
            outboxes: BTreeMap::new(),
            snapshot,
            routes,
            own,
            done: Vec::new(),
            asked: BTreeMap::new(),
            tickets: 0,
        };
        // Whoever asks before the first step gets what the store holds, not nothing.
        let known = task.conductor.publish(task.shared.clock.monotonic());
        task.carry_out(known);
        task
    }

    /// Runs until nobody can send events any more.
    pub(super) async fn run(mut self) {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut rested = self.step_and_rest();
        loop {
            let mut urgent = false;
            tokio::select! {
                event = self.received.recv() => match event {
                    Some(event) => urgent = self.take_in(event),
                    None => return,
                },
                _ = tick.tick() => {}
            }
            // Whatever else has come in is taken in with the same step.
            for _ in 0..BATCH {
                let Ok(event) = self.received.try_recv() else {
                    break;
                };
                urgent |= self.take_in(event);
            }
            while !urgent {
                tokio::select! {
                    biased;
                    () = sleep_until(rested) => break,
                    event = self.received.recv() => match event {
                        Some(event) => urgent = self.take_in(event),
                        None => return,
                    },
                }
            }
            rested = self.step_and_rest();
        }
    }

    /// Takes a step, and says when the next one may follow that nobody waits for: the reports of a large fleet come faster
    /// than a step for each would be worth.
    fn step_and_rest(&mut self) -> Instant {
        let clock = Arc::clone(&self.shared.clock);
        let before = clock.monotonic();
        self.step();
        let took = clock.monotonic().saturating_sub(before);
        Instant::now() + took.saturating_mul(REST).min(LONGEST_REST)
    }

    /// Takes an event in; says whether somebody waits for what follows.
    fn take_in(&mut self, event: Event) -> bool {
        let urgent = match &event {
            Event::Opened { .. } | Event::Report { .. } => false,
            Event::Happened(_) | Event::Done(..) | Event::Asked { .. } => true,
        };
        let event = match event {
            Event::Opened { node, outbox } => {
                self.outboxes.insert(node, outbox);
                conductor::Event::Opened { node }
            }
            Event::Report { node, report } => conductor::Event::Report { node, report },
            Event::Happened(event) => event,
            Event::Done(event, done) => {
                self.done.push(done);
                event
            }
            Event::Asked { model, answer } => {
                let ticket = Ticket(self.tickets);
                self.tickets += 1;
                self.asked.insert(ticket, answer);
                conductor::Event::Asked { model, ticket }
            }
        };
        self.conductor.take_in(event, self.shared.clock.monotonic());
        urgent
    }

    fn step(&mut self) {
        let shared = &self.shared;
        let now = shared.clock.monotonic();
        // A session whose task has ended reads no more.
        let outboxes = self.outboxes.iter();
        let closed = outboxes.filter(|(_, outbox)| outbox.is_closed());
        let closed: BTreeSet<NodeId> = closed.map(|(node, _)| *node).collect();
        for node in closed {
            self.outboxes.remove(&node);
            self.conductor
                .take_in(conductor::Event::Closed { node }, now);
        }
        if let Some(traffic) = shared.traffic.get() {
            self.conductor
                .observe_traffic(|replica| traffic.outstanding(replica));
            self.conductor.observe_calls(|replica| {
                let (given, failed) = traffic.calls(replica);
                Calls { given, failed }
            });
            self.conductor
                .observe_waiting(|model| traffic.waiting(model));
        }
        let leading = *shared.leading.borrow();
        let moment = Moment {
            now,
            at: shared.clock.now(),
            leading: leading.filter(|_| !shared.standing_down.is_cancelled()),
        };
        let effects = self.conductor.step(moment, &mut ReplicaId::generate);
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Effects) {
        let Effects {
            desired,
            routes,
            answers,
            outranked,
            orders,
            notes,
        } = effects;
        notes.iter().for_each(log);
        if let Some(seen) = outranked {
            self.shared.outranked.send_if_modified(|highest| {
                let higher = seen > *highest;
                *highest = seen.max(*highest);
                higher
            });
        }
        for (node, desired) in desired {
            self.tell(node, desired);
        }
        if let Some(routes) = routes {
            self.routes.send_replace(Arc::new(RouteTable::new(routes)));
        }
        let state = Arc::new(self.conductor.state().clone());
        self.snapshot.send_replace(state);
        // After the state that they are in: whoever writes them looks there whether they still stand.
        for order in orders {
            // It holds already; what does not fit is kept by the next leader's own finding.
            if self.own.try_send(order).is_err() {
                tracing::warn!(
                    "too many orders of the loop's own wait for the store; one is not kept"
                );
            }
        }
        let wanted = self.conductor.engines_wanted();
        self.shared.engines.send_if_modified(|known| {
            let changed = *known != wanted;
            *known = wanted;
            changed
        });
        // Whoever asked may have gone.
        for done in mem::take(&mut self.done) {
            done.send(()).ok();
        }
        for (ticket, waiting) in answers {
            if let Some(answer) = self.asked.remove(&ticket) {
                drop(answer.send(waiting));
            }
        }
    }

    fn tell(&self, node: NodeId, desired: Arc<DesiredState>) {
        if let Some(outbox) = self.outboxes.get(&node) {
            outbox.send_replace(Some(desired));
        }
    }
}

fn log(note: &Note) {
    match note {
        Note::Acted(action) => log_action(action),
        Note::ImpossibleEpoch {
            node,
            highest_epoch,
        } => {
            tracing::warn!(%node, highest_epoch, "a node says that it has followed an epoch that can't be");
        }
    }
}

fn log_action(action: &Action) {
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
        Action::Keep { replica } => tracing::info!(%replica, "kept, for it is missed"),
        Action::Scale {
            model,
            from,
            to,
            why,
        } => tracing::info!(%model, from, to, %why, "scaled"),
        Action::Park { model, parked } => {
            tracing::warn!(%model, failures = parked.failures, error = parked.error, "parked");
        }
        Action::Unpark { model } => tracing::info!(%model, "is tried again: it is another now"),
        Action::Recall { model, .. } => tracing::info!(%model, "was parked before"),
        Action::BeginRoll { model, number } => tracing::info!(%model, number, "rolling"),
        Action::EndRoll {
            model,
            number,
            ended,
        } => tracing::info!(%model, number, %ended, "rolled"),
        Action::Freeze { silent, of } => {
            let silent = silent.len();
            tracing::warn!(silent, of, "nodes fell silent at once: nothing is moved");
        }
        Action::Thaw => tracing::info!("enough nodes are heard again"),
        Action::Warn { reason, .. } => tracing::warn!(%reason, "not placed"),
    }
}

/// The loop looks by itself this often: for deadlines, backoff and silence.
const TICK: Duration = Duration::from_secs(1);
/// Events that are taken in before a step, at most.
const BATCH: usize = 256;
/// Reports are answered with steps for a tenth of a processor's time at most: a step is followed by nine times as long without
/// one, though never by so long that anybody would notice.
const REST: u32 = 9;
const LONGEST_REST: Duration = Duration::from_millis(250);
