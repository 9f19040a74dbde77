//! The audit log.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    task::{JoinSet, yield_now},
    time::sleep,
};

use super::{
    Checked, Failure, StoreFixture, ensure,
    intent::TEXTS,
    lease::{expect_fenced, unexpected},
    sample::{self, LONG, TICK, polled},
};
use crate::{
    clock::Timestamp,
    cluster::audit::{AuditEntry, ChainHead, NewAuditEntry, verify_chain},
    store::{AUDIT_PAGE, Epoch, Store, StoreError},
};

pub(super) async fn entries_are_numbered_and_chained(fixture: &dyn StoreFixture) -> Checked {
    let (store, other) = (fixture.open().await?, fixture.open().await?);
    let log = store.audit(0, AUDIT_PAGE).await?;
    ensure!(log.is_empty(), "a new store has the entries {log:?}");
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    let mut returned = Vec::new();
    // What was done twice is there twice, and the order is that of the appends, not of their times.
    for millis in [i64::MAX, 0, 0, i64::MIN, -1, 1_750_000_000_123] {
        let entry = NewAuditEntry {
            at: Timestamp(millis),
            ..sample::audit_entry("tiny")
        };
        for handle in [&store, &store, &other] {
            let appended = handle.append_audit(epoch, &entry).await?;
            ensure!(
                is_of(&appended, &entry),
                "{entry:?} was appended as {appended:?}"
            );
            returned.push(appended);
        }
    }
    verify_chain(ChainHead::EMPTY, &returned)?;
    for handle in [store, other] {
        let log = handle.audit(0, AUDIT_PAGE).await?;
        ensure!(log == returned, "{returned:?} were read as {log:?}");
    }
    Ok(())
}

pub(super) async fn entries_of_another_epoch_fail_and_use_no_number(
    fixture: &dyn StoreFixture,
) -> Checked {
    let (store, other) = (fixture.open().await?, fixture.open().await?);
    let stray = sample::audit_entry("stray");
    let refuses = async |epoch: Epoch| -> Checked {
        expect_fenced(epoch, store.append_audit(epoch, &stray).await)
    };
    for never_made in [Epoch(0), Epoch(1), Epoch(u64::MAX)] {
        refuses(never_made).await?;
    }
    let old = store.acquire_lease("a", LONG).await?.epoch;
    let first = store.append_audit(old, &sample::audit_entry("m")).await?;
    let new = other.acquire_lease("a", LONG).await?.epoch;
    for another in [old, Epoch(new.0 + 1), Epoch(0), Epoch(u64::MAX)] {
        refuses(another).await?;
    }
    let second = other.append_audit(new, &sample::audit_entry("m")).await?;
    other.release_lease(new).await?;
    for another in [old, new, Epoch(new.0 + 1)] {
        refuses(another).await?;
    }
    ensure!(
        (first.seq, second.seq) == (1, 2),
        "the numbers are {} and {}, and not 1 and 2",
        first.seq,
        second.seq
    );
    let log = whole(&*store).await?;
    ensure!(log == [first, second], "the log is {log:?}");
    Ok(())
}

/// Some append with one epoch; meanwhile a new epoch is made. What is read after that must be what stays.
pub(super) async fn no_entry_of_an_old_epoch_appears_after_a_new_one_was_made(
    fixture: &dyn StoreFixture,
) -> Checked {
    let taker = fixture.open().await?;
    let writers = [fixture.open().await?, fixture.open().await?];
    for round in 0..ROUNDS {
        let old = taker.acquire_lease("a", LONG).await?.epoch;
        let written = Arc::new(AtomicUsize::new(0));
        let mut writing: JoinSet<Checked> = JoinSet::new();
        for handle in writers.iter().cycle().take(4) {
            let (handle, written) = (Arc::clone(handle), Arc::clone(&written));
            writing.spawn(async move {
                for index in 1..=MAX_APPENDS {
                    let entry = sample::audit_entry(&format!("r{round}"));
                    match handle.append_audit(old, &entry).await {
                        Ok(_) => written.fetch_add(1, Ordering::SeqCst),
                        Err(StoreError::Fenced { .. }) => return Ok(()),
                        answer => return Err(unexpected("appended or Fenced", answer)),
                    };
                    // A store that never waits would keep the taker from running, and paused time from passing;
                    // and who always pauses is never seen between a check and what follows it.
                    if index % 8 == 0 {
                        sleep(TICK).await;
                    } else {
                        yield_now().await;
                    }
                }
                Err(Failure::saw("a writer was not fenced in all its appends"))
            });
        }
        while written.load(Ordering::SeqCst) < WARM_UP && writing.len() == 4 {
            if let Some(ended) = writing.try_join_next() {
                ended??;
                return Err(Failure::saw("a writer was fenced while its epoch led"));
            }
            sleep(TICK).await;
        }
        taker.acquire_lease("a", LONG).await?;
        let seen = whole(&*taker).await?;
        while let Some(ended) = writing.join_next().await {
            ended??;
        }
        let later = whole(&*taker).await?;
        ensure!(
            seen == later,
            "{} entries of the old epoch appeared after the new one was made",
            later.len().abs_diff(seen.len())
        );
        let acknowledged = written.load(Ordering::SeqCst);
        let found = later
            .iter()
            .filter(|entry| entry.subject == format!("r{round}"))
            .count();
        ensure!(
            found >= acknowledged,
            "{acknowledged} entries were acknowledged, and {found} are there"
        );
    }
    Ok(())
}

pub(super) async fn entries_appended_at_the_same_time_make_one_chain(
    fixture: &dyn StoreFixture,
) -> Checked {
    let handles = [fixture.open().await?, fixture.open().await?];
    let [store, reader] = &handles;
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    let mut appending: JoinSet<Result<AuditEntry, StoreError>> = JoinSet::new();
    for (index, handle) in handles.iter().cycle().take(20).enumerate() {
        let handle = Arc::clone(handle);
        appending.spawn(async move {
            let entry = sample::audit_entry(&format!("m{index}"));
            handle.append_audit(epoch, &entry).await
        });
    }
    let mut returned = Vec::new();
    while let Some(appended) = appending.join_next().await {
        returned.push(appended??);
        // Unbroken at any time, and with everything that was acknowledged.
        let log = whole(&**reader).await?;
        for entry in &returned {
            ensure!(log.contains(entry), "{entry:?} is not in {log:?}");
        }
    }
    returned.sort_by_key(|entry| entry.seq);
    let log = whole(&**reader).await?;
    ensure!(log == returned, "{returned:?} were read as {log:?}");
    let mut subjects: Vec<&str> = log.iter().map(|entry| entry.subject.as_str()).collect();
    subjects.sort_unstable();
    subjects.dedup();
    ensure!(subjects.len() == 20, "only {subjects:?} are in the log");
    Ok(())
}

pub(super) async fn the_log_outlives_all_handles(fixture: &dyn StoreFixture) -> Checked {
    let mut expected = Vec::new();
    for round in 0..3 {
        let store = fixture.open().await?;
        let log = whole(&*store).await?;
        ensure!(
            log == expected,
            "{expected:?} became {log:?} in round {round}"
        );
        // The chain goes on under whoever leads next.
        let holder = format!("holder-{round}");
        let epoch = store.acquire_lease(&holder, LONG).await?.epoch;
        for _ in 0..2 {
            let entry = sample::audit_entry(&holder);
            expected.push(store.append_audit(epoch, &entry).await?);
        }
        store.release_lease(epoch).await?;
    }
    verify_chain(ChainHead::EMPTY, &expected)?;
    Ok(())
}

pub(super) async fn a_page_begins_after_a_number_and_is_bounded(
    fixture: &dyn StoreFixture,
) -> Checked {
    let store = fixture.open().await?;
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    let last = u64::from(AUDIT_PAGE) + 3;
    for _ in 0..last {
        let entry = sample::audit_entry("m");
        store.append_audit(epoch, &entry).await?;
    }
    for (after, limit, expected) in [
        (0, 0, 0..0),
        (0, 1, 1..2),
        (0, 5, 1..6),
        (1, 1, 2..3),
        (1, 5, 2..7),
        (last - 3, 5, last - 2..last + 1),
        (last - 1, 5, last..last + 1),
        (last, 5, 0..0),
        (last + 1, 5, 0..0),
        (u64::MAX / 2, 5, 0..0),
        (u64::MAX / 2 + 1, 5, 0..0),
        (u64::MAX, u32::MAX, 0..0),
        (0, AUDIT_PAGE, 1..last - 2),
        (0, AUDIT_PAGE + 1, 1..last - 2),
        (2, u32::MAX, 3..last),
        (3, u32::MAX, 4..last + 1),
    ] {
        let page = store.audit(after, limit).await?;
        let numbers: Vec<u64> = page.iter().map(|entry| entry.seq).collect();
        ensure!(
            numbers.iter().copied().eq(expected.clone()),
            "after {after}, of at most {limit} entries, came {numbers:?} and not {expected:?}"
        );
    }
    let log = whole(&*store).await?;
    ensure!(
        u64::try_from(log.len())? == last,
        "{} of {last} entries are in the log",
        log.len()
    );
    Ok(())
}

pub(super) async fn texts_in_the_log_are_as_they_were(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    let long = "漢".repeat(1_000);
    let mut expected = Vec::new();
    for text in TEXTS.iter().copied().chain([long.as_str()]) {
        let plain = sample::audit_entry("m");
        for entry in [
            NewAuditEntry {
                actor: text.to_owned(),
                ..plain.clone()
            },
            NewAuditEntry {
                action: text.to_owned(),
                ..plain.clone()
            },
            NewAuditEntry {
                subject: text.to_owned(),
                ..plain
            },
        ] {
            match store.append_audit(epoch, &entry).await {
                Err(StoreError::Refused { .. }) if text.contains('\0') => {}
                appended => {
                    let appended = appended?;
                    ensure!(
                        is_of(&appended, &entry),
                        "{entry:?} was appended as {appended:?}"
                    );
                    expected.push(appended);
                }
            }
        }
    }
    // What was refused has used no number up.
    let after = store.append_audit(epoch, &sample::audit_entry("m")).await?;
    expected.push(after);
    let log = whole(&*store).await?;
    ensure!(log == expected, "{expected:?} came back as {log:?}");
    Ok(())
}

pub(super) async fn a_dropped_append_is_whole_or_nothing_and_leaves_no_gap(
    fixture: &dyn StoreFixture,
) -> Checked {
    let (store, other) = (fixture.open().await?, fixture.open().await?);
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    for polls in 1..=DROPS {
        let dropped = sample::audit_entry(&format!("dropped at poll {polls}"));
        let appended = polled(polls, store.append_audit(epoch, &dropped)).await;
        let next = sample::audit_entry(&format!("after poll {polls}"));
        let next = store.append_audit(epoch, &next).await?;
        let log = whole(&*other).await?;
        ensure!(log.last() == Some(&next), "{next:?} is not the last");
        let found = log.iter().filter(|entry| is_of(entry, &dropped)).count();
        match appended {
            Some(appended) => {
                let appended = appended?;
                ensure!(log.contains(&appended), "{appended:?} is lost");
                ensure!(found == 1, "it is there {found} times");
            }
            None => ensure!(
                found <= 1,
                "an append that was dropped at poll {polls} is there {found} times"
            ),
        }
    }
    Ok(())
}

/// Reads the log from its beginning, page by page, and checks its chain.
pub(super) async fn whole(store: &dyn Store) -> Result<Vec<AuditEntry>, Failure> {
    let mut log: Vec<AuditEntry> = Vec::new();
    loop {
        let head = log.last().map_or(ChainHead::EMPTY, AuditEntry::head);
        let page = store.audit(head.seq, AUDIT_PAGE).await?;
        verify_chain(head, &page)?;
        if page.is_empty() {
            return Ok(log);
        }
        log.extend(page);
    }
}

fn is_of(entry: &AuditEntry, new: &NewAuditEntry) -> bool {
    let NewAuditEntry {
        at,
        actor,
        action,
        subject,
    } = new;
    (entry.at, &entry.actor, &entry.action, &entry.subject) == (*at, actor, action, subject)
}

const ROUNDS: usize = 6;
const WARM_UP: usize = 6;
/// So that a fence that isn't there ends the check.
const MAX_APPENDS: usize = 4_000;
/// More places than any store waits at in one write.
const DROPS: usize = 40;
