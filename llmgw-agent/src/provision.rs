//! Engines, installed and checked, from the sources that this release knows.
//!
//! What is done is planned first, from what is wanted and what is found, as a pure function; then it is carried
//! out step by step. A directory counts as installed when the package in it has answered and its marker has
//! been written, last; without a marker it is done again from the start, so that a crash at any moment costs
//! time and nothing else.
//!
//! The caller holds the data directory: two processes must not install into the same one.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use llmgw_core::{
    clock::Clock,
    cluster::engine::{ProvisionState, WantedEngine},
    id::EngineName,
};

use self::{
    described::check_described,
    environment::Environment,
    plan::{Build, Machine, choose},
    program::check_program,
    wheel::Wheel,
};
pub use self::{
    environment::{EnvironmentProblem, LockError, Stage},
    error::{ProgramProblem, ProvisionError},
};
use crate::{
    engine::InstalledEngine,
    facts::Root,
    flight::{Flights, Progress},
};

mod described;
mod environment;
mod error;
mod plan;
mod program;
mod wheel;

/// What a [`Provisioner`] works with.
#[derive(Clone, Debug)]
pub struct ProvisionConfig {
    /// Where engines are installed; made when it is not there.
    pub directory: PathBuf,
    /// Variables that every helper program gets, so that it can be found when the agent was killed.
    pub marker_env: Vec<(OsString, OsString)>,
    /// The Python to use; any that is new enough when absent.
    pub python: Option<PathBuf>,
    /// Programs that the agent's configuration names.
    pub path_override: BTreeMap<EngineName, PathBuf>,
    /// Dates the marker.
    pub clock: Arc<dyn Clock>,
}

/// How long an installation waits for what.
#[derive(Clone, Copy, Debug)]
pub struct ProvisionTimes {
    /// For a program to say its version.
    pub version: Duration,
    /// For an installed package to say its version.
    pub check: Duration,
    /// For `pip` or `uv` to say or write something.
    pub silence: Duration,
    /// For the environment of an engine to be checked.
    pub environment: Duration,
}

/// Installs engines.
pub struct Provisioner {
    shop: Arc<Shop>,
    flights: Flights<(EngineName, Build), ProvisionState, Result<InstalledEngine, ProvisionError>>,
}

/// What the work needs; shared with the work that is under way.
#[derive(Debug)]
struct Shop {
    config: ProvisionConfig,
    times: ProvisionTimes,
    /// Where the kernel's files are.
    root: Root,
}

// === impl Provisioner ===

impl Provisioner {
    /// A provisioner with the usual times.
    #[must_use]
    pub fn new(config: ProvisionConfig) -> Self {
        Self::with_times(config, ProvisionTimes::default())
    }

    /// A provisioner with times of its own.
    #[must_use]
    pub fn with_times(mut config: ProvisionConfig, times: ProvisionTimes) -> Self {
        // Helper programs run elsewhere: what they are told must not depend on where that is.
        config.directory = absolute(&config.directory);
        Self {
            shop: Arc::new(Shop {
                config,
                times,
                root: Root::system(),
            }),
            flights: Flights::default(),
        }
    }

    /// The same, for a machine whose kernel's files are elsewhere.
    #[must_use]
    pub fn with_root(self, root: Root) -> Self {
        let Shop { config, times, .. } = self.shop.as_ref();
        Self {
            shop: Arc::new(Shop {
                config: config.clone(),
                times: *times,
                root,
            }),
            flights: Flights::default(),
        }
    }

    /// Installs `wanted` unless it is installed, checks it, and says how it is started.
    ///
    /// `progress` hears which source was chosen and why, and each step. Who asks for the same at the same time
    /// shares the work. Dropping the future ends what was started for it; the next call begins anew.
    ///
    /// # Errors
    /// When there is no way to install it here, or when a step fails. The error says what would help.
    pub async fn ensure(
        &self,
        wanted: &WantedEngine,
        progress: &(dyn Fn(&str, ProvisionState) + Send + Sync),
    ) -> Result<InstalledEngine, ProvisionError> {
        let machine = Machine {
            architecture: std::env::consts::ARCH,
            configured: self
                .shop
                .config
                .path_override
                .get(&wanted.name)
                .map(PathBuf::as_path),
        };
        let choice = choose(wanted, &machine)?;
        let line = choice.line;
        let key = (wanted.name.clone(), choice.build.clone());
        let work = |told| {
            let (shop, name) = (Arc::clone(&self.shop), wanted.name.clone());
            async move { shop.install(name, choice.build, told).await }
        };
        let installed = self
            .flights
            .join(key, work, &|state| progress(&line, state))
            .await?;
        progress(
            &line,
            ProvisionState::Installed {
                version: installed.version.clone(),
                variant: installed.variant.clone(),
            },
        );
        Ok(installed)
    }
}

impl fmt::Debug for Provisioner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provisioner")
            .field("shop", &self.shop)
            .finish_non_exhaustive()
    }
}

// === impl Shop ===

impl Shop {
    async fn install(
        &self,
        name: EngineName,
        build: Build,
        told: Progress<ProvisionState>,
    ) -> Result<InstalledEngine, ProvisionError> {
        match build {
            Build::Program(program) => {
                step(
                    &told,
                    format!("asking {} for its version", program.display()),
                );
                check_program(name, &program, self).await
            }
            Build::Wheel => Wheel::new(name, self).ensure(&told).await,
            Build::Environment(origin) => Environment::new(name, origin, self).ensure(&told).await,
            Build::Custom(engine) => check_described(name, *engine).await,
        }
    }
}

// === impl ProvisionTimes ===

impl Default for ProvisionTimes {
    fn default() -> Self {
        Self {
            version: Duration::from_secs(10),
            // A tenth of a second is usual; a machine that loads a model at the same time takes longer.
            check: Duration::from_secs(20),
            // `pip` itself gives up a connection after 15 s and tries it five times.
            silence: Duration::from_secs(300),
            // Importing torch and vLLM three times, cold, took two minutes on two busy cores.
            environment: Duration::from_secs(600),
        }
    }
}

fn step(told: &Progress<ProvisionState>, step: String) {
    told.tell(ProvisionState::Installing {
        step,
        percent: None,
    });
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
