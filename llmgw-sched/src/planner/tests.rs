use std::collections::BTreeMap;

use llmgw_core::{
    cluster::{engine::ProvisionState, node::NodeState},
    id::{ModelName, NodeId, ReplicaId},
    reason::{Check, render},
};

use super::*;
use crate::fleet::{FleetNode, FleetReplica, Phase};

mod properties;
mod remedies;
mod situations;

fn node(number: u128, memory: Bytes) -> FleetNode {
    let installed = ProvisionState::Installed {
        version: "1".into(),
        variant: "path".into(),
    };
    FleetNode {
        memory_allocatable: Some(memory),
        disk_free: Some(Bytes::gib(100)),
        engines: BTreeMap::from([("llamacpp".parse().unwrap(), installed)]),
        ..FleetNode::named(NodeId::from_uuid(uuid(number)), format!("node-{number}"))
    }
}

fn fleet_of(nodes: Vec<FleetNode>) -> Fleet {
    Fleet {
        nodes,
        ..Fleet::default()
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
    let fleet = fleet_of(vec![node(1, Bytes::gib(64)), node(2, Bytes::gib(8))]);
    let (plan, reports) = plan(&fleet, &wanted(&[model("m", 1, &[Bytes::gib(4)])]));
    assert_eq!(plan.placements[0].hostname, "node-2");
    assert_eq!(reports[0].fits.as_ref().unwrap().hostname, "node-2");
}

#[test]
fn replicas_of_one_model_go_to_different_nodes() {
    let fleet = fleet_of(vec![node(1, Bytes::gib(64)), node(2, Bytes::gib(8))]);
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
    let fleet = fleet_of(vec![node(1, Bytes::gib(8))]);
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
    let fleet = fleet_of(vec![silent, cordoned, node(3, Bytes::gib(300))]);
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
        transfer: None,
        eta_seconds: Some(130),
    };
    installing.engines = BTreeMap::from([("llamacpp".parse().unwrap(), state)]);
    let report = trial(
        &fleet_of(vec![installing]),
        &model("m", 1, &[Bytes::gib(1)]),
    );
    let wait = "node-1: llamacpp is installing: downloading (43 %)";
    assert_eq!(report.pending.as_deref(), Some(wait));
    assert_eq!(report.remedies.len(), 1);
    assert_eq!(
        report.remedies[0].to_string(),
        format!("{wait}: places on node-1 with p0")
    );
    assert_eq!(report.remedies[0].when(), "in ~2 min");
}

#[test]
fn stopping_another_model_is_offered_only_when_it_helps() {
    let mut full = node(1, Bytes::gib(8));
    for (number, name, memory) in [(7, "small", 1), (8, "large", 6)] {
        full.replicas.push(FleetReplica::serving(
            ReplicaId::from_uuid(uuid(number | 1 << 100)),
            name.parse().unwrap(),
            Bytes::gib(memory),
        ));
    }
    let report = trial(&fleet_of(vec![full]), &model("m", 1, &[Bytes::gib(4)]));
    assert_eq!(report.remedies.len(), 1);
    assert!(
        report.remedies[0]
            .to_string()
            .contains("of large on node-1"),
        "{:?}",
        report.remedies
    );
}

#[test]
fn no_node_at_all_is_said_as_such() {
    let report = trial(&Fleet::default(), &model("m", 1, &[Bytes::gib(4)]));
    assert_eq!(
        render::headline(&report),
        "m is not placed: there is no node"
    );
    assert_eq!(
        report.remedies[0].to_string(),
        "add a node with 4.0 GiB of memory (profile p0) free"
    );
}

#[test]
fn a_shard_that_no_node_could_ever_hold_is_refused_with_its_path() {
    let sharded = |memory: &str| -> Model {
        serde_json::from_value(serde_json::json!({
            "name": "m", "source": "file:/m.gguf",
            "profiles": [{"memory": "1GiB"}, {"name": "two", "memory": memory, "shards": {"count": 2}}],
        }))
        .unwrap()
    };
    let mut full = node(1, Bytes::gib(8));
    full.replicas.push(FleetReplica::serving(
        ReplicaId::from_uuid(uuid(7)),
        "other".parse().unwrap(),
        Bytes::gib(8),
    ));
    let fleet = fleet_of(vec![full]);
    // Full now is no error: it may be empty again.
    assert_eq!(wanted(&[sharded("8GiB")]).check(&fleet), []);
    let errors = wanted(&[sharded("9GiB")]).check(&fleet);
    assert_eq!(
        errors[0].to_string(),
        "models[0].profiles[1].shards: one shard of m is larger than any of the 1 nodes"
    );
}

#[test]
fn fallbacks_that_lead_nowhere_or_in_a_circle_are_said_before_anything_is_planned() {
    let falling_back = |name: &str, to: &str| -> Model {
        serde_json::from_value(serde_json::json!({
            "name": name, "fallbacks": [to], "source": "file:/m.gguf",
            "profiles": [{"memory": "1GiB"}],
        }))
        .unwrap()
    };
    let models = [
        falling_back("a", "b"),
        falling_back("b", "a"),
        falling_back("c", "d"),
    ];
    let errors = wanted(&models).check(&fleet_of(Vec::new()));
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let expected = [
        "models[0].fallbacks[0]: fallbacks lead in a circle: a -> b -> a",
        "models[2].fallbacks[0]: missing fallback: there is no model d",
    ];
    assert_eq!(errors, expected);
}

#[test]
fn a_snapshot_in_order_is_not_copied() {
    let ordered = fleet_of(vec![node(1, Bytes::gib(8)), node(2, Bytes::gib(8))]);
    assert!(matches!(ordered.in_order(), std::borrow::Cow::Borrowed(_)));
    let turned = fleet_of(vec![node(2, Bytes::gib(8)), node(1, Bytes::gib(8))]);
    assert_eq!(*turned.in_order(), ordered);
}

#[test]
fn labels_that_no_node_of_the_pool_can_have_are_refused() {
    let mut fleet = fleet_of(vec![node(1, Bytes::gib(8))]);
    let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
    fleet.pools.insert("north".into(), labels);
    let wanted = |zone: &str| -> Wanted {
        serde_json::from_value(serde_json::json!({"models": [{
            "name": "m", "source": "file:/m.gguf",
            "profiles": [{"memory": "1GiB", "pool": "north", "labels": {"zone": zone}}],
        }]}))
        .unwrap()
    };
    assert_eq!(wanted("a").check(&fleet), []);
    let errors = wanted("b").check(&fleet);
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].field, "models[0].profiles[0].labels.zone");
}

/// An agent may say anything of its GPUs; sums of that are no reason to end.
#[test]
fn absurd_sizes_overflow_nothing() {
    let gpu = |index| crate::fleet::FleetGpu {
        index,
        class: None,
        memory: Some(Bytes(u64::MAX)),
        in_use: false,
        fault: None,
    };
    let absurd = FleetNode {
        gpus: Some((0..8).map(gpu).collect()),
        cpu: Some(llmgw_core::units::Cores(u64::MAX)),
        ..node(1, Bytes(u64::MAX))
    };
    let wanted: Wanted = serde_json::from_value(serde_json::json!({"models": [{
        "name": "m", "source": "file:/m.gguf", "replicas": 3,
        "profiles": [{"memory": "1024TiB", "gpus": {"count": 2, "memory": "1024TiB"}}],
    }]}))
    .unwrap();
    for policy in [
        PolicyName::Scarcity,
        PolicyName::FragmentationGradient,
        PolicyName::BestFit,
        PolicyName::DotProduct,
        PolicyName::Packing,
        PolicyName::Clustering,
        PolicyName::Spread,
    ] {
        let options = Options {
            policy,
            ..Options::default()
        };
        let (plan, _) = plan_with(&fleet_of(vec![absurd.clone()]), &wanted, &options);
        assert_eq!(plan.placements.len(), 1, "{policy}");
    }
    assert!(!fleet_of(vec![absurd]).check().is_empty());
    let too_much = serde_json::json!({
        "name": "m", "source": "file:/m.gguf", "profiles": [{"memory": "2048TiB"}],
    });
    let error = serde_json::from_value::<Model>(too_much).unwrap_err();
    assert!(error.to_string().contains("profiles[0].memory"), "{error}");
}

/// What leaves a node would fit there best of all.
#[test]
fn a_node_that_is_emptied_is_not_the_nearest_place_where_another_comes_close() {
    let model = model("m", 1, &[Bytes::gib(4)]);
    let drained = FleetNode {
        state: NodeState::Draining,
        replicas: vec![FleetReplica::serving(
            ReplicaId::imagined(1),
            model.name().clone(),
            Bytes::gib(4),
        )],
        ..node(1, Bytes::gib(64))
    };
    let (_, reports) = plan(
        &fleet_of(vec![drained, node(2, Bytes::gib(3))]),
        &wanted(&[model]),
    );
    let nearest = reports[0].nearest.as_ref().unwrap();
    assert_eq!(nearest.hostname, "node-2");
}

/// Twenty nodes must not each believe that they own the filer's last terabyte.
#[test]
fn a_shared_disk_is_filled_once_for_all_who_use_it() {
    let model = |name: &str| -> Model {
        serde_json::from_value(serde_json::json!({
            "name": name, "source": "https://weights.example/m.gguf", "size": "60GiB",
            "sha256": "a".repeat(64), "profiles": [{"memory": "4GiB"}],
        }))
        .unwrap()
    };
    let on = |number, disk: Option<&str>, free| FleetNode {
        disk_id: disk.map(str::to_owned),
        disk_shared: disk.is_some(),
        disk_free: Some(Bytes::gib(free)),
        ..node(number, Bytes::gib(8))
    };
    let placed = |nodes| {
        let wanted = Wanted {
            models: vec![model("a"), model("b"), model("c")],
        };
        let (plan, reports) = plan(&fleet_of(nodes), &wanted);
        let lacking = reports.into_iter().filter(|report| report.missing > 0);
        (
            plan.placements.len(),
            lacking
                .map(|report| render::headline(&report))
                .collect::<Vec<_>>(),
        )
    };
    let filer = Some("filer:/models");
    // The second looked a little later, when less was free.
    let (count, lacking) = placed(vec![on(1, filer, 130), on(2, filer, 125)]);
    assert_eq!(count, 2);
    let expected = "disk: needs 60.0 GiB, has 5.0 GiB free, short by 55.0 GiB";
    assert!(lacking[0].ends_with(expected), "{lacking:?}");
    // Disks of their own, and disks of which nobody said that they are one.
    assert_eq!(placed(vec![on(1, None, 130), on(2, None, 125)]).0, 3);
    assert_eq!(
        placed(vec![on(1, filer, 130), on(2, Some("other"), 125)]).0,
        3
    );
}
