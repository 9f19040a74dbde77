//! How good a node is for a demand: the policies that can be chosen.
//!
//! All amounts are relative to the fleet: GPU memory to the largest GPU, whole nodes to the largest node. So a
//! policy says the same of a fleet whose sizes are all doubled.
//!
//! | policy | prefers the node | from |
//! |---|---|---|
//! | [`PolicyName::Scarcity`] | that costs least of what is wanted and scarce | ours, the default |
//! | [`PolicyName::FragmentationGradient`] | whose free GPU memory becomes least useless | ATC'23, "Beware of Fragmentation" |
//! | [`PolicyName::BestFit`] | with least left afterwards | published with it |
//! | [`PolicyName::DotProduct`] | whose remains point least the way of the demand | published with it |
//! | [`PolicyName::Packing`] | with used GPUs that still have room | published with it |
//! | [`PolicyName::Clustering`] | that runs demands of the same kind | published with it |
//! | [`PolicyName::Spread`] | with most left afterwards | - |

use std::fmt::{self, Debug};

use serde::{Deserialize, Deserializer, Serialize, de};

use super::{
    demand::Demand,
    mix::Mix,
    room::{GpuSet, Room},
};
use crate::fleet::Fleet;

mod gradient;
pub(super) mod published;
mod scarcity;

pub(super) use self::published::kind;
use self::{
    gradient::FragmentationGradient,
    published::{BestFit, Clustering, DotProduct, Packing, Spread},
    scarcity::Scarcity,
};

/// Which policy places.
///
/// Read with dashes too, as the command line has it; written with underscores.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyName {
    /// Keeps free what is wanted and scarce.
    #[default]
    Scarcity,
    /// Keeps free GPU memory usable for the typical demand.
    FragmentationGradient,
    /// The tightest fit.
    BestFit,
    /// The least aligned remains.
    DotProduct,
    /// Used GPUs first.
    Packing,
    /// Like to like.
    Clustering,
    /// The loosest fit.
    Spread,
}

impl PolicyName {
    const ALL: [Self; 7] = [
        Self::Scarcity,
        Self::FragmentationGradient,
        Self::BestFit,
        Self::DotProduct,
        Self::Packing,
        Self::Clustering,
        Self::Spread,
    ];

    const NAMES: [&str; 7] = [
        "scarcity",
        "fragmentation_gradient",
        "best_fit",
        "dot_product",
        "packing",
        "clustering",
        "spread",
    ];
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = Self::ALL.iter().position(|name| name == self);
        let name = place.and_then(|place| Self::NAMES.get(place).copied());
        f.pad(name.unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for PolicyName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let written = text.replace('-', "_");
        let place = Self::NAMES.iter().position(|name| *name == written);
        place
            .and_then(|place| Self::ALL.get(place).copied())
            .ok_or_else(|| de::Error::unknown_variant(&text, &Self::NAMES))
    }
}

/// How good a node is for a demand: more is better, compared field by field in this order.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Worth {
    /// The policy's own measure; coarse where the published policy is.
    pub main: i64,
    /// What decides between nodes that are equally good by that.
    pub fine: i64,
    /// Less main memory left over, and more of this.
    pub tight: i64,
}

/// What amounts are measured against: the largest of the fleet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Bytes in a thousandth of the largest GPU.
    pub gpu_thousandth: f64,
    /// Bytes on all GPUs of the node that has most.
    pub node_gpus: f64,
    /// Thousandths of a core of the node that has most.
    pub node_cpu: f64,
}

/// A room, and how many nodes have just this.
pub type Supply<'r> = &'r mut dyn Iterator<Item = (&'r Room, u32)>;

/// Says how good a node is for a demand.
///
/// # Contract
/// * A room that is asked about has room for the demand; `gpus` picks places from [`Room::able`], as many as the
///   demand asks for.
/// * Every method is pure: the same arguments give the same answer until [`Policy::watch`] says otherwise; unless
///   [`Policy::is_pure`] says that nothing is to be kept.
pub trait Policy: Debug {
    /// How good a node is.
    fn worth(&self, room: &Room, demand: &Demand) -> Worth;

    /// Which of its GPUs would be used.
    fn gpus(&self, room: &Room, demand: &Demand) -> GpuSet {
        tightest(room, demand)
    }

    /// Shows what the fleet has left, now and then. True: what was said before is void.
    fn watch(&mut self, _left: Supply<'_>) -> bool {
        false
    }

    /// Whether answers may be kept.
    fn is_pure(&self) -> bool {
        true
    }
}

// === impl PolicyName ===

impl PolicyName {
    /// The policy, for this fleet and what is typically asked of it.
    #[must_use]
    pub fn policy(self, mix: Mix, scale: Scale) -> Box<dyn Policy> {
        match self {
            Self::Scarcity => Box::new(Scarcity::new(mix, scale)),
            Self::FragmentationGradient => Box::new(FragmentationGradient::new(mix, scale)),
            Self::BestFit => Box::new(BestFit(scale)),
            Self::DotProduct => Box::new(DotProduct(scale)),
            Self::Packing => Box::new(Packing),
            Self::Clustering => Box::new(Clustering(scale)),
            Self::Spread => Box::new(Spread(scale)),
        }
    }

    /// The policy as it stands in tables and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scarcity => "scarcity",
            Self::FragmentationGradient => "fragmentation_gradient",
            Self::BestFit => "best_fit",
            Self::DotProduct => "dot_product",
            Self::Packing => "packing",
            Self::Clustering => "clustering",
            Self::Spread => "spread",
        }
    }
}

// === impl Scale ===

impl Scale {
    /// The measures of a fleet.
    #[must_use]
    pub fn of(fleet: &Fleet) -> Self {
        let (mut largest_gpu, mut largest_node) = (0, 0);
        for node in &fleet.nodes {
            let mut all: u64 = 0;
            for memory in node.gpus.iter().flatten().filter_map(|gpu| gpu.memory) {
                largest_gpu = memory.0.max(largest_gpu);
                all = all.saturating_add(memory.0);
            }
            largest_node = all.max(largest_node);
        }
        let cores = fleet.nodes.iter().filter_map(|node| node.cpu);
        let largest_cpu = cores.max().unwrap_or_default().0;
        Self {
            gpu_thousandth: real_of(largest_gpu.max(1)) / 1_000.0,
            node_gpus: real_of(largest_node.max(1)),
            node_cpu: real_of(largest_cpu.max(1)),
        }
    }
}

/// The GPUs with least room that suffices, lowest first among equals; for whole GPUs the lowest.
pub fn tightest(room: &Room, demand: &Demand) -> GpuSet {
    if !demand.is_share() {
        return GpuSet::first(room.able(demand), demand.gpus);
    }
    let free = |place: &usize| {
        room.slots()
            .get(*place)
            .map_or(i64::MAX, super::room::Slot::free)
    };
    GpuSet::first(room.able(demand).min_by_key(free).into_iter(), 1)
}

/// The nearest real number. Exact below 2^53, and no ranking hangs on the last bits of more.
#[expect(
    clippy::cast_precision_loss,
    reason = "a share of a whole, not an account"
)]
pub(super) fn real(amount: i64) -> f64 {
    amount as f64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a share of a whole, not an account"
)]
fn real_of(amount: u64) -> f64 {
    amount as f64
}

/// The whole number below.
#[expect(
    clippy::cast_possible_truncation,
    reason = "scores are small; a cast saturates"
)]
pub(super) fn floor(number: f64) -> i64 {
    number.floor() as i64
}

#[cfg(test)]
mod tests;
