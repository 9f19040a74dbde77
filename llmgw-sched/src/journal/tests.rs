use llmgw_core::{
    api::decision::Leaving,
    id::{NodeId, ReplicaId},
    reason::{Amount, Check, CheckCount, Reason, Rejection},
};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;

const MADE: Made = Made {
    at: Timestamp(5),
    epoch: 1,
    inputs: Fingerprint(9),
    policy: String::new(),
};

fn name(text: &str) -> ModelName {
    text.parse().unwrap()
}

fn stopped(number: u128) -> Outcome {
    Outcome::Stopped {
        replica: ReplicaId::from_uuid(Uuid::from_u128(number)),
        why: Leaving::Surplus,
    }
}

fn rejection(detail: String) -> Rejection {
    Rejection {
        node: NodeId::from_uuid(Uuid::from_u128(1)),
        hostname: "box".to_owned(),
        profile: "default".parse().unwrap(),
        reasons: vec![Reason {
            check: Check::Memory,
            need: Amount::Bytes(Bytes::gib(2)),
            have: None,
            short_by: None,
            detail,
        }],
    }
}

/// The report of a model that none of `nodes` nodes can take.
fn report(model: &str, nodes: usize, detail: &str) -> Report {
    let rejections = vec![rejection(detail.to_owned()); nodes];
    Report {
        model: name(model),
        nodes,
        profiles: 1,
        replicas: 1,
        missing: 1,
        fits: None,
        nearest: rejections.first().cloned(),
        rejections,
        summary: vec![CheckCount {
            check: Check::Memory,
            nodes,
        }],
        pending: None,
        remedies: Vec::new(),
    }
}

fn not_placed(report: Report) -> Outcome {
    Outcome::NotPlaced {
        report: Box::new(report),
    }
}

fn numbers(decisions: &[Decision]) -> Vec<u64> {
    decisions.iter().map(|decision| decision.number).collect()
}

/// Notes what is news and counts what is not, as the loop does.
fn try_to_place(journal: &mut Journal, made: &Made, report: Report) {
    if !journal.repeat(&report, made.epoch, made.at) {
        journal.note(made, report.model.clone(), not_placed(report));
    }
}

#[test]
fn the_oldest_are_dropped_and_numbers_go_on() {
    let mut journal = Journal::new(Bounds {
        decisions: 3,
        ..Bounds::default()
    });
    for number in 0..5 {
        let model = if number % 2 == 0 { "even" } else { "odd" };
        journal.note(&MADE, name(model), stopped(number));
    }
    assert_eq!(numbers(&journal.decisions(None, 0, 10)), [3, 4, 5]);
    assert_eq!(numbers(&journal.decisions(None, 3, 1)), [4]);
    let even = name("even");
    assert_eq!(numbers(&journal.decisions(Some(&even), 0, 10)), [3, 5]);
    assert!(journal.mentions(&even) && !journal.mentions(&name("other")));
}

#[test]
fn the_same_failure_is_counted_and_another_is_news() {
    let mut journal = Journal::default();
    for at in 1..=3 {
        let made = Made {
            at: Timestamp(at),
            ..MADE
        };
        // Other models in between change nothing, nor does how much exactly is missing.
        try_to_place(&mut journal, &made, report("a", 2, &format!("short {at}")));
        try_to_place(&mut journal, &made, report("b", 2, "short"));
    }
    let counted: Vec<_> = journal
        .decisions(None, 0, 10)
        .into_iter()
        .map(|d| (d.model.to_string(), d.again, d.at.0, d.last_at.0))
        .collect();
    let expected = [("a".to_owned(), 2, 1, 3), ("b".to_owned(), 2, 1, 3)];
    assert_eq!(counted, expected);

    let a = name("a");
    try_to_place(&mut journal, &MADE, report("a", 3, "another node"));
    let mut waiting = report("a", 3, "an engine comes");
    waiting.pending = Some("an engine is being installed".to_owned());
    try_to_place(&mut journal, &MADE, waiting.clone());
    let later = Made { epoch: 2, ..MADE };
    try_to_place(&mut journal, &later, waiting.clone());
    journal.note(&later, a.clone(), stopped(1));
    try_to_place(&mut journal, &later, waiting);
    let found = journal.decisions(Some(&a), 0, 10);
    assert_eq!(numbers(&found), [1, 3, 4, 5, 6, 7]);
    assert!(found.iter().skip(1).all(|decision| decision.again == 0));
}

#[test]
fn a_report_of_a_large_fleet_is_cut_and_keeps_its_counts() {
    let mut journal = Journal::default();
    journal.note(&MADE, name("m"), not_placed(report("m", 5_000, "short")));
    let kept = kept_report(&journal);
    assert_eq!((kept.nodes, kept.rejections.len()), (5_000, 64));
    assert_eq!(kept.summary[0].nodes, 5_000);

    // One that has no room at all keeps its counts, and what has none even so is not kept.
    let small = Bounds {
        decisions: 10,
        bytes: Bytes(1_000),
    };
    let mut journal = Journal::new(small);
    let long = report("m", 3, &"x".repeat(2_000));
    journal.note(&MADE, name("m"), not_placed(long));
    let kept = kept_report(&journal);
    assert_eq!((kept.summary[0].nodes, kept.nearest), (3, None));
    let mut journal = Journal::new(Bounds {
        bytes: Bytes(100),
        ..small
    });
    journal.note(&MADE, name("m"), stopped(1));
    assert_eq!(journal.decisions(None, 0, 10), []);
}

/// The report of the first decision.
fn kept_report(journal: &Journal) -> Report {
    let first = journal.decisions(None, 0, 1).remove(0);
    let Outcome::NotPlaced { report } = first.what else {
        panic!("{:?}", first.what)
    };
    *report
}

#[test]
fn an_error_of_an_engine_is_cut() {
    let mut journal = Journal::default();
    let what = Outcome::Failed {
        replica: ReplicaId::from_uuid(Uuid::from_u128(1)),
        error: "ü".repeat(5_000),
    };
    journal.note(&MADE, name("m"), what);
    let Outcome::Failed { error, .. } = journal.decisions(None, 0, 1).remove(0).what else {
        panic!("a failure was noted")
    };
    assert_eq!(error, "ü".repeat(1_000));
}

proptest! {
    #[test]
    fn the_bounds_are_never_exceeded(
        decisions in 0_usize..6,
        bytes in 0_u64..6_000,
        steps in proptest::collection::vec((0..4_u8, 0..4_usize, 0..1_500_usize, 0..3_u8), 0..60),
    ) {
        let mut journal = Journal::new(Bounds { decisions, bytes: Bytes(bytes) });
        for (at, (model, nodes, length, kind)) in (0..).zip(steps) {
            let made = Made { at: Timestamp(at), ..MADE };
            let model = format!("m{model}");
            // Quotes are longer as JSON than they are.
            let text = "\"".repeat(length);
            match kind {
                0 => journal.note(&made, name(&model), stopped(1)),
                1 => journal.note(&made, name(&model), Outcome::Failed {
                    replica: ReplicaId::from_uuid(Uuid::from_u128(1)),
                    error: text,
                }),
                _ => try_to_place(&mut journal, &made, report(&model, nodes, &text)),
            }
            let kept = journal.decisions(None, 0, usize::MAX);
            prop_assert!(kept.len() <= decisions);
            prop_assert_eq!(kept.len(), journal.kept.len());
            let long: usize = kept.iter().map(Decision::json_len).sum();
            prop_assert!(u64::try_from(long).unwrap() <= bytes, "{long} of {bytes}");
            prop_assert!(kept.is_sorted_by(|a, b| a.number < b.number));
            let counted: usize = journal.kept.iter().map(|kept| kept.bytes).sum();
            prop_assert_eq!(counted, journal.bytes);
        }
    }
}
