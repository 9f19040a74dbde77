//! Machines as files: what the kernels of such machines show, and what must be read out of it.

#![expect(clippy::unwrap_used, reason = "a test that can't set itself up fails")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use llmgw_agent::facts::{
    Scene,
    capture::{self, CaptureError},
    gpu::{GpuReader, library},
    look, probes,
};
use llmgw_core::{
    cluster::node::{Fabric, Gpu, GpuProblemKind, MajorMinor, Memory, NodeFacts, Warning},
    units::Bytes,
};
use proptest::prelude::*;
use tempfile::TempDir;

/// A machine that is made of files.
struct Machine {
    dir: TempDir,
    scene: Scene,
}

#[test]
fn this_machine_can_be_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let facts = here(&dir.path().join("not/yet/there"));
    assert_eq!(facts.arch, std::env::consts::ARCH);
    assert!(!facts.hostname.is_empty());
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(facts.cpu.unwrap().cores as usize, cores);
    assert!(facts.fabrics.is_some());
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
    assert_eq!(codes(&facts.warnings), [Warning::GPU_MEMORY_UNKNOWN]);
    let text = &facts.warnings[0].text;
    assert!(
        text.contains("libnvidia-ml.so.1 is not installed"),
        "{text}"
    );
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
    assert_eq!(
        codes(&facts.warnings),
        [Warning::NO_AVX2, Warning::SWAP_IN_USE]
    );
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
    let facts = Machine::empty().look();
    assert_eq!((facts.os, facts.glibc, facts.cpu), (None, None, None));
    assert_eq!((facts.memory, facts.disk, facts.gpus), (None, None, None));
    assert!(facts.warnings.is_empty());

    let garbage = Machine::empty();
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
    let mut machine = Machine::like("debian-12-cpu");
    machine.scene.data_dir = "/var/lib/llmgw/node".into();
    let mounts = |kind: &str| {
        format!(
            "1 0 0:1 / / rw - ext4 /dev/root rw\n2 1 0:2 / /var/lib/llmgw rw - {kind} filer:/models rw\n"
        )
    };
    for (kind, shared) in [("nfs4", true), ("xfs", false), ("fuse.ceph", true)] {
        machine.write("proc/self/mountinfo", &mounts(kind));
        let disk = machine.look().disk.unwrap();
        assert_eq!(
            (disk.shared, disk.mount.as_str()),
            (shared, "/var/lib/llmgw"),
            "{kind}"
        );
    }
}

#[test]
fn a_quota_and_an_affinity_leave_fewer_cores() {
    let machine = Machine::like("arm64-server");
    // Eight cores, of which the service has six and a half.
    let cpu = machine.look().cpu.unwrap();
    assert_eq!((cpu.cores, cpu.physical), (6, Some(8)));
    machine.write("proc/self/status", "Cpus_allowed_list:\t1,3-4\n");
    assert_eq!(machine.look().cpu.unwrap().cores, 3);
    machine.write(
        "sys/fs/cgroup/system.slice/llmgw-agent.service/cpu.max",
        "50000 100000\n",
    );
    // Half a core is a core: nothing runs on none.
    assert_eq!(machine.look().cpu.unwrap().cores, 1);
}

#[test]
fn two_cards_are_told_with_all_that_placement_needs() {
    let facts = Machine::like("ubuntu-24.04-two-gpus").look();
    let gpus = facts.gpus.unwrap();
    let classes: Vec<&str> = gpus.iter().filter_map(|gpu| gpu.class.as_deref()).collect();
    assert_eq!(classes, ["RTX 4090", "RTX 4090"]);
    let version = |text: &str| text.parse::<MajorMinor>().ok();
    assert_eq!(gpus[0].cuda, version("12.8"));
    assert_eq!(gpus[0].compute, version("8.9"));
    assert_eq!(gpus[0].bus.as_deref(), Some("0000:01:00.0"));
    // What a desktop and the driver use is others'.
    assert_eq!(gpus[0].memory_others, Some(Bytes::mib(1182 + 471)));
    assert!(gpus[0].is_shared() && !gpus[1].is_shared());
    // The processor's own graphics are no card, and a program's mistake is no fault.
    assert!(gpus.iter().all(|gpu| gpu.problems.is_empty()));
    assert_eq!(facts.warnings, []);
}

#[test]
fn memory_of_our_own_engines_is_not_others() {
    let machine = Machine::like("ubuntu-24.04-two-gpus");
    machine.write(
        "proc/2544/environ",
        "PATH=/bin\0LLMGW_DATA_DIR=/var/lib/llmgw\0LLMGW_REPLICA=r-1\0",
    );
    let gpus = machine.look().gpus.unwrap();
    assert_eq!(gpus[0].memory_used, Some(Bytes::mib(1182 + 471)));
    assert_eq!(gpus[0].memory_others, Some(Bytes::mib(1182 + 471 - 431)));
}

#[test]
fn sick_cards_are_not_placed_on_and_say_why() {
    let facts = Machine::like("ubuntu-22.04-sick-gpus").look();
    let gpus = facts.gpus.unwrap();
    let first = |gpu: &Gpu| gpu.problems.first().map(|problem| problem.kind);
    let kinds: Vec<_> = gpus.iter().map(first).collect();
    assert_eq!(
        kinds,
        [
            Some(GpuProblemKind::Xid),
            Some(GpuProblemKind::RemapPending),
            Some(GpuProblemKind::Lost),
            Some(GpuProblemKind::Xid),
            Some(GpuProblemKind::Missing),
        ]
    );
    let usable: Vec<u32> = gpus
        .iter()
        .filter(|gpu| gpu.fault.is_none())
        .map(|gpu| gpu.index)
        .collect();
    // It is hot and waits for a reset, and computes.
    assert_eq!(usable, [1]);
    // The one that is lost keeps its place, so that the others keep theirs.
    assert_eq!(gpus[2].bus.as_deref(), Some("0000:81:00.0"));
    assert_eq!(
        codes(&facts.warnings),
        [
            Warning::CLOCK_OFF,
            Warning::GPU_FAULT,
            Warning::GPU_FAULT,
            Warning::GPU_FAULT,
            Warning::GPU_FAULT,
            Warning::GPU_PROBLEM,
            Warning::GPU_PROBLEM,
        ]
    );
}

#[test]
fn cards_on_a_switch_reach_each_other_and_ports_name_their_networks() {
    let facts = Machine::like("dgx-h200").look();
    let gpus = facts.gpus.unwrap();
    assert_eq!(gpus.len(), 8);
    let links = gpus[3].nvlink.as_ref().unwrap();
    assert_eq!((links.active, links.switched), (18, true));
    assert_eq!(links.peers, [0, 1, 2, 4, 5, 6, 7]);
    let fabrics = facts.fabrics.unwrap();
    let of = |kind: &str, up: bool| -> Vec<Option<&str>> {
        let ports = fabrics
            .iter()
            .filter(|port| port.kind == kind && port.up == up);
        ports.map(|port| port.name.as_deref()).collect()
    };
    assert_eq!(
        of(Fabric::INFINIBAND, true),
        [Some("infiniband-fec0000000000002"); 7]
    );
    assert_eq!(of(Fabric::INFINIBAND, false), [Some("infiniband")]);
    assert_eq!(of(Fabric::ROCE, true), [Some("roce-10.200.4.0/24")]);
    // The parts of a bond, slow ports and those that a fabric has taken are not told again.
    assert_eq!(of(Fabric::ETHERNET, true), [Some("ethernet-10.4.0.0/23")]);
    assert_eq!(codes(&facts.warnings), [Warning::FABRIC_NOT_ACTIVE]);
}

#[test]
fn a_divided_card_and_one_of_another_maker_are_told_and_left_alone() {
    let facts = Machine::like("mig-and-arc").look();
    let gpus = facts.gpus.unwrap();
    assert_eq!(gpus[0].mig.as_ref().unwrap().len(), 2);
    let kinds: Vec<_> = gpus.iter().map(|gpu| gpu.problems[0].kind).collect();
    assert_eq!(
        kinds,
        [GpuProblemKind::Divided, GpuProblemKind::Unsupported]
    );
    assert!(gpus.iter().all(|gpu| gpu.fault.is_some()));
    assert_eq!(gpus[1].class.as_deref(), Some("Arc A"));
}

#[test]
fn a_driver_that_was_upgraded_under_the_old_one_is_named() {
    let facts = Machine::like("driver-upgraded").look();
    assert_eq!(facts.gpus.as_ref().unwrap()[0].memory_usable(), None);
    let text = &facts.warnings[0].text;
    assert!(text.contains("restart the machine"), "{text}");
}

#[test]
fn amd_s_cards_are_told_by_the_kernel_s_files() {
    let machine = Machine::like("amd-mi300x");
    let gpus = machine.look().gpus.unwrap();
    let classes: Vec<&str> = gpus.iter().filter_map(|gpu| gpu.class.as_deref()).collect();
    assert_eq!(classes, ["MI300X OAM", "MI300X"]);
    assert_eq!(gpus[0].uuid.as_deref(), Some("GPU-9f3a5c7712ab4d00"));
    assert_eq!(gpus[0].fault, None);
    assert_eq!(gpus[1].problems[0].kind, GpuProblemKind::MemoryErrors);
    assert_eq!(gpus[1].memory_others, Some(Bytes::mib(84_297)));
    machine.write(
        "proc/4242/environ",
        "LLMGW_DATA_DIR=/var/lib/llmgw\0LLMGW_REPLICA=r-1\0",
    );
    let gpus = machine.look().gpus.unwrap();
    assert_eq!(gpus[1].memory_others, Some(Bytes::mib(297)));
}

#[test]
fn memory_in_use_now_is_told_by_a_card_s_name() {
    let used = |tree: &str, uuid: &str| {
        let machine = Machine::like(tree);
        let root = &machine.scene.root;
        GpuReader::new(root.clone(), library(root)).used(uuid)
    };
    let card = "GPU-a1b2c3d4-7b1e-4c52-9a60-000000000001";
    assert_eq!(
        used("ubuntu-24.04-two-gpus", card),
        Some(Bytes::mib(3 + 471))
    );
    assert_eq!(
        used("amd-mi300x", "GPU-9f3a5c7712ab4d01"),
        Some(Bytes::mib(84_297))
    );
    // What can't be read is not told as nothing.
    assert_eq!(used("amd-mi300x", card), None);
    assert_eq!(used("vm", card), None);
}

#[test]
fn a_recorded_machine_is_the_machine() {
    for tree in trees() {
        let machine = Machine::like(&tree);
        let facts = machine.look();
        let to = tempfile::tempdir().unwrap();
        let to = to.path().join("new");
        let recorded = capture::record(machine.scene.clone(), &to).unwrap();
        assert_eq!(recorded, facts, "{tree}");
        let again = capture::open(&to).unwrap();
        assert_eq!(look(&probes(&again.root), &again), facts, "{tree}");
        // A process's environment is nobody else's business.
        assert!(!to.join("proc/4242/environ").exists());
        let error = capture::record(machine.scene, &to).unwrap_err();
        assert!(matches!(error, CaptureError::Occupied(_)), "{error}");
    }
}

#[test]
fn this_machine_is_recorded_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    let there = capture::record(Scene::here(dir.path()), &tree).unwrap();
    let again = capture::open(&tree).unwrap();
    assert_eq!(look(&probes(&again.root), &again), there);
    let size = size_of(&tree);
    assert!(size < 2 << 20, "{size}");
}

#[test]
fn a_tree_that_can_t_be_read_is_refused_with_its_file() {
    let machine = Machine::like("arm");
    let refused = || capture::open(machine.dir.path()).unwrap_err().to_string();
    machine.write("nvml.json", "{");
    assert!(refused().contains("nvml.json"), "{}", refused());
    machine.write("machine.json", r#"{"format":7,"arch":"x","data_dir":"/"}"#);
    assert!(refused().contains("format 7"), "{}", refused());
    fs::remove_file(machine.dir.path().join("machine.json")).unwrap();
    assert!(refused().contains("machine.json"), "{}", refused());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_bytes_in_every_file_are_read_without_a_panic(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            "([a-z ]{0,9}[:=;][ 0-9a-fx]{0,20}\n|-1|0x|9{25} ?|, - ){0,12}".prop_map(String::into_bytes),
        ],
        tree in prop::sample::select(vec!["dgx-h200", "amd-mi300x", "ubuntu-22.04-sick-gpus", "container"]),
    ) {
        let machine = Machine::like(tree);
        spoil(machine.dir.path(), &bytes);
        machine.look();
    }
}

fn here(data_dir: &Path) -> NodeFacts {
    let scene = Scene::here(data_dir);
    look(&probes(&scene.root), &scene)
}

fn trees() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(machines())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.len() >= 12, "{names:?}");
    names
}

fn machines() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines")
}

fn spoil(dir: &Path, bytes: &[u8]) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            spoil(&path, bytes);
        } else {
            fs::write(path, bytes).unwrap();
        }
    }
}

fn size_of(dir: &Path) -> u64 {
    let sizes = fs::read_dir(dir).unwrap().map(|entry| {
        let entry = entry.unwrap();
        if entry.path().is_dir() {
            size_of(&entry.path())
        } else {
            entry.metadata().unwrap().len()
        }
    });
    sizes.sum()
}

fn codes(warnings: &[Warning]) -> Vec<&str> {
    warnings
        .iter()
        .map(|warning| warning.code.as_str())
        .collect()
}

impl Machine {
    /// A copy of a tree under `tests/machines/`, which a test may change.
    fn like(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        copy(&machines().join(name), dir.path());
        let scene = capture::open(dir.path()).unwrap();
        Self { dir, scene }
    }

    /// One of which nothing is known but what it is.
    fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let machine = r#"{"format":1,"arch":"x86_64","data_dir":"/var/lib/llmgw"}"#;
        fs::write(dir.path().join("machine.json"), machine).unwrap();
        let scene = capture::open(dir.path()).unwrap();
        Self { dir, scene }
    }

    fn write(&self, file: &str, text: &str) {
        let path: PathBuf = self.dir.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn look(&self) -> NodeFacts {
        look(&probes(&self.scene.root), &self.scene)
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
