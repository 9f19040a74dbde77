//! Pools of nodes, by their labels.

use llmgw_core::cluster::order::{Duty, Hold, HoldScope, NodeOrder};

use super::*;

/// Two nodes, of which the second is in the pool `fast`.
fn one_of_two() -> (Cluster, NodeId) {
    let (mut cluster, fast) = Cluster::new(1).and_node();
    let node = Arc::make_mut(cluster.observed.nodes.get_mut(&fast).unwrap());
    node.facts.labels = [("gpu".to_owned(), "h200".to_owned())].into();
    let labels = [("gpu".to_owned(), "h200".to_owned())];
    let pools = [("fast".to_owned(), labels.into())];
    cluster.intent.pools = Arc::new(Pools::checked(pools.into()).unwrap());
    (cluster, fast)
}

fn asks_for(cluster: &mut Cluster, pool: &str) {
    let asking: Model = serde_json::from_value(serde_json::json!({
        "name": "m", "source": "file:/m.gguf", "replicas": 3,
        "profiles": [{"memory": "1GiB", "pool": pool}],
    }))
    .unwrap();
    cluster.intent.models.insert(asking.name().clone(), asking);
}

#[test]
fn a_model_of_a_pool_runs_on_the_nodes_of_that_pool_alone() {
    let (mut cluster, fast) = one_of_two();
    asks_for(&mut cluster, "fast");
    cluster.run(2);
    assert_eq!(cluster.nodes(), [fast; 3]);
    // No other can have it, with the reason.
    let node = Arc::make_mut(cluster.observed.nodes.get_mut(&fast).unwrap());
    node.facts.labels.clear();
    node.replicas.clear();
    cluster.memory.assignments.clear();
    let now = seconds(cluster.now);
    let step = step(&cluster.intent, &cluster.observed, &cluster.memory, now);
    let report = step.reports.values().next().unwrap();
    let reasons = report.rejections.iter().flat_map(|one| &one.reasons);
    let told: Vec<&str> = reasons.map(|reason| reason.detail.as_str()).collect();
    assert_eq!(told, ["not in pool fast", "not in pool fast"]);
}

#[test]
fn a_hold_of_a_pool_keeps_what_its_nodes_have_and_lets_nothing_in() {
    let (mut cluster, fast) = one_of_two();
    asks_for(&mut cluster, "fast");
    cluster.run(2);
    cluster.order(Order::Hold(Hold {
        name: "h".parse().unwrap(),
        scope: HoldScope::Pool("fast".into()),
        reason: String::new(),
        until: Some(Timestamp(10)),
    }));
    cluster.order(Order::Node(NodeOrder {
        node: fast,
        duty: Duty::Draining,
        reason: String::new(),
        force: true,
    }));
    assert_eq!(cluster.run(20), []);
    cluster.intent.at = Timestamp(10);
    assert!(!cluster.run(1).is_empty());
}

#[test]
fn an_engine_of_a_pool_is_awaited_on_the_nodes_of_that_pool_alone() {
    let (mut cluster, fast) = one_of_two();
    cluster.intent.engines = vec![Wish {
        engine: "vllm".parse().unwrap(),
        pool: Some("fast".to_owned()),
    }];
    let now = seconds(cluster.now);
    let fleet = fleet(&cluster.intent, &cluster.observed, &cluster.memory, now);
    let vllm: EngineName = "vllm".parse().unwrap();
    for node in fleet.nodes {
        let told = node.engines.get(&vllm);
        let expected = (node.id == fast).then_some(&ProvisionState::Pending);
        assert_eq!(told, expected);
    }
}
