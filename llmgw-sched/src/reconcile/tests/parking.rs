//! Parking outlives a take-over.

use llmgw_core::cluster::order::{Parked, Subject};

use super::{demand::name, *};

fn park(cluster: &mut Cluster) -> Parked {
    let mut parked = None;
    for _ in 0..PARKED_AFTER {
        cluster.step();
        cluster.report(ReplicaState::Failed);
        let actions = cluster.step();
        for action in actions {
            if let Action::Park { parked: told, .. } = action {
                parked = Some(told);
            }
        }
        cluster.now += 64;
        cluster.report(ReplicaState::Failed);
    }
    parked.unwrap()
}

#[test]
fn a_new_leader_knows_what_was_parked_and_why() {
    let mut cluster = Cluster::new(1);
    let parked = park(&mut cluster);
    assert_eq!(
        (parked.failures, &parked.first_log[..]),
        (5, &["last words".to_owned()][..])
    );
    let model = name();
    cluster.order(Order::Park {
        model: model.clone(),
        parked,
    });
    // Nothing is remembered but the order.
    cluster.memory = Memory::default();
    assert!(matches!(cluster.run(1)[..], [Action::Recall { .. }]));
    assert_eq!(cluster.run(100), []);
    let history = &cluster.memory.histories[&model];
    assert!(history.parked);
    assert_eq!(history.first_log, ["last words"]);

    // Scaled otherwise it stays parked; with another source it is tried again.
    let scaled = cluster
        .intent
        .models
        .remove(&model)
        .unwrap()
        .scaled(Scaling::fixed(2));
    cluster.intent.models.insert(model.clone(), scaled);
    assert_eq!(cluster.run(5), []);
    let other: Model = serde_json::from_value(serde_json::json!({
        "name": "m", "source": "file:/other.gguf", "profiles": [{"memory": "1GiB"}],
    }))
    .unwrap();
    cluster.intent.models.insert(model.clone(), other);
    let actions = cluster.run(1);
    assert!(
        matches!(&actions[..], [Action::Unpark { .. }, Action::Place { .. }]),
        "{actions:?}"
    );
    Arc::make_mut(&mut cluster.intent.orders).lift(&Subject::Park(model));
    assert_eq!(cluster.run(5), []);
}

#[test]
fn what_is_not_written_down_is_said_again_and_not_every_second() {
    let mut cluster = Cluster::new(1);
    park(&mut cluster);
    let told = cluster.run(20);
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(
        told.iter()
            .all(|action| matches!(action, Action::Park { .. }))
    );
}

#[test]
fn a_reason_is_warned_of_when_it_changes_and_every_ten_minutes() {
    let mut cluster = Cluster::new(1);
    let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
    node.facts.memory.as_mut().unwrap().allocatable = Bytes::mib(100);
    let warned = |actions: Vec<Action>| {
        let warned = actions
            .iter()
            .filter(|action| matches!(action, Action::Warn { .. }));
        warned.count()
    };
    assert_eq!(warned(cluster.run(599)), 1);
    // Other numbers are no other reason.
    let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
    node.facts.memory.as_mut().unwrap().allocatable = Bytes::mib(200);
    assert_eq!(warned(cluster.run(1)), 0);
    assert_eq!(warned(cluster.run(1)), 1);
    let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
    node.provision.clear();
    node.facts.memory = None;
    assert_eq!(warned(cluster.run(10)), 1);
}
