//! A machine and what its agent found on it.
//!
//! **Unknown is absent; none is empty.** A field that an agent did not say is `None`, and is never read as full
//! or as empty.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// What an agent found when it looked at its machine.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct NodeFacts {
    /// The name the machine gives itself.
    pub hostname: String,
    /// The operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<Os>,
    /// The processor architecture, as Rust names it: `x86_64`, `aarch64`.
    pub arch: String,
    /// The version of the GNU C library, such as `2.36`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glibc: Option<String>,
    /// Processor cores and vector extensions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Main memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// The disk that holds the weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Disk>,
    /// The GPUs; empty when the agent looked and found none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Vec<Gpu>>,
    /// The operator's own marks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The version of the agent that looked.
    pub agent_version: String,
    /// What makes the machine slow or unusable without making it unhealthy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// An operating system's name and version, as `/etc/os-release` says them.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Os {
    /// Such as `debian`.
    pub id: String,
    /// Such as `12`; absent on a rolling release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// The processor.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Cpu {
    /// Cores that this process may use.
    pub cores: u32,
    /// The vector extensions that engines care about, such as `avx2` and `avx512f`, sorted.
    pub features: Vec<String>,
}

/// Main memory.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Memory {
    /// All that the machine (or the container) has.
    pub total: Bytes,
    /// What engines may use in all: what was free when the agent looked, and what its own engines held, less a
    /// reserve for the system.
    pub allocatable: Bytes,
}

/// A disk that holds weights.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Disk {
    /// Where it is mounted.
    pub mount: String,
    /// Its size.
    pub total: Bytes,
    /// What may still be written.
    pub free: Bytes,
    /// Whether other machines use the same disk.
    pub shared: bool,
}

/// A GPU.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Gpu {
    /// Its number on this machine.
    pub index: u32,
    /// Who made it, such as `nvidia`.
    pub vendor: String,
    /// Its class, such as `H200`; absent when the agent could not ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Its memory; absent when the agent could not ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_total: Option<Bytes>,
    /// What is wrong with it, in the driver's words; absent while it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// Something about a machine that its operator should know.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Warning {
    /// A stable name, such as `no_avx2`.
    pub code: String,
    /// The sentence for people.
    pub text: String,
}

impl Warning {
    /// The code of a warning that the agent can't do what the control plane wants, such as for a full disk.
    pub const CANNOT_FOLLOW: &str = "cannot_follow";
}

/// What a node may be used for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Anything.
    Ready,
    /// What runs there stays, nothing new comes.
    Cordoned,
    /// What runs there moves off.
    Draining,
    /// Unheard for longer than the grace.
    Lost,
    /// Joined, and not yet approved.
    Pending,
}

impl NodeState {
    /// The state as it stands in tables and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
            Self::Lost => "lost",
            Self::Pending => "pending",
        }
    }
}
