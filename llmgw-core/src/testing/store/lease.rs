//! Who leads.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{Checked, Failure, StoreFixture, ensure, sample::LONG};
use crate::store::{Epoch, Lease, Store, StoreError};

pub(super) async fn a_free_lease_is_taken(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    let lease = store.acquire_lease("a", LONG).await?;
    store.renew_lease(lease.epoch, LONG).await?;
    Ok(())
}

pub(super) async fn a_lease_is_refused_to_others_while_it_lasts(
    fixture: &dyn StoreFixture,
) -> Checked {
    let (store, other) = (fixture.open().await?, fixture.open().await?);
    let holder = "host-1 \"'; ñ 漢字";
    store.acquire_lease(holder, LONG).await?;
    for handle in [&store, &other] {
        match handle.acquire_lease("b", LONG).await {
            Err(StoreError::Held {
                holder: named,
                remaining,
            }) => {
                ensure!(named == holder, "the holder was named {named:?}");
                ensure!(
                    remaining > LONG / 2 && remaining <= LONG,
                    "{remaining:?} of {LONG:?} were said to remain"
                );
            }
            answer => return Err(unexpected("Held", answer)),
        }
    }
    Ok(())
}

pub(super) async fn taking_the_lease_again_makes_a_greater_epoch(
    fixture: &dyn StoreFixture,
) -> Checked {
    let (store, other) = (fixture.open().await?, fixture.open().await?);
    let first = store.acquire_lease("a", LONG).await?;
    let second = store.acquire_lease("a", LONG).await?;
    let third = other.acquire_lease("a", LONG).await?;
    ensure!(
        first.epoch < second.epoch && second.epoch < third.epoch,
        "epochs {first:?}, {second:?}, {third:?}"
    );
    expect_fenced(first.epoch, store.renew_lease(first.epoch, LONG).await)?;
    expect_fenced(second.epoch, store.renew_lease(second.epoch, LONG).await)?;
    store.renew_lease(third.epoch, LONG).await?;
    Ok(())
}

pub(super) async fn a_lease_runs_out(fixture: &dyn StoreFixture) -> Checked {
    let (store, other) = (fixture.open().await?, fixture.open().await?);
    let begun = Instant::now();
    let first = store.acquire_lease("a", SHORT).await?;
    let second = acquire_when_free(&*other, "b").await?;
    let after = begun.elapsed();
    ensure!(
        after + TOLERANCE >= SHORT,
        "a lease of {SHORT:?} was taken over after {after:?}"
    );
    ensure!(first.epoch < second.epoch, "epochs {first:?}, {second:?}");
    expect_fenced(first.epoch, store.renew_lease(first.epoch, LONG).await)?;
    match store.acquire_lease("a", LONG).await {
        Err(StoreError::Held { holder, .. }) if holder == "b" => Ok(()),
        answer => Err(unexpected("Held by b", answer)),
    }
}

pub(super) async fn a_renewal_counts_from_now(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    let lease = store.acquire_lease("a", SHORT).await?;
    store.renew_lease(lease.epoch, LONG).await?;
    sleep(SHORT + TOLERANCE).await;
    match store.acquire_lease("b", LONG).await {
        Err(StoreError::Held { remaining, .. }) if remaining > LONG / 2 => {}
        answer => return Err(unexpected("Held for long", answer)),
    }
    // It is set anew, not added up; and may be made shorter.
    store.renew_lease(lease.epoch, SHORT).await?;
    acquire_when_free(&*store, "b").await?;
    Ok(())
}

pub(super) async fn a_lease_that_ran_out_is_renewed_if_nobody_took_it(
    fixture: &dyn StoreFixture,
) -> Checked {
    let store = fixture.open().await?;
    let lease = store.acquire_lease("a", Duration::from_millis(1)).await?;
    sleep(SHORT).await;
    store.renew_lease(lease.epoch, LONG).await?;
    match store.acquire_lease("b", LONG).await {
        Err(StoreError::Held { holder, .. }) if holder == "a" => Ok(()),
        answer => Err(unexpected("Held by a", answer)),
    }
}

pub(super) async fn only_the_last_epoch_renews(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    for never_made in [Epoch(0), Epoch(1), Epoch(u64::MAX)] {
        expect_fenced(never_made, store.renew_lease(never_made, LONG).await)?;
    }
    let old = store.acquire_lease("a", LONG).await?.epoch;
    let new = store.acquire_lease("a", LONG).await?.epoch;
    let next = Epoch(new.0 + 1);
    for other in [old, next, Epoch(0), Epoch(u64::MAX)] {
        expect_fenced(other, store.renew_lease(other, LONG).await)?;
    }
    store.renew_lease(new, LONG).await?;
    store.release_lease(new).await?;
    expect_fenced(new, store.renew_lease(new, LONG).await)
}

pub(super) async fn a_released_lease_is_free_at_once(fixture: &dyn StoreFixture) -> Checked {
    let (store, other) = (fixture.open().await?, fixture.open().await?);
    let lease = store.acquire_lease("a", LONG).await?;
    store.release_lease(lease.epoch).await?;
    let next = other.acquire_lease("b", LONG).await?;
    ensure!(lease.epoch < next.epoch, "epochs {lease:?}, {next:?}");
    // Whoever released, asks as any other.
    match store.acquire_lease("a", LONG).await {
        Err(StoreError::Held { holder, .. }) if holder == "b" => Ok(()),
        answer => Err(unexpected("Held by b", answer)),
    }
}

pub(super) async fn only_the_last_epoch_releases(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    store.release_lease(Epoch(0)).await?;
    let old = store.acquire_lease("a", LONG).await?.epoch;
    let new = store.acquire_lease("a", LONG).await?.epoch;
    for other in [old, Epoch(new.0 + 1), Epoch(0), Epoch(u64::MAX)] {
        store.release_lease(other).await?;
    }
    store.renew_lease(new, LONG).await?;
    match store.acquire_lease("b", LONG).await {
        Err(StoreError::Held { .. }) => {}
        answer => return Err(unexpected("Held", answer)),
    }
    // Twice is as good as once, and takes nothing from who came after.
    store.release_lease(new).await?;
    let after = store.acquire_lease("b", LONG).await?.epoch;
    store.release_lease(new).await?;
    store.renew_lease(after, LONG).await?;
    Ok(())
}

pub(super) async fn the_epoch_counter_outlives_release_and_reopening(
    fixture: &dyn StoreFixture,
) -> Checked {
    let mut last = Epoch(0);
    for round in 0..5 {
        let store = fixture.open().await?;
        let lease = store.acquire_lease("a", LONG).await?;
        ensure!(
            last < lease.epoch,
            "{last:?} was followed by {:?} in round {round}",
            lease.epoch
        );
        store.release_lease(lease.epoch).await?;
        last = lease.epoch;
    }
    Ok(())
}

pub(super) async fn a_raised_epoch_ends_the_turn_and_is_never_lowered(
    fixture: &dyn StoreFixture,
) -> Checked {
    let (store, other) = (fixture.open().await?, fixture.open().await?);
    let low = store.acquire_lease("a", LONG).await?.epoch;
    // Nothing to raise: the turn goes on.
    for reached in [low, Epoch(0)] {
        other.raise_epoch(reached).await?;
        store.renew_lease(low, LONG).await?;
    }
    let seen = Epoch(low.0 + 1_000);
    other.raise_epoch(seen).await?;
    expect_fenced(low, store.renew_lease(low, LONG).await)?;
    // The turn that was raised to is nobody's.
    expect_fenced(seen, store.renew_lease(seen, LONG).await)?;
    let high = store.acquire_lease("b", LONG).await?.epoch;
    ensure!(high > seen, "{high:?} follows {seen:?}");
    other.raise_epoch(low).await?;
    store.renew_lease(high, LONG).await?;
    match other.raise_epoch(Epoch(Epoch::MAX.0 + 1)).await {
        Err(StoreError::Refused { .. }) => {}
        answer => return Err(unexpected("Refused", answer)),
    }
    drop((store, other));
    let after = fixture.open().await?.acquire_lease("b", LONG).await?.epoch;
    ensure!(after > high, "{after:?} follows {high:?}");
    Ok(())
}

pub(super) async fn of_many_who_ask_at_once_one_gets_the_lease(
    fixture: &dyn StoreFixture,
) -> Checked {
    let mut handles: Vec<Arc<dyn Store>> = Vec::new();
    for _ in 0..6 {
        handles.push(fixture.open().await?);
    }
    let mut last = Epoch(0);
    for round in 0..6 {
        let mut asking = JoinSet::new();
        for (index, handle) in handles.iter().cloned().enumerate() {
            asking.spawn(async move {
                let holder = format!("asker-{index}");
                let answer = handle.acquire_lease(&holder, LONG).await;
                (holder, answer)
            });
        }
        let mut won: Vec<(String, Epoch)> = Vec::new();
        let mut named: Vec<String> = Vec::new();
        while let Some(answer) = asking.join_next().await {
            match answer? {
                (holder, Ok(lease)) => won.push((holder, lease.epoch)),
                (_, Err(StoreError::Held { holder, .. })) => named.push(holder),
                (_, Err(error)) => return Err(error.into()),
            }
        }
        let [(winner, epoch)] = won.as_slice() else {
            return Err(Failure::saw(format!("in round {round}, {won:?} got it")));
        };
        ensure!(
            named.iter().all(|holder| holder == winner),
            "{winner} got it, and others were told {named:?}"
        );
        ensure!(last < *epoch, "{last:?} was followed by {epoch:?}");
        last = *epoch;
        for handle in handles.iter().take(1) {
            handle.release_lease(*epoch).await?;
        }
    }
    Ok(())
}

pub(super) async fn a_lease_may_be_of_any_length(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    let lease = store.acquire_lease("a", Duration::MAX).await?;
    match store.acquire_lease("b", LONG).await {
        Err(StoreError::Held { remaining, .. }) if remaining > LONG => {}
        answer => return Err(unexpected("Held for long", answer)),
    }
    store.renew_lease(lease.epoch, Duration::MAX).await?;
    store.renew_lease(lease.epoch, Duration::ZERO).await?;
    acquire_when_free(&*store, "b").await?;
    Ok(())
}

pub(super) fn expect_fenced<T: std::fmt::Debug>(
    presented: Epoch,
    answer: Result<T, StoreError>,
) -> Checked {
    match answer {
        Err(StoreError::Fenced { epoch }) if epoch == presented => Ok(()),
        answer => Err(unexpected(&format!("Fenced of {presented:?}"), answer)),
    }
}

pub(super) fn unexpected<T: std::fmt::Debug>(
    expected: &str,
    answer: Result<T, StoreError>,
) -> Failure {
    match answer {
        Ok(answer) => Failure::saw(format!("{answer:?} and not {expected}")),
        Err(error) => Failure {
            saw: format!("not {expected}"),
            source: Some(Box::new(error)),
        },
    }
}

/// Asks until the lease is free; each refusal must say so.
async fn acquire_when_free(store: &dyn Store, holder: &str) -> Result<Lease, Failure> {
    let begun = Instant::now();
    loop {
        match store.acquire_lease(holder, LONG).await {
            Ok(lease) => return Ok(lease),
            Err(StoreError::Held { remaining, .. }) => {
                ensure!(
                    begun.elapsed() < PATIENCE,
                    "a lease of {SHORT:?} is held after {PATIENCE:?}, for another {remaining:?}"
                );
                sleep(POLL).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

pub(super) const SHORT: Duration = Duration::from_millis(150);
/// What the store's clock and ours may differ by over [`SHORT`].
const TOLERANCE: Duration = Duration::from_millis(20);
const POLL: Duration = Duration::from_millis(5);
/// Counted by us and from the answer on, so that a slow machine does not use it up.
const PATIENCE: Duration = Duration::from_secs(5);
