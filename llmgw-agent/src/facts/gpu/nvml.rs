//! What NVIDIA's management library says of the cards, as plain data: [`Nvml`] is asked, a [`Reading`] is told.
//!
//! The library comes with the driver and is loaded while the agent runs; where there is none, there is none. What it
//! answers is judged elsewhere, so that the answers of a machine that we don't have are judged by the same code.

mod live;
mod recorded;

use llmgw_core::{
    cluster::node::{MajorMinor, MigInstance},
    units::Bytes,
};
use serde::{Deserialize, Serialize};

pub use self::{live::LiveNvml, recorded::RecordedNvml};

/// Asks NVIDIA's library.
///
/// # Contract
/// * `read` asks for everything at once and judges nothing. What the library does not answer for a card is absent
///   in its [`Device`]; a card that it can't open is there with [`Device::unreachable`].
/// * Both methods may block as long as the driver does, and may be called again and again, from several threads.
/// * `used` is cheap: it asks for one number of one card.
pub trait Nvml: std::fmt::Debug + Send + Sync + 'static {
    /// Everything that is asked.
    ///
    /// # Errors
    /// When there is no library, or it does not work.
    fn read(&self) -> Result<Reading, NvmlError>;

    /// What is used now of the memory of the card of this name, by whomever; `None` when that can't be told.
    fn used(&self, uuid: &str) -> Option<Bytes>;
}

/// The answers of NVIDIA's library (NVML API reference, docs.nvidia.com/deploy/nvml-api).
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Reading {
    /// The driver's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The newest CUDA that the driver serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<MajorMinor>,
    /// The cards that it offers.
    pub gpus: Vec<Device>,
}

/// A card, as the library describes it. What it does not answer is absent.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Device {
    /// Its number in the library.
    pub index: u32,
    /// Why it can't be opened; absent when it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<Unreachable>,
    /// Its name, such as `NVIDIA H200`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Such as `GPU-5d3c…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Its address, such as `00000000:19:00.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
    /// CUDA's compute capability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute: Option<MajorMinor>,
    /// Its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<DeviceMemory>,
    /// The processes that hold memory of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<DeviceProcess>>,
    /// Its parts, when it is divided by MIG.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<Vec<MigInstance>>,
    /// Memory errors that were not corrected, since the driver was loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncorrected: Option<u64>,
    /// Whether rows of memory wait for a reset to be replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remap_pending: Option<bool>,
    /// Whether a row of memory could not be replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remap_failed: Option<bool>,
    /// Whether pages of memory wait for the driver to be loaded again to be retired, on cards before Ampere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retire_pending: Option<bool>,
    /// What the driver asks for: `nvmlDeviceGpuRecoveryAction_t`, 0 for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<u64>,
    /// Why its clock is held back: the bits `nvmlClocksEventReason*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowed: Option<u64>,
    /// Its `NVLink` links; empty when it has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<DeviceLink>,
}

/// Why a card can't be opened.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unreachable {
    /// `NVML_ERROR_GPU_IS_LOST`.
    Lost,
    /// `NVML_ERROR_RESET_REQUIRED`.
    NeedsReset,
    /// Anything else, in the library's words.
    Other(String),
}

/// A card's memory.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct DeviceMemory {
    /// All of it.
    pub total: Bytes,
    /// What is used, without what is reserved.
    pub used: Bytes,
    /// What the driver keeps for itself.
    pub reserved: Bytes,
}

/// A process that holds memory of a card.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct DeviceProcess {
    /// Its number.
    pub pid: u32,
    /// What it holds; absent when the driver does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

/// One link of a card.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct DeviceLink {
    /// Whether it carries data.
    pub active: bool,
    /// The address of what is at its other end: a card or a switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
}

/// Says why nothing was answered.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NvmlError {
    /// There is no library.
    #[error("NVIDIA's management library libnvidia-ml.so.1 is not installed")]
    Absent,
    /// Library and loaded driver are of different versions.
    #[error(
        "NVIDIA's driver was upgraded and the old one is still loaded: restart the machine, or load it again"
    )]
    Mismatch,
    /// This user may not ask.
    #[error("this user may not open NVIDIA's devices")]
    Denied,
    /// Anything else, in the library's words.
    #[error("NVIDIA's management library does not work: {0}")]
    Other(String),
}

/// What a captured tree holds: answers, or why there are none.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Recording {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<NvmlError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reading: Option<Reading>,
}

/// Reads what a tree's `nvml.json` holds.
///
/// # Errors
/// When it is not in our form.
pub fn parse(json: &[u8]) -> Result<Result<Reading, NvmlError>, serde_json::Error> {
    let Recording { error, reading } = serde_json::from_slice(json)?;
    Ok(match (error, reading) {
        (Some(error), _) => Err(error),
        (None, Some(reading)) => Ok(reading),
        (None, None) => Err(NvmlError::Absent),
    })
}

/// Writes what a tree's `nvml.json` holds.
#[must_use]
pub fn to_json(answer: &Result<Reading, NvmlError>) -> Vec<u8> {
    let recording = match answer {
        Ok(reading) => Recording {
            error: None,
            reading: Some(reading.clone()),
        },
        Err(error) => Recording {
            error: Some(error.clone()),
            reading: None,
        },
    };
    // Plain data with text keys always has a JSON form.
    serde_json::to_vec_pretty(&recording).unwrap_or_default()
}

impl Device {
    /// Whether it waits for a reset, which waits for everyone who has the card open.
    #[must_use]
    pub fn awaits_reset(&self) -> bool {
        self.recovery.is_some_and(|action| action != 0)
            || matches!(
                self.unreachable,
                Some(Unreachable::Lost | Unreachable::NeedsReset)
            )
    }
}

/// Where a captured tree holds the library's answers.
pub const FILE: &str = "nvml.json";
