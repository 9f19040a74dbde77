//! The agent of one node, put together: what it is made of, how it runs, how it ends.
//!
//! ```text
//!   connector ─▶ session ─▶ fence ─▶ engines, supervisor ─▶ processes
//!                   ▲                     │
//!                   └───── report ◀───────┴── facts
//! ```
//! Each arrow is a task of its own, or a value that the next one watches: a slow disk, a long download or a
//! stuck engine keeps nobody from being heard.

mod connect;
mod engines;
mod error;
mod home;

pub use self::{
    connect::{AddressError, ByteStream, Connector, PipeConnector, TcpConnector},
    error::AgentError,
};

use std::{collections::BTreeMap, ffi::OsString, fmt, path::PathBuf, sync::Arc, time::Duration};

use llmgw_core::{
    api::agent::{DesiredState, Hello, NodeReport, PROTOCOL},
    clock::Clock,
    cluster::node::NodeFacts,
    error::Chain,
    id::{EngineName, NodeId},
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    engines::{Engines, NodeParts},
    home::Home,
};
use crate::{
    facts::{self, Root, Scene},
    process::{
        DATA_DIR_MARK, ProcessRuntime as _, TASK_MARK,
        native::{NativeConfig, NativeRuntime},
    },
    provision::{ProvisionConfig, Provisioner},
    session::{
        Session, SessionError,
        fence::{Fence, FenceError, Rank},
    },
    supervise::{Ending, SuperviseConfig, SuperviseDeps, Supervisor, Timing},
    weights::{WeightsConfig, WeightsStore},
};

/// What an [`Agent`] is made of.
#[derive(Clone)]
pub struct AgentConfig {
    /// Where it keeps everything; made when it is missing, and held by one agent at a time.
    pub data_dir: PathBuf,
    /// The operator's own marks on the node.
    pub labels: BTreeMap<String, String>,
    /// The Python that installs wheels; one that is found when absent.
    pub python: Option<PathBuf>,
    /// Engine programs that are on the node already.
    pub engine_paths: BTreeMap<EngineName, PathBuf>,
    /// The address of the model hub; the usual one when absent.
    pub hub: Option<String>,
    /// The secret that admits agents; none is needed over a pipe.
    pub token: Option<String>,
    /// What engines get of the agent's own environment: [`crate::process::inherited`] of it.
    pub environment: Vec<(OsString, OsString)>,
    /// What becomes of engines when the agent is told to end.
    pub ending: Ending,
    /// How long the steps in a replica's life may take.
    pub timing: Timing,
    /// Where the kernel's files are.
    pub root: Root,
}

/// An agent that holds its data directory and runs nothing yet.
#[derive(Debug)]
pub struct Agent {
    fence: Fence,
    core: Arc<Core>,
}

/// What the agent's tasks share.
#[derive(Debug)]
struct Core {
    config: AgentConfig,
    home: Home,
    runtime: Arc<NativeRuntime>,
    engines: Arc<Engines>,
    supervisor: Supervisor,
    facts: watch::Sender<NodeFacts>,
    followed: watch::Sender<Rank>,
    desired: watch::Sender<Option<DesiredState>>,
    report: watch::Sender<NodeReport>,
    /// Ends the tasks that work.
    stop: CancellationToken,
    /// Ends the conversation, after the last report.
    closing: CancellationToken,
}

// === impl AgentConfig ===

impl AgentConfig {
    /// The usual agent in this directory: engines get no variables, and end with the agent.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            labels: BTreeMap::new(),
            python: None,
            engine_paths: BTreeMap::new(),
            hub: None,
            token: None,
            environment: Vec::new(),
            ending: Ending::default(),
            timing: Timing::default(),
            root: Root::system(),
        }
    }
}

impl fmt::Debug for AgentConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            data_dir,
            labels,
            python,
            engine_paths,
            hub,
            token,
            environment,
            ending,
            timing,
            root,
        } = self;
        f.debug_struct("AgentConfig")
            .field("data_dir", data_dir)
            .field("labels", labels)
            .field("python", python)
            .field("engine_paths", engine_paths)
            .field("hub", hub)
            .field("token", &token.as_ref().map(|_| "…"))
            .field("environment", environment)
            .field("ending", ending)
            .field("timing", timing)
            .field("root", root)
            .finish()
    }
}

// === impl Agent ===

impl Agent {
    /// Takes the data directory and puts the agent together.
    ///
    /// # Errors
    /// When the directory can't be used, or another agent has it.
    pub fn build(config: AgentConfig, clock: Arc<dyn Clock>) -> Result<Self, AgentError> {
        let home = Home::open(&config.data_dir)?;
        let fence = Fence::open(&home.dir.join("desired.json"))?;
        let runtime = NativeConfig {
            data_dir: home.dir.clone(),
            environment: config.environment.clone(),
        };
        let runtime = Arc::new(runtime.build()?);
        // Helper programs are found by these when the agent was killed.
        let marks = |task: &str| {
            vec![
                (DATA_DIR_MARK.into(), home.dir.clone().into()),
                (TASK_MARK.into(), task.into()),
            ]
        };
        let provisioner = Provisioner::new(ProvisionConfig {
            directory: home.dir.join("engines"),
            marker_env: marks("engine"),
            python: config.python.clone(),
            path_override: config.engine_paths.clone(),
            clock: Arc::clone(&clock),
        });
        let mut weights = WeightsConfig::in_directory(home.dir.join("weights"));
        weights.marker_env = marks("weights");
        weights.python.clone_from(&config.python);
        if let Some(hub) = &config.hub {
            weights.hub.clone_from(hub);
        }
        let weights = WeightsStore::new(weights)?;
        let engines = Arc::new(Engines::new(provisioner, Arc::clone(&clock)));
        let supervisor = SuperviseConfig {
            data_dir: home.dir.clone(),
            timing: config.timing,
        };
        let supervisor = supervisor
            .build(SuperviseDeps {
                runtime: Arc::clone(&runtime) as _,
                parts: Arc::new(NodeParts::new(Arc::clone(&engines), weights)),
                clock,
            })
            .map_err(|source| AgentError::Directory {
                path: home.dir.clone(),
                source,
            })?;
        let facts = NodeFacts {
            arch: std::env::consts::ARCH.to_owned(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            labels: config.labels.clone(),
            ..NodeFacts::default()
        };
        let report = NodeReport {
            revision: 0,
            epoch: 0,
            facts: facts.clone(),
            provision: Vec::new(),
            replicas: Vec::new(),
        };
        Ok(Self {
            fence,
            core: Arc::new(Core {
                config,
                home,
                runtime,
                engines,
                supervisor,
                facts: watch::Sender::new(facts),
                followed: watch::Sender::default(),
                desired: watch::Sender::new(None),
                report: watch::Sender::new(report),
                stop: CancellationToken::new(),
                closing: CancellationToken::new(),
            }),
        })
    }

    /// The node's lasting id.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.core.home.node
    }

    /// What is, for those who show it.
    #[must_use]
    pub fn observer(&self) -> watch::Receiver<NodeReport> {
        self.core.report.subscribe()
    }

    /// Runs until `shutdown`, and then ends everything in bounded time.
    ///
    /// # Errors
    /// When what an earlier life has left can't be read, or something does not end.
    pub async fn run(
        self,
        connector: impl Connector,
        shutdown: CancellationToken,
    ) -> Result<(), AgentError> {
        let Self { fence, core } = self;
        let ledger = |source| AgentError::Directory {
            path: core.home.dir.join("replicas"),
            source,
        };
        let adoption = core.supervisor.adopt().await.map_err(ledger)?;
        tracing::info!(
            node = %core.home.node,
            data_dir = %core.home.dir.display(),
            adopted = adoption.adopted,
            ended = adoption.ended,
            "the agent runs",
        );
        // So that the first report says something; a disk that hangs is reported without its facts.
        let first = tokio::time::timeout(FIRST_FACTS_WITHIN, core.look()).await;
        if first.is_err() {
            tracing::warn!("looking at the machine takes long");
        }
        core.publish();

        let tasks = TaskTracker::new();
        let until_stopped = |core: &Arc<Core>| core.stop.clone();
        tasks.spawn(
            until_stopped(&core).run_until_cancelled_owned(Arc::clone(&core).keep_looking()),
        );
        tasks.spawn(
            until_stopped(&core).run_until_cancelled_owned(Arc::clone(&core).keep_reporting()),
        );
        tasks
            .spawn(until_stopped(&core).run_until_cancelled_owned(Arc::clone(&core).follow(fence)));
        tasks.spawn(Arc::clone(&core).converse(connector));
        tasks.close();

        shutdown.cancelled().await;
        core.finish(&tasks).await
    }
}

// === impl Core ===

impl Core {
    /// Looks at the machine once.
    async fn look(&self) {
        let usage = self.runtime.usage().await;
        let scene = Scene {
            root: self.config.root.clone(),
            held: usage.values().map(|usage| usage.held).sum(),
            ..Scene::here(&self.home.dir)
        };
        let looked = tokio::task::spawn_blocking(move || facts::look(&facts::probes(), &scene));
        if let Ok(mut facts) = looked.await {
            facts.labels.clone_from(&self.config.labels);
            self.facts.send_replace(facts);
        }
    }

    async fn keep_looking(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.look().await;
        }
    }

    /// Makes a report whenever something that is in it has changed.
    async fn keep_reporting(self: Arc<Self>) {
        let mut facts = self.facts.subscribe();
        let mut provision = self.engines.watch();
        let mut replicas = self.supervisor.statuses();
        let mut followed = self.followed.subscribe();
        loop {
            self.publish();
            // The senders live in `self`, so that none of these can fail.
            tokio::select! {
                _ = facts.changed() => {}
                _ = provision.changed() => {}
                _ = replicas.changed() => {}
                _ = followed.changed() => {}
            }
        }
    }

    fn publish(&self) {
        let Rank { epoch, revision } = *self.followed.borrow();
        let next = NodeReport {
            revision,
            epoch,
            facts: self.facts.borrow().clone(),
            provision: self.engines.provision(),
            replicas: self
                .supervisor
                .statuses()
                .borrow()
                .values()
                .cloned()
                .collect(),
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
                        self.supervisor.converge(&state.replicas);
                        self.followed.send_if_modified(|followed| {
                            std::mem::replace(followed, fence.highest()) != fence.highest()
                        });
                    }
                    Err(error @ FenceError::Stale { .. }) => {
                        tracing::warn!(error = %Chain(&error), "ignoring a desired state");
                    }
                    Err(error) => {
                        // A state that can't be fenced is not followed, and not forgotten either.
                        tracing::error!(error = %Chain(&error), "a desired state has to wait");
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

    /// Speaks with the control plane, one session after the other.
    async fn converse(self: Arc<Self>, connector: impl Connector) {
        let mut pause = PAUSE_MIN;
        let mut last_problem = String::new();
        while !self.closing.is_cancelled() {
            let problem = match self.closing.run_until_cancelled(connector.connect()).await {
                None => return,
                Some(Err(error)) => format!("the control plane can't be reached: {error}"),
                Some(Ok(stream)) => {
                    let session = Session {
                        hello: Hello {
                            node: self.home.node,
                            token: self.config.token.clone(),
                            protocol: PROTOCOL,
                            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
                        },
                        reports: self.report.subscribe(),
                        desired: &self.desired,
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
        self.publish();
        self.closing.cancel();
        let told = tokio::time::timeout(TELL_WITHIN, tasks.wait()).await;
        if told.is_err() {
            tracing::warn!("the control plane did not take the last report");
        }
        ended.map_err(|_| AgentError::Unfinished { after: patience })
    }
}

/// Free memory and disk change all the time, and are looked at by a planner that leaves a reserve.
const LOOK_EVERY: Duration = Duration::from_secs(10);

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
