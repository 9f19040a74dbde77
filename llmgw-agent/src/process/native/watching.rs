//! How the end of a process is noticed.

use std::{
    io,
    os::{fd::OwnedFd, unix::process::ExitStatusExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    io::{Interest, unix::AsyncFd},
    process::Child,
    time::Instant,
};

use crate::process::{
    exit::{self, Exit},
    identity::ProcessIdentity,
};

/// Waits for a child; dropping it leaves it running.
pub(super) async fn exit_of(mut child: Child) -> Exit {
    match child.wait().await {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => Exit::Unseen,
        },
        // Somebody else has waited for it.
        Err(_) => Exit::Unseen,
    }
}

/// Waits for a process that is not our child. How it ended its launcher tells, when there is one.
pub(super) async fn end_of(
    process: ProcessIdentity,
    launcher: Option<ProcessIdentity>,
    file: PathBuf,
) -> Exit {
    ended(&process).await;
    let begin = Instant::now();
    loop {
        // First: what is told before the end of the launcher is not missed.
        let over = match &launcher {
            None => true,
            Some(launcher) => !launcher.is_alive().unwrap_or(true),
        };
        if let Some(exit) = told(&file, &process).await {
            return exit;
        }
        if over || begin.elapsed() > TOLD_WITHIN {
            return Exit::Unseen;
        }
        tokio::time::sleep(TOLD_EVERY).await;
    }
}

/// Waits until the process has ended. The kernel wakes us, where it can and we have a descriptor left.
async fn ended(process: &ProcessIdentity) {
    if let Ok(Some(descriptor)) = process.descriptor()
        && let Ok(descriptor) = watched(descriptor)
    {
        drop(descriptor.readable().await);
    }
    // An error says nothing of the process.
    while process.is_alive().unwrap_or(true) {
        tokio::time::sleep(POLL_EVERY).await;
    }
}

#[expect(
    deprecated,
    reason = "it is unsound for types that lie about their descriptor, which the owner of one does not; what               replaces it is unsafe for all"
)]
fn watched(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}

async fn told(file: &Path, process: &ProcessIdentity) -> Option<Exit> {
    let (file, process) = (file.to_owned(), process.clone());
    let read = tokio::task::spawn_blocking(move || exit::told(&file, &process));
    read.await.ok()?.ok()?
}

/// Between two looks at a process whose end the kernel does not tell.
const POLL_EVERY: Duration = Duration::from_millis(250);

/// What a launcher may take to bring a line to the disk.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

const TOLD_EVERY: Duration = Duration::from_millis(5);
