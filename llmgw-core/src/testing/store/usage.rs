//! The accounts.

use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;

use super::{
    Checked, Failure, StoreFixture, ensure,
    sample::{self, polled},
};
use crate::{
    clock::Timestamp,
    cluster::{
        account::UsageRecord,
        guard::{Action, Decision, GuardedCall, Stage},
    },
    id::KeyId,
    store::{Store, UsageStep, UsageTotal},
    units::{Micros, Tokens},
};

pub(super) async fn totals_add_up_by_model_then_key(fixture: &dyn StoreFixture) -> Checked {
    // Nobody leads: the accounts need no lease.
    let store = fixture.open().await?;
    let totals = store.usage_totals(Timestamp(0), None).await?;
    ensure!(totals.is_empty(), "a new store has {totals:?}");
    let mut keys = [KeyId::generate(), KeyId::generate(), KeyId::generate()];
    keys.sort();
    let mut records: Vec<UsageRecord> = Vec::new();
    let mut expected: Vec<UsageTotal> = Vec::new();
    for (index, model) in ["B", "a", "a-b", "a/b", "a_b"].into_iter().enumerate() {
        for (key, size) in keys.into_iter().zip([1 + index, 2, 3]) {
            for record in sample::batch(model, key, size)? {
                records.push(record);
            }
            let size = u64::try_from(size)?;
            expected.push(UsageTotal {
                at: None,
                level: "acme/search".parse()?,
                model: sample::name(model)?,
                key,
                requests: size,
                errors: 0,
                prompt_tokens: Tokens(100 * size),
                cached_tokens: Tokens(10 * size),
                completion_tokens: Tokens(7 * size),
                cost: Micros(1_234 * i64::try_from(size)?),
                last_at: sample::NOW,
            });
        }
    }
    // What is absent is counted too.
    for record in records.iter_mut().step_by(2) {
        record.replica = None;
        record.time_to_first_token = None;
        record.estimated = true;
    }
    records.reverse();
    let (first, second) = records.split_at(records.len() / 3);
    store.append_usage(first).await?;
    store.append_usage(&[]).await?;
    store.append_usage(second).await?;
    let totals = store.usage_totals(Timestamp(0), None).await?;
    ensure!(totals == expected, "{totals:?} and not {expected:?}");
    Ok(())
}

pub(super) async fn what_the_guard_did_comes_back_newest_first(
    fixture: &dyn StoreFixture,
) -> Checked {
    let store = fixture.open().await?;
    let mut records = sample::batch("m", KeyId::generate(), 6)?;
    for (place, record) in records.iter_mut().enumerate() {
        record.started_at = Timestamp([3_000, 1_000, 2_000, 3_000, 5_000, 999][place]);
        record.status = 400;
        record.guard = vec![
            Decision {
                rule: "cards".parse()?,
                by: "acme".parse()?,
                stage: Stage::Output,
                action: Action::Block,
                count: u32::try_from(place)? + 1,
                failed: place == 1,
            };
            1 + place % 2
        ];
    }
    // No rule matched it.
    if let Some(untouched) = records.get_mut(4) {
        untouched.guard.clear();
    }
    store.append_usage(&records).await?;
    store.append_usage(&records).await?;
    drop(store);
    let store = fixture.open().await?;
    let mut expected: Vec<GuardedCall> = records.iter().filter_map(GuardedCall::of).collect();
    expected.sort_by_key(|call| std::cmp::Reverse((call.at, call.request)));
    expected.retain(|call| call.at >= Timestamp(1_000));
    ensure!(expected.len() == 4, "of {expected:?}");
    let found = store.guarded(Timestamp(1_000), 10).await?;
    ensure!(found == expected, "{found:?} and not {expected:?}");
    let found = store.guarded(Timestamp(1_000), 2).await?;
    ensure!(
        found == expected[..2],
        "{found:?} and not the first two of {expected:?}"
    );
    let many = sample::batch("m", KeyId::generate(), 1_001)?;
    let decision = expected
        .first()
        .map(|call| call.decisions.clone())
        .unwrap_or_default();
    let with_guard = |record: UsageRecord| UsageRecord {
        guard: decision.clone(),
        ..record
    };
    let many: Vec<UsageRecord> = many.into_iter().map(with_guard).collect();
    store.append_usage(&many).await?;
    let page = store.guarded(Timestamp(0), u32::MAX).await?.len();
    ensure!(page == 1_000, "a page has {page} calls");
    Ok(())
}

pub(super) async fn totals_count_from_since_on(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    let key = KeyId::generate();
    let times = [i64::MIN, -1, 0, 1_000, 1_001, i64::MAX];
    let mut records = sample::batch("m", key, times.len())?;
    for (record, millis) in records.iter_mut().zip(times) {
        record.started_at = Timestamp(millis);
    }
    store.append_usage(&records).await?;
    for (since, expected) in [
        (i64::MIN, 6),
        (-1, 5),
        (0, 4),
        (999, 3),
        (1_000, 3),
        (1_001, 2),
        (1_002, 1),
        (i64::MAX, 1),
    ] {
        let found = requests(&*store, key, Timestamp(since)).await?;
        ensure!(
            found == expected,
            "{found} requests since {since}, and not {expected}"
        );
    }
    let later = store.usage_totals(Timestamp(1_002), None).await?;
    ensure!(later.len() == 1, "since 1002, there are {later:?}");
    Ok(())
}

pub(super) async fn totals_are_by_time_when_a_step_is_given(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    let key = KeyId::generate();
    // 2025-06-15, half past midnight, half past one, and the day after; and the last moment before 1970.
    let midnight = 1_749_945_600_000;
    let half = 1_800_000;
    let times = [half, 3 * half, 3 * half + 1, 48 * half, -midnight - 1];
    let mut records = sample::batch("m", key, times.len())?;
    for (record, millis) in records.iter_mut().zip(times) {
        record.started_at = Timestamp(midnight + millis);
    }
    store.append_usage(&records).await?;
    for (step, expected) in [
        (
            UsageStep::Hour,
            [
                (-3_600_000, 1, -1),
                (midnight, 1, midnight + half),
                (midnight + 2 * half, 2, midnight + 3 * half + 1),
                (midnight + 48 * half, 1, midnight + 48 * half),
            ]
            .as_slice(),
        ),
        (
            UsageStep::Day,
            [
                (-86_400_000, 1, -1),
                (midnight, 3, midnight + 3 * half + 1),
                (midnight + 48 * half, 1, midnight + 48 * half),
            ]
            .as_slice(),
        ),
    ] {
        let totals = store
            .usage_totals(Timestamp(-9_000_000), Some(step))
            .await?;
        let found: Vec<(Option<i64>, u64, i64)> = totals
            .iter()
            .map(|total| (total.at.map(|at| at.0), total.requests, total.last_at.0))
            .collect();
        let expected: Vec<(Option<i64>, u64, i64)> = expected
            .iter()
            .map(|(at, requests, last)| (Some(*at), *requests, *last))
            .collect();
        ensure!(
            found == expected,
            "{step:?}: {found:?} and not {expected:?}"
        );
    }
    Ok(())
}

pub(super) async fn usage_is_of_the_level_that_it_was_then(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    let key = KeyId::generate();
    let mut records = sample::batch("m", key, 3)?;
    for (record, level) in records.iter_mut().zip(["b", "/", "a/b"]) {
        record.level = level.parse()?;
    }
    store.append_usage(&records).await?;
    let totals = store.usage_totals(Timestamp(0), None).await?;
    let levels: Vec<String> = totals.iter().map(|total| total.level.to_string()).collect();
    ensure!(levels == ["/", "a/b", "b"], "{levels:?}");
    Ok(())
}

pub(super) async fn statuses_of_400_or_more_are_errors(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    let key = KeyId::generate();
    let statuses = [0, 200, 399, 400, 401, 429, 499, 500, 503, u16::MAX];
    let mut records = sample::batch("m", key, statuses.len())?;
    for (record, status) in records.iter_mut().zip(statuses) {
        record.status = status;
    }
    store.append_usage(&records).await?;
    let totals = store.usage_totals(Timestamp(0), None).await?;
    ensure!(
        totals.iter().map(|total| total.errors).eq([7]),
        "7 errors were counted as {totals:?}"
    );
    Ok(())
}

pub(super) async fn a_request_counts_once_however_often_it_is_written(
    fixture: &dyn StoreFixture,
) -> Checked {
    let (store, other) = (fixture.open().await?, fixture.open().await?);
    let key = KeyId::generate();
    let records = sample::batch("m", key, 10)?;
    store.append_usage(&records).await?;
    let expected = store.usage_totals(Timestamp(0), None).await?;
    store.append_usage(&records).await?;
    other.append_usage(&records).await?;
    // The same request with other counts, under another model: the first stays.
    let mut changed = records.clone();
    for record in &mut changed {
        record.prompt_tokens = Tokens(1);
        record.model = sample::name("other")?;
        record.key = KeyId::generate();
        record.status = 500;
    }
    store.append_usage(&changed).await?;
    let totals = store.usage_totals(Timestamp(0), None).await?;
    ensure!(totals == expected, "{expected:?} became {totals:?}");
    // One that is there does not keep a new one out, nor does one that is twice in the same batch.
    let new = sample::usage("m", key)?;
    let mixed: Vec<UsageRecord> = records
        .into_iter()
        .chain([new.clone(), new.clone(), new])
        .collect();
    store.append_usage(&mixed).await?;
    let found = requests(&*store, key, Timestamp(0)).await?;
    ensure!(found == 11, "11 requests were counted as {found}");
    Ok(())
}

pub(super) async fn batches_that_overlap_may_be_written_at_the_same_time(
    fixture: &dyn StoreFixture,
) -> Checked {
    let handles = [fixture.open().await?, fixture.open().await?];
    let key = KeyId::generate();
    let size = 1_000;
    for _ in 0..3 {
        let records = sample::batch("m", key, size)?;
        let mut writing: JoinSet<Checked> = JoinSet::new();
        for (index, handle) in handles.iter().cycle().take(4).enumerate() {
            let (handle, mut records) = (Arc::clone(handle), records.clone());
            // In another order each: who locks row by row may wait for another in a circle.
            records.rotate_left(index * size / 4);
            if index % 2 == 0 {
                records.reverse();
            }
            records.push(sample::usage("m", key)?);
            writing.spawn(async move { Ok(handle.append_usage(&records).await?) });
        }
        while let Some(written) = writing.join_next().await {
            written??;
        }
    }
    let [store, _] = &handles;
    let found = requests(&**store, key, Timestamp(0)).await?;
    ensure!(found == 3_012, "3012 requests were counted as {found}");
    Ok(())
}

pub(super) async fn a_dropped_batch_is_whole_or_nothing(fixture: &dyn StoreFixture) -> Checked {
    let (store, other) = (fixture.open().await?, fixture.open().await?);
    let mut polls = 1;
    while polls < DROPS {
        let key = KeyId::generate();
        let records = sample::batch("m", key, BATCH)?;
        let expected = u64::try_from(BATCH)?;
        let written = polled(polls, store.append_usage(&records)).await;
        let found = requests(&*other, key, Timestamp(0)).await?;
        match written {
            Some(written) => {
                written?;
                ensure!(
                    found == expected,
                    "{found} of {expected} requests are there"
                );
            }
            None => ensure!(
                found == 0 || found == expected,
                "{found} of {expected} requests of a batch that was dropped at poll {polls} are there"
            ),
        }
        store.append_usage(&records).await?;
        let found = requests(&*other, key, Timestamp(0)).await?;
        ensure!(found == expected, "{found} of {expected} after another try");
        polls += 1 + polls / 3;
    }
    Ok(())
}

pub(super) async fn a_large_batch_is_kept(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    let key = KeyId::generate();
    let records = sample::batch("m", key, 5_000)?;
    store.append_usage(&records).await?;
    let found = requests(&*store, key, Timestamp(0)).await?;
    ensure!(found == 5_000, "{found} of 5000 requests are there");
    Ok(())
}

pub(super) async fn absurd_counts_do_not_spoil_the_totals(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    let largest = u64::MAX / 2;
    for (model, counts, expected) in [
        ("one", vec![u64::MAX], largest),
        ("two", vec![largest, largest + 1], largest * 2),
        ("three", vec![u64::MAX; 3], u64::MAX),
        (
            "exact",
            vec![largest - 1, 2, 3, 1 << 33],
            largest + 4 + (1 << 33),
        ),
    ] {
        let key = KeyId::generate();
        let mut records = sample::batch(model, key, counts.len())?;
        for (record, count) in records.iter_mut().zip(counts) {
            record.prompt_tokens = Tokens(count);
            record.completion_tokens = Tokens(count);
            record.cached_tokens = Tokens(count);
            record.duration = Duration::MAX;
            record.time_to_first_token = Some(Duration::MAX);
        }
        store.append_usage(&records).await?;
        let totals = store.usage_totals(Timestamp(0), None).await?;
        let total = totals
            .iter()
            .find(|total| total.key == key)
            .ok_or_else(|| Failure::saw(format!("{model} is not in {totals:?}")))?;
        let sums = (total.prompt_tokens, total.completion_tokens);
        ensure!(
            sums == (Tokens(expected), Tokens(expected)),
            "{model}: {sums:?} and not {expected}"
        );
    }
    Ok(())
}

async fn requests(store: &dyn Store, key: KeyId, since: Timestamp) -> Result<u64, Failure> {
    let totals = store.usage_totals(since, None).await?;
    let mine = totals.iter().filter(|total| total.key == key);
    Ok(mine.map(|total| total.requests).sum())
}

const BATCH: usize = 300;
/// Until after the last row, in a store that waits for each.
const DROPS: usize = 4 * BATCH;
