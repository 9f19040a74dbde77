//! A machine and what its agent found on it.
//!
//! **Unknown is absent; none is empty.** A field that an agent did not say is `None`, and is never read as full
//! or as empty.

mod fabric;
mod gpu;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::{
    fabric::Fabric,
    gpu::{Gpu, GpuProblem, GpuProblemKind, MajorMinor, MigInstance, NvLink, ParseMajorMinorError},
};
use crate::units::Bytes;

/// What an agent found when it looked at its machine.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Ports on networks that shards may span; empty when the agent looked and found none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabrics: Option<Vec<Fabric>>,
    /// The address from which the agent speaks with the control plane; absent when it can't be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub management_address: Option<String>,
    /// How far the clock is from the control plane's; absent before that was heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOffset>,
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Os {
    /// Such as `debian`.
    pub id: String,
    /// Such as `12`; absent on a rolling release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// The processor.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Cpu {
    /// Logical cores that this process may use, after affinity and the quota of its control group.
    pub cores: u32,
    /// Physical cores of the machine; absent when the kernel does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physical: Option<u32>,
    /// The vector extensions that engines care about, such as `avx2` and `avx512f`, sorted.
    pub features: Vec<String>,
}

/// Main memory.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Memory {
    /// All that the machine (or the container) has.
    pub total: Bytes,
    /// What engines may use in all: what was free when the agent looked, and what its own engines held, less a
    /// reserve for the system.
    pub allocatable: Bytes,
}

/// A disk that holds weights.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Which disk that is, by a name that means the same on every machine, such as `filer:/models`; absent when it
    /// is the machine's own or has no such name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// How far a node's clock is from the control plane's.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ClockOffset {
    /// Milliseconds that the node's clock is ahead; negative when it is behind.
    pub ahead_ms: i64,
    /// How wrong that may be, in milliseconds: half of the time that question and answer took.
    pub within_ms: u64,
}

/// Something about a machine that its operator should know.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// The clock is more than a second from the control plane's.
    pub const CLOCK_OFF: &str = "clock_off";
    /// The disk of the weights is nearly full.
    pub const DISK_NEARLY_FULL: &str = "disk_nearly_full";
    /// The driver is too old for the wanted CUDA.
    pub const DRIVER_TOO_OLD: &str = "driver_too_old";
    /// Nothing holds engines to the memory that they were given.
    pub const ENGINE_MEMORY_UNLIMITED: &str = "engine_memory_unlimited";
    /// A port on a fast network has a link, and its network does not use it.
    pub const FABRIC_NOT_ACTIVE: &str = "fabric_not_active";
    /// The C library is too old for the wanted build.
    pub const GLIBC_TOO_OLD: &str = "glibc_too_old";
    /// A GPU holds memory of replicas that have ended.
    pub const GPU_MEMORY_HELD: &str = "gpu_memory_held";
    /// A GPU is broken or can't be used as it is set up: nothing is placed on it.
    pub const GPU_FAULT: &str = "gpu_fault";
    /// It can't be told how much memory a GPU has or how much of it others use.
    pub const GPU_MEMORY_UNKNOWN: &str = "gpu_memory_unknown";
    /// A GPU works, and something is wrong with it.
    pub const GPU_PROBLEM: &str = "gpu_problem";
    /// The processor has no AVX2.
    pub const NO_AVX2: &str = "no_avx2";
    /// A program that an operator has named was never seen to compute here.
    pub const NOT_COMPUTED: &str = "not_computed";
    /// Memory has been put aside to swap.
    pub const SWAP_IN_USE: &str = "swap_in_use";

    /// A warning of this code.
    #[must_use]
    pub fn new(code: &str, text: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            text: text.into(),
        }
    }
}

impl ClockOffset {
    /// The warning that it is worth: from more than a second on, whatever may be wrong with the measurement.
    #[must_use]
    pub fn warning(self) -> Option<Warning> {
        let off = self.ahead_ms.unsigned_abs();
        if off.saturating_sub(self.within_ms) <= 1000 {
            return None;
        }
        let side = if self.ahead_ms > 0 {
            "ahead of"
        } else {
            "behind"
        };
        let text = format!(
            "the clock is {}.{} s {side} the control plane's, so that logs and certificates disagree; let chrony \
             or systemd-timesyncd set it",
            off / 1000,
            off % 1000 / 100,
        );
        Some(Warning::new(Warning::CLOCK_OFF, text))
    }
}

/// What a node may be used for.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_off_only_when_that_is_certain() {
        let offset = |ahead_ms, within_ms| {
            ClockOffset {
                ahead_ms,
                within_ms,
            }
            .warning()
        };
        assert_eq!(offset(1000, 0), None);
        assert_eq!(offset(-1500, 600), None);
        let text = offset(-1700, 600).unwrap().text;
        assert!(text.starts_with("the clock is 1.7 s behind"), "{text}");
        assert!(offset(i64::MIN, 0).is_some());
    }
}
