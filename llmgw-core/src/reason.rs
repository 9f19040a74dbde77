//! The one vocabulary of why.
//!
//! The planner, the loop, the agent and the gateway say with these types why something is not placed, waits,
//! was stopped or was refused; [`render`] turns them into text for people. A [`Reason`] always says what was
//! needed, what there is, and how much is missing, where that can be said in numbers.

pub mod remedy;
pub mod render;

use std::fmt;

use serde::{Deserialize, Serialize};

use self::remedy::Remedy;
use crate::{
    id::{ModelName, NodeId, ProfileName},
    units::Bytes,
};

/// What is checked before a replica is placed, in the order in which failures are counted.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Check {
    /// The node is heard and may take new work.
    Node,
    /// No operator holds it.
    Hold,
    /// It is in the pool that is asked for.
    Pool,
    /// It has the labels that are asked for.
    Labels,
    /// The engine is installed there.
    Engine,
    /// GPUs of a right class that work.
    Gpus,
    /// Memory on them.
    GpuMemory,
    /// Processor cores.
    Cpu,
    /// Main memory.
    Memory,
    /// Disk for the weights.
    Disk,
    /// A network for shards.
    Fabric,
    /// Places for the other shards.
    Shards,
}

/// A quantity in a reason.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// Memory or disk.
    Bytes(Bytes),
    /// A state, a version, a name.
    Text(String),
}

/// Why one check failed.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Reason {
    /// Which check.
    pub check: Check,
    /// What was asked for.
    pub need: Amount,
    /// What there is; absent when it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub have: Option<Amount>,
    /// How much is missing, where that is a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_by: Option<Bytes>,
    /// The sentence for people, without a period.
    pub detail: String,
}

/// A node that can't take a replica with a profile: every check that failed.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Rejection {
    /// The node.
    pub node: NodeId,
    /// What people call it.
    pub hostname: String,
    /// The profile that was tried.
    pub profile: ProfileName,
    /// All failing checks, in the order of [`Check`]; at least one.
    pub reasons: Vec<Reason>,
}

/// What became of a trial to place one more replica of a model.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Report {
    /// The model.
    pub model: ModelName,
    /// How many nodes were looked at.
    pub nodes: usize,
    /// How many profiles were tried.
    pub profiles: usize,
    /// How many replicas it should have; 0 when one was only asked about.
    #[serde(default)]
    pub replicas: u32,
    /// How many of them have no place.
    #[serde(default)]
    pub missing: u32,
    /// Where it can go, when it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fits: Option<Fit>,
    /// Every node and profile that can't take it.
    pub rejections: Vec<Rejection>,
    /// Each node once, under the first failing check of its nearest profile; the counts add up to the nodes
    /// that can't take it.
    pub summary: Vec<CheckCount>,
    /// The rejection that lacks least; absent when it fits or when there is no node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest: Option<Rejection>,
    /// What will make it fit without anybody's doing, such as an engine that is being installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
    /// What would help; every one was tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<Remedy>,
}

/// A place for a replica.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Fit {
    /// The node.
    pub node: NodeId,
    /// What people call it.
    pub hostname: String,
    /// The profile.
    pub profile: ProfileName,
}

/// How many nodes fail first at a check.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct CheckCount {
    /// The check.
    pub check: Check,
    /// The nodes.
    pub nodes: usize,
}

// === impl Check ===

impl Check {
    /// All checks, in order.
    pub const ALL: [Self; 12] = [
        Self::Node,
        Self::Hold,
        Self::Pool,
        Self::Labels,
        Self::Engine,
        Self::Gpus,
        Self::GpuMemory,
        Self::Cpu,
        Self::Memory,
        Self::Disk,
        Self::Fabric,
        Self::Shards,
    ];

    /// Whether it is made of every replica; the others are made where a profile or an operator asks for them.
    #[must_use]
    pub fn is_always_made(self) -> bool {
        matches!(self, Self::Node | Self::Engine | Self::Memory | Self::Disk)
    }

    /// The check as it stands in tables and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Hold => "hold",
            Self::Pool => "pool",
            Self::Labels => "labels",
            Self::Engine => "engine",
            Self::Gpus => "gpus",
            Self::GpuMemory => "gpu_memory",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Fabric => "fabric",
            Self::Shards => "shards",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

// === impl Amount ===

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}
