//! GPUs: NVIDIA's by the driver's library, AMD's and Intel's by the kernel's files.
//!
//! A machine's cards are numbered in the order of the bus, NVIDIA's first: a card that is lost keeps its place, so
//! that the numbers of the others stay. An engine is shown its cards by name ([`visible`]), never by these
//! numbers, for each library counts in its own way.

mod amd;
mod health;
mod intel;
mod nvidia;
pub mod nvml;
mod visible;
mod xid;

use std::{collections::BTreeSet, sync::Arc};

use llmgw_core::{
    cluster::node::{Gpu, NodeFacts, Warning},
    units::Bytes,
};

pub use self::visible::visible;
use self::{
    nvml::{LiveNvml, Nvml, NvmlError, RecordedNvml},
    xid::KernelLog,
};
use super::{Probe, Root, Scene, warn};

/// Looks for GPUs.
#[derive(Debug)]
pub struct GpuProbe {
    nvml: Arc<dyn Nvml>,
    log: KernelLog,
}

/// Tells what is used now of a GPU's memory.
#[derive(Clone, Debug)]
pub struct GpuReader {
    root: Root,
    nvml: Arc<dyn Nvml>,
}

// === impl GpuProbe ===

impl GpuProbe {
    /// A probe that asks this library.
    #[must_use]
    pub fn new(nvml: Arc<dyn Nvml>) -> Self {
        Self {
            nvml,
            log: KernelLog::default(),
        }
    }
}

impl Probe for GpuProbe {
    fn name(&self) -> &'static str {
        "gpu"
    }

    fn look(&self, scene: &Scene, facts: &mut NodeFacts) {
        let root = &scene.root;
        let Some(devices) = root.names("dev", is_gpu_device) else {
            return;
        };
        let (mut gpus, trouble) = self.nvidia(scene, &devices);
        gpus.extend(amd::cards(scene, &devices));
        gpus.extend(intel::cards(root));
        for (index, found) in (0u32..).zip(&mut gpus) {
            found.gpu.index = index;
        }
        nvidia::name_peers(&mut gpus);
        let gpus: Vec<Gpu> = gpus.into_iter().map(|found| found.gpu.judged()).collect();
        say(facts, &gpus, trouble.as_ref());
        facts.gpus = Some(gpus);
    }
}

impl GpuProbe {
    /// NVIDIA's cards, and why they can't be asked, if there are any and they can't.
    fn nvidia(&self, scene: &Scene, devices: &[String]) -> (Vec<Found>, Option<NvmlError>) {
        // Windows' Linux shows its GPUs as one device of its own.
        if !devices
            .iter()
            .any(|name| name.starts_with("nvidia") || name == "dxg")
        {
            return (Vec::new(), None);
        }
        let answer = self.nvml.read();
        scene.root.note(nvml::FILE, &nvml::to_json(&answer));
        let errors = self.log.errors(&scene.root);
        let trouble = answer.as_ref().err().cloned();
        let found = nvidia::cards(scene, devices, answer.ok(), &errors);
        (found, trouble)
    }
}

// === impl GpuReader ===

impl GpuReader {
    /// A reader of the GPUs of this machine or tree.
    #[must_use]
    pub fn new(root: Root, nvml: Arc<dyn Nvml>) -> Self {
        Self { root, nvml }
    }

    /// What is used now of the memory of the GPU of this name, by whomever and by the driver; `None` when that
    /// can't be told. Blocks as long as the driver does.
    #[must_use]
    pub fn used(&self, uuid: &str) -> Option<Bytes> {
        self.nvml.used(uuid).or_else(|| amd::used(&self.root, uuid))
    }

    /// What these processes hold of the GPU of this name; `None` where the driver names none of them, or not what they
    /// hold: in a container it may know them by other numbers. Blocks as long as the driver does.
    #[must_use]
    pub fn held_by(&self, uuid: &str, pids: &BTreeSet<u32>) -> Option<Bytes> {
        let reading = self.nvml.read().ok()?;
        let mut cards = reading.gpus.into_iter();
        let card = cards.find(|card| card.uuid.as_deref() == Some(uuid))?;
        let theirs = card.processes?.into_iter();
        let theirs: Vec<_> = theirs.filter(|one| pids.contains(&one.pid)).collect();
        if theirs.is_empty() {
            return None;
        }
        theirs.into_iter().map(|one| one.memory).sum()
    }
}

/// NVIDIA's library as this machine, or this captured tree, has it.
#[must_use]
pub fn library(root: &Root) -> Arc<dyn Nvml> {
    match root.machine() {
        None => Arc::new(LiveNvml::default()),
        Some(_) => Arc::new(RecordedNvml::new(root.clone())),
    }
}

/// A card, and the ends of its links before the other cards have numbers.
#[derive(Debug, Default)]
struct Found {
    gpu: Gpu,
    /// The addresses at the other ends of its links.
    remotes: Vec<String>,
}

fn say(facts: &mut NodeFacts, gpus: &[Gpu], trouble: Option<&NvmlError>) {
    for gpu in gpus {
        let title = gpu.title();
        if let Some(fault) = &gpu.fault {
            let text = format!("{title} is not placed on: {fault}");
            warn(facts, Warning::GPU_FAULT, text);
        }
        let lesser = gpu
            .problems
            .iter()
            .filter(|problem| !problem.kind.forbids());
        let lesser: Vec<&str> = lesser.map(|problem| problem.text.as_str()).collect();
        if !lesser.is_empty() {
            let text = format!("{title}: {}", lesser.join("; "));
            warn(facts, Warning::GPU_PROBLEM, text);
        }
    }
    let well = gpus.iter().filter(|gpu| gpu.fault.is_none());
    let unread = well.filter(|gpu| gpu.memory_usable().is_none()).count();
    if unread > 0 {
        let why = trouble
            .map(|error| format!(": {error}"))
            .unwrap_or_default();
        let text = format!(
            "the memory of {unread} of {} GPUs can't be read, so that they are given to profiles that take a whole \
             GPU only{why}",
            gpus.len(),
        );
        warn(facts, Warning::GPU_MEMORY_UNKNOWN, text);
    }
}

fn is_gpu_device(name: &str) -> bool {
    name.starts_with("nvidia") || matches!(name, "kfd" | "dxg")
}

/// An address on the PCI bus as the kernel writes it, `0000:19:00.0`: the driver's library gives the domain eight
/// digits, and others use capital letters. `None` when it is none.
fn bus_address(text: &str) -> Option<String> {
    let mut parts = text.trim().split(':');
    let (domain, bus, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let (device, function) = match rest.split_once('.') {
        Some((device, function)) => (device, Some(function)),
        None => (rest, None),
    };
    let is_hex = |digits: &str, lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    if parts.next().is_some()
        || !is_hex(domain, 4..=8)
        || !is_hex(bus, 2..=2)
        || !is_hex(device, 2..=2)
        || !function.is_none_or(|function| is_hex(function, 1..=1))
    {
        return None;
    }
    let domain = domain.trim_start_matches('0');
    let mut address = format!("{domain:0>4}:{bus}:{device}");
    if let Some(function) = function {
        address.push('.');
        address.push_str(function);
    }
    address.make_ascii_lowercase();
    Some(address)
}

/// The address of a card of the kernel's graphics class.
fn card_address(root: &Root, card: &str) -> Option<String> {
    let events = root.text(format!("sys/class/drm/{card}/device/uevent"))?;
    let line = events
        .lines()
        .find_map(|line| line.strip_prefix("PCI_SLOT_NAME="))?;
    bus_address(line)
}

/// The cards of the kernel's graphics class that a maker has made, in the order of the bus: `card0`, not its
/// connectors `card0-DP-1`.
fn cards_of(root: &Root, maker: u64) -> Vec<(String, Option<String>)> {
    let is_card = |name: &str| {
        name.strip_prefix("card")
            .is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let names = root.names("sys/class/drm", is_card).unwrap_or_default();
    let mut cards: Vec<(String, Option<String>)> = names
        .into_iter()
        .filter(|name| root.number(format!("sys/class/drm/{name}/device/vendor")) == Some(maker))
        .map(|name| {
            let address = card_address(root, &name);
            (name, address)
        })
        .collect();
    cards.sort_by(|a, b| a.1.cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
    cards
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_are_written_in_the_kernel_s_form() {
        for (text, address) in [
            ("00000000:19:00.0", Some("0000:19:00.0")),
            ("0000:3B:00.0", Some("0000:3b:00.0")),
            ("00010000:01:00.0", Some("10000:01:00.0")),
            ("0000:19:00", Some("0000:19:00")),
            ("19:00.0", None),
            ("0000:19:00.0:1", None),
            ("0000-19-00.0", None),
            ("0000:1:00.0", None),
            ("", None),
        ] {
            assert_eq!(bus_address(text).as_deref(), address, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_address_or_none(text in "[0-9a-f:.]{0,24}|\\PC{0,24}") {
            if let Some(address) = bus_address(&text) {
                prop_assert_eq!(bus_address(&address), Some(address));
            }
        }

        #[test]
        fn any_recorded_answers_are_read_or_refused(json in prop::collection::vec(any::<u8>(), 0..200)) {
            drop(nvml::parse(&json));
        }
    }
}
