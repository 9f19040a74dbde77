//! The cluster: what is due when, and what each thing that is due does.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use llmgw_core::{
    api::agent::{DesiredState, NodeReport},
    cluster::{replica::ReplicaSpec, weights::Sha256Digest},
    id::{ModelName, NodeId, ReplicaId},
    route::ModelRoute,
    units::Bytes,
};

use super::{
    Counts, Invariant, Options, Run, Violation,
    clients::Clients,
    engines::Stage,
    faults::Fault,
    gpus::gpu,
    node::{Node, Parts},
    plane::Plane,
    random::Random,
    store::{Answer, Store},
};

/// Everything.
#[derive(Debug)]
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) now: Duration,
    pub(super) random: Random,
    pub(super) options: Options,
    pub(super) store: Store,
    pub(super) planes: Vec<Plane>,
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) clients: Clients,
    /// What the gateway routes by: what the last control plane that led has said.
    pub(super) routes: Vec<ModelRoute>,
    /// How well each model starts: of a thousand starts, so many fail.
    pub(super) tempers: BTreeMap<ModelName, u64>,
    /// Whether nodes may remove weights to make room for others.
    pub(super) evict: bool,
    /// All specs that were ever given out, to know what a replica that runs needs.
    pub(super) given: BTreeMap<ReplicaId, ReplicaSpec>,
    pub(super) weather: Weather,
    pub(super) counts: Counts,
    pub(super) violation: Option<Violation>,
    pub(super) trace: Vec<String>,
    /// When something was last decided or ordered that is not bookkeeping.
    pub(super) stirred_at: Duration,
    /// Since when all is well.
    pub(super) calm_at: Option<Duration>,
    /// The highest order that each node has followed, whatever it remembers itself.
    pub(super) followed: BTreeMap<NodeId, (u64, u64)>,
    pub(super) minted: u64,
    pub(super) numbers: u64,
    queue: BTreeMap<(Duration, u64), Due>,
}

/// How bad things are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    /// Faults and orders come only while it is bad.
    pub(super) bad: bool,
    /// Of a thousand frames, so many are lost, and so many are repeated.
    pub(super) loss: u64,
    pub(super) repeat: u64,
    /// The longest way of a frame, in milliseconds.
    pub(super) way: u64,
    /// Milliseconds between two faults, and between two orders, on average.
    pub(super) between_faults: u64,
    pub(super) between_orders: u64,
    pub(super) between_calls: u64,
}

/// What is due.
#[derive(Clone, Debug)]
pub(super) enum Due {
    /// A control plane looks after its lease.
    Lease {
        plane: usize,
        life: u64,
    },
    /// The store has answered a control plane.
    Stored {
        plane: usize,
        life: u64,
        called_at: Duration,
        answer: Answer,
    },
    /// A control plane ticks, or takes a step with what it has taken in.
    Tick {
        plane: usize,
        life: u64,
    },
    Step {
        plane: usize,
        life: u64,
    },
    /// A control plane starts.
    Boot {
        plane: usize,
    },
    /// An agent starts, and dials.
    Wake {
        node: NodeId,
    },
    Dial {
        node: NodeId,
        life: u64,
    },
    /// An agent reports.
    Beat {
        node: NodeId,
        life: u64,
        again: bool,
    },
    /// A frame arrives.
    ToPlane {
        plane: usize,
        number: u64,
        node: NodeId,
        report: Box<NodeReport>,
    },
    ToNode {
        node: NodeId,
        desired: Arc<DesiredState>,
    },
    /// A session is found to be dead by both ends.
    Hangup {
        node: NodeId,
        number: u64,
    },
    /// A replica comes to its next stage.
    Engine {
        node: NodeId,
        life: u64,
        replica: ReplicaId,
        stage: Stage,
    },
    /// A part of a download has come.
    Chunk {
        node: NodeId,
        life: u64,
        digest: Sha256Digest,
    },
    /// A call is made, and ends.
    Call,
    Done {
        replica: ReplicaId,
        number: u64,
    },
    Patience {
        model: ModelName,
        number: u64,
    },
    /// An operator does something.
    Order,
    /// Something goes wrong, and is right again.
    Fault,
    Mend(Fault),
    /// From here on all is well.
    Calm,
}

impl World {
    pub(super) fn new(seed: u64, options: &Options) -> Self {
        let mut random = Random::new(seed);
        let rough = random.below(3);
        let weather = Weather {
            bad: true,
            loss: [0, 20, 100][usize::try_from(rough).unwrap_or(0)],
            repeat: random.below(60),
            way: random.within(5, 1_500),
            between_faults: random.within(4_000, 40_000),
            between_orders: random.within(5_000, 30_000),
            between_calls: random.within(300, 4_000),
        };
        let mut world = Self {
            seed,
            now: Duration::ZERO,
            options: options.clone(),
            store: Store::default(),
            planes: Vec::new(),
            nodes: BTreeMap::new(),
            clients: Clients::default(),
            routes: Vec::new(),
            tempers: BTreeMap::new(),
            evict: random.happens(300),
            given: BTreeMap::new(),
            weather,
            counts: Counts::default(),
            violation: None,
            trace: Vec::new(),
            stirred_at: Duration::ZERO,
            calm_at: None,
            followed: BTreeMap::new(),
            // Small numbers are the planner's own.
            minted: 1 << 40,
            numbers: 0,
            queue: BTreeMap::new(),
            random,
        };
        let nodes = world.random.within(2, 7);
        for number in 1..=nodes {
            let node = NodeId::imagined(number);
            let parts = world.parts(number);
            world.nodes.insert(node, Node::new(parts));
            let after = world.random.span(0, 5_000);
            world.after(after, Due::Wake { node });
        }
        for plane in 0..usize::try_from(world.random.within(1, 2)).unwrap_or(1) {
            world.planes.push(Plane::default());
            let after = world.random.span(0, 3_000);
            world.after(after, Due::Boot { plane });
        }
        for _ in 0..world.random.within(1, 5) {
            world.add_model();
        }
        for (average, due) in [
            (weather.between_faults, Due::Fault),
            (weather.between_orders, Due::Order),
            (weather.between_calls, Due::Call),
        ] {
            let span = world.between(average);
            world.after(span, due);
        }
        let rough_for = world.random.span(120_000, 300_000);
        world.after(rough_for, Due::Calm);
        world
    }

    /// A machine of a random size: with GPUs every second time, and with a small disk every third.
    fn parts(&mut self, number: u64) -> Parts {
        let random = &mut self.random;
        let gpus = if random.happens(500) {
            random.within(1, 4)
        } else {
            0
        };
        let gpus = (0..u32::try_from(gpus).unwrap_or(0))
            .map(|index| gpu(index, Bytes::gib(random.within(6, 24))));
        let gpus = gpus.collect();
        let disk = if random.happens(330) {
            random.within(6, 16)
        } else {
            random.within(20, 100)
        };
        Parts {
            hostname: format!("node-{number}"),
            facility: if random.happens(500) {
                "north"
            } else {
                "south"
            },
            memory: Bytes::gib(random.within(4, 24)),
            gpus,
            disk: Bytes::gib(disk),
            slow: random.within(1, 10),
        }
    }

    pub(super) fn run(mut self) -> Run {
        while self.violation.is_none() {
            let Some(((at, _), due)) = self.queue.pop_first() else {
                break;
            };
            self.now = at;
            self.happen(due);
            if !self.weather.bad && self.is_at_rest() {
                self.check_rest();
                break;
            }
        }
        Run {
            seed: self.seed,
            time: self.now,
            counts: self.counts,
            violation: self.violation,
            trace: self.trace,
        }
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Lease { plane, life } => self.lease(plane, life),
            Due::Stored {
                plane,
                life,
                called_at,
                answer,
            } => self.stored(plane, life, called_at, answer),
            Due::Tick { plane, life } => self.tick(plane, life),
            Due::Step { plane, life } => self.step(plane, life),
            Due::Boot { plane } => self.boot(plane),
            Due::Wake { node } => self.wake(node),
            Due::Dial { node, life } => self.dial(node, life),
            Due::Beat { node, life, again } => self.beat(node, life, again),
            Due::ToPlane {
                plane,
                number,
                node,
                report,
            } => self.reach_plane(plane, number, node, report),
            Due::ToNode { node, desired } => self.reach_node(node, &desired),
            Due::Hangup { node, number } => self.hang_up(node, number),
            Due::Engine {
                node,
                life,
                replica,
                stage,
            } => self.engine(node, life, replica, stage),
            Due::Chunk { node, life, digest } => self.chunk(node, life, digest),
            Due::Call => self.call(),
            Due::Done { replica, number } => self.done(replica, number),
            Due::Patience { model, number } => self.clients.give_up(&model, number),
            Due::Order => self.order(),
            Due::Fault => self.fault(),
            Due::Mend(fault) => self.mend(fault),
            Due::Calm => self.calm(),
        }
    }

    /// Has something happen after a while.
    pub(super) fn after(&mut self, span: Duration, due: Due) {
        self.numbers += 1;
        self.queue.insert((self.now + span, self.numbers), due);
    }

    /// About so many milliseconds.
    pub(super) fn between(&mut self, average: u64) -> Duration {
        self.random.span(1, average.saturating_mul(2))
    }

    /// Writes a line down, when somebody wants to read it.
    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if self.options.trace {
            let line = format!("{:9.3} s  {}", self.now.as_secs_f64(), line());
            self.trace.push(line);
        }
    }

    /// Ends the run, for a promise was broken.
    pub(super) fn broken(&mut self, invariant: Invariant, what: String) {
        let at = self.now;
        self.violation.get_or_insert(Violation {
            at,
            invariant,
            what,
        });
    }

    pub(super) fn node_ids(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    /// Replicas whose process runs somewhere and answers.
    pub(super) fn answering(&self) -> BTreeSet<ReplicaId> {
        let nodes = self.nodes.values();
        let processes = nodes.flat_map(|node| &node.processes);
        let answering = processes.filter(|(_, process)| process.answers);
        answering.map(|(id, _)| *id).collect()
    }
}
