//! Machines as files: what the kernels of such machines show, and what must be read out of it.

#![expect(clippy::unwrap_used, reason = "a test that can't set itself up fails")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use llmgw_agent::facts::{Root, Scene, look, probes};
use llmgw_core::{
    cluster::node::{Memory, NodeFacts},
    units::Bytes,
};
use tempfile::TempDir;

/// A machine that is made of files.
struct Machine {
    dir: TempDir,
    scene: Scene,
}

#[test]
fn this_machine_can_be_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let facts = look(&probes(), &Scene::here(dir.path().join("not/yet/there")));
    assert_eq!(facts.arch, std::env::consts::ARCH);
    assert!(!facts.hostname.is_empty());
    assert!(facts.cpu.unwrap().cores > 0);
    let memory = facts.memory.unwrap();
    assert!(memory.allocatable < memory.total, "{memory:?}");
    let disk = facts.disk.unwrap();
    assert!(
        disk.free <= disk.total && disk.total > Bytes::ZERO,
        "{disk:?}"
    );
    assert!(dir.path().canonicalize().unwrap().starts_with(&disk.mount));
}

#[test]
fn a_server_with_a_control_group_is_read() {
    let facts = Machine::like("vm").look();
    assert_eq!(facts.hostname, "gpu-1");
    let os = facts.os.unwrap();
    assert_eq!(
        (os.id.as_str(), os.version.as_deref()),
        ("ubuntu", Some("24.04"))
    );
    let features = facts.cpu.unwrap().features;
    assert!(features.contains(&"avx2".to_owned()), "{features:?}");
    assert!(!features.contains(&"fpu".to_owned()), "{features:?}");
    // The service may use 16 GiB, of which it uses 3 GiB, 1 GiB of them page cache.
    let memory = facts.memory.unwrap();
    assert_eq!(memory.total, Bytes::gib(16));
    assert_eq!(
        memory.allocatable,
        Bytes::gib(14) - Bytes(Bytes::gib(16).0 / 50)
    );
    let gpus = facts.gpus.unwrap();
    assert_eq!(gpus.len(), 1);
    assert_eq!(
        (gpus[0].vendor.as_str(), gpus[0].class.as_deref()),
        ("nvidia", Some("H200"))
    );
    assert_eq!(gpus[0].memory_total, None);
    assert_eq!(codes(&facts.warnings), ["gpu_memory_unknown"]);
}

#[test]
fn a_container_with_version_1_groups_is_read() {
    let facts = Machine::like("container").look();
    let memory = facts.memory.unwrap();
    // The host has 64 GiB, the container 4, the job in it 2; the tightest counts.
    assert_eq!(memory.total, Bytes::gib(2));
    assert_eq!(
        memory.allocatable,
        Bytes::gib(2) - Bytes::mib(100) - Bytes::mib(256)
    );
    assert_eq!(facts.os.unwrap().id, "alpine");
    assert_eq!(facts.glibc, None);
    assert_eq!(facts.gpus.unwrap(), []);
    assert_eq!(codes(&facts.warnings), ["no_avx2", "swap_in_use"]);
}

#[test]
fn an_arm_board_lacks_no_avx2() {
    let facts = Machine::like("arm").look();
    assert_eq!(facts.cpu.unwrap().features, ["asimd", "asimddp"]);
    assert_eq!(codes(&facts.warnings), Vec::<&str>::new());
    let memory = facts.memory.unwrap();
    // A small machine keeps back 256 MiB.
    assert_eq!(
        memory.allocatable,
        Bytes(1_500_000 * 1024) - Bytes::mib(256)
    );
}

#[test]
fn what_can_not_be_read_is_absent_and_not_zero() {
    let facts = Machine::empty("x86_64").look();
    assert_eq!((facts.os, facts.glibc, facts.cpu), (None, None, None));
    assert_eq!((facts.memory, facts.disk, facts.gpus), (None, None, None));
    assert!(facts.warnings.is_empty());

    let garbage = Machine::empty("x86_64");
    for file in [
        "proc/meminfo",
        "proc/cpuinfo",
        "proc/self/cgroup",
        "proc/self/mountinfo",
        "etc/os-release",
    ] {
        garbage.write(file, "\u{0}: %$ 12 kB\n:::\n= - -\n");
    }
    let facts = garbage.look();
    assert_eq!(
        (facts.os, facts.cpu, facts.memory, facts.disk),
        (None, None, None, None)
    );
}

#[test]
fn what_our_own_engines_hold_may_be_given_away_again() {
    let mut machine = Machine::like("arm");
    let before = machine.look().memory.unwrap();
    machine.scene.held = Bytes::mib(200);
    let after = machine.look().memory.unwrap();
    assert_eq!(after.allocatable, before.allocatable + Bytes::mib(200));
    // But not more than there is.
    machine.scene.held = Bytes::gib(100);
    let Memory { total, allocatable } = machine.look().memory.unwrap();
    assert_eq!(allocatable, total - Bytes::mib(256));
}

#[test]
fn memory_that_is_used_up_is_none_and_not_less() {
    let machine = Machine::like("container");
    machine.write(
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes",
        "99999999999\n",
    );
    assert_eq!(machine.look().memory.unwrap().allocatable, Bytes::ZERO);
}

#[test]
fn a_disk_on_a_filer_is_shared() {
    let machine = Machine::like("vm");
    let real = fs::canonicalize(&machine.scene.data_dir).unwrap();
    let mounts = |kind: &str| {
        format!(
            "1 0 0:1 / / rw - ext4 /dev/root rw\n2 1 0:2 / {} rw - {kind} filer:/models rw\n",
            real.display(),
        )
    };
    for (kind, shared) in [("nfs4", true), ("xfs", false), ("fuse.ceph", true)] {
        machine.write("proc/self/mountinfo", &mounts(kind));
        let disk = machine.look().disk.unwrap();
        assert_eq!(
            (disk.shared, Path::new(&disk.mount)),
            (shared, real.as_path()),
            "{kind}"
        );
    }
}

#[test]
fn amd_cards_say_their_memory() {
    let machine = Machine::like("arm");
    let card = |file: &str| format!("sys/class/drm/card1/device/{file}");
    machine.write(&card("vendor"), "0x1002\n");
    machine.write(&card("mem_info_vram_total"), "68702699520\n");
    machine.write("sys/class/drm/card1-DP-1/device/vendor", "0x1002\n");
    machine.write("sys/class/drm/card0/device/vendor", "0x1a03\n");
    let facts = machine.look();
    let gpus = facts.gpus.unwrap();
    assert_eq!(gpus.len(), 1);
    assert_eq!(
        (gpus[0].vendor.as_str(), gpus[0].memory_total),
        ("amd", Some(Bytes(68_702_699_520)))
    );
    assert_eq!(codes(&facts.warnings), Vec::<&str>::new());
}

fn codes(warnings: &[llmgw_core::cluster::node::Warning]) -> Vec<&str> {
    warnings
        .iter()
        .map(|warning| warning.code.as_str())
        // Of the machine that runs the tests.
        .filter(|code| *code != "disk_nearly_full")
        .collect()
}

impl Machine {
    /// A copy of a tree under `tests/machines/`, which a test may change.
    fn like(name: &str) -> Self {
        let from = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/machines")
            .join(name);
        let arch = fs::read_to_string(from.join("arch")).unwrap();
        let machine = Self::empty(arch.trim());
        copy(&from, machine.dir.path());
        machine
    }

    fn empty(arch: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let scene = Scene {
            root: Root::at(dir.path()),
            data_dir: dir.path().to_owned(),
            arch: arch.to_owned(),
            held: Bytes::ZERO,
        };
        Self { dir, scene }
    }

    fn write(&self, file: &str, text: &str) {
        let path: PathBuf = self.dir.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn look(&self) -> NodeFacts {
        look(&probes(), &self.scene)
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
