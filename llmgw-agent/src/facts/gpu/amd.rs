//! AMD's cards, by the files of the kernel's driver `amdgpu` (kernel documentation, "amdgpu: misc driver
//! information" and "RAS").

use std::collections::BTreeMap;

use llmgw_core::{
    cluster::node::{Gpu, GpuProblem, GpuProblemKind},
    units::Bytes,
};

use super::{Found, bus_address, cards_of};
use crate::facts::{Root, Scene, own};

/// The cards in the order of the bus.
pub(super) fn cards(scene: &Scene, devices: &[String]) -> Vec<Found> {
    let root = &scene.root;
    let cards = cards_of(root, VENDOR_ID);
    if cards.is_empty() && devices.iter().any(|name| name == "kfd") {
        // The compute device is there and its cards are hidden: one at least.
        return vec![Found {
            gpu: Gpu {
                vendor: VENDOR.to_owned(),
                ..Gpu::default()
            },
            remotes: Vec::new(),
        }];
    }
    if cards.is_empty() {
        return Vec::new();
    }
    let numbers = compute_numbers(root);
    let driver = root.line("sys/module/amdgpu/version");
    cards
        .into_iter()
        .map(|(card, bus)| {
            let device = format!("sys/class/drm/{card}/device");
            let used = root
                .number(format!("{device}/mem_info_vram_used"))
                .map(Bytes);
            let number = bus.as_ref().and_then(|bus| numbers.get(bus));
            Found {
                gpu: Gpu {
                    vendor: VENDOR.to_owned(),
                    uuid: uuid(root, &card),
                    class: class(root, &device),
                    memory_total: root
                        .number(format!("{device}/mem_info_vram_total"))
                        .map(Bytes),
                    memory_used: used,
                    memory_others: used.map(|used| {
                        used - number.map_or(Bytes::ZERO, |number| ours(scene, *number))
                    }),
                    driver: driver.clone(),
                    problems: problems(root, &device),
                    bus,
                    ..Gpu::default()
                },
                remotes: Vec::new(),
            }
        })
        .collect()
}

/// What is used of the card of this name.
pub(super) fn used(root: &Root, uuid_wanted: &str) -> Option<Bytes> {
    let cards = cards_of(root, VENDOR_ID);
    let (card, _) = cards
        .iter()
        .find(|(card, _)| uuid(root, card).as_deref() == Some(uuid_wanted))?;
    root.number(format!("sys/class/drm/{card}/device/mem_info_vram_used"))
        .map(Bytes)
}

/// The name by which `ROCm` knows a card, `GPU-` and sixteen hexadecimal digits. Small cards have none.
fn uuid(root: &Root, card: &str) -> Option<String> {
    let id = root.line(format!("sys/class/drm/{card}/device/unique_id"))?;
    let is_id = id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| format!("GPU-{}", id.to_ascii_lowercase()))
}

/// Cards for servers carry their name; for others the registry's name of the device is taken.
fn class(root: &Root, device: &str) -> Option<String> {
    if let Some(name) = root.line(format!("{device}/product_name")) {
        let mut rest = name.as_str();
        for word in ["AMD ", "Radeon ", "Instinct "] {
            rest = rest.strip_prefix(word).unwrap_or(rest);
        }
        return Some(rest.chars().take(64).collect());
    }
    let id = root.number(format!("{device}/device"))?;
    CLASSES
        .iter()
        .find(|(known, _)| *known == id)
        .map(|(_, class)| (*class).to_owned())
}

/// Errors of the card's blocks: `ue: 0` and `ce: 0`, uncorrected and corrected, since the driver was loaded.
fn problems(root: &Root, device: &str) -> Vec<GpuProblem> {
    let dir = format!("{device}/ras");
    let counters = root
        .names(&dir, |name| name.ends_with("_err_count"))
        .unwrap_or_default();
    let lost: u64 = counters
        .iter()
        .filter_map(|counter| {
            let text = root.text(format!("{dir}/{counter}"))?;
            text.lines()
                .find_map(|line| line.strip_prefix("ue:")?.trim().parse::<u64>().ok())
        })
        .fold(0, u64::saturating_add);
    if lost == 0 {
        return Vec::new();
    }
    let errors = if lost == 1 { "error" } else { "errors" };
    vec![GpuProblem {
        kind: GpuProblemKind::MemoryErrors,
        text: format!("{lost} uncorrectable {errors} since the driver was loaded"),
    }]
}

/// The compute driver's own number of each card, by the card's address.
fn compute_numbers(root: &Root) -> BTreeMap<String, u64> {
    let nodes = root.names(TOPOLOGY, |_| true).unwrap_or_default();
    let of_node = |node: &String| {
        let number = root.number(format!("{TOPOLOGY}/{node}/gpu_id"))?;
        let properties = root.text(format!("{TOPOLOGY}/{node}/properties"))?;
        let value = |name: &str| {
            properties.lines().find_map(|line| {
                let (key, value) = line.split_once(' ')?;
                (key == name).then(|| value.trim().parse::<u64>().ok())?
            })
        };
        let place = value("location_id")?;
        let address = format!(
            "{:04x}:{:02x}:{:02x}.{:x}",
            value("domain").unwrap_or(0),
            place >> 8 & 0xff,
            place >> 3 & 0x1f,
            place & 0x7,
        );
        Some((bus_address(&address)?, number))
    };
    nodes.iter().filter_map(of_node).collect()
}

/// What this agent's own engines hold of a card.
fn ours(scene: &Scene, number: u64) -> Bytes {
    let is_process = |name: &str| name.parse::<u32>().is_ok();
    let processes = scene.root.names(PROCESSES, is_process).unwrap_or_default();
    processes
        .iter()
        .filter_map(|name| {
            let pid = name.parse().ok()?;
            let held = scene
                .root
                .number(format!("{PROCESSES}/{name}/vram_{number}"))?;
            own::is_ours(scene, pid).then_some(Bytes(held))
        })
        .sum()
}

const VENDOR: &str = "amd";

/// AMD's number in the PCI registry.
const VENDOR_ID: u64 = 0x1002;

const TOPOLOGY: &str = "sys/class/kfd/kfd/topology/nodes";
const PROCESSES: &str = "sys/class/kfd/kfd/proc";

/// Devices of the PCI registry (pci.ids) that models are run on and that may carry no name of their own.
const CLASSES: &[(u64, &str)] = &[
    (0x66a1, "MI50"),
    (0x738c, "MI100"),
    (0x7408, "MI250X"),
    (0x740c, "MI250"),
    (0x740f, "MI210"),
    (0x7448, "PRO W7900"),
    (0x744c, "RX 7900"),
    (0x74a0, "MI300A"),
    (0x74a1, "MI300X"),
    (0x74a2, "MI308X"),
    (0x74a5, "MI325X"),
    (0x74b5, "MI300X VF"),
    (0x7550, "RX 9070"),
    (0x75a0, "MI350X"),
    (0x75a3, "MI355X"),
];
