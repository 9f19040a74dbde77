//! What an agent finds on its machine.
//!
//! A [`Probe`] looks at one side of a machine: its processor, its memory, its disk. It reads the kernel's files
//! beneath a [`Root`], so that a tree captured from another machine is read by the same code as this one.
//! **Unknown is absent; none is empty**: a probe that can't tell leaves its fact out, and never writes 0.
//!
//! What stands in no file, as the answers of a driver's library or the size of a disk, a captured tree holds in
//! files of ours ([`capture`]): with a tree nothing is asked of the running system, and the same tree gives the same
//! facts everywhere.

pub mod capture;
mod cgroup;
pub mod cpu;
pub mod disk;
pub mod fabric;
pub mod gpu;
pub mod memory;
pub mod mounts;
mod own;
mod root;
pub mod system;

use std::{fmt, path::PathBuf};

use llmgw_core::{
    cluster::node::{ClockOffset, NodeFacts, Warning},
    units::Bytes,
};

pub use self::root::Root;

/// Looks at one side of a machine.
///
/// # Contract
/// * `look` reads, and changes nothing on the machine. It may block (a disk may hang), so it is called where
///   blocking is allowed, again and again.
/// * What it can't find out stays as it was in `facts`: absent. What it looked for and did not find is empty.
/// * It never fails; what an operator should know goes into `facts.warnings`.
/// * Probes are independent: their order does not matter. They may keep what does not change from one look to the
///   next, of the one root that they are given.
pub trait Probe: fmt::Debug + Send + Sync + 'static {
    /// What it looks at, for logs.
    fn name(&self) -> &'static str;

    /// Looks, and writes down what it found.
    fn look(&self, scene: &Scene, facts: &mut NodeFacts);
}

/// Where probes look, and what they are told.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Where the kernel's and the system's files are.
    pub root: Root,
    /// The directory whose disk holds weights.
    pub data_dir: PathBuf,
    /// The processor architecture, as Rust names it.
    pub arch: String,
    /// Memory that this agent's own engines hold and that nobody else could have instead.
    pub held: Bytes,
}

/// The probes of this release, for the machine or the tree that `root` is.
#[must_use]
pub fn probes(root: &Root) -> Vec<Box<dyn Probe>> {
    vec![
        Box::new(system::SystemProbe::default()),
        Box::new(cpu::CpuProbe::default()),
        Box::new(memory::MemoryProbe),
        Box::new(disk::DiskProbe),
        Box::new(gpu::GpuProbe::new(gpu::library(root))),
        Box::new(fabric::FabricProbe),
    ]
}

/// Lets every probe look once.
#[must_use]
pub fn look(probes: &[Box<dyn Probe>], scene: &Scene) -> NodeFacts {
    let mut facts = NodeFacts {
        arch: scene.arch.clone(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        ..NodeFacts::default()
    };
    for probe in probes {
        probe.look(scene, &mut facts);
    }
    if let Some(machine) = scene.root.machine() {
        facts
            .management_address
            .clone_from(&machine.management_address);
        facts.clock = machine.clock;
        facts
            .warnings
            .extend(machine.clock.and_then(ClockOffset::warning));
    }
    facts.warnings.sort_by(|a, b| a.code.cmp(&b.code));
    facts
}

// === impl Scene ===

impl Scene {
    /// This machine, with the disk of `data_dir`.
    #[must_use]
    pub fn here(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            root: Root::system(),
            data_dir: data_dir.into(),
            arch: std::env::consts::ARCH.to_owned(),
            held: Bytes::ZERO,
        }
    }
}

fn warn(facts: &mut NodeFacts, code: &str, text: String) {
    facts.warnings.push(Warning::new(code, text));
}
