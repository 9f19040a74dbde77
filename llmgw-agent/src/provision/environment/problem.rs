use std::time::Duration;

use llmgw_core::{
    error::{Code, Coded},
    units::Bytes,
};

/// What is wrong with an engine's environment, or with the machine that it is for.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentProblem {
    /// There is no driver of NVIDIA, and the engine's build needs one.
    #[error("this machine has no NVIDIA driver: {engine}'s build needs one")]
    NoDriver {
        /// The engine.
        engine: String,
    },
    /// The driver is there, and torch can't use it.
    #[error(
        "torch {torch} is built for CUDA {cuda}, which the NVIDIA driver of this machine does not run"
    )]
    Driver {
        /// Torch's version.
        torch: String,
        /// The version of CUDA that it was built for.
        cuda: String,
    },
    /// Torch works and sees no GPU.
    #[error("torch {torch} sees no GPU")]
    NoGpu {
        /// Torch's version.
        torch: String,
    },
    /// A package is not the one that is pinned.
    #[error("{package} is {}, and {want} is pinned", have.as_deref().unwrap_or("not installed"))]
    Version {
        /// The package.
        package: String,
        /// What is pinned.
        want: String,
        /// What is installed, when it is.
        have: Option<String>,
    },
    /// A compiled part needs a library that is not there.
    #[error("{object} needs {library}, which is not there")]
    Library {
        /// The part, by its path among the packages.
        object: String,
        /// The library.
        library: String,
    },
    /// A part of the check failed.
    #[error("{stage}: {said}")]
    Failed {
        /// Which part.
        stage: Stage,
        /// What was said.
        said: String,
    },
    /// The engine says that it is another version.
    #[error("it says that it is {says}, and {want} is installed")]
    Says {
        /// What it says.
        says: String,
        /// What is installed.
        want: String,
    },
    /// The process that checks ended in the middle of it.
    #[error("the check ended with {how} at: {stage}: {said}")]
    Ended {
        /// Where it was.
        stage: Stage,
        /// How it ended.
        how: String,
        /// The last that it printed.
        said: String,
    },
    /// It took too long.
    #[error("the check did not end within {after:?}; it was at: {stage}")]
    Slow {
        /// Where it was.
        stage: Stage,
        /// How long it had.
        after: Duration,
    },
    /// The interpreter could not be run.
    #[error("the environment's Python can't be run: {0}")]
    Unrunnable(String),
    /// There is no environment where one is named.
    #[error("there is no Python environment at {0}")]
    Missing(String),
    /// The disk has no room for it.
    #[error("the environment needs {need}, and the disk has {have} besides a reserve of {reserve}")]
    Room {
        /// What it takes, unpacked; what is there already is not counted.
        need: Bytes,
        /// What is free, less the reserve.
        have: Bytes,
        /// What stays free.
        reserve: Bytes,
    },
}

/// A part of the check, in the order in which they are made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Stage {
    /// The interpreter starts.
    Start,
    /// What is installed, against what is pinned.
    Versions,
    /// Libraries that compiled parts need.
    Libraries,
    /// Whether torch finds the devices that it was built for.
    Torch,
    /// Importing the compiled module.
    Import,
    /// The engine says its version.
    Version,
}

// === impl Stage ===

impl Stage {
    /// The stage of this name in the script's answers.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "versions" => Some(Self::Versions),
            "libraries" => Some(Self::Libraries),
            "torch" => Some(Self::Torch),
            "import" => Some(Self::Import),
            "version" => Some(Self::Version),
            _ => None,
        }
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Start => "starting Python",
            Self::Versions => "comparing versions",
            Self::Libraries => "looking for libraries",
            Self::Torch => "asking torch for its devices",
            Self::Import => "importing the compiled module",
            Self::Version => "asking for --version",
        })
    }
}

impl Coded for EnvironmentProblem {
    fn code(&self) -> Code {
        match self {
            Self::Missing(_) => Code::NotFound,
            Self::Room { .. } => Code::Internal,
            _ => Code::Unavailable,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoDriver { .. } => {
                "install NVIDIA's driver, or run this model by llamacpp, which also computes without a GPU"
            }
            Self::Driver { .. } => {
                "install a newer driver: NVIDIA's table of CUDA versions says which; or name a lock whose torch is \
                 built for an older CUDA"
            }
            Self::NoGpu { .. } => {
                "look at nvidia-smi: the GPU may have failed, or be hidden from this machine or container"
            }
            Self::Version { .. } => {
                "it is made anew at the next attempt; nothing else may install into it"
            }
            Self::Library { .. } => "install the package of the system that has the library",
            Self::Ended { how, .. } if how.contains("SIGILL") => {
                "this build uses instructions that the processor lacks"
            }
            Self::Failed { .. } | Self::Says { .. } | Self::Ended { .. } => {
                "the packages may not fit together: name a lock that was tried on such a machine"
            }
            Self::Slow { .. } => "the machine may be busy, or its disk slow: it is tried again",
            Self::Unrunnable(_) | Self::Missing(_) => {
                "name the directory of an environment, in which bin/python is"
            }
            Self::Room { .. } => "make room on the disk of the data directory",
        };
        Some(hint.to_owned())
    }
}
