use std::collections::BTreeMap;

use llmgw_core::{
    cluster::{engine::ProvisionState, node::NodeState},
    id::{ModelName, NodeId, ReplicaId},
    reason::{Check, render},
};
use proptest::prelude::*;

use super::*;
use crate::fleet::FleetReplica;

fn node(number: u128, memory: Bytes) -> FleetNode {
    let installed = ProvisionState::Installed {
        version: "1".into(),
        variant: "path".into(),
    };
    FleetNode {
        id: NodeId::from_uuid(uuid(number)),
        hostname: format!("node-{number}"),
        state: NodeState::Ready,
        memory_allocatable: Some(memory),
        disk_free: Some(Bytes::gib(100)),
        engines: BTreeMap::from([("llamacpp".parse().unwrap(), installed)]),
        replicas: Vec::new(),
    }
}

fn uuid(number: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(number)
}

fn model(name: &str, replicas: u32, memory: &[Bytes]) -> Model {
    let profiles: Vec<serde_json::Value> = memory
        .iter()
        .enumerate()
        .map(|(index, memory)| serde_json::json!({"name": format!("p{index}"), "memory": memory}))
        .collect();
    serde_json::from_value(serde_json::json!({
        "name": name, "source": "file:/m.gguf", "replicas": replicas, "profiles": profiles,
    }))
    .unwrap()
}

fn wanted(models: &[Model]) -> Wanted {
    Wanted {
        models: models.to_vec(),
    }
}

#[test]
fn the_tightest_fit_wins() {
    let fleet = Fleet {
        nodes: vec![node(1, Bytes::gib(64)), node(2, Bytes::gib(8))],
    };
    let (plan, reports) = plan(&fleet, &wanted(&[model("m", 1, &[Bytes::gib(4)])]));
    assert_eq!(plan.placements[0].hostname, "node-2");
    assert_eq!(reports[0].fits.as_ref().unwrap().hostname, "node-2");
}

#[test]
fn replicas_of_one_model_go_to_different_nodes() {
    let fleet = Fleet {
        nodes: vec![node(1, Bytes::gib(64)), node(2, Bytes::gib(8))],
    };
    let (plan, _) = plan(&fleet, &wanted(&[model("m", 2, &[Bytes::gib(1)])]));
    let nodes: Vec<&str> = plan
        .placements
        .iter()
        .map(|p| p.hostname.as_str())
        .collect();
    assert_eq!(nodes, ["node-2", "node-1"]);
}

#[test]
fn profiles_are_tried_in_the_models_order() {
    let fleet = Fleet {
        nodes: vec![node(1, Bytes::gib(8))],
    };
    let (plan, _) = plan(
        &fleet,
        &wanted(&[model("m", 1, &[Bytes::gib(9), Bytes::gib(3)])]),
    );
    assert_eq!(plan.placements[0].profile.as_str(), "p1");
}

#[test]
fn every_failing_check_of_every_node_is_said() {
    let mut cordoned = node(1, Bytes::gib(2));
    cordoned.state = NodeState::Cordoned;
    cordoned.engines.clear();
    let mut silent = node(2, Bytes::gib(2));
    silent.memory_allocatable = None;
    let fleet = Fleet {
        nodes: vec![silent, cordoned, node(3, Bytes::gib(300))],
    };
    let report = trial(&fleet, &model("big", 1, &[Bytes(400_000_000_000)]));
    let checks: Vec<Vec<Check>> = report
        .rejections
        .iter()
        .map(|rejection| {
            rejection
                .reasons
                .iter()
                .map(|reason| reason.check)
                .collect()
        })
        .collect();
    assert_eq!(
        checks,
        [
            vec![Check::Node, Check::Engine, Check::Memory],
            vec![Check::Memory],
            vec![Check::Memory]
        ]
    );
    assert_eq!(
        report
            .summary
            .iter()
            .map(|count| count.nodes)
            .sum::<usize>(),
        3
    );
    let headline = render::headline(&report);
    assert!(
        headline.contains("needs 372.5 GiB, has 300.0 GiB free, short by 72.5 GiB"),
        "{headline}"
    );
    assert!(render::table(&report).contains("372.5 GiB / 300.0 GiB  short 72.5 GiB"));
}

#[test]
fn an_engine_that_is_being_installed_is_worth_the_wait() {
    let mut installing = node(1, Bytes::gib(8));
    let state = ProvisionState::Installing {
        step: "downloading".into(),
        percent: Some(43),
    };
    installing.engines = BTreeMap::from([("llamacpp".parse().unwrap(), state)]);
    let report = trial(
        &Fleet {
            nodes: vec![installing],
        },
        &model("m", 1, &[Bytes::gib(1)]),
    );
    let wait = "node-1: llamacpp is installing: downloading (43 %)";
    assert_eq!(report.pending.as_deref(), Some(wait));
    assert_eq!(report.remedies, [format!("wait: {wait}")]);
}

#[test]
fn stopping_another_model_is_offered_only_when_it_helps() {
    let mut full = node(1, Bytes::gib(8));
    for (number, name, memory) in [(7, "small", 1), (8, "large", 6)] {
        full.replicas.push(FleetReplica {
            id: ReplicaId::from_uuid(uuid(number)),
            model: name.parse().unwrap(),
            memory: Bytes::gib(memory),
            leaving: false,
        });
    }
    let report = trial(
        &Fleet { nodes: vec![full] },
        &model("m", 1, &[Bytes::gib(4)]),
    );
    assert_eq!(report.remedies.len(), 1);
    assert!(
        report.remedies[0].contains("of large on node-1"),
        "{:?}",
        report.remedies
    );
}

#[test]
fn no_node_at_all_is_said_as_such() {
    let report = trial(&Fleet::default(), &model("m", 1, &[Bytes::gib(4)]));
    assert_eq!(
        render::headline(&report),
        "m is not placed: no node has joined yet"
    );
    assert_eq!(
        report.remedies,
        ["add a node: p0 with 4.0 GiB free is enough"]
    );
}

fn any_fleet() -> impl Strategy<Value = Fleet> {
    let replica = (0..4u8, 0..8u64);
    let any_node = (0..40u64, 0..6u8, proptest::collection::vec(replica, 0..3));
    proptest::collection::vec(any_node, 0..8).prop_map(|nodes| Fleet {
        nodes: nodes
            .into_iter()
            .enumerate()
            .map(|(index, (memory, state, replicas))| {
                let number = u128::try_from(index).unwrap() + 1;
                let mut node = node(number, Bytes::gib(memory));
                if state == 0 {
                    node.state = NodeState::Cordoned;
                }
                if state == 1 {
                    node.memory_allocatable = None;
                }
                node.replicas = replicas
                    .into_iter()
                    .enumerate()
                    .map(|(at, (model, memory))| FleetReplica {
                        id: ReplicaId::from_uuid(uuid(number * 100 + u128::try_from(at).unwrap())),
                        model: format!("m{model}").parse().unwrap(),
                        memory: Bytes::gib(memory),
                        leaving: false,
                    })
                    .collect();
                node
            })
            .collect(),
    })
}

fn any_wanted() -> impl Strategy<Value = Wanted> {
    let any_model = (1..4u32, proptest::collection::vec(1..30u64, 1..3));
    proptest::collection::vec(any_model, 0..4).prop_map(|models| Wanted {
        models: models
            .into_iter()
            .enumerate()
            .map(|(index, (replicas, memory))| {
                let memory: Vec<Bytes> = memory.into_iter().map(Bytes::gib).collect();
                model(&format!("m{index}"), replicas, &memory)
            })
            .collect(),
    })
}

/// The fleet after a plan was carried out.
fn applied(fleet: &Fleet, plan: &Plan) -> Fleet {
    let mut fleet = fleet.clone();
    for (index, placement) in plan.placements.iter().enumerate() {
        let node = fleet
            .nodes
            .iter_mut()
            .find(|node| node.id == placement.node)
            .unwrap();
        node.replicas.push(FleetReplica {
            id: ReplicaId::from_uuid(uuid(1_000_000 + u128::try_from(index).unwrap())),
            model: placement.model.clone(),
            memory: placement.memory,
            leaving: false,
        });
    }
    fleet
}

proptest! {
    #[test]
    fn no_node_is_ever_promised_more_than_it_has(fleet in any_fleet(), wanted in any_wanted()) {
        let (plan, _) = plan(&fleet, &wanted);
        let after = applied(&fleet, &plan);
        for (before, after) in fleet.nodes.iter().zip(&after.nodes) {
            if after.replicas.len() > before.replicas.len() {
                prop_assert!(after.memory_reserved() <= after.memory_allocatable.unwrap());
                prop_assert_eq!(after.state, NodeState::Ready);
            }
        }
    }

    #[test]
    fn the_order_of_the_input_changes_nothing(fleet in any_fleet(), wanted in any_wanted()) {
        let mut turned = (fleet.clone(), wanted.clone());
        turned.0.nodes.reverse();
        turned.1.models.reverse();
        prop_assert_eq!(plan(&fleet, &wanted), plan(&turned.0, &turned.1));
    }

    #[test]
    fn planning_again_after_a_plan_changes_nothing(fleet in any_fleet(), wanted in any_wanted()) {
        let (first, _) = plan(&fleet, &wanted);
        let (second, _) = plan(&applied(&fleet, &first), &wanted);
        prop_assert_eq!(second, Plan::default());
    }

    #[test]
    fn every_node_is_counted_once(fleet in any_fleet(), wanted in any_wanted()) {
        for report in plan(&fleet, &wanted).1 {
            if report.fits.is_none() {
                let counted: usize = report.summary.iter().map(|count| count.nodes).sum();
                prop_assert_eq!(counted, fleet.nodes.len());
                prop_assert_eq!(report.rejections.len(), report.nodes * report.profiles);
            }
        }
    }

    #[test]
    fn another_node_never_unplaces_what_was_placed(fleet in any_fleet(), wanted in any_wanted()) {
        let (before, _) = plan(&fleet, &wanted);
        let mut larger = fleet;
        larger.nodes.push(node(9_999, Bytes::gib(1_000)));
        let (after, _) = plan(&larger, &wanted);
        prop_assert!(count(&after).iter().all(|(name, n)| count(&before).get(name).is_none_or(|m| m <= n)));
        prop_assert!(before.placements.len() <= after.placements.len());
    }
}

fn count(plan: &Plan) -> BTreeMap<ModelName, usize> {
    let mut counts = BTreeMap::new();
    for placement in &plan.placements {
        *counts.entry(placement.model.clone()).or_insert(0) += 1;
    }
    counts
}
