//! Usage on its way to the store: taken on the request path without waiting, brought to the disk soon after, and
//! written to the store in batches.
//!
//! With a [`UsageSpool`], what a killed process loses is what came in since the last write to the disk: a fraction of a
//! second; the rest is there when the next one starts. Without one, usage waits in memory. What is kept while the store
//! fails is bounded either way; what goes beyond is counted, and said once a minute as an error, because it is a gap in
//! the accounts.

mod alarm;
mod parcel;
mod spool;

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, task::spawn_blocking};
use tokio_util::sync::CancellationToken;

pub use self::spool::{SpoolError, UsageSpool};
use self::{
    alarm::Alarm,
    parcel::{InHand, Parcel},
};
use crate::{
    cluster::account::UsageRecord,
    error::Chain,
    store::{Store, StoreError},
};

/// Records that wait to be written.
#[derive(Debug)]
pub(super) struct Journal {
    state: Mutex<State>,
    /// Records came in.
    came: Notify,
    /// A parcel can be written to the store.
    parcelled: Notify,
    spool: Option<Arc<UsageSpool>>,
    /// Records that are kept in memory at most.
    limit: usize,
    lost: AtomicU64,
    alarm: Alarm,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// What came in and is in no parcel yet.
    new: Vec<UsageRecord>,
    /// What the store has not got, the oldest first.
    parcels: VecDeque<Parcel>,
    /// The number of the next parcel.
    next: u64,
}

// === impl Journal ===

impl Journal {
    /// A journal that keeps at most so many records in memory, and others in the spool, if there is one. What an
    /// earlier process left in the spool is written to the store with the rest.
    pub(super) fn new(limit: usize, mut spool: Option<UsageSpool>) -> Self {
        let left = spool.as_mut().map(UsageSpool::take_left);
        let parcels: VecDeque<Parcel> = left.into_iter().flatten().map(Parcel::left).collect();
        if !parcels.is_empty() {
            let records: u64 = parcels.iter().map(|parcel| parcel.count).sum();
            tracing::info!(
                records,
                "usage that an earlier process left goes to the store"
            );
        }
        Self {
            state: Mutex::new(State {
                new: Vec::new(),
                next: parcels.back().map_or(0, |last| last.number + 1),
                parcels,
            }),
            came: Notify::new(),
            parcelled: Notify::new(),
            spool: spool.map(Arc::new),
            limit,
            lost: AtomicU64::new(0),
            alarm: Alarm::default(),
        }
    }

    /// Takes a record; never waits.
    pub(super) fn push(&self, record: UsageRecord) {
        let mut state = self.lock();
        if state.in_memory() >= self.limit {
            drop(state);
            self.lose(1);
            return;
        }
        state.new.push(record);
        let first = state.new.len() == 1;
        drop(state);
        if first {
            self.came.notify_one();
        }
    }

    /// Records that the store has not got.
    pub(super) fn waiting(&self) -> u64 {
        let state = self.lock();
        let parcels: u64 = state.parcels.iter().map(|parcel| parcel.count).sum();
        state.new.len() as u64 + parcels
    }

    /// Records that were lost: too many waited, or their file was damaged.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Writes what comes in to the disk at least every `interval`, and to the store as soon as that takes it, until
    /// `stop`; then what is left, for at most `farewell`.
    pub(super) async fn ship(
        &self,
        store: &dyn Store,
        interval: Duration,
        farewell: Duration,
        stop: &CancellationToken,
    ) {
        let parcelling = async {
            while stop
                .run_until_cancelled(self.came.notified())
                .await
                .is_some()
            {
                // Lets more come, so that a busy second is a few writes.
                stop.run_until_cancelled(tokio::time::sleep(interval)).await;
                self.parcel_all().await;
            }
        };
        let shipping = async {
            loop {
                self.write_all(store).await;
                self.parcelled.notified().await;
            }
        };
        // A write that is cut off may have had its effect: the store passes over what it has.
        tokio::join!(parcelling, stop.run_until_cancelled(shipping));
        let last = async {
            self.parcel_all().await;
            self.write_all(store).await;
        };
        // What it did not get to is told by what is left.
        tokio::time::timeout(farewell, last).await.ok();
        self.end();
    }

    /// Puts what came in into parcels, on the disk if there is a spool.
    async fn parcel_all(&self) {
        while let Some((records, target)) = self.take_new() {
            let count = records.len() as u64;
            let Some(spool) = self.spool.clone() else {
                self.lock().add(target, Parcel::held(records));
                self.parcelled.notify_one();
                continue;
            };
            let writing = spawn_blocking(move || {
                let written = spool.append(target.number, target.bytes, &records);
                (written, records)
            });
            let (written, records) = match writing.await {
                Ok(written) => written,
                // Its thread died or the runtime ends: nothing says whether they are on the disk.
                Err(error) => {
                    tracing::error!(%error, count, "usage was lost while it was written to the disk");
                    self.lock().release(target);
                    self.lose(count);
                    continue;
                }
            };
            let mut parcel = Parcel::held(records);
            match written {
                Ok(bytes) => parcel.on_disk(bytes),
                Err(error) => self.alarm.disk_fails(&error, self.waiting(), self.lost()),
            }
            let mut state = self.lock();
            state.add(target, parcel);
            state.forget_some(self.limit / 2);
            drop(state);
            self.parcelled.notify_one();
        }
    }

    /// Writes all parcels to the store.
    async fn write_all(&self, store: &dyn Store) {
        let mut backoff = FIRST_BACKOFF;
        while let Some(parcel) = InHand::take(&self.state) {
            match self.write(store, &parcel).await {
                Ok(()) => {
                    self.remove(parcel).await;
                    backoff = FIRST_BACKOFF;
                }
                Err(failure) => {
                    drop(parcel);
                    self.alarm
                        .store_fails(&failure, self.waiting(), self.lost());
                    tokio::time::sleep(backoff).await;
                    backoff = (backoff * 2).min(LONGEST_BACKOFF);
                }
            }
        }
        self.alarm.losses(self.lost());
    }

    async fn write(&self, store: &dyn Store, parcel: &InHand<'_>) -> Result<(), String> {
        let records = match parcel.records() {
            Some(records) => records,
            None => match self.read(parcel.number()).await {
                Ok(records) => records,
                // Somebody removed it: to ask again would hold up all that came after.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let (file, records) = (parcel.number(), parcel.count());
                    self.lose(records);
                    tracing::error!(file, records, "usage on the disk is gone: a metering gap");
                    return Ok(());
                }
                Err(error) => {
                    return Err(format!("reading usage from the disk: {}", Chain(&error)));
                }
            },
        };
        for batch in records.chunks(BATCH) {
            match append(store, batch).await {
                Ok(()) => {}
                Err(Failure::Refused(error)) => self.write_one_by_one(store, batch, error).await?,
                Err(Failure::Away(failure)) => return Err(failure),
            }
        }
        Ok(())
    }

    /// The store refuses a batch, and would for ever: finds the records that it refuses.
    async fn write_one_by_one(
        &self,
        store: &dyn Store,
        batch: &[UsageRecord],
        mut why: String,
    ) -> Result<(), String> {
        let mut refused = 0;
        for record in batch {
            match append(store, std::slice::from_ref(record)).await {
                Ok(()) => {}
                Err(Failure::Refused(error)) => (refused, why) = (refused + 1, error),
                Err(Failure::Away(failure)) => return Err(failure),
            }
        }
        if refused > 0 {
            self.lose(refused);
            tracing::error!(
                refused,
                error = why,
                "the store refuses usage: a metering gap"
            );
        }
        Ok(())
    }

    async fn read(&self, number: u64) -> io::Result<Arc<Vec<UsageRecord>>> {
        let Some(spool) = self.spool.clone() else {
            return Ok(Arc::default());
        };
        let reading = spawn_blocking(move || spool.read(number));
        let content = reading.await.map_err(io::Error::other)??;
        if content.damaged > 0 {
            self.lose(content.damaged);
            tracing::error!(
                records = content.damaged,
                file = number,
                "usage on the disk was damaged: a metering gap"
            );
        }
        Ok(Arc::new(content.records))
    }

    /// The store has a parcel.
    async fn remove(&self, parcel: InHand<'_>) {
        let file = parcel.file();
        parcel.done();
        let (Some(number), Some(spool)) = (file, self.spool.clone()) else {
            return;
        };
        // What stays is written again after the next start, and passed over.
        let removing = spawn_blocking(move || spool.remove(number));
        if let Ok(Err(error)) = removing.await {
            tracing::warn!(%error, file = number, "usage that the store has can't be removed from the disk");
        }
    }

    /// Takes what came in, as much as a batch, and says where it goes: to the last file, or to a new one.
    fn take_new(&self) -> Option<(Vec<UsageRecord>, Target)> {
        let limit = self.spool.as_ref().map(|spool| spool.limit().0);
        let mut state = self.lock();
        if state.new.is_empty() {
            return None;
        }
        let records = if state.new.len() <= BATCH {
            std::mem::take(&mut state.new)
        } else {
            state.new.drain(..BATCH).collect()
        };
        let on_disk: u64 = state.parcels.iter().map(|parcel| parcel.bytes).sum();
        if limit.is_some_and(|limit| on_disk >= limit) {
            drop(state);
            self.lose(records.len() as u64);
            self.alarm.losses(self.lost());
            return self.take_new();
        }
        let target = state.target();
        Some((records, target))
    }

    /// Says what is left.
    fn end(&self) {
        let mut state = self.lock();
        let kept = |parcel: &Parcel| parcel.bytes > 0;
        let on_disk: u64 = state
            .parcels
            .iter()
            .filter(|parcel| kept(parcel))
            .map(|parcel| parcel.count)
            .sum();
        let new = std::mem::take(&mut state.new).len() as u64;
        let in_memory: u64 = state
            .parcels
            .iter()
            .filter(|parcel| !kept(parcel))
            .map(|parcel| parcel.count)
            .sum();
        state.parcels.retain(kept);
        drop(state);
        let lost = new + in_memory;
        self.lose(lost);
        if lost > 0 {
            tracing::error!(
                records = lost,
                "usage was not written before the end: a metering gap"
            );
        }
        if on_disk > 0 {
            tracing::warn!(
                records = on_disk,
                "usage is on the disk and goes to the store after the next start"
            );
        }
    }

    fn lose(&self, records: u64) {
        self.lost.fetch_add(records, Ordering::Relaxed);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Lists of records are right after any panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where new records go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    number: u64,
    /// What is there already.
    bytes: u64,
}

/// Why the store did not take usage.
enum Failure {
    /// It may, later.
    Away(String),
    /// It never will.
    Refused(String),
}

async fn append(store: &dyn Store, records: &[UsageRecord]) -> Result<(), Failure> {
    let write = store.append_usage(records);
    match tokio::time::timeout(WRITE_TIMEOUT, write).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error @ StoreError::Refused { .. })) => {
            Err(Failure::Refused(Chain(&error).to_string()))
        }
        Ok(Err(error)) => Err(Failure::Away(Chain(&error).to_string())),
        Err(elapsed) => Err(Failure::Away(elapsed.to_string())),
    }
}

/// Enough for one write to be cheap per record, and small enough for one to be quick.
const BATCH: usize = 1000;
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
/// A write that takes longer is given up and made again: the store passes over what it has.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
