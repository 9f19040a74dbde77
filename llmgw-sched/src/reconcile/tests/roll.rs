//! A definition that has changed.

use std::collections::BTreeSet;

use llmgw_core::{api::decision::RollEnd, cluster::order::Subject};

use super::{
    demand::{name, ranged},
    *,
};

fn edited(cluster: &mut Cluster, replicas: u32) {
    let model: Model = serde_json::from_value(serde_json::json!({
        "name": "m", "source": "file:/new.gguf", "replicas": replicas, "profiles": [{"memory": "1GiB"}],
    }))
    .unwrap();
    cluster.intent.models.insert(name(), model);
}

fn order(cluster: &mut Cluster, number: u64) {
    cluster.order(Order::Roll {
        model: name(),
        number,
        force: false,
    });
}

fn force(cluster: &mut Cluster, number: u64) {
    cluster.order(Order::Roll {
        model: name(),
        number,
        force: true,
    });
}

fn stale(cluster: &Cluster) -> usize {
    let model = &cluster.intent.models[&name()];
    let current = model.fingerprint(&model.profiles()[0]);
    let given = cluster.memory.assignments.values();
    given
        .filter(|given| given.spec.fingerprint != current)
        .count()
}

/// Runs and looks each second that at least so many replicas serve.
fn run_serving(cluster: &mut Cluster, span: u64, fewest: usize) -> Vec<Action> {
    let mut decided = Vec::new();
    for _ in 0..span {
        decided.extend(cluster.run(1));
        let serving = cluster.memory.assignments.values();
        let serving =
            serving.filter(|given| given.draining.is_none() && given.ready_since.is_some());
        assert!(serving.count() >= fewest, "{decided:?}");
    }
    decided
}

/// A roll has one replica more than the model may have when nobody asks for the model any more.
#[test]
fn of_what_nobody_asks_for_only_what_is_beyond_the_most_is_surplus() {
    let mut cluster = ranged(0, 1, "5s");
    cluster.now += 1;
    let now = seconds(cluster.now);
    cluster.observed.ask(&name(), now);
    cluster.run(3);
    let model: Model = serde_json::from_value(serde_json::json!({
        "name": "m", "source": "file:/new.gguf", "min_replicas": 0, "max_replicas": 1, "idle_timeout": "5s",
        "profiles": [{"memory": "1GiB", "parallel": 4}],
    }))
    .unwrap();
    cluster.intent.models.insert(name(), model);
    order(&mut cluster, 1);
    let actions = cluster.run(9);
    let drained = actions.iter().filter_map(|action| match action {
        Action::Drain { why, .. } => Some(why),
        _ => None,
    });
    assert_eq!(
        drained.collect::<Vec<_>>(),
        [&Why::Surplus, &Why::Idle],
        "{actions:?}"
    );
}

#[test]
fn an_edited_model_stays_as_it_runs_until_it_is_rolled_one_after_another() {
    let mut cluster = Cluster::new(3);
    cluster.run(20);
    edited(&mut cluster, 3);
    assert_eq!(cluster.run(100), []);
    assert_eq!(stale(&cluster), 3);
    order(&mut cluster, 1);
    let actions = run_serving(&mut cluster, 11, 3);
    let placed = |actions: &[Action]| {
        let placed = actions
            .iter()
            .filter(|action| matches!(action, Action::Place { .. }));
        placed.count()
    };
    assert_eq!(placed(&actions), 1, "one at a time: {actions:?}");
    assert!(actions.contains(&Action::BeginRoll {
        model: name(),
        number: 1
    }));
    let actions = run_serving(&mut cluster, 60, 3);
    assert_eq!(placed(&actions), 2);
    let ended = Action::EndRoll {
        model: name(),
        number: 1,
        ended: RollEnd::Done { replaced: 3 },
    };
    assert!(actions.contains(&ended), "{actions:?}");
    assert_eq!((stale(&cluster), cluster.memory.assignments.len()), (0, 3));
    Arc::make_mut(&mut cluster.intent.orders).lift(&Subject::Roll(name()));
    assert_eq!(cluster.run(100), []);
}

#[test]
fn a_roll_whose_new_definition_fails_is_backed_out_and_the_old_replicas_stay() {
    let mut cluster = Cluster::new(2);
    cluster.run(70);
    edited(&mut cluster, 2);
    order(&mut cluster, 7);
    let mut decided = Vec::new();
    for _ in 0..40 {
        cluster.now += 1;
        cluster.report(ReplicaState::Ready);
        let fresh = cluster.memory.assignments.iter();
        let fresh: Vec<ReplicaId> = fresh
            .filter(|(_, given)| given.since > seconds(60))
            .map(|(id, _)| *id)
            .collect();
        let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
        for id in fresh {
            node.replicas.get_mut(&id).unwrap().state = ReplicaState::Failed;
        }
        decided.extend(cluster.step());
        let ended = decided
            .iter()
            .any(|action| matches!(action, Action::EndRoll { .. }));
        if ended {
            // Whoever writes lifts the order.
            Arc::make_mut(&mut cluster.intent.orders).lift(&Subject::Roll(name()));
        }
    }
    let ended = decided.iter().filter_map(|action| match action {
        Action::EndRoll { ended, .. } => Some(ended.to_string()),
        _ => None,
    });
    let ended: Vec<String> = ended.collect();
    assert_eq!(
        ended,
        ["backed out, the old replicas stay: failed without saying why: last words"]
    );
    assert!(
        !decided
            .iter()
            .any(|action| matches!(action, Action::Drain { .. })),
        "{decided:?}"
    );
    assert_eq!((stale(&cluster), cluster.memory.assignments.len()), (2, 2));
    assert!(cluster.memory.histories.is_empty());
    assert_eq!(cluster.run(100), []);
}

#[test]
fn a_replica_whose_calls_fail_backs_the_roll_out() {
    let mut cluster = Cluster::new(1);
    cluster.run(20);
    let old = cluster.only();
    edited(&mut cluster, 1);
    order(&mut cluster, 1);
    cluster.run(5);
    let new = *cluster
        .memory
        .assignments
        .keys()
        .find(|id| **id != old)
        .unwrap();
    cluster.observed.calls.insert(
        new,
        Calls {
            given: 4,
            failed: 3,
        },
    );
    let actions = cluster.run(4);
    assert!(
        actions.contains(&Action::Drain {
            replica: new,
            why: Why::BackedOut
        }),
        "{actions:?}"
    );
    assert_eq!(cluster.only(), old);
}

#[test]
fn a_roll_without_room_for_one_more_waits_and_says_why() {
    let mut cluster = Cluster::new(1);
    let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
    node.facts.memory.as_mut().unwrap().allocatable = Bytes::mib(1500);
    cluster.run(20);
    edited(&mut cluster, 1);
    order(&mut cluster, 1);
    let actions = cluster.run(30);
    assert!(
        matches!(&actions[..], [Action::BeginRoll { .. }, Action::Warn { reason, .. }] if reason.contains("short by")),
        "{actions:?}"
    );
    assert_eq!((stale(&cluster), cluster.memory.assignments.len()), (1, 1));
}

#[test]
fn a_forced_roll_without_room_stops_the_old_ones_one_after_another_and_first() {
    let mut cluster = Cluster::new(2);
    let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
    node.facts.memory.as_mut().unwrap().allocatable = Bytes::mib(2500);
    cluster.run(20);
    edited(&mut cluster, 2);
    order(&mut cluster, 1);
    cluster.run(10);
    assert_eq!(stale(&cluster), 2);
    force(&mut cluster, 2);
    let actions = run_serving(&mut cluster, 60, 1);
    let forced = actions.iter().filter(|action| {
        matches!(
            action,
            Action::Drain {
                why: Why::RolledByForce,
                ..
            }
        )
    });
    assert_eq!(forced.count(), 2, "{actions:?}");
    let ended = Action::EndRoll {
        model: name(),
        number: 2,
        ended: RollEnd::Done { replaced: 2 },
    };
    assert!(actions.contains(&ended), "{actions:?}");
    assert_eq!((stale(&cluster), cluster.memory.assignments.len()), (0, 2));
}

#[test]
fn a_forced_roll_waits_until_what_it_has_stopped_is_gone_and_its_successor_serves() {
    let mut cluster = Cluster::new(2);
    let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
    node.facts.memory.as_mut().unwrap().allocatable = Bytes::mib(2500);
    cluster.run(20);
    let old: Vec<ReplicaId> = cluster.memory.assignments.keys().copied().collect();
    edited(&mut cluster, 2);
    force(&mut cluster, 1);
    let mut decided = Vec::new();
    // The agent is slow: what was stopped holds its memory.
    for _ in 0..30 {
        cluster.now += 1;
        let spec = ReplicaSpec::clone(&cluster.memory.assignments[&old[1]].spec);
        let gone = ReplicaSpec { id: old[0], ..spec };
        cluster.report(ReplicaState::Ready);
        let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
        node.replicas
            .insert(old[0], status(gone, ReplicaState::Ready));
        decided.extend(cluster.step());
    }
    let drains = |action: &&Action| matches!(action, Action::Drain { .. });
    assert_eq!(decided.iter().filter(drains).count(), 1, "{decided:?}");
    assert!(!cluster.memory.assignments.contains_key(&old[0]));
    assert!(cluster.memory.assignments[&old[1]].draining.is_none());
}

#[test]
fn a_forced_roll_with_room_surges() {
    let mut cluster = Cluster::new(1);
    cluster.run(20);
    edited(&mut cluster, 1);
    force(&mut cluster, 1);
    let actions = run_serving(&mut cluster, 30, 1);
    let ended = Action::EndRoll {
        model: name(),
        number: 1,
        ended: RollEnd::Done { replaced: 1 },
    };
    assert!(actions.contains(&ended), "{actions:?}");
}

#[test]
fn what_has_no_recorded_fingerprint_or_no_profile_any_more_is_not_stale() {
    let mut cluster = Cluster::new(1);
    cluster.run(2);
    let id = cluster.only();
    edited(&mut cluster, 1);
    let given = cluster.memory.assignments.get_mut(&id).unwrap();
    Arc::make_mut(&mut given.spec).fingerprint = Fingerprint(0);
    order(&mut cluster, 1);
    let ended = |number, ended| Action::EndRoll {
        model: name(),
        number,
        ended,
    };
    assert_eq!(cluster.run(1), [ended(1, RollEnd::NothingToDo)]);
    let given = cluster.memory.assignments.get_mut(&id).unwrap();
    let spec = Arc::make_mut(&mut given.spec);
    spec.fingerprint = Fingerprint(1);
    spec.profile.name = "gone".parse().unwrap();
    order(&mut cluster, 2);
    assert_eq!(cluster.run(5), [ended(2, RollEnd::NothingToDo)]);
}

/// Until a node is heard, nothing is known of what a roll is to replace, or has begun to.
#[test]
fn a_roll_goes_on_under_a_leader_that_hears_late_of_what_runs() {
    let mut cluster = Cluster::new(1);
    cluster.run(20);
    edited(&mut cluster, 1);
    order(&mut cluster, 1);
    cluster.run(4);
    let runs: BTreeSet<ReplicaId> = cluster.memory.assignments.keys().copied().collect();
    assert_eq!((stale(&cluster), runs.len()), (1, 2), "both are there");

    cluster.memory = Memory::default();
    let mut heard = std::mem::take(&mut cluster.observed.nodes);
    let actions = cluster.run(10);
    let ends = |actions: &[Action]| {
        let mut ends = actions.iter();
        ends.any(|action| matches!(action, Action::EndRoll { .. }))
    };
    assert!(!ends(&actions), "{actions:?}");

    for node in heard.values_mut() {
        Arc::make_mut(node).heard_at = seconds(cluster.now);
    }
    cluster.observed.nodes = heard;
    cluster.step();
    let adopted: BTreeSet<ReplicaId> = cluster.memory.assignments.keys().copied().collect();
    assert_eq!(adopted, runs, "what serves already is not begun anew");
    let actions = run_serving(&mut cluster, 40, 1);
    assert!(ends(&actions), "{actions:?}");
    let left: BTreeSet<ReplicaId> = cluster.memory.assignments.keys().copied().collect();
    assert_eq!((stale(&cluster), left.len()), (0, 1));
    assert!(left.is_subset(&runs), "{actions:?}");
}
