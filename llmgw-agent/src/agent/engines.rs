//! The engines that this node should have: one task each, until it is installed.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use llmgw_core::{
    clock::Clock,
    cluster::{
        engine::{Provision, ProvisionState, WantedEngine},
        node::NodeFacts,
        weights::{FetchProgress, Weights},
    },
    error::{Chain, Coded as _},
    id::EngineName,
    units::Bytes,
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::customs::Customs;
use crate::{
    engine::{Engine, InstalledEngine, custom, engine},
    provision::Provisioner,
    supervise::{Failure, Parts},
    weights::WeightsStore,
};

/// Installs what is wanted, and tries again what fails.
#[derive(Debug)]
pub(super) struct Engines {
    provisioner: Provisioner,
    clock: Arc<dyn Clock>,
    customs: Customs,
    installations: watch::Sender<BTreeMap<EngineName, Installation>>,
    workers: Mutex<BTreeMap<EngineName, CancellationToken>>,
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
    weights: WeightsStore,
    facts: watch::Receiver<NodeFacts>,
}

// === impl Engines ===

impl Engines {
    pub(super) fn new(provisioner: Provisioner, clock: Arc<dyn Clock>, customs: Customs) -> Self {
        Self {
            provisioner,
            clock,
            customs,
            installations: watch::Sender::default(),
            workers: Mutex::default(),
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

    /// Wants these engines, and no others; returns at once. What is not wanted any more stays on the disk.
    pub(super) fn want(self: &Arc<Self>, wanted: &[WantedEngine]) {
        self.customs.learn(wanted);
        let wanted: BTreeMap<&EngineName, &WantedEngine> =
            wanted.iter().map(|one| (&one.name, one)).collect();
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        self.installations.send_if_modified(|installations| {
            let before = installations.len();
            installations.retain(|name, one| {
                let kept = wanted
                    .get(name)
                    .is_some_and(|wanted| **wanted == one.wanted);
                if !kept && let Some(worker) = workers.remove(name) {
                    worker.cancel();
                }
                kept
            });
            let mut changed = installations.len() != before;
            for (name, wanted) in wanted {
                if installations.contains_key(name) {
                    continue;
                }
                installations.insert(name.clone(), Installation::pending(wanted.clone()));
                let worker = self.stop.child_token();
                workers.insert(name.clone(), worker.clone());
                let install = Arc::clone(self).install(wanted.clone());
                self.tasks.spawn(worker.run_until_cancelled_owned(install));
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

    async fn install(self: Arc<Self>, wanted: WantedEngine) {
        let mut pause = PAUSE_MIN;
        loop {
            let progress = |choice: &str, state| {
                self.update(&wanted, |one| {
                    one.provision.choice = Some(choice.to_owned());
                    one.provision.state = state;
                });
            };
            match self.provisioner.ensure(&wanted, &progress).await {
                Ok(installed) => {
                    let (name, version) = (&installed.name, &installed.version);
                    tracing::info!(engine = %name, version, "an engine is installed");
                    self.update(&wanted, |one| {
                        one.provision.state = ProvisionState::Installed {
                            version: installed.version.clone(),
                            variant: installed.variant.clone(),
                        };
                        one.installed = Some(installed);
                    });
                    return;
                }
                Err(error) => {
                    let text = Chain(&error).to_string();
                    tracing::warn!(engine = %wanted.name, error = text, "an engine is not installed");
                    let retry_at = self.clock.now().plus(pause);
                    self.update(&wanted, |one| {
                        one.provision.state = ProvisionState::Failed {
                            error: text,
                            hint: error.hint(),
                            retry_at,
                        };
                    });
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn update(&self, wanted: &WantedEngine, change: impl FnOnce(&mut Installation)) {
        self.installations.send_if_modified(|installations| {
            // A word that comes after the order was changed is about something else.
            let Some(one) = installations
                .get_mut(&wanted.name)
                .filter(|one| one.wanted == *wanted)
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
            provision: Provision {
                engine: wanted.name.clone(),
                state: ProvisionState::Pending,
                choice: None,
            },
            wanted,
            installed: None,
        }
    }
}

// === impl NodeParts ===

impl NodeParts {
    pub(super) fn new(
        engines: Arc<Engines>,
        weights: WeightsStore,
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
