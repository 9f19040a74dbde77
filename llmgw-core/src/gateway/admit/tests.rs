//! Calls against a store that takes its time.

// The faulty store is part of that feature.
#![cfg(feature = "testing")]

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    leasing::{keep_shares, obtain},
    ledger::{Alone, Ledger, Need},
};
use crate::{
    clock::{RuntimeClock, Timestamp},
    cluster::tenancy::{
        LevelPath, Party, Period, Window,
        quota::{Measure, Quota, Share},
    },
    store::{Call, Fault, Faults, FaultyStore, MemoryStore},
};

/// A ledger whose shares are kept, from a store of which each answer takes some milliseconds.
struct Rig {
    ledger: Arc<Ledger>,
    faults: Faults,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Rig {
    fn start() -> Self {
        let clock = Arc::new(RuntimeClock::starting_at(Timestamp(0)));
        let store = FaultyStore::new(MemoryStore::new(clock.clone()));
        let faults = store.faults().clone();
        for _ in 0..20_000 {
            let delay = Fault::Delay(Duration::from_millis(5));
            faults.add(Call::ShareQuotas, delay);
        }
        let ledger = Arc::new(Ledger::new(clock));
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (kept, stopped) = (Arc::clone(&ledger), stop.clone());
        tasks.spawn(async move { keep_shares(&kept, &store, &stopped).await });
        Self {
            ledger,
            faults,
            stop,
            tasks,
        }
    }

    fn asked(&self) -> u64 {
        self.faults.made(Call::ShareQuotas)
    }

    async fn end(mut self) {
        self.stop.cancel();
        self.tasks.join_next().await.unwrap().unwrap();
    }
}

fn need(measure: Measure, limit: u64, amount: u64, least: u64) -> Need {
    let period = match measure {
        Measure::Concurrent => Period::Total,
        Measure::Requests | Measure::Tokens | Measure::Cost => Period::Day,
    };
    Need {
        quota: Quota {
            party: Party::Level(LevelPath::CLUSTER),
            measure,
            window: Window::of(period, Timestamp(0)),
        },
        limit,
        amount,
        least,
        alone: Alone::Nothing,
    }
}

/// What a call needs of quotas that are never used up.
fn needs() -> Vec<Need> {
    vec![
        need(Measure::Requests, HUGE, 1, 1),
        need(Measure::Tokens, HUGE, 4_100, 300),
        need(Measure::Concurrent, 100_000, 1, 1),
    ]
}

/// A call that is answered after so long, and spends a little of what it reserved.
async fn call(ledger: &Ledger, needs: &[Need], takes: Duration) -> bool {
    let Ok(reserved) = obtain(ledger, needs).await else {
        return false;
    };
    sleep(takes).await;
    for one in &reserved {
        let spent = match one.quota.measure {
            Measure::Concurrent => 0,
            Measure::Requests => 1,
            Measure::Tokens | Measure::Cost => one.amount.min(60),
        };
        ledger.settle(one, spent);
    }
    true
}

/// Clients of which each makes one call after the other.
async fn clients(ledger: &Arc<Ledger>, many: u64, calls: u64) -> Vec<bool> {
    let mut tasks = JoinSet::new();
    for client in 0..many {
        let ledger = Arc::clone(ledger);
        tasks.spawn(async move {
            let needs = needs();
            sleep(Duration::from_micros(client * 300)).await;
            let mut admitted = true;
            for turn in 0..calls {
                let takes = Duration::from_millis(1 + (client + turn) % 3);
                admitted &= call(&ledger, &needs, takes).await;
            }
            admitted
        });
    }
    tasks.join_all().await
}

#[tokio::test(start_paused = true)]
async fn the_first_call_is_admitted_however_many_limits_it_has() {
    let rig = Rig::start();
    assert_eq!(clients(&rig.ledger, 1, 1).await, [true]);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn no_call_is_refused_while_the_quota_has_plenty() {
    let rig = Rig::start();
    // More come all the time than the first shares are for: calls that wait are overtaken by others.
    let admitted = clients(&rig.ledger, 400, 50).await;
    let refused = admitted.iter().filter(|admitted| !**admitted).count();
    assert_eq!(refused, 0);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_overtaken_waits_on() {
    let clock = Arc::new(RuntimeClock::starting_at(Timestamp(0)));
    let ledger = Arc::new(Ledger::new(clock));
    let waits = Arc::clone(&ledger);
    let mut calls = JoinSet::new();
    calls.spawn(async move {
        let needs = [need(Measure::Tokens, HUGE, 100, 100)];
        obtain(&waits, &needs).await
    });
    tokio::task::yield_now().await;
    for _ in 0..6 {
        answer(&ledger);
        // All that was given is taken before the call that waited for it goes on.
        let others = [need(Measure::Tokens, HUGE, HUGE, 1)];
        assert!(ledger.reserve(&others).is_ok());
        tokio::task::yield_now().await;
        assert!(calls.try_join_next().is_none());
    }
    answer(&ledger);
    let reserved = calls.join_next().await.unwrap().unwrap();
    assert_eq!(reserved.map(|all| all[0].amount), Ok(100));
}

/// A round in which the store gives what is asked for.
fn answer(ledger: &Ledger) {
    let round = ledger.begin(false);
    let shares = round.asks.iter().map(|ask| Share {
        held: ask.wanted,
        spent: ask.spent,
        ..Share::default()
    });
    ledger.end(&round, Some(shares.collect()), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn the_store_is_asked_a_few_times_a_second_whatever_the_load() {
    for many in [1, 64] {
        let rig = Rig::start();
        // Until it is known how much is used.
        clients(&rig.ledger, many, 1_000).await;
        let (begun, asked) = (tokio::time::Instant::now(), rig.asked());
        assert!(asked < 20, "{asked} to begin with, of {many} clients");
        let admitted = clients(&rig.ledger, many, 3_000).await;
        assert!(admitted.into_iter().all(|admitted| admitted));
        let (asked, seconds) = (rig.asked() - asked, begun.elapsed().as_secs());
        assert!(seconds >= 5, "{seconds}");
        assert!(
            asked <= seconds * 2,
            "{asked} in {seconds} s, of {many} clients"
        );
        rig.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_is_not_asked_for_each_call_when_a_quota_is_used_up() {
    let rig = Rig::start();
    let needs = [need(Measure::Tokens, 3_000, 100, 100)];
    let mut admitted = 0;
    for _ in 0..2_000 {
        let admits = call(&rig.ledger, &needs, Duration::from_millis(1)).await;
        admitted += u64::from(admits);
        if !admits {
            sleep(Duration::from_millis(1)).await;
        }
    }
    // Each spends 60, and the last must find 100.
    assert_eq!(admitted, (3_000 - 100) / 60 + 1);
    let asked = rig.asked();
    assert!(asked < 40, "{asked}");
    rig.end().await;
}

const HUGE: u64 = 1_000_000_000_000;
