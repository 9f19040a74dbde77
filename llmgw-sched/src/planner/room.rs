//! What a node has left: the one place where resources are taken and given back.
//!
//! Amounts are signed: a machine that shrank was promised more than it has, and giving back has to count from
//! there. Unknown is absent, and is never enough.

use llmgw_core::units::Bytes;

use super::demand::{ClassId, Classes, Demand, bytes, thousandths};
use crate::fleet::{FleetGpu, FleetNode, FleetReplica};

/// What a node has left.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Room {
    /// Thousandths of a core; absent when not known.
    pub cpu: Option<i64>,
    /// Bytes of main memory; absent when not known.
    pub memory: Option<i64>,
    /// GPUs in the order of their numbers; absent when not known.
    pub gpus: Option<Vec<Slot>>,
    /// Which kinds of GPU demand run there: bit 0 for a share of one, bit n for n GPUs (15 for more).
    pub kinds: u16,
}

/// One GPU of a [`Room`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Slot {
    /// Its class, where known.
    pub class: Option<ClassId>,
    /// All of its memory, in bytes, where known.
    pub size: Option<i64>,
    /// Bytes that were promised.
    pub promised: i64,
    /// How many replicas hold a part of it.
    pub holders: u16,
    /// Whether it works.
    pub works: bool,
}

/// A set of GPUs, by their places in [`Room::gpus`].
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct GpuSet(u64);

// === impl Room ===

impl Room {
    /// An empty node's room.
    #[must_use]
    pub fn of(node: &FleetNode, classes: &mut Classes) -> Self {
        let slot = |gpu: &FleetGpu, classes: &mut Classes| Slot {
            class: gpu.class.as_ref().map(|class| classes.id(class)),
            size: gpu.memory.map(bytes),
            promised: 0,
            // Another program holds a part, as a replica would that never ends.
            holders: u16::from(gpu.in_use),
            works: gpu.fault.is_none(),
        };
        Self {
            cpu: node.cpu.map(thousandths),
            memory: node.memory_allocatable.map(bytes),
            gpus: node
                .gpus
                .as_ref()
                .map(|gpus| gpus.iter().map(|gpu| slot(gpu, classes)).collect()),
            kinds: 0,
        }
    }

    /// Takes what a demand asks for, on these GPUs.
    pub fn take(&mut self, demand: &Demand, gpus: GpuSet) {
        self.change(demand, gpus, Direction::Take);
    }

    /// Gives it back.
    pub fn give(&mut self, demand: &Demand, gpus: GpuSet) {
        self.change(demand, gpus, Direction::Give);
    }

    /// Takes what a running replica was promised; `places` are those of its GPUs.
    pub(crate) fn hold(&mut self, replica: &FleetReplica, places: &[usize], direction: Direction) {
        let sign = direction.sign();
        move_by(&mut self.cpu, sign.saturating_mul(thousandths(replica.cpu)));
        move_by(&mut self.memory, sign.saturating_mul(bytes(replica.memory)));
        let slots = self.gpus.as_deref_mut().unwrap_or_default();
        for (share, place) in replica.gpus.iter().zip(places) {
            if let Some(slot) = slots.get_mut(*place) {
                slot.change(share.memory.map(bytes), direction);
            }
        }
    }

    fn change(&mut self, demand: &Demand, gpus: GpuSet, direction: Direction) {
        let sign = direction.sign();
        move_by(&mut self.cpu, sign.saturating_mul(demand.cpu));
        move_by(&mut self.memory, sign.saturating_mul(demand.memory));
        let slots = self.gpus.as_deref_mut().unwrap_or_default();
        for place in gpus.places() {
            if let Some(slot) = slots.get_mut(place) {
                slot.change(demand.per_gpu, direction);
            }
        }
    }

    /// Whether a demand fits.
    #[must_use]
    pub fn fits(&self, demand: &Demand) -> bool {
        enough(self.cpu, demand.cpu)
            && enough(self.memory, demand.memory)
            && (demand.gpus == 0 || self.able(demand).count() >= demand.gpus)
    }

    /// The places of the GPUs that have room for one part of a demand, lowest first.
    pub fn able<'r>(&'r self, demand: &'r Demand) -> impl Iterator<Item = usize> + 'r {
        self.slots()
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.can_take(demand))
            .map(|(place, _)| place)
    }

    /// The GPUs; none when they are not known.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        self.gpus.as_deref().unwrap_or_default()
    }

    /// Bytes that are free on all GPUs together.
    #[must_use]
    pub fn gpu_free(&self) -> i64 {
        self.slots()
            .iter()
            .map(Slot::free)
            .fold(0, i64::saturating_add)
    }
}

// === impl Slot ===

impl Slot {
    /// Bytes that are free; none on a GPU that is broken or over-promised.
    #[must_use]
    pub fn free(&self) -> i64 {
        match self.size {
            Some(size) if self.works => size.saturating_sub(self.promised).max(0),
            _ => 0,
        }
    }

    /// Whether nobody holds any of it.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        self.holders == 0
    }

    /// Whether it has room for one part of a demand.
    #[must_use]
    pub fn can_take(&self, demand: &Demand) -> bool {
        self.works
            && demand.allows(self.class)
            && match demand.per_gpu {
                None => self.is_untouched(),
                Some(bytes) => self.size.is_some() && self.free() >= bytes,
            }
    }

    /// Bytes that one part of a demand takes of it.
    #[must_use]
    pub fn part(&self, demand: &Demand) -> i64 {
        demand.per_gpu.or(self.size).unwrap_or(0)
    }

    fn change(&mut self, part: Option<i64>, direction: Direction) {
        let part = part.or(self.size).unwrap_or(0);
        let by = direction.sign().saturating_mul(part);
        self.promised = self.promised.saturating_add(by);
        self.holders = match direction {
            Direction::Take => self.holders.saturating_add(1),
            Direction::Give => self.holders.saturating_sub(1),
        };
    }
}

// === impl GpuSet ===

impl GpuSet {
    /// The lowest so many of these places.
    #[must_use]
    pub fn first(places: impl Iterator<Item = usize>, count: usize) -> Self {
        places.take(count).fold(Self::default(), Self::with)
    }

    /// One more.
    #[must_use]
    pub fn with(self, place: usize) -> Self {
        let bit = u32::try_from(place)
            .ok()
            .and_then(|place| 1u64.checked_shl(place));
        Self(self.0 | bit.unwrap_or(0))
    }

    /// The places, lowest first.
    pub fn places(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |place| self.0 >> place & 1 == 1)
    }
}

/// Which way an account moves.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Direction {
    Take,
    Give,
}

impl Direction {
    fn sign(self) -> i64 {
        match self {
            Self::Take => 1,
            Self::Give => -1,
        }
    }
}

/// What the account has after so much was taken (or, below nothing, given back).
fn move_by(account: &mut Option<i64>, taken: i64) {
    if let Some(left) = account {
        *left = left.saturating_sub(taken);
    }
}

/// Whether there is enough; what is not known suffices only for nothing.
fn enough(have: Option<i64>, need: i64) -> bool {
    need == 0 || have.is_some_and(|have| have >= need)
}

/// A signed account as an amount; below nothing is nothing.
pub(crate) fn amount(account: i64) -> Bytes {
    Bytes(u64::try_from(account).unwrap_or(0))
}
