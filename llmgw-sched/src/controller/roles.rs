//! The control roles, as the controller plays them.

use std::{
    future::Future,
    sync::{Arc, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use llmgw_core::{
    api::{
        admin::{Explanation, ModelView, NodeView, Origin, Replaced, ReplicaView, Summary},
        decision::Decision,
        frozen::Thawed,
        orders::{
            LogView, NodeStateRequest, NodeStateView, RollRequest, Rolled, ScaleRequest, Scaled,
        },
        whatif::{self, Change, Outcome},
    },
    cluster::{
        catalog::{Model, ModelDefinition},
        engine::KNOWN_ENGINES,
        order::Subject,
        scaling::Scaling,
    },
    control::{
        Activation, Catalog, ControlError, Fleet, check_addition, check_removal, check_replacement,
        is_declared, is_let_in,
    },
    error::{Chain, Code, Coded},
    id::ModelName,
    reason::render,
    route::Waiting,
    store::{Epoch, StoreError, StoredModel, Write},
};
use tokio::{sync::oneshot, time::timeout};

use super::{
    ControllerHandle, Shared, chronicle,
    loop_task::Event as Told,
    ordering,
    views::{self, Surroundings},
};
use crate::{
    conductor::{
        Event,
        snapshot::{Entry, Snapshot},
    },
    planner::{self, Wanted},
    reconcile::{Inputs, Wish},
    whatif::what_if,
};

#[async_trait]
impl Catalog for ControllerHandle {
    async fn models(&self) -> Result<Vec<ModelView>, ControlError> {
        let shared = &self.shared;
        Ok(views::models(&shared.snapshot(), shared.clock.monotonic()))
    }

    async fn add(&self, definition: ModelDefinition) -> Result<ModelName, ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let snapshot = shared.snapshot();
            let existing = snapshot.entries.values().map(|entry| &entry.model);
            let model = check_addition(definition, existing, &snapshot.pools)?;
            check_engines(&model, &snapshot.engines)?;
            let model = StoredModel {
                model,
                added_at: shared.clock.now(),
            };
            let name = model.model.name().clone();
            let entry = Box::new(Entry::added(model.model.clone(), model.added_at));
            let writes = [Write::AddModel(Box::new(model))];
            shared
                .commit(&actor, "model.add", name.as_str(), &writes)
                .await?;
            shared.tell(Event::Added { entry }).await?;
            Ok(name)
        })
        .await
    }

    async fn replace(
        &self,
        name: &ModelName,
        definition: ModelDefinition,
    ) -> Result<Replaced, ControlError> {
        self.replace_model(name, definition).await
    }

    async fn remove(&self, name: &ModelName) -> Result<(), ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        let name = name.clone();
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let snapshot = shared.snapshot();
            added(&snapshot, &name)?;
            check_removal(&name, snapshot.entries.values().map(|entry| &entry.model))?;
            // What was ordered of it ends with it: another of its name is another.
            let ordered = Subject::of_model(&name)
                .into_iter()
                .filter(|subject| snapshot.orders.get(subject).is_some());
            let ordered: Vec<Subject> = ordered.collect();
            let lifts = ordered.iter().cloned().map(Write::LiftOrder);
            let mut writes = vec![Write::RemoveModel(name.clone())];
            writes.extend(lifts);
            shared
                .commit(&actor, "model.remove", name.as_str(), &writes)
                .await?;
            for subject in ordered {
                shared.tell(Event::Lifted { subject }).await?;
            }
            shared.tell(Event::Removed { model: name }).await
        })
        .await
    }

    async fn explain(&self, name: &ModelName) -> Result<Explanation, ControlError> {
        let shared = &self.shared;
        let snapshot = shared.snapshot();
        let now = shared.clock.monotonic();
        let entry = known(&snapshot, name)?;
        let model = &snapshot.completed(entry);
        let Inputs { fleet, wanted } = snapshot.inputs(model, now);
        let options = snapshot.intent().options();
        let mut report = planner::explain(&fleet, &wanted, model.name(), &options)
            .ok_or_else(|| ControlError::unknown_model(name))?;
        let standing = snapshot.waiting(entry, now);
        if !model.is_complete() {
            // Nothing was tried: what it needs is not known.
            report.fits = None;
            report.nearest = None;
            report.rejections.clear();
            report.remedies.clear();
        }
        report
            .remedies
            .splice(..0, views::downloads(&snapshot, model.name()));
        let target = snapshot.memory.target(model);
        let placed = snapshot.memory.serving(model.name()) >= u64::from(target);
        let counting = snapshot
            .memory
            .assignments
            .iter()
            .filter(|(_, given)| given.spec.model == *model.name() && given.draining.is_none());
        Ok(Explanation {
            model: model.name().clone(),
            replicas: counting.map(|(id, _)| *id).collect(),
            headline: match standing {
                // It would fit, and does not run all the same: that is the reason to tell.
                Waiting::Parked(why) if !placed => {
                    format!("{why}; `llmgw ctl retry {}` tries it again", model.name())
                }
                Waiting::Loading(why) if !placed && report.fits.is_some() => why,
                Waiting::Loading(why) | Waiting::Unplaceable(why) if !model.is_complete() => why,
                Waiting::Off(why) => why,
                Waiting::Parked(_) | Waiting::Loading(_) | Waiting::Unplaceable(_) => {
                    render::headline(&report)
                }
            },
            placed,
            report,
            attention: views::held_up(&snapshot, model.name(), now),
        })
    }

    async fn decisions(
        &self,
        model: Option<&ModelName>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<Decision>, ControlError> {
        let snapshot = self.shared.snapshot();
        chronicle::read(&snapshot, model, after, limit)
    }

    async fn scale(&self, name: &ModelName, scale: ScaleRequest) -> Result<Scaled, ControlError> {
        self.scale_model(name, scale).await
    }

    async fn roll(&self, name: &ModelName, roll: RollRequest) -> Result<Rolled, ControlError> {
        self.roll_model(name, roll).await
    }

    async fn retry(&self, name: &ModelName) -> Result<(), ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        let name = name.clone();
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let snapshot = shared.snapshot();
            let model = known(&snapshot, &name)?.model.name().clone();
            let subject = Subject::Park(model.clone());
            let writes = match snapshot.orders.get(&subject) {
                Some(_) => vec![Write::LiftOrder(subject)],
                None => Vec::new(),
            };
            let history = snapshot.memory.histories.get(&model);
            let has_failed = history.is_some_and(|history| history.failures > 0 || history.parked);
            // Where there is nothing to forgive, nothing was ordered.
            if has_failed || !writes.is_empty() {
                shared
                    .commit(&actor, "model.retry", model.as_str(), &writes)
                    .await?;
            }
            // The loop lifts the order that stands itself.
            shared.tell(Event::Retry { model }).await
        })
        .await
    }
}

#[async_trait]
impl Fleet for ControllerHandle {
    async fn summary(&self) -> Result<Summary, ControlError> {
        let shared = &self.shared;
        let now = shared.clock.monotonic();
        let around = Surroundings {
            version: shared.version.clone(),
            epoch: *shared.leading.borrow(),
            store_trouble: shared.store_trouble.borrow().clone(),
            settings_problem: shared.in_force.borrow().view.problem.clone(),
            store: shared.store.describe(),
            uptime: now.saturating_sub(shared.started),
            requests: shared.traffic.get().map_or(0, |traffic| traffic.requests()),
        };
        Ok(views::summary(&shared.snapshot(), around, now))
    }

    async fn nodes(&self) -> Result<Vec<NodeView>, ControlError> {
        Ok(views::nodes(
            &self.shared.snapshot(),
            self.shared.clock.monotonic(),
        ))
    }

    async fn replicas(&self, model: Option<&ModelName>) -> Result<Vec<ReplicaView>, ControlError> {
        let shared = &self.shared;
        let snapshot = shared.snapshot();
        let only = match model {
            Some(name) => Some(known(&snapshot, name)?.model.name()),
            None => None,
        };
        let traffic = shared.traffic.get().map(|traffic| &**traffic);
        Ok(views::replicas(
            &snapshot,
            only,
            traffic,
            shared.clock.monotonic(),
        ))
    }

    async fn use_node(
        &self,
        node: &str,
        wanted: NodeStateRequest,
    ) -> Result<NodeStateView, ControlError> {
        self.order_node(node, wanted).await
    }

    async fn thaw(&self) -> Result<Thawed, ControlError> {
        self.thaw_moves().await
    }

    async fn approve(&self, node: &str) -> Result<NodeStateView, ControlError> {
        let snapshot = self.shared.snapshot();
        let id = ordering::node(&snapshot, node)?;
        Err(is_let_in(&snapshot.hostname(id)))
    }

    async fn logs(&self, model: &ModelName) -> Result<Vec<LogView>, ControlError> {
        let snapshot = self.shared.snapshot();
        let model = known(&snapshot, model)?.model.name();
        Ok(views::logs(&snapshot, model))
    }

    async fn snapshot(&self) -> Result<whatif::Snapshot, ControlError> {
        let shared = &self.shared;
        let snapshot = shared.snapshot();
        let fleet = snapshot.fleet(shared.clock.monotonic()).sorted();
        let fleet = serde_json::to_value(fleet).map_err(|error| {
            ControlError::new(Code::Internal, format!("writing the fleet: {error}"))
        })?;
        let models = snapshot
            .entries
            .values()
            .map(|entry| snapshot.completed(entry).without_secrets());
        Ok(whatif::Snapshot {
            policy: snapshot.policy.as_str().to_owned(),
            fleet,
            models: models.collect(),
        })
    }

    async fn plan(&self, changes: &[Change]) -> Result<Outcome, ControlError> {
        let shared = &self.shared;
        shared.plan(shared.snapshot(), changes.to_vec()).await
    }
}

impl Shared {
    /// What changes would do from there, on a thread of its own.
    pub(super) async fn plan(
        &self,
        snapshot: Arc<Snapshot>,
        changes: Vec<Change>,
    ) -> Result<Outcome, ControlError> {
        // One at a time: each may keep a processor busy for a while, and the loop needs one too.
        let turn = Arc::clone(&self.plans).acquire_owned().await;
        let turn = turn.map_err(|_| stopping())?;
        let now = self.clock.monotonic();
        let options = snapshot.intent().options();
        let answer = self.tasks.spawn_blocking(move || {
            let _held_to_the_end = turn;
            let models = snapshot.entries.values();
            let models = models.map(|entry| as_wanted_now(&snapshot, entry));
            let wanted = Wanted {
                // What is not complete is planned by nobody yet.
                models: models.filter(Model::is_complete).collect(),
            };
            what_if(&snapshot.fleet(now), &wanted, &changes, &options)
        });
        let outcome = answer.await.map_err(|error| {
            if error.is_panic() {
                ControlError::new(Code::Internal, "the planner failed: a fault of llmgw's own")
            } else {
                stopping()
            }
        })?;
        outcome.map_err(ControlError::from)
    }
}

/// A model with as many replicas as it should have now; one that nobody asks for now stays on demand.
fn as_wanted_now(snapshot: &Snapshot, entry: &Entry) -> Model {
    let model = snapshot.completed(entry);
    match snapshot.memory.target(&model) {
        target if target > model.scaling().min() => model.scaled(Scaling::fixed(target)),
        _ => model,
    }
}

#[async_trait]
impl Activation for ControllerHandle {
    async fn activate(&self, model: &ModelName) -> Option<Waiting> {
        let now = self.shared.clock.monotonic();
        if let Some(waiting) = self.shared.tried_just_now(model, now) {
            return Some(waiting);
        }
        let (answer, answered) = oneshot::channel();
        let asked = Told::Asked {
            model: model.clone(),
            answer,
        };
        let fresh = async {
            self.shared.events.send(asked).await.ok()?;
            answered.await.ok()
        };
        if let Ok(Some(waiting)) = timeout(ATTEMPT_DEADLINE, fresh).await {
            return waiting;
        }
        // The loop is gone or does not answer: what was known last.
        let routes = self.shared.routes.borrow();
        let route = routes.resolve(model.as_str()).ok()?;
        route.endpoints.is_empty().then(|| route.waiting.clone())
    }
}

// === impl ControllerHandle ===

impl ControllerHandle {
    async fn replace_model(
        &self,
        name: &ModelName,
        definition: ModelDefinition,
    ) -> Result<Replaced, ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        let name = name.clone();
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let snapshot = shared.snapshot();
            let since = added(&snapshot, &name)?.since;
            let existing = snapshot.entries.values().map(|entry| &entry.model);
            let model = check_replacement(&name, definition, existing, &snapshot.pools)?;
            check_engines(&model, &snapshot.engines)?;
            let entry = Box::new(Entry::added(model.clone(), since));
            let stored = StoredModel {
                model,
                added_at: since,
            };
            let writes = [
                Write::RemoveModel(name.clone()),
                Write::AddModel(Box::new(stored)),
            ];
            shared
                .commit(&actor, "model.replace", name.as_str(), &writes)
                .await?;
            shared.tell(Event::Added { entry }).await?;
            let now = shared.clock.monotonic();
            let replicas = views::replicas(&shared.snapshot(), Some(&name), None, now);
            Ok(Replaced {
                replaced: name,
                stale: views::stale(&replicas),
            })
        })
        .await
    }

    /// Runs a write to its end even if the caller goes away: the store and the loop must not disagree.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        write: impl Future<Output = Result<T, ControlError>> + Send + 'static,
    ) -> Result<T, ControlError> {
        if self.shared.stopping.is_cancelled() {
            return Err(stopping());
        }
        self.shared
            .tasks
            .spawn(write)
            .await
            .map_err(|_| stopping())?
    }
}

// === impl Shared ===

impl Shared {
    /// What came of the attempt to place a model, when there was one within the last second and the model fits nowhere:
    /// a client that asks again and again makes the planner work no more than that.
    fn tried_just_now(&self, model: &ModelName, now: Duration) -> Option<Waiting> {
        // The attempts are right after any panic.
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.retain(|_, at| now.saturating_sub(*at) < ATTEMPT_AGAIN);
        let again = attempts.contains_key(model);
        attempts.entry(model.clone()).or_insert(now);
        drop(attempts);
        let routes = self.routes.borrow();
        let route = routes.resolve(model.as_str()).ok()?;
        let unplaceable = matches!(route.waiting, Waiting::Unplaceable(_));
        (again && unplaceable && route.endpoints.is_empty()).then(|| route.waiting.clone())
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.borrow())
    }

    /// The epoch to write with.
    pub(super) fn epoch(&self) -> Result<Epoch, ControlError> {
        self.leading.borrow().map(Epoch).ok_or_else(|| {
            let trouble = self.store_trouble.borrow();
            match trouble.as_deref() {
                Some(trouble) => ControlError::new(
                    Code::Unavailable,
                    format!(
                        "this control plane does not lead, for the store can't be used: {trouble}"
                    ),
                )
                .with_hint("it leads again as soon as the store can be used"),
                None => ControlError::new(Code::Unavailable, "this control plane does not lead")
                    .with_hint("ask again in a few seconds"),
            }
        })
    }

    /// Tells the loop, and waits until it has stepped with it.
    pub(super) async fn tell(&self, event: Event) -> Result<(), ControlError> {
        let (done, finished) = oneshot::channel();
        let told = Told::Done(event, done);
        self.events.send(told).await.map_err(|_| stopping())?;
        finished.await.map_err(|_| stopping())
    }
}

pub(super) fn known<'s>(
    snapshot: &'s Snapshot,
    name: &ModelName,
) -> Result<&'s Entry, ControlError> {
    snapshot
        .resolve(name)
        .ok_or_else(|| ControlError::unknown_model(name))
}

/// The model of this name, when it was added: by its own name, and not declared.
fn added<'s>(snapshot: &'s Snapshot, name: &ModelName) -> Result<&'s Entry, ControlError> {
    let entry = snapshot
        .entries
        .get(name)
        .ok_or_else(|| match snapshot.resolve(name) {
            Some(entry) => {
                let own = entry.model.name();
                ControlError::new(Code::NotFound, format!("{name} is an alias of {own}"))
                    .with_hint("name the model by its own name")
            }
            None => ControlError::unknown_model(name),
        })?;
    match entry.origin {
        Origin::Declared => Err(is_declared(name)),
        Origin::Added => Ok(entry),
    }
}

pub(super) fn from_store(error: &StoreError) -> ControlError {
    let hint = match error {
        StoreError::Fenced { .. } => Some("another control plane has taken over; ask that one"),
        StoreError::Unavailable { .. } => Some("ask again when the store answers"),
        _ => None,
    };
    ControlError {
        code: error.code(),
        message: Chain(error).to_string(),
        hint: hint.map(ToOwned::to_owned),
    }
}

fn stopping() -> ControlError {
    ControlError::new(Code::ShuttingDown, "this control plane is stopping")
}

/// How long a client waits for a fresh attempt to place its model.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(2);
/// How long the last attempt stands for those who ask again.
const ATTEMPT_AGAIN: Duration = Duration::from_secs(1);

/// Refuses a model whose engine no node is to have: it could never run.
pub(super) fn check_engines(model: &Model, wanted: &[Wish]) -> Result<(), ControlError> {
    for (index, profile) in model.profiles().iter().enumerate() {
        let name = &profile.engine;
        let is_known = KNOWN_ENGINES.contains(&name.as_str());
        // Who was told of no engine at all places by what nodes say that they have.
        let is_wanted = wanted.iter().any(|wish| wish.engine == *name);
        if is_wanted || (is_known && wanted.is_empty()) {
            continue;
        }
        let (problem, hint) = if is_known {
            (
                format!("no node is to have {name}"),
                format!(
                    "`llmgw ctl engines set {name} --source auto` has every node get it, or add it to the settings"
                ),
            )
        } else {
            (
                format!("{name} is not an engine"),
                format!(
                    "this release runs {}; describe any other in the settings by its command",
                    KNOWN_ENGINES.join(", ")
                ),
            )
        };
        let error = format!("profiles[{index}].engine: {problem}");
        return Err(ControlError::new(Code::InvalidRequest, error).with_hint(hint));
    }
    Ok(())
}
