//! What comes out: memory by device and by part.

use llmgw_core::units::Bytes;
use serde::Serialize;

/// An amount that lies between two others.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Bound {
    /// No less than this.
    pub least: Bytes,
    /// No more than this.
    pub most: Bytes,
}

/// Where memory is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Device {
    /// The GPU of this number in the request.
    Gpu(usize),
    /// Main memory.
    Host,
}

/// What one device holds.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Footprint {
    /// Which device.
    pub device: Device,
    /// What may be used of it; absent when the request did not say.
    pub limit: Option<Bytes>,
    /// Layers that it computes.
    pub layers: usize,
    /// Weights.
    pub weights: Bytes,
    /// The key-value cache.
    pub cache: Bytes,
    /// Recurrent state.
    pub state: Bytes,
    /// Buffers of the computation.
    pub compute: Bound,
    /// What the driver, the engine's process and its libraries take.
    pub overhead: Bound,
}

/// What a model takes on every device.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Estimate {
    /// The GPUs in the order of the request, then the host.
    pub devices: Vec<Footprint>,
}

// === impl Bound ===

impl Bound {
    /// From `least` to `most`, or exactly `least` when that is more.
    #[must_use]
    pub fn new(least: Bytes, most: Bytes) -> Self {
        Self {
            least,
            most: most.max(least),
        }
    }

    /// Whether `amount` lies within.
    #[must_use]
    pub fn holds(&self, amount: Bytes) -> bool {
        self.least <= amount && amount <= self.most
    }
}

// === impl Footprint ===

impl Footprint {
    /// All parts together.
    #[must_use]
    pub fn total(&self) -> Bound {
        let exact = self.weights + self.cache + self.state;
        Bound {
            least: exact + self.compute.least + self.overhead.least,
            most: exact + self.compute.most + self.overhead.most,
        }
    }

    /// Whether it certainly fits; absent when the limit is not known.
    #[must_use]
    pub fn fits(&self) -> Option<bool> {
        self.limit.map(|limit| self.total().most <= limit)
    }
}

// === impl Estimate ===

impl Estimate {
    /// Whether it certainly fits on every device whose limit is known; absent when none is.
    #[must_use]
    pub fn fits(&self) -> Option<bool> {
        let known: Vec<bool> = self.devices.iter().filter_map(Footprint::fits).collect();
        (!known.is_empty()).then(|| known.into_iter().all(|fits| fits))
    }

    /// What the GPUs take together.
    pub fn gpus(&self) -> impl Iterator<Item = &Footprint> {
        self.devices
            .iter()
            .filter(|footprint| matches!(footprint.device, Device::Gpu(_)))
    }

    /// What the host takes.
    #[must_use]
    pub fn host(&self) -> Option<&Footprint> {
        self.devices
            .iter()
            .find(|footprint| footprint.device == Device::Host)
    }
}

/// `count` things of `each` bytes.
pub(super) fn times(each: Bytes, count: u64) -> Bytes {
    Bytes(each.0.saturating_mul(count))
}

/// The product of all, in bytes.
pub(super) fn product(factors: &[u64]) -> Bytes {
    Bytes(
        factors
            .iter()
            .fold(1, |all, n| u64::saturating_mul(all, *n)),
    )
}

/// The part of `amount` that one of `parts` equal parts has, rounded up.
pub(super) fn share(amount: Bytes, parts: u64) -> Bytes {
    Bytes(amount.0.div_ceil(parts.max(1)))
}
