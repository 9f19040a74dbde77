//! What agents do: they wake, dial, report, follow orders, and bring engines from one stage to the next.

use std::time::Duration;

use llmgw_core::{
    api::agent::DesiredState,
    cluster::replica::ReplicaState,
    id::{NodeId, ReplicaId},
};

use super::{
    Invariant,
    faults::Fault,
    node::{Process, Turn, status},
    world::{Due, World},
};

/// What comes next for a replica.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// Its engine is there, or is installed first.
    Provision,
    /// Its weights are there, or are fetched first.
    Fetch,
    /// Its process starts.
    Load,
    /// It answers, or fails, or hangs.
    Answer,
    /// Its time to start is over.
    Deadline,
    /// Its process and memory are gone.
    Gone,
}

impl World {
    pub(super) fn wake(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.agent.is_none()) else {
            return;
        };
        node.start_agent();
        let (life, slow) = (node.life, node.slow);
        let installed = node.disk.installed;
        let loading: Vec<ReplicaId> = node
            .processes
            .iter()
            .filter(|(_, process)| !process.answers)
            .map(|(replica, _)| *replica)
            .collect();
        self.note(|| format!("{id}: the agent starts"));
        if !installed {
            let long = self.random.span(100, slow * 2_000);
            self.after(long, Due::Mend(Fault::NoEngine(id)));
        }
        for replica in loading {
            self.come_to(id, life, replica, Stage::Answer, 20_000);
            self.starts_until(id, life, replica);
        }
        self.after(Duration::ZERO, Due::Dial { node: id, life });
    }

    pub(super) fn dial(&mut self, id: NodeId, life: u64) {
        let planes: Vec<usize> = (0..self.planes.len()).collect();
        let Some(agent) = self.agent(id, life) else {
            return;
        };
        if agent.link.is_some() {
            return;
        }
        let cut = self.nodes.get(&id).is_none_or(|node| node.cut);
        let frozen = |at: usize| {
            self.planes
                .get(at)
                .is_none_or(|plane| plane.frozen_until > self.now)
        };
        let up: Vec<usize> = planes.into_iter().filter(|at| !frozen(*at)).collect();
        let plane = self.random.pick(&up).filter(|_| !cut);
        let link = plane.and_then(|plane| self.open_session(plane, id));
        if let (Some(link), Some(agent)) = (link, self.agent(id, life)) {
            agent.link = Some(link);
            let again = true;
            self.after(
                Duration::ZERO,
                Due::Beat {
                    node: id,
                    life,
                    again,
                },
            );
            return;
        }
        let pause = self.random.span(500, 3_000);
        self.after(pause, Due::Dial { node: id, life });
    }

    /// Both ends find that a session is dead.
    pub(super) fn hang_up(&mut self, id: NodeId, number: u64) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let life = node.life;
        let agent = node.agent.as_mut();
        let link = agent.and_then(|agent| agent.link.take_if(|link| link.number == number));
        if link.is_some() {
            let pause = self.random.span(100, 2_000);
            self.after(pause, Due::Dial { node: id, life });
        }
        for plane in 0..self.planes.len() {
            let link = super::node::Link { plane, number };
            self.close_session(link, id);
        }
    }

    /// Reports, and again every two seconds.
    pub(super) fn beat(&mut self, id: NodeId, life: u64, again: bool) {
        let Some(link) = self.agent(id, life).and_then(|agent| agent.link) else {
            return;
        };
        let frozen = self
            .nodes
            .get(&id)
            .map_or(Duration::ZERO, |node| node.frozen_until);
        if again {
            let pause = Duration::from_secs(2).max(frozen.saturating_sub(self.now));
            let again = Due::Beat {
                node: id,
                life,
                again,
            };
            self.after(pause, again);
        }
        let report = self.nodes.get(&id).and_then(|node| node.report());
        let Some(report) = report.filter(|_| frozen <= self.now) else {
            return;
        };
        let (copies, ways) = self.spoil();
        // Within a session reports come in order: the way of all is as long.
        let way = ways[0].min(Duration::from_millis(40));
        for _ in 0..copies {
            let report = Box::new(report.clone());
            let due = Due::ToPlane {
                plane: link.plane,
                number: link.number,
                node: id,
                report,
            };
            self.after(way, due);
        }
    }

    pub(super) fn reach_node(&mut self, id: NodeId, desired: &DesiredState) {
        let fence = self.options.planted != Some(super::Planted::FenceIgnored);
        let Some(node) = self.nodes.get_mut(&id).filter(|node| !node.cut) else {
            return;
        };
        let rank = (desired.epoch, desired.revision);
        let Some(turn) = node.follow(desired, fence) else {
            self.note(|| format!("{id} does not follow {rank:?}"));
            return;
        };
        let highest = self.followed.entry(id).or_default();
        let before = *highest;
        *highest = rank.max(before);
        if rank < before {
            let what = format!("{id} follows {rank:?} after {before:?}");
            self.broken(Invariant::Fence, what);
        }
        self.turn(id, turn);
    }

    /// Begins and ends what an order says.
    fn turn(&mut self, id: NodeId, turn: Turn) {
        let Some(node) = self.nodes.get(&id) else {
            return;
        };
        let life = node.life;
        for replica in turn.end {
            self.clients.forget(replica);
            self.come_to(id, life, replica, Stage::Gone, 4_000);
        }
        for replica in turn.begin {
            self.come_to(id, life, replica, Stage::Provision, 50);
        }
        self.say_soon(id, life);
    }

    fn say_soon(&mut self, id: NodeId, life: u64) {
        let pause = Duration::from_millis(20);
        let again = false;
        self.after(
            pause,
            Due::Beat {
                node: id,
                life,
                again,
            },
        );
    }

    pub(super) fn come_to(
        &mut self,
        node: NodeId,
        life: u64,
        replica: ReplicaId,
        stage: Stage,
        most: u64,
    ) {
        let way = self.random.span(10, most.max(11));
        let due = Due::Engine {
            node,
            life,
            replica,
            stage,
        };
        self.after(way, due);
    }

    pub(super) fn engine(&mut self, id: NodeId, life: u64, replica: ReplicaId, stage: Stage) {
        if self.agent(id, life).is_none() {
            return;
        }
        match stage {
            Stage::Gone => self.gone(id, life, replica),
            Stage::Provision => self.provision(id, life, replica),
            Stage::Fetch => self.fetch(id, life, replica),
            Stage::Load => self.load(id, life, replica),
            Stage::Answer => self.answer(id, life, replica),
            Stage::Deadline => {
                let hangs = self
                    .nodes
                    .get(&id)
                    .and_then(|node| node.processes.get(&replica))
                    .is_some_and(|process| !process.answers && !process.ending);
                if hangs {
                    self.fail(id, replica, "did not answer in time");
                }
            }
        }
        self.say_soon(id, life);
    }

    fn gone(&mut self, id: NodeId, life: u64, replica: ReplicaId) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        if node.processes.get(&replica).is_some_and(|one| one.ending) {
            node.processes.remove(&replica);
            node.disk.ledger.remove(&replica);
            if let Some(agent) = node.agent.as_mut() {
                agent.statuses.remove(&replica);
            }
        }
        let turn = node.settle();
        for replica in turn.begin {
            self.come_to(id, life, replica, Stage::Provision, 50);
        }
    }

    fn provision(&mut self, id: NodeId, life: u64, replica: ReplicaId) {
        let Some(node) = self.nodes.get(&id) else {
            return;
        };
        let pause = if node.disk.installed { 20 } else { 2_000 };
        if node.disk.installed {
            self.come_to(id, life, replica, Stage::Fetch, pause);
        } else {
            self.set(id, replica, ReplicaState::Provisioning);
            self.come_to(id, life, replica, Stage::Provision, pause);
        }
    }

    fn load(&mut self, id: NodeId, life: u64, replica: ReplicaId) {
        let Some(spec) = self.given.get(&replica).cloned() else {
            return;
        };
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let agent = node.agent.as_ref();
        let wanted = agent.is_some_and(|agent| agent.statuses.contains_key(&replica));
        if !wanted || node.processes.contains_key(&replica) {
            return;
        }
        if !node.disk.shelf.has(&spec) {
            // They were removed since they came.
            self.come_to(id, life, replica, Stage::Fetch, 20);
            return;
        }
        // An agent that is told of several at once, as after a power cut, starts one after the other on a GPU.
        if node.is_loading_on(&spec.gpus) {
            self.come_to(id, life, replica, Stage::Load, 1_000);
            return;
        }
        let slow = node.slow;
        let process = Process {
            spec,
            answers: false,
            ending: false,
        };
        node.processes.insert(replica, process);
        self.set(id, replica, ReplicaState::Starting);
        self.come_to(id, life, replica, Stage::Answer, slow * 2_500);
        self.starts_until(id, life, replica);
    }

    /// What does not answer by then is ended.
    fn starts_until(&mut self, node: NodeId, life: u64, replica: ReplicaId) {
        let due = Due::Engine {
            node,
            life,
            replica,
            stage: Stage::Deadline,
        };
        self.after(Duration::from_secs(60), due);
    }

    fn answer(&mut self, id: NodeId, _: u64, replica: ReplicaId) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let Some(process) = node.processes.get_mut(&replica) else {
            return;
        };
        if process.ending || process.answers {
            return;
        }
        let temper = self.tempers.get(&process.spec.model).copied().unwrap_or(0);
        if self.random.happens(temper) {
            if self.random.happens(250) {
                self.note(|| format!("{id}: {replica} hangs"));
            } else {
                self.fail(id, replica, "exit code 1");
            }
            return;
        }
        process.answers = true;
        self.set(id, replica, ReplicaState::Ready);
        self.note(|| format!("{id}: {replica} is ready"));
    }

    /// An engine has ended by itself, or was ended for it did not answer.
    pub(super) fn fail(&mut self, id: NodeId, replica: ReplicaId, error: &str) {
        self.clients.forget(replica);
        self.note(|| format!("{id}: {replica} failed: {error}"));
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        node.processes.remove(&replica);
        node.disk.ledger.remove(&replica);
        let life = node.life;
        let failed = node
            .agent
            .as_mut()
            .and_then(|agent| agent.statuses.get_mut(&replica));
        if let Some(failed) = failed {
            failed.state = ReplicaState::Failed;
            failed.error = Some(error.to_owned());
            failed.endpoint = None;
        }
        self.say_soon(id, life);
    }

    fn set(&mut self, id: NodeId, replica: ReplicaId, state: ReplicaState) {
        let node = self.nodes.get_mut(&id);
        let agent = node.and_then(|node| node.agent.as_mut());
        let known = agent.and_then(|agent| agent.statuses.get_mut(&replica));
        if let Some(known) = known {
            *known = status(&known.spec.clone(), state);
        }
    }

    fn agent(&mut self, id: NodeId, life: u64) -> Option<&mut super::node::Agent> {
        let node = self.nodes.get_mut(&id)?;
        node.agent.as_mut().filter(|_| node.life == life)
    }
}
