//! GPUs, as far as the kernel's files tell.
//!
//! NVIDIA's driver names the cards there and not their memory; AMD's names the memory and not the card's class.
//! What is not said is absent, and a warning says so.

use llmgw_core::{
    cluster::node::{Gpu, NodeFacts},
    units::Bytes,
};

use super::{Probe, Root, Scene, warn};

/// Looks for GPUs.
#[derive(Clone, Copy, Debug)]
pub struct GpuProbe;

impl Probe for GpuProbe {
    fn name(&self) -> &'static str {
        "gpu"
    }

    fn look(&self, scene: &Scene, facts: &mut NodeFacts) {
        let Some(devices) = scene.root.names("dev") else {
            return;
        };
        let mut gpus = nvidia(&scene.root, &devices);
        gpus.extend(amd(&scene.root, &devices));
        for (index, gpu) in (0u32..).zip(&mut gpus) {
            gpu.index = index;
        }
        let unread = gpus.iter().filter(|gpu| gpu.memory_total.is_none()).count();
        if unread > 0 {
            let text = format!(
                "this release can't read the memory of {unread} of {} GPUs, and places models in main \
                 memory only",
                gpus.len(),
            );
            warn(facts, "gpu_memory_unknown", text);
        }
        facts.gpus = Some(gpus);
    }
}

/// A card is a device file with a number; `/dev/nvidiactl` and the like are not cards.
fn nvidia(root: &Root, devices: &[String]) -> Vec<Gpu> {
    let mut minors: Vec<u32> = devices
        .iter()
        .filter_map(|name| name.strip_prefix("nvidia")?.parse().ok())
        .collect();
    minors.sort_unstable();
    let cards = root.names("proc/driver/nvidia/gpus").unwrap_or_default();
    let described: Vec<String> = cards
        .iter()
        .filter_map(|card| root.text(format!("proc/driver/nvidia/gpus/{card}/information")))
        .collect();
    minors
        .into_iter()
        .map(|minor| {
            // In a container the driver lists all cards of the machine, /dev only those that were given.
            let information = described.iter().find(|text| {
                value(text, "Device Minor").and_then(|text| text.parse().ok()) == Some(minor)
            });
            Gpu {
                index: minor,
                vendor: "nvidia".to_owned(),
                class: information.and_then(|text| {
                    let model = value(text, "Model")?;
                    Some(model.strip_prefix("NVIDIA ").unwrap_or(model).to_owned())
                }),
                memory_total: None,
                fault: None,
            }
        })
        .collect()
}

fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then_some(value.trim())
    })
}

fn amd(root: &Root, devices: &[String]) -> Vec<Gpu> {
    let cards = root.names("sys/class/drm").unwrap_or_default();
    let mut gpus: Vec<Gpu> = cards
        .iter()
        // `card0`, not its connectors `card0-DP-1`.
        .filter(|name| {
            name.strip_prefix("card")
                .is_some_and(|number| number.parse::<u32>().is_ok())
        })
        .filter(|name| {
            root.text(format!("sys/class/drm/{name}/device/vendor"))
                .is_some_and(|vendor| vendor.trim() == AMD_VENDOR)
        })
        .map(|name| Gpu {
            index: 0,
            vendor: "amd".to_owned(),
            class: None,
            memory_total: root
                .text(format!("sys/class/drm/{name}/device/mem_info_vram_total"))
                .and_then(|text| text.trim().parse().ok())
                .map(Bytes),
            fault: None,
        })
        .collect();
    if gpus.is_empty() && devices.iter().any(|name| name == "kfd") {
        // The compute device is there and its cards are hidden: one at least.
        gpus.push(Gpu {
            index: 0,
            vendor: "amd".to_owned(),
            class: None,
            memory_total: None,
            fault: None,
        });
    }
    gpus
}

/// AMD's number in the PCI registry.
const AMD_VENDOR: &str = "0x1002";
