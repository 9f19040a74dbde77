use std::{io, path::PathBuf, sync::Arc, time::Duration};

use llmgw_core::{
    error::{Code, Coded},
    id::EngineName,
};

use super::environment::{EnvironmentProblem, LockError};
use crate::python::{PythonError, pip::PipError, uv::UvError};

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

impl Coded for ProvisionError {
    fn code(&self) -> Code {
        match self {
            Self::UnknownEngine { .. }
            | Self::Architecture { .. }
            | Self::NoEnvironment { .. }
            | Self::Program { .. } => Code::InvalidRequest,
            Self::Lock(error) => error.code(),
            Self::Uv(error) => error.code(),
            Self::Environment { .. } => Code::Unavailable,
            Self::Python(error) => error.code(),
            Self::Pip(error) => error.code(),
            Self::Check { .. } => Code::Unavailable,
            Self::File { .. } => Code::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Python(error) => return error.hint(),
            Self::Pip(error) => return error.hint(),
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
            Self::Program { problem, .. } => match problem {
                ProgramProblem::Failed { .. } => {
                    "run it by hand: a library that it needs may be missing"
                }
                _ => "name the absolute path of a llama-server program",
            },
            Self::Check { .. } => "this processor may lack instructions that the build uses",
            Self::File { .. } => "check the rights and the free space of the data directory",
        };
        Some(hint.to_owned())
    }
}
