//! Our own policy: fragmentation, with every typical demand weighed by how scarce the room for it has become.
//!
//! The published gradient counts a loss of room by how common the demand is. But room that many nodes still have
//! is cheap to lose, and room that few have is dear: of GPUs of a rare class, or with eight free on one node. So
//! the share of a demand is divided by the part of all free GPU memory that still suits it. What is equally good
//! by that (the same coarse steps as the published policy) is decided by how many typical demands a node can
//! still take afterwards, cores and all.
//!
//! Nothing in it is tuned to a workload. Over the five public ones (`cargo xtask bench placement`) it gives out 93.6
//! and 94.0 percent of all GPU memory at 100 and 130 percent of demand, the published gradient 92.0 and 93.5; it is
//! ahead on each of the five, most where few nodes suit a demand.

use super::{
    Policy, Scale, Supply, Worth, floor,
    gradient::{candidates, coarse},
    real,
};
use crate::planner::{
    demand::Demand,
    mix::{Mix, Typical, usable},
    room::{GpuSet, Room},
};

/// Prefers the node that costs least of what is wanted and scarce.
#[derive(Debug)]
pub(super) struct Scarcity {
    mix: Mix,
    scale: Scale,
    /// What a thousandth of a GPU that suits a demand is worth, for each of the mix.
    prices: Vec<f64>,
}

impl Scarcity {
    pub(super) fn new(mut mix: Mix, scale: Scale) -> Self {
        mix.typical.retain(|typical| typical.demand.gpus > 0);
        let prices = mix.typical.iter().map(|typical| typical.share).collect();
        Self { mix, scale, prices }
    }

    fn best(&self, room: &Room, demand: &Demand) -> (i64, i64, GpuSet) {
        let before = self.useful(room);
        let mut best: Option<(i64, i64, GpuSet)> = None;
        for gpus in candidates(room, demand) {
            let mut after = room.clone();
            after.take(demand, gpus);
            // What the demand itself takes is no loss.
            let taken = real(room.gpu_free() - after.gpu_free()) / self.scale.gpu_thousandth;
            let after = self.useful(&after);
            let main = coarse(after.suits - before.suits + taken + NOISE);
            let fine = floor((after.takes - before.takes) * FINE);
            if best.is_none_or(|(known, _, _)| main > known) {
                best = Some((main, fine, gpus));
            }
        }
        best.unwrap_or_default()
    }

    fn useful(&self, room: &Room) -> Useful {
        let mut useful = Useful::default();
        for (Typical { demand, .. }, price) in self.mix.typical.iter().zip(&self.prices) {
            let suits = self.suits(room, demand);
            if suits > 0.0 {
                useful.suits += price * suits;
                useful.takes += price * self.takes(room, demand);
            }
        }
        useful
    }

    /// Thousandths of the largest GPU that are free on a node and suit a demand.
    fn suits(&self, room: &Room, demand: &Demand) -> f64 {
        if demand.cpu > 0 && room.cpu.is_none_or(|cpu| cpu < demand.cpu) {
            return 0.0;
        }
        let (able, usable, _) = usable(room, demand);
        if able < demand.gpus {
            return 0.0;
        }
        real(usable) / self.scale.gpu_thousandth
    }

    /// The same, as far as whole demands can have it.
    fn takes(&self, room: &Room, demand: &Demand) -> f64 {
        let by_cpu = match room.cpu {
            Some(cpu) if demand.cpu > 0 => cpu / demand.cpu,
            _ => i64::MAX,
        };
        let mut parts = 0;
        let mut part = 0;
        for slot in room.slots().iter().filter(|slot| slot.can_take(demand)) {
            part = slot.part(demand);
            parts += slot.free().checked_div(part).unwrap_or(1);
        }
        let gpus = i64::try_from(demand.gpus).unwrap_or(i64::MAX);
        let count = by_cpu.min(parts / gpus.max(1));
        real(count.saturating_mul(part).saturating_mul(gpus)) / self.scale.gpu_thousandth
    }
}

impl Policy for Scarcity {
    fn worth(&self, room: &Room, demand: &Demand) -> Worth {
        let (main, fine, _) = self.best(room, demand);
        let left = room.memory.unwrap_or(0).saturating_sub(demand.memory);
        Worth {
            main,
            fine,
            tight: left.saturating_neg(),
        }
    }

    fn gpus(&self, room: &Room, demand: &Demand) -> GpuSet {
        self.best(room, demand).2
    }

    fn watch(&mut self, left: Supply<'_>) -> bool {
        let mut free = 0.0;
        let mut suitable = vec![0.0; self.prices.len()];
        for (room, nodes) in left {
            let nodes = f64::from(nodes);
            free += nodes * real(room.gpu_free()) / self.scale.gpu_thousandth;
            for (sum, typical) in suitable.iter_mut().zip(&self.mix.typical) {
                *sum += nodes * self.suits(room, &typical.demand);
            }
        }
        // A GPU more on both sides: what has run out is dear, not priceless.
        let mut prices: Vec<f64> = self
            .mix
            .typical
            .iter()
            .zip(&suitable)
            .map(|(typical, suitable)| typical.share * (free + 1_000.0) / (suitable + 1_000.0))
            .collect();
        // As a whole they count as much as the shares do, so that the coarse steps keep their size.
        let shares: f64 = self.mix.typical.iter().map(|typical| typical.share).sum();
        let sum: f64 = prices.iter().sum();
        if sum > 0.0 {
            prices.iter_mut().for_each(|price| *price *= shares / sum);
        }
        let changed = prices != self.prices;
        self.prices = prices;
        changed
    }
}

/// What a node has for the typical demand, in thousandths of the largest GPU, at its price.
#[derive(Clone, Copy, Debug, Default)]
struct Useful {
    /// Free memory that suits.
    suits: f64,
    /// Free memory that whole demands can have.
    takes: f64,
}

/// In thousandths of a GPU: keeps rounding from turning "no change" into "worse".
const NOISE: f64 = 1e-6;
/// Steps of the finer measure in a thousandth of a GPU.
const FINE: f64 = 1_024.0;
