//! Which replica takes a request: a pure function of a snapshot.
//!
//! The control plane publishes a [`RouteTable`]; the gateway reads it without a lock and without the store, and
//! goes on with the last good one when nobody publishes.

pub mod balance;
pub mod circuit;
pub mod prefix;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use crate::{
    clock::Timestamp,
    id::{ModelName, ReplicaId},
};

/// All that the gateway needs to know to route a request. Immutable; replaced as a whole.
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    models: BTreeMap<ModelName, Arc<ModelRoute>>,
    aliases: BTreeMap<ModelName, ModelName>,
}

/// One model in a [`RouteTable`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ModelRoute {
    /// What clients call it.
    pub name: ModelName,
    /// Other names that clients may use.
    pub aliases: Vec<ModelName>,
    /// When it was made known.
    pub created_at: Timestamp,
    /// Replicas that serve, ordered by id.
    pub endpoints: Vec<Endpoint>,
    /// Whether a call starts the model: a call that comes while nothing serves it may wait.
    pub on_demand: bool,
    /// Why there is no endpoint, when there is none.
    pub waiting: Waiting,
    /// How far the way to one is, as far as that is known.
    pub progress: Progress,
    /// Models that serve its clients when it can't, in the order of preference.
    pub fallbacks: Vec<ModelName>,
}

/// A replica that serves.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Endpoint {
    /// The replica; a request is bound to it, never to an address alone.
    pub replica: ReplicaId,
    /// Where it listens.
    pub address: SocketAddr,
    /// Calls that it answers at the same time; absent when that is not known.
    pub slots: Option<u32>,
}

/// What a model without an endpoint waits for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Waiting {
    /// A replica is on its way: what it does now, such as `fetching weights (43 %)`.
    Loading(String),
    /// It fits nowhere: the reasons in one line.
    Unplaceable(String),
    /// It failed too often: the last error.
    Parked(String),
    /// It is switched off: what says so.
    Off(String),
}

/// How far a model without an endpoint is on its way to one. What is not known is absent.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Progress {
    /// What is being done, in a few words: `fetching weights`.
    pub doing: Option<String>,
    /// How much of that is done.
    pub percent: Option<u8>,
    /// The time until that is done.
    pub eta: Option<Duration>,
}

/// Why there is no choice.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoRoute {
    /// No model answers to that name.
    #[error("the model {0:?} does not exist")]
    UnknownModel(String),
    /// The model exists and nothing serves it.
    #[error("{0} has no replica that serves")]
    NoEndpoint(ModelName, Waiting),
}

// === impl RouteTable ===

impl RouteTable {
    /// A table of these models. Where two claim the same alias, the first by name has it.
    pub fn new(models: impl IntoIterator<Item = ModelRoute>) -> Self {
        let mut table = Self::default();
        for model in models {
            table.models.insert(model.name.clone(), Arc::new(model));
        }
        let mut aliases = BTreeMap::new();
        for (name, model) in &table.models {
            for alias in &model.aliases {
                if !table.models.contains_key(alias) {
                    aliases.entry(alias.clone()).or_insert_with(|| name.clone());
                }
            }
        }
        table.aliases = aliases;
        table
    }

    /// All models, by name.
    pub fn models(&self) -> impl Iterator<Item = &Arc<ModelRoute>> {
        self.models.values()
    }

    /// The model that answers to `name`.
    ///
    /// # Errors
    /// [`NoRoute::UnknownModel`] when none does.
    pub fn resolve(&self, name: &str) -> Result<&Arc<ModelRoute>, NoRoute> {
        // What is no name of a model is none that is here.
        let canonical = self.aliases.get(name).map_or(name, ModelName::as_str);
        let unknown = || NoRoute::UnknownModel(name.chars().take(128).collect());
        self.models.get(canonical).ok_or_else(unknown)
    }

    /// The model that is tried next for clients of `model`, which can't serve them, nor can those that were `tried`: the
    /// first of its own fallbacks that was not, that can serve or be woken, and that is `allowed`.
    ///
    /// Fallbacks of fallbacks are not followed: whoever names one means that one, and there is no circle to go round.
    pub fn fallback(
        &self,
        model: &ModelRoute,
        tried: &[ModelName],
        allowed: impl Fn(&ModelRoute) -> bool,
    ) -> Option<&Arc<ModelRoute>> {
        let names = model.fallbacks.iter();
        let left = names.filter(|name| **name != model.name && !tried.contains(name));
        left.filter_map(|name| self.models.get(name))
            .find(|fallback| fallback.can_serve() && allowed(fallback))
    }
}

// === impl ModelRoute ===

impl ModelRoute {
    /// Whether a call would be served now, or wakes the model.
    #[must_use]
    pub fn can_serve(&self) -> bool {
        let wakes = self.on_demand && matches!(self.waiting, Waiting::Loading(_));
        !self.endpoints.is_empty() || wakes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, aliases: &[&str], replicas: usize) -> ModelRoute {
        let endpoint = |_| Endpoint {
            replica: ReplicaId::generate(),
            address: SocketAddr::from(([127, 0, 0, 1], 1)),
            slots: None,
        };
        let mut endpoints: Vec<Endpoint> = (0..replicas).map(endpoint).collect();
        endpoints.sort();
        ModelRoute {
            name: name.parse().unwrap(),
            aliases: aliases.iter().map(|alias| alias.parse().unwrap()).collect(),
            created_at: Timestamp(0),
            endpoints,
            on_demand: false,
            waiting: Waiting::Loading("starting".into()),
            progress: Progress::default(),
            fallbacks: Vec::new(),
        }
    }

    #[test]
    fn names_and_aliases_resolve_and_a_name_wins_over_an_alias() {
        let table = RouteTable::new([model("a", &["b", "x"], 1), model("b", &["x"], 1)]);
        assert_eq!(table.resolve("b").unwrap().name.as_str(), "b");
        assert_eq!(table.resolve("x").unwrap().name.as_str(), "a");
        assert!(matches!(table.resolve("y"), Err(NoRoute::UnknownModel(_))));
        assert!(matches!(
            table.resolve("bad name"),
            Err(NoRoute::UnknownModel(_))
        ));
    }

    #[test]
    fn fallbacks_are_tried_in_order_once_each_and_only_those_that_can_serve() {
        let names = ["a", "gone", "down", "b", "asleep", "c"];
        let names = names.map(|name| name.parse::<ModelName>().unwrap());
        let mut a = model("a", &[], 0);
        a.fallbacks = names.to_vec();
        // It leads back, which nobody follows.
        let mut b = model("b", &[], 1);
        b.fallbacks = vec![a.name.clone(), "d".parse().unwrap()];
        let mut asleep = model("asleep", &[], 0);
        asleep.on_demand = true;
        let mut parked = model("down", &[], 0);
        parked.on_demand = true;
        parked.waiting = Waiting::Parked("SIGILL".into());
        let others = [
            model("c", &["b-too"], 1),
            model("d", &[], 1),
            parked,
            asleep,
            b,
        ];
        let table = RouteTable::new(others.into_iter().chain([a.clone()]));
        let order = |allowed: fn(&ModelRoute) -> bool| {
            let mut tried = Vec::new();
            while let Some(next) = table.fallback(&a, &tried, allowed) {
                tried.push(next.name.clone());
            }
            let tried = tried.iter().map(ToString::to_string);
            tried.collect::<Vec<String>>()
        };
        assert_eq!(order(|_| true), ["b", "asleep", "c"]);
        assert_eq!(order(|model| model.name.as_str() != "b"), ["asleep", "c"]);
        assert_eq!(order(|_| false), [""; 0]);
    }
}
