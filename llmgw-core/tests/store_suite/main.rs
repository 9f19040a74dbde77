//! The stores in memory keep the contract; and the suite that says so catches stores that don't.
#![cfg(feature = "testing")]
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod broken;

use std::sync::Arc;

use async_trait::async_trait;
use llmgw_core::{
    clock::{RuntimeClock, SystemClock, Timestamp},
    store::{FaultyStore, MemoryStore, Store, StoreError},
    testing::store::{StoreFixture, checks, conformance, conformance_of},
};

use crate::broken::{BUGS, BrokenFixture};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_memory_store_keeps_the_contract() {
    let fresh = || async { InMemory(MemoryStore::new(Arc::new(SystemClock::new()))) };
    conformance(fresh)
        .await
        .unwrap_or_else(|found| panic!("{found}"));
}

#[tokio::test(start_paused = true)]
async fn the_memory_store_keeps_the_contract_on_one_thread_with_paused_time() {
    let clock = || Arc::new(RuntimeClock::starting_at(Timestamp(0)));
    conformance(|| async { InMemory(MemoryStore::new(clock())) })
        .await
        .unwrap_or_else(|found| panic!("{found}"));
}

#[tokio::test(start_paused = true)]
async fn a_wrapper_without_faults_changes_nothing() {
    let clock = || Arc::new(RuntimeClock::starting_at(Timestamp(0)));
    conformance(|| async { InMemory(FaultyStore::new(MemoryStore::new(clock()))) })
        .await
        .unwrap_or_else(|found| panic!("{found}"));
}

#[tokio::test(start_paused = true)]
async fn every_bug_is_caught_by_the_checks_that_are_there_for_it() {
    for (bug, checks) in BUGS {
        let fresh = || async { BrokenFixture::new(Some(*bug)) };
        let found = conformance_of(|check| checks.contains(&check), fresh).await;
        let found = found.expect_err(&format!("{bug:?} went unnoticed by {checks:?}"));
        let by: Vec<&str> = found.breaches().iter().map(|b| b.check()).collect();
        assert_eq!(
            by.len(),
            checks.len(),
            "{bug:?} was caught by {by:?}, and not by {checks:?}"
        );
    }
}

#[test]
fn every_check_is_there_for_a_bug() {
    let caught: Vec<&str> = BUGS
        .iter()
        .flat_map(|(_, checks)| *checks)
        .copied()
        .collect();
    let idle: Vec<&str> = checks().filter(|check| !caught.contains(check)).collect();
    assert!(idle.is_empty(), "no bug is caught by {idle:?}");
}

#[tokio::test(start_paused = true)]
async fn the_broken_store_without_a_bug_keeps_the_contract() {
    conformance(|| async { BrokenFixture::new(None) })
        .await
        .unwrap_or_else(|found| panic!("{found}"));
}

struct InMemory<S>(S);

#[async_trait]
impl<S: Store + Clone> StoreFixture for InMemory<S> {
    async fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(self.0.clone()))
    }
}
