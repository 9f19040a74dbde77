//! Whether an installed build computes: a tiny model, loaded and asked as replicas are.
//!
//! A build that says its version may still die at the first weights of a common type, wait for ever on a driver,
//! compute nonsense, or compute on the processor beside an idle GPU. So [`compute`] makes a model whose answer is
//! known ([`CheckModel`]), starts the build on it with the command of a replica, asks for two tokens, and compares.
//! The build runs in a child with bounds and deadlines, and is ended with its whole tree.
//!
//! What was proven is kept beside the installation ([`Record`]), for the types of weights that the model had. Weights
//! of another type are proven when they come, before the replica starts; types that no model can be made of
//! ([`CheckModel::is_provable`]) are left to the engine.

mod ask;
mod devices;
mod file;
mod problem;
mod record;

use std::{
    collections::BTreeSet,
    ffi::OsString,
    net::{Ipv4Addr, TcpListener},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use llmgw_core::{
    cluster::{
        catalog::{Needs, Profile},
        replica::ReplicaSpec,
        weights::Weights,
    },
    error::Chain,
    fingerprint::Fingerprint,
    gguf::{TensorType, check::CheckModel},
    id::ReplicaId,
    units::{Bytes, Tokens},
};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};

pub use self::problem::{ComputeProblem, Phase};
pub(super) use self::record::Record;
use self::{
    ask::Question,
    devices::Devices,
    file::ModelFile,
    problem::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV},
};
use crate::{
    command::{Attended, Bounds, Finished, Helper, HelperError, Inherits, Listener, Patience},
    engine::{Engine, InstalledEngine, LaunchRequest, engine},
};

/// Where a build is to compute.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Expectation {
    /// Wherever it likes: on a node without GPUs, that is the processor.
    Cpu,
    /// On a GPU, and not silently on the processor.
    Gpu,
}

/// How long a build may take for a tiny model.
///
/// A good build takes 0.3 s for both. A machine that does other work, an index of Python modules on a cold disk
/// and a GPU driver that compiles its programs at the first use take a hundred times that.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// From the start until it is healthy.
    pub load: Duration,
    /// For the answer.
    pub compute: Duration,
}

/// What a build has shown.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Proof {
    /// The types of weights that it computes with.
    pub types: BTreeSet<TensorType>,
    /// How long that took, from the start of the build until its answer.
    pub took: Duration,
}

/// One check of one build.
#[derive(Clone, Copy, Debug)]
pub(super) struct ComputeCheck<'a> {
    /// What is checked.
    pub engine: &'a InstalledEngine,
    /// A directory for the model; made when it is not there.
    pub scratch: &'a Path,
    /// Where it is to compute.
    pub expectation: Expectation,
    /// The GPUs that it sees, as a replica names them; all when there are none.
    pub gpus: &'a [u32],
    /// All of the environment that it gets beside what its own command needs.
    pub env: &'a [(OsString, OsString)],
    /// How long it may take.
    pub deadlines: Deadlines,
}

// === impl Deadlines ===

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            load: Duration::from_secs(120),
            compute: Duration::from_secs(60),
        }
    }
}

/// Checks a build with the types that most weights are made of.
///
/// # Errors
/// What the build did instead.
pub(super) async fn compute(
    engine: &InstalledEngine,
    scratch: &Path,
    expectation: Expectation,
    env: &[(OsString, OsString)],
    deadlines: Deadlines,
) -> Result<Proof, ComputeProblem> {
    let check = ComputeCheck {
        engine,
        scratch,
        expectation,
        gpus: &[],
        env,
        deadlines,
    };
    check.run(&made(CheckModel::mixed).await?).await
}

/// Makes a model, beside the work of others: it takes some milliseconds.
pub(super) async fn made<M: Send + 'static>(
    make: impl FnOnce() -> M + Send + 'static,
) -> Result<M, ComputeProblem> {
    let made = spawn_blocking(make).await;
    made.map_err(|error| ComputeProblem::Untried(error.to_string()))
}

// === impl ComputeCheck ===

impl ComputeCheck<'_> {
    /// Checks the build with this model. Dropping the future ends the build.
    ///
    /// # Errors
    /// What the build did instead.
    pub(super) async fn run(&self, model: &CheckModel) -> Result<Proof, ComputeProblem> {
        let name = &self.engine.name;
        let engine = engine(name)
            .ok_or_else(|| ComputeProblem::Untried(format!("this release knows no {name}")))?;
        let spec = spec(self);
        let file = ModelFile::write(model, self.scratch, spec.id).await?;
        let port = free_port()?;
        let phase = Mutex::new(Phase::Loading);
        let devices = Mutex::new(Devices::default());
        let question = Question {
            engine: engine.as_ref(),
            spec: &spec,
            model,
            port,
            deadlines: self.deadlines,
            loaded: &|| *phase.lock().unwrap_or_else(PoisonError::into_inner) = Phase::Computing,
        };
        let begin = Instant::now();
        let attended = self
            .attend(engine.as_ref(), &spec, &file, port, &devices, async {
                let done = question.ask().await;
                if self.expectation == Expectation::Gpu {
                    // Engines write their logs beside their work.
                    sleep(LOG_IS_WRITTEN).await;
                }
                done
            })
            .await;
        let took = begin.elapsed();
        let phase = *phase.lock().unwrap_or_else(PoisonError::into_inner);
        match attended {
            Ok(Attended::Done(done)) => done?,
            Ok(Attended::Ended(finished)) => return Err(ended(&finished, phase)),
            Err(HelperError::Deadline { after, .. } | HelperError::Silent { after, .. }) => {
                return Err(ComputeProblem::Hang { phase, after });
            }
            Err(error) => return Err(ComputeProblem::Untried(Chain(&error).to_string())),
        }
        if self.expectation == Expectation::Gpu {
            let devices = devices.lock().unwrap_or_else(PoisonError::into_inner);
            devices
                .on_gpu()
                .map_err(|said| ComputeProblem::SilentCpu { said })?;
        }
        tracing::info!(engine = %self.engine, took_ms = took.as_millis(), "an engine computes");
        Ok(Proof {
            types: model.types(),
            took,
        })
    }

    /// Starts the build as a replica's, asks it, ends it.
    async fn attend<W: Future>(
        &self,
        engine: &dyn Engine,
        spec: &ReplicaSpec,
        file: &ModelFile,
        port: u16,
        devices: &Mutex<Devices>,
        work: W,
    ) -> Result<Attended<W::Output>, HelperError> {
        let command = engine.command(&LaunchRequest {
            engine: self.engine,
            spec,
            weights: file.path(),
            port,
            card: None,
        });
        let mut env = self.env.to_vec();
        env.extend(command.env);
        if self.expectation == Expectation::Gpu {
            // Where the weights lie is said at this verbosity alone.
            env.push((VERBOSITY.into(), "4".into()));
        }
        let Deadlines { load, compute } = self.deadlines;
        let whole = load.saturating_add(compute).saturating_add(SLACK);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let cores = u32::try_from(cores).unwrap_or(u32::MAX);
        let bounds = Bounds {
            cpu: whole.saturating_mul(cores),
            memory: match self.expectation {
                Expectation::Cpu => Some(memory(cores)),
                // Drivers map what they will never touch.
                Expectation::Gpu => None,
            },
            mark: (MARK.into(), spec.id.to_string().into()),
        };
        let helper = Helper {
            program: &command.program,
            args: command.args,
            env: &env,
            inherits: Inherits::Basics,
            without: &[],
            directory: self.scratch,
            patience: Patience::Whole(whole),
        };
        let hears = |line: &str| {
            devices
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .hear(line);
        };
        let listener = Listener {
            line: &hears,
            filling: None,
        };
        helper.attend(&bounds, &listener, work).await
    }
}

/// What the end of a build means.
fn ended(finished: &Finished, phase: Phase) -> ComputeProblem {
    let mut said: Vec<String> = finished
        .lines
        .iter()
        .rev()
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
        .take(LAST_LINES)
        .collect();
    said.reverse();
    let status = finished.status;
    // A shell that has started the engine says its signal as a status.
    let by_shell = status
        .code()
        .map(|code| code - 128)
        .filter(|signal| [SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV].contains(signal));
    match status.signal().or(by_shell) {
        Some(signal) => ComputeProblem::Signal {
            signal,
            phase,
            said,
        },
        None => ComputeProblem::Exited {
            status: status.code().unwrap_or_default(),
            phase,
            said,
        },
    }
}

/// A replica that no node is asked to run.
fn spec(check: &ComputeCheck<'_>) -> ReplicaSpec {
    let name = "check";
    ReplicaSpec {
        id: ReplicaId::generate(),
        model: name_of(name),
        profile: Profile {
            name: name_of(name),
            engine: check.engine.name.clone(),
            memory: Bytes::mib(64),
            context: Tokens(512),
            parallel: 1,
            needs: Needs::default(),
        },
        weights: Weights {
            sources: Vec::new(),
            sha256: None,
            size: None,
            files: Vec::new(),
        },
        fingerprint: Fingerprint(0),
        gpus: check.gpus.to_vec(),
    }
}

#[expect(clippy::expect_used, reason = "the name is ours and is one")]
fn name_of<T: std::str::FromStr<Err: std::fmt::Debug>>(name: &str) -> T {
    name.parse().expect("a lower-case word is a name")
}

fn free_port() -> Result<u16, ComputeProblem> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| Ok(listener.local_addr()?.port()));
    port.map_err(|error| ComputeProblem::Untried(format!("choosing a port: {error}")))
}

/// What a build may write to beside a GPU. The model takes some MiB, Python less than 100; each thread has a stack
/// of 8 MiB, and engines start several for each core.
fn memory(cores: u32) -> Bytes {
    Bytes::mib(2_048 + 64 * u64::from(cores))
}

/// llama.cpp's variable for `--verbosity`.
const VERBOSITY: &str = "LLAMA_ARG_LOG_VERBOSITY";
/// Marks the processes of one check.
pub(super) const MARK: &str = "LLMGW_CHECK";
/// Enough to see what went wrong.
const LAST_LINES: usize = 8;
const LOG_IS_WRITTEN: Duration = Duration::from_millis(200);
/// Beyond both deadlines, which are kept by who asks.
const SLACK: Duration = Duration::from_secs(10);
