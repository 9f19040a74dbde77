//! An environment that is made from a lock, step by step, its marker last.

use std::{
    io,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

use llmgw_core::{clock::Timestamp, cluster::engine::ProvisionState, id::EngineName};
use serde::{Deserialize, Serialize};
use tokio::{fs, task::spawn_blocking};

use super::{
    EnvironmentProblem, LockError,
    check::Check,
    failed, keep_script,
    lock::{Lock, version_pair},
    room::Room,
    unused, write_durably, wrong,
};
use crate::{
    command::Listener,
    durable,
    facts::system,
    flight::Progress,
    provision::{ProvisionError, Shop, step},
    python::{
        Python, interpreter,
        uv::{Place, Uv},
    },
};

/// An environment that is made, or to be made, from a lock.
#[derive(Debug)]
pub(super) struct Made<'a> {
    pub(super) shop: &'a Shop,
    pub(super) engine: &'a EngineName,
    pub(super) lock: Lock,
    pub(super) version: String,
    pub(super) python: Python,
    pub(super) directory: PathBuf,
}

/// The marker of a finished environment.
#[derive(Debug, Deserialize, Serialize)]
struct Marker {
    engine: EngineName,
    version: String,
    lock: String,
    installed_at: Timestamp,
}

// === impl Made ===

impl Made<'_> {
    /// Makes it unless it is there, and checks it.
    pub(super) async fn ensure(
        &self,
        told: &Progress<ProvisionState>,
    ) -> Result<(), ProvisionError> {
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
                    transfer: None,
                    eta_seconds: None,
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
        let kept = self.directory.clone();
        // Nothing depends on its end; it is waited for, so that no task is without an owner.
        if let Err(error) = spawn_blocking(move || unused::remove(&kept)).await {
            tracing::warn!(%error, "old environments are left");
        }
        Ok(())
    }

    /// What can be told before gigabytes are downloaded.
    fn refuse_machine(&self) -> Result<(), ProvisionError> {
        let root = &self.shop.root;
        let glibc = system::SystemProbe::default().glibc(root, std::env::consts::ARCH);
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
        let Ok(marker) = durable::read_aside(self.marker(), durable::SMALL).await else {
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

    /// Where its packages are.
    pub(super) fn environment(&self) -> PathBuf {
        self.directory.join("venv")
    }

    fn script(&self) -> PathBuf {
        self.directory.join("check.py")
    }

    fn marker(&self) -> PathBuf {
        self.directory.join("installed.json")
    }
}

const TRASH: &str = ".trash-";
/// What a driver of NVIDIA leaves on a machine; the last two are those of Windows' Linux and of Jetson.
const DRIVERS: [&str; 4] = [
    "/proc/driver/nvidia/version",
    "/dev/nvidiactl",
    "/dev/dxg",
    "/dev/nvhost-ctrl",
];
