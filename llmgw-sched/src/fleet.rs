//! The immutable snapshot of the fleet that a decision is made from.
//!
//! It has a stable serial form, so that a decision can be made again elsewhere from a file. Unknown is absent:
//! a node whose memory is not known takes nothing, and the reason says that it is not known.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use llmgw_core::{
    cluster::{engine::ProvisionState, node::NodeState, order, weights::Sha256Digest},
    id::{EngineName, ModelName, NodeId, ReplicaId},
    units::{Bytes, Cores},
};
use serde::{Deserialize, Serialize};

pub use llmgw_core::cluster::order::HoldScope;

pub use self::check::FleetError;

mod check;

/// All nodes, with what they have and what they run.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Fleet {
    /// The nodes, in any order: the order changes no decision.
    pub nodes: Vec<FleetNode>,
    /// Pools by name: the labels that make a node one of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, BTreeMap<String, String>>,
    /// Where nothing may be placed or moved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<Hold>,
}

/// An operator's order not to place or move anything somewhere.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// Where.
    pub scope: HoldScope,
    /// Why, in the operator's words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// One node of a [`Fleet`].
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FleetNode {
    /// The node.
    pub id: NodeId,
    /// What people call it.
    pub hostname: String,
    /// What it may be used for.
    #[serde(default = "ready")]
    pub state: NodeState,
    /// Main memory that engines may use in all, those that run included; absent when not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_allocatable: Option<Bytes>,
    /// Processor that engines may use in all, those that run included; absent when not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cores>,
    /// What may still be written to the disk of the weights; absent when not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_free: Option<Bytes>,
    /// Whether other machines use the same disk.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disk_shared: bool,
    /// Which disk that is, such as `filer:/models`: nodes that name the same one have its room together. Absent when
    /// it is the node's own, or when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_id: Option<String>,
    /// The GPUs; absent when not known, empty when there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Vec<FleetGpu>>,
    /// The operator's own marks; `facility` names the place.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The networks that connect it to others for shards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fabrics: Vec<Fabric>,
    /// Weights that lie there, by digest.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub weights: BTreeSet<Sha256Digest>,
    /// How far the node is with each engine that it should have.
    #[serde(default)]
    pub engines: BTreeMap<EngineName, ProvisionState>,
    /// What it runs or has been given to run.
    #[serde(default)]
    pub replicas: Vec<FleetReplica>,
}

/// One GPU of a [`FleetNode`].
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FleetGpu {
    /// Its number on its node.
    pub index: u32,
    /// Such as `H200`; absent when not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// All of its memory that is for replicas, without what other programs use; absent when not known. Then it can
    /// only be given out whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Whether other programs use a part of it, so that it can't be given out whole.
    #[serde(default, skip_serializing_if = "is_false")]
    pub in_use: bool,
    /// What is wrong with it; absent while it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// A network that shards may span: nodes that name the same one reach each other over it.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Fabric {
    /// Which one, such as `ib-hall-2`.
    pub name: String,
    /// Of what kind, such as `infiniband`.
    pub kind: String,
}

/// A replica, or a shard of one, that holds memory on a [`FleetNode`].
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FleetReplica {
    /// The replica. Its shards on other nodes have the same id.
    pub id: ReplicaId,
    /// What it serves.
    pub model: ModelName,
    /// Main memory that it was promised: reserved from the decision until its processes have ended.
    pub memory: Bytes,
    /// Processor that is kept for it.
    #[serde(default, skip_serializing_if = "is_no_core")]
    pub cpu: Cores,
    /// What it was promised of each of its GPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuShare>,
    /// How far it is.
    #[serde(default)]
    pub phase: Phase,
    /// Which part of the replica this is, from 0; absent when it has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Whether it was started for a call and may be stopped for another model once it is idle.
    #[serde(default, skip_serializing_if = "is_false")]
    pub on_demand: bool,
    /// Seconds since its last call ended; absent when it is at work or when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_seconds: Option<u64>,
    /// Whether it may be stopped for another model though it is at work: it has had its turn, and others wait for theirs.
    #[serde(default, skip_serializing_if = "is_false")]
    pub yields: bool,
}

/// What a replica was promised of one GPU.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GpuShare {
    /// The number of the GPU on its node.
    pub index: u32,
    /// So much of its memory; absent: all of it, which nobody else may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

/// How far a replica is, as far as placement cares.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// On its way up: what it was promised may not be in use yet.
    Starting,
    /// It serves.
    #[default]
    Ready,
    /// On its way out: it still holds what it was promised, and counts as a replica no more.
    Leaving,
}

// === impl Fleet ===

impl Fleet {
    /// The same fleet with its nodes ordered by id, and each node's GPUs and replicas by theirs.
    #[must_use]
    pub fn sorted(&self) -> Self {
        let mut sorted = self.clone();
        sorted.nodes.sort_by_key(|node| node.id);
        for node in &mut sorted.nodes {
            node.replicas.sort_by_key(|replica| replica.id);
            if let Some(gpus) = &mut node.gpus {
                gpus.sort_by_key(|gpu| gpu.index);
            }
        }
        sorted
    }

    /// The same in order, copied only where it is not in order already.
    #[must_use]
    pub fn in_order(&self) -> Cow<'_, Self> {
        let ordered = self.nodes.is_sorted_by_key(|node| node.id)
            && self.nodes.iter().all(|node| {
                let gpus = node.gpus.as_deref().unwrap_or_default();
                gpus.is_sorted_by_key(|gpu| gpu.index)
                    && node.replicas.is_sorted_by_key(|replica| replica.id)
            });
        if ordered {
            Cow::Borrowed(self)
        } else {
            Cow::Owned(self.sorted())
        }
    }

    /// The hold that covers a node, if one does.
    #[must_use]
    pub fn hold_on(&self, node: &FleetNode) -> Option<&Hold> {
        self.holds.iter().find(|hold| match &hold.scope {
            HoldScope::Facility(name) => node.labels.get(FACILITY) == Some(name),
            HoldScope::Pool(name) => self.is_in_pool(node, name),
            HoldScope::Node(id) => *id == node.id,
        })
    }

    /// Whether a node is one of a pool; of a pool that there is not, none is.
    #[must_use]
    pub fn is_in_pool(&self, node: &FleetNode, pool: &str) -> bool {
        self.pools
            .get(pool)
            .is_some_and(|labels| node.has_labels(labels))
    }
}

impl From<&order::Hold> for Hold {
    fn from(hold: &order::Hold) -> Self {
        Self {
            scope: hold.scope.clone(),
            reason: hold.reason.clone(),
        }
    }
}

impl FleetNode {
    /// A node of which nothing is known but its name, ready, and with nothing on it.
    #[must_use]
    pub fn named(id: NodeId, hostname: String) -> Self {
        Self {
            id,
            hostname,
            state: NodeState::Ready,
            memory_allocatable: None,
            cpu: None,
            disk_free: None,
            disk_shared: false,
            disk_id: None,
            gpus: None,
            labels: BTreeMap::new(),
            fabrics: Vec::new(),
            weights: BTreeSet::new(),
            engines: BTreeMap::new(),
            replicas: Vec::new(),
        }
    }

    /// What its replicas were promised of its main memory in all.
    #[must_use]
    pub fn memory_reserved(&self) -> Bytes {
        self.replicas.iter().map(|replica| replica.memory).sum()
    }

    /// How many of its GPUs work, are held by no replica and used by no other program; `None` when its GPUs are not
    /// known.
    #[must_use]
    pub fn gpus_free(&self) -> Option<usize> {
        let held = |index: u32| {
            let shares = self.replicas.iter().flat_map(|replica| &replica.gpus);
            shares.into_iter().any(|share| share.index == index)
        };
        let free = self
            .gpus
            .as_ref()?
            .iter()
            .filter(|gpu| gpu.fault.is_none() && !gpu.in_use && !held(gpu.index));
        Some(free.count())
    }

    /// Whether it has all of these labels.
    #[must_use]
    pub fn has_labels(&self, labels: &BTreeMap<String, String>) -> bool {
        labels
            .iter()
            .all(|(key, value)| self.labels.get(key) == Some(value))
    }
}

impl FleetReplica {
    /// A replica that serves, with so much main memory and nothing else.
    #[must_use]
    pub fn serving(id: ReplicaId, model: ModelName, memory: Bytes) -> Self {
        Self {
            id,
            model,
            memory,
            cpu: Cores::ZERO,
            gpus: Vec::new(),
            phase: Phase::Ready,
            rank: None,
            on_demand: false,
            idle_seconds: None,
            yields: false,
        }
    }

    /// Whether this is what counts as the replica: its only part or its first, and not on its way out.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.phase != Phase::Leaving && self.rank.unwrap_or(0) == 0
    }
}

fn ready() -> NodeState {
    NodeState::Ready
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(flag: &bool) -> bool {
    !*flag
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_no_core(cores: &Cores) -> bool {
    *cores == Cores::ZERO
}

/// The label that names a node's place.
pub const FACILITY: &str = "facility";
