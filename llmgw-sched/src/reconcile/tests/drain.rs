//! Cordoned and draining nodes, holds, adoption.

use llmgw_core::cluster::order::{Duty, Hold, HoldScope, NodeOrder};

use super::*;

fn duty(cluster: &mut Cluster, node: NodeId, duty: Duty) {
    cluster.order(Order::Node(NodeOrder {
        node,
        duty,
        reason: String::new(),
        force: false,
    }));
}

fn force(cluster: &mut Cluster, node: NodeId) {
    cluster.order(Order::Node(NodeOrder {
        node,
        duty: Duty::Draining,
        reason: String::new(),
        force: true,
    }));
}

fn by_force(replica: ReplicaId) -> Action {
    let why = Why::MovedByForce;
    Action::Drain { replica, why }
}

fn hold(cluster: &mut Cluster, node: NodeId, until: Option<i64>) {
    cluster.order(Order::Hold(Hold {
        name: "h".parse().unwrap(),
        scope: HoldScope::Node(node),
        reason: String::new(),
        until: until.map(Timestamp),
    }));
}

#[test]
fn a_cordoned_node_keeps_what_it_has_and_gets_nothing_new() {
    let (mut cluster, other) = Cluster::new(1).and_node();
    cluster.run(2);
    let node = cluster.nodes()[0];
    duty(&mut cluster, node, Duty::Cordoned);
    assert_eq!(cluster.run(5), []);
    let two = model(2);
    cluster.intent.models.insert(two.name().clone(), two);
    cluster.run(2);
    let mut nodes = cluster.nodes();
    nodes.sort();
    let mut both = [cluster.node, other];
    both.sort();
    assert_eq!(nodes, both);
}

#[test]
fn what_is_on_a_draining_node_ends_only_once_it_serves_elsewhere() {
    let (mut cluster, _) = Cluster::new(1).and_node();
    cluster.run(2);
    let (old, node) = (cluster.only(), cluster.nodes()[0]);
    duty(&mut cluster, node, Duty::Draining);
    cluster.now += 1;
    assert!(matches!(cluster.step()[..], [Action::Place { .. }]));
    for _ in 0..30 {
        cluster.now += 1;
        cluster.report(ReplicaState::Starting);
        let at = Arc::make_mut(cluster.observed.nodes.get_mut(&node).unwrap());
        at.replicas.get_mut(&old).unwrap().state = ReplicaState::Ready;
        assert_eq!(cluster.step(), [], "it serves until the other does");
    }
    cluster.observed.outstanding.insert(old, 1);
    let moved = Action::Drain {
        replica: old,
        why: Why::Moved,
    };
    assert_eq!(cluster.run(1), [moved]);
    assert_eq!(cluster.run(100), [], "its calls end first");
    cluster.observed.outstanding.clear();
    let stopped = Action::Stop {
        replica: old,
        why: Why::Moved,
    };
    assert_eq!(cluster.run(1), [stopped]);
    assert_ne!(cluster.nodes(), [node]);
    assert_eq!(cluster.run(10), []);
}

#[test]
fn a_drain_without_room_elsewhere_waits_and_says_why() {
    let mut cluster = Cluster::new(1);
    cluster.run(2);
    let node = cluster.node;
    duty(&mut cluster, node, Duty::Draining);
    cluster.now += 1;
    cluster.report(ReplicaState::Ready);
    let now = seconds(cluster.now);
    let step = step(&cluster.intent, &cluster.observed, &cluster.memory, now);
    let report = step.reports.values().next().unwrap();
    assert_eq!(report.missing, 1);
    assert!(report.fits.is_none());
    assert!(lacks(
        &cluster.intent,
        &cluster.observed,
        &cluster.memory,
        &report.model,
        now
    ));
    assert!(
        !cluster
            .run(700)
            .iter()
            .any(|action| matches!(action, Action::Drain { .. }))
    );
    assert_eq!(cluster.memory.assignments.len(), 1);
}

#[test]
fn a_drain_without_room_elsewhere_that_is_forced_later_takes_effect_at_once() {
    let mut cluster = Cluster::new(1);
    cluster.run(2);
    let (old, node) = (cluster.only(), cluster.node);
    duty(&mut cluster, node, Duty::Draining);
    cluster.run(30);
    assert!(cluster.memory.assignments[&old].draining.is_none());
    force(&mut cluster, node);
    cluster.observed.outstanding.insert(old, 1);
    assert_eq!(cluster.run(1), [by_force(old)]);
    // Its calls have a minute to end.
    assert_eq!(cluster.run(59), []);
    let stopped = Action::Stop {
        replica: old,
        why: Why::MovedByForce,
    };
    assert_eq!(cluster.run(1), [stopped]);
    assert!(cluster.memory.assignments.is_empty());
    // It is missing, and placed as soon as there is room.
    cluster = cluster.and_node().0;
    let actions = cluster.run(1);
    assert!(matches!(actions[..], [Action::Place { .. }]), "{actions:?}");
}

#[test]
fn a_forced_drain_with_room_elsewhere_moves_as_any_does() {
    let (mut cluster, _) = Cluster::new(1).and_node();
    cluster.run(2);
    let (old, node) = (cluster.only(), cluster.nodes()[0]);
    force(&mut cluster, node);
    let actions = cluster.run(3);
    let moved = Action::Drain {
        replica: old,
        why: Why::Moved,
    };
    assert!(
        matches!(&actions[..], [Action::Place { .. }, drained, ..] if *drained == moved),
        "{actions:?}"
    );
}

#[test]
fn a_forced_drain_stops_only_those_that_have_no_place_elsewhere() {
    let (mut cluster, _) = Cluster::new(2).and_node();
    cluster.run(2);
    let mut nodes = cluster.nodes();
    nodes.dedup();
    // Both on one node, and room for one of them on the other.
    let node = nodes[0];
    for given in cluster.memory.assignments.values_mut() {
        given.node = node;
    }
    for (id, other) in &mut cluster.observed.nodes {
        if *id != node {
            let other = Arc::make_mut(other);
            other.facts.memory.as_mut().unwrap().allocatable = Bytes::mib(1500);
        }
    }
    force(&mut cluster, node);
    let actions = cluster.run(1);
    let forced = actions.iter().filter(|action| {
        matches!(
            action,
            Action::Drain {
                why: Why::MovedByForce,
                ..
            }
        )
    });
    let placed = actions
        .iter()
        .filter(|action| matches!(action, Action::Place { .. }));
    assert_eq!((placed.count(), forced.count()), (1, 1), "{actions:?}");
}

#[test]
fn what_was_forced_to_go_is_kept_when_nobody_forces_it_any_more_and_what_is_held_stays() {
    let mut cluster = Cluster::new(1);
    cluster.run(2);
    let (old, node) = (cluster.only(), cluster.node);
    hold(&mut cluster, node, Some(10));
    force(&mut cluster, node);
    assert_eq!(cluster.run(20), []);
    cluster.intent.at = Timestamp(10);
    cluster.observed.outstanding.insert(old, 1);
    let actions = cluster.run(1);
    assert!(actions.contains(&by_force(old)), "{actions:?}");
    duty(&mut cluster, node, Duty::Cordoned);
    assert_eq!(cluster.run(1), [Action::Keep { replica: old }]);
}

#[test]
fn a_parked_model_has_no_successor_to_wait_for() {
    let (mut cluster, _) = Cluster::new(1).and_node();
    cluster.run(2);
    let (old, node) = (cluster.only(), cluster.nodes()[0]);
    let history = History {
        failures: PARKED_AFTER,
        parked: true,
        ..History::default()
    };
    cluster
        .memory
        .histories
        .insert("m".parse().unwrap(), history);
    duty(&mut cluster, node, Duty::Draining);
    let actions = cluster.run(5);
    let drains = |action: &Action| matches!(action, Action::Drain { .. });
    assert!(!actions.iter().any(drains), "{actions:?}");
    force(&mut cluster, node);
    let actions = cluster.run(1);
    assert!(actions.contains(&by_force(old)), "{actions:?}");
}

#[test]
fn what_was_to_go_is_kept_when_its_successor_fails() {
    let (mut cluster, _) = Cluster::new(1).and_node();
    cluster.run(2);
    let (old, node) = (cluster.only(), cluster.nodes()[0]);
    duty(&mut cluster, node, Duty::Draining);
    cluster.run(1);
    cluster.observed.outstanding.insert(old, 1);
    cluster.run(1);
    assert!(cluster.memory.assignments[&old].draining.is_some());
    let new = *cluster
        .memory
        .assignments
        .keys()
        .find(|id| **id != old)
        .unwrap();
    cluster.now += 1;
    cluster.report(ReplicaState::Ready);
    for at in cluster.observed.nodes.values_mut() {
        let at = Arc::make_mut(at);
        if let Some(status) = at.replicas.get_mut(&new) {
            status.state = ReplicaState::Failed;
        }
    }
    cluster.observed.outstanding.clear();
    let actions = cluster.step();
    assert!(
        actions.contains(&Action::Keep { replica: old }),
        "{actions:?}"
    );
    assert!(cluster.memory.assignments[&old].draining.is_none());
}

#[test]
fn nothing_is_placed_on_or_moved_off_a_node_that_is_held_until_the_hold_ends() {
    let (mut cluster, _) = Cluster::new(1).and_node();
    cluster.run(2);
    let node = cluster.nodes()[0];
    duty(&mut cluster, node, Duty::Draining);
    hold(&mut cluster, node, Some(10));
    assert_eq!(cluster.run(20), []);
    cluster.intent.at = Timestamp(10);
    let actions = cluster.run(5);
    assert!(actions.iter().any(|action| matches!(
        action,
        Action::Drain {
            why: Why::Moved,
            ..
        }
    )));
    hold(&mut cluster, node, None);
    cluster.memory.assignments.clear();
    let other = *cluster
        .observed
        .nodes
        .keys()
        .find(|id| **id != node)
        .unwrap();
    duty(&mut cluster, other, Duty::Cordoned);
    cluster.run(3);
    assert_eq!(cluster.nodes(), []);
}

#[test]
fn what_nobody_knows_is_stopped_after_the_settle_period_and_not_before() {
    let mut cluster = Cluster::new(1);
    cluster.memory.settle_until = seconds(5);
    let model = model(1);
    let orphan = ReplicaSpec {
        model: "gone".parse().unwrap(),
        ..stranger(&model)
    };
    let (one, two) = (stranger(&model), stranger(&model));
    let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
    for spec in [&orphan, &one, &two] {
        let spec = spec.clone();
        node.replicas
            .insert(spec.id, status(spec, ReplicaState::Ready));
    }
    assert_eq!(cluster.step().len(), 3, "all are taken over");
    assert_eq!(cluster.run(4), []);
    let actions = cluster.run(1);
    let drained = |replica, why| Action::Drain { replica, why };
    let younger = one.id.max(two.id);
    assert_eq!(actions.len(), 2, "{actions:?}");
    assert!(actions.contains(&drained(orphan.id, Why::ModelRemoved)));
    assert!(actions.contains(&drained(younger, Why::Surplus)));
}

#[test]
fn a_replica_that_two_nodes_report_is_that_of_the_one_where_it_is_older() {
    let (mut cluster, other) = Cluster::new(1).and_node();
    let spec = stranger(&model(1));
    for (node, since) in [(cluster.node, 20), (other, 10)] {
        let node = Arc::make_mut(cluster.observed.nodes.get_mut(&node).unwrap());
        let status = ReplicaStatus {
            since: Timestamp(since),
            ..status(spec.clone(), ReplicaState::Ready)
        };
        node.replicas.insert(spec.id, status);
    }
    assert_eq!(cluster.step().len(), 1);
    assert_eq!(cluster.nodes(), [other]);
}

#[test]
fn one_crash_loop_beside_a_replica_that_serves_is_not_absolved() {
    let mut cluster = Cluster::new(2);
    cluster.run(70);
    let failing = *cluster.memory.assignments.keys().last().unwrap();
    cluster.now += 1;
    cluster.report(ReplicaState::Ready);
    let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
    node.replicas.get_mut(&failing).unwrap().state = ReplicaState::Failed;
    cluster.step();
    cluster.now += 1;
    cluster.report(ReplicaState::Ready);
    let actions = cluster.step();
    assert!(
        !actions
            .iter()
            .any(|action| matches!(action, Action::Absolve { .. })),
        "{actions:?}"
    );
    assert_eq!(
        cluster.memory.histories.values().next().unwrap().failures,
        1
    );
}
