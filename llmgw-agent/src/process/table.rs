//! What the kernel tells of all processes, read at one time.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    io::{self, Read as _},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    time::Duration,
};

use llmgw_core::{id::ReplicaId, units::Bytes};

use super::{
    DATA_DIR_MARK, LAUNCHER_MARK, REPLICA_MARK, TASK_MARK, Usage,
    identity::{ProcessIdentity, boot_id},
};

/// All processes of the machine that may be ours or may have started ours.
#[derive(Debug)]
pub(super) struct ProcessTable {
    rows: BTreeMap<u32, Row>,
    /// This process and those above it: never a part of any tree.
    own: BTreeSet<u32>,
    boot_id: String,
}

#[derive(Debug)]
struct Row {
    stat: Stat,
    mark: Option<Mark>,
}

/// What `/proc/PID/stat` tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stat {
    pub(super) parent: u32,
    pub(super) group: u32,
    pub(super) start_time: u64,
    pub(super) ticks: u64,
    /// It has ended and waits for its parent to look.
    pub(super) ended: bool,
    /// It is a thread of the kernel.
    pub(super) of_kernel: bool,
}

/// What a process's environment says of its place with us.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mark {
    Replica(ReplicaId),
    /// Its launcher.
    Launcher(ReplicaId),
    Task,
}

// === impl ProcessTable ===

impl ProcessTable {
    /// Reads the table; `data_dir` tells our marks from those of other agents.
    ///
    /// # Errors
    /// When a part can't be read, for want of file descriptors say: a table with holes would look as if
    /// processes had ended.
    pub(super) fn read(data_dir: &Path) -> io::Result<Self> {
        let mut rows = BTreeMap::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let Some(stat) = stat(pid)? else { continue };
            // The kernel's own, which have no environment.
            if stat.of_kernel {
                continue;
            }
            let mark = environment(pid)?.and_then(|env| mark(&env, data_dir));
            rows.insert(pid, Row { stat, mark });
        }
        let mut own = BTreeSet::new();
        let mut next = std::process::id();
        while let Some(row) = rows.get(&next) {
            if !own.insert(next) {
                break;
            }
            next = row.stat.parent;
        }
        Ok(Self {
            rows,
            own,
            boot_id: boot_id()?,
        })
    }

    /// The process, when it runs.
    pub(super) fn identity(&self, pid: u32) -> Option<ProcessIdentity> {
        let row = self.rows.get(&pid).filter(|row| !row.stat.ended)?;
        Some(ProcessIdentity {
            pid,
            start_time: row.stat.start_time,
            boot_id: self.boot_id.clone(),
        })
    }

    pub(super) fn mark(&self, pid: u32) -> Option<Mark> {
        self.rows.get(&pid)?.mark
    }

    /// All marked processes that run, with their marks.
    pub(super) fn marked(&self) -> impl Iterator<Item = (u32, Mark)> + '_ {
        self.rows
            .iter()
            .filter(|(pid, row)| !row.stat.ended && !self.own.contains(pid))
            .filter_map(|(pid, row)| Some((*pid, row.mark?)))
    }

    /// The processes of the group that `leader` leads or led. `None` of them when the number has gone to
    /// another process since: the kernel gives it away only when the old group is empty.
    pub(super) fn group(&self, leader: &ProcessIdentity) -> Vec<u32> {
        let reused = self
            .rows
            .get(&leader.pid)
            .is_some_and(|row| row.stat.start_time != leader.start_time);
        if reused || leader.boot_id != self.boot_id {
            return Vec::new();
        }
        self.rows
            .iter()
            .filter(|(_, row)| row.stat.group == leader.pid)
            .map(|(pid, _)| *pid)
            .collect()
    }

    /// Whether `pid` is this process or one that descends from it.
    pub(super) fn descends_from_us(&self, pid: u32) -> bool {
        let us = std::process::id();
        let mut seen = BTreeSet::new();
        let mut next = pid;
        while next != us {
            match self.rows.get(&next) {
                Some(row) if seen.insert(next) => next = row.stat.parent,
                _ => return false,
            }
        }
        true
    }

    /// These processes and all that descend from them, as far as they run.
    pub(super) fn closure(&self, seeds: impl IntoIterator<Item = u32>) -> Vec<ProcessIdentity> {
        let mut members: BTreeSet<u32> = seeds.into_iter().collect();
        loop {
            let before = members.len();
            for (pid, row) in &self.rows {
                if members.contains(&row.stat.parent) {
                    members.insert(*pid);
                }
            }
            if members.len() == before {
                break;
            }
        }
        members
            .into_iter()
            .filter(|pid| !self.own.contains(pid))
            .filter_map(|pid| self.identity(pid))
            .collect()
    }

    /// Whether the table has a process of this number, be it one that has ended.
    pub(super) fn has(&self, pid: u32) -> bool {
        self.rows.contains_key(&pid)
    }

    /// What these processes use together.
    ///
    /// # Errors
    /// When the memory of a process can't be read.
    pub(super) fn usage(&self, tree: &[ProcessIdentity]) -> io::Result<Usage> {
        let mut sum = Usage::default();
        for process in tree {
            let Some(row) = self.rows.get(&process.pid) else {
                continue;
            };
            sum.held = sum.held + held(process.pid)?;
            sum.cpu +=
                Duration::from_millis(row.stat.ticks.saturating_mul(1000 / TICKS_PER_SECOND));
        }
        Ok(sum)
    }
}

/// Reads the line of a process; `None` when there is none of this number.
///
/// # Errors
/// When that can't be told.
pub(super) fn stat(pid: u32) -> io::Result<Option<Stat>> {
    let line = read(&format!("/proc/{pid}/stat"), 4096)?;
    Ok(line.and_then(|line| parse_stat(&line)))
}

/// `4242 (a) b) S 1 4242 4242 …`: the name may contain anything, so fields are counted from its last bracket.
fn parse_stat(line: &[u8]) -> Option<Stat> {
    let line = String::from_utf8_lossy(line);
    let (_, rest) = line.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        ended: matches!(fields.first(), Some(&("Z" | "X" | "x"))),
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        ticks: number(11)?.saturating_add(number(12)?),
        start_time: number(19)?,
        of_kernel: number(6)? & KERNEL_THREAD != 0,
    })
}

/// The environment that a process began with; `None` when it is another user's.
fn environment(pid: u32) -> io::Result<Option<Vec<u8>>> {
    read(&format!("/proc/{pid}/environ"), ENVIRONMENT_LIMIT)
}

fn mark(environment: &[u8], data_dir: &Path) -> Option<Mark> {
    let value = |name: &str| {
        environment
            .split(|byte| *byte == 0)
            .find_map(|variable| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    };
    if OsStr::from_bytes(value(DATA_DIR_MARK)?) != data_dir.as_os_str() {
        return None;
    }
    if let Some(replica) = value(REPLICA_MARK) {
        let id = str::from_utf8(replica).ok()?.parse().ok()?;
        return Some(match value(LAUNCHER_MARK) {
            Some(_) => Mark::Launcher(id),
            None => Mark::Replica(id),
        });
    }
    value(TASK_MARK).map(|_| Mark::Task)
}

/// Memory that would be free if the process ended: its own pages and shared memory. Pages of mapped files, such
/// as weights, are the page cache's, which counts as available already.
fn held(pid: u32) -> io::Result<Bytes> {
    let status = read(&format!("/proc/{pid}/status"), 16 << 10)?.unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    Ok(status
        .lines()
        .filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
            matches!(key, "RssAnon" | "RssShmem").then(|| Bytes(kib.saturating_mul(1024)))
        })
        .sum())
}

/// What these processes hold together, pages of mapped files included. Of a tree of several, a page that they share is
/// told in parts (`Pss`, proc_pid_smaps(5)), where the kernel lets us read that.
///
/// # Errors
/// When a process can't be looked at for want of our own means.
pub(super) fn resident(tree: &[ProcessIdentity]) -> io::Result<Bytes> {
    let mut sum = Bytes::ZERO;
    for process in tree {
        let shared = match tree.len() {
            1 => None,
            _ => number_of(process.pid, "smaps_rollup", "Pss")?,
        };
        let all = match shared {
            Some(shared) => Some(shared),
            None => number_of(process.pid, "status", "VmRSS")?,
        };
        sum = sum + all.unwrap_or(Bytes::ZERO);
    }
    Ok(sum)
}

/// A line such as `VmRSS:   1234 kB` of a file of a process; `None` when it has none.
fn number_of(pid: u32, file: &str, name: &str) -> io::Result<Option<Bytes>> {
    let text = read(&format!("/proc/{pid}/{file}"), 16 << 10)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
        (key == name).then(|| Bytes(kib.saturating_mul(1024)))
    }))
}

/// Reads a file of a process; `None` when the process is gone or the file is not for our eyes.
fn read(path: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let done = fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    match done {
        Ok(_) => Ok(Some(bytes)),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error says something of the process, and not of our own means to look.
fn is_absence(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        number,
        Some(Errno::NOENT | Errno::SRCH | Errno::ACCESS | Errno::PERM)
    )
}

/// `USER_HZ`, in which the kernel counts for programs, on every architecture that we build for.
const TICKS_PER_SECOND: u64 = 100;

/// `PF_KTHREAD` of the kernel's `include/linux/sched.h`, in field 9 of the line.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// What execve(2) allows for arguments and environment together on a default stack.
const ENVIRONMENT_LIMIT: u64 = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_moves_no_field() {
        let line = b"42 (a) R 1) S 7 40 40 0 -1 4194304 1 2 3 4 55 66 0 0 20 0 1 0 987654 1 2";
        let stat = parse_stat(line).unwrap();
        assert_eq!(
            stat,
            Stat {
                parent: 7,
                group: 40,
                start_time: 987_654,
                ticks: 121,
                ended: false,
                of_kernel: false,
            }
        );
        assert_eq!(parse_stat(b"42 (x) S 1"), None);
    }

    #[test]
    fn the_data_directory_alone_marks_nothing() {
        let dir = Path::new("/var/lib/llmgw");
        let replica = ReplicaId::generate();
        let env = |more: &str| format!("A=1\0LLMGW_DATA_DIR=/var/lib/llmgw\0{more}").into_bytes();
        assert_eq!(mark(&env(""), dir), None);
        assert_eq!(mark(&env("LLMGW_REPLICA=r-x\0"), dir), None);
        let marked = env(&format!("LLMGW_REPLICA={replica}\0"));
        assert_eq!(mark(&marked, dir), Some(Mark::Replica(replica)));
        assert_eq!(mark(&marked, Path::new("/var/lib")), None);
        assert_eq!(mark(&env("LLMGW_TASK=pip\0"), dir), Some(Mark::Task));
        let launcher = env(&format!("LLMGW_REPLICA={replica}\0LLMGW_LAUNCHER=1\0"));
        assert_eq!(mark(&launcher, dir), Some(Mark::Launcher(replica)));
    }

    #[test]
    fn what_a_process_holds_counts_what_it_has_mapped_and_a_shared_page_once() {
        let us = ProcessIdentity::of(std::process::id()).unwrap().unwrap();
        let alone = resident(std::slice::from_ref(&us)).unwrap();
        assert!(alone > held(us.pid).unwrap(), "{alone}");
        // The same process twice stands for two that share all: in parts, both have what one has.
        let parts = number_of(us.pid, "smaps_rollup", "Pss").unwrap().unwrap();
        let both = resident(&[us.clone(), us]).unwrap();
        assert!(
            both.0 < parts.0 * 2 + (64 << 20) && both > parts,
            "{both} {parts}"
        );
    }

    #[test]
    fn this_process_is_part_of_no_tree() {
        let table = ProcessTable::read(Path::new("/nowhere")).unwrap();
        let us = std::process::id();
        assert!(table.descends_from_us(us));
        assert!(!table.descends_from_us(1));
        assert!(table.closure([1]).iter().all(|process| process.pid != us));
    }
}
