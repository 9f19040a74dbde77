//! Many nodes that fall silent at once.

use super::*;

fn hear(cluster: &mut Cluster, silent: &[NodeId], span: u64) -> Vec<Action> {
    let mut decided = Vec::new();
    for _ in 0..span {
        cluster.now += 1;
        let last: Vec<_> = silent
            .iter()
            .map(|id| (*id, cluster.observed.nodes[id].clone()))
            .collect();
        cluster.report(ReplicaState::Ready);
        cluster.observed.nodes.extend(last);
        decided.extend(cluster.step());
    }
    decided
}

fn fleet_of(count: usize) -> (Cluster, Vec<NodeId>) {
    let mut cluster = Cluster::new(u32::try_from(count).unwrap());
    while cluster.observed.nodes.len() < count {
        cluster = cluster.and_node().0;
    }
    cluster.memory.settle = seconds(10);
    cluster.run(3);
    assert_eq!(cluster.memory.assignments.len(), count);
    let nodes = cluster.observed.nodes.keys().copied().collect();
    (cluster, nodes)
}

#[test]
fn one_silent_node_of_several_is_lost_and_its_replica_placed_elsewhere() {
    let (mut cluster, nodes) = fleet_of(4);
    let actions = hear(&mut cluster, &nodes[..1], 20);
    assert!(
        matches!(
            &actions[..],
            [
                Action::Forget {
                    why: Why::NodeLost,
                    ..
                },
                Action::Place { .. },
            ]
        ),
        "{actions:?}"
    );
}

#[test]
fn a_third_of_the_nodes_that_falls_silent_at_once_freezes_moves_until_it_is_back() {
    let (mut cluster, nodes) = fleet_of(8);
    // Not to the same second: the first of them is not let go before the others are counted.
    let mut actions = hear(&mut cluster, &nodes[..1], 2);
    actions.extend(hear(&mut cluster, &nodes[..3], 120));
    assert!(
        matches!(&actions[..], [Action::Freeze { silent, of: 8 }] if silent.len() == 3),
        "{actions:?}"
    );
    let frozen = cluster.memory.frozen.clone().unwrap();
    assert_eq!((frozen.silent.len(), frozen.of), (3, 8));
    // One comes back, and two of eight are not too many: after the settle period they are lost like any other.
    let actions = hear(&mut cluster, &nodes[..2], 1);
    assert_eq!(actions[0], Action::Thaw);
    assert!(cluster.memory.settle_until > seconds(cluster.now + 8));
    let actions = hear(&mut cluster, &nodes[..2], 30);
    let placed = actions
        .iter()
        .filter(|action| matches!(action, Action::Place { .. }));
    assert_eq!(placed.count(), 2, "{actions:?}");
}

#[test]
fn all_nodes_silent_loses_nothing_and_an_operator_may_say_that_they_are_gone() {
    let (mut cluster, nodes) = fleet_of(2);
    let actions = hear(&mut cluster, &nodes, 100);
    assert!(
        matches!(&actions[..], [Action::Freeze { .. }]),
        "{actions:?}"
    );
    assert_eq!(cluster.memory.assignments.len(), 2);
    assert!(cluster.memory.thaw(seconds(cluster.now)));
    let actions = hear(&mut cluster, &nodes, 30);
    let gone = actions
        .iter()
        .filter(|action| matches!(action, Action::Forget { .. }));
    assert_eq!(gone.count(), 2, "{actions:?}");
    assert!(
        !actions
            .iter()
            .any(|action| matches!(action, Action::Freeze { .. }))
    );
    // Heard again, they count again.
    hear(&mut cluster, &[], 15);
    assert!(cluster.memory.given_up.is_empty());
}

#[test]
fn a_node_that_says_that_it_ends_is_not_silent() {
    let (mut cluster, nodes) = fleet_of(3);
    for node in &nodes[..2] {
        Arc::make_mut(cluster.observed.nodes.get_mut(node).unwrap()).left = true;
    }
    let actions = hear(&mut cluster, &nodes[..2], 2);
    assert!(
        !actions
            .iter()
            .any(|action| matches!(action, Action::Freeze { .. })),
        "{actions:?}"
    );
}
