//! That only who leads writes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    task::{JoinSet, yield_now},
    time::sleep,
};

use super::{
    Checked, Failure, StoreFixture, ensure,
    lease::{SHORT, expect_fenced, unexpected},
    sample::{self, LONG, TICK},
};
use crate::store::{Epoch, Store, StoreError};

pub(super) async fn writes_of_another_epoch_fail_and_leave_nothing(
    fixture: &dyn StoreFixture,
) -> Checked {
    let (store, other) = (fixture.open().await?, fixture.open().await?);
    let (kept, new) = (sample::model("kept")?, sample::model("new")?);
    let (kept_key, new_key) = (sample::key("kept"), sample::key("new"));
    let refuses = async |epoch: Epoch| -> Checked {
        expect_fenced(epoch, store.insert_model(epoch, &new).await)?;
        // That it exists is not for a stranger to know, nor that it does not.
        expect_fenced(epoch, store.insert_model(epoch, &kept).await)?;
        expect_fenced(epoch, store.delete_model(epoch, kept.model.name()).await)?;
        expect_fenced(epoch, store.delete_model(epoch, new.model.name()).await)?;
        expect_fenced(epoch, store.insert_key(epoch, &new_key).await)?;
        expect_fenced(epoch, store.insert_key(epoch, &kept_key).await)?;
        expect_fenced(epoch, store.delete_key(epoch, kept_key.id).await)?;
        expect_fenced(epoch, store.delete_key(epoch, new_key.id).await)
    };
    // Nobody has ever led.
    for never_made in [Epoch(0), Epoch(1), Epoch(u64::MAX)] {
        refuses(never_made).await?;
    }
    let old = store.acquire_lease("a", LONG).await?.epoch;
    store.insert_model(old, &kept).await?;
    store.insert_key(old, &kept_key).await?;
    // Another leads.
    let new = other.acquire_lease("a", LONG).await?.epoch;
    for another in [old, Epoch(new.0 + 1), Epoch(0), Epoch(u64::MAX)] {
        refuses(another).await?;
    }
    // Nobody leads any more.
    other.release_lease(new).await?;
    for another in [old, new, Epoch(new.0 + 1)] {
        refuses(another).await?;
    }
    for handle in [store, other, fixture.open().await?] {
        ensure!(
            handle.models().await? == [kept.clone()],
            "the models are {:?}",
            sample::model_names(&*handle).await?
        );
        let keys = handle.keys().await?;
        ensure!(keys == [kept_key.clone()], "the keys are {keys:?}");
    }
    Ok(())
}

pub(super) async fn a_lease_that_ran_out_counts_until_it_is_taken(
    fixture: &dyn StoreFixture,
) -> Checked {
    let store = fixture.open().await?;
    let ttl = Duration::from_millis(1);
    let epoch = store.acquire_lease("a", ttl).await?.epoch;
    sleep(SHORT).await;
    store.insert_model(epoch, &sample::model("late")?).await?;
    store.acquire_lease("b", LONG).await?;
    let later = sample::model("later")?;
    expect_fenced(epoch, store.insert_model(epoch, &later).await)
}

/// The heart of the matter. Some write with one epoch as fast as they can; meanwhile a new epoch is made. What
/// is read after that must be what is read for ever.
pub(super) async fn no_write_of_an_old_epoch_appears_after_a_new_one_was_made(
    fixture: &dyn StoreFixture,
) -> Checked {
    let taker = fixture.open().await?;
    let writers = [fixture.open().await?, fixture.open().await?];
    for round in 0..ROUNDS {
        let old = taker.acquire_lease("a", LONG).await?.epoch;
        let written = Arc::new(AtomicUsize::new(0));
        let mut writing = JoinSet::new();
        for (index, handle) in writers.iter().enumerate() {
            for hand in 0..2 {
                let prefix = format!("r{round}-w{index}-{hand}");
                writing.spawn(write_until_fenced(
                    Arc::clone(handle),
                    old,
                    prefix,
                    Arc::clone(&written),
                ));
            }
        }
        // The more are under way, the better; a writer that failed ends this too.
        while written.load(Ordering::SeqCst) < WARM_UP && writing.len() == 4 {
            if let Some(ended) = writing.try_join_next() {
                ended??;
                return Err(Failure::saw("a writer was fenced while its epoch led"));
            }
            sleep(TICK).await;
        }
        taker.acquire_lease("a", LONG).await?;
        let seen = sample::model_names(&*taker).await?;
        let mut acknowledged = Vec::new();
        while let Some(ended) = writing.join_next().await {
            acknowledged.extend(ended??);
        }
        let later = sample::model_names(&*taker).await?;
        ensure!(
            seen == later,
            "{} writes of the old epoch appeared after the new one was made",
            later.len().abs_diff(seen.len())
        );
        for name in acknowledged {
            ensure!(
                later.contains(&name),
                "{name} was acknowledged and is not there"
            );
        }
    }
    Ok(())
}

async fn write_until_fenced(
    store: Arc<dyn Store>,
    epoch: Epoch,
    prefix: String,
    written: Arc<AtomicUsize>,
) -> Result<Vec<String>, Failure> {
    let mut acknowledged = Vec::new();
    while acknowledged.len() < MAX_WRITES {
        let name = format!("{prefix}-{}", acknowledged.len());
        match store.insert_model(epoch, &sample::model(&name)?).await {
            Ok(()) => acknowledged.push(name),
            Err(StoreError::Fenced { .. }) => return Ok(acknowledged),
            answer => return Err(unexpected("written or Fenced", answer)),
        }
        written.fetch_add(1, Ordering::SeqCst);
        // A store that never waits would keep the taker from running, and paused time from passing.
        if acknowledged.len() % 8 == 0 {
            sleep(TICK).await;
        } else {
            yield_now().await;
        }
    }
    Err(Failure::saw("a writer was not fenced in all its writes"))
}

/// One fence that leaks shows in most rounds; that it leaks seldom, in one of these.
const ROUNDS: usize = 12;
const WARM_UP: usize = 6;
/// So that a fence that isn't there ends the check.
const MAX_WRITES: usize = 4_000;
