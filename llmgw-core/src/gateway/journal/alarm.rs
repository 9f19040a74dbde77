//! Says what is wrong with the accounts, but not more than once a minute.

use std::{
    io,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// What was said, and when.
#[derive(Debug, Default)]
pub(super) struct Alarm(Mutex<Said>);

#[derive(Debug, Default)]
struct Said {
    store: Option<Instant>,
    disk: Option<Instant>,
    losses: Option<Instant>,
    /// Losses that were said already.
    lost: u64,
}

impl Alarm {
    pub(super) fn store_fails(&self, error: &str, waiting: u64, lost: u64) {
        if self.is_due(|said| &mut said.store) {
            tracing::error!(error, waiting, lost, "usage can't be written and is kept");
        }
    }

    pub(super) fn disk_fails(&self, error: &io::Error, waiting: u64, lost: u64) {
        if self.is_due(|said| &mut said.disk) {
            tracing::error!(
                %error, waiting, lost,
                "usage can't be brought to the disk and is kept in memory until the store has it"
            );
        }
    }

    pub(super) fn losses(&self, lost: u64) {
        let mut said = self.lock();
        if lost <= said.lost || !is_due(&mut said.losses) {
            return;
        }
        said.lost = lost;
        drop(said);
        tracing::error!(
            lost,
            "usage records were lost since the start: a metering gap"
        );
    }

    fn is_due(&self, which: impl FnOnce(&mut Said) -> &mut Option<Instant>) -> bool {
        is_due(which(&mut self.lock()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Said> {
        // Times are right after any panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_due(last: &mut Option<Instant>) -> bool {
    let due = last.is_none_or(|last| last.elapsed() >= EVERY);
    if due {
        *last = Some(Instant::now());
    }
    due
}

const EVERY: Duration = Duration::from_secs(60);
