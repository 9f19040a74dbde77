//! What a program may take, and how all that it started is found again.

use std::{ffi::OsString, fs, io::Read as _, os::unix::ffi::OsStrExt as _, time::Duration};

use llmgw_core::units::Bytes;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, kill_process, pidfd_open, pidfd_send_signal, prlimit,
};
use tokio::{process::Command, task::spawn_blocking, time::sleep};

/// Bounds for one run of a program.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// Processor time of all its threads together, so that one that nobody ends any more ends by itself.
    pub cpu: Duration,
    /// Memory that it may write to; unbounded when absent.
    pub memory: Option<Bytes>,
    /// A variable that no other run has, for it and all that it starts.
    pub mark: (OsString, OsString),
}

impl Bounds {
    /// Puts the mark into the environment.
    pub(super) fn mark(&self, command: &mut Command) {
        let (name, value) = &self.mark;
        command.env(name, value);
    }

    /// Puts the limits on a process that was just started. They come a moment after its first instruction, which
    /// is early enough against what they are for; what it starts later inherits them.
    pub(super) fn put_on(&self, process: Pid) {
        let cpu = Some(self.cpu.as_secs().max(1));
        let memory = self.memory.map(|memory| memory.0);
        for (resource, limit) in [
            (Resource::Core, Some(0)),
            (Resource::Cpu, cpu),
            (Resource::Data, memory),
        ] {
            if limit.is_none() {
                continue;
            }
            let limit = Rlimit {
                current: limit,
                maximum: limit,
            };
            // It may have ended already; or have lower limits, which must not be raised.
            if let Err(error) = prlimit(Some(process), resource, limit) {
                tracing::debug!(?resource, %error, "a limit was not put on a helper program");
            }
        }
    }

    /// Kills what carries the mark, until nothing does: also what has left the process group.
    pub(super) async fn end_stragglers(&self) {
        let (name, value) = &self.mark;
        let mark = [name.as_bytes(), b"=", value.as_bytes()].concat();
        for _ in 0..ROUNDS {
            let mark = mark.clone();
            let killed = spawn_blocking(move || kill_marked(&mark)).await;
            if !matches!(killed, Ok(1..)) {
                return;
            }
            sleep(BETWEEN).await;
        }
        tracing::warn!(mark = %value.display(), "processes of a helper program do not end");
    }
}

/// Kills the processes whose environment holds `mark`, and says how many there were.
fn kill_marked(mark: &[u8]) -> usize {
    let Ok(entries) = fs::read_dir("/proc") else {
        return 0;
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| carries(*pid, mark))
        .filter_map(Pid::from_raw)
        .filter(|pid| {
            let killed = match pidfd_open(*pid, PidfdFlags::empty()) {
                // The number may have gone to another process since it was looked at; the descriptor stays with
                // the one that has it now.
                Ok(process) if carries(pid.as_raw_nonzero().get(), mark) => {
                    pidfd_send_signal(process, Signal::KILL)
                }
                Ok(_) => return false,
                Err(_) => kill_process(*pid, Signal::KILL),
            };
            killed.is_ok()
        })
        .count()
}

/// Whether a process that runs has the mark. (One that has ended and was not looked at has no environment.)
fn carries(pid: i32, mark: &[u8]) -> bool {
    let mut environment = Vec::new();
    let read = fs::File::open(format!("/proc/{pid}/environ"))
        .and_then(|file| file.take(ENVIRONMENT_LIMIT).read_to_end(&mut environment));
    read.is_ok() && environment.split(|byte| *byte == 0).any(|one| one == mark)
}

/// A killed process ends at once, unless it waits for a disk or a driver: then it is left to the kernel.
const ROUNDS: usize = 100;
const BETWEEN: Duration = Duration::from_millis(20);
/// What execve(2) allows for arguments and environment together on a default stack.
const ENVIRONMENT_LIMIT: u64 = 2 << 20;
