//! The published policies that look at a node alone, and their opposite.

use super::{Policy, Scale, Worth, floor, real};
use crate::planner::{
    demand::Demand,
    room::{Room, Slot},
};

/// The tightest fit: half by cores, half by GPU memory.
#[derive(Debug)]
pub(super) struct BestFit(pub(super) Scale);

/// Prefers nodes whose remains, as a vector of cores and GPU memory, point least the way of the demand.
#[derive(Debug)]
pub(super) struct DotProduct(pub(super) Scale);

/// Prefers used GPUs with room, then free GPUs of used nodes, then unused nodes.
#[derive(Debug)]
pub(super) struct Packing;

/// Prefers nodes that run demands of the same kind: shares with shares, eights with eights.
#[derive(Debug)]
pub(super) struct Clustering(pub(super) Scale);

/// The loosest fit: the opposite of [`BestFit`].
#[derive(Debug)]
pub(super) struct Spread(pub(super) Scale);

// === impl BestFit, Spread ===

impl Policy for BestFit {
    fn worth(&self, room: &Room, demand: &Demand) -> Worth {
        main(floor(100.0 * (1.0 - left_over(room, demand, self.0))))
    }
}

impl Policy for Spread {
    fn worth(&self, room: &Room, demand: &Demand) -> Worth {
        Worth {
            main: floor(100.0 * left_over(room, demand, self.0)),
            fine: 0,
            tight: room.memory.unwrap_or(0).saturating_sub(demand.memory),
        }
    }
}

/// What is left of a node afterwards, as a part of the largest.
fn left_over(room: &Room, demand: &Demand, scale: Scale) -> f64 {
    let cpu = real(room.cpu.unwrap_or(0) - demand.cpu);
    let gpu = real(room.gpu_free() - taken(room, demand));
    0.5 * cpu / scale.node_cpu + 0.5 * gpu / scale.node_gpus
}

// === impl DotProduct ===

impl Policy for DotProduct {
    fn worth(&self, room: &Room, demand: &Demand) -> Worth {
        let Scale {
            node_cpu,
            node_gpus,
            ..
        } = self.0;
        let cpu = real(room.cpu.unwrap_or(0)) / node_cpu * (real(demand.cpu) / node_cpu);
        let gpu = real(room.gpu_free()) / node_gpus * (real(taken(room, demand)) / node_gpus);
        main(floor(100.0 * (1.0 - (cpu + gpu) / 2.0)))
    }
}

// === impl Packing ===

impl Policy for Packing {
    fn worth(&self, room: &Room, demand: &Demand) -> Worth {
        if demand.gpus == 0 {
            return main(0);
        }
        let slots = room.slots();
        let unused = slots.iter().filter(|slot| slot.is_untouched()).count();
        let unused = i64::try_from(unused).unwrap_or(i64::MAX);
        if slots.iter().all(Slot::is_untouched) {
            return main((33 - unused).max(unused));
        }
        let mut free: Vec<(i64, bool)> = room
            .able(demand)
            .filter_map(|place| slots.get(place))
            .map(|slot| (thousandths_free(slot), slot.is_untouched()))
            .collect();
        free.sort_unstable_by_key(|(free, _)| *free);
        free.truncate(demand.gpus);
        let fresh = free.iter().filter(|(_, untouched)| *untouched).count();
        if fresh > 0 {
            return main((50 - i64::try_from(fresh).unwrap_or(i64::MAX)).max(33));
        }
        let hundredths = free
            .iter()
            .map(|(free, _)| free / 10)
            .fold(0, i64::saturating_add);
        main((100 - hundredths / 10).max(50))
    }
}

fn thousandths_free(slot: &Slot) -> i64 {
    let size = i128::from(slot.size.unwrap_or(1).max(1));
    i64::try_from(i128::from(slot.free()) * 1_000 / size).unwrap_or(i64::MAX)
}

// === impl Clustering ===

impl Policy for Clustering {
    fn worth(&self, room: &Room, demand: &Demand) -> Worth {
        if demand.gpus == 0 {
            return main(0);
        }
        let largest = self.0.node_gpus;
        let base = floor(25.0 * (largest - real(room.gpu_free())) / largest);
        let bonus = if room.kinds == 0 {
            25
        } else if room.kinds & kind(demand) == 0 {
            0
        } else if room.kinds.count_ones() == 1 {
            75
        } else {
            50
        };
        main(base + bonus)
    }
}

/// The kind of a demand, as a bit of [`Room::kinds`]; none without GPUs.
pub(in crate::planner) fn kind(demand: &Demand) -> u16 {
    match demand.gpus {
        0 => 0,
        1 if demand.is_share() => 1,
        count => 1 << count.min(15),
    }
}

/// Bytes of GPU memory that a demand would take there.
fn taken(room: &Room, demand: &Demand) -> i64 {
    let places = super::tightest(room, demand).places();
    let slots = places.filter_map(|place| room.slots().get(place));
    slots
        .map(|slot| slot.part(demand))
        .fold(0, i64::saturating_add)
}

fn main(main: i64) -> Worth {
    Worth {
        main,
        ..Worth::default()
    }
}
