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
//! | `archive` `wheel` | one installation of each kind |
//! | `marker` `ledger` `prune` | what is remembered, and what is removed |
//!
//! The caller holds the data directory: two processes must not install into the same one.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    ffi::OsString,
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use llmgw_core::{
    clock::Clock,
    cluster::{
        engine::{PassedOver, Provision, ProvisionState, WantedEngine},
        release::Resolution,
    },
    error::Chain,
    fetch::{FetchTimes, Fetcher},
    gguf::{self, TensorType, check::CheckModel},
    id::EngineName,
    releases::ReleaseClient,
    units::Bytes,
};
use tokio::{fs, task::spawn_blocking};

use self::{
    archive::{Archive, Surroundings},
    compute::{ComputeCheck, Expectation, Record, compute, made},
    download::DOWNLOADS,
    ledger::Chosen,
    lookup::Lookup,
    plan::{ArchiveBuild, Build, Choice, Gpus, Machine, Plan, needs_release, plan},
    program::check_program,
    wheel::Wheel,
};
pub use self::{
    compute::{ComputeProblem, Deadlines, Phase},
    error::{NoBuild, ProgramProblem, ProvisionError},
    packages::{Family, PackageManager, PackageProblem, SystemPackages},
    problem::BuildProblem,
    prover::Prover,
};
use crate::{
    engine::{InstalledEngine, loads_gguf},
    facts::{self, Root, Scene},
    flight::{Flights, Progress},
};

mod archive;
mod cache;
mod compute;
mod download;
mod driver;
mod elf;
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
mod prover;
mod prune;
mod quarantine;
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
    /// For `pip` or a package manager to say or write something.
    pub silence: Duration,
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
    lookup: Option<Lookup>,
    packages: SystemPackages,
    prover: Option<Arc<dyn Prover>>,
    root: Root,
    reserve: Bytes,
    fetcher: OnceLock<Fetcher>,
    /// Held by the thread that writes what was chosen.
    ledger: Arc<Mutex<()>>,
}

/// What was found on this machine.
#[derive(Clone, Debug)]
struct Situation {
    surroundings: Surroundings,
    gpus: Gpus,
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
            // A program at a path is in no ledger: it is asked as at the beginning.
            return self.ensure(wanted, &|_, _| ()).await.map(drop);
        };
        let name = wanted.name.clone();
        match &chosen.build {
            Build::Program(path) => check_program(name, path, shop).await.map(drop),
            Build::Wheel => Wheel::new(name, shop).still_works().await,
            Build::Archive(build) => {
                let situation = shop.look().await;
                Archive::new(name, build, situation.surroundings, shop)
                    .check()
                    .await
            }
        }
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
            Build::Program(_) => None,
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

// === impl Shop ===

impl Shop {
    async fn install(
        &self,
        name: EngineName,
        build: Build,
        surroundings: Surroundings,
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
            Build::Archive(build) => {
                let build: ArchiveBuild = build;
                Archive::new(name, &build, surroundings, self)
                    .ensure(&told)
                    .await
            }
        }
    }

    /// Looks at the machine, as far as a build's choice depends on it.
    async fn look(&self) -> Situation {
        let scene = Scene {
            root: self.root.clone(),
            ..Scene::here(&self.config.directory)
        };
        let root = self.root.clone();
        let looked = spawn_blocking(move || {
            let facts = facts::look(&facts::probes(&root), &scene);
            let cards = facts.gpus.unwrap_or_default();
            Situation {
                surroundings: Surroundings {
                    glibc: facts.glibc.and_then(|version| version.parse().ok()),
                },
                gpus: Gpus {
                    nvidia: driver::is_loaded(&root),
                    cuda: cards
                        .iter()
                        .filter_map(|card| card.cuda)
                        .filter_map(|version| version.to_string().parse().ok())
                        .min()
                        .or_else(|| driver::cuda_of_driver(&root)),
                    others: cards.iter().any(|card| card.vendor != "nvidia"),
                },
            }
        });
        looked.await.unwrap_or_else(|_| Situation {
            surroundings: Surroundings::default(),
            gpus: Gpus::default(),
        })
    }

    /// Whether `need` more bytes leave the reserve untouched. A disk that does not say how full it is, is tried.
    fn room(&self, doing: &str, need: u64) -> Result<(), ProvisionError> {
        let path = &self.config.directory;
        // Before the first installation the directory may not be there: what it will be on is.
        let there = path.ancestors().find(|path| path.exists()).unwrap_or(path);
        let Ok(found) = rustix::fs::statvfs(there) else {
            return Ok(());
        };
        let free = Bytes(found.f_bavail.saturating_mul(found.f_frsize));
        let have = free.saturating_sub(self.reserve);
        if need <= have.0 {
            return Ok(());
        }
        Err(ProvisionError::NoSpace {
            doing: doing.to_owned(),
            path: path.clone(),
            need: Bytes(need),
            have,
        })
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

    /// Has a build compute with the types that most weights are made of, and keeps what it has shown.
    async fn compute(
        &self,
        installed: &InstalledEngine,
        on_gpu: bool,
    ) -> Result<(), ComputeProblem> {
        if let Some(prover) = &self.prover {
            return prover.prove(installed, on_gpu).await;
        }
        let expectation = if on_gpu {
            Expectation::Gpu
        } else {
            Expectation::Cpu
        };
        let (scratch, env) = (self.scratch(), self.engine_env());
        let deadlines = self.times.compute;
        let proof = compute(installed, &scratch, expectation, &env, deadlines).await?;
        let record = Record::of(installed, &self.config.directory);
        record.keep(proof.types, expectation).await;
        Ok(())
    }

    fn fetcher(&self) -> Result<&Fetcher, ProvisionError> {
        if self.fetcher.get().is_none() {
            let fetcher =
                Fetcher::new(FetchTimes::default()).map_err(|source| ProvisionError::Fetch {
                    asset: "anything".to_owned(),
                    source: Arc::new(source),
                })?;
            drop(self.fetcher.set(fetcher));
        }
        self.fetcher.get().ok_or_else(|| {
            failed("setting up", Path::new("the downloader"))(io::ErrorKind::Other.into())
        })
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
            compute: Deadlines::default(),
        }
    }
}

/// Takes what is there out of the way at once, then removes it: a helper of an earlier life that still writes
/// there does not find it.
async fn wipe(directory: &Path, shop: &Shop) -> Result<(), ProvisionError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let parent = directory.parent().unwrap_or(&shop.config.directory);
    fs::create_dir_all(parent)
        .await
        .map_err(failed("making", parent))?;
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = shop.config.clock.now().0;
    let trash = parent.join(format!("{TRASH}{now}-{number}"));
    match fs::rename(directory, &trash).await {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("removing", directory)(error)),
    }
    let mut entries = fs::read_dir(parent)
        .await
        .map_err(failed("reading", parent))?;
    while let Ok(Some(entry)) = entries.next_entry().await {
        if entry.file_name().to_string_lossy().starts_with(TRASH)
            && let Err(error) = fs::remove_dir_all(entry.path()).await
        {
            // The next installation tries again; this one does not depend on it.
            tracing::warn!(path = %entry.path().display(), %error, "a part of an old installation is left");
        }
    }
    Ok(())
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

fn step(told: &Progress<ProvisionState>, step: String) {
    told.tell(ProvisionState::step(step));
}

fn failed<'p>(
    doing: &'static str,
    path: &'p Path,
) -> impl FnOnce(io::Error) -> ProvisionError + use<'p> {
    move |source| ProvisionError::File {
        doing,
        path: path.to_owned(),
        source: Arc::new(source),
    }
}

/// Whether a full disk is what it comes down to.
fn full(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>()
            && matches!(
                error.kind(),
                io::ErrorKind::StorageFull
                    | io::ErrorKind::QuotaExceeded
                    | io::ErrorKind::FileTooLarge
            )
        {
            return true;
        }
        next = error.source();
    }
    false
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

const TRASH: &str = ".trash-";
