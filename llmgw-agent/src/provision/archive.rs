//! llama.cpp's own server from the archives of a release.
//!
//! ```text
//! <directory>/downloads/b10991/llama-b10991-bin-ubuntu-x64.tar.gz.partial   goes on where it was left
//! <directory>/llamacpp/b10991-cpu/
//!     llama-server, lib*.so      as they were published, the one top folder left out
//!     quarantine/                backends that this processor can't run
//!     installed.json             written last
//! ```

use std::{
    io,
    path::{Path, PathBuf},
};

use llmgw_core::{
    cluster::{
        engine::ProvisionState,
        node::{MajorMinor, Warning},
        variant::build_number,
    },
    id::EngineName,
};
use tokio::{fs, task::spawn_blocking};

use super::{
    ProvisionError, Shop,
    download::Downloads,
    failed,
    libraries::{self, Findings, Provider, provider},
    marker::Marker,
    plan::{ArchiveBuild, ArchiveStep, Found, archive_steps},
    problem::BuildProblem,
    program, quarantine, step, unpack, wipe,
};
use crate::{
    engine::{InstalledEngine, Launch},
    flight::Progress,
};

/// The installation of a build in one directory.
#[derive(Debug)]
pub(super) struct Archive<'a> {
    shop: &'a Shop,
    name: EngineName,
    build: &'a ArchiveBuild,
    directory: PathBuf,
    machine: Surroundings,
}

/// What the checks compare with.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Surroundings {
    /// The version of the GNU C library; unknown when absent.
    pub glibc: Option<MajorMinor>,
}

/// What was found out while the checks went on.
#[derive(Debug, Default)]
struct Checked {
    problems: Vec<BuildProblem>,
    number: Option<u64>,
    /// Something that the build needs was installed meanwhile.
    provided: bool,
}

impl<'a> Archive<'a> {
    pub(super) fn new(
        name: EngineName,
        build: &'a ArchiveBuild,
        machine: Surroundings,
        shop: &'a Shop,
    ) -> Self {
        let directory = shop
            .config
            .directory
            .join(name.as_str())
            .join(format!("{}-{}", build.tag, build.variant));
        Self {
            shop,
            name,
            build,
            directory,
            machine,
        }
    }

    /// Installs the build unless it is installed, and checks it.
    pub(super) async fn ensure(
        &self,
        told: &Progress<ProvisionState>,
    ) -> Result<InstalledEngine, ProvisionError> {
        let found = self.look().await;
        let done = match self.carry_out(&found, told).await {
            Err(ProvisionError::Build { problems, .. })
                if found == Found::Marked && problems.iter().any(BuildProblem::is_of_the_files) =>
            {
                let why = problems
                    .first()
                    .map_or_else(String::new, ToString::to_string);
                self.carry_out(&Found::Spoilt(why), told).await
            }
            done => done,
        };
        if done.is_err() && found != Found::Marked {
            self.leave_nothing().await;
        }
        done?;
        self.installed().await
    }

    /// Looks whether what is installed still works; mends nothing.
    pub(super) async fn check(&self) -> Result<(), ProvisionError> {
        match self.look().await {
            Found::Marked => {}
            Found::Nothing => return Err(self.broken(vec![BuildProblem::NoProgram])),
            Found::Spoilt(problem) => {
                return Err(self.broken(vec![BuildProblem::Object {
                    object: self.directory.display().to_string(),
                    problem,
                }]));
            }
        }
        let mut checked = Checked::default();
        self.check_files(&mut checked).await?;
        let findings = self.find().await?;
        checked.problems.extend(self.problems(&findings));
        if checked.problems.is_empty() {
            self.ask_version(&mut checked).await;
        }
        if checked.problems.is_empty() {
            Ok(())
        } else {
            Err(self.broken(checked.problems))
        }
    }

    /// The directory of the installation.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    async fn look(&self) -> Found {
        if !matches!(fs::try_exists(&self.directory).await, Ok(true)) {
            return Found::Nothing;
        }
        match Marker::read(&self.directory).await {
            Some(marker) if marker.build == *self.build => Found::Marked,
            Some(_) => Found::Spoilt("it was made from other archives".to_owned()),
            None => Found::Spoilt("an earlier installation was not finished".to_owned()),
        }
    }

    async fn carry_out(
        &self,
        found: &Found,
        told: &Progress<ProvisionState>,
    ) -> Result<(), ProvisionError> {
        let build = self.build.text();
        if let Found::Spoilt(why) = found {
            step(told, format!("installing {build} again: {why}"));
        }
        let downloads = Downloads::new(self.shop, &self.build.tag);
        let mut checked = Checked::default();
        for next in archive_steps(found) {
            match next {
                ArchiveStep::Room => self.room(&downloads).await?,
                ArchiveStep::Fetch => {
                    for (index, asset) in self.build.assets.iter().enumerate() {
                        let rest = self.build.assets.get(index + 1..).unwrap_or_default();
                        downloads.fetch(asset, rest, told).await?;
                    }
                }
                ArchiveStep::Wipe => wipe(&self.directory, self.shop).await?,
                ArchiveStep::Unpack => self.unpack(&downloads, told).await?,
                ArchiveStep::Files => self.check_files(&mut checked).await?,
                ArchiveStep::Libraries => {
                    step(told, format!("checking what {build} needs"));
                    self.provide(&mut checked, told).await?;
                }
                ArchiveStep::Version => {
                    step(told, format!("asking {build} for its version"));
                    self.ask_version(&mut checked).await;
                }
                ArchiveStep::Devices => self.ask_devices(&mut checked).await,
                ArchiveStep::ComputeAgain if !checked.provided => {}
                ArchiveStep::Compute | ArchiveStep::ComputeAgain if checked.problems.is_empty() => {
                    step(told, format!("computing with {build}"));
                    self.compute(&mut checked).await?;
                }
                ArchiveStep::Compute | ArchiveStep::ComputeAgain => {}
                // All that is wrong is said together, before anything is marked.
                ArchiveStep::Mark if checked.problems.is_empty() => self.mark(&checked).await?,
                ArchiveStep::Mark => break,
                ArchiveStep::Tidy => downloads.tidy().await,
            }
        }
        if checked.problems.is_empty() {
            Ok(())
        } else {
            Err(self.broken(checked.problems))
        }
    }

    /// Whether what will be fetched and unpacked fits on the disk.
    async fn room(&self, downloads: &Downloads<'_>) -> Result<(), ProvisionError> {
        let sizes: Option<u64> = self
            .build
            .assets
            .iter()
            .map(|asset| asset.size.map(|size| size.0))
            .sum();
        let Some(packed) = sizes else {
            // Who serves it says the size at the latest when it is fetched, where it is asked again.
            return Ok(());
        };
        let there = downloads.there(&self.build.assets).await;
        let need = packed
            .saturating_sub(there)
            .saturating_add(packed.saturating_mul(UNPACKED));
        self.shop
            .room(&format!("installing {}", self.build.text()), need)
    }

    async fn unpack(
        &self,
        downloads: &Downloads<'_>,
        told: &Progress<ProvisionState>,
    ) -> Result<(), ProvisionError> {
        for (index, asset) in self.build.assets.iter().enumerate() {
            step(told, format!("unpacking {}", asset.name));
            let archive = downloads.archive(asset);
            if index == 0 {
                unpack::unpack(asset, &archive, &self.directory).await?;
                continue;
            }
            // What belongs to an engine is looked for beside its program.
            let beside = self.beside();
            wipe(&beside, self.shop).await?;
            unpack::unpack(asset, &archive, &beside).await?;
            let Some(program) = self.program().await else {
                break;
            };
            let into = program.parent().unwrap_or(&self.directory).to_owned();
            unpack::merge(asset, &beside, &into).await?;
        }
        Ok(())
    }

    async fn check_files(&self, checked: &mut Checked) -> Result<(), ProvisionError> {
        if let Some(marker) = Marker::read(&self.directory).await {
            checked
                .problems
                .extend(marker.compare(&self.directory).await);
        }
        Ok(())
    }

    /// Sees that the machine has all that the objects need, and installs packages when it lacks some.
    async fn provide(
        &self,
        checked: &mut Checked,
        told: &Progress<ProvisionState>,
    ) -> Result<(), ProvisionError> {
        let mut findings = self.find().await?;
        let providers: Vec<Provider> = findings
            .missing
            .keys()
            .filter_map(|library| provider(library))
            .filter(|provider| matches!(provider, Provider::Package { .. }))
            .fold(Vec::new(), |mut all, one| {
                if !all.contains(&one) {
                    all.push(one);
                }
                all
            });
        if !providers.is_empty() {
            let missing: Vec<&str> = findings.missing.keys().map(String::as_str).collect();
            step(
                told,
                format!("installing what is missing: {}", missing.join(", ")),
            );
            let shop = self.shop;
            let installed = shop
                .packages
                .install(&providers, &shop.config.marker_env, shop.times.silence)
                .await;
            findings = self.find().await?;
            checked.provided = installed.is_ok();
            if let Err(error) = installed
                && !findings.missing.is_empty()
            {
                // The libraries are said with all else that is wrong; why they could not be had comes first.
                let mut problems = vec![BuildProblem::Packages(error)];
                problems.append(&mut checked.problems);
                checked.problems = problems;
            }
        }
        checked.problems.extend(self.problems(&findings));
        Ok(())
    }

    async fn find(&self) -> Result<Findings, ProvisionError> {
        let directory = self.directory.clone();
        let root = self.shop.root.path("/");
        spawn_blocking(move || libraries::look(&directory, &root, std::env::consts::ARCH))
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(failed("reading", &self.directory))
    }

    fn problems(&self, findings: &Findings) -> Vec<BuildProblem> {
        let Findings {
            missing,
            unusable,
            glibc,
        } = findings;
        let mut problems = Vec::new();
        if let (Some((need, object)), Some(have)) = (glibc, self.machine.glibc)
            && *need > have
        {
            problems.push(BuildProblem::Glibc {
                object: object.clone(),
                need: *need,
                have,
            });
        }
        problems.extend(
            missing
                .iter()
                .map(|(library, by)| BuildProblem::library(library, by, provider(library))),
        );
        problems.extend(
            unusable
                .iter()
                .map(|(object, problem)| BuildProblem::Object {
                    object: object.clone(),
                    problem: problem.clone(),
                }),
        );
        problems
    }

    async fn ask_version(&self, checked: &mut Checked) {
        let Some(program) = self.program().await else {
            checked.problems.push(BuildProblem::NoProgram);
            return;
        };
        match program::version(&program, &self.directory, self.shop).await {
            Ok(number) => checked.number = Some(number),
            Err(problem) => checked.problems.push(BuildProblem::Program(problem)),
        }
    }

    /// A build for GPUs that sees none would compute on the processor and be taken for a slow one.
    async fn ask_devices(&self, checked: &mut Checked) {
        if !self.build.variant.needs_gpu() {
            return;
        }
        let Some(program) = self.program().await else {
            return;
        };
        match program::devices(&program, &self.directory, self.shop).await {
            Ok((devices, said)) if devices.is_empty() => {
                checked.problems.push(BuildProblem::NoDevices { said });
            }
            Ok((devices, _)) => {
                let all: Vec<String> = devices
                    .iter()
                    .map(|device| format!("{} ({})", device.name, device.description))
                    .collect();
                tracing::info!(build = %self.build.text(), devices = all.join(", "), "a build sees GPUs");
            }
            Err(problem) => checked.problems.push(problem),
        }
    }

    /// Computes with the build. A backend for a processor that this one is not is put aside when it dies of that,
    /// and it is tried with the next.
    async fn compute(&self, checked: &mut Checked) -> Result<(), ProvisionError> {
        let installed = self.as_installed(checked.number).await?;
        let on_gpu = self.build.variant.needs_gpu();
        for _ in 0..=MOST_BACKENDS {
            let Err(problem) = self.shop.compute(&installed, on_gpu).await else {
                return Ok(());
            };
            let died = problem.is_illegal_instruction();
            let put_aside = match &installed.launch {
                Launch::Program { program } if died => {
                    let backend = self.chosen_backend(program).await;
                    match backend {
                        Some(backend) => quarantine::put_aside(&backend).await?,
                        None => false,
                    }
                }
                _ => false,
            };
            if !put_aside {
                checked.problems.push(BuildProblem::Compute(problem));
                return Ok(());
            }
            tracing::warn!(build = %self.build.text(), %problem, "a backend is put aside");
        }
        Ok(())
    }

    /// The CPU backend that the program loads, as it says when it lists its devices.
    async fn chosen_backend(&self, program: &Path) -> Option<PathBuf> {
        let lines = program::listing(program, &self.directory, self.shop).await;
        quarantine::loaded_backend(&lines, program.parent()?)
    }

    async fn mark(&self, checked: &Checked) -> Result<(), ProvisionError> {
        let marker = Marker::of(
            self.build.clone(),
            checked.number,
            self.shop.config.clock.now(),
            &self.directory,
        )
        .await
        .map_err(failed("reading", &self.directory))?;
        marker.write(&self.directory).await
    }

    async fn installed(&self) -> Result<InstalledEngine, ProvisionError> {
        let marker = Marker::read(&self.directory).await;
        self.as_installed(marker.and_then(|marker| marker.number))
            .await
    }

    async fn as_installed(&self, number: Option<u64>) -> Result<InstalledEngine, ProvisionError> {
        let program = self
            .program()
            .await
            .ok_or_else(|| self.broken(vec![BuildProblem::NoProgram]))?;
        Ok(InstalledEngine {
            name: self.name.clone(),
            version: number.map_or_else(|| self.build.tag.clone(), |number| format!("b{number}")),
            variant: self.build.variant.to_string(),
            launch: Launch::Program { program },
        })
    }

    /// Says that the program calls itself another build than its release.
    pub(super) async fn warnings(&self) -> Vec<Warning> {
        let marker = Marker::read(&self.directory).await;
        let number = marker.and_then(|marker| marker.number);
        match (number, build_number(&self.build.tag)) {
            (Some(says), Some(tag)) if says != tag => vec![Warning {
                code: "other_build_number".to_owned(),
                text: format!(
                    "the program of the release {} calls itself b{says}",
                    self.build.tag
                ),
            }],
            _ => Vec::new(),
        }
    }

    /// The server program: at the top, or where older archives have it.
    async fn program(&self) -> Option<PathBuf> {
        for place in ["llama-server", "bin/llama-server", "build/bin/llama-server"] {
            let path = self.directory.join(place);
            if matches!(fs::metadata(&path).await, Ok(found) if found.is_file()) {
                return Some(path);
            }
        }
        None
    }

    /// Removes what a failed installation has left, but for archives that the next attempt goes on with.
    async fn leave_nothing(&self) {
        if let Err(error) = wipe(&self.directory, self.shop).await {
            tracing::warn!(%error, "a part of a failed installation is left");
        }
        wipe(&self.beside(), self.shop).await.ok();
    }

    fn beside(&self) -> PathBuf {
        let mut beside = self.directory.clone().into_os_string();
        beside.push(".runtime");
        beside.into()
    }

    fn broken(&self, problems: Vec<BuildProblem>) -> ProvisionError {
        ProvisionError::Build {
            build: self.build.text(),
            problems,
        }
    }
}

/// Times that programs and libraries are larger than the archives they come in, and some room for those.
const UNPACKED: u64 = 4;
/// A build carries some ten backends for one architecture.
const MOST_BACKENDS: usize = 16;
