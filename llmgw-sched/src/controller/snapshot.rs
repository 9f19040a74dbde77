//! What the loop publishes: all that a decision was made from, for whoever wants to look.

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
        replica::ReplicaState,
        weights::{Sha256Digest, WeightsOrders},
    },
    id::{EngineName, ModelName, NodeId},
    reason::Report,
    route::{Endpoint, ModelRoute, Waiting},
};

use super::findings::{self, Finding};
use crate::{
    fleet::Fleet,
    journal::Journal,
    planner::{policy::PolicyName, sizes::Sizes},
    reconcile::{self, Inputs, Intent, Memory, Observed, standing},
};

/// The state of the loop after a step. Immutable.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) entries: BTreeMap<ModelName, Entry>,
    pub(super) observed: Observed,
    pub(super) memory: Memory,
    /// Engines that every node should have.
    pub(super) engines: Vec<EngineName>,
    pub(super) policy: PolicyName,
    /// The last trial of each model that lacks replicas.
    pub(super) reports: BTreeMap<ModelName, Report>,
    /// Whether agents have followed a later control plane than the store knew.
    pub(super) store_was_older: bool,
    /// The last decisions.
    pub(super) journal: Arc<Journal>,
    /// What was found out of the weights of models.
    pub(super) findings: Arc<BTreeMap<ModelName, Finding>>,
    /// What they need, from that.
    pub(super) sizes: Arc<Sizes>,
    /// What every node is to do about weights.
    pub(super) weights_orders: WeightsOrders,
    /// Weights that are to go, and have not been said to be gone.
    pub(super) collect: BTreeMap<NodeId, BTreeSet<Sha256Digest>>,
}

/// A model and where it was said.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    pub(super) model: Model,
    pub(super) origin: Origin,
    pub(super) since: Timestamp,
}

// === impl Snapshot ===

impl Snapshot {
    pub(super) fn intent(&self) -> Intent {
        let models = self
            .entries
            .iter()
            .map(|(name, entry)| (name.clone(), self.completed(entry)));
        Intent {
            models: models.collect(),
            engines: self.engines.clone(),
            policy: self.policy,
            sizes: Arc::clone(&self.sizes),
        }
    }

    /// The model as it is run: with what was found out of its weights.
    pub(super) fn completed(&self, entry: &Entry) -> Model {
        let finding = self.findings.get(entry.model.name());
        findings::completed(&entry.model, finding, &self.sizes)
    }

    /// What a model waits for that nothing serves.
    pub(super) fn waiting(&self, entry: &Entry, now: Duration) -> Waiting {
        let model = &entry.model;
        let completed = self.completed(entry);
        if !completed.is_complete() && self.memory.serving(model.name()) == 0 {
            return findings::waiting(model, self.findings.get(model.name()), now);
        }
        let report = self.reports.get(model.name());
        standing::waiting(model, &self.observed, &self.memory, report, now)
    }

    /// The fleet as a decision is made from it.
    pub(super) fn fleet(&self, now: Duration) -> Fleet {
        reconcile::fleet(&self.intent(), &self.observed, &self.memory, now)
    }

    /// What the loop would plan from now, if it were to try this model too.
    pub(super) fn inputs(&self, asked: &Model, now: Duration) -> Inputs {
        let intent = self.intent();
        let mut inputs = reconcile::inputs(&intent, &self.observed, &self.memory, now);
        let models = &mut inputs.wanted.models;
        if models.iter().all(|model| model.name() != asked.name()) {
            models.push(asked.clone());
        }
        inputs
    }

    /// What people call a node; its id while it was never heard.
    pub(super) fn hostname(&self, node: NodeId) -> String {
        let heard = self.observed.nodes.get(&node);
        heard.map_or_else(|| node.to_string(), |heard| heard.facts.hostname.clone())
    }

    /// The model that answers to `name`.
    pub(super) fn resolve(&self, name: &ModelName) -> Option<&Entry> {
        self.entries.get(name).or_else(|| {
            self.entries
                .values()
                .find(|entry| entry.model.answers_to(name.as_str()))
        })
    }

    /// What the gateway routes by.
    pub(super) fn routes(&self, now: Duration) -> Vec<ModelRoute> {
        self.entries
            .values()
            .map(|entry| self.route(entry, now))
            .collect()
    }

    fn route(&self, entry: &Entry, now: Duration) -> ModelRoute {
        let model = &entry.model;
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
            })
        });
        ModelRoute {
            name: model.name().clone(),
            aliases: model.aliases().to_vec(),
            created_at: entry.since,
            endpoints: endpoints.collect(),
            waiting: self.waiting(entry, now),
        }
    }
}

// === impl Entry ===

impl Entry {
    pub(super) fn declared(model: Model, since: Timestamp) -> Self {
        Self {
            model,
            origin: Origin::Declared,
            since,
        }
    }

    pub(super) fn added(model: Model, since: Timestamp) -> Self {
        Self {
            model,
            origin: Origin::Added,
            since,
        }
    }
}
