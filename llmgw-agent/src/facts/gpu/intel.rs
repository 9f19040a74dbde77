//! Intel's cards: named, so that nobody looks for them in vain. This release places nothing on them.

use llmgw_core::cluster::node::{Gpu, GpuProblem, GpuProblemKind};

use super::{Found, cards_of};
use crate::facts::Root;

/// Cards with memory of their own; what is part of a processor is no card.
pub(super) fn cards(root: &Root) -> Vec<Found> {
    let cards = cards_of(root, VENDOR_ID).into_iter();
    let found = cards.filter_map(|(card, bus)| {
        let id = root.number(format!("sys/class/drm/{card}/device/device"))?;
        let (_, class) = FAMILIES.iter().find(|(family, _)| *family == id >> 8)?;
        Some(Found {
            gpu: Gpu {
                vendor: "intel".to_owned(),
                bus,
                class: Some((*class).to_owned()),
                problems: vec![GpuProblem {
                    kind: GpuProblemKind::Unsupported,
                    text: "this release does not place on Intel's cards".to_owned(),
                }],
                ..Gpu::default()
            },
            remotes: Vec::new(),
        })
    });
    found.collect()
}

/// Intel's number in the PCI registry.
const VENDOR_ID: u64 = 0x8086;

/// The upper half of the device numbers of the PCI registry (pci.ids).
const FAMILIES: &[(u64, &str)] = &[
    (0x0b, "Data Center GPU Max"),
    (0x49, "Iris Xe MAX"),
    (0x56, "Arc A"),
    (0xe2, "Arc B"),
];
