//! The engines that this node should have: one task each, for as long as it is wanted.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use llmgw_core::{
    clock::Clock,
    cluster::{
        engine::{Provision, ProvisionState, WantedEngine},
        node::{NodeFacts, Warning},
        replica::ReplicaSpec,
        weights::{FetchProgress, Weights},
    },
    error::{Chain, Coded as _},
    id::EngineName,
    units::Bytes,
};
use tokio::sync::{Notify, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::customs::Customs;
use crate::{
    engine::{Engine, InstalledEngine, custom, engine},
    facts::gpu::visible,
    provision::{ProvisionError, Provisioner},
    supervise::{Failure, Parts},
    weights::WeightsStore,
};

/// Installs what is wanted, tries again what fails, and looks again and again whether it still works.
#[derive(Debug)]
pub(super) struct Engines {
    provisioner: Provisioner,
    clock: Arc<dyn Clock>,
    check_every: Duration,
    customs: Customs,
    installations: watch::Sender<BTreeMap<EngineName, Installation>>,
    workers: Mutex<BTreeMap<EngineName, CancellationToken>>,
    check_now: Notify,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// One wanted engine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Installation {
    wanted: WantedEngine,
    provision: Provision,
    installed: Option<InstalledEngine>,
}

/// Hands replicas the node's engines and weights.
#[derive(Debug)]
pub(super) struct NodeParts {
    engines: Arc<Engines>,
    weights: Arc<WeightsStore>,
    facts: watch::Receiver<NodeFacts>,
}

// === impl Engines ===

impl Engines {
    /// `check_every` is how often what is installed is looked at again.
    pub(super) fn new(
        provisioner: Provisioner,
        check_every: Duration,
        clock: Arc<dyn Clock>,
        customs: Customs,
    ) -> Self {
        Self {
            provisioner,
            clock,
            check_every,
            customs,
            installations: watch::Sender::default(),
            workers: Mutex::default(),
            check_now: Notify::new(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    /// Wakes when something has changed.
    pub(super) fn watch(&self) -> watch::Receiver<BTreeMap<EngineName, Installation>> {
        self.installations.subscribe()
    }

    /// How far the node is with each wanted engine.
    pub(super) fn provision(&self) -> Vec<Provision> {
        let installations = self.installations.borrow();
        installations
            .values()
            .map(|one| one.provision.clone())
            .collect()
    }

    /// What the operator should know of the choices that were made.
    pub(super) fn warnings(&self) -> Vec<Warning> {
        let installations = self.installations.borrow();
        installations
            .values()
            .flat_map(|one| one.provision.warnings.clone())
            .collect()
    }

    /// Looks at all that is installed now, and not only when its time has come.
    pub(super) fn check_now(&self) {
        self.check_now.notify_waiters();
    }

    /// Wants these engines, and no others; returns at once. What is not wanted any more stays on the disk.
    pub(super) fn want(self: &Arc<Self>, wanted: &[WantedEngine]) {
        self.customs.learn(wanted);
        let wanted: BTreeMap<&EngineName, &WantedEngine> =
            wanted.iter().map(|one| (&one.name, one)).collect();
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        self.installations.send_if_modified(|installations| {
            let before = installations.len();
            installations.retain(|name, one| {
                let kept = wanted.get(name).is_some_and(|wanted| one.serves(wanted));
                if !kept && let Some(worker) = workers.remove(name) {
                    worker.cancel();
                }
                kept
            });
            let mut changed = installations.len() != before;
            for (name, wanted) in wanted {
                if let Some(one) = installations.get_mut(name) {
                    // What the control plane knows of the release by now; the next repair goes by it.
                    one.wanted = wanted.clone();
                    continue;
                }
                installations.insert(name.clone(), Installation::pending(wanted.clone()));
                let worker = self.stop.child_token();
                workers.insert(name.clone(), worker.clone());
                let keep = Arc::clone(self).keep(wanted.clone());
                self.tasks.spawn(worker.run_until_cancelled_owned(keep));
                changed = true;
            }
            changed
        });
    }

    /// Gives up what is under way, without waiting for that.
    pub(super) fn abandon(&self) {
        self.stop.cancel();
    }

    /// Gives up what is under way.
    pub(super) async fn close(&self) {
        self.abandon();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Installs an engine, and keeps it installed.
    async fn keep(self: Arc<Self>, mut wanted: WantedEngine) {
        loop {
            self.install(&wanted).await;
            self.until_broken(&wanted).await;
            let installations = self.installations.borrow();
            if let Some(one) = installations.get(&wanted.name) {
                wanted = one.wanted.clone();
            }
        }
    }

    /// Returns when it is installed.
    async fn install(&self, wanted: &WantedEngine) {
        let mut pause = PAUSE_MIN;
        loop {
            let progress = |told: Provision| {
                self.update(wanted, |one| one.provision = told);
            };
            let wait = match self.provisioner.converge(wanted, &progress).await {
                Ok(installed) => {
                    let (name, version) = (&installed.name, &installed.version);
                    let variant = &installed.variant;
                    tracing::info!(engine = %name, version, variant, "an engine is installed");
                    self.update(wanted, |one| {
                        one.provision.state = ProvisionState::Installed {
                            version: installed.version.clone(),
                            variant: installed.variant.clone(),
                        };
                        one.installed = Some(installed);
                    });
                    return;
                }
                Err(ProvisionError::Waiting { reason, again }) => {
                    tracing::info!(engine = %wanted.name, reason, "an engine has to wait");
                    // Without a time of its own it is the control plane that ends it, with another order.
                    let wait = again.unwrap_or(PAUSE_MAX);
                    let retry_at = again.map(|again| self.clock.now().plus(again));
                    self.update(wanted, |one| {
                        one.provision.state = ProvisionState::Waiting { reason, retry_at };
                    });
                    wait
                }
                Err(error) => {
                    let text = Chain(&error).to_string();
                    tracing::warn!(engine = %wanted.name, error = text, "an engine is not installed");
                    let retry_at = self.clock.now().plus(pause.min(most_of(&error)));
                    self.update(wanted, |one| {
                        if let ProvisionError::NoBuild(none) = &error {
                            one.provision.passed_over.clone_from(&none.passed_over);
                            one.provision.warnings.clone_from(&none.warnings);
                        }
                        one.provision.state = ProvisionState::Failed {
                            error: text,
                            hint: error.hint(),
                            retry_at,
                        };
                    });
                    let most = most_of(&error);
                    let wait = pause.min(most);
                    pause = (pause * 2).min(most);
                    wait
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // Who has mended something says so, and does not want to wait.
                () = self.check_now.notified() => {}
            }
        }
    }

    /// Looks at what is installed, when its time has come and when it is asked for; returns when something is
    /// wrong with it, and that is said.
    async fn until_broken(&self, wanted: &WantedEngine) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.check_every) => {}
                () = self.check_now.notified() => {}
            }
            let Err(error) = self.provisioner.check(wanted).await else {
                continue;
            };
            let problem = Chain(&error).to_string();
            tracing::warn!(engine = %wanted.name, problem, "an engine does not work any more");
            self.update(wanted, |one| {
                one.installed = None;
                one.provision.state =
                    ProvisionState::step(format!("mending what has broken since: {problem}"));
            });
            return;
        }
    }

    fn update(&self, wanted: &WantedEngine, change: impl FnOnce(&mut Installation)) {
        self.installations.send_if_modified(|installations| {
            // A word that comes after the order was changed is about something else.
            let Some(one) = installations
                .get_mut(&wanted.name)
                .filter(|one| one.wanted.asks_the_same(wanted))
            else {
                return false;
            };
            let before = one.clone();
            change(one);
            *one != before
        });
    }
}

// === impl Installation ===

impl Installation {
    fn pending(wanted: WantedEngine) -> Self {
        Self {
            provision: Provision::new(wanted.name.clone(), ProvisionState::Pending),
            wanted,
            installed: None,
        }
    }

    /// Whether what is there or under way is what is wanted now. Once it is installed, what the control plane
    /// learns of the release changes nothing.
    fn serves(&self, wanted: &WantedEngine) -> bool {
        self.wanted == *wanted || self.installed.is_some() && self.wanted.asks_the_same(wanted)
    }
}

// === impl NodeParts ===

impl NodeParts {
    pub(super) fn new(
        engines: Arc<Engines>,
        weights: Arc<WeightsStore>,
        facts: watch::Receiver<NodeFacts>,
    ) -> Self {
        Self {
            engines,
            weights,
            facts,
        }
    }
}

#[async_trait]
impl Parts for NodeParts {
    fn engine(&self, name: &EngineName) -> Option<Arc<dyn Engine>> {
        let described = self.engines.customs.get(name);
        described
            .map(|description| custom(name, &description))
            .or_else(|| engine(name))
    }

    fn visible_gpus(&self, indices: &[u32]) -> Vec<(OsString, OsString)> {
        let facts = self.facts.borrow();
        visible(facts.gpus.as_deref().unwrap_or_default(), indices)
    }

    async fn installed(
        &self,
        name: &EngineName,
        waiting: &(dyn Fn(Failure) + Send + Sync),
    ) -> Result<InstalledEngine, Failure> {
        let mut installations = self.engines.watch();
        loop {
            let one = installations.borrow_and_update().get(name).cloned();
            match one {
                None => {
                    return Err(Failure {
                        error: format!("this node is not to have the engine {name}"),
                        hint: Some("add it to the engines that nodes should have".to_owned()),
                    });
                }
                Some(Installation {
                    installed: Some(installed),
                    ..
                }) => return Ok(installed),
                Some(one) => {
                    if let ProvisionState::Failed { error, hint, .. } = one.provision.state {
                        waiting(Failure { error, hint });
                    }
                }
            }
            if installations.changed().await.is_err() {
                return Err(Failure::new("the agent is stopping"));
            }
        }
    }

    async fn weights(
        &self,
        weights: &Weights,
        progress: &(dyn Fn(FetchProgress) + Send + Sync),
    ) -> Result<PathBuf, Failure> {
        let ensured = self.weights.ensure(weights, progress).await;
        ensured.map_err(|error| Failure::of(&error))
    }

    async fn proven(
        &self,
        installed: &InstalledEngine,
        spec: &ReplicaSpec,
        weights: &Path,
    ) -> Result<(), Failure> {
        let provisioner = &self.engines.provisioner;
        let visible = self.visible_gpus(&spec.gpus);
        let proven = provisioner
            .prove(installed, weights, &spec.gpus, &visible)
            .await;
        proven.map_err(|error| Failure::of(&error))
    }

    fn card(&self, gpus: &[u32]) -> Option<Bytes> {
        let facts = self.facts.borrow();
        if gpus.is_empty() {
            return Some(facts.memory?.total);
        }
        let known = facts.gpus.as_ref()?;
        let memory = |number: &u32| {
            let gpu = known.iter().find(|gpu| gpu.index == *number)?;
            gpu.memory_total
        };
        // Of one that is not known the smallest can't be told.
        let memories: Option<Vec<Bytes>> = gpus.iter().map(memory).collect();
        memories?.into_iter().min()
    }
}

const PAUSE_MIN: Duration = Duration::from_secs(5);

/// A missing interpreter or a full disk takes a person; a person who has helped does not want to wait longer.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// A build that does not work on a machine is downloaded and tried again for as long as it takes; that changes only
/// when the machine does.
const LASTING: Duration = Duration::from_secs(600);

/// The longest pause after such a failure.
fn most_of(error: &ProvisionError) -> Duration {
    if error.is_lasting() {
        LASTING
    } else {
        PAUSE_MAX
    }
}

#[cfg(test)]
mod tests;
