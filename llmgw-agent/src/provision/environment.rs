//! Engines that are Python environments: made by `uv` from exact versions with digests, checked, and kept.
//!
//! ```text
//! <directory>/vllm/
//!     .uv-cache/                     what was downloaded; gone when the environment is marked
//!     environment-0.33.0-1f2e3d4c5b6a/
//!         venv/                      the environment
//!         lock.txt                   what was pinned
//!         check.py                   ours
//!         installed.json             written last
//! ```
//!
//! An environment without its marker is made again from the start. What `uv` has downloaded for it by then is not
//! downloaded again: its cache holds whole packages, each under its digest.

mod check;
mod lock;
mod made;
mod problem;
mod room;
mod unused;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use llmgw_core::{
    cluster::engine::{EngineSource, ProvisionState},
    id::EngineName,
};
use serde::{Deserialize, Serialize};
use tokio::{fs, io::AsyncReadExt as _, task::spawn_blocking};

use self::{
    check::{Check, Findings},
    lock::{Lock, shipped},
    made::Made,
};
pub use self::{
    lock::LockError,
    problem::{EnvironmentProblem, Stage},
};
use super::{ProvisionError, Shop, step};
use crate::{
    durable,
    engine::{InstalledEngine, Launch},
    flight::Progress,
    python::{PythonVersion, Search, interpreter},
};

/// Where an environment comes from.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Origin {
    /// The lock that ships with the agent.
    Shipped,
    /// A lock on the node.
    Lock(PathBuf),
    /// Somebody else's, used as it is.
    Existing(PathBuf),
}

/// The environment of one engine.
#[derive(Debug)]
pub(super) struct Environment<'a> {
    shop: &'a Shop,
    engine: EngineName,
    origin: Origin,
}

/// Whether an engine of this name is a Python environment.
pub(super) fn is_in_python(name: &EngineName) -> bool {
    matches!(name.as_str(), "vllm" | "sglang")
}

/// Chooses where the environment comes from, and says why.
pub(super) fn choose(source: &EngineSource, configured: Option<&Path>) -> (Origin, &'static str) {
    match (source, configured) {
        (EngineSource::Path(path), _) => (Origin::Existing(path.into()), "it was asked for"),
        (EngineSource::Lock(path), _) => (Origin::Lock(path.into()), "it was asked for"),
        (_, Some(path)) => (
            Origin::Existing(path.to_owned()),
            "the configuration names it",
        ),
        (_, None) => (Origin::Shipped, "no other is named"),
    }
}

// === impl Origin ===

impl Origin {
    /// What people call it.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Shipped => "environment of the lock that ships with the agent".to_owned(),
            Self::Lock(path) => format!("environment of the lock {}", path.display()),
            Self::Existing(path) => format!("the environment at {}", path.display()),
        }
    }
}

// === impl Environment ===

impl<'a> Environment<'a> {
    pub(super) fn new(engine: EngineName, origin: Origin, shop: &'a Shop) -> Self {
        Self {
            shop,
            engine,
            origin,
        }
    }

    /// Makes the environment unless it is there, and checks it.
    pub(super) async fn ensure(
        &self,
        told: &Progress<ProvisionState>,
    ) -> Result<InstalledEngine, ProvisionError> {
        let (version, environment) = match &self.origin {
            Origin::Existing(path) => (self.existing(path, told).await?, path.clone()),
            Origin::Shipped | Origin::Lock(_) => {
                let made = self.planned(told).await?;
                made.ensure(told).await?;
                let environment = made.environment();
                (made.version, environment)
            }
        };
        Ok(InstalledEngine {
            name: self.engine.clone(),
            version,
            variant: "environment".to_owned(),
            launch: Launch::Environment {
                python: interpreter(&environment),
            },
        })
    }

    async fn existing(
        &self,
        path: &Path,
        told: &Progress<ProvisionState>,
    ) -> Result<String, ProvisionError> {
        let python = interpreter(path);
        if !path.is_absolute() || fs::metadata(&python).await.is_err() {
            let problem = EnvironmentProblem::Missing(path.display().to_string());
            return Err(wrong(&self.engine, vec![problem]));
        }
        let directory = self.shop.config.directory.join(self.engine.as_str());
        fs::create_dir_all(&directory)
            .await
            .map_err(failed("making", &directory))?;
        let script = directory.join("check.py");
        keep_script(&script).await?;
        let check = Check {
            shop: self.shop,
            engine: &self.engine,
            python: &python,
            script: &script,
            lock: None,
            directory: &directory,
        };
        match check.run(&|words| step(told, words)).await {
            Findings {
                version: Some(version),
                problems,
            } if problems.is_empty() => Ok(version),
            Findings { problems, .. } => Err(wrong(&self.engine, problems)),
        }
    }

    /// Finds the lock and the Python that fit each other and this machine.
    async fn planned(&self, told: &Progress<ProvisionState>) -> Result<Made<'_>, ProvisionError> {
        step(told, "looking for Python".to_owned());
        let directory = &self.shop.config.directory;
        fs::create_dir_all(directory)
            .await
            .map_err(failed("making", directory))?;
        let search = Search {
            configured: self.shop.config.python.as_deref(),
            directory,
            env: &self.shop.config.marker_env,
        };
        let (lock, python) = match &self.origin {
            Origin::Lock(path) => {
                let lock = Lock::parse(&read_lock(path).await?)?;
                let fits: Vec<u32> = match lock.python {
                    Some(minor) => vec![minor],
                    None => (OLDEST_MINOR..=NEWEST_MINOR).collect(),
                };
                let python = search.find_version(&fits).await?;
                (lock, python)
            }
            Origin::Shipped | Origin::Existing(_) => {
                let arch = std::env::consts::ARCH;
                let lock_for = |minor: &u32| shipped(self.engine.as_str(), *minor, arch);
                let fits: Vec<u32> = (OLDEST_MINOR..=NEWEST_MINOR)
                    .filter(|minor| lock_for(minor).is_some())
                    .collect();
                let not_shipped = |python: String| LockError::NotShipped {
                    engine: self.engine.clone(),
                    python,
                    architecture: arch.to_owned(),
                };
                if fits.is_empty() {
                    return Err(not_shipped("3".to_owned()).into());
                }
                let python = search.find_version(&fits).await?;
                let PythonVersion(_, minor, _) = python.version;
                let text =
                    lock_for(&minor).ok_or_else(|| not_shipped(python.version.to_string()))?;
                (Lock::parse(text)?, python)
            }
        };
        let version = lock
            .version_of(self.engine.as_str())
            .ok_or_else(|| LockError::NoEngine {
                engine: self.engine.clone(),
            })?
            .to_owned();
        let directory = directory
            .join(self.engine.as_str())
            .join(format!("{ENVIRONMENT}{version}-{}", lock.digest()));
        Ok(Made {
            shop: self.shop,
            engine: &self.engine,
            lock,
            version,
            python,
            directory,
        })
    }
}

/// Writes our script, unless it is there and ours.
async fn keep_script(path: &Path) -> Result<(), ProvisionError> {
    if matches!(durable::read_aside(path.to_owned(), durable::SMALL).await, Ok(text) if text == SCRIPT.as_bytes())
    {
        return Ok(());
    }
    write_durably(path.to_owned(), SCRIPT.as_bytes().to_vec()).await
}

async fn write_durably(path: PathBuf, bytes: Vec<u8>) -> Result<(), ProvisionError> {
    let target = path.clone();
    spawn_blocking(move || durable::write(&target, &bytes))
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(failed("writing", &path))
}

async fn read_lock(path: &Path) -> Result<String, LockError> {
    let unreadable = |problem: String| LockError::Unreadable {
        path: path.to_owned(),
        problem,
    };
    let mut text = String::new();
    let file = fs::File::open(path)
        .await
        .map_err(|error| unreadable(error.to_string()))?;
    file.take(LARGEST_LOCK + 1)
        .read_to_string(&mut text)
        .await
        .map_err(|error| unreadable(error.to_string()))?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > LARGEST_LOCK {
        return Err(unreadable("it is larger than 8 MiB".to_owned()));
    }
    Ok(text)
}

fn wrong(engine: &EngineName, problems: Vec<EnvironmentProblem>) -> ProvisionError {
    ProvisionError::Environment {
        engine: engine.clone(),
        problems,
    }
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

const SCRIPT: &str = include_str!("environment/check.py");
/// What the directories of environments begin with.
const ENVIRONMENT: &str = "environment-";
/// A lock of two hundred packages with the digests of all their files has 400 KB.
const LARGEST_LOCK: u64 = 8 << 20;
/// Minor versions of Python 3 that a lock without a head is tried with.
const OLDEST_MINOR: u32 = 10;
const NEWEST_MINOR: u32 = 14;
