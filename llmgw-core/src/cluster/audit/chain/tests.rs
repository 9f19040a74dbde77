use proptest::prelude::*;

use super::*;
use crate::clock::Timestamp;

/// Computed by another program from the sentence in the module's documentation. Logs that are there already have
/// such hashes: a failure here means that none of them can be checked any more.
#[test]
fn hashes_are_what_they_have_always_been() {
    let first = AuditEntry::chained(
        ChainHead::EMPTY,
        &entry(1_750_000_000_123, "key:ops", "model.add", "tiny"),
    );
    assert_eq!(
        first.hash.to_string(),
        "d65aea9c6131056da1101a89c0014979d238a31bb93d20710db349ce89487a2f"
    );
    let second = AuditEntry::chained(first.head(), &entry(-1, "", "model.remove", "ñandú 🦀"));
    assert_eq!(
        second.hash.to_string(),
        "c82e80252627032a37db8dcafb6d4bb22bb0cb99c6f92734d76335aba1559b1d"
    );
    assert_eq!((second.seq, second.previous), (2, first.hash));
}

#[test]
fn an_unbroken_chain_passes_whole_and_in_pages() {
    let log = log(7);
    assert_eq!(verify_chain(ChainHead::EMPTY, &log), Ok(()));
    assert_eq!(verify_chain(ChainHead::EMPTY, &[]), Ok(()));
    for split in 1..7 {
        let (before, after) = log.split_at(split);
        let head = before.last().unwrap().head();
        assert_eq!(verify_chain(head, after), Ok(()));
    }
}

#[test]
fn a_changed_field_is_seen_at_its_entry() {
    let changes: [fn(&mut AuditEntry); 5] = [
        |entry| entry.at = Timestamp(entry.at.0 + 1),
        |entry| entry.actor.push('x'),
        |entry| entry.action.push('x'),
        |entry| entry.subject.clear(),
        |entry| entry.hash.0[31] ^= 1,
    ];
    for change in changes {
        let mut log = log(3);
        change(&mut log[1]);
        assert_eq!(broken(&log), (2, ChainProblem::Changed));
    }
    let mut log = log(3);
    log[1].previous.0[0] ^= 1;
    assert_eq!(broken(&log), (2, ChainProblem::Detached));
}

#[test]
fn a_changed_entry_whose_hash_was_made_anew_is_seen_at_the_next() {
    let mut log = log(3);
    log[1] = AuditEntry::chained(log[0].head(), &entry(0, "nobody", "model.add", "else"));
    assert_eq!(broken(&log), (3, ChainProblem::Detached));
}

#[test]
fn a_removed_entry_is_seen() {
    for removed in 0..4 {
        let mut log = log(5);
        log.remove(removed);
        let seq = u64::try_from(removed).unwrap() + 1;
        assert_eq!(broken(&log), (seq, ChainProblem::Displaced { by: seq + 1 }));
        // Also when those after it were numbered anew.
        for entry in &mut log[removed..] {
            entry.seq -= 1;
        }
        let problem = broken(&log);
        assert_eq!(problem, (seq, ChainProblem::Detached));
    }
}

#[test]
fn entries_in_another_order_are_seen() {
    let mut log = log(4);
    log.swap(1, 2);
    assert_eq!(broken(&log), (2, ChainProblem::Displaced { by: 3 }));
    (log[1].seq, log[2].seq) = (2, 3);
    assert_eq!(broken(&log), (2, ChainProblem::Detached));
    // An entry that is there twice.
    log[2] = log[1].clone();
    assert!(verify_chain(ChainHead::EMPTY, &log).is_err());
}

#[test]
fn a_page_of_another_place_or_another_log_does_not_follow() {
    let log = log(4);
    let head = log[0].head();
    assert!(verify_chain(head, &log).is_err());
    assert!(verify_chain(head, &log[2..]).is_err());
    let other = AuditEntry::chained(ChainHead::EMPTY, &entry(0, "", "", ""));
    let error = verify_chain(other.head(), &log[1..]).unwrap_err();
    assert_eq!((error.seq, error.problem), (2, ChainProblem::Detached));
}

#[test]
fn a_break_is_said_with_its_number() {
    let mut log = log(3);
    log[1].actor.clear();
    let error = verify_chain(ChainHead::EMPTY, &log).unwrap_err();
    assert_eq!(
        error.to_string(),
        "audit entry 2 was changed: its hash is not that of its fields"
    );
    log.remove(1);
    let error = verify_chain(ChainHead::EMPTY, &log).unwrap_err();
    assert_eq!(
        error.to_string(),
        "audit entry 2 is missing: entry 3 stands in its place"
    );
}

#[test]
fn the_end_of_the_numbers_is_no_way_round() {
    let head = ChainHead {
        seq: u64::MAX,
        ..ChainHead::EMPTY
    };
    let entry = AuditEntry::chained(head, &entry(0, "", "", ""));
    assert_eq!(entry.seq, u64::MAX);
}

proptest! {
    /// Texts that only differ in where one ends and the next begins have different hashes.
    #[test]
    fn different_entries_have_different_hashes(
        one in ("[a-c]{0,3}", "[a-c]{0,3}", "[a-c]{0,3}", 0..3_i64),
        other in ("[a-c]{0,3}", "[a-c]{0,3}", "[a-c]{0,3}", 0..3_i64),
    ) {
        let hash = |(actor, action, subject, at): &(String, String, String, i64)| {
            AuditEntry::chained(ChainHead::EMPTY, &entry(*at, actor, action, subject)).hash
        };
        prop_assert_eq!(hash(&one) == hash(&other), one == other);
    }

    #[test]
    fn entries_survive_json(actor in ".*", subject in ".*", at: i64) {
        let entry = AuditEntry::chained(ChainHead::EMPTY, &entry(at, &actor, "a", &subject));
        let json = serde_json::to_string(&entry).unwrap();
        let back: AuditEntry = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(verify_chain(ChainHead::EMPTY, std::slice::from_ref(&back)), Ok(()));
        prop_assert_eq!(back, entry);
    }
}

fn broken(log: &[AuditEntry]) -> (u64, ChainProblem) {
    let ChainBreak { seq, problem } = verify_chain(ChainHead::EMPTY, log).unwrap_err();
    (seq, problem)
}

fn log(length: i64) -> Vec<AuditEntry> {
    let mut head = ChainHead::EMPTY;
    (0..length)
        .map(|index| {
            let new = entry(index, "key:ops", "model.add", &format!("m{index}"));
            let entry = AuditEntry::chained(head, &new);
            head = entry.head();
            entry
        })
        .collect()
}

fn entry(at: i64, actor: &str, action: &str, subject: &str) -> NewAuditEntry {
    NewAuditEntry {
        at: Timestamp(at),
        actor: actor.to_owned(),
        action: action.to_owned(),
        subject: subject.to_owned(),
    }
}
