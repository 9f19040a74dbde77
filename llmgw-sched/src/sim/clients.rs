//! Calls, and the gateway that gives them to replicas.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use llmgw_core::id::{ModelName, ReplicaId};

use super::world::{Due, World};

/// What the gateway counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Clients {
    answering: BTreeMap<ReplicaId, BTreeSet<u64>>,
    given: BTreeMap<ReplicaId, u64>,
    waiting: BTreeMap<ModelName, BTreeSet<u64>>,
    /// When each replica was last at work.
    pub(super) used_at: BTreeMap<ReplicaId, Duration>,
}

impl Clients {
    pub(super) fn outstanding(&self, replica: ReplicaId) -> u64 {
        let answering = self.answering.get(&replica);
        answering.map_or(0, |calls| u64::try_from(calls.len()).unwrap_or(0))
    }

    pub(super) fn given(&self, replica: ReplicaId) -> u64 {
        self.given.get(&replica).copied().unwrap_or(0)
    }

    pub(super) fn waiting(&self, model: &ModelName) -> u64 {
        let waiting = self.waiting.get(model);
        waiting.map_or(0, |calls| u64::try_from(calls.len()).unwrap_or(0))
    }

    /// A call waits no longer.
    pub(super) fn give_up(&mut self, model: &ModelName, number: u64) {
        if let Some(waiting) = self.waiting.get_mut(model) {
            waiting.remove(&number);
        }
    }

    /// A replica is gone, with what it was answering.
    pub(super) fn forget(&mut self, replica: ReplicaId) {
        self.answering.remove(&replica);
    }
}

impl World {
    pub(super) fn call(&mut self) {
        if !self.weather.bad {
            return;
        }
        let pause = self.between(self.weather.between_calls);
        self.after(pause, Due::Call);
        let models: Vec<ModelName> = self.store.models.keys().cloned().collect();
        let at = self.random.below(u64::try_from(models.len()).unwrap_or(0));
        let model = usize::try_from(at).ok().and_then(|at| models.get(at));
        let Some(model) = model.cloned() else {
            return;
        };
        self.counts.calls += 1;
        // Now and then many come at once.
        let burst = if self.random.happens(50) { 6 } else { 1 };
        for _ in 0..burst {
            if !self.serve(&model) {
                self.wait(&model);
            }
        }
    }

    fn wait(&mut self, model: &ModelName) {
        self.numbers += 1;
        let number = self.numbers;
        let waiting = self.clients.waiting.entry(model.clone()).or_default();
        waiting.insert(number);
        let model = model.clone();
        self.ask(&model);
        let patience = self.random.span(5_000, 90_000);
        self.after(patience, Due::Patience { model, number });
    }

    /// Gives a call to the replica with the least to do; says whether there was one.
    fn serve(&mut self, model: &ModelName) -> bool {
        let answering = self.answering();
        let route = self.routes.iter().find(|route| route.name == *model);
        let endpoints = route.map(|route| route.endpoints.as_slice());
        let clients = &self.clients;
        let chosen = endpoints
            .unwrap_or_default()
            .iter()
            .map(|endpoint| endpoint.replica)
            .filter(|replica| answering.contains(replica))
            .min_by_key(|replica| (clients.outstanding(*replica), *replica));
        let Some(replica) = chosen else {
            return false;
        };
        self.numbers += 1;
        let number = self.numbers;
        let calls = self.clients.answering.entry(replica).or_default();
        calls.insert(number);
        *self.clients.given.entry(replica).or_default() += 1;
        self.clients.used_at.insert(replica, self.now);
        let long = self.random.happens(100);
        let span = self.random.span(200, if long { 100_000 } else { 8_000 });
        self.after(span, Due::Done { replica, number });
        true
    }

    pub(super) fn done(&mut self, replica: ReplicaId, number: u64) {
        let calls = self.clients.answering.get_mut(&replica);
        if calls.is_some_and(|calls| calls.remove(&number)) {
            self.clients.used_at.insert(replica, self.now);
        }
    }

    /// There may be endpoints now for calls that waited.
    pub(super) fn serve_waiting(&mut self) {
        let waiting: Vec<(ModelName, u64)> = self
            .clients
            .waiting
            .iter()
            .flat_map(|(model, calls)| calls.iter().map(|number| (model.clone(), *number)))
            .collect();
        for (model, number) in waiting {
            if self.serve(&model) {
                self.clients.give_up(&model, number);
            }
        }
    }
}
