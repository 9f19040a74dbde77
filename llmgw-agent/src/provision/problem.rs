use std::{collections::BTreeSet, time::Duration};

use llmgw_core::{cluster::node::MajorMinor, error::Coded as _};

use super::{ComputeProblem, PackageProblem, ProgramProblem, libraries::Provider};

/// What is wrong with a build on this machine.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildProblem {
    /// A library is nowhere on this machine.
    #[error("{library} is missing{}, needed by {}", from(package.as_deref()), named(needed_by))]
    Library {
        /// Which.
        library: String,
        /// What has it, as far as that is known.
        package: Option<String>,
        /// Which files need it.
        needed_by: BTreeSet<String>,
    },
    /// Packages of the system that it needs could not be installed.
    #[error("{0}")]
    Packages(PackageProblem),
    /// It was built for a newer C library.
    #[error("{object} needs glibc {need}, and this machine has {have}")]
    Glibc {
        /// The file that asks for it.
        object: String,
        /// What it asks for.
        need: MajorMinor,
        /// What this machine has.
        have: MajorMinor,
    },
    /// A file can't be used on this machine.
    #[error("{object}: {problem}")]
    Object {
        /// Which file.
        object: String,
        /// Why not.
        problem: String,
    },
    /// A file that was installed is gone or has changed.
    #[error("{file} {problem}")]
    File {
        /// Which.
        file: String,
        /// What became of it.
        problem: &'static str,
    },
    /// There is no server program in it.
    #[error("there is no llama-server in it")]
    NoProgram,
    /// The program does not say its version.
    #[error("llama-server: {0}")]
    Program(ProgramProblem),
    /// It sees none of this machine's GPUs.
    #[error("it sees none of this machine's GPUs, and would compute on the processor: {said}")]
    NoDevices {
        /// What it said instead.
        said: String,
    },
    /// It did not list its devices.
    #[error("asked for --list-devices, it did not answer within {after:?}")]
    SlowDevices {
        /// How long it had.
        after: Duration,
    },
    /// It does not compute.
    #[error("{0}")]
    Compute(ComputeProblem),
}

impl BuildProblem {
    /// The problem that a library is missing.
    pub(super) fn library(
        library: &str,
        needed_by: &BTreeSet<String>,
        provider: Option<Provider>,
    ) -> Self {
        Self::Library {
            library: library.to_owned(),
            package: provider.map(|provider| match provider {
                Provider::Package { deb, rpm } => {
                    format!("{} (Debian, Ubuntu) or {rpm} (Fedora)", deb.join(" or "))
                }
                Provider::Driver(driver) => driver.to_owned(),
                Provider::Runtime => "the CUDA runtime archive".to_owned(),
            }),
            needed_by: needed_by.clone(),
        }
    }

    /// Whether the files of the installation are at fault, so that making it anew can help.
    pub(super) fn is_of_the_files(&self) -> bool {
        !matches!(
            self,
            Self::Library { .. } | Self::Packages(_) | Self::Glibc { .. }
        )
    }

    /// What would help.
    pub(super) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Library {
                package: Some(package),
                ..
            } => return Some(format!("install {package}")),
            Self::Library { package: None, .. } => {
                "find the package that has the library and install it"
            }
            Self::Packages(problem) => return problem.hint(),
            Self::Glibc { .. } => "another build or a newer release of the system is needed",
            Self::Program(_) | Self::NoProgram | Self::Object { .. } => {
                "name another version or the path of a llama-server that works here"
            }
            Self::NoDevices { .. } => "check the GPU driver, and that this user may use the GPUs",
            Self::Compute(problem) => return problem.hint(),
            Self::File { .. } | Self::SlowDevices { .. } => return None,
        };
        Some(hint.to_owned())
    }
}

fn from(package: Option<&str>) -> String {
    package.map_or_else(String::new, |package| format!(" ({package})"))
}

fn named(objects: &BTreeSet<String>) -> String {
    let first: Vec<&str> = objects.iter().map(String::as_str).take(2).collect();
    match objects.len() {
        0..=2 => first.join(" and "),
        more => format!("{} and {} more", first.join(", "), more - 2),
    }
}
