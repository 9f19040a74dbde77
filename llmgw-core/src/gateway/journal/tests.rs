// The faulty store is part of that feature.
#![cfg(feature = "testing")]

use std::sync::Arc;

use super::*;
use crate::{
    clock::{RuntimeClock, Timestamp},
    id::{KeyId, RequestId},
    store::{Call, Fault, Faults, FaultyStore, MemoryStore},
    units::Tokens,
};

struct Rig {
    journal: Arc<Journal>,
    store: MemoryStore,
    faults: Faults,
    stop: CancellationToken,
    tasks: tokio_util::task::TaskTracker,
}

fn rig(limit: usize) -> Rig {
    let store = MemoryStore::new(Arc::new(RuntimeClock::starting_at(Timestamp(0))));
    let faulty = FaultyStore::new(store.clone());
    let rig = Rig {
        journal: Arc::new(Journal::new(limit)),
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
            self.journal.push(UsageRecord {
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
            });
        }
    }

    async fn written(&self) -> u64 {
        let totals = self.store.usage_totals(Timestamp(0)).await.unwrap();
        totals.iter().map(|total| total.requests).sum()
    }

    async fn end(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
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
