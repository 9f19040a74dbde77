use std::{collections::BTreeSet, fmt, io, path::PathBuf, sync::Arc, time::Duration};

use llmgw_bundle::error::ArchiveError;
use llmgw_core::{
    cluster::{engine::PassedOver, node::Warning, weights::Sha256Digest},
    error::{Chain, Code, Coded, Retry},
    fetch::FetchError,
    gguf::TensorType,
    id::EngineName,
    units::Bytes,
};

use super::{
    ComputeProblem,
    environment::{EnvironmentProblem, LockError},
    problem::BuildProblem,
};
use crate::{
    engine::InstalledEngine,
    python::{PythonError, pip::PipError, uv::UvError},
};

/// Why an engine is not installed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProvisionError {
    /// No engine of this name.
    #[error("{engine} is not an engine that this release runs")]
    UnknownEngine {
        /// The name.
        engine: EngineName,
    },
    /// There is no build for this processor.
    #[error("{package} is not built for {architecture}")]
    Architecture {
        /// The package, with its version.
        package: String,
        /// The processor's architecture.
        architecture: String,
    },
    /// The package is of one version and one form.
    #[error("{package} is no build of {wish}")]
    OnlyArchives {
        /// The package, with its version.
        package: String,
        /// What is wanted.
        wish: String,
    },
    /// Something that passes by itself stands in the way.
    #[error("{reason}")]
    Waiting {
        /// What.
        reason: String,
        /// When to look again; absent when the control plane says so.
        again: Option<Duration>,
    },
    /// No build can be tried on this machine.
    #[error("{0}")]
    NoBuild(Box<NoBuild>),
    /// The program at a path can't be used.
    #[error("{}: {problem}", path.display())]
    Program {
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        problem: ProgramProblem,
    },
    /// There is no usable Python.
    #[error(transparent)]
    Python(#[from] PythonError),
    /// The package can't be had.
    #[error(transparent)]
    Pip(#[from] PipError),
    /// The package was installed and does not work.
    #[error("{package} was installed and does not work: {problem}")]
    Check {
        /// The package, with its version.
        package: String,
        /// What it did.
        problem: String,
    },
    /// A build was installed and does not compute.
    #[error(
        "{build} does not compute with weights of {}: {problem}",
        each_type(types)
    )]
    Compute {
        /// The engine, its version and variant.
        build: String,
        /// The types that it was tried with.
        types: BTreeSet<TensorType>,
        /// What it did.
        problem: ComputeProblem,
    },
    /// An archive could not be had.
    #[error("fetching {asset}")]
    Fetch {
        /// Its name.
        asset: String,
        /// Why.
        #[source]
        source: Arc<FetchError>,
    },
    /// An archive has other bytes than its publisher lists.
    #[error("{asset} has the sha256 {got}, and {expected} is listed for it")]
    Digest {
        /// Its name.
        asset: String,
        /// What it must be.
        expected: Sha256Digest,
        /// What came.
        got: Sha256Digest,
    },
    /// An archive breaks a rule or is damaged.
    #[error("extracting {asset}")]
    Archive {
        /// Its name.
        asset: String,
        /// What is wrong with it.
        #[source]
        source: Arc<ArchiveError>,
    },
    /// Two archives that belong together have different files of one name.
    #[error("{asset} has another {file} than the archive that it belongs to")]
    Overlap {
        /// The second archive.
        asset: String,
        /// The file.
        file: String,
    },
    /// There is no room.
    #[error("{doing} needs {need} on the disk of {}, and {have} are free", path.display())]
    NoSpace {
        /// What needs it.
        doing: String,
        /// Where.
        path: PathBuf,
        /// How much it needs.
        need: Bytes,
        /// How much there is, less what is kept free.
        have: Bytes,
    },
    /// The disk turned out to be full.
    #[error("the disk of {} is full: {doing} could not be finished", path.display())]
    DiskFull {
        /// What was being done.
        doing: String,
        /// Where.
        path: PathBuf,
    },
    /// What was unpacked does not work on this machine.
    #[error("{build} does not work here: {}", listed(problems))]
    Build {
        /// The build.
        build: String,
        /// All that is wrong with it.
        problems: Vec<BuildProblem>,
    },
    /// A lock was named for an engine that is no Python environment.
    #[error("{engine} is no Python environment, and has no lock")]
    NoEnvironment {
        /// The engine.
        engine: EngineName,
    },
    /// The list of versions can't be used.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// `uv` can't be had, or can't do what it is asked.
    #[error(transparent)]
    Uv(#[from] UvError),
    /// The environment does not work, or can't.
    #[error("the environment of {engine}: {}", told(problems))]
    Environment {
        /// The engine.
        engine: EngineName,
        /// All that is wrong, the first cause first.
        problems: Vec<EnvironmentProblem>,
    },
    /// A file of the installation can't be read or written.
    #[error("{doing} {}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: Arc<io::Error>,
    },
}

/// Why none of the builds that there are can be used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NoBuild {
    /// The engine.
    pub engine: EngineName,
    /// The version that is wanted.
    pub version: String,
    /// Why, in short.
    pub why: String,
    /// Each build that there is, and why not.
    pub passed_over: Vec<PassedOver>,
    /// What the operator should know.
    pub warnings: Vec<Warning>,
    /// What would help.
    pub hint: Option<String>,
    /// Whether the last that was tried will do the same on this machine tomorrow.
    pub lasting: bool,
}

/// What is wrong with a program.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramProblem {
    /// The path depends on where one stands.
    #[error("the path is not absolute")]
    Relative,
    /// Nothing is there.
    #[error("there is no such file")]
    Missing,
    /// It can't be run.
    #[error("it is not a program that may be run")]
    NotExecutable,
    /// It could not be started, or did not end.
    #[error("asked for --version, it could not be run: {0}")]
    Unrunnable(String),
    /// It took too long.
    #[error("asked for --version, it did not answer within {0:?}")]
    Slow(Duration),
    /// It failed.
    #[error("asked for --version, it ended with {how}: {said}")]
    Failed {
        /// How it ended.
        how: String,
        /// The last line that it printed.
        said: String,
    },
    /// It said something else.
    #[error("asked for --version, it said {said:?}, which is no version of llama.cpp")]
    NoVersion {
        /// The last line that it printed.
        said: String,
    },
}

fn told(problems: &[EnvironmentProblem]) -> String {
    let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
    told.join("; ")
}

// === impl ProvisionError ===

impl ProvisionError {
    pub(super) fn not_computing(
        installed: &InstalledEngine,
        types: BTreeSet<TensorType>,
        problem: ComputeProblem,
    ) -> Self {
        Self::Compute {
            build: installed.to_string(),
            types,
            problem,
        }
    }

    /// What is wrong, for one who knows which build it is about.
    pub(super) fn of_the_build(&self) -> String {
        match self {
            Self::Build { problems, .. } => listed(problems),
            other => Chain(other).to_string(),
        }
    }

    /// Whether the same will be wrong the next time, unless the machine or the wish has changed: to try again takes
    /// long and is of little use.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            Self::Compute { .. }
            | Self::Check { .. }
            | Self::Build { .. }
            | Self::Environment { .. } => true,
            Self::NoBuild(none) => none.lasting,
            _ => false,
        }
    }

    /// Whether another build could do better: what is wrong is wrong with this one.
    pub(super) fn is_of_the_build(&self) -> bool {
        !matches!(
            self,
            Self::UnknownEngine { .. }
                | Self::Waiting { .. }
                | Self::NoSpace { .. }
                | Self::DiskFull { .. }
                | Self::File { .. }
        )
    }
}

impl Coded for ProvisionError {
    fn code(&self) -> Code {
        match self {
            Self::UnknownEngine { .. }
            | Self::Architecture { .. }
            | Self::OnlyArchives { .. }
            | Self::NoEnvironment { .. }
            | Self::Program { .. } => Code::InvalidRequest,
            Self::Lock(error) => error.code(),
            Self::Uv(error) => error.code(),
            Self::Environment { .. } => Code::Unavailable,
            Self::Python(error) => error.code(),
            Self::Pip(error) => error.code(),
            Self::Fetch { source, .. } => source.code(),
            Self::Digest { .. } | Self::Overlap { .. } => Code::VerificationFailed,
            Self::Archive { source, .. } => source.code(),
            Self::Compute { problem, .. } => problem.code(),
            Self::Check { .. }
            | Self::Build { .. }
            | Self::Waiting { .. }
            | Self::NoBuild(_)
            | Self::NoSpace { .. }
            | Self::DiskFull { .. } => Code::Unavailable,
            Self::File { .. } => Code::Internal,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Waiting {
                again: Some(again), ..
            } => Retry::After(*again),
            _ => self.code().retry(),
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Python(error) => return error.hint(),
            Self::Pip(error) => return error.hint(),
            Self::Fetch { source, .. } => return source.hint(),
            Self::Archive { source, .. } => return source.hint(),
            Self::Compute { problem, .. } => return problem.hint(),
            Self::Build { problems, .. } => {
                return problems.iter().find_map(BuildProblem::hint);
            }
            Self::NoBuild(none) => none.hint.as_deref().unwrap_or(
                "name the path of a llama-server that works on this machine, or another version",
            ),
            Self::Waiting { .. } => return None,
            Self::Lock(error) => return error.hint(),
            Self::Uv(error) => return error.hint(),
            Self::Environment { problems, .. } => return problems.first()?.hint(),
            Self::NoEnvironment { .. } => "a lock is for vllm and sglang",
            Self::UnknownEngine { .. } => {
                "use llamacpp, vllm or sglang, or describe it by its command"
            }
            Self::Architecture { .. } => {
                "build llama.cpp on this machine and name the path of its llama-server"
            }
            Self::OnlyArchives { .. } => "leave version and variant out, or use the source github",
            Self::Program { problem, .. } => match problem {
                ProgramProblem::Failed { .. } => {
                    "run it by hand: a library that it needs may be missing"
                }
                _ => "name the absolute path of a llama-server program",
            },
            Self::Check { .. } => "this processor may lack instructions that the build uses",
            Self::Digest { .. } => {
                "it was damaged or changed on its way and is not used; a proxy may have put another in its place"
            }
            Self::Overlap { .. } => "name another version: this one was published wrongly",
            Self::NoSpace { .. } | Self::DiskFull { .. } => {
                "free some disk space, or move the data directory to a larger disk"
            }
            Self::File { .. } => "check the rights and the free space of the data directory",
        };
        Some(hint.to_owned())
    }
}

fn each_type(types: &BTreeSet<TensorType>) -> String {
    let names: Vec<String> = types.iter().map(ToString::to_string).collect();
    names.join(", ")
}

fn listed(problems: &[BuildProblem]) -> String {
    let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
    all.join("; ")
}

impl fmt::Display for NoBuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            engine,
            version,
            why,
            passed_over,
            warnings: _,
            hint: _,
            lasting: _,
        } = self;
        write!(f, "no build of {engine} {version} can be used here: {why}")?;
        for PassedOver { build, reason } in passed_over {
            write!(f, "; {build}: {reason}")?;
        }
        Ok(())
    }
}
