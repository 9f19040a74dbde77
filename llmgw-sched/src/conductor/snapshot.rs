//! What the loop knows: all that a decision is made from, for whoever wants to look.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use llmgw_core::{
    api::admin::Origin,
    clock::Timestamp,
    cluster::{
        catalog::Model,
        order::Orders,
        pool::Pools,
        replica::ReplicaState,
        weights::{Sha256Digest, WeightsOrders},
    },
    id::{ModelName, NodeId},
    reason::Report,
    route::{Endpoint, ModelRoute, Waiting},
};

use super::findings::{self, Finding};
use crate::{
    fleet::Fleet,
    journal::Journal,
    planner::{policy::PolicyName, sizes::Sizes},
    reconcile::{
        self, Definition, Inputs, Intent, Memory, Observed, Pacing, Wish,
        standing::{self, Trial},
    },
};

/// The state of the loop after a step. Immutable.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The models, by name.
    pub entries: BTreeMap<ModelName, Entry>,
    /// What agents and the gateway tell.
    pub observed: Observed,
    /// What was given to whom, and how each model has fared.
    pub memory: Memory,
    /// Engines that nodes should have.
    pub engines: Vec<Wish>,
    /// Pools of nodes.
    pub pools: Arc<Pools>,
    /// How fast the loop follows what is asked for.
    pub pacing: Pacing,
    /// Which policy places.
    pub policy: PolicyName,
    /// What operators have ordered besides which models there are.
    pub orders: Arc<Orders>,
    /// The wall clock's time at the step.
    pub at: Timestamp,
    /// The last trial of each model that lacks replicas.
    pub reports: BTreeMap<ModelName, Report>,
    /// Models that fit once others that run on demand make room.
    pub turns: BTreeSet<ModelName>,
    /// Whether agents have followed a later control plane than the store knew.
    pub store_was_older: bool,
    /// The last decisions.
    pub journal: Arc<Journal>,
    /// What was found out of the weights of models.
    pub findings: Arc<BTreeMap<ModelName, Finding>>,
    /// What they need, from that.
    pub sizes: Arc<Sizes>,
    /// What every node is to do about weights.
    pub weights_orders: WeightsOrders,
    /// Weights that are to go, and have not been said to be gone.
    pub collect: BTreeMap<NodeId, BTreeSet<Sha256Digest>>,
}

/// A model and where it was said.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The model.
    pub model: Model,
    /// Where it was said.
    pub origin: Origin,
    /// When it was made known.
    pub since: Timestamp,
    /// Tells whether what was written has changed.
    pub definition: Arc<Definition>,
}

// === impl Snapshot ===

impl Snapshot {
    /// What should run.
    #[must_use]
    pub fn intent(&self) -> Intent {
        let models = self
            .entries
            .iter()
            .map(|(name, entry)| (name.clone(), self.completed(entry)));
        Intent {
            models: models.collect(),
            engines: self.engines.clone(),
            pools: Arc::clone(&self.pools),
            pacing: self.pacing,
            policy: self.policy,
            sizes: Arc::clone(&self.sizes),
            orders: Arc::clone(&self.orders),
            at: self.at,
            definitions: self
                .entries
                .iter()
                .map(|(name, entry)| (name.clone(), Arc::clone(&entry.definition)))
                .collect(),
        }
    }

    /// The model as it is run: with what was found out of its weights, and scaled as ordered.
    #[must_use]
    pub fn completed(&self, entry: &Entry) -> Model {
        let name = entry.model.name();
        let model = findings::completed(&entry.model, self.findings.get(name), &self.sizes);
        match self.orders.scaling(name) {
            Some(scaling) => model.scaled(scaling),
            None => model,
        }
    }

    /// What a model waits for that nothing serves.
    #[must_use]
    pub fn waiting(&self, entry: &Entry, now: Duration) -> Waiting {
        let model = &entry.model;
        let completed = self.completed(entry);
        if !completed.is_complete() && self.memory.serving(model.name()) == 0 {
            return findings::waiting(model, self.findings.get(model.name()), now);
        }
        let report = self.reports.get(model.name());
        let waits_for_turn = self.turns.contains(model.name());
        let trial = Trial {
            report,
            waits_for_turn,
        };
        standing::waiting(&completed, &self.observed, &self.memory, trial, now)
    }

    /// The fleet as a decision is made from it.
    #[must_use]
    pub fn fleet(&self, now: Duration) -> Fleet {
        reconcile::fleet(&self.intent(), &self.observed, &self.memory, now)
    }

    /// What the loop would plan from now, if it were to try this model too.
    #[must_use]
    pub fn inputs(&self, asked: &Model, now: Duration) -> Inputs {
        let intent = self.intent();
        let mut inputs = reconcile::inputs(&intent, &self.observed, &self.memory, now);
        let models = &mut inputs.wanted.models;
        if models.iter().all(|model| model.name() != asked.name()) {
            models.push(asked.clone());
        }
        inputs
    }

    /// What people call a node; its id while it was never heard.
    #[must_use]
    pub fn hostname(&self, node: NodeId) -> String {
        let heard = self.observed.nodes.get(&node);
        heard.map_or_else(|| node.to_string(), |heard| heard.facts.hostname.clone())
    }

    /// The number of a model's next roll. The order for the last one is lifted when that has ended, and what became of it
    /// is remembered by its number: the next must have another.
    #[must_use]
    pub fn next_roll(&self, model: &ModelName) -> u64 {
        let ended = self.memory.rolls.get(model).map_or(0, |roll| roll.number);
        self.orders.rolls(model).max(ended) + 1
    }

    /// The model that answers to `name`.
    #[must_use]
    pub fn resolve(&self, name: &ModelName) -> Option<&Entry> {
        self.entries.get(name).or_else(|| {
            self.entries
                .values()
                .find(|entry| entry.model.answers_to(name.as_str()))
        })
    }

    /// What the gateway routes by.
    #[must_use]
    pub fn routes(&self, now: Duration) -> Vec<ModelRoute> {
        self.entries
            .values()
            .map(|entry| self.route(entry, now))
            .collect()
    }

    fn route(&self, entry: &Entry, now: Duration) -> ModelRoute {
        let model = &entry.model;
        let completed = self.completed(entry);
        let serving = self
            .memory
            .assignments
            .iter()
            .filter(|(_, given)| given.spec.model == *model.name() && given.draining.is_none());
        let endpoints = serving.filter_map(|(id, given)| {
            let status = self.observed.nodes.get(&given.node)?.replicas.get(id)?;
            let address: SocketAddr = status.endpoint.as_ref()?.parse().ok()?;
            let ready = status.state == ReplicaState::Ready && address.ip().is_loopback();
            ready.then_some(Endpoint {
                replica: *id,
                address,
                slots: Some(given.spec.profile.parallel),
            })
        });
        ModelRoute {
            name: model.name().clone(),
            aliases: model.aliases().to_vec(),
            created_at: entry.since,
            endpoints: endpoints.collect(),
            on_demand: completed.scaling().is_on_demand(),
            waiting: self.waiting(entry, now),
            progress: standing::progress(model, &self.observed, &self.memory, now),
            fallbacks: model.fallbacks().to_vec(),
        }
    }
}

// === impl Entry ===

impl Entry {
    /// A model of the settings or the command line.
    #[must_use]
    pub fn declared(model: Model, since: Timestamp) -> Self {
        Self {
            definition: Arc::new(Definition::of(&model)),
            model,
            origin: Origin::Declared,
            since,
        }
    }

    /// A model that was added to the store.
    #[must_use]
    pub fn added(model: Model, since: Timestamp) -> Self {
        Self {
            definition: Arc::new(Definition::of(&model)),
            model,
            origin: Origin::Added,
            since,
        }
    }
}
