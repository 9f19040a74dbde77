//! What is typically asked of a fleet, and how much of a node's free GPU memory is useless for it.

use super::{
    demand::Demand,
    policy::{Scale, real},
    room::Room,
};

/// What is typically asked of a fleet: demands with their shares.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mix {
    /// The demands, the most common first; shares add up to 1.
    pub typical: Vec<Typical>,
}

/// One demand of a [`Mix`].
#[derive(Clone, Debug, PartialEq)]
pub struct Typical {
    /// What is asked for. Main memory plays no part.
    pub demand: Demand,
    /// How much of all that is asked for is this.
    pub share: f64,
}

// === impl Mix ===

impl Mix {
    /// The most common of these demands: as many as make up 95 of 100.
    ///
    /// Equally common ones are taken in the order in which they come.
    #[must_use]
    pub fn of(mut counted: Vec<(Demand, u64)>) -> Self {
        counted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let all: u64 = counted.iter().map(|(_, count)| count).sum();
        let mut taken: u64 = 0;
        counted.retain(|(_, count)| {
            let wanted = u128::from(taken) * 100 < u128::from(all) * 95;
            if wanted {
                taken += count;
            }
            wanted
        });
        let total = real(i64::try_from(taken).unwrap_or(i64::MAX));
        let typical = counted.into_iter().map(|(demand, count)| Typical {
            demand,
            share: real(i64::try_from(count).unwrap_or(i64::MAX)) / total,
        });
        Self {
            typical: typical.collect(),
        }
    }

    /// Thousandths of the largest GPU that are free on a node and useless for the typical demand.
    ///
    /// Sums by cause, then the causes: nodes with the same causes differ by exactly nothing.
    #[must_use]
    pub fn fragmentation(&self, room: &Room, scale: Scale) -> f64 {
        let free = real(room.gpu_free()) / scale.gpu_thousandth;
        if free <= 0.0 {
            return 0.0;
        }
        let [
            mut lacks_both,
            mut lacks_gpu,
            mut lacks_cpu,
            mut wants_none,
            mut wrong_class,
        ] = [0.0; 5];
        let mut short_of_cpu_without_gpu = 0.0;
        for Typical { demand, share } in &self.typical {
            let has_cpu = demand.cpu == 0 || room.cpu.is_some_and(|cpu| cpu >= demand.cpu);
            let useless = share * free;
            if demand.gpus == 0 {
                if has_cpu {
                    wants_none += useless;
                } else {
                    short_of_cpu_without_gpu += useless;
                }
                continue;
            }
            let (able, usable, class_there) = usable(room, demand);
            if !class_there {
                wrong_class += useless;
            } else if able < demand.gpus {
                if has_cpu {
                    lacks_gpu += useless;
                } else {
                    lacks_both += useless;
                }
            } else if has_cpu {
                let rest = room.gpu_free().saturating_sub(usable);
                lacks_gpu += share * (real(rest) / scale.gpu_thousandth);
            } else {
                lacks_cpu += useless;
            }
        }
        lacks_both + lacks_gpu + lacks_cpu + wants_none + short_of_cpu_without_gpu + wrong_class
    }
}

/// Of a room, for a demand: GPUs that can take a part, the bytes free on them, whether any is of a right class.
pub(super) fn usable(room: &Room, demand: &Demand) -> (usize, i64, bool) {
    let mut found = (0, 0, false);
    for slot in room.slots() {
        found.2 |= demand.allows(slot.class);
        if slot.can_take(demand) {
            found.0 += 1;
            found.1 += slot.free();
        }
    }
    found
}
