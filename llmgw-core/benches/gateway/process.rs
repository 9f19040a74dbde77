//! Processes that are measured, by what the kernel says of them in `/proc`.

use std::{fs, io, time::Duration};

use rustix::process::{Pid, Signal, kill_process_group};

/// A process and those that it started, told by their process group; ended when it is dropped.
#[derive(Debug)]
pub(crate) struct Group(Option<Pid>);

/// Processor time, user and system.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Used {
    /// Of all that ended or still runs, as far as the kernel counts in ticks.
    ticks: Duration,
    /// Of the threads that run, in nanoseconds.
    exact: Duration,
}

// === impl Group ===

impl Group {
    /// The group that this process leads.
    pub(crate) fn of(leader: u32) -> Self {
        let leader = i32::try_from(leader).ok();
        Self(leader.and_then(Pid::from_raw))
    }

    /// Nobody.
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// What its processes have used until now.
    pub(crate) fn used(&self) -> io::Result<Used> {
        let mut used = Used::default();
        for Stat { pid, ticks, .. } in self.members()? {
            used.ticks += Duration::from_millis(ticks * 1_000 / TICKS);
            for task in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
                let path = task.path().join("schedstat");
                // A thread may end while it is looked for.
                let text = fs::read_to_string(path).unwrap_or_default();
                let ran = text.split(' ').next().and_then(|ran| ran.parse().ok());
                used.exact += Duration::from_nanos(ran.unwrap_or(0));
            }
        }
        Ok(used)
    }

    /// Main memory that its processes have, in KiB: what they share among each other counts once.
    pub(crate) fn resident(&self) -> io::Result<u64> {
        let members = self.members()?;
        let field = match members.as_slice() {
            [_] => "Rss:",
            _ => "Pss:",
        };
        let mut sum = 0;
        for Stat { pid, .. } in members {
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
            let line = text.lines().find_map(|line| line.strip_prefix(field));
            let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
            sum += kib.unwrap_or(0);
        }
        Ok(sum)
    }

    fn members(&self) -> io::Result<Vec<Stat>> {
        let Some(leader) = self.0 else {
            return Ok(Vec::new());
        };
        let leader = leader.as_raw_nonzero().get();
        let processes = fs::read_dir("/proc")?.flatten();
        let stats = processes.filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            Stat::read(pid)
        });
        Ok(stats.filter(|stat| stat.group == leader).collect())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // It may have ended by itself.
            kill_process_group(leader, Signal::KILL).ok();
        }
    }
}

// === impl Used ===

impl Used {
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            ticks: self.ticks.saturating_sub(before.ticks),
            exact: self.exact.saturating_sub(before.exact),
        }
    }

    /// The exact figure, unless threads have ended whose time is in the other alone.
    pub(crate) fn time(self) -> Duration {
        let tick = Duration::from_millis(2 * 1_000 / TICKS);
        if self.ticks > self.exact + tick {
            self.ticks
        } else {
            self.exact
        }
    }
}

/// A line of `/proc/PID/stat`.
struct Stat {
    pid: i32,
    group: i32,
    ticks: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // A name may have spaces and brackets in it.
        let (_, behind_name) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = behind_name.split(' ').collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            pid,
            group: fields.get(2)?.parse().ok()?,
            ticks: number(11)? + number(12)?,
        })
    }
}

/// Of the kernel's clock for processes, in a second.
const TICKS: u64 = 100;
