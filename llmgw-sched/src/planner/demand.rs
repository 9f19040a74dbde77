//! What one replica, or one of its shards, takes from a node, in numbers that are quick to compare.

use std::collections::BTreeMap;

use llmgw_core::{
    cluster::catalog::Profile,
    units::{Bytes, Cores},
};

use crate::fleet::Fleet;

/// What one replica, or one of its shards, takes from its node.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Demand {
    /// Processor, in thousandths of a core.
    pub cpu: i64,
    /// Main memory, in bytes.
    pub memory: i64,
    /// How many GPUs.
    pub gpus: usize,
    /// Bytes on each of them; absent: whole GPUs.
    pub per_gpu: Option<i64>,
    /// Classes of GPU that will do; any when empty.
    pub classes: Vec<ClassId>,
}

/// A class of GPU, by its number in [`Classes`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ClassId(u32);

/// The names of classes, numbered.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    by_name: BTreeMap<String, u32>,
    /// The name that was asked for last: the GPUs of a node are mostly of one class.
    last: Option<(String, u32)>,
}

// === impl Demand ===

impl Demand {
    /// What a profile asks of each of its nodes.
    #[must_use]
    pub fn of(profile: &Profile, classes: &mut Classes) -> Self {
        let needs = &profile.needs;
        let gpus = needs.gpus.as_ref();
        let mut allowed: Vec<ClassId> = gpus
            .map(|gpus| gpus.classes.iter().map(|name| classes.id(name)).collect())
            .unwrap_or_default();
        allowed.sort_unstable();
        Self {
            cpu: thousandths(needs.cpu.unwrap_or(Cores::ZERO)),
            memory: bytes(profile.memory),
            gpus: gpus.map_or(0, |gpus| usize::try_from(gpus.count).unwrap_or(usize::MAX)),
            per_gpu: gpus.and_then(|gpus| gpus.memory).map(bytes),
            classes: allowed,
        }
    }

    /// Whether a GPU of this class will do.
    #[must_use]
    pub fn allows(&self, class: Option<ClassId>) -> bool {
        self.classes.is_empty() || class.is_some_and(|class| self.classes.contains(&class))
    }

    /// Whether it takes a part of a single GPU.
    #[must_use]
    pub fn is_share(&self) -> bool {
        self.gpus == 1 && self.per_gpu.is_some()
    }
}

// === impl Classes ===

impl Classes {
    /// The classes of a fleet.
    #[must_use]
    pub fn of(fleet: &Fleet) -> Self {
        let mut classes = Self::default();
        let gpus = fleet
            .nodes
            .iter()
            .flat_map(|node| node.gpus.iter().flatten());
        for class in gpus.filter_map(|gpu| gpu.class.as_ref()) {
            classes.id(class);
        }
        classes
    }

    /// The number of a class; a new one for a new name. Case makes no difference.
    pub fn id(&mut self, name: &str) -> ClassId {
        if let Some((last, number)) = &self.last
            && last == name
        {
            return ClassId(*number);
        }
        let next = u32::try_from(self.by_name.len()).unwrap_or(u32::MAX);
        let lower = name.to_ascii_lowercase();
        let number = *self.by_name.entry(lower).or_insert(next);
        self.last = Some((name.to_owned(), number));
        ClassId(number)
    }
}

/// Bytes as a signed number, so that an account can go below nothing.
///
/// More than a PiB is counted as that: a fleet comes from outside, and sums over its GPUs must stay within bounds.
pub(crate) fn bytes(amount: Bytes) -> i64 {
    bounded(amount.0, 1 << 50)
}

/// Thousandths of a core; more than a billion cores are counted as that.
pub(crate) fn thousandths(amount: Cores) -> i64 {
    bounded(amount.0, 1 << 40)
}

fn bounded(amount: u64, most: i64) -> i64 {
    i64::try_from(amount).map_or(most, |amount| amount.min(most))
}
