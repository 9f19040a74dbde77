//! Engines, installed and checked, from the sources that this release knows.
//!
//! What is done is planned first, from what is wanted and what is found, as a pure function; then it is carried
//! out step by step. A directory counts as installed when the package in it has answered, has computed with a
//! tiny model, and its marker has been written, last; without a marker it is done again from the start, so that a
//! crash at any moment costs time and nothing else.
//!
//! The caller holds the data directory: two processes must not install into the same one.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use llmgw_core::{
    clock::Clock,
    cluster::engine::{ProvisionState, WantedEngine},
    gguf::{self, TensorType, check::CheckModel},
    id::EngineName,
};
use tokio::task::spawn_blocking;

use self::{
    compute::{ComputeCheck, Expectation, Record, made},
    plan::{Build, Machine, choose},
    program::check_program,
    wheel::Wheel,
};
pub use self::{
    compute::{ComputeProblem, Deadlines, Phase},
    error::{ProgramProblem, ProvisionError},
};
use crate::{
    engine::{InstalledEngine, loads_gguf},
    flight::{Flights, Progress},
};

mod compute;
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
    /// The variables that engines get, as [`crate::process::inherited`] chooses them: what is installed is tried
    /// with them.
    pub environment: Vec<(OsString, OsString)>,
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
    /// For `pip` to say or write something.
    pub silence: Duration,
    /// For a build to compute with a tiny model.
    pub compute: Deadlines,
}

/// Installs engines.
pub struct Provisioner {
    shop: Arc<Shop>,
    flights: Flights<(EngineName, Build), ProvisionState, Result<InstalledEngine, ProvisionError>>,
    proofs: Flights<Proving, (), Result<(), ProvisionError>>,
}

/// What is to be shown of a build.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Proving {
    build: String,
    expectation: Expectation,
    gpus: Vec<u32>,
    types: BTreeSet<TensorType>,
}

/// What the work needs; shared with the work that is under way.
#[derive(Debug)]
struct Shop {
    config: ProvisionConfig,
    times: ProvisionTimes,
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
            shop: Arc::new(Shop { config, times }),
            flights: Flights::default(),
            proofs: Flights::default(),
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

    /// Shows that an engine computes with weights of the types in this file, unless it was shown before: on GPUs
    /// when there are `gpus`, numbered as a replica's.
    ///
    /// Types that no check is known for are passed over, and so are files whose header can't be read: the engine
    /// will say of them what it has to say. Who asks for the same at the same time shares the work. Dropping the
    /// future ends what was started for it.
    ///
    /// # Errors
    /// What the engine did instead, with the types that it was tried with.
    pub async fn prove(
        &self,
        installed: &InstalledEngine,
        weights: &Path,
        gpus: &[u32],
    ) -> Result<(), ProvisionError> {
        if !loads_gguf(&installed.name) {
            return Ok(());
        }
        let path = weights.to_owned();
        let needed = spawn_blocking(move || types_of(&path)).await;
        let expectation = match gpus {
            [] => Expectation::Cpu,
            _ => Expectation::Gpu,
        };
        let record = Record::of(installed, &self.shop.config.directory);
        let types = record
            .missing(needed.unwrap_or_default(), expectation)
            .await;
        if types.is_empty() {
            return Ok(());
        }
        let key = Proving {
            build: format!("{installed:?}"),
            expectation,
            gpus: gpus.to_vec(),
            types,
        };
        let work = |_| {
            let (shop, key, installed) = (Arc::clone(&self.shop), key.clone(), installed.clone());
            async move { shop.prove(&installed, &key).await }
        };
        self.proofs.join(key.clone(), work, &|()| ()).await
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
        }
    }

    /// Has a build compute with a model for each of the types, and keeps what it has shown.
    async fn prove(
        &self,
        installed: &InstalledEngine,
        proving: &Proving,
    ) -> Result<(), ProvisionError> {
        let record = Record::of(installed, &self.config.directory);
        let check = ComputeCheck {
            engine: installed,
            scratch: &self.scratch(),
            expectation: proving.expectation,
            gpus: &proving.gpus,
            env: &self.engine_env(),
            deadlines: self.times.compute,
        };
        let mut left = proving.types.clone();
        while let Some(kind) = left.pop_first() {
            // Most weights are made of the types of one model, which proves them all at once.
            let made = made(move || CheckModel::with(kind)).await;
            let (types, proof) = match made {
                Ok(Some(model)) => (model.types(), check.run(&model).await),
                Ok(None) => continue,
                Err(problem) => (BTreeSet::from([kind]), Err(problem)),
            };
            let proof = proof
                .map_err(|problem| ProvisionError::not_computing(installed, types, problem))?;
            left.retain(|kind| !proof.types.contains(kind));
            record.keep(proof.types, proving.expectation).await;
        }
        Ok(())
    }

    /// What an engine is started with, besides what it needs itself.
    fn engine_env(&self) -> Vec<(OsString, OsString)> {
        [&self.config.environment[..], &self.config.marker_env[..]].concat()
    }

    /// Where the models of checks stand while they are needed.
    fn scratch(&self) -> PathBuf {
        self.config.directory.join(".check")
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
            compute: Deadlines::default(),
        }
    }
}

fn step(told: &Progress<ProvisionState>, step: String) {
    told.tell(ProvisionState::Installing {
        step,
        percent: None,
    });
}

/// The types of the matrices in a file of weights, as far as there is a check for them. Vectors are always of plain
/// numbers, which every build adds alike.
fn types_of(weights: &Path) -> BTreeSet<TensorType> {
    let Ok(header) = gguf::open(weights, &gguf::Limits::default()) else {
        return BTreeSet::new();
    };
    header
        .tensors
        .iter()
        .filter(|tensor| {
            tensor
                .dimensions
                .iter()
                .filter(|length| **length > 1)
                .count()
                > 1
        })
        .map(|tensor| tensor.kind)
        .filter(|kind| CheckModel::is_provable(*kind))
        .collect()
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
