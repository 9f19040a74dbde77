//! The loop as a pure step: what is intended, what is observed, what time it is -> what to do.
//!
//! [`step`] decides and changes nothing; [`Memory::apply`] notes what was decided. Ids come from the caller, so
//! that the same history always gives the same decisions. Time is the caller's monotonic time.
//!
//! In this order: adopt what runs already, take in failures, let go of what is lost, drain what is not wanted,
//! stop what has drained, place what is missing.

pub mod inputs;
pub mod memory;
pub mod standing;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use llmgw_core::{
    cluster::{
        catalog::Model,
        engine::{Provision, ProvisionState},
        node::{Gpu, NodeFacts, NodeState},
        replica::{ReplicaSpec, ReplicaState, ReplicaStatus},
        weights::{DISK_RESERVE, WeightsOnDisk},
    },
    id::{EngineName, ModelName, NodeId, ProfileName, ReplicaId},
    reason::Report,
    units::{Bytes, Cores},
};

pub use self::{
    inputs::Inputs,
    memory::{Assignment, History, Memory},
};
use crate::{
    fleet::{Fabric, Fleet, FleetGpu, FleetNode, FleetReplica, GpuShare, Phase},
    planner::{Options, Wanted, plan_with, policy::PolicyName, sizes::Sizes},
};

/// What should run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Intent {
    /// The models, by name.
    pub models: BTreeMap<ModelName, Model>,
    /// Engines that every node should have.
    pub engines: Vec<EngineName>,
    /// Which policy places.
    pub policy: PolicyName,
    /// What is known of the weights of models.
    pub sizes: Arc<Sizes>,
}

impl Intent {
    /// How to plan.
    #[must_use]
    pub fn options(&self) -> Options {
        Options {
            policy: self.policy,
            sizes: Arc::clone(&self.sizes),
            ..Options::default()
        }
    }
}

/// What is, as agents and the gateway tell it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Nodes that were ever heard.
    pub nodes: BTreeMap<NodeId, ObservedNode>,
    /// Calls that each replica is answering now; absent is none.
    pub outstanding: BTreeMap<ReplicaId, u64>,
}

/// What an agent said last.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedNode {
    /// When it was heard.
    pub heard_at: Duration,
    /// Its agent has said that it ends.
    pub left: bool,
    /// The desired revision of this epoch that the agent works towards; 0 when it has none yet.
    pub revision: u64,
    /// What it found on the machine.
    pub facts: NodeFacts,
    /// How far it is with each engine.
    pub provision: Vec<Provision>,
    /// What it runs.
    pub replicas: BTreeMap<ReplicaId, ReplicaStatus>,
    /// The weights that lie on its disk; absent when it does not say.
    pub weights: Option<Vec<WeightsOnDisk>>,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Take a running replica over.
    Adopt {
        /// What runs.
        spec: Box<ReplicaSpec>,
        /// Where.
        node: NodeId,
    },
    /// Give a node a new replica.
    Place {
        /// The model.
        model: ModelName,
        /// How to run it.
        profile: ProfileName,
        /// Where.
        node: NodeId,
        /// The numbers of its GPUs there.
        gpus: Vec<u32>,
    },
    /// Send it no new calls.
    Drain {
        /// The replica.
        replica: ReplicaId,
        /// Why.
        why: Why,
    },
    /// End it.
    Stop {
        /// The replica.
        replica: ReplicaId,
        /// Why.
        why: Why,
    },
    /// It failed: let go of it and count the failure.
    Fail {
        /// The replica.
        replica: ReplicaId,
        /// What went wrong.
        error: String,
        /// The last lines of its log.
        log_tail: Vec<String>,
    },
    /// It is out of reach: let go of it without counting a failure.
    Forget {
        /// The replica.
        replica: ReplicaId,
        /// Why.
        why: Why,
    },
    /// A model has run well for a while: forget its failures.
    Absolve {
        /// The model.
        model: ModelName,
    },
}

/// Why a replica leaves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Why {
    /// Its model was removed.
    ModelRemoved,
    /// The model has more replicas than it should.
    Surplus,
    /// Its node is not heard.
    NodeLost,
    /// Its node no longer knows it.
    Vanished,
    /// Its agent was told to end, and ended it.
    AgentEnded,
}

/// What [`step`] decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// What to do, in this order.
    pub actions: Vec<Action>,
    /// For each model that lacks replicas and was tried: where it goes, or why it fits nowhere.
    pub reports: BTreeMap<ModelName, Report>,
    /// What the planner was given.
    pub inputs: Inputs,
    /// The policy that it scored nodes with.
    pub policy: PolicyName,
}

/// Decides.
#[must_use]
pub fn step(intent: &Intent, observed: &Observed, memory: &Memory, now: Duration) -> Step {
    // The working copy takes in each decision, so that later ones see it.
    let mut working = memory.clone();
    let mut actions = Vec::new();
    for decide in [
        adopt,
        take_in_failures,
        let_go,
        drain,
        stop_drained,
        absolve,
    ] {
        let decided = decide(intent, observed, &working, now);
        for action in &decided {
            working.apply(action, now);
        }
        actions.extend(decided);
    }
    let inputs = inputs(intent, observed, &working, now);
    let options = intent.options();
    let (placements, reports) = if now < working.settle_until {
        (Vec::new(), BTreeMap::new())
    } else {
        place(&inputs, &options)
    };
    actions.extend(placements);
    Step {
        actions,
        reports,
        inputs,
        policy: options.policy,
    }
}

/// The fleet as the planner sees it: promises made, and what still holds memory though it is leaving.
#[must_use]
pub fn fleet(intent: &Intent, observed: &Observed, memory: &Memory, now: Duration) -> Fleet {
    let nodes = observed.nodes.iter().map(|(id, node)| {
        let lost = is_lost(node, now);
        let mut replicas: BTreeMap<ReplicaId, FleetReplica> = BTreeMap::new();
        let assigned = memory
            .assignments
            .iter()
            .filter(|(_, given)| given.node == *id);
        for (replica, given) in assigned {
            let phase = if given.draining.is_some() {
                Phase::Leaving
            } else if state_of(observed, *replica, given) == Some(ReplicaState::Ready) {
                Phase::Ready
            } else {
                Phase::Starting
            };
            replicas.insert(*replica, fleet_replica(&given.spec, phase));
        }
        for (replica, status) in node.replicas.iter().filter(|_| !lost) {
            if status.state.holds_memory() {
                replicas
                    .entry(*replica)
                    .or_insert_with(|| fleet_replica(&status.spec, Phase::Leaving));
            }
        }
        let facts = &node.facts;
        FleetNode {
            state: if lost {
                NodeState::Lost
            } else {
                NodeState::Ready
            },
            memory_allocatable: facts.memory.map(|memory| memory.allocatable),
            cpu: facts.cpu.as_ref().map(|cpu| Cores::whole(cpu.cores)),
            disk_free: facts.disk.as_ref().map(|disk| disk.free - DISK_RESERVE),
            disk_shared: facts.disk.as_ref().is_some_and(|disk| disk.shared),
            disk_id: facts.disk.as_ref().and_then(|disk| disk.source.clone()),
            gpus: facts.gpus.as_deref().map(fleet_gpus),
            labels: facts.labels.clone(),
            fabrics: fleet_fabrics(facts),
            weights: node
                .weights
                .iter()
                .flatten()
                .map(|weights| weights.sha256)
                .collect(),
            engines: engines(intent, node),
            replicas: replicas.into_values().collect(),
            ..FleetNode::named(*id, facts.hostname.clone())
        }
    });
    Fleet {
        nodes: nodes.collect(),
        ..Fleet::default()
    }
}

/// How far a node is with each engine; one that it should have and has not spoken of yet is pending.
fn engines(intent: &Intent, node: &ObservedNode) -> BTreeMap<EngineName, ProvisionState> {
    let wanted = intent
        .engines
        .iter()
        .map(|name| (name.clone(), ProvisionState::Pending));
    let told = node.provision.iter();
    let told = told.map(|provision| (provision.engine.clone(), provision.state.clone()));
    wanted.chain(told).collect()
}

/// Whether a node has not been heard for longer than the grace, or its agent has ended.
#[must_use]
pub fn is_lost(node: &ObservedNode, now: Duration) -> bool {
    node.left || now.saturating_sub(node.heard_at) > LOST_AFTER
}

fn adopt(intent: &Intent, observed: &Observed, memory: &Memory, now: Duration) -> Vec<Action> {
    let mut adopted: BTreeMap<&ModelName, u64> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut actions = Vec::new();
    for (node, status) in statuses(observed, now) {
        let id = status.spec.id;
        let running = matches!(
            status.state,
            ReplicaState::Placing
                | ReplicaState::Provisioning
                | ReplicaState::Fetching
                | ReplicaState::Starting
                | ReplicaState::Ready
        );
        if !running || memory.knows(id) || !seen.insert(id) {
            continue;
        }
        let Some(model) = intent.models.get(&status.spec.model) else {
            continue;
        };
        let count = adopted.entry(model.name()).or_insert(0);
        if memory.serving(model.name()) + *count < u64::from(model.replicas()) {
            *count += 1;
            actions.push(Action::Adopt {
                spec: Box::new(status.spec.clone()),
                node,
            });
        }
    }
    actions
}

fn take_in_failures(_: &Intent, observed: &Observed, memory: &Memory, _: Duration) -> Vec<Action> {
    let ended = |(id, given): (&ReplicaId, &Assignment)| {
        let status = observed.nodes.get(&given.node)?.replicas.get(id)?;
        match status.state {
            ReplicaState::Failed => Some(Action::Fail {
                replica: *id,
                error: status.failure(),
                log_tail: status.log_tail.clone(),
            }),
            // An agent that is told to end ends its engines: nobody's failure.
            ReplicaState::Stopped => Some(Action::Forget {
                replica: *id,
                why: Why::AgentEnded,
            }),
            _ => None,
        }
    };
    memory.assignments.iter().filter_map(ended).collect()
}

fn let_go(_: &Intent, observed: &Observed, memory: &Memory, now: Duration) -> Vec<Action> {
    let gone = |(id, given): (&ReplicaId, &Assignment)| {
        let why = match observed.nodes.get(&given.node) {
            None => Why::NodeLost,
            Some(node) if is_lost(node, now) => Why::NodeLost,
            Some(node) => {
                let told = given
                    .revision
                    .is_some_and(|revision| node.revision >= revision);
                let patient = now.saturating_sub(given.since) < VANISHED_AFTER;
                if node.replicas.contains_key(id) || !told || patient {
                    return None;
                }
                Why::Vanished
            }
        };
        Some(Action::Forget { replica: *id, why })
    };
    memory.assignments.iter().filter_map(gone).collect()
}

fn drain(intent: &Intent, observed: &Observed, memory: &Memory, _: Duration) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut by_model: BTreeMap<&ModelName, Vec<(&ReplicaId, &Assignment)>> = BTreeMap::new();
    for (id, given) in memory
        .assignments
        .iter()
        .filter(|(_, given)| given.draining.is_none())
    {
        by_model
            .entry(&given.spec.model)
            .or_default()
            .push((id, given));
    }
    for (name, mut replicas) in by_model {
        let Some(model) = intent.models.get(name) else {
            actions.extend(replicas.iter().map(|(id, _)| Action::Drain {
                replica: **id,
                why: Why::ModelRemoved,
            }));
            continue;
        };
        let keep = usize::try_from(model.replicas()).unwrap_or(usize::MAX);
        // Those that serve are kept before those that don't, the older before the younger.
        let ready = |id: &ReplicaId, given: &Assignment| {
            state_of(observed, *id, given) == Some(ReplicaState::Ready)
        };
        replicas.sort_by_key(|(id, given)| (!ready(id, given), **id));
        actions.extend(replicas.iter().skip(keep).map(|(id, _)| Action::Drain {
            replica: **id,
            why: Why::Surplus,
        }));
    }
    actions
}

fn stop_drained(_: &Intent, observed: &Observed, memory: &Memory, now: Duration) -> Vec<Action> {
    let drained = |(id, given): (&ReplicaId, &Assignment)| {
        let (since, why) = given.draining?;
        let busy = observed.outstanding.get(id).is_some_and(|calls| *calls > 0);
        let patient = now.saturating_sub(since) < DRAIN_DEADLINE;
        (!(busy && patient)).then_some(Action::Stop { replica: *id, why })
    };
    memory.assignments.iter().filter_map(drained).collect()
}

fn absolve(_: &Intent, observed: &Observed, memory: &Memory, now: Duration) -> Vec<Action> {
    let steady = |given: &Assignment, id: &ReplicaId| {
        state_of(observed, *id, given) == Some(ReplicaState::Ready)
            && given
                .ready_since
                .is_some_and(|since| now.saturating_sub(since) >= STEADY_AFTER)
    };
    memory
        .histories
        .iter()
        .filter(|(model, history)| {
            history.failures > 0
                && !history.parked
                && memory
                    .assignments
                    .iter()
                    .any(|(id, given)| given.spec.model == **model && steady(given, id))
        })
        .map(|(model, _)| Action::Absolve {
            model: model.clone(),
        })
        .collect()
}

/// The fleet, and the models that may be tried now.
pub(crate) fn inputs(
    intent: &Intent,
    observed: &Observed,
    memory: &Memory,
    now: Duration,
) -> Inputs {
    // Of a model that is not complete it is still being found out what it is and needs.
    let eligible = |model: &&Model| {
        let history = memory.histories.get(model.name());
        model.is_complete() && history.is_none_or(|history| history.may_try(now))
    };
    Inputs {
        fleet: fleet(intent, observed, memory, now),
        wanted: Wanted {
            models: intent.models.values().filter(eligible).cloned().collect(),
        },
    }
}

fn place(inputs: &Inputs, options: &Options) -> (Vec<Action>, BTreeMap<ModelName, Report>) {
    let (plan, reports) = plan_with(&inputs.fleet, &inputs.wanted, options);
    // What waits for another start on its GPU is placed once that has ended; until then its room is not given away,
    // for a plan is made anew from the same models in the same order. No agent starts shards yet.
    let starts = plan
        .placements
        .into_iter()
        .filter(|placement| !placement.waits && placement.shards.is_empty());
    let actions = starts.map(|placement| Action::Place {
        model: placement.model,
        profile: placement.profile,
        node: placement.node,
        gpus: placement.gpus,
    });
    let reports = reports
        .into_iter()
        .map(|report| (report.model.clone(), report));
    (actions.collect(), reports.collect())
}

/// What nodes that are heard say of their replicas, by node and replica.
fn statuses(observed: &Observed, now: Duration) -> impl Iterator<Item = (NodeId, &ReplicaStatus)> {
    observed
        .nodes
        .iter()
        .filter(move |(_, node)| !is_lost(node, now))
        .flat_map(|(id, node)| node.replicas.values().map(|status| (*id, status)))
}

/// What its node says of a replica that was given to it.
pub(crate) fn state_of(
    observed: &Observed,
    id: ReplicaId,
    given: &Assignment,
) -> Option<ReplicaState> {
    observed
        .nodes
        .get(&given.node)?
        .replicas
        .get(&id)
        .map(|status| status.state)
}

fn fleet_replica(spec: &ReplicaSpec, phase: Phase) -> FleetReplica {
    let needs = &spec.profile.needs;
    let share = |index: &u32| GpuShare {
        index: *index,
        memory: needs.gpus.as_ref().and_then(|gpus| gpus.memory),
    };
    FleetReplica {
        cpu: needs.cpu.unwrap_or_default(),
        gpus: spec.gpus.iter().map(share).collect(),
        phase,
        ..FleetReplica::serving(spec.id, spec.model.clone(), spec.profile.memory)
    }
}

/// The GPUs of a node as the planner counts them. Agents give some makers' cards no number of their own; those take
/// their place in the list.
fn fleet_gpus(gpus: &[Gpu]) -> Vec<FleetGpu> {
    let numbered: BTreeSet<u32> = gpus.iter().map(|gpu| gpu.index).collect();
    let distinct = numbered.len() == gpus.len();
    (0..)
        .zip(gpus)
        .map(|(place, gpu)| FleetGpu {
            index: if distinct { gpu.index } else { place },
            class: gpu.class.clone(),
            memory: gpu.memory_usable().filter(|memory| *memory > Bytes::ZERO),
            in_use: gpu.is_shared(),
            fault: gpu.fault.clone().or_else(|| used_up(gpu)),
        })
        .collect()
}

/// Says of a GPU that others have filled that they have: with no memory of its own it would look like one whose
/// memory is not known.
fn used_up(gpu: &Gpu) -> Option<String> {
    let full = gpu.is_shared() && gpu.memory_usable() == Some(Bytes::ZERO);
    full.then(|| "other programs use all of its memory".to_owned())
}

/// The networks that a node's ports are on, each once. A label `fabric.infiniband` (`fabric.roce`,
/// `fabric.ethernet`) names the one of that kind, where the ports can't tell which it is.
fn fleet_fabrics(facts: &NodeFacts) -> Vec<Fabric> {
    let up = facts.fabrics.iter().flatten().filter(|port| port.up);
    let named = up.filter_map(|port| {
        let label = facts.labels.get(&format!("fabric.{}", port.kind));
        Some(Fabric {
            name: label.or(port.name.as_ref())?.clone(),
            kind: port.kind.clone(),
        })
    });
    let distinct: BTreeSet<Fabric> = named.collect();
    distinct.into_iter().collect()
}

/// Seven heartbeats: a node that is only slow is not lost.
const LOST_AFTER: Duration = Duration::from_secs(15);
/// An agent says every replica of a desired state as soon as it has read it; this is for a slow one.
const VANISHED_AFTER: Duration = Duration::from_secs(10);
/// How long calls may take to end once their replica is not wanted any more.
const DRAIN_DEADLINE: Duration = Duration::from_secs(60);
/// How long a replica must serve before earlier failures of its model are forgotten.
const STEADY_AFTER: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
