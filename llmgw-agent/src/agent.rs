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
mod home;
mod tasks;

pub use self::{
    config::AgentConfig,
    connect::{AddressError, ByteStream, Connector, PipeConnector, TcpConnector},
    error::AgentError,
};

use std::sync::Arc;

use llmgw_core::{api::agent::NodeReport, clock::Clock, cluster::node::NodeFacts, id::NodeId};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::{
    customs::Customs,
    engines::{Engines, NodeParts},
    home::Home,
    tasks::{Core, Followed},
};
use crate::{
    process::{DATA_DIR_MARK, TASK_MARK, native::NativeConfig},
    provision::{ProvisionConfig, Provisioner},
    session::fence::Fence,
    supervise::{SuperviseConfig, SuperviseDeps},
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
        let customs = Customs::open(home.dir.join("engines").join("custom.json"));
        let engines = Arc::new(Engines::new(provisioner, Arc::clone(&clock), customs));
        let facts = NodeFacts {
            arch: std::env::consts::ARCH.to_owned(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            labels: config.labels.clone(),
            ..NodeFacts::default()
        };
        let looked = watch::Sender::new(facts);
        let supervisor = SuperviseConfig {
            data_dir: home.dir.clone(),
            timing: config.timing,
        };
        let supervisor = supervisor
            .build(SuperviseDeps {
                runtime: Arc::clone(&runtime) as _,
                parts: Arc::new(NodeParts::new(
                    Arc::clone(&engines),
                    weights,
                    looked.subscribe(),
                )),
                clock,
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
            facts: looked.borrow().clone(),
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
                facts: looked,
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
        core.run(fence, connector, shutdown).await
    }
}
