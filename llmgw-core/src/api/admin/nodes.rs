//! What the admin API says of nodes and of the engines on them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    cluster::{
        engine::{Provision, WantedEngine},
        node::{Fabric, NodeState, Os, Warning},
    },
    id::{EngineName, ModelName, NodeId},
    units::Bytes,
};

/// `GET nodes`, one of.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NodeView {
    /// The node.
    pub id: NodeId,
    /// What people call it.
    pub hostname: String,
    /// What it may be used for.
    pub state: NodeState,
    /// Why an operator wants it used so, in their words; absent when they did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_reason: Option<String>,
    /// Whether its agent has looked at it.
    pub probed: bool,
    /// The operator's own marks.
    pub labels: BTreeMap<String, String>,
    /// The pools that these make it one of, sorted.
    #[serde(default)]
    pub pools: Vec<String>,
    /// The operating system; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<Os>,
    /// The processor architecture.
    pub arch: String,
    /// Cores; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<u32>,
    /// Vector extensions; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_features: Option<Vec<String>>,
    /// The address from which its agent speaks with the control plane; absent when that can't be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mgmt_addr: Option<String>,
    /// GPUs; absent when the agent could not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_total: Option<usize>,
    /// GPUs that work, are held by no replica and used by no other program; absent when the agent could not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_free: Option<usize>,
    /// The classes of its GPUs, each once, sorted; absent when the agent could not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_classes: Option<Vec<String>>,
    /// GPUs that nothing is placed on; absent when the agent could not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy_gpus: Option<Vec<UnhealthyGpu>>,
    /// Its ports on networks that shards may span; absent when the agent could not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabrics: Option<Vec<Fabric>>,
    /// All main memory; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_total: Option<Bytes>,
    /// The same in whole GiB, rounded down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_gb: Option<u64>,
    /// What engines may use in all; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_allocatable: Option<Bytes>,
    /// What replicas have reserved.
    pub memory_reserved: Bytes,
    /// What may still be written to the disk of the weights; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_free: Option<Bytes>,
    /// The same in whole GiB, rounded down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_free_gb: Option<u64>,
    /// The size of that disk; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_total: Option<Bytes>,
    /// The same in whole GiB, rounded down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_total_gb: Option<u64>,
    /// Engines that are installed and checked.
    #[serde(default)]
    pub engines: Vec<InstalledEngine>,
    /// How far the node is with each wanted engine.
    pub provision: Vec<Provision>,
    /// What makes it slow or unusable.
    pub warnings: Vec<Warning>,
    /// Seconds since it was heard.
    pub last_seen_ago: u64,
    /// The release of its agent.
    pub agent_version: String,
    /// Replicas that it has.
    pub replicas: usize,
    /// Models whose weights lie on its disk, whole and checked; absent when its agent does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models_on_disk: Option<Vec<ModelName>>,
}

/// An engine that a node has.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct InstalledEngine {
    /// Which.
    pub name: EngineName,
    /// The version as the build says it.
    pub version: String,
    /// The form it came in.
    pub variant: String,
}

/// A GPU of a [`NodeView`] that nothing is placed on.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct UnhealthyGpu {
    /// Its number on its node.
    pub index: u32,
    /// Its class; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// What is wrong with it.
    pub fault: String,
}

/// `GET engines`, one of.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct EngineView {
    /// The engine's name.
    pub name: EngineName,
    /// What nodes should have; absent for one that is not wanted any more and that a node still tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<WantedEngine>,
    /// Who chose it so, over what the settings say; absent when nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<ChosenBy>,
    /// How far each node is that has told of it.
    pub nodes: Vec<NodeEngine>,
}

/// Who ordered something.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ChosenBy {
    /// Who.
    pub by: String,
    /// When, in milliseconds since the Unix epoch.
    pub since: Timestamp,
}

/// How far a node is with an engine.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NodeEngine {
    /// The node.
    pub node: NodeId,
    /// What people call it.
    pub hostname: String,
    /// How far it is, what was chosen and why, and what was passed over.
    #[serde(flatten)]
    pub provision: Provision,
}
