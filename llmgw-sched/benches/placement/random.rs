//! A small seeded generator, and the policy that places by it.

use std::cell::Cell;

use llmgw_sched::planner::{
    demand::Demand,
    policy::{Policy, Worth},
    room::{GpuSet, Room},
};

/// SplitMix64 (Steele, Lea, Flood; OOPSLA 2014).
#[derive(Debug)]
pub(crate) struct Draws(Cell<u64>);

impl Draws {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    pub(crate) fn next(&self) -> u64 {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of the numbers below `bound`, each as likely as the others.
    pub(crate) fn below(&self, bound: usize) -> usize {
        let bound = u128::try_from(bound).unwrap_or(u128::MAX);
        let scaled = (u128::from(self.next()) * bound) >> 64;
        usize::try_from(scaled).unwrap_or(0)
    }

    /// Any order, each as likely as the others.
    pub(crate) fn shuffle<T>(&self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// Any node that fits, and any of its GPUs.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) Draws);

impl Policy for Random {
    fn worth(&self, _: &Room, _: &Demand) -> Worth {
        Worth {
            main: i64::try_from(self.0.next() >> 1).unwrap_or(i64::MAX),
            ..Worth::default()
        }
    }

    fn gpus(&self, room: &Room, demand: &Demand) -> GpuSet {
        if !demand.is_share() {
            return GpuSet::first(room.able(demand), demand.gpus);
        }
        let able: Vec<usize> = room.able(demand).collect();
        let chosen = able.get(self.0.below(able.len())).copied();
        GpuSet::first(chosen.into_iter(), 1)
    }

    fn is_pure(&self) -> bool {
        false
    }
}
