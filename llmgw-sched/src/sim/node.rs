//! A node: its disk, its engines and its agent, by the rules that real agents follow.

use std::{collections::BTreeMap, time::Duration};

use llmgw_core::{
    api::agent::{DesiredState, NodeReport},
    clock::Timestamp,
    cluster::{
        engine::{Provision, ProvisionState},
        node::{Gpu, Memory, NodeFacts},
        replica::{ReplicaSpec, ReplicaState, ReplicaStatus},
    },
    id::ReplicaId,
    units::Bytes,
};

use super::weights::{Fetching, Shelf};
use crate::fleet::FACILITY;

/// A machine.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) facts: NodeFacts,
    pub(super) disk: Disk,
    pub(super) processes: BTreeMap<ReplicaId, Process>,
    pub(super) agent: Option<Agent>,
    /// Counts the agent's lives, so that what was begun in one does not go on in the next.
    pub(super) life: u64,
    /// No frame comes through.
    pub(super) cut: bool,
    /// Calls are not answered in time: an agent that is stopped, or a machine that swaps.
    pub(super) frozen_until: Duration,
    pub(super) slow: u64,
}

/// What outlives everything but the machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    /// The highest order that was followed: epoch, then revision.
    pub(super) highest: (u64, u64),
    /// What was begun and not yet ended.
    pub(super) ledger: BTreeMap<ReplicaId, ReplicaSpec>,
    pub(super) shelf: Shelf,
    pub(super) installed: bool,
}

/// An engine. It outlives its agent.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) spec: ReplicaSpec,
    pub(super) answers: bool,
    pub(super) ending: bool,
}

/// An agent in one of its lives.
#[derive(Clone, Debug, Default)]
pub(super) struct Agent {
    /// The order that it works towards; nothing before the first of this life.
    pub(super) following: Option<(u64, u64)>,
    pub(super) wanted: BTreeMap<ReplicaId, ReplicaSpec>,
    pub(super) statuses: BTreeMap<ReplicaId, ReplicaStatus>,
    pub(super) fetching: Fetching,
    /// Whether it may remove weights to make room for others.
    pub(super) evict: bool,
    pub(super) link: Option<Link>,
}

/// An open session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Link {
    pub(super) plane: usize,
    pub(super) number: u64,
}

/// What an order means for an agent that follows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn {
    pub(super) begin: Vec<ReplicaId>,
    pub(super) end: Vec<ReplicaId>,
}

/// What a machine is made of.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) hostname: String,
    pub(super) facility: &'static str,
    pub(super) memory: Bytes,
    pub(super) gpus: Vec<Gpu>,
    pub(super) disk: Bytes,
    pub(super) slow: u64,
}

impl Node {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts {
            hostname,
            facility,
            memory,
            gpus,
            disk,
            slow,
        } = parts;
        Self {
            facts: NodeFacts {
                hostname,
                labels: BTreeMap::from([(FACILITY.to_owned(), facility.to_owned())]),
                gpus: Some(gpus),
                arch: "x86_64".to_owned(),
                agent_version: "0".to_owned(),
                memory: Some(Memory {
                    total: memory,
                    allocatable: memory,
                }),
                ..NodeFacts::default()
            },
            disk: Disk {
                shelf: Shelf::of(disk),
                ..Disk::default()
            },
            processes: BTreeMap::new(),
            agent: None,
            life: 0,
            cut: false,
            frozen_until: Duration::ZERO,
            slow,
        }
    }

    pub(super) fn memory(&self) -> Bytes {
        self.facts
            .memory
            .map_or(Bytes::ZERO, |memory| memory.allocatable)
    }

    /// Whether an engine on one of these GPUs has not come to answer yet, or has not ended yet.
    pub(super) fn is_loading_on(&self, gpus: &[u32]) -> bool {
        let loading = self.processes.values().filter(|process| !process.answers);
        loading
            .flat_map(|process| &process.spec.gpus)
            .any(|gpu| gpus.contains(gpu))
    }

    /// Starts the agent: it takes over what it finds running of what it had begun.
    pub(super) fn start_agent(&mut self) {
        self.life += 1;
        let mut agent = Agent::default();
        let processes = &self.processes;
        self.disk.ledger.retain(|id, _| processes.contains_key(id));
        for (id, process) in &self.processes {
            let state = if process.answers {
                ReplicaState::Ready
            } else {
                ReplicaState::Starting
            };
            let status = status(&process.spec, state);
            agent.statuses.insert(*id, status);
        }
        self.agent = Some(agent);
    }

    /// Follows an order, unless it is older than one that was followed.
    pub(super) fn follow(&mut self, desired: &DesiredState, fence: bool) -> Option<Turn> {
        let rank = (desired.epoch, desired.revision);
        if fence && rank < self.disk.highest {
            return None;
        }
        let agent = self.agent.as_mut()?;
        self.disk.highest = self.disk.highest.max(rank);
        agent.following = Some(rank);
        agent.evict = desired.weights.evict;
        let wanted = desired.replicas.iter().map(|spec| (spec.id, spec.clone()));
        agent.wanted = wanted.collect();
        Some(self.settle())
    }

    /// What is to be begun and to be ended to come closer to the order.
    pub(super) fn settle(&mut self) -> Turn {
        let mut turn = Turn::default();
        let Some(agent) = self.agent.as_mut() else {
            return turn;
        };
        if agent.following.is_none() {
            return turn;
        }
        let unwanted: Vec<ReplicaId> = agent
            .statuses
            .keys()
            .filter(|id| !agent.wanted.contains_key(id))
            .copied()
            .collect();
        for id in unwanted {
            match self.processes.get_mut(&id) {
                Some(process) if process.ending => {}
                Some(process) => {
                    process.ending = true;
                    process.answers = false;
                    if let Some(status) = agent.statuses.get_mut(&id) {
                        status.state = ReplicaState::Draining;
                        status.endpoint = None;
                    }
                    turn.end.push(id);
                }
                None => {
                    agent.statuses.remove(&id);
                    self.disk.ledger.remove(&id);
                }
            }
        }
        // What ends holds its memory until it has ended: nothing is begun before.
        if self.processes.values().any(|process| process.ending) {
            return turn;
        }
        for (id, spec) in &agent.wanted {
            if !agent.statuses.contains_key(id) {
                let status = status(spec, ReplicaState::Placing);
                agent.statuses.insert(*id, status);
                self.disk.ledger.insert(*id, spec.clone());
                turn.begin.push(*id);
            }
        }
        turn
    }

    /// All that the agent says.
    pub(super) fn report(&self) -> Option<NodeReport> {
        let agent = self.agent.as_ref()?;
        let (epoch, revision) = agent.following.unwrap_or_default();
        let (highest_epoch, highest_revision) = self.disk.highest;
        // What an agent is told to run and can't begin yet is said all the same.
        let waiting = agent
            .wanted
            .iter()
            .filter(|(id, _)| !agent.statuses.contains_key(id))
            .map(|(_, spec)| status(spec, ReplicaState::Placing));
        let state = if self.disk.installed {
            ProvisionState::Installed {
                version: "1".to_owned(),
                variant: "cpu".to_owned(),
            }
        } else {
            ProvisionState::Pending
        };
        let engine = "llamacpp".parse().ok()?;
        Some(NodeReport {
            revision,
            epoch,
            highest_epoch,
            highest_revision,
            leaving: false,
            facts: NodeFacts {
                disk: Some(self.disk.shelf.facts()),
                ..self.facts.clone()
            },
            provision: vec![Provision::new(engine, state)],
            replicas: agent.statuses.values().cloned().chain(waiting).collect(),
            weights: Some(self.disk.shelf.told()),
            headers: Vec::new(),
        })
    }
}

/// What is said of a replica.
pub(super) fn status(spec: &ReplicaSpec, state: ReplicaState) -> ReplicaStatus {
    ReplicaStatus {
        spec: spec.clone(),
        state,
        since: Timestamp(0),
        endpoint: (state == ReplicaState::Ready).then(|| "127.0.0.1:1".to_owned()),
        fetch: None,
        measured: None,
        error: None,
        hint: None,
        log_tail: Vec::new(),
    }
}
