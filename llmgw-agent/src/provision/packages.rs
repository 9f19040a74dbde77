//! Packages of the operating system that a build needs, from the node's own package sources.
//!
//! Nothing is asked of a package manager while all libraries are there. A user who may not install packages is
//! told which are missing.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use llmgw_core::error::{Chain, Code, Coded};

use super::libraries::Provider;
use crate::command::{Helper, Inherits, Listener, Patience};

/// How packages of the system are installed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SystemPackages {
    /// By the system's package manager, when this user may.
    Install(PackageManager),
    /// Not at all: what is missing is said.
    Leave {
        /// Why, in one line.
        reason: String,
    },
}

/// A package manager.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PackageManager {
    /// Whose packages they are.
    pub family: Family,
    /// Its program.
    pub program: PathBuf,
}

/// A family of systems that name packages alike.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Family {
    /// Debian, Ubuntu and their like: `apt-get`.
    Debian,
    /// Fedora, RHEL and their like: `dnf`.
    Fedora,
}

/// Why packages are not installed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PackageProblem {
    /// They may not be.
    #[error("the package {} is missing, and can't be installed here: {reason}", packages.join(", "))]
    NotAllowed {
        /// Which.
        packages: Vec<String>,
        /// Why not.
        reason: String,
    },
    /// They could not be.
    #[error("installing the package {}: {problem}", packages.join(", "))]
    Failed {
        /// Which.
        packages: Vec<String>,
        /// What the package manager did.
        problem: String,
    },
}

// === impl SystemPackages ===

impl SystemPackages {
    /// What can be done on this machine by this user.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let manager = [
            (Family::Debian, "/usr/bin/apt-get"),
            (Family::Fedora, "/usr/bin/dnf"),
        ]
        .into_iter()
        .find(|(_, program)| Path::new(program).exists());
        let Some((family, program)) = manager else {
            return Self::Leave {
                reason: "this system has neither apt-get nor dnf".to_owned(),
            };
        };
        if !rustix::process::geteuid().is_root() {
            return Self::Leave {
                reason: "the agent does not run as root".to_owned(),
            };
        }
        Self::Install(PackageManager {
            family,
            program: program.into(),
        })
    }

    /// Installs what provides the libraries. What no package provides is left out.
    ///
    /// # Errors
    /// When a package is needed and may or can not be installed.
    pub(super) async fn install(
        &self,
        providers: &[Provider],
        env: &[(OsString, OsString)],
        patience: Duration,
    ) -> Result<(), PackageProblem> {
        let wanted: Vec<(&'static [&'static str], &'static str)> = providers
            .iter()
            .filter_map(|provider| match provider {
                Provider::Package { deb, rpm } => Some((*deb, *rpm)),
                Provider::Driver(_) | Provider::Runtime => None,
            })
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let manager = match self {
            Self::Install(manager) => manager,
            Self::Leave { reason } => {
                return Err(PackageProblem::NotAllowed {
                    packages: wanted.iter().map(|(deb, _)| deb.join(" or ")).collect(),
                    reason: reason.clone(),
                });
            }
        };
        for (deb, rpm) in wanted {
            manager.install(deb, rpm, env, patience).await?;
        }
        Ok(())
    }
}

// === impl PackageManager ===

impl PackageManager {
    /// Installs one package: by the first of its names that the sources know, after a look for news when none is
    /// known.
    async fn install(
        &self,
        deb: &[&str],
        rpm: &str,
        env: &[(OsString, OsString)],
        patience: Duration,
    ) -> Result<(), PackageProblem> {
        let names = match self.family {
            Family::Debian => deb,
            Family::Fedora => &[rpm],
        };
        let mut problem = String::new();
        for round in 0..2 {
            for name in names {
                match self.run(&["install", "-y", name], env, patience).await {
                    Ok(()) => return Ok(()),
                    Err(said) => problem = said,
                }
            }
            // The lists of a fresh container are empty, and those of an old one name files that are gone.
            if round == 0 && self.family == Family::Debian {
                match self.run(&["update"], env, patience).await {
                    Ok(()) => {}
                    Err(said) => problem = said,
                }
            } else {
                break;
            }
        }
        Err(PackageProblem::Failed {
            packages: names.iter().map(|name| (*name).to_owned()).collect(),
            problem,
        })
    }

    async fn run(
        &self,
        words: &[&str],
        env: &[(OsString, OsString)],
        patience: Duration,
    ) -> Result<(), String> {
        let mut args: Vec<OsString> = match self.family {
            // Another program may hold the lock for a while, such as unattended upgrades.
            Family::Debian => vec![
                "-q".into(),
                "-o".into(),
                "DPkg::Lock::Timeout=60".into(),
                "--no-install-recommends".into(),
            ],
            Family::Fedora => vec!["-q".into()],
        };
        args.extend(words.iter().map(OsString::from));
        let mut env = env.to_vec();
        env.push(("DEBIAN_FRONTEND".into(), "noninteractive".into()));
        let helper = Helper {
            program: &self.program,
            args,
            env: &env,
            inherits: Inherits::PackageSettings,
            without: &["LD_LIBRARY_PATH", "LD_PRELOAD"],
            directory: Path::new("/"),
            patience: Patience::Silence(patience),
        };
        match helper.run(&Listener::NONE).await {
            Ok(finished) if finished.status.success() => Ok(()),
            Ok(finished) => Err(format!("{}: {}", finished.how(), finished.last_line())),
            Err(error) => Err(Chain(&error).to_string()),
        }
    }
}

impl Coded for PackageProblem {
    fn code(&self) -> Code {
        Code::Unavailable
    }

    fn hint(&self) -> Option<String> {
        let (Self::NotAllowed { packages, .. } | Self::Failed { packages, .. }) = self;
        Some(format!(
            "install {} with this machine's package manager",
            packages.join(", ")
        ))
    }
}
