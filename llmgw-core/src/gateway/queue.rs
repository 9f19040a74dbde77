//! Calls that wait for a model on demand: bounded, and fair between tenants: organisations, and keys that
//! belong to none.
//!
//! There are so many places for each model, and so many in all. When they are taken, a newcomer gets the place of the
//! youngest call of the tenant that has the most, if that leaves it with at least as many as the newcomer's own; else it is
//! turned away. So one tenant can fill the queue, and can keep nobody out. When a replica serves, all calls for the model
//! go on, in rounds: one of each tenant, then the next of each.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use crate::{cluster::tenancy::Party, id::ModelName, route::ModelRoute};

/// The calls that wait.
#[derive(Debug)]
pub(super) struct Queue {
    lines: Mutex<Lines>,
}

/// How many calls wait for models on demand, and how long: as a gateway was configured, until it is told otherwise. Cheap to
/// clone.
#[derive(Clone, Debug)]
pub struct WaitingBounds(Arc<Queue>);

/// How many calls may wait, and how long.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bounds {
    pub(super) per_model: usize,
    pub(super) all: usize,
    pub(super) patience: Duration,
}

/// What a call that waits is told.
#[derive(Clone, Debug)]
pub(super) enum Turn {
    /// A replica serves.
    Served(Arc<ModelRoute>),
    /// Another tenant has fewer calls waiting, and there was no other place.
    Displaced,
}

/// A place in the queue, given up when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    queue: Arc<Queue>,
    model: ModelName,
    number: u64,
    /// What the call is told, once.
    pub(super) turn: oneshot::Receiver<Turn>,
}

/// There is no place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Full {
    /// For this model; so many wait.
    Model(usize),
    /// In all; so many wait.
    All(usize),
}

#[derive(Debug, Default)]
struct Lines {
    bounds: Bounds,
    /// By model, then by number: in the order in which they came.
    models: HashMap<ModelName, BTreeMap<u64, Waiter>>,
    count: usize,
    next: u64,
}

#[derive(Debug)]
struct Waiter {
    tenant: Party,
    turn: oneshot::Sender<Turn>,
}

// === impl WaitingBounds ===

impl WaitingBounds {
    pub(super) fn of(queue: &Arc<Queue>) -> Self {
        Self(Arc::clone(queue))
    }

    /// Lets so many calls wait for each model, so many in all, and each for so long, from now on. Those that wait keep their
    /// places.
    pub fn set(&self, per_model: usize, all: usize, patience: Duration) {
        self.0.lock().bounds = Bounds {
            per_model,
            all,
            patience,
        };
    }
}

// === impl Queue ===

impl Queue {
    pub(super) fn new(bounds: Bounds) -> Self {
        let lines = Lines {
            bounds,
            ..Lines::default()
        };
        Self {
            lines: Mutex::new(lines),
        }
    }

    /// How long a call may wait that begins to wait now.
    pub(super) fn patience(&self) -> Duration {
        self.lock().bounds.patience
    }

    /// Takes a place.
    pub(super) fn enter(
        self: &Arc<Self>,
        model: &ModelName,
        tenant: &Party,
    ) -> Result<Place, Full> {
        let mut lines = self.lock();
        let waiting = lines.models.get(model).map_or(0, BTreeMap::len);
        if waiting >= lines.bounds.per_model && !lines.displace(Some(model), tenant) {
            return Err(Full::Model(waiting));
        }
        if lines.count >= lines.bounds.all && !lines.displace(None, tenant) {
            return Err(Full::All(lines.count));
        }
        let number = lines.next;
        lines.next += 1;
        lines.count += 1;
        let (turn, told) = oneshot::channel();
        let line = lines.models.entry(model.clone()).or_default();
        let tenant = tenant.clone();
        line.insert(number, Waiter { tenant, turn });
        Ok(Place {
            queue: Arc::clone(self),
            model: model.clone(),
            number,
            turn: told,
        })
    }

    /// Lets all calls for a model that is served now go on.
    pub(super) fn release(&self, route: &Arc<ModelRoute>) {
        let mut lines = self.lock();
        let Some(line) = lines.models.remove(&route.name) else {
            return;
        };
        lines.count -= line.len();
        for (_, waiter) in in_rounds(line) {
            // A client that has left needs no answer.
            drop(waiter.turn.send(Turn::Served(Arc::clone(route))));
        }
    }

    /// Calls that wait for a model.
    pub(super) fn waiting(&self, model: &ModelName) -> usize {
        self.lock().models.get(model).map_or(0, BTreeMap::len)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Lines> {
        // Each change is whole before anything could panic.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One call of each tenant, then the next of each, each time in the order in which they came.
fn in_rounds(line: BTreeMap<u64, Waiter>) -> Vec<(u64, Waiter)> {
    let mut rounds: HashMap<Party, usize> = HashMap::new();
    let mut numbered: Vec<(usize, u64, Waiter)> = line
        .into_iter()
        .map(|(number, waiter)| {
            let round = rounds.entry(waiter.tenant.clone()).or_insert(0);
            *round += 1;
            (*round, number, waiter)
        })
        .collect();
    numbered.sort_by_key(|(round, number, _)| (*round, *number));
    let waiters = numbered.into_iter();
    waiters
        .map(|(_, number, waiter)| (number, waiter))
        .collect()
}

// === impl Lines ===

impl Lines {
    /// Frees a place for a call of `tenant` in this line, or in any: the youngest of the one that has the most.
    /// Says whether there was one that has more to give than `tenant` has.
    fn displace(&mut self, model: Option<&ModelName>, tenant: &Party) -> bool {
        let mut counts: HashMap<Party, (usize, u64, ModelName)> = HashMap::new();
        let lines = self.models.iter();
        for (name, line) in lines.filter(|(name, _)| model.is_none_or(|model| *model == **name)) {
            for (number, waiter) in line {
                let (count, youngest, of) = counts
                    .entry(waiter.tenant.clone())
                    .or_insert_with(|| (0, *number, name.clone()));
                *count += 1;
                if *number >= *youngest {
                    *youngest = *number;
                    of.clone_from(name);
                }
            }
        }
        let own = counts.get(tenant).map_or(0, |(count, ..)| *count);
        // Of two that have as many, the one whose last call came last.
        let most = counts
            .into_values()
            .max_by_key(|(count, youngest, _)| (*count, *youngest));
        let Some((_, number, of)) = most.filter(|(count, ..)| *count >= own + 2) else {
            return false;
        };
        if let Some(waiter) = self.remove(&of, number) {
            drop(waiter.turn.send(Turn::Displaced));
        }
        true
    }

    fn remove(&mut self, model: &ModelName, number: u64) -> Option<Waiter> {
        let line = self.models.get_mut(model)?;
        let waiter = line.remove(&number)?;
        self.count -= 1;
        if line.is_empty() {
            self.models.remove(model);
        }
        Some(waiter)
    }
}

// === impl Place ===

impl Drop for Place {
    fn drop(&mut self) {
        self.queue.lock().remove(&self.model, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Timestamp,
        id::KeyId,
        route::{Progress, Waiting},
    };

    fn queue(per_model: usize, all: usize) -> Queue {
        Queue::new(Bounds {
            per_model,
            all,
            patience: Duration::ZERO,
        })
    }

    fn route(name: &str) -> Arc<ModelRoute> {
        Arc::new(ModelRoute {
            name: name.parse().unwrap(),
            aliases: Vec::new(),
            created_at: Timestamp(0),
            endpoints: Vec::new(),
            on_demand: true,
            waiting: Waiting::Loading(String::new()),
            progress: Progress::default(),
            fallbacks: Vec::new(),
        })
    }

    fn someone() -> Party {
        Party::Key(KeyId::generate())
    }

    fn enter(queue: &Arc<Queue>, model: &str, tenant: &Party) -> Result<Place, Full> {
        queue.enter(&model.parse().unwrap(), tenant)
    }

    #[test]
    fn a_full_queue_turns_calls_away_and_a_place_that_is_left_is_free() {
        let queue = Arc::new(queue(2, 3));
        let key = &someone();
        let one = enter(&queue, "a", key).unwrap();
        let _two = enter(&queue, "a", key).unwrap();
        assert_eq!(enter(&queue, "a", key).unwrap_err(), Full::Model(2));
        let _three = enter(&queue, "b", key).unwrap();
        assert_eq!(enter(&queue, "b", key).unwrap_err(), Full::All(3));
        drop(one);
        let again = enter(&queue, "a", key).unwrap();
        assert_eq!(queue.waiting(&"a".parse().unwrap()), 2);
        queue.release(&route("a"));
        assert_eq!(queue.waiting(&"a".parse().unwrap()), 0);
        drop(again);
        assert_eq!(queue.lock().count, 1);
    }

    #[test]
    fn a_key_that_fills_the_queue_keeps_no_other_out() {
        let queue = Arc::new(queue(4, 100));
        let (greedy, modest, third) = (&someone(), &someone(), &someone());
        let mut greedy: Vec<Place> = (0..4)
            .map(|_| enter(&queue, "a", greedy).unwrap())
            .collect();
        let _modest = [(); 2].map(|()| enter(&queue, "a", modest).unwrap());
        // The youngest went first, and each has two now: nobody has more to give.
        let displaced: Vec<bool> = greedy
            .iter_mut()
            .map(|place| matches!(place.turn.try_recv(), Ok(Turn::Displaced)))
            .collect();
        assert_eq!(displaced, [false, false, true, true]);
        assert!(enter(&queue, "a", modest).is_err());
        assert!(enter(&queue, "a", third).is_ok());
    }

    #[test]
    fn calls_go_on_in_rounds_one_of_each_key() {
        let queue = Arc::new(queue(10, 10));
        let (a, b) = (&someone(), &someone());
        let order = [a, a, a, b];
        let mut places = order.map(|key| enter(&queue, "a", key).unwrap());
        let line = queue.lock().models.remove(&route("a").name).unwrap();
        let numbers: Vec<u64> = in_rounds(line)
            .into_iter()
            .map(|(number, waiter)| {
                drop(waiter.turn.send(Turn::Served(route("a"))));
                number
            })
            .collect();
        assert_eq!(numbers, [0, 3, 1, 2]);
        for place in &mut places {
            assert!(matches!(place.turn.try_recv(), Ok(Turn::Served(_))));
        }
    }

    #[test]
    fn other_bounds_hold_for_those_who_come_and_end_nobody() {
        let queue = Arc::new(queue(1, 1));
        let model: ModelName = "a".parse().unwrap();
        let first = queue.enter(&model, &Party::Key(KeyId::generate()));
        assert!(first.is_ok());
        let own = Party::Key(KeyId::generate());
        let bounds = WaitingBounds::of(&queue);
        bounds.set(2, 2, Duration::from_secs(7));
        let second = queue.enter(&model, &own);
        assert!(second.is_ok());
        bounds.set(1, 1, Duration::from_secs(7));
        assert_eq!(queue.waiting(&model), 2);
        assert_eq!(queue.enter(&model, &own).unwrap_err(), Full::Model(2));
        assert_eq!(queue.patience(), Duration::from_secs(7));
    }
}
