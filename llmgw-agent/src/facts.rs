//! What an agent finds on its machine.
//!
//! A [`Probe`] looks at one side of a machine: its processor, its memory, its disk. It reads the kernel's files
//! beneath a [`Root`], so that a tree captured from another machine is read by the same code as this one.
//! **Unknown is absent; none is empty**: a probe that can't tell leaves its fact out, and never writes 0.

pub mod cpu;
pub mod disk;
pub mod gpu;
pub mod memory;
pub mod mounts;
pub mod system;

use std::{
    fmt, fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use llmgw_core::{
    cluster::node::{NodeFacts, Warning},
    units::Bytes,
};

/// Looks at one side of a machine.
///
/// # Contract
/// * `look` reads, and changes nothing on the machine. It may block (a disk may hang), so it is called where
///   blocking is allowed, again and again.
/// * What it can't find out stays as it was in `facts`: absent. What it looked for and did not find is empty.
/// * It never fails; what an operator should know goes into `facts.warnings`.
/// * Probes are independent: their order does not matter.
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

/// The directory that stands for `/`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Root(PathBuf);

/// The probes of this release.
#[must_use]
pub fn probes() -> Vec<Box<dyn Probe>> {
    vec![
        Box::new(system::SystemProbe),
        Box::new(cpu::CpuProbe),
        Box::new(memory::MemoryProbe),
        Box::new(disk::DiskProbe),
        Box::new(gpu::GpuProbe),
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

// === impl Root ===

impl Root {
    /// The machine itself.
    #[must_use]
    pub fn system() -> Self {
        Self(PathBuf::from("/"))
    }

    /// A captured tree.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The place of a file that is named from `/`.
    #[must_use]
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The bytes of a file, at most the first `limit`; `None` when it can't be read.
    #[must_use]
    pub fn bytes(&self, path: impl AsRef<Path>, limit: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = fs::File::open(self.path(path)).ok()?;
        file.take(limit).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// The text of a file, at most its first 4 MiB; `None` when it can't be read.
    #[must_use]
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let bytes = self.bytes(path, TEXT_LIMIT)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The names in a directory, sorted; `None` when it can't be read.
    #[must_use]
    pub fn names(&self, path: impl AsRef<Path>) -> Option<Vec<String>> {
        let mut names: Vec<String> = fs::read_dir(self.path(path))
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        Some(names)
    }
}

fn warn(facts: &mut NodeFacts, code: &str, text: String) {
    facts.warnings.push(Warning {
        code: code.to_owned(),
        text,
    });
}

/// `/proc/cpuinfo` of 512 threads has about 1 MiB; nothing that we read is larger.
const TEXT_LIMIT: u64 = 4 << 20;
