use super::*;

#[test]
fn the_same_seed_gives_the_same_history() {
    let options = Options {
        trace: true,
        ..Options::default()
    };
    let (one, two) = (run(7, &options), run(7, &options));
    assert!(one.trace.len() > 100);
    assert_eq!(one.trace, two.trace);
    assert_ne!(one.trace, run(8, &options).trace);
}

#[test]
fn no_promise_is_broken_whatever_happens() {
    for seed in 0..3 {
        let run = run(seed, &Options::default());
        assert!(run.violation.is_none(), "seed {seed}: {:?}", run.violation);
        assert!(run.counts.steps > 100);
    }
}

#[test]
fn every_planted_fault_is_found() {
    for planted in Planted::ALL {
        let options = Options {
            planted: Some(planted),
            ..Options::default()
        };
        // Some need many seeds: here those shortly before one that is known to find it.
        let (from, expected) = match planted {
            Planted::FenceIgnored => (16, Invariant::Fence),
            Planted::DrainWithoutSurge => (4, Invariant::LastReady),
            Planted::ParkedForgotten => (118, Invariant::Parked),
            Planted::StartsUncounted => (0, Invariant::Capacity),
            Planted::StartsTogether => (0, Invariant::Starts),
            Planted::HoldsForgotten => (0, Invariant::Held),
            Planted::IdleByAge => (0, Invariant::Idle),
        };
        let found = (from..from + 20).find_map(|seed| run(seed, &options).violation);
        let found = found.map(|violation| violation.invariant);
        assert_eq!(found, Some(expected), "{planted:?}");
    }
}
