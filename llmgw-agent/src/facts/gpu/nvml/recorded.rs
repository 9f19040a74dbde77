//! The library's answers as a captured tree holds them.

use llmgw_core::units::Bytes;

use super::{FILE, Nvml, NvmlError, Reading, parse};
use crate::facts::Root;

/// Answers from a captured tree; there is no library where the tree holds no answers.
#[derive(Clone, Debug)]
pub struct RecordedNvml {
    root: Root,
}

impl RecordedNvml {
    /// The answers in this tree.
    #[must_use]
    pub fn new(root: Root) -> Self {
        Self { root }
    }
}

impl Nvml for RecordedNvml {
    fn read(&self) -> Result<Reading, NvmlError> {
        let Some(json) = self.root.bytes(FILE, RECORDING_LIMIT) else {
            return Err(NvmlError::Absent);
        };
        parse(&json).unwrap_or_else(|error| Err(NvmlError::Other(format!("{FILE}: {error}"))))
    }

    fn used(&self, uuid: &str) -> Option<Bytes> {
        let reading = self.read().ok()?;
        let device = reading
            .gpus
            .iter()
            .find(|gpu| gpu.uuid.as_deref() == Some(uuid))?;
        let memory = device.memory?;
        Some(memory.used + memory.reserved)
    }
}

/// Sixteen cards with a hundred processes each are 200 kB.
const RECORDING_LIMIT: u64 = 4 << 20;
