//! Engines, installed and checked, from the sources that this release knows.
//!
//! What is done is planned first, from what is wanted and what is found, as a pure function; then it is carried
//! out step by step. A directory counts as installed when the build in it has computed and its marker has been
//! written, last; without a marker it is done again from the start, so that a crash at any moment costs time
//! and nothing else.
//!
//! | module | holds |
//! |---|---|
//! | `plan` | which builds, in which order, and the steps for each; pure |
//! | `lookup` `download` `unpack` | a release, its archives, their files |
//! | `elf` `libraries` `cache` `packages` | what objects need, who has it, and getting it |
//! | `program` `compute` `quarantine` | asking a program, computing with it, putting a bad backend aside |
//! | `archive` `wheel` `environment` `described` | one installation of each kind |
//! | `proof` | showing that it computes, also for types that come later |
//! | `marker` `ledger` `prune` | what is remembered, and what is removed |
//!
//! The caller holds the data directory: two processes must not install into the same one.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use llmgw_core::{
    clock::Clock,
    cluster::{
        engine::{PassedOver, Provision, ProvisionState, WantedEngine},
        release::Resolution,
    },
    error::Chain,
    id::EngineName,
    releases::ReleaseClient,
    units::Bytes,
};

use self::{
    archive::{Archive, Surroundings},
    download::DOWNLOADS,
    ledger::Chosen,
    lookup::Lookup,
    plan::{Build, Choice, Machine, Plan, needs_release, plan},
    program::check_program,
    proof::Proving,
    shop::{Shop, Situation, failed, full, step, wipe},
    wheel::Wheel,
};
pub use self::{
    compute::{ComputeProblem, Deadlines, Phase},
    environment::{EnvironmentProblem, LockError, Stage},
    error::{NoBuild, ProgramProblem, ProvisionError},
    packages::{Family, PackageManager, PackageProblem, SystemPackages},
    problem::BuildProblem,
    prover::Prover,
};
use crate::{engine::InstalledEngine, facts::Root, flight::Flights};

mod archive;
mod cache;
mod compute;
mod described;
mod download;
mod driver;
mod elf;
mod environment;
mod error;
mod from;
mod ledger;
mod libraries;
mod lookup;
mod marker;
mod packages;
mod plan;
mod problem;
mod program;
mod proof;
mod prover;
mod prune;
mod quarantine;
mod shop;
mod unpack;
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
    /// For a program to list its devices.
    pub devices: Duration,
    /// For an installed package to say its version.
    pub check: Duration,
    /// For `pip`, `uv` or a package manager to say or write something.
    pub silence: Duration,
    /// For the environment of an engine in Python to be checked.
    pub environment: Duration,
    /// For a build to compute with a tiny model.
    pub compute: Deadlines,
}

/// What an installation works with besides its directory.
#[derive(Clone, Debug)]
pub struct ProvisionDeps {
    /// Where releases are looked up that no control plane has looked up; nowhere when absent.
    pub releases: Option<ReleaseClient>,
    /// How packages of the system are installed.
    pub packages: SystemPackages,
    /// Computes with builds from archives in the place of the agent's own check; absent, it does.
    pub prover: Option<Arc<dyn Prover>>,
    /// Where the kernel's and the system's files are.
    pub root: Root,
    /// What stays free on the disk.
    pub reserve: Bytes,
}

/// Installs engines.
pub struct Provisioner {
    shop: Arc<Shop>,
    flights: Flights<(EngineName, Build), ProvisionState, Result<InstalledEngine, ProvisionError>>,
    proofs: Flights<Proving, (), Result<(), ProvisionError>>,
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
    pub fn with_times(config: ProvisionConfig, times: ProvisionTimes) -> Self {
        Self::build(config, times, ProvisionDeps::default())
    }

    /// A provisioner that works with these.
    #[must_use]
    pub fn build(mut config: ProvisionConfig, times: ProvisionTimes, deps: ProvisionDeps) -> Self {
        let ProvisionDeps {
            releases,
            packages,
            prover,
            root,
            reserve,
        } = deps;
        // Helper programs run elsewhere: what they are told must not depend on where that is.
        config.directory = absolute(&config.directory);
        Self {
            shop: Arc::new(Shop {
                config,
                times,
                lookup: releases.map(Lookup::new),
                packages,
                prover,
                root,
                reserve,
                fetcher: OnceLock::new(),
                ledger: Arc::default(),
                whole: Mutex::default(),
            }),
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
        let hears = |told: Provision| {
            progress(told.choice.as_deref().unwrap_or_default(), told.state);
        };
        self.converge(wanted, &hears).await
    }

    /// As [`Self::ensure`]; `hears` gets all that is known with each step, also which builds were passed over and
    /// why.
    ///
    /// # Errors
    /// As [`Self::ensure`]; when several builds were tried, each with its reason.
    pub async fn converge(
        &self,
        wanted: &WantedEngine,
        hears: &(dyn Fn(Provision) + Send + Sync),
    ) -> Result<InstalledEngine, ProvisionError> {
        let mut tried = None;
        if let Some(chosen) = Chosen::read(wanted, &self.shop).await {
            let build = chosen.build.clone();
            match self.carry_out(wanted, Some(chosen), None, hears).await {
                Err(error) if error.is_of_the_build() => {
                    tracing::warn!(engine = %wanted.name, error = %Chain(&error), "choosing anew");
                    Chosen::forget(&wanted.name, &self.shop).await;
                    tried = Some((build, error));
                }
                done => return done,
            }
        }
        self.carry_out(wanted, None, tried, hears).await
    }

    /// Looks whether what was installed for `wanted` still works, quietly; mends nothing.
    ///
    /// # Errors
    /// What is wrong with it.
    pub async fn check(&self, wanted: &WantedEngine) -> Result<(), ProvisionError> {
        let shop = &self.shop;
        let Some(chosen) = Chosen::read(wanted, shop).await else {
            // What is not ours, and what checks itself, is in no ledger: it is asked as at the beginning.
            return self.ensure(wanted, &|_, _| ()).await.map(drop);
        };
        let name = wanted.name.clone();
        match &chosen.build {
            Build::Program(path) => check_program(name, path, shop).await.map(drop),
            Build::Environment(_) | Build::Custom(_) => {
                self.ensure(wanted, &|_, _| ()).await.map(drop)
            }
            Build::Wheel => Wheel::new(name, shop).still_works().await,
            Build::Archive(build) => {
                let situation = shop.look().await;
                Archive::new(name, build, situation.surroundings, shop)
                    .check()
                    .await
            }
        }
    }

    async fn carry_out(
        &self,
        wanted: &WantedEngine,
        chosen: Option<Chosen>,
        tried: Option<(Build, ProvisionError)>,
        hears: &(dyn Fn(Provision) + Send + Sync),
    ) -> Result<InstalledEngine, ProvisionError> {
        let mut told = Provision::new(wanted.name.clone(), ProvisionState::Pending);
        let situation = self.shop.look().await;
        let Plan {
            choices,
            passed_over,
            warnings,
        } = self
            .choose(wanted, &situation, chosen.as_ref(), &told, hears)
            .await?;
        told.passed_over = passed_over;
        told.warnings = warnings;
        let mut last = None;
        for Choice { build, line } in choices {
            told.choice = Some(line);
            let says = |state| {
                hears(Provision {
                    state,
                    ..told.clone()
                });
            };
            let attempt = match &tried {
                // Just now, when it was what was installed.
                Some((before, error)) if *before == build => Err(error.clone()),
                _ => self.install(wanted, &build, &situation, &says).await,
            };
            let error = match attempt {
                Ok(installed) => return self.settle(wanted, build, installed, told, hears).await,
                Err(error) if error.is_of_the_build() => error,
                Err(error) => return Err(error),
            };
            let reason = error.of_the_build();
            tracing::warn!(engine = %wanted.name, build = build.text(), error = reason, "a build is passed over");
            told.warnings.extend(warnings_of(&error, &build));
            told.passed_over.push(PassedOver {
                build: build.text(),
                reason,
            });
            last = Some(error);
        }
        hears(told.clone());
        match last {
            // One that was tried speaks for itself.
            Some(error) if told.passed_over.len() <= 1 => Err(error),
            _ => Err(ProvisionError::NoBuild(Box::new(NoBuild {
                engine: wanted.name.clone(),
                version: wanted.version().to_owned(),
                why: "each that could be was tried".to_owned(),
                hint: last.as_ref().and_then(llmgw_core::error::Coded::hint),
                lasting: last.as_ref().is_some_and(ProvisionError::is_lasting),
                passed_over: told.passed_over,
                warnings: told.warnings,
            }))),
        }
    }

    async fn choose(
        &self,
        wanted: &WantedEngine,
        situation: &Situation,
        chosen: Option<&Chosen>,
        told: &Provision,
        hears: &(dyn Fn(Provision) + Send + Sync),
    ) -> Result<Plan, ProvisionError> {
        let shop = &self.shop;
        let configured = shop.config.path_override.get(&wanted.name);
        let mut wanted = wanted.clone();
        let machine = Machine {
            architecture: std::env::consts::ARCH,
            configured: configured.map(PathBuf::as_path),
            glibc: situation.surroundings.glibc,
            gpus: situation.gpus,
            now: shop.config.clock.now(),
        };
        if chosen.is_none()
            && needs_release(&wanted, &machine)
            && let Some(lookup) = &shop.lookup
        {
            hears(Provision {
                state: ProvisionState::step(format!("looking up the release {}", wanted.version())),
                ..told.clone()
            });
            let found: Resolution = lookup
                .resolve(wanted.version(), shop.config.clock.as_ref())
                .await;
            wanted.release = Some(found);
        }
        let mut plan = plan(&wanted, &machine, chosen.map(|chosen| &chosen.build))?;
        if let Some(chosen) = chosen
            && let [choice] = plan.choices.as_mut_slice()
            && choice.build == chosen.build
        {
            choice.line.clone_from(&chosen.line);
            plan.passed_over.clone_from(&chosen.passed_over);
            plan.warnings.clone_from(&chosen.warnings);
        }
        Ok(plan)
    }

    async fn install(
        &self,
        wanted: &WantedEngine,
        build: &Build,
        situation: &Situation,
        says: &(dyn Fn(ProvisionState) + Send + Sync),
    ) -> Result<InstalledEngine, ProvisionError> {
        let key = (wanted.name.clone(), build.clone());
        let work = |told| {
            let (shop, name, build) = (Arc::clone(&self.shop), wanted.name.clone(), build.clone());
            let surroundings = situation.surroundings.clone();
            async move { shop.install(name, build, surroundings, told).await }
        };
        self.flights.join(key, work, says).await
    }

    /// Remembers what was chosen, and removes what is not needed any more.
    async fn settle(
        &self,
        wanted: &WantedEngine,
        build: Build,
        installed: InstalledEngine,
        mut told: Provision,
        hears: &(dyn Fn(Provision) + Send + Sync),
    ) -> Result<InstalledEngine, ProvisionError> {
        let shop = &self.shop;
        let name = wanted.name.clone();
        let directory = match &build {
            Build::Program(path) => {
                told.warnings
                    .extend(shop.not_computed(&installed, path).await);
                None
            }
            Build::Environment(_) | Build::Custom(_) => None,
            Build::Wheel => Some(Wheel::new(name, shop).directory().to_owned()),
            Build::Archive(build) => {
                let archive = Archive::new(name, build, Surroundings::default(), shop);
                told.warnings.extend(archive.warnings().await);
                Some(archive.directory().to_owned())
            }
        };
        if let Some(directory) = directory {
            let chosen = Chosen {
                wish: WantedEngine {
                    release: None,
                    ..wanted.clone()
                },
                build,
                line: told.choice.clone().unwrap_or_default(),
                passed_over: told.passed_over.clone(),
                warnings: told.warnings.clone(),
            };
            if Chosen::read(wanted, shop).await.as_ref() != Some(&chosen) {
                chosen.write(shop).await?;
                prune::prune(&directory, shop).await;
                // Archives of builds that were passed over are of no use any more.
                wipe(&shop.config.directory.join(DOWNLOADS), shop)
                    .await
                    .ok();
            }
        }
        told.state = ProvisionState::Installed {
            version: installed.version.clone(),
            variant: installed.variant.clone(),
        };
        hears(told);
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

// === impl ProvisionDeps ===

impl Default for ProvisionDeps {
    /// This machine as it is, and no release list.
    fn default() -> Self {
        Self {
            releases: None,
            packages: SystemPackages::of_this_machine(),
            prover: None,
            root: Root::system(),
            // As much as the weights leave.
            reserve: Bytes::gib(1),
        }
    }
}

// === impl ProvisionTimes ===

impl Default for ProvisionTimes {
    fn default() -> Self {
        Self {
            version: Duration::from_secs(10),
            // Drivers of GPUs that sleep take some seconds to wake them.
            devices: Duration::from_secs(30),
            // A tenth of a second is usual; a machine that loads a model at the same time takes longer.
            check: Duration::from_secs(20),
            // `pip` itself gives up a connection after 15 s and tries it five times.
            silence: Duration::from_secs(300),
            // Importing torch and vLLM three times, cold, took two minutes on two busy cores.
            environment: Duration::from_secs(600),
            compute: Deadlines::default(),
        }
    }
}

fn warnings_of(error: &ProvisionError, build: &Build) -> Vec<llmgw_core::cluster::node::Warning> {
    let (ProvisionError::Build { problems, .. }, Build::Archive(build)) = (error, build) else {
        return Vec::new();
    };
    problems
        .iter()
        .filter_map(|problem| match problem {
            BuildProblem::Glibc { need, have, .. } => Some(plan::glibc_too_old(
                &build.tag,
                &build.variant,
                *need,
                *have,
            )),
            _ => None,
        })
        .collect()
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
