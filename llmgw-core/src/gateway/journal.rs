//! Usage on its way to the store: kept in memory, written in batches by one task, never on the request path.
//!
//! What a killed process loses is what came in since the last write: a fraction of a second. What is kept while
//! the store fails is bounded; what goes beyond is counted, and said once a minute as an error, because it is
//! a gap in the accounts.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{cluster::account::UsageRecord, error::Chain, store::Store};

/// Records that wait to be written.
#[derive(Debug)]
pub(super) struct Journal {
    waiting: Mutex<Vec<UsageRecord>>,
    wake: Notify,
    /// Records that are being written: they count against the limit too.
    in_hand: AtomicU64,
    lost: AtomicU64,
    limit: u64,
}

/// Says what must be said, but not more than once a minute.
#[derive(Debug, Default)]
struct Alarm {
    last: Option<Instant>,
    /// Losses that were said already.
    said: u64,
}

// === impl Journal ===

impl Journal {
    /// An empty journal that holds at most so many records.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            wake: Notify::new(),
            in_hand: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            limit: limit as u64,
        }
    }

    /// Takes a record; never waits.
    pub(super) fn push(&self, record: UsageRecord) {
        let mut waiting = self.lock();
        if waiting.len() as u64 + self.in_hand.load(Ordering::Acquire) >= self.limit {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.push(record);
        let first = waiting.len() == 1;
        drop(waiting);
        if first {
            self.wake.notify_one();
        }
    }

    /// Records that wait to be written, or are being written.
    pub(super) fn waiting(&self) -> u64 {
        self.lock().len() as u64 + self.in_hand.load(Ordering::Acquire)
    }

    /// Records that were lost because too many waited.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Writes what comes in at least every `interval`, until `stop`; then what is left, for at most `farewell`.
    pub(super) async fn ship(
        &self,
        store: &dyn Store,
        interval: Duration,
        farewell: Duration,
        stop: &CancellationToken,
    ) {
        let mut alarm = Alarm::default();
        let until_stopped = async {
            loop {
                self.wake.notified().await;
                // Lets more come, so that a busy second is a few writes.
                tokio::time::sleep(interval).await;
                self.write_all(store, &mut alarm).await;
            }
        };
        tokio::select! {
            () = until_stopped => {}
            () = stop.cancelled() => {}
        }
        // A write that was cut off above may have had its effect: the store passes over what it has.
        let last = tokio::time::timeout(farewell, self.write_all(store, &mut alarm)).await;
        let left = self.lock().len() as u64;
        if last.is_err() || left > 0 {
            self.lost.fetch_add(left, Ordering::Relaxed);
            tracing::error!(
                records = left,
                "usage was not written before the end: a metering gap"
            );
        }
    }

    async fn write_all(&self, store: &dyn Store, alarm: &mut Alarm) {
        let mut backoff = FIRST_BACKOFF;
        while let Some(batch) = Batch::take(self) {
            let write = store.append_usage(&batch.records);
            let failure = match tokio::time::timeout(WRITE_TIMEOUT, write).await {
                Ok(Ok(())) => {
                    batch.done();
                    backoff = FIRST_BACKOFF;
                    continue;
                }
                Ok(Err(error)) => Chain(&error).to_string(),
                Err(elapsed) => elapsed.to_string(),
            };
            // The batch goes back to the front.
            drop(batch);
            alarm.store_fails(&failure, self);
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(LONGEST_BACKOFF);
        }
        alarm.losses(self);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<UsageRecord>> {
        // A list of records is right after any panic.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records that are being written. Dropped before they are [`Batch::done`], they go back to the journal: a
/// write that is cut off loses nothing.
struct Batch<'a> {
    journal: &'a Journal,
    records: Vec<UsageRecord>,
}

impl<'a> Batch<'a> {
    fn take(journal: &'a Journal) -> Option<Self> {
        let mut waiting = journal.lock();
        if waiting.is_empty() {
            return None;
        }
        let records = if waiting.len() <= BATCH {
            std::mem::take(&mut *waiting)
        } else {
            waiting.drain(..BATCH).collect()
        };
        journal
            .in_hand
            .store(records.len() as u64, Ordering::Release);
        Some(Self { journal, records })
    }

    fn done(mut self) {
        self.records.clear();
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let mut waiting = self.journal.lock();
        if !self.records.is_empty() {
            self.records.append(&mut waiting);
            std::mem::swap(&mut *waiting, &mut self.records);
        }
        self.journal.in_hand.store(0, Ordering::Release);
    }
}

// === impl Alarm ===

impl Alarm {
    fn store_fails(&mut self, error: &str, journal: &Journal) {
        if self.is_due() {
            let (waiting, lost) = (journal.lock().len(), journal.lost());
            self.said = lost;
            tracing::error!(
                error,
                waiting,
                lost,
                "usage can't be written and is kept in memory",
            );
        }
    }

    fn losses(&mut self, journal: &Journal) {
        let lost = journal.lost();
        if lost > self.said && self.is_due() {
            self.said = lost;
            tracing::error!(
                lost,
                "usage records were lost since the start: a metering gap"
            );
        }
    }

    fn is_due(&mut self) -> bool {
        let due = self.last.is_none_or(|last| last.elapsed() >= ALARM_EVERY);
        if due {
            self.last = Some(Instant::now());
        }
        due
    }
}

/// Enough for one write to be cheap per record, and small enough for one to be quick.
const BATCH: usize = 1000;
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
/// A write that takes longer is given up and made again: the store passes over what it has.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
const ALARM_EVERY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
