//! Fragmentation gradient descent (ATC'23): the node whose free GPU memory becomes least useless.

use super::{Policy, Scale, Worth, floor};
use crate::planner::{
    demand::Demand,
    mix::Mix,
    room::{GpuSet, Room},
};

/// Prefers the node where fragmentation grows least.
#[derive(Debug)]
pub(super) struct FragmentationGradient {
    mix: Mix,
    scale: Scale,
}

impl FragmentationGradient {
    pub(super) fn new(mix: Mix, scale: Scale) -> Self {
        Self { mix, scale }
    }

    fn best(&self, room: &Room, demand: &Demand) -> (i64, GpuSet) {
        let before = self.mix.fragmentation(room, self.scale);
        let gradient = |gpus: GpuSet| {
            let mut after = room.clone();
            after.take(demand, gpus);
            coarse(before - self.mix.fragmentation(&after, self.scale))
        };
        // The first of the best: a later one has to be better.
        let mut best: Option<(i64, GpuSet)> = None;
        for gpus in candidates(room, demand) {
            let score = gradient(gpus);
            if best.is_none_or(|(known, _)| score > known) {
                best = Some((score, gpus));
            }
        }
        best.unwrap_or_default()
    }
}

impl Policy for FragmentationGradient {
    fn worth(&self, room: &Room, demand: &Demand) -> Worth {
        Worth {
            main: self.best(room, demand).0,
            ..Worth::default()
        }
    }

    fn gpus(&self, room: &Room, demand: &Demand) -> GpuSet {
        self.best(room, demand).1
    }
}

/// The sets of GPUs that are worth a trial: each single GPU that differs, or the lowest that are whole.
pub(super) fn candidates(room: &Room, demand: &Demand) -> Vec<GpuSet> {
    if !demand.is_share() {
        return vec![GpuSet::first(room.able(demand), demand.gpus)];
    }
    let mut seen = Vec::new();
    let mut candidates = Vec::new();
    for place in room.able(demand) {
        let Some(slot) = room.slots().get(place) else {
            continue;
        };
        if !seen.contains(&slot) {
            seen.push(slot);
            candidates.push(GpuSet::default().with(place));
        }
    }
    candidates
}

/// A difference as a whole number from 0 to 100, 50 for none; steps of some 40 thousandths of a GPU.
///
/// The coarseness is part of the published policy: in raw differences it places worse by several points.
pub(super) fn coarse(less: f64) -> i64 {
    floor(100.0 / (1.0 + (-less / 1_000.0).exp()))
}
