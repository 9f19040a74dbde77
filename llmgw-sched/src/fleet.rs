//! The immutable snapshot of the fleet that a decision is made from.
//!
//! It has a stable serial form, so that a decision can be made again elsewhere from a file. Unknown is absent:
//! a node whose memory is not known takes nothing, and the reason says that it is not known.

use std::collections::BTreeMap;

use llmgw_core::{
    cluster::{engine::ProvisionState, node::NodeState},
    id::{EngineName, ModelName, NodeId, ReplicaId},
    units::Bytes,
};
use serde::{Deserialize, Serialize};

/// All nodes, with what they have and what they run.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Fleet {
    /// The nodes, in any order: the order changes no decision.
    pub nodes: Vec<FleetNode>,
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
    /// What may still be written to the disk of the weights; absent when not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_free: Option<Bytes>,
    /// How far the node is with each engine that it should have.
    #[serde(default)]
    pub engines: BTreeMap<EngineName, ProvisionState>,
    /// What it runs or has been given to run.
    #[serde(default)]
    pub replicas: Vec<FleetReplica>,
}

/// A replica that holds memory on a [`FleetNode`].
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FleetReplica {
    /// The replica.
    pub id: ReplicaId,
    /// What it serves.
    pub model: ModelName,
    /// What it was promised: reserved from the decision until its processes have ended.
    pub memory: Bytes,
    /// Whether it is on its way out: it still holds its memory and does not count as a replica any more.
    #[serde(default)]
    pub leaving: bool,
}

impl Fleet {
    /// The same fleet with its nodes ordered by id, and each node's replicas by theirs.
    #[must_use]
    pub fn sorted(&self) -> Self {
        let mut sorted = self.clone();
        sorted.nodes.sort_by_key(|node| node.id);
        for node in &mut sorted.nodes {
            node.replicas.sort_by_key(|replica| replica.id);
        }
        sorted
    }
}

impl FleetNode {
    /// What its replicas were promised in all.
    #[must_use]
    pub fn memory_reserved(&self) -> Bytes {
        self.replicas.iter().map(|replica| replica.memory).sum()
    }

    /// What is left to promise; absent when not known.
    #[must_use]
    pub fn memory_free(&self) -> Option<Bytes> {
        self.memory_allocatable
            .map(|all| all - self.memory_reserved())
    }
}

fn ready() -> NodeState {
    NodeState::Ready
}
