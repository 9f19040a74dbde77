//! A control plane that lives in memory.

mod guard;
mod settings;
mod state;
mod tenancy;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::sync::Notify;

use self::state::{PARKED_AFTER, satisfied};
use super::{logs::Written, trial::trial, what_if::Scene};
use crate::{
    api::{
        admin::{
            Explanation, JobView, ModelView, NodeView, Origin, OrphanView, ProfileView, Replaced,
            ReplicaView, Summary,
        },
        decision::Decision,
        frozen::{Frozen, Thawed},
        orders::{
            LogOf, LogView, NodeStateRequest, NodeStateView, RollRequest, Rolled, ScaleRequest,
            Scaled, TokenView,
        },
        usage::{PriceRequest, UsageBy, UsageView},
        whatif::{Change, Outcome, Snapshot},
    },
    clock::Timestamp,
    cluster::{
        account::ApiKey,
        audit::{AuditEntry, ChainHead, NewAuditEntry},
        capacity::Capacity,
        catalog::{Model, ModelDefinition, Profile},
        guard::GuardedCall,
        node::NodeState,
        order::{Order, Orders, StoredOrder, Subject},
        pool::Pools,
        replica::ReplicaState,
        scaling::Scaling,
        settings::StoredSettings,
        tenancy::{Level, Price},
        weights::Sha256Digest,
    },
    control::{
        Accounts, Actor, Audit, Catalog, Control, ControlError, Fleet, Jobs, Storage, Tenancy as _,
        check_addition, check_node_order, check_price, check_removal, check_replacement,
        check_scaling, chosen_orphans, collected, is_declared, is_let_in, jobs, named_node,
        node_subject, nothing_frozen, nothing_to_roll, ordered, roll_subject, usage_of,
    },
    id::{KeyId, ModelName, NodeId, ProfileName, ReplicaId, TokenId},
    reason::render,
};

/// A control plane that lives in memory: it keeps models as the contract says, shows the nodes, replicas and
/// usage that it was given, and places nothing.
#[derive(Debug, Default)]
pub struct MemoryControl {
    state: Arc<Mutex<State>>,
    /// Tells that a log goes on.
    pub(super) written: Arc<Notify>,
    /// Who orders through this handle; the suite when nobody was named.
    actor: Option<Actor>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) models: BTreeMap<ModelName, Kept>,
    pub(super) nodes: Vec<NodeView>,
    pub(super) replicas: Vec<ReplicaView>,
    usage: Vec<UsageView>,
    pub(super) decisions: Vec<Decision>,
    pub(super) keys: BTreeMap<KeyId, ApiKey>,
    /// In no order.
    levels: Vec<Level>,
    prices: Vec<Price>,
    pub(super) audit: Vec<AuditEntry>,
    pub(super) orphans: Vec<OrphanView>,
    pub(super) orders: Orders,
    pub(super) capacities: BTreeMap<(ModelName, ProfileName), Capacity>,
    pub(super) tokens: BTreeMap<TokenId, TokenView>,
    pub(super) logs: BTreeMap<ReplicaId, Written>,
    /// Every version of the document; the first is number 1.
    pub(super) settings: Vec<StoredSettings>,
    /// Calls that rules of the guard matched, the newest first.
    pub(super) guarded: Vec<GuardedCall>,
    frozen: Option<Frozen>,
    pub(super) pools: Pools,
    pub(super) failure: Option<ControlError>,
}

#[derive(Debug)]
pub(super) struct Kept {
    pub(super) model: Model,
    origin: Origin,
    failures: u32,
    last_error: Option<String>,
}

// === impl MemoryControl ===

impl MemoryControl {
    /// The roles of this control plane.
    #[must_use]
    pub fn control(self: &Arc<Self>) -> Control {
        Control {
            catalog: Arc::<Self>::clone(self),
            fleet: Arc::<Self>::clone(self),
            tenancy: Arc::<Self>::clone(self),
            accounts: Arc::<Self>::clone(self),
            settings: Arc::<Self>::clone(self),
            jobs: Arc::<Self>::clone(self),
            audit: Arc::<Self>::clone(self),
            storage: Arc::<Self>::clone(self),
            engines: Arc::<Self>::clone(self),
            holds: Arc::<Self>::clone(self),
            capacities: Arc::<Self>::clone(self),
            operators: Arc::<Self>::clone(self),
            events: Arc::<Self>::clone(self),
            logs: Arc::<Self>::clone(self),
            guard: Arc::<Self>::clone(self),
            acting: Arc::<Self>::clone(self),
        }
    }

    /// Adds a model as the settings would.
    ///
    /// # Errors
    /// As [`Catalog::add`].
    pub fn declare(&self, definition: ModelDefinition) -> Result<ModelName, ControlError> {
        self.keep(definition, Origin::Declared)
    }

    /// Parks a model, as after five failures. A model that is not there is passed over.
    pub fn park(&self, name: &ModelName, error: &str) {
        if let Some(kept) = self.lock().models.get_mut(name) {
            kept.failures = PARKED_AFTER;
            kept.last_error = Some(error.to_owned());
        }
    }

    /// Shows these nodes from now on.
    pub fn set_nodes(&self, nodes: Vec<NodeView>) {
        self.lock().nodes = nodes;
    }

    /// Shows these replicas from now on.
    pub fn set_replicas(&self, replicas: Vec<ReplicaView>) {
        self.lock().replicas = replicas;
    }

    /// Shows this usage from now on.
    pub fn set_usage(&self, usage: Vec<UsageView>) {
        self.lock().usage = usage;
    }

    /// Shows these decisions from now on, the first first.
    pub fn set_decisions(&self, decisions: Vec<Decision>) {
        self.lock().decisions = decisions;
    }

    /// Shows these weights that no model refers to from now on, by node, then by digest.
    pub fn set_orphans(&self, orphans: Vec<OrphanView>) {
        self.lock().orphans = orphans;
    }

    /// Has these pools from now on.
    pub fn set_pools(&self, pools: Pools) {
        self.lock().pools = pools;
    }

    /// Moves nothing from now on, for these nodes, until it is thawed.
    pub fn freeze(&self, frozen: Frozen) {
        self.lock().frozen = Some(frozen);
    }

    /// Answers every question with this failure, until it is taken back.
    pub fn fail_with(&self, failure: Option<ControlError>) {
        self.lock().failure = failure;
    }

    pub(super) fn keep(
        &self,
        definition: ModelDefinition,
        origin: Origin,
    ) -> Result<ModelName, ControlError> {
        self.lock().keep(definition, origin)
    }

    /// The same control plane, for somebody else.
    pub(super) fn for_actor(&self, actor: &Actor) -> Arc<Self> {
        Arc::new(Self {
            state: Arc::clone(&self.state),
            written: Arc::clone(&self.written),
            actor: Some(actor.clone()),
        })
    }

    /// Who orders through this handle.
    pub(super) fn actor(&self) -> &str {
        self.actor.as_ref().map_or("suite", Actor::as_str)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn named(&self, node: &str) -> Result<NodeId, ControlError> {
        let state = self.answering()?;
        let nodes = state.nodes.iter();
        named_node(node, nodes.map(|node| (node.id, node.hostname.as_str())))
    }

    pub(super) fn answering(&self) -> Result<MutexGuard<'_, State>, ControlError> {
        let state = self.lock();
        match &state.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(state),
        }
    }
}

#[async_trait]
impl Catalog for MemoryControl {
    async fn models(&self) -> Result<Vec<ModelView>, ControlError> {
        let state = self.answering()?;
        Ok(state.models.values().map(|kept| state.view(kept)).collect())
    }

    async fn add(&self, definition: ModelDefinition) -> Result<ModelName, ControlError> {
        let mut state = self.answering()?;
        let name = state.keep(definition, Origin::Added)?;
        state.note(self.actor(), "model.add", &name.to_string());
        Ok(name)
    }

    async fn replace(
        &self,
        name: &ModelName,
        definition: ModelDefinition,
    ) -> Result<Replaced, ControlError> {
        let mut state = self.answering()?;
        let (model, is_other) = state.replacement(name, definition)?;
        state.note(self.actor(), "model.replace", name.as_str());
        if let Some(kept) = state.models.get_mut(name) {
            kept.failures = if is_other { 0 } else { kept.failures };
            kept.model = model;
        }
        let own = state.replicas.iter_mut();
        for replica in own.filter(|replica| replica.model == *name) {
            replica.stale |= is_other;
        }
        Ok(Replaced {
            replaced: name.clone(),
            stale: state.of(name).filter(|replica| replica.stale).count(),
        })
    }

    async fn remove(&self, name: &ModelName) -> Result<(), ControlError> {
        let mut state = self.answering()?;
        let kept = state
            .models
            .get(name)
            .ok_or_else(|| ControlError::unknown_model(name))?;
        if kept.origin == Origin::Declared {
            return Err(is_declared(name));
        }
        check_removal(name, state.models.values().map(|kept| &kept.model))?;
        state.note(self.actor(), "model.remove", name.as_str());
        state.models.remove(name);
        state.replicas.retain(|replica| replica.model != *name);
        for subject in Subject::of_model(name) {
            state.orders.lift(&subject);
        }
        Ok(())
    }

    async fn explain(&self, name: &ModelName) -> Result<Explanation, ControlError> {
        let state = self.answering()?;
        let kept = state.resolve(name)?;
        let report = trial(&state.ordered_nodes(), &kept.model);
        let view = state.view(kept);
        Ok(Explanation {
            attention: Vec::new(),
            model: view.name.clone(),
            placed: satisfied(&view),
            replicas: state.of(&view.name).map(|replica| replica.id).collect(),
            headline: render::headline(&report),
            report,
        })
    }

    async fn decisions(
        &self,
        model: Option<&ModelName>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<Decision>, ControlError> {
        let state = self.answering()?;
        let own = match model {
            Some(name)
                if state
                    .decisions
                    .iter()
                    .any(|decision| decision.model == *name) =>
            {
                Some(name)
            }
            Some(name) => Some(state.resolve(name)?.model.name()),
            None => None,
        };
        let asked = |decision: &&Decision| {
            decision.number > after && own.is_none_or(|own| decision.model == *own)
        };
        let limit = usize::try_from(limit.min(1_000)).unwrap_or(1_000);
        let found = state.decisions.iter().filter(asked).take(limit);
        Ok(found.cloned().collect())
    }

    async fn scale(&self, name: &ModelName, scale: ScaleRequest) -> Result<Scaled, ControlError> {
        let mut state = self.answering()?;
        let kept = state.resolve(name)?;
        let model = kept.model.name().clone();
        if kept.origin == Origin::Declared {
            return Err(is_declared(&model));
        }
        let scaling = check_scaling(scale, state.scaling(kept))?;
        let subject = ordered(model.as_str(), &scaling);
        state.note(self.actor(), "model.scale", &subject);
        state.put(
            self.actor(),
            Order::Scale {
                model: model.clone(),
                scaling,
            },
        );
        Ok((model, scaling).into())
    }

    async fn roll(&self, name: &ModelName, roll: RollRequest) -> Result<Rolled, ControlError> {
        let mut state = self.answering()?;
        let model = state.resolve(name)?.model.name().clone();
        let stale = state.of(&model).filter(|replica| replica.stale).count();
        if stale == 0 {
            return Err(nothing_to_roll(&model));
        }
        state.note(self.actor(), "model.roll", &roll_subject(&model, roll));
        let number = state.orders.rolls(&model) + 1;
        state.put(
            self.actor(),
            Order::Roll {
                model: model.clone(),
                number,
                force: roll.force,
            },
        );
        Ok(Rolled {
            rolling: model,
            number,
            stale,
            force: roll.force,
        })
    }

    async fn retry(&self, name: &ModelName) -> Result<(), ControlError> {
        let mut state = self.answering()?;
        let own = state.resolve(name)?.model.name().clone();
        state.note(self.actor(), "model.retry", own.as_str());
        if let Some(kept) = state.models.get_mut(&own) {
            kept.failures = 0;
        }
        Ok(())
    }
}

#[async_trait]
impl Fleet for MemoryControl {
    async fn summary(&self) -> Result<Summary, ControlError> {
        let state = self.answering()?;
        let views: Vec<ModelView> = state.models.values().map(|kept| state.view(kept)).collect();
        let frozen = state.frozen.iter().map(ToString::to_string);
        let models = views
            .iter()
            .filter_map(|view| match (&view.last_error, &view.unplaceable) {
                (Some(error), _) if view.parked => {
                    Some(format!("{} is parked: {error}", view.name))
                }
                (_, Some(why)) => Some(why.clone()),
                _ => None,
            });
        let attention = frozen.chain(models).collect();
        let ready = |node: &&NodeView| node.state == NodeState::Ready;
        let serves = |replica: &&ReplicaView| replica.state == ReplicaState::Ready;
        Ok(Summary {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            leading: true,
            epoch: 1,
            store: "memory".to_owned(),
            uptime_seconds: 7_500,
            nodes_ready: state.nodes.iter().filter(ready).count(),
            nodes_total: state.nodes.len(),
            models_satisfied: views.iter().filter(|view| satisfied(view)).count(),
            models_total: views.len(),
            replicas_ready: state.replicas.iter().filter(serves).count(),
            replicas_total: state.replicas.len(),
            requests: state.usage.iter().map(|usage| usage.requests).sum(),
            attention,
            frozen: state.frozen.clone(),
        })
    }

    async fn nodes(&self) -> Result<Vec<NodeView>, ControlError> {
        let mut nodes = self.answering()?.ordered_nodes();
        nodes.sort_by(|a, b| (&a.hostname, a.id).cmp(&(&b.hostname, b.id)));
        Ok(nodes)
    }

    async fn replicas(&self, model: Option<&ModelName>) -> Result<Vec<ReplicaView>, ControlError> {
        let state = self.answering()?;
        let mut replicas: Vec<ReplicaView> = match model {
            None => state.replicas.clone(),
            Some(name) => {
                let own = state.resolve(name)?.model.name();
                state.of(own).cloned().collect()
            }
        };
        replicas.sort_by(|a, b| (&a.model, a.id).cmp(&(&b.model, b.id)));
        Ok(replicas)
    }

    async fn use_node(
        &self,
        node: &str,
        wanted: NodeStateRequest,
    ) -> Result<NodeStateView, ControlError> {
        let id = self.named(node)?;
        let subject = node_subject(id, &wanted);
        let ordered = check_node_order(id, wanted)?;
        {
            let mut state = self.answering()?;
            state.note(self.actor(), "node.state", &subject);
            match ordered {
                Some(order) => state.put(self.actor(), Order::Node(order)),
                None => drop(state.orders.lift(&Subject::Node(id))),
            }
        }
        let nodes = Fleet::nodes(self).await?;
        let state = nodes.iter().find(|node| node.id == id);
        let state = state.map_or(NodeState::Lost, |node| node.state);
        Ok(NodeStateView { id, state })
    }

    async fn thaw(&self) -> Result<Thawed, ControlError> {
        let mut state = self.answering()?;
        let thawed = state.frozen.take().ok_or_else(nothing_frozen)?;
        state.note(self.actor(), "fleet.thaw", &thawed.subject());
        Ok(Thawed { thawed })
    }

    async fn approve(&self, node: &str) -> Result<NodeStateView, ControlError> {
        let id = self.named(node)?;
        let state = self.answering()?;
        let known = state.nodes.iter().find(|node| node.id == id);
        Err(is_let_in(known.map_or(node, |known| &known.hostname)))
    }

    async fn logs(&self, model: &ModelName) -> Result<Vec<LogView>, ControlError> {
        let state = self.answering()?;
        let model = state.resolve(model)?.model.name();
        let failed = state
            .of(model)
            .filter(|replica| !replica.log_tail.is_empty());
        let view = |replica: &ReplicaView| LogView {
            model: model.clone(),
            of: LogOf::Replica,
            replica: Some(replica.id),
            hostname: Some(replica.hostname.clone()),
            error: replica.error.clone(),
            lines: replica.log_tail.clone(),
        };
        Ok(failed.map(view).collect())
    }

    async fn snapshot(&self) -> Result<Snapshot, ControlError> {
        let state = self.answering()?;
        let node = |node: &NodeView| serde_json::json!({"id": node.id, "hostname": node.hostname, "state": node.state});
        let nodes: Vec<_> = state.nodes.iter().map(node).collect();
        let models = state.models.values().map(|kept| kept.model.clone().into());
        Ok(Snapshot {
            policy: "scarcity".to_owned(),
            fleet: serde_json::json!({"nodes": nodes}),
            models: models.collect(),
        })
    }

    async fn plan(&self, changes: &[Change]) -> Result<Outcome, ControlError> {
        let state = self.answering()?;
        let models = state.models.values().map(|kept| kept.model.clone());
        let scene = Scene::new(models, &state.nodes, &state.replicas);
        Ok(scene.what_if(changes)?)
    }
}

#[async_trait]
impl Accounts for MemoryControl {
    async fn usage(&self, by: UsageBy, _since: Duration) -> Result<Vec<UsageView>, ControlError> {
        let sums = by.sum(self.answering()?.usage.clone());
        Ok(usage_of(
            by,
            sums,
            &self.levels().await?,
            &self.keys().await?,
        ))
    }

    async fn prices(&self) -> Result<Vec<Price>, ControlError> {
        Ok(self.answering()?.prices.clone())
    }

    async fn set_price(&self, request: PriceRequest) -> Result<Price, ControlError> {
        let mut state = self.answering()?;
        let model = state.resolve(&request.model)?.model.name().clone();
        // Time goes on by a millisecond with each.
        let now = state.prices.len().try_into().unwrap_or(i64::MAX);
        let price = check_price(request, model, Timestamp(now))?;
        let subject = ordered(price.model.as_str(), &price);
        state.note(self.actor(), "price.set", &subject);
        state.prices.push(price.clone());
        state
            .prices
            .sort_by(|a, b| (&a.model, a.valid_from).cmp(&(&b.model, b.valid_from)));
        Ok(price)
    }
}

#[async_trait]
impl Jobs for MemoryControl {
    async fn jobs(&self) -> Result<Vec<JobView>, ControlError> {
        let state = self.answering()?;
        Ok(jobs(&state.nodes, &state.replicas))
    }
}

#[async_trait]
impl Storage for MemoryControl {
    async fn orphans(&self) -> Result<Vec<OrphanView>, ControlError> {
        Ok(self.answering()?.orphans.clone())
    }

    async fn collect(&self, digests: &[Sha256Digest]) -> Result<Vec<OrphanView>, ControlError> {
        let mut state = self.answering()?;
        let mut chosen = chosen_orphans(state.orphans.clone(), digests)?;
        state.note(self.actor(), "weights.collect", &collected(digests));
        for one in chosen.iter_mut().chain(&mut state.orphans) {
            one.collecting = digests.contains(&one.sha256) && one.kept.is_none();
        }
        Ok(chosen)
    }
}

#[async_trait]
impl Audit for MemoryControl {
    async fn audit(&self, after: u64, limit: u32) -> Result<Vec<AuditEntry>, ControlError> {
        let state = self.answering()?;
        let limit = usize::try_from(limit.min(1_000)).unwrap_or(1_000);
        let later = state.audit.iter().filter(|entry| entry.seq > after);
        Ok(later.take(limit).cloned().collect())
    }
}
