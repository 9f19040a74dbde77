//! What the answers of NVIDIA's library and the kernel's log say of a card's health.

use std::collections::BTreeMap;

use llmgw_core::cluster::node::{GpuProblem, GpuProblemKind};

use super::{
    nvml::{Device, Unreachable},
    xid::weigh,
};

/// Everything that is wrong with a card.
///
/// Memory errors, failed remappings and lost cards forbid placing as they fail DCGM's health check; NVML's
/// reference says of each answer what it means. `errors` are the card's XIDs.
pub(super) fn problems(device: &Device, errors: &BTreeMap<u32, String>) -> Vec<GpuProblem> {
    let mut found = Vec::new();
    let mut add = |kind, text: String| found.push(GpuProblem { kind, text });
    match &device.unreachable {
        Some(Unreachable::Lost) => add(GpuProblemKind::Lost, LOST.to_owned()),
        Some(Unreachable::NeedsReset) => add(
            GpuProblemKind::NeedsReset,
            "the driver can't use it before it is reset".to_owned(),
        ),
        Some(Unreachable::Other(words)) => add(
            GpuProblemKind::Missing,
            format!("the driver can't open it: {words}"),
        ),
        None => {}
    }
    match device.recovery {
        None | Some(0) => {}
        Some(2) => add(
            GpuProblemKind::NeedsReset,
            "the driver asks for a restart of the machine".to_owned(),
        ),
        Some(_) => add(
            GpuProblemKind::NeedsReset,
            "the driver asks for a reset of the card".to_owned(),
        ),
    }
    if let Some(count) = device.uncorrected.filter(|count| *count > 0) {
        let errors = if count == 1 { "error" } else { "errors" };
        add(
            GpuProblemKind::MemoryErrors,
            format!("{count} uncorrectable memory {errors} since the driver was loaded"),
        );
    }
    if device.remap_failed == Some(true) {
        add(
            GpuProblemKind::RemapFailed,
            "bad memory could not be replaced by spare rows; the card is to be exchanged"
                .to_owned(),
        );
    }
    if device.remap_pending == Some(true) || device.retire_pending == Some(true) {
        add(
            GpuProblemKind::RemapPending,
            "bad memory waits for a reset to be replaced".to_owned(),
        );
    }
    if device.mig.is_some() {
        add(
            GpuProblemKind::Divided,
            "it is divided by MIG, and this release places on whole cards only".to_owned(),
        );
    }
    if let Some(cause) = device.slowed.and_then(slowed) {
        add(
            GpuProblemKind::Slowed,
            format!("its clock is held back {cause}"),
        );
    }
    let dead = device.links.iter().filter(|link| !link.active).count();
    if dead > 0 && dead < device.links.len() {
        let all = device.links.len();
        add(
            GpuProblemKind::LinksDown,
            format!("{dead} of its {all} NVLink links carry nothing"),
        );
    }
    for (number, words) in errors {
        let Some((kind, meaning)) = weigh(*number) else {
            continue;
        };
        // A driver that says what it needs has seen the error too, and knows of a reset since.
        let kind = match device.recovery {
            Some(0) if kind.forbids() => GpuProblemKind::Contained,
            _ => kind,
        };
        let words = if words.is_empty() {
            String::new()
        } else {
            format!(" (\"{words}\")")
        };
        add(
            kind,
            format!("the driver reported XID {number}: {meaning}{words}"),
        );
    }
    found
}

/// The hardware's own reasons; those of power limits and idle clocks are a card's everyday life.
fn slowed(bits: u64) -> Option<&'static str> {
    if bits & (HW_THERMAL | SW_THERMAL) != 0 {
        Some("for heat")
    } else if bits & HW_POWER_BRAKE != 0 {
        Some("for want of power from the machine")
    } else if bits & HW_SLOWDOWN != 0 {
        Some("by the hardware, for heat or power")
    } else {
        None
    }
}

pub(super) const LOST: &str = "it has fallen off the bus: the driver does not reach it; restart the machine, and \
                               look at its seat and power when it happens again";

// `nvmlClocksEventReason*` of nvml.h.
const HW_SLOWDOWN: u64 = 0x08;
const SW_THERMAL: u64 = 0x20;
const HW_THERMAL: u64 = 0x40;
const HW_POWER_BRAKE: u64 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::gpu::nvml::DeviceLink;

    fn kinds(device: &Device, errors: &[(u32, &str)]) -> Vec<GpuProblemKind> {
        let errors = errors
            .iter()
            .map(|(number, words)| (*number, (*words).to_owned()))
            .collect();
        problems(device, &errors)
            .into_iter()
            .map(|problem| problem.kind)
            .collect()
    }

    #[test]
    fn a_card_that_answers_nothing_unusual_is_well() {
        let well = Device {
            uncorrected: Some(0),
            remap_pending: Some(false),
            recovery: Some(0),
            // Idle, or at its power limit.
            slowed: Some(0x1 | 0x4),
            ..Device::default()
        };
        assert_eq!(kinds(&well, &[(31, "MMU Fault")]), []);
        assert_eq!(kinds(&Device::default(), &[]), []);
    }

    #[test]
    fn each_sign_of_illness_is_told_by_its_kind() {
        let device = Device::default;
        let link = |active| DeviceLink {
            active,
            remote: None,
        };
        let cases = [
            (
                Device {
                    unreachable: Some(Unreachable::Lost),
                    ..device()
                },
                GpuProblemKind::Lost,
            ),
            (
                Device {
                    recovery: Some(1),
                    ..device()
                },
                GpuProblemKind::NeedsReset,
            ),
            (
                Device {
                    uncorrected: Some(3),
                    ..device()
                },
                GpuProblemKind::MemoryErrors,
            ),
            (
                Device {
                    remap_failed: Some(true),
                    ..device()
                },
                GpuProblemKind::RemapFailed,
            ),
            (
                Device {
                    retire_pending: Some(true),
                    ..device()
                },
                GpuProblemKind::RemapPending,
            ),
            (
                Device {
                    mig: Some(Vec::new()),
                    ..device()
                },
                GpuProblemKind::Divided,
            ),
            (
                Device {
                    slowed: Some(HW_THERMAL),
                    ..device()
                },
                GpuProblemKind::Slowed,
            ),
            (
                Device {
                    links: vec![link(true), link(false)],
                    ..device()
                },
                GpuProblemKind::LinksDown,
            ),
        ];
        for (device, kind) in cases {
            assert_eq!(kinds(&device, &[]), [kind]);
        }
        let unreachable = |why| Device {
            unreachable: Some(why),
            ..device()
        };
        let needs_reset = unreachable(Unreachable::NeedsReset);
        assert_eq!(kinds(&needs_reset, &[]), [GpuProblemKind::NeedsReset]);
        let other = unreachable(Unreachable::Other("no power".to_owned()));
        assert_eq!(kinds(&other, &[]), [GpuProblemKind::Missing]);
        // A reset, a restart, and what a later driver may ask for.
        for recovery in [1, 2, 3, 9] {
            let device = Device {
                recovery: Some(recovery),
                ..device()
            };
            let found = kinds(&device, &[]);
            assert_eq!(found, [GpuProblemKind::NeedsReset], "{recovery}");
        }
        for bits in [HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, HW_POWER_BRAKE] {
            let device = Device {
                slowed: Some(bits | 0x4),
                ..device()
            };
            assert_eq!(kinds(&device, &[]), [GpuProblemKind::Slowed], "{bits:#x}");
        }
        let once = Device {
            uncorrected: Some(1),
            ..device()
        };
        assert_eq!(kinds(&once, &[]), [GpuProblemKind::MemoryErrors]);
        let pending = Device {
            remap_pending: Some(true),
            ..device()
        };
        assert_eq!(kinds(&pending, &[]), [GpuProblemKind::RemapPending]);
        // A card whose bridge was never fitted is not ill.
        let bare = Device {
            links: vec![link(false), link(false)],
            ..device()
        };
        assert_eq!(kinds(&bare, &[]), []);
    }

    #[test]
    fn an_old_error_does_not_forbid_a_card_that_the_driver_calls_well() {
        let known = Device {
            recovery: Some(0),
            ..Device::default()
        };
        assert_eq!(kinds(&known, &[(95, "")]), [GpuProblemKind::Contained]);
        assert_eq!(
            kinds(&Device::default(), &[(95, "")]),
            [GpuProblemKind::Xid]
        );
    }
}
