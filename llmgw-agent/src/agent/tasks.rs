//! What an agent does all the time, a task each, and how that ends.

use std::{net::IpAddr, sync::Arc, time::Duration};

use llmgw_core::{
    api::agent::{DesiredState, Hello, NodeReport, PROTOCOL},
    clock::Clock,
    cluster::{
        node::{NodeFacts, Warning},
        replica::ReplicaSpec,
    },
    error::Chain,
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{AgentConfig, AgentError, Connector, engines::Engines, home::Home};
use crate::{
    facts::{self, Probe, Scene},
    process::{ProcessRuntime as _, native::NativeRuntime},
    session::{
        Session, SessionError,
        fence::{Fence, FenceError, Rank},
        time::ServerTime,
    },
    supervise::{Ending, Supervisor, Timing},
    weights::WeightsStore,
};

/// What the agent's tasks share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) config: AgentConfig,
    pub(super) home: Home,
    pub(super) runtime: Arc<NativeRuntime>,
    pub(super) engines: Arc<Engines>,
    pub(super) weights: Arc<WeightsStore>,
    pub(super) supervisor: Supervisor,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) probes: Arc<Vec<Box<dyn Probe>>>,
    /// The address from which the control plane is spoken with.
    pub(super) address: watch::Sender<Option<IpAddr>>,
    /// What time it was there.
    pub(super) time: watch::Sender<Option<ServerTime>>,
    pub(super) facts: watch::Sender<NodeFacts>,
    pub(super) followed: watch::Sender<Followed>,
    pub(super) desired: watch::Sender<Option<DesiredState>>,
    pub(super) report: watch::Sender<NodeReport>,
    /// Ends the tasks that work.
    pub(super) stop: CancellationToken,
    /// Ends the conversation, after the last report.
    pub(super) closing: CancellationToken,
}

/// What the agent has made of the desired states that came.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Followed {
    /// The one that is followed; nothing is before the first of this life.
    rank: Rank,
    /// The highest that was ever followed.
    highest: Rank,
    /// Why the last one can't be followed.
    trouble: Option<String>,
    /// None is followed any more, and nothing runs.
    leaving: bool,
}

impl Followed {
    /// Nothing yet in this life.
    pub(super) fn since(fence: &Fence) -> Self {
        Self {
            highest: fence.highest(),
            ..Self::default()
        }
    }
}

impl Core {
    /// Adopts, works until `shutdown`, ends.
    pub(super) async fn run(
        self: Arc<Self>,
        fence: Fence,
        connector: impl Connector,
        shutdown: CancellationToken,
    ) -> Result<(), AgentError> {
        let ledger = |source| AgentError::Directory {
            path: self.home.dir.join("replicas"),
            source,
        };
        let adoption = self.supervisor.adopt().await.map_err(ledger)?;
        tracing::info!(
            node = %self.home.node,
            data_dir = %self.home.dir.display(),
            adopted = adoption.adopted,
            ended = adoption.ended,
            engines_in = %self.runtime.containment(),
            "the agent runs",
        );
        // So that the first report says something; a disk that hangs is reported without its facts.
        let first = tokio::time::timeout(FIRST_FACTS_WITHIN, self.look()).await;
        if first.is_err() {
            tracing::warn!("looking at the machine takes long");
        }
        self.publish();

        // Who drops this future instead of ordering the shutdown gets what a crash would give: tasks end, engines
        // go on, and the next life takes them over.
        let _ended = (
            self.stop.clone().drop_guard(),
            self.closing.clone().drop_guard(),
        );
        let tasks = TaskTracker::new();
        let until_stopped = || self.stop.clone();
        tasks.spawn(until_stopped().run_until_cancelled_owned(Arc::clone(&self).keep_looking()));
        tasks.spawn(until_stopped().run_until_cancelled_owned(Arc::clone(&self).keep_reporting()));
        tasks.spawn(until_stopped().run_until_cancelled_owned(Arc::clone(&self).follow(fence)));
        tasks.spawn(until_stopped().run_until_cancelled_owned(Arc::clone(&self).keep_stock()));
        tasks.spawn(Arc::clone(&self).converse(connector));
        tasks.close();

        shutdown.cancelled().await;
        self.finish(&tasks).await
    }

    /// Looks at the machine once.
    async fn look(&self) {
        // Without it, what engines hold would count as taken by others: the last facts stay.
        let usage = match self.runtime.usage().await {
            Ok(usage) => usage,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "the engines' memory can't be looked at");
                return;
            }
        };
        let scene = Scene {
            root: self.config.root.clone(),
            held: usage.values().map(|usage| usage.held).sum(),
            ..Scene::here(&self.home.dir)
        };
        let probes = Arc::clone(&self.probes);
        let looked = tokio::task::spawn_blocking(move || facts::look(&probes, &scene));
        if let Ok(mut facts) = looked.await {
            self.config.restrict(&mut facts);
            self.facts.send_replace(facts);
        }
    }

    async fn keep_looking(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.look().await;
        }
    }

    /// Looks at the weights on the disk, collects what was ordered, and removes what was abandoned.
    async fn keep_stock(self: Arc<Self>) {
        let mut cleared_at = None;
        loop {
            let now = tokio::time::Instant::now();
            if cleared_at.is_none_or(|at| now.saturating_duration_since(at) >= CLEAR_EVERY) {
                self.weights.remove_abandoned().await;
                cleared_at = Some(now);
            }
            self.weights.look().await;
            self.weights.collect().await;
            self.weights.tell_headers().await;
            // What others do on the disk is noticed by looking again.
            drop(tokio::time::timeout(LOOK_AT_WEIGHTS_EVERY, self.weights.ordered()).await);
        }
    }

    /// The weights of every replica that is asked for or still here: none of them may be removed.
    fn note_weights_in_use(&self, asked_for: &[ReplicaSpec]) {
        let statuses = self.supervisor.statuses();
        let statuses = statuses.borrow();
        let here = statuses.values().map(|status| &status.spec);
        let specs = here.chain(asked_for);
        let digests = specs.flat_map(|spec| spec.weights.digests()).collect();
        self.weights.set_in_use(digests);
    }

    /// Makes a report whenever something that is in it has changed.
    async fn keep_reporting(self: Arc<Self>) {
        let mut facts = self.facts.subscribe();
        let mut provision = self.engines.watch();
        let mut replicas = self.supervisor.statuses();
        let mut followed = self.followed.subscribe();
        let (mut address, mut time) = (self.address.subscribe(), self.time.subscribe());
        let mut gpus = self.supervisor.gpu_problems();
        let mut stock = self.weights.stock();
        let mut headers = self.weights.headers();
        loop {
            self.publish();
            // The senders live in `self`, so that none of these can fail.
            tokio::select! {
                _ = facts.changed() => {}
                _ = provision.changed() => {}
                _ = replicas.changed() => {}
                _ = followed.changed() => {}
                _ = address.changed() => {}
                _ = time.changed() => {}
                _ = gpus.changed() => {}
                _ = stock.changed() => {}
                _ = headers.changed() => {}
            }
        }
    }

    fn publish(&self) {
        let desired = self.desired.borrow().clone();
        let asked_for = desired.map(|state| state.replicas).unwrap_or_default();
        self.note_weights_in_use(&asked_for);
        let Followed {
            rank: Rank { epoch, revision },
            highest,
            trouble,
            leaving,
        } = self.followed.borrow().clone();
        let mut facts = self.facts.borrow().clone();
        // A captured machine has told its own.
        if let Some(address) = *self.address.borrow() {
            facts.management_address = Some(address.to_string());
        }
        let time = *self.time.borrow();
        if let Some(offset) = time.map(|time| time.offset(self.clock.as_ref())) {
            facts.clock = Some(offset);
            facts.warnings.extend(offset.warning());
        }
        facts.warnings.extend(trouble.map(|text| Warning {
            code: Warning::CANNOT_FOLLOW.to_owned(),
            text,
        }));
        let gpus = self.supervisor.gpu_problems();
        facts
            .warnings
            .extend(gpus.borrow().values().map(|problem| Warning {
                code: Warning::GPU_MEMORY_HELD.to_owned(),
                text: problem.to_string(),
            }));
        facts.warnings.extend(self.engines.warnings());
        facts.warnings.extend(self.runtime.containment().warning());
        let next = NodeReport {
            revision,
            epoch,
            highest_epoch: highest.epoch,
            highest_revision: highest.revision,
            leaving,
            facts,
            provision: self.engines.provision(),
            replicas: self
                .supervisor
                .statuses()
                .borrow()
                .values()
                .cloned()
                .collect(),
            weights: self.weights.stock().borrow().clone(),
            headers: self.weights.headers().borrow().clone(),
        };
        self.report.send_if_modified(|report| {
            let changed = *report != next;
            *report = next;
            changed
        });
    }

    /// Does what the control plane wants, unless it is not its turn.
    async fn follow(self: Arc<Self>, mut fence: Fence) {
        let mut desired = self.desired.subscribe();
        loop {
            let state = desired.borrow_and_update().clone();
            if let Some(state) = state {
                let passing = tokio::task::spawn_blocking(move || {
                    let passed = fence.pass(&state);
                    (fence, state, passed)
                });
                // Only a runtime that goes down keeps it from ending.
                let Ok((back, state, passed)) = passing.await else {
                    return;
                };
                fence = back;
                match passed {
                    Ok(()) => {
                        self.engines.want(&state.engines);
                        self.weights.follow(state.weights);
                        self.note_weights_in_use(&state.replicas);
                        self.supervisor.converge(&state.replicas);
                        let rank = fence.highest();
                        self.note(Followed {
                            rank,
                            highest: rank,
                            ..Followed::default()
                        });
                    }
                    Err(error @ FenceError::Stale { .. }) => {
                        tracing::warn!(error = %Chain(&error), "ignoring a desired state");
                    }
                    Err(error) => {
                        // A state that can't be fenced is not followed, and not forgotten either.
                        let followed = self.followed.borrow().clone();
                        let changed = self.note(Followed {
                            trouble: Some(format!(
                                "what it should do has to wait: {}",
                                Chain(&error)
                            )),
                            ..followed
                        });
                        if changed {
                            tracing::error!(error = %Chain(&error), "a desired state has to wait");
                        }
                        tokio::time::sleep(FENCE_AGAIN).await;
                        continue;
                    }
                }
            }
            if desired.changed().await.is_err() {
                return;
            }
        }
    }

    /// Says whether that is news.
    fn note(&self, next: Followed) -> bool {
        self.followed.send_if_modified(|followed| {
            let news = *followed != next;
            *followed = next;
            news
        })
    }

    /// Speaks with the control plane, one session after the other.
    async fn converse(self: Arc<Self>, connector: impl Connector) {
        let mut pause = PAUSE_MIN;
        let mut last_problem = String::new();
        while !self.closing.is_cancelled() {
            let problem = match self.closing.run_until_cancelled(connector.connect()).await {
                None => return,
                Some(Err(error)) => {
                    format!("the control plane at {connector} can't be reached: {error}")
                }
                Some(Ok(stream)) => {
                    self.address.send_if_modified(|address| {
                        let now = connector.local_address();
                        let changed = *address != now;
                        *address = now;
                        changed
                    });
                    let session = Session {
                        hello: Hello {
                            node: self.home.node,
                            token: self.config.token.clone(),
                            protocol: PROTOCOL,
                            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
                            tells_logs: true,
                        },
                        reports: self.report.subscribe(),
                        desired: &self.desired,
                        time: &self.time,
                        logs: &self.supervisor,
                        clock: self.clock.as_ref(),
                        closing: self.closing.clone(),
                    };
                    let end = session.run(stream).await;
                    if end.welcomed {
                        pause = PAUSE_MIN;
                        last_problem.clear();
                    }
                    if matches!(end.why, SessionError::Closing) {
                        return;
                    }
                    Chain(&end.why).to_string()
                }
            };
            // A control plane that is away for hours is worth one line, not thousands.
            if problem != last_problem {
                tracing::warn!("{problem}; trying again");
                last_problem = problem;
            }
            self.closing
                .run_until_cancelled(tokio::time::sleep(pause))
                .await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Ends the work, tells it, ends the conversation.
    async fn finish(&self, tasks: &TaskTracker) -> Result<(), AgentError> {
        self.engines.close().await;
        let Timing { drain, grace, .. } = self.config.timing;
        let patience = drain + grace + SLACK;
        let ending = self.supervisor.shutdown(self.config.ending);
        let ended = tokio::time::timeout(patience, ending).await;
        self.stop.cancel();
        if ended.is_ok() && self.config.ending == Ending::StopEngines {
            let followed = self.followed.borrow().clone();
            self.note(Followed {
                leaving: true,
                ..followed
            });
        }
        self.publish();
        self.closing.cancel();
        let told = tokio::time::timeout(TELL_WITHIN, tasks.wait()).await;
        if told.is_err() {
            tracing::warn!("the control plane did not take the last report");
        }
        ended.map_err(|_| AgentError::Unfinished { after: patience })
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.engines.abandon();
    }
}

/// Free memory and disk change all the time, and are looked at by a planner that leaves a reserve.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// A listing of a few directories; what the agent itself does is known at once.
const LOOK_AT_WEIGHTS_EVERY: Duration = Duration::from_secs(60);

/// What was abandoned was so for a week.
const CLEAR_EVERY: Duration = Duration::from_secs(86_400);

const FIRST_FACTS_WITHIN: Duration = Duration::from_secs(5);

/// Between two attempts to write to a disk that refuses.
const FENCE_AGAIN: Duration = Duration::from_secs(1);

/// The first pause between two sessions; doubled with each that fails.
const PAUSE_MIN: Duration = Duration::from_millis(200);

/// The longest pause: a control plane that comes back is found again within this time.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Beyond draining and asking: what the kernel may take to free a killed engine's memory.
const SLACK: Duration = Duration::from_secs(15);

const TELL_WITHIN: Duration = Duration::from_secs(2);
