//! What a controller is told, and how it is told otherwise while it runs.
//!
//! The cluster's document is read by whoever composes the controller: it alone knows the file and the command line that the
//! document stands over.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use llmgw_core::{
    api::{
        admin::Origin,
        settings::{
            QueueSettings, SettingsDocument, SettingsKept, SettingsTrial, SettingsVersion,
            SettingsView,
        },
        whatif::Change,
    },
    cluster::{
        catalog::{DefinitionError, Model, ModelDefinition, fallback_faults},
        engine::WantedEngine,
        guard::Policy,
        order::{HoldScope, Order, Subject},
        pool::Pools,
        settings::{AboutSettings, StoredSettings},
        weights::{WeightsOrders, without_secrets},
    },
    control::{
        Actor, ControlError, Settings, check_base, check_document, check_pools, settings_changes,
        settings_document, settings_version, unknown_version,
    },
    error::Code,
    guard::Rules,
    store::Write,
};
use tokio::sync::watch;

use super::{
    ControllerHandle, Shared,
    entries::declared_entries,
    roles::{check_engines, from_store},
};
use crate::{
    conductor::{
        Event,
        snapshot::{Entry, Snapshot},
        wishes,
    },
    planner::policy::PolicyName,
    reconcile::Pacing,
};

/// What holds for a cluster: what files, command lines and the cluster's document say, checked.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// Models that are declared.
    pub declared: Vec<Model>,
    /// Engines that nodes should have.
    pub engines: Vec<WantedEngine>,
    /// Pools of nodes.
    pub pools: Pools,
    /// How fast to follow what is asked for.
    pub pacing: Pacing,
    /// How many requests wait for models on demand: shown, and not used here.
    pub queue: Option<QueueSettings>,
    /// Which policy places.
    pub policy: PolicyName,
    /// What nodes are to do about weights; what is collected is ordered later.
    pub weights: WeightsOrders,
    /// The address of the hub that weights come from, when it is not the usual one: shown, and not used here.
    pub hub: Option<String>,
    /// What prompts and answers are checked by; the baseline when absent: shown, and for whoever has a gateway to follow.
    pub guard: Option<Policy>,
}

/// Makes terms of the cluster's document.
pub trait TermsReader: fmt::Debug + Send + Sync + 'static {
    /// What holds when this is the document, over what is said elsewhere. May read files: it is called on a thread that may
    /// be kept.
    ///
    /// # Errors
    /// What is wrong, with its key, as [`Settings::put`] answers it.
    fn read(&self, document: &str) -> Result<Terms, ControlError>;
}

/// The terms that are in force, as they are shown and as they are.
#[derive(Clone, Debug)]
pub(super) struct InForce {
    pub(super) view: SettingsView,
    pub(super) terms: Arc<Terms>,
}

/// A document that was read.
struct Read {
    terms: Terms,
    rules: Rules,
    entries: Vec<Entry>,
    view: SettingsView,
}

// === impl Terms ===

impl Terms {
    /// The engines as they are wanted: what is found out about a release is no part of what was told.
    fn bare_engines(&self) -> Vec<WantedEngine> {
        let bare = self.engines.iter().map(|one| WantedEngine {
            release: None,
            ..one.without_secrets()
        });
        bare.collect()
    }

    /// How they are shown; what is of the control plane alone is as it was.
    pub(super) fn view(&self, version: u64, before: &SettingsView) -> SettingsView {
        let Self {
            declared,
            engines: _,
            pools,
            pacing,
            queue,
            policy,
            weights,
            hub,
            guard,
        } = self;
        SettingsView {
            models: declared.iter().map(Model::without_secrets).collect(),
            engines: self.bare_engines(),
            pools: pools.by_name().clone(),
            placement_policy: policy.to_string(),
            scaling: Some((*pacing).into()),
            queue: *queue,
            evict_weights: weights.evict,
            mirror: weights.mirror.as_deref().map(without_secrets),
            hub: hub.as_deref().map(without_secrets),
            guard: guard.as_ref().map(|policy| policy.definition().clone()),
            version,
            problem: None,
            ..before.clone()
        }
    }
}

#[async_trait]
impl Settings for ControllerHandle {
    async fn settings(&self) -> Result<SettingsView, ControlError> {
        Ok(self.shared.in_force.borrow().view.clone())
    }

    async fn document(&self, version: Option<u64>) -> Result<SettingsDocument, ControlError> {
        let found = match version {
            Some(0) => None,
            Some(version) => Some(self.shared.stored(version).await?),
            None => self.shared.newest().await?,
        };
        Ok(settings_document(found))
    }

    async fn history(
        &self,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<SettingsVersion>, ControlError> {
        let found = self.shared.store.settings_history(before, limit).await;
        let found = found.map_err(|error| from_store(&error))?;
        Ok(found.into_iter().map(settings_version).collect())
    }

    async fn put(&self, document: String, base: Option<u64>) -> Result<SettingsKept, ControlError> {
        self.take(Text::New { document, base }).await
    }

    async fn roll_back(&self, version: u64) -> Result<SettingsKept, ControlError> {
        self.take(Text::Of(version)).await
    }

    async fn try_out(&self, document: String) -> Result<SettingsTrial, ControlError> {
        let shared = &self.shared;
        let Read { terms, view, .. } = shared.read(document).await?;
        let InForce {
            view: now,
            terms: before,
        } = shared.in_force.borrow().clone();
        let snapshot = shared.snapshot();
        check_against(&snapshot, &terms)?;
        let changes = changed_models(&before.declared, &terms.declared);
        let told = Snapshot {
            policy: terms.policy,
            pools: Arc::new(terms.pools),
            ..(*snapshot).clone()
        };
        let outcome = shared.plan(Arc::new(told), changes).await?;
        Ok(SettingsTrial {
            base: now.version,
            changes: settings_changes(&now, &view),
            outcome,
        })
    }
}

/// Where a text comes from.
enum Text {
    New { document: String, base: Option<u64> },
    Of(u64),
}

impl ControllerHandle {
    /// The terms that are in force; replaced whenever they change.
    #[must_use]
    pub fn terms(&self) -> watch::Receiver<Arc<Terms>> {
        self.shared.terms.subscribe()
    }

    /// Reads everything again: the document, should another have written it, and what it stands over. What can't be right
    /// is shown with the settings, and those before stay in force.
    ///
    /// # Errors
    /// When the store does not answer, or what is written now can't be right.
    pub async fn reread_terms(&self) -> Result<(), ControlError> {
        let shared = Arc::clone(&self.shared);
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let newest = shared.newest().await?;
            let version = newest.as_ref().map_or(0, |one| one.version);
            let text = newest.map(|one| one.text).unwrap_or_default();
            let applied = async {
                let mut read = shared.read(text).await?;
                check_against(&shared.snapshot(), &read.terms)?;
                read.view.version = version;
                shared.apply(read).await
            };
            let applied = applied.await;
            if let Err(error) = &applied {
                let problem = error.to_string();
                shared.in_force.send_if_modified(|in_force| {
                    let is_new = in_force.view.problem.as_ref() != Some(&problem);
                    in_force.view.problem = Some(problem);
                    is_new
                });
            }
            applied
        })
        .await
    }

    async fn take(&self, text: Text) -> Result<SettingsKept, ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let newest = shared.newest().await?;
            let version = newest.as_ref().map_or(0, |one| one.version);
            let (text, brings_back) = match text {
                Text::New { document, base } => {
                    check_base(base, version)?;
                    (document, None)
                }
                Text::Of(0) => (String::new(), Some(0)),
                Text::Of(back) => (shared.stored(back).await?.text, Some(back)),
            };
            let mut read = shared.read(text.clone()).await?;
            check_against(&shared.snapshot(), &read.terms)?;
            let before = shared.in_force.borrow().view.clone();
            let is_the_same = newest.map_or(String::new(), |one| one.text) == text;
            let stored = StoredSettings {
                version: version + u64::from(!is_the_same),
                text,
                about: AboutSettings {
                    by: actor.to_string(),
                    at: shared.clock.now(),
                    brings_back,
                },
            };
            read.view.version = stored.version;
            let kept = SettingsKept {
                version: stored.version,
                brings_back: brings_back.filter(|_| !is_the_same),
                changes: settings_changes(&before, &read.view),
            };
            if !is_the_same {
                let action = match brings_back {
                    None => "settings.put",
                    Some(_) => "settings.rollback",
                };
                let subject = stored.subject();
                let writes = [Write::AddSettings(Box::new(stored))];
                shared.commit(&actor, action, &subject, &writes).await?;
            }
            shared.apply(read).await?;
            Ok(kept)
        })
        .await
    }
}

impl Shared {
    async fn newest(&self) -> Result<Option<StoredSettings>, ControlError> {
        let found = self.store.settings(None).await;
        found.map_err(|error| from_store(&error))
    }

    async fn stored(&self, version: u64) -> Result<StoredSettings, ControlError> {
        let found = self.store.settings(Some(version)).await;
        let found = found.map_err(|error| from_store(&error))?;
        found.ok_or_else(|| unknown_version(version))
    }

    /// What a document comes to, beside what is said elsewhere.
    async fn read(&self, document: String) -> Result<Read, ControlError> {
        check_document(&document)?;
        let Some(reader) = self.terms_reader.clone() else {
            let message = "this control plane takes no settings while it runs";
            return Err(ControlError::new(Code::NoStore, message));
        };
        let reading = tokio::task::spawn_blocking(move || {
            let terms = reader.read(&document)?;
            // To make rules ready takes a while, and more than a look.
            let rules = ready_rules(&terms)?;
            Ok::<_, ControlError>((terms, rules))
        });
        let (terms, rules) = reading.await.map_err(|error| {
            ControlError::new(Code::Internal, format!("reading the settings: {error}"))
        })??;
        let entries = declared_entries(terms.declared.clone(), self.clock.now());
        let entries = entries
            .map_err(|error| ControlError::new(Code::InvalidRequest, format!("models: {error}")))?;
        let in_force = self.in_force.borrow();
        let view = terms.view(in_force.view.version, &in_force.view);
        Ok(Read {
            terms,
            rules,
            entries: entries.into_values().collect(),
            view,
        })
    }

    /// Puts terms in force.
    async fn apply(&self, read: Read) -> Result<(), ControlError> {
        let Read {
            terms,
            rules,
            entries,
            view,
        } = read;
        let terms = Arc::new(terms);
        self.lift_what_is_gone(&terms).await?;
        let event = Event::Terms {
            entries,
            engines: terms.engines.clone(),
            pools: terms.pools.clone(),
            pacing: terms.pacing,
            policy: terms.policy,
            weights: Box::new(terms.weights.clone()),
        };
        self.tell(event).await?;
        self.bring_back_added().await?;
        self.guard.replace(rules);
        self.in_force.send_replace(InForce {
            view,
            terms: Arc::clone(&terms),
        });
        self.terms.send_replace(terms);
        Ok(())
    }

    /// Models that were added, and that a declared one of their names stood before: it stands there no more.
    async fn bring_back_added(&self) -> Result<(), ControlError> {
        let stored = self.store.models().await;
        for stored in stored.map_err(|error| from_store(&error))? {
            let snapshot = self.snapshot();
            let model = &stored.model;
            let is_free = std::iter::once(model.name())
                .chain(model.aliases())
                .all(|name| snapshot.resolve(name).is_none());
            if is_free {
                let entry = Box::new(Entry::added(stored.model, stored.added_at));
                self.tell(Event::Added { entry }).await?;
            }
        }
        Ok(())
    }

    /// What was ordered of a declared model that goes goes with it: another of its name is another.
    async fn lift_what_is_gone(&self, terms: &Terms) -> Result<(), ControlError> {
        let snapshot = self.snapshot();
        let stays = |name| terms.declared.iter().any(|model| model.name() == name);
        let gone = snapshot
            .entries
            .values()
            .filter(|entry| entry.origin == Origin::Declared && !stays(entry.model.name()));
        let subjects = gone.flat_map(|entry| Subject::of_model(entry.model.name()));
        let ordered: Vec<Subject> = subjects
            .filter(|subject| snapshot.orders.get(subject).is_some())
            .collect();
        for subject in ordered {
            let lift = [Write::LiftOrder(subject.clone())];
            let itself = Actor::itself();
            self.commit(&itself, "order.lift", &subject.name(), &lift)
                .await?;
            self.tell(Event::Lifted { subject }).await?;
        }
        Ok(())
    }
}

/// The guard's rules by these terms, ready.
pub(super) fn ready_rules(terms: &Terms) -> Result<Rules, DefinitionError> {
    Rules::ready(terms.guard.clone().unwrap_or_else(Policy::baseline))
}

/// Refuses terms that contradict what was added or ordered beside them.
fn check_against(snapshot: &Snapshot, terms: &Terms) -> Result<(), ControlError> {
    let conflict = |message: String, hint: &str| {
        Err(ControlError::new(Code::Conflict, message).with_hint(hint))
    };
    let added = snapshot
        .entries
        .values()
        .filter(|entry| entry.origin == Origin::Added)
        .map(|entry| &entry.model);
    for model in &terms.declared {
        let names = std::iter::once(model.name()).chain(model.aliases());
        for name in names {
            if let Some(other) = added.clone().find(|one| one.answers_to(name.as_str())) {
                let message = format!(
                    "models.{}: the name {name} is that of {}, which was added",
                    model.name(),
                    other.name()
                );
                return conflict(
                    message,
                    "remove that model first, or give this one another name",
                );
            }
        }
    }
    let wishes = wishes(&snapshot.orders.engines_over(&terms.engines));
    for model in added.clone() {
        let named = |error: ControlError| {
            let message = format!("{}, which was added, could not run: {error}", model.name());
            ControlError {
                code: Code::Conflict,
                message,
                hint: Some("remove that model first, or keep what it needs".to_owned()),
            }
        };
        check_pools(model, &terms.pools).map_err(|error| named(error.into()))?;
        check_engines(model, &wishes).map_err(named)?;
    }
    for stored in snapshot.orders.iter() {
        if let Order::Hold(hold) = &stored.order
            && let HoldScope::Pool(pool) = &hold.scope
            && !terms.pools.by_name().contains_key(pool)
        {
            let message = format!("pools.{pool}: the hold {} is on this pool", hold.name);
            return conflict(message, "lift that hold first, or keep the pool");
        }
    }
    let all: Vec<&Model> = terms.declared.iter().chain(added).collect();
    if let Some(fault) = fallback_faults(&all).into_iter().next() {
        let name = all.get(fault.at).map_or("", |model| model.name().as_str());
        let error = fault.error;
        return conflict(
            format!("models.{name}.{error}"),
            "keep the model that is fallen back to, or leave it out of the fallbacks",
        );
    }
    Ok(())
}

/// What differs between declared models, as changes for a plan. What is not complete is planned by nobody yet.
fn changed_models(before: &[Model], after: &[Model]) -> Vec<Change> {
    let named = |all: &'_ [Model], name| all.iter().any(|model: &Model| model.name() == name);
    let gone = before
        .iter()
        .filter(|model| model.is_complete() && !named(after, model.name()))
        .map(|model| Change::Remove(model.name().clone()));
    let there = after.iter().filter(|model| model.is_complete());
    let made = there.filter_map(|model| {
        let definition = Box::new(ModelDefinition::from(model.clone()));
        match before.iter().find(|one| one.name() == model.name()) {
            Some(same) if same == model => None,
            Some(other) if other.is_complete() => Some(Change::Edit(definition)),
            _ => Some(Change::Add(definition)),
        }
    });
    gone.chain(made).collect()
}
