//! NVIDIA's cards: what the driver's library answers, and what the kernel's files tell where it does not.

use std::collections::BTreeMap;

use llmgw_core::{
    cluster::node::{Gpu, GpuProblem, GpuProblemKind, NvLink},
    units::Bytes,
};

use super::{
    Found, bus_address, health,
    nvml::{Device, Reading},
    xid::{Errors, without_function},
};
use crate::facts::{Root, Scene, own};

/// A card as the driver's files describe it.
#[derive(Debug, Default)]
struct Described {
    bus: Option<String>,
    class: Option<String>,
    uuid: Option<String>,
}

/// The cards in the order of the bus.
pub(super) fn cards(
    scene: &Scene,
    devices: &[String],
    reading: Option<Reading>,
    errors: &Errors,
) -> Vec<Found> {
    let described = described(&scene.root, devices);
    let Some(Reading { driver, cuda, gpus }) = reading else {
        return described.into_iter().map(unread).collect();
    };
    let no_errors = BTreeMap::new();
    let mut found: Vec<Found> = Vec::new();
    for device in &gpus {
        let bus = device.bus.as_deref().and_then(bus_address);
        let errors = bus
            .as_deref()
            .and_then(|bus| errors.get(without_function(bus)))
            .unwrap_or(&no_errors);
        let memory = device.memory.map(|memory| memory.used + memory.reserved);
        found.push(Found {
            remotes: remotes(device),
            gpu: Gpu {
                vendor: VENDOR.to_owned(),
                uuid: device.uuid.clone(),
                bus,
                class: device.name.as_deref().map(class),
                memory_total: device.memory.map(|memory| memory.total),
                memory_used: memory,
                memory_others: memory.map(|used| used - ours(scene, device)),
                driver: driver.clone(),
                cuda,
                compute: device.compute,
                mig: device.mig.clone(),
                nvlink: links(&scene.root, device, &gpus),
                problems: health::problems(device, errors),
                ..Gpu::default()
            },
        });
    }
    add_missing(&mut found, described, errors);
    // A card without an address comes last, in the library's order.
    found.sort_by_key(|found| (found.gpu.bus.is_none(), found.gpu.bus.clone()));
    found
}

/// What this agent's own engines hold of a card.
fn ours(scene: &Scene, device: &Device) -> Bytes {
    device
        .processes
        .iter()
        .flatten()
        .filter(|process| own::is_ours(scene, process.pid))
        .filter_map(|process| process.memory)
        .sum()
}

/// Cards that have a device file and that the library does not offer.
///
/// In a container the driver describes all cards of the machine, and only those that were given have device files.
fn add_missing(found: &mut Vec<Found>, described: Vec<Described>, errors: &Errors) {
    for card in described {
        let Some(bus) = card.bus.clone() else {
            continue;
        };
        if found
            .iter()
            .any(|known| known.gpu.bus.as_ref() == Some(&bus))
        {
            continue;
        }
        // The library may know of a card that it can't open, and not say which.
        let nameless = found
            .iter_mut()
            .find(|known| known.gpu.bus.is_none() && known.gpu.uuid.is_none());
        let lost = errors
            .get(without_function(&bus))
            .is_some_and(|errors| errors.contains_key(&79));
        match nameless {
            Some(known) => {
                known.gpu.bus = Some(bus);
                known.gpu.class = card.class;
                known.gpu.uuid = card.uuid;
            }
            None => {
                let (kind, text) = if lost {
                    (GpuProblemKind::Lost, health::LOST)
                } else {
                    (
                        GpuProblemKind::Missing,
                        "the machine has it, and the driver does not offer it",
                    )
                };
                let mut missing = unread(card);
                missing.gpu.problems.push(GpuProblem {
                    kind,
                    text: text.to_owned(),
                });
                found.push(missing);
            }
        }
    }
}

fn unread(card: Described) -> Found {
    let Described { bus, class, uuid } = card;
    Found {
        gpu: Gpu {
            vendor: VENDOR.to_owned(),
            uuid,
            bus,
            class,
            ..Gpu::default()
        },
        remotes: Vec::new(),
    }
}

/// The cards that have a device file, as the driver describes them in `/proc`, in the order of the bus. A card is
/// a device file with a number; `/dev/nvidiactl` and the like are none.
fn described(root: &Root, devices: &[String]) -> Vec<Described> {
    let mut minors: Vec<u32> = devices
        .iter()
        .filter_map(|name| name.strip_prefix("nvidia")?.parse().ok())
        .collect();
    minors.sort_unstable();
    let cards = root
        .names("proc/driver/nvidia/gpus", |_| true)
        .unwrap_or_default();
    let information: Vec<(Option<String>, String)> = cards
        .iter()
        .filter_map(|card| {
            let text = root.text(format!("proc/driver/nvidia/gpus/{card}/information"))?;
            Some((bus_address(card), text))
        })
        .collect();
    let mut described: Vec<Described> = minors
        .into_iter()
        .map(|minor| {
            let of_minor = information.iter().find(|(_, text)| {
                value(text, "Device Minor").and_then(|text| text.parse().ok()) == Some(minor)
            });
            of_minor.map_or_else(Described::default, |(bus, text)| Described {
                bus: bus.clone(),
                class: value(text, "Model").map(class),
                // A card that never woke has question marks there.
                uuid: value(text, "GPU UUID")
                    .filter(|uuid| !uuid.contains('?'))
                    .map(str::to_owned),
            })
        })
        .collect();
    described.sort_by_key(|card| (card.bus.is_none(), card.bus.clone()));
    described
}

fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then_some(value.trim())
    })
}

/// A card's class: its name without what all of the maker's names have. `NVIDIA GeForce RTX 4090` is an
/// `RTX 4090`, `Tesla V100-SXM2-32GB` a `V100-SXM2-32GB`, `NVIDIA H100 80GB HBM3` an `H100 80GB HBM3`.
fn class(name: &str) -> String {
    let mut rest = name.trim();
    for word in ["NVIDIA ", "Tesla ", "GeForce "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    rest.chars().take(CLASS_LIMIT).collect()
}

fn remotes(device: &Device) -> Vec<String> {
    device
        .links
        .iter()
        .filter(|link| link.active)
        .filter_map(|link| bus_address(link.remote.as_deref()?))
        .collect()
}

fn links(root: &Root, device: &Device, all: &[Device]) -> Option<NvLink> {
    let count = |active| {
        device
            .links
            .iter()
            .filter(|link| link.active == active)
            .count()
    };
    let (active, inactive) = (count(true), count(false));
    // A card whose bridge was never fitted has links that carry nothing.
    if active == 0 {
        return None;
    }
    let is_card = |address: &String| {
        all.iter()
            .filter_map(|device| bus_address(device.bus.as_deref()?))
            .any(|bus| bus == *address)
    };
    // A switch is a bridge on the bus, of class 0680.
    let is_switch = |address: &String| {
        root.number(format!("sys/bus/pci/devices/{address}/class"))
            .is_some_and(|class| class >> 8 == 0x0680)
    };
    let mut remotes = remotes(device);
    remotes.sort();
    remotes.dedup();
    Some(NvLink {
        active: u32::try_from(active).ok()?,
        inactive: u32::try_from(inactive).ok()?,
        switched: remotes
            .iter()
            .any(|remote| !is_card(remote) && is_switch(remote)),
        peers: Vec::new(),
    })
}

/// Says whom each card reaches, now that all have numbers.
pub(super) fn name_peers(cards: &mut [Found]) {
    let known: Vec<(u32, Option<String>, bool)> = cards
        .iter()
        .map(|card| {
            let Gpu {
                index, bus, nvlink, ..
            } = &card.gpu;
            let switched = nvlink.as_ref().is_some_and(|links| links.switched);
            (*index, bus.clone(), switched)
        })
        .collect();
    for card in cards {
        let (index, remotes) = (card.gpu.index, std::mem::take(&mut card.remotes));
        let Some(links) = &mut card.gpu.nvlink else {
            continue;
        };
        links.peers = known
            .iter()
            .filter(|(other, bus, switched)| {
                let direct = bus.as_ref().is_some_and(|bus| remotes.contains(bus));
                *other != index && (direct || links.switched && *switched)
            })
            .map(|(other, _, _)| *other)
            .collect();
    }
}

const VENDOR: &str = "nvidia";

/// No name is longer.
const CLASS_LIMIT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::gpu::nvml::{DeviceLink, Unreachable};

    #[test]
    fn a_class_is_the_name_without_the_maker() {
        for (name, expected) in [
            ("NVIDIA H200", "H200"),
            ("NVIDIA GeForce RTX 4090", "RTX 4090"),
            ("GeForce GTX 1080 Ti", "GTX 1080 Ti"),
            ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
            ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"),
            ("NVIDIA H100 80GB HBM3", "H100 80GB HBM3"),
            ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada Generation"),
        ] {
            assert_eq!(class(name), expected);
        }
    }

    #[test]
    fn cards_reach_each_other_directly_or_through_a_switch() {
        let card = |index, bus: &str, remotes: &[&str], switched| Found {
            gpu: Gpu {
                index,
                bus: Some(bus.to_owned()),
                nvlink: Some(NvLink {
                    active: 1,
                    switched,
                    ..NvLink::default()
                }),
                ..Gpu::default()
            },
            remotes: remotes.iter().map(|remote| (*remote).to_owned()).collect(),
        };
        let mut cards = [
            card(0, "a", &["b"], false),
            card(1, "b", &["a"], false),
            card(2, "c", &["s"], true),
            card(3, "d", &["s"], true),
        ];
        name_peers(&mut cards);
        let peers = cards.map(|card| card.gpu.nvlink.unwrap().peers);
        assert_eq!(peers, [vec![1], vec![0], vec![3], vec![2]]);
    }

    #[test]
    fn a_card_that_the_library_can_t_name_is_the_one_that_it_does_not_offer() {
        let described = |bus: &str| Described {
            bus: Some(bus.to_owned()),
            class: Some("H200".to_owned()),
            uuid: None,
        };
        let lost = || Found {
            gpu: Gpu {
                problems: health::problems(
                    &Device {
                        unreachable: Some(Unreachable::Lost),
                        ..Device::default()
                    },
                    &BTreeMap::new(),
                ),
                ..Gpu::default()
            },
            remotes: Vec::new(),
        };
        let mut found = vec![lost()];
        add_missing(
            &mut found,
            vec![described("0000:19:00.0"), described("0000:3b:00.0")],
            &Errors::new(),
        );
        let kinds = |found: &Found| found.gpu.problems[0].kind;
        assert_eq!(found.len(), 2);
        assert_eq!(kinds(&found[0]), GpuProblemKind::Lost);
        assert_eq!(found[0].gpu.bus.as_deref(), Some("0000:19:00.0"));
        assert_eq!(kinds(&found[1]), GpuProblemKind::Missing);
    }

    #[test]
    fn a_bridge_that_was_never_fitted_is_no_link() {
        let root = Root::captured("/nowhere", crate::facts::capture::Machine::default());
        let device = |active| Device {
            links: vec![DeviceLink {
                active,
                remote: None,
            }],
            ..Device::default()
        };
        assert_eq!(links(&root, &device(false), &[]), None);
        assert_eq!(links(&root, &device(true), &[]).unwrap().active, 1);
    }
}
