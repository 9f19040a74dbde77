//! A GPU as its node's agent sees it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::units::Bytes;

/// A GPU.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Gpu {
    /// Its number on this machine: its place in the order of the bus, NVIDIA's before AMD's before Intel's.
    pub index: u32,
    /// Who made it: `nvidia`, `amd` or `intel`.
    pub vendor: String,
    /// The name that stays when others come and go, such as `GPU-5d3c…`; absent when the agent could not ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Its address on the PCI bus, such as `0000:19:00.0`; absent when the agent could not ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
    /// Its class: what its maker calls it without the maker's own name, such as `H200`, `RTX 4090` or
    /// `A100-SXM4-80GB`; absent when the agent could not ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Its memory; absent when the agent could not ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_total: Option<Bytes>,
    /// What is used of it, by whomever, and what the driver keeps; absent when the agent could not ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_used: Option<Bytes>,
    /// What of that is not known to be of this agent's own engines; absent when the agent could not ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_others: Option<Bytes>,
    /// The version of its driver, such as `570.158.01`; absent when the agent could not ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The newest CUDA that the driver serves; absent on other makers' cards, and when the agent could not ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<MajorMinor>,
    /// CUDA's compute capability, such as `9.0`; absent on other makers' cards, and when the agent could not ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute: Option<MajorMinor>,
    /// Its parts, when it is divided by MIG; absent when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<Vec<MigInstance>>,
    /// Its direct links to other GPUs; absent when it has none or the agent could not ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvlink: Option<NvLink>,
    /// Why nothing is placed on it, in one line: the first of its problems that forbids it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Everything that is wrong with it, also what it goes on working with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<GpuProblem>,
}

/// A part of a GPU that is divided by MIG.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct MigInstance {
    /// Its name, such as `MIG-c1b2…`.
    pub uuid: String,
    /// Its memory; absent when the agent could not ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

/// A GPU's direct links to others.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct NvLink {
    /// Links that carry data.
    pub active: u32,
    /// Links that are there and carry none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub inactive: u32,
    /// Whether links end at a switch, through which all GPUs on it reach each other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub switched: bool,
    /// The numbers of the GPUs that it reaches over its links, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<u32>,
}

/// Something that is wrong with a GPU.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct GpuProblem {
    /// Of what kind it is.
    pub kind: GpuProblemKind,
    /// The sentence for people.
    pub text: String,
}

/// A kind of [`GpuProblem`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuProblemKind {
    /// The driver does not reach it any more: it has fallen off the bus.
    Lost,
    /// The machine has it, and the driver does not offer it.
    Missing,
    /// The driver says that it must be reset, or the machine restarted, before it can be used again.
    NeedsReset,
    /// The driver has reported an error after which NVIDIA's catalog asks for a reset.
    Xid,
    /// Its memory has lost data since the driver was loaded.
    MemoryErrors,
    /// Bad memory could not be taken out of use.
    RemapFailed,
    /// It is divided by MIG, and this release does not place on the parts.
    Divided,
    /// This release can't use cards of this maker.
    Unsupported,
    /// Bad memory waits for a reset to be taken out of use. Until then the driver keeps it from being used.
    RemapPending,
    /// An error that the driver has contained.
    Contained,
    /// The hardware has halved its clock or more, for heat or for want of power.
    Slowed,
    /// Some of its links carry nothing.
    LinksDown,
    /// A kind of a newer agent.
    #[serde(other)]
    Unknown,
}

/// A version of two numbers, such as CUDA's `12.8`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct MajorMinor {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
}

/// Says that a text is no version of two numbers.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is not a version of two numbers, such as 12.8")]
pub struct ParseMajorMinorError {
    text: String,
}

// === impl Gpu ===

impl Gpu {
    /// Its number and class, for sentences: `GPU 3 (H200)`.
    #[must_use]
    pub fn title(&self) -> String {
        match &self.class {
            Some(class) => format!("GPU {} ({class})", self.index),
            None => format!("GPU {}", self.index),
        }
    }

    /// What can be given to this agent's own engines in all: its memory less what others use.
    ///
    /// `None` when either is not known: others' memory is never taken for free.
    #[must_use]
    pub fn memory_usable(&self) -> Option<Bytes> {
        Some(self.memory_total? - self.memory_others?)
    }

    /// Whether others use so much of it that it can't be given away as a whole: more than a twentieth. A display
    /// or the driver's own contexts use less.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        match (self.memory_total, self.memory_others) {
            (Some(total), Some(others)) => others.0 > total.0 / 20,
            _ => false,
        }
    }

    /// Puts its problems in the order of their weight, and says the first one that forbids placing on it.
    #[must_use]
    pub fn judged(mut self) -> Self {
        self.problems.sort_by_key(|problem| problem.kind);
        self.fault = self
            .problems
            .iter()
            .find(|problem| problem.kind.forbids())
            .map(|problem| problem.text.clone());
        self
    }
}

// === impl GpuProblemKind ===

impl GpuProblemKind {
    /// Whether nothing may be placed on a GPU that has such a problem.
    ///
    /// A pending remapping does not forbid it: NVML's reference for `nvmlDeviceGetRemappedRows` says that it
    /// does not affect later work. Nor does a slow clock: the GPU computes, and the operator is warned.
    #[must_use]
    pub fn forbids(self) -> bool {
        match self {
            Self::Lost
            | Self::Missing
            | Self::NeedsReset
            | Self::Xid
            | Self::MemoryErrors
            | Self::RemapFailed
            | Self::Divided
            | Self::Unsupported => true,
            Self::RemapPending
            | Self::Contained
            | Self::Slowed
            | Self::LinksDown
            | Self::Unknown => false,
        }
    }
}

// === impl MajorMinor ===

impl MajorMinor {
    /// The version of these two numbers.
    #[must_use]
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// The first two numbers of a version that may have more or fewer: of `13.3.1` they are 13.3, and of `13` 13.0.
    /// `None` when one of its parts is no number.
    #[must_use]
    pub fn leading(text: &str) -> Option<Self> {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let mut parts = text.split('.');
        if !parts.clone().all(digits) {
            return None;
        }
        Some(Self {
            major: parts.next()?.parse().ok()?,
            minor: parts.next().map_or(Some(0), |part| part.parse().ok())?,
        })
    }
}

impl fmt::Display for MajorMinor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for MajorMinor {
    type Err = ParseMajorMinorError;

    fn from_str(text: &str) -> Result<Self, ParseMajorMinorError> {
        let number = |digits: &str| digits.parse().ok();
        text.split_once('.')
            .and_then(|(major, minor)| {
                Some(Self {
                    major: number(major)?,
                    minor: number(minor)?,
                })
            })
            .ok_or_else(|| ParseMajorMinorError {
                text: text.chars().take(32).collect(),
            })
    }
}

impl Serialize for MajorMinor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MajorMinor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_the_weightiest_problem_that_forbids_placing() {
        let problem = |kind, text: &str| GpuProblem {
            kind,
            text: text.to_owned(),
        };
        let sick = Gpu {
            problems: vec![
                problem(GpuProblemKind::Slowed, "hot"),
                problem(GpuProblemKind::MemoryErrors, "2 errors"),
                problem(GpuProblemKind::Lost, "gone"),
            ],
            ..Gpu::default()
        }
        .judged();
        assert_eq!(sick.fault.as_deref(), Some("gone"));
        let slow = Gpu {
            problems: vec![problem(GpuProblemKind::Slowed, "hot")],
            ..Gpu::default()
        };
        assert_eq!(slow.judged().fault, None);
    }

    #[test]
    fn what_others_use_is_not_given_away_and_not_taken_for_nothing() {
        let gpu = |others| Gpu {
            memory_total: Some(Bytes::gib(80)),
            memory_others: others,
            ..Gpu::default()
        };
        assert_eq!(gpu(None).memory_usable(), None);
        assert_eq!(
            gpu(Some(Bytes::gib(10))).memory_usable(),
            Some(Bytes::gib(70))
        );
        assert!(gpu(Some(Bytes::gib(5))).is_shared());
        assert!(!gpu(Some(Bytes::gib(4))).is_shared());
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let version = |text: &str| text.parse::<MajorMinor>().unwrap();
        assert!(version("12.10") > version("12.9"));
        assert_eq!(serde_json::to_string(&version("13.0")).unwrap(), "\"13.0\"");
        for wrong in ["", "12", "12.", "a.b", "1.2.3", "-1.0"] {
            assert!(wrong.parse::<MajorMinor>().is_err(), "{wrong}");
        }
        let leading = |text| MajorMinor::leading(text);
        assert_eq!(leading("13.3.1"), Some(version("13.3")));
        assert!(leading("9.9") < leading("13"));
        for wrong in ["", "x", "13.", "13.x", "-1", "13.3.x", "99999999999"] {
            assert_eq!(leading(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_gpu_of_an_older_agent_is_read() {
        let gpu: Gpu = serde_json::from_str(r#"{"index":1,"vendor":"nvidia"}"#).unwrap();
        assert_eq!(gpu.memory_usable(), None);
        let newer: GpuProblem =
            serde_json::from_str(r#"{"kind":"haunted","text":"it is"}"#).unwrap();
        assert_eq!(newer.kind, GpuProblemKind::Unknown);
    }
}
