//! Which archives of a release fit a machine, the best first.

use std::time::Duration;

use llmgw_core::cluster::{
    engine::{PassedOver, WantedEngine},
    node::{MajorMinor, Warning},
    release::{Asset, Release},
    variant::{Role, Variant},
};

use super::{ArchiveBuild, Build, Choice, Gpus, Machine, Plan, YOUNG, line};
use crate::provision::ProvisionError;

/// Adds what fits to `plan`, and says there why the rest does not.
///
/// # Errors
/// When the release is young and what fits best is not there yet.
pub(super) fn plan(
    wanted: &WantedEngine,
    release: &Release,
    machine: &Machine<'_>,
    plan: &mut Plan,
) -> Result<(), ProvisionError> {
    let arch = machine.architecture;
    let there = release.variants(arch);
    let passed = |variant: &dyn std::fmt::Display, reason: String| PassedOver {
        build: format!("{} {variant}", release.tag),
        reason,
    };
    let order = match &wanted.variant {
        Some(wish) => {
            let mut meant: Vec<Variant> = there
                .iter()
                .filter(|variant| variant.is_meant_by(wish))
                .cloned()
                .collect();
            if wish == "cuda" || wish.starts_with("cuda-") {
                meant = supported(&meant, machine.gpus, &release.tag, plan);
            }
            if meant.is_empty() && plan.passed_over.is_empty() {
                wait_if_young(release, machine, wish)?;
                let reason = format!("{} has no such build for {arch}", release.tag);
                plan.passed_over.push(passed(wish, reason));
            }
            meant
        }
        None => by_machine(release, &there, machine, plan)?,
    };
    for variant in order {
        let Some(engine) = release.asset(&variant, arch, Role::Engine) else {
            continue;
        };
        let mut assets = vec![engine.clone()];
        if matches!(variant, Variant::Cuda(_)) {
            let Some(runtime) = release.asset(&variant, arch, Role::Runtime) else {
                wait_if_young(release, machine, &format!("runtime of {variant}"))?;
                let reason = "its runtime archive is not published, and without it the build computes on the \
                              processor and says nothing"
                    .to_owned();
                plan.passed_over.push(passed(&variant, reason));
                continue;
            };
            assets.push(runtime.clone());
        }
        if let (Some(need), Some(have)) = (variant.known_glibc(arch), machine.glibc)
            && have < need
        {
            let reason = format!("it needs glibc {need}, and this machine has {have}");
            plan.warnings
                .push(glibc_too_old(&release.tag, &variant, need, have));
            plan.passed_over.push(passed(&variant, reason));
            continue;
        }
        if let Some(Asset { name, .. }) = assets.iter().find(|asset| {
            asset.sha256.is_none() && !wanted.allow_missing_digest.contains(&asset.name)
        }) {
            let reason =
                format!("no digest is listed for {name}, so that its bytes can't be checked");
            plan.passed_over.push(passed(&variant, reason));
            continue;
        }
        let why = why(wanted, machine, &variant, !plan.choices.is_empty());
        let build = Build::Archive(ArchiveBuild {
            tag: release.tag.clone(),
            variant,
            assets,
        });
        let line = line(wanted, &build, &why);
        plan.choices.push(Choice { build, line });
    }
    Ok(())
}

/// The variants for a machine, the best first: what its GPUs compute on, then its processor.
fn by_machine(
    release: &Release,
    there: &[Variant],
    machine: &Machine<'_>,
    plan: &mut Plan,
) -> Result<Vec<Variant>, ProvisionError> {
    let tag = &release.tag;
    let mut order = Vec::new();
    if machine.gpus.nvidia {
        let cuda: Vec<Variant> = there
            .iter()
            .filter(|variant| matches!(variant, Variant::Cuda(_)))
            .cloned()
            .collect();
        if cuda.is_empty() {
            wait_if_young(release, machine, "cuda")?;
            plan.passed_over.push(PassedOver {
                build: format!("{tag} cuda"),
                reason: format!("{tag} has no such build for {}", machine.architecture),
            });
        }
        order = supported(&cuda, machine.gpus, tag, plan);
        if order.is_empty() {
            plan.warnings.push(Warning {
                code: NO_CUDA.to_owned(),
                text: format!(
                    "this machine has NVIDIA GPUs, and no CUDA build of {tag} can be used: \
                     models run on a slower build, or on the processor"
                ),
            });
        }
    }
    let slower = if machine.gpus.nvidia || machine.gpus.others {
        [Some(Variant::Vulkan), Some(Variant::Cpu)]
    } else {
        [Some(Variant::Cpu), None]
    };
    let first = order.is_empty();
    for (index, variant) in slower.into_iter().flatten().enumerate() {
        if there.contains(&variant) {
            order.push(variant);
        } else {
            if first && index == 0 && !machine.gpus.nvidia {
                wait_if_young(release, machine, &variant.to_string())?;
            }
            plan.passed_over.push(PassedOver {
                build: format!("{tag} {variant}"),
                reason: format!("{tag} has no such build for {}", machine.architecture),
            });
        }
    }
    Ok(order)
}

/// The CUDA builds that the driver can run, the best first, at most two; the others are passed over.
///
/// By NVIDIA's guide "CUDA Compatibility": a driver runs what was built with its own CUDA version or an older
/// one (backward compatibility), and as well what was built with a newer minor version of its own major one
/// (minor version compatibility, from CUDA 11 on), with fewer features. So the newest that is not newer than
/// the driver's comes first; without one, the oldest of the same major version. What the guide promises, the
/// check computes.
fn supported(cuda: &[Variant], gpus: Gpus, tag: &str, plan: &mut Plan) -> Vec<Variant> {
    let mut versions: Vec<MajorMinor> = cuda
        .iter()
        .filter_map(|variant| match variant {
            Variant::Cuda(version) => Some(*version),
            _ => None,
        })
        .collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    let Some(driver) = gpus.cuda else {
        return versions
            .into_iter()
            .take(MOST_CUDA)
            .map(Variant::Cuda)
            .collect();
    };
    let (older, newer): (Vec<_>, Vec<_>) =
        versions.into_iter().partition(|version| *version <= driver);
    let (same_major, too_new): (Vec<_>, Vec<_>) = newer
        .into_iter()
        .partition(|version| version.major == driver.major);
    for version in &too_new {
        plan.passed_over.push(PassedOver {
            build: format!("{tag} cuda-{version}"),
            reason: format!(
                "it needs a driver for CUDA {}, and this machine's supports {driver}",
                version.major
            ),
        });
    }
    let order: Vec<Variant> = older
        .into_iter()
        .chain(same_major.into_iter().rev())
        .take(MOST_CUDA)
        .map(Variant::Cuda)
        .collect();
    if order.is_empty() && !too_new.is_empty() {
        plan.warnings.push(Warning {
            code: DRIVER_TOO_OLD.to_owned(),
            text: format!(
                "the NVIDIA driver supports CUDA {driver}, and the builds of {tag} need {} or newer: \
                 update the driver",
                too_new.last().map_or(0, |version| version.major)
            ),
        });
    }
    order
}

fn why(wanted: &WantedEngine, machine: &Machine<'_>, variant: &Variant, later: bool) -> String {
    if let Some(wish) = &wanted.variant {
        return format!("{wish} was asked for");
    }
    let Gpus {
        nvidia,
        cuda,
        others,
    } = machine.gpus;
    match (variant, cuda) {
        (Variant::Cuda(version), Some(driver)) if *version > driver => format!(
            "the driver supports CUDA {driver}, which runs newer minor versions of CUDA {}",
            driver.major
        ),
        (Variant::Cuda(_), Some(driver)) => format!("the driver supports CUDA {driver}"),
        (Variant::Cuda(_), None) => "an NVIDIA driver is loaded".to_owned(),
        (Variant::Vulkan, _) if nvidia => {
            "no CUDA build can be used on this machine's GPUs".to_owned()
        }
        (Variant::Vulkan, _) => "the GPUs are not NVIDIA's".to_owned(),
        _ if (nvidia || others) && later => "no build for the GPUs works".to_owned(),
        _ if nvidia || others => "there is no build for the GPUs".to_owned(),
        _ => "this machine has no GPU".to_owned(),
    }
}

/// # Errors
/// When the release was published a short while ago: what is missing may be there soon, and another build is
/// not taken behind anybody's back.
fn wait_if_young(
    release: &Release,
    machine: &Machine<'_>,
    what: &str,
) -> Result<(), ProvisionError> {
    let Some(published) = release.published_at else {
        return Ok(());
    };
    let age = machine.now.since(published);
    if age >= YOUNG {
        return Ok(());
    }
    Err(ProvisionError::Waiting {
        reason: format!(
            "{} was published {} min ago and does not have its build {what} yet",
            release.tag,
            age.as_secs() / 60
        ),
        again: Some(LOOK_AGAIN),
    })
}

/// The warning that a build asks for a newer C library.
pub(in crate::provision) fn glibc_too_old(
    tag: &str,
    variant: &Variant,
    need: MajorMinor,
    have: MajorMinor,
) -> Warning {
    Warning {
        code: GLIBC_TOO_OLD.to_owned(),
        text: format!(
            "the build {variant} of {tag} needs glibc {need}, and this machine has {have}: a newer release of \
             the system is needed for it"
        ),
    }
}

const GLIBC_TOO_OLD: &str = "glibc_too_old";
const DRIVER_TOO_OLD: &str = "driver_too_old";
const NO_CUDA: &str = "no_cuda_build";
/// Each is some hundred megabytes: the second is for a first that does not compute.
const MOST_CUDA: usize = 2;
/// Rarely enough for the limit of the release API without a token, 60 questions an hour.
const LOOK_AGAIN: Duration = Duration::from_secs(120);
