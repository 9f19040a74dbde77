// The faulty store is part of that feature.
#![cfg(feature = "testing")]

use std::sync::Arc;

use super::*;
use crate::{
    clock::{RuntimeClock, Timestamp},
    id::{KeyId, RequestId},
    store::{Call, Fault, Faults, FaultyStore, MemoryStore},
    units::{Bytes, Tokens},
};
use tokio::time::Instant;

struct Rig {
    journal: Arc<Journal>,
    store: MemoryStore,
    faults: Faults,
    stop: CancellationToken,
    tasks: tokio_util::task::TaskTracker,
}

fn rig(limit: usize) -> Rig {
    rig_with(limit, None)
}

fn rig_with(limit: usize, spool: Option<UsageSpool>) -> Rig {
    let store = MemoryStore::new(Arc::new(RuntimeClock::starting_at(Timestamp(0))));
    let faulty = FaultyStore::new(store.clone());
    let rig = Rig {
        journal: Arc::new(Journal::new(limit, spool)),
        store,
        faults: faulty.faults().clone(),
        stop: CancellationToken::new(),
        tasks: tokio_util::task::TaskTracker::new(),
    };
    let (journal, stop) = (Arc::clone(&rig.journal), rig.stop.clone());
    rig.tasks.spawn(async move {
        journal.ship(&faulty, INTERVAL, FAREWELL, &stop).await;
    });
    rig.tasks.close();
    rig
}

impl Rig {
    fn push(&self, count: usize) {
        for _ in 0..count {
            self.journal.push(a_record());
        }
    }

    async fn written(&self) -> u64 {
        let totals = self.store.usage_totals(Timestamp(0), None).await.unwrap();
        totals.iter().map(|total| total.requests).sum()
    }

    async fn end(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

fn a_record() -> UsageRecord {
    UsageRecord {
        request: RequestId::generate(),
        key: KeyId::generate(),
        model: "m".parse().unwrap(),
        replica: None,
        prompt_tokens: Tokens(1),
        cached_tokens: Tokens(0),
        completion_tokens: Tokens(1),
        estimated: false,
        status: 200,
        started_at: Timestamp(0),
        duration: Duration::ZERO,
        time_to_first_token: None,
        level: Default::default(),
        cost: Default::default(),
        guard: Vec::new(),
    }
}

fn spool(directory: &std::path::Path, limit: Bytes) -> UsageSpool {
    UsageSpool::open(directory, limit).unwrap()
}

fn files(directory: &std::path::Path) -> usize {
    let is_usage = |path: std::path::PathBuf| path.extension().is_some_and(|it| it == "usage");
    let entries = std::fs::read_dir(directory).unwrap();
    entries
        .filter(|entry| is_usage(entry.as_ref().unwrap().path()))
        .count()
}

const INTERVAL: Duration = Duration::from_millis(200);
const FAREWELL: Duration = Duration::from_secs(5);
const MOMENT: Duration = Duration::from_millis(50);

#[tokio::test(start_paused = true)]
async fn records_are_written_within_the_interval() {
    let rig = rig(10_000);
    rig.push(2500);
    tokio::time::sleep(INTERVAL + MOMENT).await;
    assert_eq!(rig.written().await, 2500);
    rig.push(1);
    tokio::time::sleep(INTERVAL + MOMENT).await;
    assert_eq!(rig.written().await, 2501);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_loses_nothing_and_doubles_nothing() {
    let rig = rig(10_000);
    rig.faults.add(Call::AppendUsage, Fault::Fail);
    rig.faults.add(Call::AppendUsage, Fault::LoseAnswer);
    rig.faults.add(Call::AppendUsage, Fault::Hang);
    rig.push(3);
    tokio::time::sleep(INTERVAL + MOMENT).await;
    rig.push(4);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.written().await, 7);
    assert_eq!(rig.journal.lost(), 0);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_bounded_and_what_is_lost_is_counted() {
    let rig = rig(10);
    rig.faults.fail_all(true);
    rig.push(6);
    tokio::time::sleep(Duration::from_secs(10)).await;
    rig.push(6);
    assert_eq!(rig.journal.lost(), 2);
    rig.faults.fail_all(false);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(rig.written().await, 10);
    rig.push(1);
    rig.end().await;
    assert_eq!(rig.written().await, 11);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_is_written_at_the_end_or_counted_as_lost() {
    let rig = rig(10);
    rig.push(3);
    rig.end().await;
    assert_eq!((rig.written().await, rig.journal.lost()), (3, 0));

    let rig = self::rig(10);
    rig.faults.fail_all(true);
    rig.push(3);
    let start = Instant::now();
    rig.end().await;
    assert_eq!((rig.written().await, rig.journal.lost()), (0, 3));
    assert!(start.elapsed() <= FAREWELL + MOMENT);
}

#[tokio::test(start_paused = true)]
async fn usage_is_on_the_disk_within_the_interval_and_gone_when_the_store_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let rig = rig_with(10_000, Some(spool(directory.path(), Bytes::mib(1))));
    rig.faults.fail_all(true);
    rig.push(2500);
    tokio::time::sleep(INTERVAL + MOMENT).await;
    assert!(files(directory.path()) > 0);
    assert_eq!((rig.written().await, rig.journal.waiting()), (0, 2500));
    rig.faults.fail_all(false);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((rig.written().await, rig.journal.waiting()), (2500, 0));
    rig.end().await;
    assert_eq!(files(directory.path()), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_killed_process_had_on_the_disk_is_written_by_the_next_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = MemoryStore::new(Arc::new(RuntimeClock::starting_at(Timestamp(0))));
    let faulty = Arc::new(FaultyStore::new(store.clone()));
    // The store takes the first batch and says nothing: it is there, and on the disk too.
    faulty.faults().add(Call::AppendUsage, Fault::LoseAnswer);
    faulty.faults().add(Call::AppendUsage, Fault::Hang);
    let journal = Journal::new(1_000, Some(spool(directory.path(), Bytes::mib(1))));
    (0..3).for_each(|_| journal.push(a_record()));
    let stop = CancellationToken::new();
    let shipping = journal.ship(&*faulty, INTERVAL, FAREWELL, &stop);
    // Killed: dropped in the middle.
    assert!(tokio::time::timeout(INTERVAL * 4, shipping).await.is_err());
    drop(journal);
    assert_eq!(files(directory.path()), 1);

    let journal = Journal::new(1_000, Some(spool(directory.path(), Bytes::mib(1))));
    assert_eq!(journal.waiting(), 3);
    journal.push(a_record());
    let shipping = journal.ship(&store, INTERVAL, FAREWELL, &stop);
    assert!(tokio::time::timeout(INTERVAL * 4, shipping).await.is_err());
    let totals = store.usage_totals(Timestamp(0), None).await.unwrap();
    assert_eq!(totals.iter().map(|total| total.requests).sum::<u64>(), 4);
    assert_eq!((journal.waiting(), journal.lost()), (0, 0));
    assert_eq!(files(directory.path()), 0);
}

#[tokio::test(start_paused = true)]
async fn a_long_absence_of_the_store_fills_neither_memory_nor_too_many_files() {
    let directory = tempfile::tempdir().unwrap();
    let rig = rig_with(1_000, Some(spool(directory.path(), Bytes::mib(64))));
    rig.faults.fail_all(true);
    for _ in 0..200 {
        rig.push(100);
        tokio::time::sleep(INTERVAL + MOMENT).await;
        assert!(rig.journal.lock().in_memory() <= 1_000);
    }
    assert!(files(directory.path()) <= 12, "{}", files(directory.path()));
    assert_eq!((rig.journal.waiting(), rig.journal.lost()), (20_000, 0));
    rig.faults.fail_all(false);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!((rig.written().await, rig.journal.lost()), (20_000, 0));
    rig.end().await;
    assert_eq!(files(directory.path()), 0);
}

#[tokio::test(start_paused = true)]
async fn what_the_disk_may_keep_is_bounded_and_the_rest_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let rig = rig_with(10_000, Some(spool(directory.path(), Bytes(100 << 10))));
    rig.faults.fail_all(true);
    for _ in 0..20 {
        rig.push(100);
        tokio::time::sleep(INTERVAL + MOMENT).await;
    }
    let (waiting, lost) = (rig.journal.waiting(), rig.journal.lost());
    assert!(
        waiting > 0 && lost > 0 && waiting + lost == 2_000,
        "{waiting} {lost}"
    );
    rig.faults.fail_all(false);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!((rig.written().await, rig.journal.lost()), (waiting, lost));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_fails_costs_nothing_while_the_store_takes_usage() {
    let directory = tempfile::tempdir().unwrap();
    let rig = rig_with(10_000, Some(spool(directory.path(), Bytes::mib(1))));
    std::fs::remove_dir_all(directory.path()).unwrap();
    rig.push(2500);
    tokio::time::sleep(INTERVAL + MOMENT).await;
    rig.push(10);
    tokio::time::sleep(INTERVAL + MOMENT).await;
    rig.end().await;
    assert_eq!((rig.written().await, rig.journal.lost()), (2510, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_on_the_disk_at_the_end_is_not_lost() {
    let directory = tempfile::tempdir().unwrap();
    let rig = rig_with(10, Some(spool(directory.path(), Bytes::mib(1))));
    rig.faults.fail_all(true);
    rig.push(3);
    rig.end().await;
    assert_eq!((rig.written().await, rig.journal.lost()), (0, 0));
    drop(rig);
    let left = spool(directory.path(), Bytes::mib(1)).take_left();
    assert_eq!(left.iter().map(|left| left.records).sum::<u64>(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_somebody_removed_is_a_gap_and_holds_up_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let left = spool(directory.path(), Bytes::mib(1));
    left.append(0, 0, &[a_record(), a_record()]).unwrap();
    left.append(1, 0, &[a_record()]).unwrap();
    drop(left);
    let rig = rig_with(100, Some(spool(directory.path(), Bytes::mib(1))));
    // Before the first look, for nothing has been awaited yet.
    std::fs::remove_file(directory.path().join("00000000000000000000.usage")).unwrap();
    rig.push(1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((rig.written().await, rig.journal.lost()), (2, 2));
    rig.end().await;
}
