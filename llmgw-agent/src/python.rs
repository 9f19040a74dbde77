//! Python as the machine has it: an interpreter that is new enough, environments of its own, and `pip`.
//!
//! Indexes, proxies and certificates are the operator's: `pip` runs with the agent's environment and reads its
//! usual configuration. Nothing is installed outside directories of ours.

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use llmgw_core::error::{Code, Coded};
use serde::Deserialize;

use crate::command::{Helper, HelperError, Inherits, Listener, Patience};

pub mod pip;
pub mod uv;

/// An interpreter that was asked what it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Python {
    /// The program itself, behind version switchers and links.
    pub executable: PathBuf,
    pub version: PythonVersion,
    /// Whether it can make environments that have `pip`.
    pub makes_environments: bool,
    pub has_pip: bool,
}

/// A version of Python.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd)]
pub struct PythonVersion(pub u32, pub u32, pub u32);

/// Where and how interpreters are looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search<'a> {
    /// The one that the configuration names: then no other is looked at.
    pub configured: Option<&'a Path>,
    /// Where helper programs run.
    pub directory: &'a Path,
    /// Marks helper programs as ours.
    pub env: &'a [(OsString, OsString)],
}

/// What an interpreter is wanted for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Need {
    /// To make an environment.
    Environment,
    /// To run `pip`: it has it, or can make an environment that does.
    Pip,
}

/// Why there is no usable Python.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PythonError {
    /// Nothing that answers to the names of Python is new enough.
    #[error("Python 3.10 or newer is needed, and {found}")]
    TooOld {
        /// What was found instead, in words.
        found: String,
    },
    /// None of the versions that will do is there.
    #[error("Python {wanted} is needed, and {found}")]
    OtherVersion {
        /// The versions that will do, in words.
        wanted: String,
        /// What was found instead, in words.
        found: String,
    },
    /// The interpreter lacks the parts that make environments.
    #[error(
        "Python {version} at {} can't make environments: its modules venv and ensurepip are not there",
        python.display()
    )]
    NoVenv {
        /// Which interpreter.
        python: PathBuf,
        /// Its version.
        version: PythonVersion,
    },
    /// Making an environment failed.
    #[error("{} could not make an environment ({how}): {said}", python.display())]
    Environment {
        /// Which interpreter.
        python: PathBuf,
        /// How it ended.
        how: String,
        /// The last line that it printed.
        said: String,
    },
    /// The interpreter did not end by itself.
    #[error(transparent)]
    Helper(#[from] HelperError),
}

#[derive(Deserialize)]
struct Answer {
    executable: PathBuf,
    version: PythonVersion,
    environments: bool,
    pip: bool,
}

// === impl PythonVersion ===

impl fmt::Display for PythonVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(major, minor, patch) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

// === impl Search ===

impl Search<'_> {
    /// The first interpreter that is new enough and can do what is needed.
    pub(crate) async fn find(&self, need: Need) -> Result<Python, PythonError> {
        let mut older = Vec::new();
        let mut incapable = None;
        for name in self.names() {
            let Some(python) = self.ask(&name).await else {
                continue;
            };
            if python.version < OLDEST {
                older.push(format!(
                    "{} is {}",
                    python.executable.display(),
                    python.version
                ));
            } else if python.makes_environments || (need == Need::Pip && python.has_pip) {
                return Ok(python);
            } else if incapable.is_none() {
                incapable = Some(python);
            }
        }
        if let Some(python) = incapable {
            return Err(PythonError::NoVenv {
                python: python.executable,
                version: python.version,
            });
        }
        older.dedup();
        let found = match (older.is_empty(), self.configured) {
            (false, _) => older.join(", "),
            (true, Some(path)) => format!("{} is no Python", path.display()),
            (true, None) => "none is on the PATH".to_owned(),
        };
        Err(PythonError::TooOld { found })
    }

    /// The first interpreter whose minor version will do, and that can make environments.
    pub(crate) async fn find_version(&self, fits: &[u32]) -> Result<Python, PythonError> {
        let mut found = Vec::new();
        for name in self.names() {
            let Some(python) = self.ask(&name).await else {
                continue;
            };
            let PythonVersion(major, minor, _) = python.version;
            if major == 3 && fits.contains(&minor) {
                if python.makes_environments {
                    return Ok(python);
                }
                return Err(PythonError::NoVenv {
                    python: python.executable,
                    version: python.version,
                });
            }
            found.push(format!(
                "{} is {}",
                python.executable.display(),
                python.version
            ));
        }
        found.dedup();
        let wanted: Vec<String> = fits.iter().map(|minor| format!("3.{minor}")).collect();
        Err(PythonError::OtherVersion {
            wanted: wanted.join(" or "),
            found: if found.is_empty() {
                "none is on the PATH".to_owned()
            } else {
                found.join(", ")
            },
        })
    }

    fn names(&self) -> Vec<PathBuf> {
        match self.configured {
            Some(path) => vec![path.to_owned()],
            None => NAMES.iter().map(PathBuf::from).collect(),
        }
    }

    /// Asks one interpreter; `None` when it is not there or does not answer as a Python does.
    async fn ask(&self, name: &Path) -> Option<Python> {
        let helper = Helper {
            program: name,
            args: vec!["-I".into(), "-c".into(), QUESTION.into()],
            env: self.env,
            inherits: Inherits::Basics,
            without: &[],
            directory: self.directory,
            patience: Patience::Whole(ANSWER),
        };
        let finished = helper.run(&Listener::NONE).await.ok()?;
        let answer = finished.lines.iter().find(|line| line.starts_with('{'))?;
        let Answer {
            executable,
            version,
            environments,
            pip,
        } = serde_json::from_str(answer).ok()?;
        (finished.status.success() && executable.is_absolute()).then_some(Python {
            executable,
            version,
            makes_environments: environments,
            has_pip: pip,
        })
    }
}

/// Makes an environment with `pip` in it, and returns its interpreter.
pub(crate) async fn make_environment(
    python: &Python,
    environment: &Path,
    search: &Search<'_>,
) -> Result<PathBuf, PythonError> {
    let helper = Helper {
        program: &python.executable,
        args: vec![
            "-I".into(),
            "-m".into(),
            "venv".into(),
            environment.as_os_str().to_owned(),
        ],
        env: search.env,
        inherits: Inherits::Basics,
        without: &[],
        directory: search.directory,
        patience: Patience::Whole(MAKING),
    };
    let finished = helper.run(&Listener::NONE).await?;
    if !finished.status.success() {
        return Err(PythonError::Environment {
            python: python.executable.clone(),
            how: finished.how(),
            said: finished.last_line().to_owned(),
        });
    }
    Ok(interpreter(environment))
}

/// The interpreter of an environment.
pub(crate) fn interpreter(environment: &Path) -> PathBuf {
    environment.join("bin").join("python")
}

impl Coded for PythonError {
    fn code(&self) -> Code {
        Code::Unavailable
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::TooOld { .. } => Some(
                "install Python 3.10 or newer with its venv module (Debian, Ubuntu: apt install \
                 python3 python3-venv), or name one in the configuration"
                    .to_owned(),
            ),
            Self::OtherVersion { wanted, .. } => Some(format!(
                "install Python {wanted} with its venv module, or name one in the configuration"
            )),
            Self::NoVenv { .. } | Self::Environment { .. } => Some(
                "install the package python3-venv (Debian, Ubuntu: apt install python3-venv)"
                    .to_owned(),
            ),
            Self::Helper(_) => None,
        }
    }
}

/// `xllamacpp` is built against the stable interface of 3.10.
const OLDEST: PythonVersion = PythonVersion(3, 10, 0);
/// The machine's own choice first; then names that stand beside an older one, newest first.
const NAMES: &[&str] = &[
    "python3",
    "python3.14",
    "python3.13",
    "python3.12",
    "python3.11",
    "python3.10",
];
/// Also understood by Python 2, so that one can say what is too old.
const QUESTION: &str = r#"
import json, sys
def has(name):
    try:
        __import__(name)
        return True
    except Exception:
        return False
print(json.dumps({
    "executable": sys.executable,
    "version": list(sys.version_info[:3]),
    "environments": has("venv") and has("ensurepip"),
    "pip": has("pip"),
}))
"#;
/// An interpreter starts in a tenth of a second; on a busy machine with a cold disk, in a few.
const ANSWER: Duration = Duration::from_secs(20);
/// `ensurepip` unpacks some thousand files.
const MAKING: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests;
