//! Which process is meant, beyond its number.

use std::{fs, io, os::fd::OwnedFd, sync::OnceLock};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal},
};
use serde::{Deserialize, Serialize};

use super::table;

/// One process, and no other that ever had or will have its number.
///
/// The kernel counts a process's start in hundredths of a second since the machine's; the number, the start and
/// the machine's own start together are unique.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct ProcessIdentity {
    /// Its number.
    pub pid: u32,
    /// When it began, in clock ticks since the machine did (proc_pid_stat(5), field 22).
    pub start_time: u64,
    /// The machine's start: another after each.
    pub boot_id: String,
}

impl ProcessIdentity {
    /// The process that has this number now, when there is one that has not ended.
    ///
    /// # Errors
    /// When that can't be told, for want of file descriptors say.
    pub fn of(pid: u32) -> io::Result<Option<Self>> {
        let running = table::stat(pid)?.filter(|stat| !stat.ended);
        running
            .map(|stat| Self::with_start(pid, stat.start_time))
            .transpose()
    }

    pub(super) fn with_start(pid: u32, start_time: u64) -> io::Result<Self> {
        Ok(Self {
            pid,
            start_time,
            boot_id: boot_id()?,
        })
    }

    /// Whether the process still runs.
    ///
    /// # Errors
    /// When that can't be told: it may run and it may not.
    pub fn is_alive(&self) -> io::Result<bool> {
        Ok(Self::of(self.pid)?.is_some_and(|now| now == *self))
    }

    /// A descriptor of this process, which becomes readable when it ends; `None` when it has, or where the kernel
    /// gives none.
    ///
    /// # Errors
    /// When that can't be told, for want of file descriptors say.
    pub(super) fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(None);
        };
        match pidfd_open(pid, PidfdFlags::empty()) {
            // It stays with the process that had the number when it was opened; the check after it tells
            // whether that was ours.
            Ok(descriptor) => Ok(self.is_alive()?.then_some(descriptor)),
            Err(Errno::NOSYS | Errno::PERM | Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends the signal to this process and to no other; nothing happens when it has ended.
    ///
    /// # Errors
    /// When the process runs and must not be signalled, or when it can't be told whether it runs.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(());
        };
        let sent = match pidfd_open(pid, PidfdFlags::empty()) {
            // The descriptor stays with the process that had the number when it was opened; the check after it
            // tells whether that was ours.
            Ok(process) if self.is_alive()? => pidfd_send_signal(process, signal),
            Ok(_) => Ok(()),
            // Kernels before 5.3, and sandboxes that know no such call.
            Err(Errno::NOSYS | Errno::PERM) if self.is_alive()? => kill_process(pid, signal),
            Err(Errno::NOSYS | Errno::PERM) => Ok(()),
            Err(error) => Err(error),
        };
        match sent {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// What tells one start of the machine from the next; empty where the kernel does not say.
///
/// # Errors
/// When it can't be asked now.
pub(super) fn boot_id() -> io::Result<String> {
    // It does not change while this process lives.
    static KNOWN: OnceLock<String> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(known.clone());
    }
    let id = match fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(text) => text.trim().to_owned(),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            ) =>
        {
            String::new()
        }
        Err(error) => return Err(error),
    };
    Ok(KNOWN.get_or_init(|| id).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_itself_and_no_other_with_its_number() {
        let me = ProcessIdentity::of(std::process::id()).unwrap().unwrap();
        assert!(me.is_alive().unwrap());
        let reused = ProcessIdentity {
            start_time: me.start_time + 1,
            ..me.clone()
        };
        assert!(!reused.is_alive().unwrap());
        let other_boot = ProcessIdentity {
            boot_id: "another".to_owned(),
            ..me
        };
        assert!(!other_boot.is_alive().unwrap());
    }

    #[test]
    fn a_signal_for_an_earlier_holder_of_the_number_hits_nobody() {
        let me = ProcessIdentity::of(std::process::id()).unwrap().unwrap();
        let earlier = ProcessIdentity {
            start_time: me.start_time - 1,
            ..me
        };
        // Were it delivered, this test would not live to tell.
        earlier.signal(Signal::KILL).unwrap();
    }
}
