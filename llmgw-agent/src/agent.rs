//! The agent of one node, put together: what it is made of, how it runs, how it ends.
//!
//! ```text
//!   connector ─▶ session ─▶ fence ─▶ engines, supervisor ─▶ processes
//!                   ▲                     │
//!                   └───── report ◀───────┴── facts
//! ```
//! Each arrow is a task of its own, or a value that the next one watches: a slow disk, a long download or a
//! stuck engine keeps nobody from being heard.

mod config;
mod connect;
mod customs;
mod engines;
mod error;
mod gpu_memory;
mod home;
mod tasks;

pub use self::{
    config::AgentConfig,
    connect::{AddressError, ByteStream, Connector, PipeConnector, TcpConnector},
    error::AgentError,
};

use std::sync::Arc;

use llmgw_core::{
    api::agent::NodeReport,
    clock::Clock,
    cluster::node::NodeFacts,
    fetch::FetchTimes,
    id::NodeId,
    releases::{ReleaseClient, ReleaseError},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::{
    customs::Customs,
    engines::{Engines, NodeParts},
    gpu_memory::NodeGpuMemory,
    home::Home,
    tasks::{Core, Followed},
};
use crate::{
    facts,
    process::{
        DATA_DIR_MARK, TASK_MARK,
        native::{Containment, NativeConfig},
    },
    provision::{ProvisionConfig, ProvisionDeps, ProvisionTimes, Provisioner},
    session::fence::Fence,
    supervise::{PORTS, SuperviseConfig, SuperviseDeps},
    weights::{WeightsConfig, WeightsStore},
};

/// An agent that holds its data directory and runs nothing yet.
#[derive(Debug)]
pub struct Agent {
    fence: Fence,
    core: Arc<Core>,
}

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
            containment: Containment::strongest(config.launcher.clone(), &home.dir),
        };
        let runtime = Arc::new(runtime.build()?);
        // Helper programs are found by these when the agent was killed.
        let marks = |task: &str| {
            vec![
                (DATA_DIR_MARK.into(), home.dir.clone().into()),
                (TASK_MARK.into(), task.into()),
            ]
        };
        let provisioner = Provisioner::build(
            ProvisionConfig {
                directory: home.dir.join("engines"),
                marker_env: marks("engine"),
                environment: config.environment.clone(),
                python: config.python.clone(),
                path_override: config.engine_paths.clone(),
                clock: Arc::clone(&clock),
            },
            ProvisionTimes::default(),
            ProvisionDeps {
                releases: config.releases.as_deref().map(release_client).transpose()?,
                root: config.root.clone(),
                ..ProvisionDeps::default()
            },
        );
        let mut weights = WeightsConfig::in_directory(home.dir.join("weights"));
        weights.marker_env = marks("weights");
        weights.python.clone_from(&config.python);
        if let Some(hub) = &config.hub {
            weights.hub.clone_from(hub);
        }
        weights.clock = Arc::clone(&clock);
        let weights = Arc::new(WeightsStore::new(weights)?);
        let engines = Arc::new(Engines::new(
            provisioner,
            config.engine_check,
            Arc::clone(&clock),
            Customs::open(home.dir.join("engines").join("custom.json")),
        ));
        let probes = Arc::new(facts::probes(&config.root));
        let facts = NodeFacts {
            arch: std::env::consts::ARCH.to_owned(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            labels: config.labels.clone(),
            ..NodeFacts::default()
        };
        let found = facts.clone();
        let facts = watch::Sender::new(facts);
        let supervisor = SuperviseConfig {
            data_dir: home.dir.clone(),
            timing: config.timing,
            ports: PORTS,
        };
        let supervisor = supervisor
            .build(SuperviseDeps {
                runtime: Arc::clone(&runtime) as _,
                parts: Arc::new(NodeParts::new(
                    Arc::clone(&engines),
                    Arc::clone(&weights),
                    facts.subscribe(),
                )),
                clock: Arc::clone(&clock),
                gpu_memory: Arc::new(NodeGpuMemory::new(&config.root, facts.subscribe())),
            })
            .map_err(|source| AgentError::Directory {
                path: home.dir.clone(),
                source,
            })?;
        let followed = Followed::since(&fence);
        let report = NodeReport {
            revision: 0,
            epoch: 0,
            highest_epoch: fence.highest().epoch,
            highest_revision: fence.highest().revision,
            leaving: false,
            facts: found,
            provision: Vec::new(),
            replicas: Vec::new(),
            weights: None,
            headers: Vec::new(),
        };
        Ok(Self {
            fence,
            core: Arc::new(Core {
                config,
                home,
                runtime,
                engines,
                weights,
                supervisor,
                clock,
                probes,
                address: watch::Sender::default(),
                time: watch::Sender::default(),
                facts,
                followed: watch::Sender::new(followed),
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

    /// Looks at the installed engines whenever it is called, and not only when their time has come.
    pub fn engine_check(&self) -> impl Fn() + Send + Sync + 'static {
        let engines = Arc::downgrade(&self.core.engines);
        move || {
            if let Some(engines) = engines.upgrade() {
                engines.check_now();
            }
        }
    }

    /// What is, for those who show it.
    #[must_use]
    pub fn observer(&self) -> watch::Receiver<NodeReport> {
        self.core.report.subscribe()
    }

    /// Cancelled by who does not want to wait for the end any more: what is being answered is cut off, and engines
    /// are ended without asking first.
    #[must_use]
    pub fn hurry(&self) -> CancellationToken {
        self.core.supervisor.hurry()
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
        core.run(fence, connector, shutdown).await
    }
}

fn release_client(list: &str) -> Result<ReleaseClient, ReleaseError> {
    ReleaseClient::new(list, FetchTimes::default())
}
