//! A control plane that lives in memory.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;

use super::{trial::trial, what_if::Scene};
use crate::{
    api::{
        admin::{
            CreatedKey, Explanation, JobView, KeyView, ModelView, NodeView, Origin, OrphanView,
            ProfileView, ReplicaView, SettingsView, Summary, UsageView,
        },
        decision::Decision,
        whatif::{Change, Outcome, Snapshot},
    },
    clock::Timestamp,
    cluster::{
        audit::{AuditEntry, ChainHead, NewAuditEntry},
        catalog::{Model, ModelDefinition, Profile},
        node::NodeState,
        replica::ReplicaState,
        weights::Sha256Digest,
    },
    control::{
        Accounts, Audit, Catalog, Control, ControlError, Fleet, Jobs, Settings, Storage, Tenancy,
        check_addition, check_key_name, check_removal, chosen_orphans, collected, jobs,
    },
    error::Code,
    id::{KeyId, ModelName},
    reason::render,
};

/// A control plane that lives in memory: it keeps models as the contract says, shows the nodes, replicas and
/// usage that it was given, and places nothing.
#[derive(Debug, Default)]
pub struct MemoryControl {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    models: BTreeMap<ModelName, Kept>,
    nodes: Vec<NodeView>,
    replicas: Vec<ReplicaView>,
    usage: Vec<UsageView>,
    decisions: Vec<Decision>,
    keys: BTreeMap<KeyId, KeyView>,
    audit: Vec<AuditEntry>,
    orphans: Vec<OrphanView>,
    failure: Option<ControlError>,
}

#[derive(Debug)]
struct Kept {
    model: Model,
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answering(&self) -> Result<MutexGuard<'_, State>, ControlError> {
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
        state.note("model.add", &name.to_string());
        Ok(name)
    }

    async fn remove(&self, name: &ModelName) -> Result<(), ControlError> {
        let mut state = self.answering()?;
        let kept = state
            .models
            .get(name)
            .ok_or_else(|| ControlError::unknown_model(name))?;
        if kept.origin == Origin::Declared {
            return Err(
                ControlError::new(Code::Conflict, format!("{name} is declared"))
                    .with_hint("take it out of the settings"),
            );
        }
        check_removal(name, state.models.values().map(|kept| &kept.model))?;
        state.note("model.remove", name.as_str());
        state.models.remove(name);
        state.replicas.retain(|replica| replica.model != *name);
        Ok(())
    }

    async fn explain(&self, name: &ModelName) -> Result<Explanation, ControlError> {
        let state = self.answering()?;
        let kept = state.resolve(name)?;
        let report = trial(&state.nodes, &kept.model);
        let view = state.view(kept);
        Ok(Explanation {
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

    async fn retry(&self, name: &ModelName) -> Result<(), ControlError> {
        let mut state = self.answering()?;
        let own = state.resolve(name)?.model.name().clone();
        state.note("model.retry", own.as_str());
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
        let attention = views
            .iter()
            .filter_map(|view| match (&view.last_error, &view.unplaceable) {
                (Some(error), _) if view.parked => {
                    Some(format!("{} is parked: {error}", view.name))
                }
                (_, Some(why)) => Some(why.clone()),
                _ => None,
            })
            .collect();
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
        })
    }

    async fn nodes(&self) -> Result<Vec<NodeView>, ControlError> {
        let mut nodes = self.answering()?.nodes.clone();
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
    async fn usage(&self) -> Result<Vec<UsageView>, ControlError> {
        Ok(self.answering()?.usage.clone())
    }
}

#[async_trait]
impl Tenancy for MemoryControl {
    async fn keys(&self) -> Result<Vec<KeyView>, ControlError> {
        Ok(self.answering()?.keys.values().cloned().collect())
    }

    async fn create_key(&self, name: &str) -> Result<CreatedKey, ControlError> {
        let name = check_key_name(name)?;
        let mut state = self.answering()?;
        let key = KeyView {
            id: KeyId::generate(),
            name: name.to_owned(),
            created_at: Timestamp(0),
        };
        state.note("key.create", &key.id.to_string());
        state.keys.insert(key.id, key.clone());
        // It opens nothing: there is no gateway here. Unique all the same, as a secret is.
        let secret = format!("sk-llmgw-{}", key.id.as_uuid().simple());
        Ok(CreatedKey { key, secret })
    }

    async fn revoke_key(&self, id: KeyId) -> Result<(), ControlError> {
        let mut state = self.answering()?;
        if state.keys.remove(&id).is_none() {
            return Err(ControlError::unknown_key(id));
        }
        state.note("key.revoke", &id.to_string());
        Ok(())
    }
}

#[async_trait]
impl Settings for MemoryControl {
    async fn settings(&self) -> Result<SettingsView, ControlError> {
        let state = self.answering()?;
        let declared = state
            .models
            .values()
            .filter(|kept| kept.origin == Origin::Declared);
        Ok(SettingsView {
            models: declared.map(|kept| kept.model.clone().into()).collect(),
            engines: Vec::new(),
            placement_policy: "scarcity".to_owned(),
            evict_weights: false,
            mirror: None,
            lease_ttl_seconds: 10,
            settle_seconds: 0,
        })
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
        state.note("weights.collect", &collected(digests));
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

// === impl State ===

impl State {
    fn keep(
        &mut self,
        definition: ModelDefinition,
        origin: Origin,
    ) -> Result<ModelName, ControlError> {
        let existing = self.models.values().map(|kept| &kept.model);
        let model = check_addition(definition, existing)?;
        let name = model.name().clone();
        let kept = Kept {
            model,
            origin,
            failures: 0,
            last_error: None,
        };
        self.models.insert(name.clone(), kept);
        Ok(name)
    }

    fn note(&mut self, action: &str, subject: &str) {
        let entry = NewAuditEntry {
            at: Timestamp(0),
            actor: "suite".to_owned(),
            action: action.to_owned(),
            subject: subject.to_owned(),
        };
        let head = self.audit.last().map_or(ChainHead::EMPTY, AuditEntry::head);
        let chained = AuditEntry::chained(head, &entry);
        self.audit.push(chained);
    }

    fn resolve(&self, name: &ModelName) -> Result<&Kept, ControlError> {
        self.models
            .values()
            .find(|kept| kept.model.answers_to(name.as_str()))
            .ok_or_else(|| ControlError::unknown_model(name))
    }

    fn of<'a>(&'a self, model: &'a ModelName) -> impl Iterator<Item = &'a ReplicaView> {
        self.replicas
            .iter()
            .filter(move |replica| replica.model == *model)
    }

    fn view(&self, kept: &Kept) -> ModelView {
        let Kept {
            model,
            origin,
            failures,
            last_error,
        } = kept;
        let name = model.name();
        let ready = |replica: &&ReplicaView| replica.state == ReplicaState::Ready;
        let mut view = ModelView {
            name: name.clone(),
            description: model.description().to_owned(),
            aliases: model.aliases().to_vec(),
            fallbacks: model.fallbacks().to_vec(),
            source: model
                .weights()
                .sources
                .iter()
                .map(ToString::to_string)
                .collect(),
            origin: *origin,
            desired: model.replicas(),
            ready_replicas: self.of(name).filter(ready).count(),
            total_replicas: self.of(name).count(),
            profiles: model.profiles().iter().map(profile_view).collect(),
            parked: *failures >= PARKED_AFTER,
            failures: *failures,
            last_error: last_error.clone(),
            unplaceable: None,
        };
        let report = trial(&self.nodes, model);
        if view.total_replicas < want(&view) && report.fits.is_none() {
            view.unplaceable = Some(render::headline(&report));
        }
        view
    }
}

fn profile_view(profile: &Profile) -> ProfileView {
    ProfileView {
        name: profile.name.clone(),
        engine: profile.engine.to_string(),
        memory: profile.is_sized().then_some(profile.memory),
        memory_estimated: !profile.is_sized(),
        context: profile.context,
        parallel: profile.parallel,
    }
}

fn satisfied(view: &ModelView) -> bool {
    view.ready_replicas >= want(view)
}

fn want(view: &ModelView) -> usize {
    usize::try_from(view.desired).unwrap_or(usize::MAX)
}

/// Section 6 of the specification: five failures in a row.
const PARKED_AFTER: u32 = 5;
