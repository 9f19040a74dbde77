//! llama.cpp's server from a Python package, in an environment of its own, behind our launcher.
//!
//! ```text
//! <directory>/llamacpp/wheel-2026.10.11549/
//!     venv/              the environment
//!     launcher.py        ours
//!     requirements.txt   what was pinned
//!     installed.json     written last
//! ```

use std::{
    io,
    path::{Path, PathBuf},
};

use llmgw_core::{
    clock::Timestamp, cluster::engine::ProvisionState, error::Chain, gguf::check::CheckModel,
    id::EngineName,
};
use serde::{Deserialize, Serialize};
use tokio::{fs, task::spawn_blocking};

use super::{
    ProvisionError, Shop,
    compute::{Expectation, Record, compute},
    failed,
    plan::{Found, Step, steps},
    program::NOT_INHERITED,
    step, wipe,
};
use crate::{
    command::{Helper, Inherits, Listener, Patience},
    durable,
    engine::{InstalledEngine, Launch},
    flight::Progress,
    python::{
        Need, Python, Search, interpreter, make_environment,
        pip::{Package, Pip},
    },
};

/// The package that is installed: its lock names the same, with hashes.
pub(super) const PACKAGE: Pinned = Pinned {
    name: "xllamacpp",
    version: "2026.10.11549",
    architectures: &["x86_64", "aarch64"],
};

/// A package, and the architectures that the lock has hashes for.
#[derive(Debug)]
pub(super) struct Pinned {
    pub name: &'static str,
    pub version: &'static str,
    pub architectures: &'static [&'static str],
}

/// The installation of the package in one directory.
#[derive(Debug)]
pub(super) struct Wheel<'a> {
    shop: &'a Shop,
    name: EngineName,
    directory: PathBuf,
}

/// The marker of a finished installation. What is not here is derived from where it stands, so that a data
/// directory can be moved.
#[derive(Debug, Deserialize, Serialize)]
struct Marker {
    package: String,
    version: String,
    installed_at: Timestamp,
}

// === impl Pinned ===

impl Pinned {
    pub(super) fn text(&self) -> String {
        self.package().to_string()
    }

    fn package(&self) -> Package {
        Package {
            name: self.name.to_owned(),
            version: self.version.to_owned(),
        }
    }
}

// === impl Wheel ===

impl<'a> Wheel<'a> {
    pub(super) fn new(name: EngineName, shop: &'a Shop) -> Self {
        let directory = shop
            .config
            .directory
            .join(name.as_str())
            .join(format!("wheel-{}", PACKAGE.version));
        Self {
            shop,
            name,
            directory,
        }
    }

    /// Installs the package unless it is installed, and checks it.
    pub(super) async fn ensure(
        &self,
        told: &Progress<ProvisionState>,
    ) -> Result<InstalledEngine, ProvisionError> {
        let found = self.look().await;
        match self.carry_out(&found, told).await {
            Err(ProvisionError::Check { problem, .. }) if found == Found::Marked => {
                self.carry_out(&Found::Spoilt(problem), told).await?;
            }
            Err(ProvisionError::Compute { problem, .. }) if found == Found::Marked => {
                self.carry_out(&Found::Spoilt(problem.to_string()), told)
                    .await?;
            }
            done => done?,
        }
        Ok(self.installed())
    }

    fn installed(&self) -> InstalledEngine {
        InstalledEngine {
            name: self.name.clone(),
            version: PACKAGE.version.to_owned(),
            variant: "wheel".to_owned(),
            launch: Launch::Wheel {
                python: interpreter(&self.environment()),
                launcher: self.launcher(),
            },
        }
    }

    /// Looks whether what is installed still works; mends nothing.
    pub(super) async fn still_works(&self) -> Result<(), ProvisionError> {
        let package = PACKAGE.package();
        match self.look().await {
            Found::Marked => self.check(&package).await,
            Found::Spoilt(problem) => Err(ProvisionError::Check {
                package: package.to_string(),
                problem,
            }),
            Found::Nothing => Err(ProvisionError::Check {
                package: package.to_string(),
                problem: "it is gone".to_owned(),
            }),
        }
    }

    /// Where it is installed.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    async fn look(&self) -> Found {
        if !matches!(fs::try_exists(&self.directory).await, Ok(true)) {
            return Found::Nothing;
        }
        let Ok(marker) = durable::read_aside(self.marker(), durable::SMALL).await else {
            return Found::Spoilt("an earlier installation was not finished".to_owned());
        };
        match serde_json::from_slice::<Marker>(&marker) {
            Ok(Marker {
                package, version, ..
            }) if package == PACKAGE.name && version == PACKAGE.version => {}
            _ => return Found::Spoilt("its marker can't be read".to_owned()),
        }
        // Follows links: the interpreter behind the environment's may be gone.
        if fs::metadata(interpreter(&self.environment()))
            .await
            .is_err()
        {
            return Found::Spoilt("its Python is gone".to_owned());
        }
        Found::Marked
    }

    async fn carry_out(
        &self,
        found: &Found,
        told: &Progress<ProvisionState>,
    ) -> Result<(), ProvisionError> {
        let package = PACKAGE.package();
        if let Found::Spoilt(why) = found {
            step(told, format!("installing {package} again: {why}"));
        }
        let mut python = None;
        for next in steps(found) {
            match next {
                Step::FindPython => {
                    step(told, "looking for Python".to_owned());
                    python = Some(self.find_python().await?);
                }
                Step::Wipe => self.wipe().await?,
                Step::MakeEnvironment => {
                    let python = match python.take() {
                        Some(python) => python,
                        None => self.find_python().await?,
                    };
                    let version = python.version;
                    step(told, format!("making an environment of Python {version}"));
                    self.make_environment(&python).await?;
                }
                Step::InstallPackage => self.install(&package, told).await?,
                Step::WriteLauncher => self.write_launcher().await?,
                Step::Check => {
                    step(told, format!("checking {package}"));
                    self.check(&package).await?;
                }
                Step::Compute => self.compute(told).await?,
                Step::Mark => self.mark().await?,
            }
        }
        Ok(())
    }

    async fn find_python(&self) -> Result<Python, ProvisionError> {
        let directory = &self.shop.config.directory;
        fs::create_dir_all(directory)
            .await
            .map_err(failed("making", directory))?;
        Ok(self.search(directory).find(Need::Environment).await?)
    }

    async fn wipe(&self) -> Result<(), ProvisionError> {
        wipe(&self.directory, self.shop).await?;
        let scratch = self.scratch();
        fs::create_dir_all(&scratch)
            .await
            .map_err(failed("making", &scratch))
    }

    async fn make_environment(&self, python: &Python) -> Result<(), ProvisionError> {
        make_environment(python, &self.environment(), &self.search(&self.directory)).await?;
        Ok(())
    }

    async fn install(
        &self,
        package: &Package,
        told: &Progress<ProvisionState>,
    ) -> Result<(), ProvisionError> {
        let requirements = self.directory.join("requirements.txt");
        fs::write(&requirements, REQUIREMENTS)
            .await
            .map_err(failed("writing", &requirements))?;
        let scratch = self.scratch();
        let environment = interpreter(&self.environment());
        let pip = Pip {
            python: &environment,
            scratch: &scratch,
            env: &self.shop.config.marker_env,
            silence: self.shop.times.silence,
        };
        step(told, format!("looking for {package}"));
        let line = |line: &str| {
            if let Some(words) = package.step(line) {
                step(told, words);
            }
        };
        let listener = Listener {
            line: &line,
            filling: Some((&self.directory, &|_| ())),
        };
        pip.install(package, &requirements, &listener).await?;
        fs::remove_dir_all(&scratch)
            .await
            .map_err(failed("removing", &scratch))
    }

    async fn write_launcher(&self) -> Result<(), ProvisionError> {
        let path = self.launcher();
        if matches!(durable::read_aside(path.clone(), durable::SMALL).await, Ok(text) if text == LAUNCHER.as_bytes())
        {
            return Ok(());
        }
        write_durably(path, LAUNCHER.as_bytes().to_vec()).await
    }

    async fn check(&self, package: &Package) -> Result<(), ProvisionError> {
        let failed = |problem| ProvisionError::Check {
            package: package.to_string(),
            problem,
        };
        let helper = Helper {
            program: &interpreter(&self.environment()),
            args: vec![
                "-I".into(),
                self.launcher().into_os_string(),
                "--version".into(),
            ],
            env: &self.shop.config.marker_env,
            inherits: Inherits::Basics,
            without: NOT_INHERITED,
            directory: &self.directory,
            patience: Patience::Whole(self.shop.times.check),
        };
        let finished = helper
            .run(&Listener::NONE)
            .await
            .map_err(|error| failed(Chain(&error).to_string()))?;
        if !finished.status.success() {
            return Err(failed(format!(
                "{}: {}",
                finished.how(),
                finished.last_line()
            )));
        }
        let expected = package.to_string();
        if finished.lines.contains(&expected) {
            Ok(())
        } else {
            Err(failed(format!(
                "it calls itself {:?}",
                finished.last_line()
            )))
        }
    }

    /// Has the package compute with the types of most weights, unless it has: its build is for processors alone.
    async fn compute(&self, told: &Progress<ProvisionState>) -> Result<(), ProvisionError> {
        let installed = self.installed();
        let expectation = Expectation::Cpu;
        let types = CheckModel::mixed_types();
        let record = Record::of(&installed, &self.shop.config.directory);
        let types = record.missing(types, expectation).await;
        if types.is_empty() {
            return Ok(());
        }
        step(told, format!("computing with {}", PACKAGE.text()));
        let (scratch, env) = (self.shop.scratch(), self.shop.engine_env());
        let deadlines = self.shop.times.compute;
        let proof = compute(&installed, &scratch, expectation, &env, deadlines).await;
        let proof =
            proof.map_err(|problem| ProvisionError::not_computing(&installed, types, problem))?;
        record.keep(proof.types, expectation).await;
        Ok(())
    }

    async fn mark(&self) -> Result<(), ProvisionError> {
        let marker = Marker {
            package: PACKAGE.name.to_owned(),
            version: PACKAGE.version.to_owned(),
            installed_at: self.shop.config.clock.now(),
        };
        let path = self.marker();
        let json = serde_json::to_vec(&marker)
            .map_err(|error| failed("writing", &path)(io::Error::from(error)))?;
        // `pip` leaves its files to the kernel; a marker must not be on the disk before them.
        let directory = self.directory.clone();
        spawn_blocking(move || -> io::Result<()> {
            Ok(rustix::fs::syncfs(std::fs::File::open(directory)?)?)
        })
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(failed("bringing to the disk", &self.directory))?;
        write_durably(path, json).await
    }

    fn search<'s>(&'s self, directory: &'s Path) -> Search<'s> {
        Search {
            configured: self.shop.config.python.as_deref(),
            directory,
            env: &self.shop.config.marker_env,
        }
    }

    fn environment(&self) -> PathBuf {
        self.directory.join("venv")
    }

    fn launcher(&self) -> PathBuf {
        self.directory.join("launcher.py")
    }

    fn marker(&self) -> PathBuf {
        self.directory.join("installed.json")
    }

    fn scratch(&self) -> PathBuf {
        self.directory.join("tmp")
    }
}

async fn write_durably(path: PathBuf, bytes: Vec<u8>) -> Result<(), ProvisionError> {
    let target = path.clone();
    spawn_blocking(move || durable::write(&target, &bytes))
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(failed("writing", &path))
}

const REQUIREMENTS: &str = include_str!("llamacpp.txt");
const LAUNCHER: &str = include_str!("launcher.py");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_pins_what_the_code_names_with_one_hash_for_each_architecture() {
        let lines: Vec<&str> = REQUIREMENTS
            .lines()
            .filter(|line| !line.starts_with('#'))
            .collect();
        let (first, hashes) = lines.split_first().unwrap();
        let Pinned { name, version, .. } = PACKAGE;
        assert_eq!(*first, format!("{name}=={version} \\"));
        assert_eq!(hashes.len(), PACKAGE.architectures.len());
        for hash in hashes {
            let digits = hash
                .trim_end_matches([' ', '\\'])
                .trim()
                .strip_prefix("--hash=sha256:")
                .unwrap();
            assert_eq!(digits.len(), 64);
        }
    }
}
