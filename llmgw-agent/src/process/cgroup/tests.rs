//! The kernel's files are imitated by plain ones, which a test fills and reads: what is written where, and what is
//! made of what the kernel says. That the kernel does as it is told the conformance suite shows, where a machine
//! has control groups.

use super::*;

/// A place for groups, with the files that the kernel would make.
struct Fake {
    _dir: tempfile::TempDir,
    cgroups: Cgroups,
    replica: ReplicaId,
}

impl Fake {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cgroups = Cgroups {
            parent: dir.path().join("now"),
            earlier: vec![dir.path().join("before")],
            memory: true,
            pids: true,
        };
        fs::create_dir(&cgroups.parent).unwrap();
        let fake = Self {
            _dir: dir,
            cgroups,
            replica: ReplicaId::generate(),
        };
        imitate(&fake.group());
        fake
    }

    fn group(&self) -> PathBuf {
        self.cgroups.parent.join(self.replica.to_string())
    }

    fn says(&self, file: &str, text: &str) {
        fs::write(self.group().join(file), text).unwrap();
    }

    fn holds(&self, file: &str) -> String {
        fs::read_to_string(self.group().join(file)).unwrap()
    }
}

fn imitate(group: &Path) {
    fs::create_dir_all(group).unwrap();
    for file in FILES {
        fs::write(group.join(file), "").unwrap();
    }
}

const FILES: [&str; 8] = [
    "cgroup.procs",
    "cgroup.kill",
    "memory.max",
    "memory.oom.group",
    "memory.stat",
    "memory.events",
    "cpu.stat",
    "pids.max",
];

#[test]
fn a_group_is_limited_as_far_as_the_kernel_limits() {
    let mut fake = Fake::new();
    let limits = Limits::of_memory(Bytes::gib(4));
    let group = fake.cgroups.create(fake.replica, &limits).unwrap();
    assert_eq!(group, fake.group());
    assert_eq!(fake.holds("memory.max"), Bytes::gib(6).0.to_string());
    assert_eq!(fake.holds("memory.oom.group"), "1");
    assert_eq!(fake.holds("pids.max"), "16384");
    assert_eq!(fake.cgroups.limited(), Some("memory and processes"));
    assert_eq!(fake.cgroups.warning(), None);

    fs::remove_file(fake.group().join("memory.max")).unwrap();
    assert!(fake.cgroups.create(fake.replica, &limits).is_err());
    fake.cgroups.memory = false;
    fake.says("pids.max", "");
    fake.cgroups.pids = false;
    fake.cgroups.create(fake.replica, &limits).unwrap();
    let warning = fake.cgroups.warning().unwrap();
    assert_eq!(warning.code, Warning::ENGINE_MEMORY_UNLIMITED);
    assert!(
        warning.text.contains("without the memory controller"),
        "{}",
        warning.text
    );
    assert_eq!(fake.holds("pids.max"), "");
    assert_eq!(fake.cgroups.limited(), None);
}

#[test]
fn members_are_found_beneath_and_in_places_of_earlier_lives() {
    let fake = Fake::new();
    fake.says("cgroup.procs", "10\n11\n0\n");
    let inner = fake.group().join("worker");
    imitate(&inner);
    fs::write(inner.join("cgroup.procs"), "12\n").unwrap();
    let before = fake.cgroups.earlier[0].join(fake.replica.to_string());
    imitate(&before);
    fs::write(before.join("cgroup.procs"), "13\n").unwrap();
    let members = fake.cgroups.members(fake.replica).unwrap();
    assert_eq!(members, BTreeSet::from([10, 11, 12, 13]));
    assert_eq!(
        fake.cgroups.replicas().unwrap(),
        BTreeSet::from([fake.replica])
    );
    let nobody = fake.cgroups.members(ReplicaId::generate()).unwrap();
    assert!(nobody.is_empty());

    fake.cgroups.kill(fake.replica).unwrap();
    assert_eq!(fake.holds("cgroup.kill"), "1");
    assert_eq!(fs::read_to_string(before.join("cgroup.kill")).unwrap(), "1");
    // A kernel that has no such file.
    fs::remove_file(before.join("cgroup.kill")).unwrap();
    fake.cgroups.kill(fake.replica).unwrap();
}

#[test]
fn what_gives_way_is_not_counted_as_used() {
    let fake = Fake::new();
    assert_eq!(fake.cgroups.usage(fake.replica), None);
    fake.says("cpu.stat", "usage_usec 1500000\nuser_usec 1\n");
    assert_eq!(
        fake.cgroups.cpu(fake.replica),
        Some(Duration::from_millis(1500))
    );
    // The kernel counts no memory here.
    assert_eq!(fake.cgroups.usage(fake.replica), None);
    fake.says(
        "memory.stat",
        "anon 4096\nfile 99999999\nanon_thp 7\nshmem 8192\n",
    );
    let usage = fake.cgroups.usage(fake.replica).unwrap();
    assert_eq!(usage.held, Bytes(12_288));
    assert_eq!(fake.cgroups.usage(ReplicaId::generate()), None);
}

#[test]
fn what_is_mapped_is_counted_as_held_and_what_was_only_read_is_not() {
    let fake = Fake::new();
    assert_eq!(fake.cgroups.resident(fake.replica), None);
    fake.says("memory.current", "1000\n");
    fake.says(
        "memory.stat",
        "anon 300\nfile 650\nactive_file 250\ninactive_file 400\nfile_mapped 200\n",
    );
    assert_eq!(fake.cgroups.resident(fake.replica), Some(Bytes(550)));
}

#[test]
fn the_limit_is_told_only_when_the_kernel_has_ended_something_for_it() {
    let fake = Fake::new();
    fake.says("memory.max", "2147483648\n");
    fake.says("memory.events", "low 0\nmax 17\noom 1\noom_kill 0\n");
    assert_eq!(fake.cgroups.exceeded(fake.replica), None);
    fake.says("memory.events", "max 17\noom 1\noom_kill 2\n");
    assert_eq!(fake.cgroups.exceeded(fake.replica), Some(Bytes::gib(2)));
    fake.says("memory.max", "max\n");
    assert_eq!(fake.cgroups.exceeded(fake.replica), None);
}

#[test]
fn ended_groups_are_removed_with_those_beneath() {
    let fake = Fake::new();
    let inner = fake.group().join("a/b");
    imitate(&inner);
    // The kernel's files need not be removed; these are none.
    for group in groups_beneath(&fake.group()).unwrap() {
        for file in FILES {
            drop(fs::remove_file(group.join(file)));
        }
    }
    fake.cgroups.remove(fake.replica).unwrap();
    assert!(!fake.group().exists());
    fake.cgroups.remove(fake.replica).unwrap();
}
