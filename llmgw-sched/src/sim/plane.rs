//! Control planes: the real conductor and elector, with a simulated lease, sessions and clock.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use llmgw_core::{
    api::agent::{DesiredState, NodeReport},
    clock::Timestamp,
    cluster::weights::WeightsOrders,
    id::{ModelName, NodeId, ReplicaId},
};

use super::{
    node::Link,
    store::Answer,
    world::{Due, World},
};
use crate::{
    conductor::{Conductor, Effects, Event, Moment, Note, Setup, Ticket, effects::OwnOrder},
    lease::{Elector, Event as Turn, Next},
    reconcile::{Action, Calls, Memory},
};

/// A control plane, which may be down.
#[derive(Debug, Default)]
pub(super) struct Plane {
    pub(super) mind: Option<Mind>,
    pub(super) life: u64,
    /// Nothing of it runs before this time, though it is up.
    pub(super) frozen_until: Duration,
    /// How far its wall clock is off, in milliseconds.
    pub(super) wall: i64,
}

/// What a control plane loses when it crashes.
#[derive(Debug)]
pub(super) struct Mind {
    pub(super) conductor: Conductor,
    pub(super) elector: Elector,
    /// What its monotonic clock said when the world began.
    offset: Duration,
    /// The epoch it leads with, as far as its loop knows.
    pub(super) leading: Option<u64>,
    pub(super) sessions: BTreeMap<NodeId, u64>,
    outranked: u64,
    calling: bool,
    stepping: bool,
    unwritten: VecDeque<OwnOrder>,
}

impl Mind {
    pub(super) fn now(&self, now: Duration) -> Duration {
        self.offset + now
    }
}

impl World {
    pub(super) fn boot(&mut self, at: usize) {
        let offset = self.random.span(0, 10_000_000);
        let evict = self.evict;
        let Some(plane) = self.planes.get_mut(at).filter(|one| one.mind.is_none()) else {
            return;
        };
        plane.life += 1;
        let life = plane.life;
        let now = offset + self.now;
        let conductor = Conductor::new(Setup {
            memory: Memory {
                settle_until: now + SETTLE,
                settle: SETTLE,
                ..Memory::default()
            },
            weights: WeightsOrders {
                evict,
                ..WeightsOrders::default()
            },
            ..Setup::default()
        });
        plane.mind = Some(Mind {
            conductor,
            elector: Elector::new(TTL),
            offset,
            leading: None,
            sessions: BTreeMap::new(),
            outranked: 0,
            calling: false,
            stepping: false,
            unwritten: VecDeque::new(),
        });
        if let (Some(planted), Some(mind)) = (self.options.planted, plane.mind.as_mut()) {
            mind.conductor.plant(planted);
        }
        self.note(|| format!("plane {at} starts"));
        self.after(Duration::ZERO, Due::Lease { plane: at, life });
        self.after(Duration::ZERO, Due::Tick { plane: at, life });
    }

    /// What a control plane knows, unless that life of it is over or it is frozen: then `due` waits for the end of that.
    fn awake(&mut self, at: usize, life: u64, due: impl FnOnce() -> Due) -> bool {
        let Some(plane) = self.planes.get(at) else {
            return false;
        };
        if plane.life != life || plane.mind.is_none() {
            return false;
        }
        if plane.frozen_until > self.now {
            let wait = plane.frozen_until - self.now;
            let shuffled = wait + self.random.span(0, 20);
            self.after(shuffled, due());
            return false;
        }
        true
    }

    pub(super) fn mind(&mut self, at: usize) -> Option<&mut Mind> {
        self.planes.get_mut(at)?.mind.as_mut()
    }

    pub(super) fn lease(&mut self, at: usize, life: u64) {
        if !self.awake(at, life, || Due::Lease { plane: at, life }) {
            return;
        }
        let world_now = self.now;
        let Some(mind) = self.mind(at) else { return };
        let now = mind.now(world_now);
        let raise = mind
            .elector
            .leading(now)
            .filter(|epoch| *epoch <= mind.outranked);
        if raise.is_some() {
            // The store here is never older than what agents have followed.
            mind.elector.on(Turn::Outranked, now);
        }
        mind.publish_leading(now);
        let next = mind.elector.next(now);
        let busy = mind.calling;
        let answer = match next {
            _ if busy => None,
            Next::Wait(_) => None,
            Next::Acquire => Some(self.store.acquire(at, TTL, world_now)),
            Next::Renew(epoch) => Some(self.store.renew(epoch, TTL, world_now)),
        };
        if let Some(answer) = answer {
            if let Some(mind) = self.mind(at) {
                mind.calling = true;
            }
            let slow = self.weather.bad && self.random.happens(100);
            let way = if slow {
                self.random.span(100, 6_000)
            } else {
                self.random.span(1, 20)
            };
            let called_at = world_now;
            let due = Due::Stored {
                plane: at,
                life,
                called_at,
                answer,
            };
            self.after(way, due);
        }
        let pause = self.random.span(150, 350);
        self.after(pause, Due::Lease { plane: at, life });
    }

    pub(super) fn stored(&mut self, at: usize, life: u64, called_at: Duration, answer: Answer) {
        let again = || Due::Stored {
            plane: at,
            life,
            called_at,
            answer,
        };
        if !self.awake(at, life, again) {
            return;
        }
        let world_now = self.now;
        let late = world_now - called_at > TTL / 3;
        let entries = self.store.models.values().cloned().collect();
        let orders = self.store.orders.clone();
        let away = self.store.away;
        let Some(mind) = self.mind(at) else { return };
        mind.calling = false;
        let now = mind.now(world_now);
        let called_at = mind.now(called_at);
        let turn = match answer {
            Answer::Renewed if late => Turn::Failed,
            Answer::Renewed => Turn::Renewed { called_at },
            Answer::Held => Turn::Held,
            Answer::Fenced => Turn::Fenced,
            Answer::Failed => Turn::Failed,
            Answer::Acquired(_) if away => Turn::Failed,
            Answer::Acquired(epoch) => {
                mind.unwritten.clear();
                let raised = mind.outranked > 0;
                let leading = Event::Leading {
                    epoch,
                    entries,
                    orders: orders.into_values().collect(),
                    raised,
                };
                mind.conductor.take_in(leading, now);
                Turn::Acquired { epoch, called_at }
            }
        };
        mind.elector.on(turn, now);
        mind.publish_leading(now);
        self.note(|| format!("plane {at}: {answer:?}"));
    }

    pub(super) fn tick(&mut self, at: usize, life: u64) {
        if !self.awake(at, life, || Due::Tick { plane: at, life }) {
            return;
        }
        self.write_orders(at);
        self.take_step(at);
        self.after(Duration::from_secs(1), Due::Tick { plane: at, life });
    }

    pub(super) fn step(&mut self, at: usize, life: u64) {
        if self.awake(at, life, || Due::Step { plane: at, life }) {
            self.take_step(at);
        }
    }

    /// Has a control plane take a step soon, with whatever else comes in until then.
    pub(super) fn stir(&mut self, at: usize) {
        let pause = self.random.span(50, 400);
        let Some(plane) = self.planes.get_mut(at) else {
            return;
        };
        let life = plane.life;
        if let Some(mind) = plane.mind.as_mut().filter(|mind| !mind.stepping) {
            mind.stepping = true;
            self.after(pause, Due::Step { plane: at, life });
        }
    }

    fn take_step(&mut self, at: usize) {
        let world_now = self.now;
        let wall = self.planes.get(at).map_or(0, |plane| plane.wall);
        let ms = i64::try_from(world_now.as_millis()).unwrap_or(i64::MAX);
        let wall_now = Timestamp(ms + wall);
        let mut minted = self.minted;
        let clients = &self.clients;
        let Some(mind) = self.planes.get_mut(at).and_then(|one| one.mind.as_mut()) else {
            return;
        };
        mind.stepping = false;
        let now = mind.now(world_now);
        let conductor = &mut mind.conductor;
        conductor.observe_traffic(|replica| clients.outstanding(replica));
        conductor.observe_calls(|replica| Calls {
            given: clients.given(replica),
            failed: 0,
        });
        conductor.observe_waiting(|model| clients.waiting(model));
        let before = conductor.state().memory.clone();
        let moment = Moment {
            now,
            at: wall_now,
            leading: mind.leading,
        };
        let effects = conductor.step(moment, &mut || {
            minted += 1;
            ReplicaId::imagined(minted)
        });
        let leads = mind.leading.is_some();
        mind.unwritten.extend(effects.orders.iter().cloned());
        if let Some(seen) = effects.outranked {
            mind.outranked = mind.outranked.max(seen);
        }
        self.minted = minted;
        self.counts.steps += 1;
        let acted = effects.notes.iter().filter_map(|note| match note {
            Note::Acted(action) => Some(action.clone()),
            Note::ImpossibleEpoch { .. } => None,
        });
        let acted: Vec<Action> = acted.collect();
        self.counts.actions += u64::try_from(acted.len()).unwrap_or(0);
        for action in &acted {
            self.note(|| format!("plane {at}: {action:?}"));
            if !matches!(action, Action::Warn { .. } | Action::Absolve { .. }) {
                self.stirred_at = self.now;
            }
        }
        self.check_step(at, &before, &acted);
        self.carry_out(at, effects, leads);
    }

    fn carry_out(&mut self, at: usize, effects: Effects, leads: bool) {
        self.write_orders(at);
        if leads && let Some(routes) = effects.routes {
            self.routes = routes;
            self.serve_waiting();
        }
        for (node, desired) in effects.desired {
            self.stirred_at = self.now;
            for spec in &desired.replicas {
                self.given.insert(spec.id, spec.clone());
            }
            self.send_desired(at, node, desired);
        }
        self.close_if_standing_by(at);
    }

    /// Writes the loop's own orders; what can't be written now is tried again.
    fn write_orders(&mut self, at: usize) {
        let Some(mind) = self.planes.get_mut(at).and_then(|one| one.mind.as_mut()) else {
            return;
        };
        let Some(epoch) = mind.leading.filter(|epoch| self.store.takes(*epoch)) else {
            return;
        };
        let _ = epoch;
        for order in mind.unwritten.drain(..) {
            match order {
                OwnOrder::Put(stored) => {
                    let subject = stored.order.subject();
                    self.store.orders.insert(subject, stored);
                }
                OwnOrder::Lift(subject) => {
                    self.store.orders.remove(&subject);
                }
            }
        }
    }

    /// A control plane that does not lead sends agents away, so that they find the one that does.
    fn close_if_standing_by(&mut self, at: usize) {
        let Some(mind) = self.mind(at).filter(|mind| mind.leading.is_none()) else {
            return;
        };
        let sessions: Vec<(NodeId, u64)> = mind.sessions.iter().map(|(n, s)| (*n, *s)).collect();
        for (node, number) in sessions {
            self.hang_up(node, number);
        }
    }

    fn send_desired(&mut self, at: usize, node: NodeId, desired: Arc<DesiredState>) {
        let is_open = self
            .mind(at)
            .is_some_and(|mind| mind.sessions.contains_key(&node));
        if !is_open {
            return;
        }
        self.note(|| {
            let ids: Vec<String> = desired
                .replicas
                .iter()
                .map(|one| one.id.to_string())
                .collect();
            format!(
                "plane {at} tells {node} ({}, {}): {ids:?}",
                desired.epoch, desired.revision
            )
        });
        let (copies, ways) = self.spoil();
        for way in ways.into_iter().take(copies) {
            let desired = Arc::clone(&desired);
            self.after(way, Due::ToNode { node, desired });
        }
    }

    /// How often a frame arrives, and after how long.
    pub(super) fn spoil(&mut self) -> (usize, [Duration; 2]) {
        self.counts.frames += 1;
        let weather = self.weather;
        let ways = [(); 2].map(|()| self.random.span(1, weather.way));
        if weather.bad && self.random.happens(weather.loss) {
            self.counts.spoilt += 1;
            return (0, ways);
        }
        if weather.bad && self.random.happens(weather.repeat) {
            self.counts.spoilt += 1;
            return (2, ways);
        }
        (1, ways)
    }

    pub(super) fn reach_plane(
        &mut self,
        at: usize,
        number: u64,
        node: NodeId,
        report: Box<NodeReport>,
    ) {
        let life = self.planes.get(at).map_or(0, |plane| plane.life);
        let again = || Due::ToPlane {
            plane: at,
            number,
            node,
            report: report.clone(),
        };
        if self.nodes.get(&node).is_none_or(|one| one.cut) || !self.awake(at, life, again) {
            return;
        }
        let world_now = self.now;
        let Some(mind) = self.mind(at) else { return };
        if mind.sessions.get(&node) != Some(&number) {
            return;
        }
        let now = mind.now(world_now);
        mind.conductor.take_in(Event::Report { node, report }, now);
        self.stir(at);
    }

    pub(super) fn open_session(&mut self, at: usize, node: NodeId) -> Option<Link> {
        self.numbers += 1;
        let number = self.numbers;
        let world_now = self.now;
        let mind = self.mind(at)?;
        mind.leading?;
        mind.sessions.insert(node, number);
        let now = mind.now(world_now);
        mind.conductor.take_in(Event::Opened { node }, now);
        Some(Link { plane: at, number })
    }

    pub(super) fn close_session(&mut self, link: Link, node: NodeId) {
        let world_now = self.now;
        let Some(mind) = self.mind(link.plane) else {
            return;
        };
        if mind.sessions.get(&node) == Some(&link.number) {
            mind.sessions.remove(&node);
            let now = mind.now(world_now);
            mind.conductor.take_in(Event::Closed { node }, now);
        }
    }

    /// The control plane that leads, as it and the store believe.
    pub(super) fn leader(&self) -> Option<usize> {
        let leads = |plane: &Plane| {
            let mind = plane.mind.as_ref()?;
            let epoch = mind.leading?;
            (self.store.takes(epoch) && plane.frozen_until <= self.now).then_some(())
        };
        self.planes.iter().position(|plane| leads(plane).is_some())
    }

    /// Tells the leader of what a client or an operator did.
    pub(super) fn tell_leader(&mut self, event: Event) {
        let world_now = self.now;
        if let Some(at) = self.leader() {
            if let Some(mind) = self.mind(at) {
                let now = mind.now(world_now);
                mind.conductor.take_in(event, now);
            }
            self.stir(at);
        }
    }

    pub(super) fn ask(&mut self, model: &ModelName) {
        if self.clients.waiting(model) > 0 {
            let ticket = Ticket(0);
            let model = model.clone();
            self.tell_leader(Event::Asked { model, ticket });
        }
    }
}

impl Mind {
    fn publish_leading(&mut self, now: Duration) {
        self.leading = self.elector.leading(now);
    }
}

/// How long a lease lasts.
const TTL: Duration = Duration::from_secs(9);
/// How long to listen before anything is placed.
const SETTLE: Duration = Duration::from_secs(5);
