//! Processes that a job left behind.
//!
//! This program makes itself the reaper of its orphaned descendants, so that a process which outlives the job
//! that started it, even a daemon that forked twice, becomes our child and can be found and ended.

use std::{
    fmt, fs,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, WaitOptions};

/// A process that outlived its job.
#[derive(Clone, Debug)]
pub(crate) struct Leftover {
    pid: Pid,
    command: String,
}

/// Makes orphaned descendants children of this process from now on.
pub(crate) fn adopt_orphans() -> anyhow::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .context("becoming the reaper of orphaned processes")
}

/// Waits for up to `grace` until no child is left; ends those that are, and tells which.
///
/// The caller must have no child of its own that runs.
pub(crate) fn end_leftovers(grace: Duration) -> Vec<Leftover> {
    let deadline = now() + grace;
    loop {
        let left = children();
        if left.is_empty() {
            return left;
        }
        if now() >= deadline {
            end(&left);
            return left;
        }
        pause();
    }
}

/// Ends all children and, as they become ours, their children.
pub(crate) fn end_all() {
    let deadline = now() + GRACE;
    loop {
        let left = children();
        if left.is_empty() || now() >= deadline {
            return;
        }
        end(&left);
        pause();
    }
}

/// Lets a tenth of a second pass.
#[expect(
    clippy::disallowed_methods,
    reason = "this program is one thread that waits for processes; nothing is there to be cancelled"
)]
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(100));
}

/// The time, for how long something took.
#[expect(clippy::disallowed_methods, reason = "a stopwatch for real processes")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

// === impl Leftover ===

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} was left behind: {}", self.pid, self.command)
    }
}

fn end(left: &[Leftover]) {
    for leftover in left {
        // It may have ended by itself meanwhile, which is as good.
        if rustix::process::kill_process(leftover.pid, Signal::KILL).is_ok() {
            rustix::process::waitpid(Some(leftover.pid), WaitOptions::empty()).ok();
        }
    }
}

/// Our children that still run; those that have ended are reaped.
fn children() -> Vec<Leftover> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Pid::from_raw)
        .filter(|pid| parent(*pid) == Some(own))
        .filter(|pid| {
            let ended = rustix::process::waitpid(Some(*pid), WaitOptions::NOHANG);
            matches!(ended, Ok(None))
        })
        .map(|pid| Leftover {
            pid,
            command: command(pid),
        })
        .collect()
}

/// The parent of a process, from the second field after its name, which may hold spaces and parentheses.
fn parent(pid: Pid) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

fn command(pid: Pid) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = line
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    words.join(" ").chars().take(200).collect()
}

/// How long ended processes may take to go.
const GRACE: Duration = Duration::from_secs(10);
