//! How many replicas there should be.

use llmgw_core::api::decision::ScaleReason;

use super::*;

pub(super) fn name() -> ModelName {
    "m".parse().unwrap()
}

/// A cluster whose model has a range, and slots for four calls in each replica.
pub(super) fn ranged(min: u32, max: u32, idle_timeout: &str) -> Cluster {
    let mut cluster = Cluster::new(1);
    let model: Model = serde_json::from_value(serde_json::json!({
        "name": "m", "source": "file:/m.gguf", "min_replicas": min, "max_replicas": max,
        "idle_timeout": idle_timeout, "profiles": [{"memory": "1GiB", "parallel": 4}],
    }))
    .unwrap();
    cluster.intent.models.insert(name(), model);
    cluster
}

fn scaled(actions: &[Action]) -> Vec<(u32, u32)> {
    let scaled = actions.iter().filter_map(|action| match action {
        Action::Scale { from, to, .. } => Some((*from, *to)),
        _ => None,
    });
    scaled.collect()
}

fn count(actions: &[Action], of: impl Fn(&Action) -> bool) -> usize {
    actions.iter().filter(|action| of(action)).count()
}

fn ask(cluster: &mut Cluster, waiting: u64) {
    let now = seconds(cluster.now);
    cluster.observed.ask(&name(), now);
    cluster.observed.asked.get_mut(&name()).unwrap().waiting = waiting;
}

/// So many calls on the replicas there are, shared out.
fn load(cluster: &mut Cluster, calls: u64) {
    cluster.observed.outstanding.clear();
    let ids: Vec<ReplicaId> = cluster.memory.assignments.keys().copied().collect();
    for call in 0..calls {
        let at = usize::try_from(call).unwrap() % ids.len();
        *cluster.observed.outstanding.entry(ids[at]).or_insert(0) += 1;
    }
}

#[test]
fn a_model_on_demand_starts_once_when_it_is_asked_for_and_ends_when_it_is_idle() {
    let mut cluster = ranged(0, 1, "10s");
    assert_eq!(cluster.run(3), []);
    cluster.now += 1;
    ask(&mut cluster, 50);
    let actions = cluster.step();
    assert!(
        matches!(
            &actions[..],
            [
                Action::Scale {
                    from: 0,
                    to: 1,
                    why: ScaleReason::Asked { waiting: 50 },
                    ..
                },
                Action::Place { .. },
            ]
        ),
        "{actions:?}"
    );
    // The same calls, still waiting, start nothing more; loading for longer than the timeout is use.
    for _ in 0..30 {
        cluster.now += 1;
        cluster.report(ReplicaState::Starting);
        assert_eq!(cluster.step(), []);
    }
    cluster.observed.asked.get_mut(&name()).unwrap().waiting = 0;
    let replica = cluster.only();
    cluster.observed.outstanding.insert(replica, 1);
    assert_eq!(cluster.run(30), [], "what is at work is not idled out");
    cluster.observed.outstanding.clear();
    assert_eq!(cluster.run(9), []);
    let actions = cluster.run(4);
    assert!(
        matches!(
            &actions[..],
            [
                Action::Scale {
                    to: 0,
                    why: ScaleReason::Idle { .. },
                    ..
                },
                Action::Drain { why: Why::Idle, .. },
                Action::Stop { why: Why::Idle, .. },
            ]
        ),
        "{actions:?}"
    );
    cluster.run(2);
    ask(&mut cluster, 1);
    assert_eq!(scaled(&cluster.run(1)), [(0, 1)]);
}

#[test]
fn a_call_between_two_looks_counts_as_use() {
    let mut cluster = ranged(0, 1, "5s");
    ask(&mut cluster, 0);
    cluster.now += 1;
    ask(&mut cluster, 0);
    cluster.step();
    cluster.run(2);
    for given in 1..20 {
        let replica = cluster.only();
        let calls = Calls { given, failed: 0 };
        cluster.observed.calls.insert(replica, calls);
        assert_eq!(cluster.run(3), []);
    }
    assert_eq!(scaled(&cluster.run(6)), [(1, 0)]);
}

#[test]
fn a_model_that_was_asked_for_and_fits_nowhere_lacks_a_replica_until_it_is_idle() {
    let mut cluster = ranged(0, 1, "60s");
    let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
    node.facts.memory = None;
    cluster.now += 1;
    ask(&mut cluster, 1);
    cluster.step();
    let lacks = |cluster: &Cluster| {
        let now = seconds(cluster.now);
        lacks(
            &cluster.intent,
            &cluster.observed,
            &cluster.memory,
            &name(),
            now,
        )
    };
    assert!(lacks(&cluster));
    cluster.observed.asked.get_mut(&name()).unwrap().waiting = 0;
    cluster.run(30);
    assert!(lacks(&cluster));
    // Room is made: it is placed, though nobody asks again.
    let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
    node.facts = observed_node(0).facts;
    assert_eq!(
        count(&cluster.run(1), |action| matches!(
            action,
            Action::Place { .. }
        )),
        1
    );
    let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
    node.facts.memory = None;
    cluster.memory.assignments.clear();
    cluster.run(62);
    assert!(!lacks(&cluster));
}

#[test]
fn load_adds_replicas_after_a_while_and_takes_them_away_after_a_longer_one() {
    let mut cluster = ranged(1, 4, "60s");
    cluster.run(2);
    assert_eq!(cluster.memory.assignments.len(), 1);
    // A peak that is shorter than the patience adds nothing.
    load(&mut cluster, 12);
    assert_eq!(scaled(&cluster.run(9)), []);
    load(&mut cluster, 4);
    assert_eq!(scaled(&cluster.run(1)), []);
    load(&mut cluster, 12);
    let actions = cluster.run(11);
    assert_eq!(scaled(&actions), [(1, 3)]);
    let why = actions.iter().find_map(|action| match action {
        Action::Scale { why, .. } => Some(why.to_string()),
        _ => None,
    });
    assert_eq!(why.as_deref(), Some("12 calls for 4 slots, for 10 s"));
    cluster.run(2);
    assert_eq!(cluster.memory.assignments.len(), 3);
    // Enough for three at seven tenths: 8 calls need three, 5 need two, and for the whole minute.
    load(&mut cluster, 8);
    assert_eq!(scaled(&cluster.run(200)), []);
    load(&mut cluster, 5);
    assert_eq!(scaled(&cluster.run(50)), []);
    load(&mut cluster, 8);
    assert_eq!(scaled(&cluster.run(5)), []);
    load(&mut cluster, 5);
    assert_eq!(scaled(&cluster.run(59)), []);
    let actions = cluster.run(3);
    assert_eq!(scaled(&actions), [(3, 2)]);
    // All three are at work: none of them is stopped before it is idle.
    assert_eq!(
        count(&actions, |action| matches!(action, Action::Drain { .. })),
        0
    );
    cluster.observed.outstanding.clear();
    let actions = cluster.run(3);
    assert!(actions.iter().any(|action| matches!(
        action,
        Action::Drain {
            why: Why::LessLoad,
            ..
        }
    )));
    assert_eq!(cluster.memory.assignments.len(), 2);
    assert_eq!(scaled(&cluster.run(70)), [(2, 1)]);
    assert_eq!(scaled(&cluster.run(200)), [], "never below the fewest");
}

#[test]
fn a_start_is_not_answered_with_another() {
    let mut cluster = ranged(1, 8, "60s");
    cluster.run(2);
    load(&mut cluster, 8);
    assert_eq!(scaled(&cluster.run(11)), [(1, 2)]);
    load(&mut cluster, 40);
    for _ in 0..60 {
        cluster.now += 1;
        let ready: Vec<ReplicaId> = cluster.memory.assignments.keys().copied().collect();
        cluster.report(ReplicaState::Ready);
        let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
        node.replicas.get_mut(ready.last().unwrap()).unwrap().state = ReplicaState::Starting;
        assert_eq!(scaled(&cluster.step()), []);
    }
}

#[test]
fn a_replica_on_its_way_up_is_not_given_up_for_less_load() {
    let mut cluster = ranged(1, 2, "20s");
    cluster.run(2);
    load(&mut cluster, 8);
    assert_eq!(scaled(&cluster.run(11)), [(1, 2)]);
    cluster.observed.outstanding.clear();
    let young = *cluster.memory.assignments.keys().last().unwrap();
    for _ in 0..60 {
        cluster.now += 1;
        cluster.report(ReplicaState::Ready);
        let node = cluster.observed.nodes.get_mut(&cluster.node).unwrap();
        let status = Arc::make_mut(node).replicas.get_mut(&young).unwrap();
        status.state = ReplicaState::Starting;
        assert_eq!(scaled(&cluster.step()), []);
    }
    assert_eq!(scaled(&cluster.run(25)), [(2, 1)]);
}

#[test]
fn a_model_that_is_switched_off_ends_and_is_not_woken() {
    let mut cluster = ranged(1, 1, "60s");
    cluster.run(2);
    let off = Scaling::fixed(0);
    let model = cluster.intent.models.remove(&name()).unwrap().scaled(off);
    cluster.intent.models.insert(name(), model);
    let actions = cluster.run(2);
    assert!(
        matches!(
            &actions[..],
            [
                Action::Drain {
                    why: Why::SwitchedOff,
                    ..
                },
                Action::Stop {
                    why: Why::SwitchedOff,
                    ..
                },
            ]
        ),
        "{actions:?}"
    );
    ask(&mut cluster, 3);
    assert_eq!(cluster.run(5), []);
}

#[test]
fn what_a_new_leader_finds_running_is_not_taken_for_too_much() {
    let mut cluster = ranged(0, 3, "60s");
    let specs: Vec<ReplicaSpec> = (0..2)
        .map(|_| stranger(cluster.intent.models.values().next().unwrap()))
        .collect();
    cluster.memory.settle_until = seconds(5);
    let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
    for spec in specs {
        node.replicas
            .insert(spec.id, status(spec, ReplicaState::Ready));
    }
    let adopted = cluster.step();
    assert_eq!(
        count(&adopted, |action| matches!(action, Action::Adopt { .. })),
        2
    );
    assert_eq!(cluster.target(), 2);
    assert_eq!(cluster.run(58), []);
}
