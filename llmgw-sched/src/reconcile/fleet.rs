//! The fleet as the planner sees it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use llmgw_core::{
    cluster::{
        engine::ProvisionState,
        node::{Gpu, NodeFacts, NodeState},
        replica::{ReplicaSpec, ReplicaState},
        weights::{DISK_RESERVE, Sha256Digest, Source},
    },
    id::{EngineName, ModelName, NodeId, ReplicaId},
    units::{Bytes, Cores},
};

use super::{Assignment, Intent, Memory, Observed, ObservedNode, is_lost, state_of};
use crate::fleet::{Fabric, Fleet, FleetGpu, FleetNode, FleetReplica, GpuShare, Phase};

/// The fleet as the planner sees it: promises made, and what still holds memory though it is leaving.
#[must_use]
pub fn fleet(intent: &Intent, observed: &Observed, memory: &Memory, now: Duration) -> Fleet {
    let on_demand = |model: &ModelName| {
        let model = intent.models.get(model);
        model.is_some_and(|model| model.scaling().is_on_demand())
    };
    let waits_long = intent.models.keys().any(|model| {
        let demand = memory.demands.get(model);
        let since = demand.and_then(|demand| demand.waiting_since);
        since.is_some_and(|since| now.saturating_sub(since) >= intent.pacing.max_wait)
    });
    // What serves on demand makes room for others: once it has had its turn when it is idle, and when others have
    // waited for long even while it works, so that two models with work for ever take turns.
    let take_turns = |known: &mut FleetReplica, replica: ReplicaId, given: &Assignment| {
        let turn = given.ready_since;
        let has_had_its_turn =
            turn.is_some_and(|since| now.saturating_sub(since) >= intent.pacing.min_residency);
        if !on_demand(&known.model) || !has_had_its_turn {
            return;
        }
        known.on_demand = true;
        if observed
            .outstanding
            .get(&replica)
            .is_none_or(|calls| *calls == 0)
        {
            known.idle_seconds = Some(now.saturating_sub(given.used_at).as_secs());
        }
        known.yields = waits_long;
    };
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
            let mut known = fleet_replica(&given.spec, phase);
            if phase == Phase::Ready {
                take_turns(&mut known, *replica, given);
            }
            replicas.insert(*replica, known);
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
                let ordered = intent.orders.node(*id);
                ordered.map_or(NodeState::Ready, |order| order.duty.into())
            },
            memory_allocatable: facts.memory.map(|memory| memory.allocatable),
            cpu: facts.cpu.as_ref().map(|cpu| Cores::whole(cpu.cores)),
            disk_free: facts
                .disk
                .as_ref()
                .map(|disk| disk.free - DISK_RESERVE - to_come(*id, node, memory)),
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
        pools: intent.pools.by_name().clone(),
        holds: intent.orders.holds(intent.at).map(Into::into).collect(),
    }
}

/// The weights that were promised room on a node's disk and are not there yet: those of replicas that it was given, less
/// what has come of them.
fn to_come(id: NodeId, node: &ObservedNode, memory: &Memory) -> Bytes {
    let there = node.weights.iter().flatten();
    let there: BTreeSet<Sha256Digest> = there.map(|one| one.sha256).collect();
    let given = memory.assignments.iter();
    let given = given.filter(|(_, given)| given.node == id && given.draining.is_none());
    let mut left: BTreeMap<Vec<Sha256Digest>, Bytes> = BTreeMap::new();
    for (replica, given) in given {
        let status = node.replicas.get(replica);
        let weights = &given.spec.weights;
        let digests: Vec<Sha256Digest> = weights.digests().collect();
        // What has come so far to run has its weights, wherever these lie.
        let has_come = status.is_some_and(|status| {
            matches!(status.state, ReplicaState::Starting | ReplicaState::Ready)
        });
        let lies_there = !digests.is_empty() && digests.iter().all(|one| there.contains(one));
        let on_the_node = matches!(weights.sources.first(), Some(Source::File { .. }));
        let Some(size) = weights.total() else {
            continue;
        };
        if has_come || lies_there || on_the_node {
            continue;
        }
        let fetch = status.and_then(|status| status.fetch.as_ref());
        let more = size - fetch.map_or(Bytes::ZERO, |fetch| fetch.bytes_done);
        // Replicas that run on the same share one download.
        let least = left.entry(digests).or_insert(more);
        *least = (*least).min(more);
    }
    left.into_values().sum()
}

/// How far a node is with each engine; one that it should have and has not spoken of yet is pending.
fn engines(intent: &Intent, node: &ObservedNode) -> BTreeMap<EngineName, ProvisionState> {
    let labels = &node.facts.labels;
    let is_in = |pool: &String| intent.pools.has(pool, labels);
    let wanted = intent
        .engines
        .iter()
        .filter(|wish| wish.pool.as_ref().is_none_or(is_in))
        .map(|wish| (wish.engine.clone(), ProvisionState::Pending));
    let told = node.provision.iter();
    let told = told.map(|provision| (provision.engine.clone(), provision.state.clone()));
    wanted.chain(told).collect()
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
pub(super) fn fleet_gpus(gpus: &[Gpu]) -> Vec<FleetGpu> {
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
pub(super) fn fleet_fabrics(facts: &NodeFacts) -> Vec<Fabric> {
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
