//! Shares of quotas.

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinSet, time::sleep};

use super::{
    Checked, Failure, StoreFixture, ensure,
    sample::{LONG, NOW},
};
use crate::{
    clock::Timestamp,
    cluster::tenancy::{
        LevelPath, Party, Period, Window,
        quota::{Measure, Quota, Share, ShareAsk},
    },
    id::{GatewayId, KeyId},
    store::Store,
};

/// A gateway that asks.
struct Asking {
    gateway: GatewayId,
    turn: u64,
}

pub(super) async fn a_share_is_of_what_is_left(fixture: &dyn StoreFixture) -> Checked {
    let (store, other) = (fixture.open().await?, fixture.open().await?);
    let [mut a, mut b, mut c] = [(); 3].map(|()| Asking::new());
    let quota = minute(Measure::Requests);
    let share = a.ask(&*store, &quota, 0, 60, LONG).await?;
    expect(share, 60, 0, 0)?;
    let share = b.ask(&*other, &quota, 0, 60, LONG).await?;
    expect(share, 40, 0, 60)?;
    let share = c.ask(&*store, &quota, 0, 60, LONG).await?;
    expect(share, 0, 0, 100)?;
    ensure!(share.others == 2, "{} others hold a share", share.others);
    // What one gives back is there for others, and what it has spent is not.
    let share = a.ask(&*store, &quota, 25, 5, LONG).await?;
    expect(share, 5, 25, 40)?;
    let share = c.ask(&*other, &quota, 0, 60, LONG).await?;
    expect(share, 30, 25, 45)?;
    // A limit that was lowered takes nothing away that was given.
    let mut lower = ask(&quota, 0, 60);
    lower.limit = 50;
    let share = b.ask_all(&*store, &[lower], LONG).await?;
    ensure!(share.iter().map(|one| one.held).eq([0]), "{share:?} of 50");
    Ok(())
}

pub(super) async fn what_was_spent_counts_once_and_stays(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    let (mut a, mut b) = (Asking::new(), Asking::new());
    let quota = minute(Measure::Tokens);
    for _ in 0..3 {
        let share = a.ask(&*store, &quota, 30, 0, LONG).await?;
        expect(share, 0, 30, 0)?;
    }
    // It can't become less.
    let share = a.ask(&*store, &quota, 10, 0, LONG).await?;
    expect(share, 0, 30, 0)?;
    let share = b.ask(&*store, &quota, 80, 50, LONG).await?;
    expect(share, 0, 110, 0)?;
    drop(store);
    let share = b.ask(&*fixture.open().await?, &quota, 80, 50, LONG).await?;
    expect(share, 0, 110, 0)
}

pub(super) async fn a_share_runs_out_and_what_was_spent_does_not(
    fixture: &dyn StoreFixture,
) -> Checked {
    let store = fixture.open().await?;
    let (mut a, mut b) = (Asking::new(), Asking::new());
    let quota = minute(Measure::Concurrent);
    a.ask(&*store, &quota, 20, 80, SHORT).await?;
    let share = b.ask(&*store, &quota, 0, 50, LONG).await?;
    ensure!(share.held == 0, "{share:?} while another holds all");
    sleep(SHORT * 2).await;
    let share = b.ask(&*store, &quota, 0, 50, LONG).await?;
    expect(share, 50, 20, 0)?;
    ensure!(share.others == 0, "one whose time has run out counts");
    // Who comes back gets what is left.
    let share = a.ask(&*store, &quota, 20, 80, LONG).await?;
    expect(share, 30, 20, 50)
}

pub(super) async fn what_is_spent_and_held_can_be_looked_at(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    let (mut a, mut b) = (Asking::new(), Asking::new());
    let quota = minute(Measure::Cost);
    a.ask(&*store, &quota, 20, 10, LONG).await?;
    b.ask(&*store, &quota, 5, 7, SHORT).await?;
    let other = minute(Measure::Tokens);
    for _ in 0..2 {
        let uses = store.quota_uses(&[other.clone(), quota.clone()]).await?;
        let uses: Vec<(u64, u64)> = uses
            .iter()
            .map(|one| (one.spent_by_others, one.held_by_others))
            .collect();
        ensure!(uses == [(0, 0), (25, 17)], "{uses:?}");
    }
    sleep(SHORT * 2).await;
    let uses = store.quota_uses(&[quota]).await?;
    let uses: Vec<(u64, u64)> = uses
        .iter()
        .map(|one| (one.spent_by_others, one.held_by_others))
        .collect();
    ensure!(uses == [(25, 10)], "{uses:?} after one's time has run out");
    Ok(())
}

pub(super) async fn a_turn_that_was_overtaken_changes_nothing(
    fixture: &dyn StoreFixture,
) -> Checked {
    let store = fixture.open().await?;
    let quota = minute(Measure::Requests);
    let gateway = GatewayId::generate();
    let told = [ask(&quota, 10, 40)];
    store.share_quotas(gateway, 7, &told, LONG).await?;
    for turn in [6, 7] {
        let late = [ask(&quota, 50, 1)];
        let shares = store.share_quotas(gateway, turn, &late, LONG).await?;
        ensure!(
            shares
                .iter()
                .map(|share| (share.held, share.spent))
                .eq([(40, 10)]),
            "turn {turn} after 7 answered {shares:?}"
        );
    }
    let share = Asking::new().ask(&*store, &quota, 0, 100, LONG).await?;
    expect(share, 50, 10, 40)
}

pub(super) async fn quotas_are_told_apart(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    let mut one = Asking::new();
    let key = KeyId::generate();
    let mut quotas = Vec::new();
    for party in [
        Party::Level(LevelPath::CLUSTER),
        Party::Level("a".parse()?),
        Party::Level("a/b".parse()?),
        // A level may be called as a key is.
        Party::Level(key.to_string().parse()?),
        Party::Key(key),
    ] {
        for measure in [Measure::Requests, Measure::Tokens, Measure::Concurrent] {
            for (period, at) in [
                (Period::Minute, NOW),
                (Period::Minute, NOW.plus(Duration::from_secs(60))),
                (Period::Hour, NOW),
                (Period::Total, NOW),
            ] {
                let window = Window::of(period, at);
                quotas.push(Quota {
                    party: party.clone(),
                    measure,
                    window,
                });
            }
        }
    }
    let asks: Vec<ShareAsk> = quotas
        .iter()
        .zip(1..)
        .map(|(quota, spent)| ask(quota, spent, 100))
        .collect();
    let shares = one.ask_all(&*store, &asks, LONG).await?;
    for ((quota, share), spent) in quotas.iter().zip(&shares).zip(1..) {
        ensure!(
            (share.spent, share.held) == (spent, 100 - spent),
            "of {quota}, {share:?} and not {spent}"
        );
    }
    ensure!(shares.len() == asks.len(), "{} answers", shares.len());
    let none = one.ask_all(&*store, &[], LONG).await?;
    ensure!(none.is_empty(), "nothing asked, and {none:?} answered");
    Ok(())
}

pub(super) async fn gateways_that_ask_at_the_same_time_hold_no_more_than_the_limit(
    fixture: &dyn StoreFixture,
) -> Checked {
    let stores = [fixture.open().await?, fixture.open().await?];
    let quotas = [Measure::Tokens, Measure::Requests].map(minute);
    let mut asking: JoinSet<Result<[u64; 2], Failure>> = JoinSet::new();
    for (index, store) in (0..16).zip(stores.iter().cycle()) {
        let (store, mut quotas) = (Arc::clone(store), quotas.to_vec());
        // In both orders.
        if index % 3 == 0 {
            quotas.reverse();
        }
        asking.spawn(async move {
            let mut one = Asking::new();
            let mut held = [0; 2];
            for spent in 0..6 {
                let asks: Vec<ShareAsk> = quotas
                    .iter()
                    .map(|quota| ask(quota, spent.min(held[0]).min(held[1]), 9))
                    .collect();
                let shares = one.ask_all(&*store, &asks, LONG).await?;
                for ((held, ask), share) in held.iter_mut().zip(&asks).zip(&shares) {
                    *held = ask.spent + share.held;
                }
            }
            Ok(held)
        });
    }
    let mut all = 0;
    while let Some(held) = asking.join_next().await {
        let [held, other] = held??;
        ensure!(held == other, "{held} of one and {other} of the other");
        all += held;
    }
    ensure!(all <= 100, "{all} of 100 were spent and are held");
    ensure!(all >= 90, "{all} of 100 alone were given");
    Ok(())
}

// === impl Asking ===

impl Asking {
    fn new() -> Self {
        let gateway = GatewayId::generate();
        Self { gateway, turn: 0 }
    }

    async fn ask(
        &mut self,
        store: &dyn Store,
        quota: &Quota,
        spent: u64,
        wanted: u64,
        ttl: Duration,
    ) -> Result<Share, Failure> {
        let shares = self
            .ask_all(store, &[ask(quota, spent, wanted)], ttl)
            .await?;
        let share = shares.first().copied();
        share.ok_or_else(|| Failure::saw("an ask without an answer"))
    }

    async fn ask_all(
        &mut self,
        store: &dyn Store,
        asks: &[ShareAsk],
        ttl: Duration,
    ) -> Result<Vec<Share>, Failure> {
        self.turn += 1;
        Ok(store
            .share_quotas(self.gateway, self.turn, asks, ttl)
            .await?)
    }
}

fn expect(share: Share, held: u64, spent: u64, held_by_others: u64) -> Checked {
    ensure!(
        (share.held, share.spent, share.held_by_others) == (held, spent, held_by_others),
        "{share:?}, and not {held} held, {spent} spent, {held_by_others} held by others"
    );
    Ok(())
}

/// Of a limit of 100.
fn ask(quota: &Quota, spent: u64, wanted: u64) -> ShareAsk {
    ShareAsk {
        quota: quota.clone(),
        limit: 100,
        spent,
        wanted,
    }
}

fn minute(measure: Measure) -> Quota {
    Quota {
        party: Party::Level(LevelPath::CLUSTER),
        measure,
        window: Window::of(Period::Minute, Timestamp(NOW.0)),
    }
}

/// Long enough that two calls fit in.
const SHORT: Duration = Duration::from_millis(700);
