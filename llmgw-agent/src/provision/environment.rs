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
mod problem;
mod room;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use llmgw_core::{
    clock::Timestamp,
    cluster::engine::{EngineSource, ProvisionState},
    id::EngineName,
};
use serde::{Deserialize, Serialize};
use tokio::{fs, io::AsyncReadExt as _, task::spawn_blocking};

use self::{
    check::{Check, Findings},
    lock::{Lock, shipped, version_pair},
    room::Room,
};
pub use self::{
    lock::LockError,
    problem::{EnvironmentProblem, Stage},
};
use super::{ProvisionError, Shop, step};
use crate::{
    command::Listener,
    durable,
    engine::{InstalledEngine, Launch},
    facts::system,
    flight::Progress,
    python::{
        Python, PythonVersion, Search, interpreter,
        uv::{Place, Uv},
    },
};

/// Where an environment comes from.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
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

/// An environment that is made, or to be made, from a lock.
#[derive(Debug)]
struct Made<'a> {
    shop: &'a Shop,
    engine: &'a EngineName,
    lock: Lock,
    version: String,
    python: Python,
    directory: PathBuf,
}

/// The marker of a finished environment.
#[derive(Debug, Deserialize, Serialize)]
struct Marker {
    engine: EngineName,
    version: String,
    lock: String,
    installed_at: Timestamp,
}

/// Whether an engine of this name is a Python environment.
pub(super) fn is_in_python(name: &EngineName) -> bool {
    matches!(name.as_str(), "vllm" | "sglang")
}

/// Chooses where the environment comes from, and says so in one line.
pub(super) fn choose(
    name: &EngineName,
    source: &EngineSource,
    configured: Option<&Path>,
) -> (Origin, String) {
    let (origin, why) = match (source, configured) {
        (EngineSource::Path(path), _) => (Origin::Existing(path.into()), "it was asked for"),
        (EngineSource::Lock(path), _) => (Origin::Lock(path.into()), "it was asked for"),
        (_, Some(path)) => (
            Origin::Existing(path.to_owned()),
            "the configuration names it",
        ),
        (_, None) => (Origin::Shipped, "no other is named"),
    };
    let what = match &origin {
        Origin::Shipped => "environment of the lock that ships with the agent".to_owned(),
        Origin::Lock(path) => format!("environment of the lock {}", path.display()),
        Origin::Existing(path) => format!("the environment at {}", path.display()),
    };
    let line = format!("{name} by {what}: {why}");
    (origin, line)
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
            .join(format!("environment-{version}-{}", lock.digest()));
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

// === impl Made ===

impl Made<'_> {
    async fn ensure(&self, told: &Progress<ProvisionState>) -> Result<(), ProvisionError> {
        if self.is_marked().await {
            keep_script(&self.script()).await?;
            let problems = self.check(told).await;
            let Some(spoilt) = problems.first() else {
                return Ok(());
            };
            // What is wrong with the machine is not cured by making the same again.
            if !problems.iter().any(|problem| {
                matches!(
                    problem,
                    EnvironmentProblem::Version { .. } | EnvironmentProblem::Unrunnable(_)
                )
            }) {
                return Err(wrong(self.engine, problems));
            }
            step(told, format!("making it again: {spoilt}"));
        }
        self.make(told).await
    }

    /// Makes it from nothing. The marker comes last.
    async fn make(&self, told: &Progress<ProvisionState>) -> Result<(), ProvisionError> {
        self.refuse_machine()?;
        let cache = self.cache();
        let room = Room::look(&self.parent(), &cache, self.lock.unpacked()).await;
        if let Some(problem) = room.problem() {
            return Err(wrong(self.engine, vec![problem]));
        }
        let place = Place {
            directory: &self.shop.config.directory,
            cache: &cache,
            env: &self.shop.config.marker_env,
            silence: self.shop.times.silence,
        };
        let uv = Uv::find(&self.python, &place, &|words| step(told, words)).await?;
        let whose = if uv.is_own { "this machine's uv" } else { "uv" };
        step(
            told,
            format!(
                "making an environment of Python {} by {whose} {}",
                self.python.version, uv.version
            ),
        );
        self.wipe().await?;
        let environment = self.environment();
        uv.make_environment(&self.python, &environment, &place)
            .await?;
        let requirements = self.directory.join("lock.txt");
        fs::write(&requirements, &self.lock.text)
            .await
            .map_err(failed("writing", &requirements))?;
        let count = self.lock.packages.len();
        let what = format!("{} {}", self.engine, self.version);
        step(told, format!("downloading {what} ({count} packages)"));
        let words = |line: &str| {
            if let Some(rest) = line.trim().strip_prefix("Prepared ") {
                step(told, format!("unpacking {what} ({rest})"));
            }
        };
        let filled = |bytes| {
            if let Some(percent) = room.percent(bytes) {
                told.tell(ProvisionState::Installing {
                    step: format!("downloading {what} ({count} packages)"),
                    percent: Some(percent),
                });
            }
        };
        let listener = Listener {
            line: &words,
            filling: Some((&cache, &filled)),
        };
        let installing = uv.install(&environment, &requirements, &place, &listener);
        tokio::select! {
            installed = installing => installed?,
            // What others write to the disk meanwhile is not in the plan.
            problem = room.runs_out() => return Err(wrong(self.engine, vec![problem])),
        }
        keep_script(&self.script()).await?;
        let problems = self.check(told).await;
        if !problems.is_empty() {
            return Err(wrong(self.engine, problems));
        }
        self.mark().await?;
        // The environment's files stay: both names were of the same file.
        if let Err(error) = fs::remove_dir_all(&cache).await {
            tracing::warn!(path = %cache.display(), %error, "what was downloaded for an engine is left");
        }
        Ok(())
    }

    /// What can be told before gigabytes are downloaded.
    fn refuse_machine(&self) -> Result<(), ProvisionError> {
        let root = &self.shop.root;
        let glibc = system::glibc(root, std::env::consts::ARCH);
        let have = glibc.and_then(|text| version_pair(&text));
        if let (Some(need), Some(have)) = (self.lock.glibc, have)
            && have < need
        {
            return Err(LockError::Glibc {
                engine: self.engine.clone(),
                need,
                have,
            }
            .into());
        }
        if self.lock.is_for_nvidia() && !DRIVERS.iter().any(|path| root.path(path).exists()) {
            let problem = EnvironmentProblem::NoDriver {
                engine: self.engine.to_string(),
            };
            return Err(wrong(self.engine, vec![problem]));
        }
        Ok(())
    }

    async fn is_marked(&self) -> bool {
        let Ok(marker) = fs::read(self.marker()).await else {
            return false;
        };
        serde_json::from_slice::<Marker>(&marker).is_ok_and(|marker| {
            marker.engine == *self.engine
                && marker.version == self.version
                && marker.lock == self.lock.digest()
        })
    }

    async fn check(&self, told: &Progress<ProvisionState>) -> Vec<EnvironmentProblem> {
        let check = Check {
            shop: self.shop,
            engine: self.engine,
            python: &interpreter(&self.environment()),
            script: &self.script(),
            lock: Some(&self.directory.join("lock.txt")),
            directory: &self.directory,
        };
        check.run(&|words| step(told, words)).await.problems
    }

    /// Takes what is there out of the way at once, then removes it: a helper of an earlier life that still writes
    /// there does not find it.
    async fn wipe(&self) -> Result<(), ProvisionError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let parent = self.parent();
        fs::create_dir_all(&parent)
            .await
            .map_err(failed("making", &parent))?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let now = self.shop.config.clock.now().0;
        let trash = parent.join(format!("{TRASH}{now}-{number}"));
        match fs::rename(&self.directory, &trash).await {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("removing", &self.directory)(error)),
        }
        let mut entries = fs::read_dir(&parent)
            .await
            .map_err(failed("reading", &parent))?;
        while let Ok(Some(entry)) = entries.next_entry().await {
            if entry.file_name().to_string_lossy().starts_with(TRASH)
                && let Err(error) = fs::remove_dir_all(entry.path()).await
            {
                tracing::warn!(path = %entry.path().display(), %error, "a part of an old environment is left");
            }
        }
        fs::create_dir_all(&self.directory)
            .await
            .map_err(failed("making", &self.directory))
    }

    async fn mark(&self) -> Result<(), ProvisionError> {
        let marker = Marker {
            engine: self.engine.clone(),
            version: self.version.clone(),
            lock: self.lock.digest(),
            installed_at: self.shop.config.clock.now(),
        };
        let path = self.marker();
        let json = serde_json::to_vec(&marker)
            .map_err(|error| failed("writing", &path)(io::Error::from(error)))?;
        // `uv` leaves its files to the kernel; a marker must not be on the disk before them.
        let directory = self.directory.clone();
        spawn_blocking(move || -> io::Result<()> {
            Ok(rustix::fs::syncfs(std::fs::File::open(directory)?)?)
        })
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(failed("bringing to the disk", &self.directory))?;
        write_durably(path, json).await
    }

    fn parent(&self) -> PathBuf {
        self.shop.config.directory.join(self.engine.as_str())
    }

    fn cache(&self) -> PathBuf {
        self.parent().join(".uv-cache")
    }

    fn environment(&self) -> PathBuf {
        self.directory.join("venv")
    }

    fn script(&self) -> PathBuf {
        self.directory.join("check.py")
    }

    fn marker(&self) -> PathBuf {
        self.directory.join("installed.json")
    }
}

/// Writes our script, unless it is there and ours.
async fn keep_script(path: &Path) -> Result<(), ProvisionError> {
    if matches!(fs::read(path).await, Ok(text) if text == SCRIPT.as_bytes()) {
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
const TRASH: &str = ".trash-";
/// A lock of two hundred packages with the digests of all their files has 400 KB.
const LARGEST_LOCK: u64 = 8 << 20;
/// Minor versions of Python 3 that a lock without a head is tried with.
const OLDEST_MINOR: u32 = 10;
const NEWEST_MINOR: u32 = 14;
/// What a driver of NVIDIA leaves on a machine; the last two are those of Windows' Linux and of Jetson.
const DRIVERS: [&str; 4] = [
    "/proc/driver/nvidia/version",
    "/dev/nvidiactl",
    "/dev/dxg",
    "/dev/nvhost-ctrl",
];
