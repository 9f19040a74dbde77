//! What holds of every plan.

use std::collections::BTreeMap;

use llmgw_core::units::Cores;
use proptest::prelude::*;

use super::*;
use crate::{
    fleet::{Fabric, FleetGpu, GpuShare},
    planner::{
        filter::failing,
        room::{Room, Slot},
    },
};

/// A replica that runs: its model, main memory, the part of a GPU that it holds (8 is all of it), its phase.
type Runs = (u8, u64, u8, u8);

pub(super) fn any_fleet() -> impl Strategy<Value = Fleet> {
    let runs: BoxedStrategy<Runs> = (0..16u8, 0..5u64, 0..9u8, 0..6u8).boxed();
    let gpus = proptest::collection::vec((0..3u8, 1..5u64), 0..5);
    let any_node = (
        0..40u64,
        0..12u8,
        gpus,
        0..9u32,
        proptest::collection::vec(runs, 0..4),
    );
    proptest::collection::vec(any_node, 0..8).prop_map(|nodes| {
        let nodes = nodes.into_iter().zip(1u32..);
        fleet_of(
            nodes
                .map(|((memory, state, gpus, cores, runs), number)| {
                    let mut node = node(number.into(), Bytes::gib(memory));
                    node.cpu = (cores > 0).then(|| Cores::whole(cores));
                    node.gpus =
                        (state != 2).then(|| gpus.into_iter().zip(0..).map(any_gpu).collect());
                    node.labels.insert("half".into(), (number % 2).to_string());
                    node.fabrics = vec![Fabric {
                        name: format!("ib-{}", number % 2),
                        kind: "infiniband".into(),
                    }];
                    match state {
                        0 => node.state = NodeState::Cordoned,
                        1 => node.memory_allocatable = None,
                        3 => node.state = NodeState::Draining,
                        _ => {}
                    }
                    let runs = runs.into_iter().zip(0u32..);
                    node.replicas = runs
                        .map(|(run, at)| any_replica(&node, number * 100 + at, run))
                        .collect();
                    node
                })
                .collect(),
        )
    })
}

fn any_gpu(((class, memory), index): ((u8, u64), u32)) -> FleetGpu {
    FleetGpu {
        index: index * 2,
        class: (class > 0).then(|| format!("C{class}")),
        memory: (memory > 1).then(|| Bytes::gib(memory * 8)),
        in_use: false,
        fault: (class == 2 && memory == 4).then(|| "fell off the bus".to_owned()),
    }
}

fn any_replica(node: &FleetNode, id: u32, (model, memory, part, phase): Runs) -> FleetReplica {
    let gpus = node.gpus.iter().flatten();
    // Replicas hold what they could be given: a free part, or a whole GPU that nobody has.
    let held = |index: u32| {
        node.replicas
            .iter()
            .flat_map(|r| &r.gpus)
            .any(|share| share.index == index)
    };
    let share = gpus.filter(|gpu| !held(gpu.index)).map(|gpu| GpuShare {
        index: gpu.index,
        memory: gpu
            .memory
            .filter(|_| part < 8)
            .map(|size| Bytes(size.0 / 8 * u64::from(part))),
    });
    FleetReplica {
        gpus: share.take(usize::from(part.min(1))).collect(),
        phase: match phase {
            0 => Phase::Starting,
            1 => Phase::Leaving,
            _ => Phase::Ready,
        },
        on_demand: phase == 2,
        idle_seconds: (phase == 2).then_some(3_600),
        ..FleetReplica::serving(
            ReplicaId::from_uuid(uuid(u128::from(id) | 1 << 100)),
            format!("m{model}").parse().unwrap(),
            Bytes::gib(memory),
        )
    }
}

fn any_profile() -> impl Strategy<Value = serde_json::Value> {
    let gpus = prop_oneof![
        2 => Just(serde_json::Value::Null),
        3 => (1..4u32, 0..4u64, 0..5u8).prop_map(|(count, memory, class)| {
            let mut gpus = serde_json::json!({"count": count});
            if memory > 0 {
                gpus["memory"] = ((memory * 5) << 30).into();
            }
            if class > 0 && class < 3 {
                gpus["class"] = format!("c{class}").into();
            }
            gpus
        }),
    ];
    (1..12u64, gpus, 0..4u32, 0..10u8).prop_map(|(memory, gpus, cpu, extra)| {
        let mut profile = serde_json::json!({"memory": memory << 30});
        if !gpus.is_null() {
            profile["gpus"] = gpus;
        }
        if cpu > 0 {
            profile["cpu"] = cpu.into();
        }
        match extra {
            0 => profile["labels"] = serde_json::json!({"half": "1"}),
            1 => profile["shards"] = serde_json::json!({"count": 2}),
            2 => {
                profile["shards"] = serde_json::json!({"count": 2, "split": "tensor"});
                profile["fabric"] = serde_json::json!({"name": "infiniband", "required": true});
            }
            3 => profile["prefer"] = "pack".into(),
            _ => {}
        }
        profile
    })
}

pub(super) fn any_wanted() -> impl Strategy<Value = Wanted> {
    let any_model = (1..6u32, proptest::collection::vec(any_profile(), 1..3));
    proptest::collection::vec(any_model, 0..4).prop_map(|models| Wanted {
        models: models
            .into_iter()
            .enumerate()
            .map(|(index, (replicas, mut profiles))| {
                for (at, profile) in profiles.iter_mut().enumerate() {
                    profile["name"] = format!("p{at}").into();
                }
                serde_json::from_value(serde_json::json!({
                    "name": format!("m{index}"), "source": "file:/m.gguf", "replicas": replicas, "profiles": profiles,
                }))
                .unwrap()
            })
            .collect(),
    })
}

fn any_options() -> impl Strategy<Value = Options> {
    let policy = prop_oneof![
        Just(PolicyName::Scarcity),
        Just(PolicyName::FragmentationGradient),
        Just(PolicyName::BestFit),
        Just(PolicyName::DotProduct),
        Just(PolicyName::Packing),
        Just(PolicyName::Clustering),
        Just(PolicyName::Spread),
    ];
    (policy, any::<bool>()).prop_map(|(policy, evicts)| Options {
        policy,
        ties: Ties::HashOfId,
        evict_after_seconds: evicts.then_some(60),
        ..Options::default()
    })
}

/// What each node has left.
fn rooms(fleet: &Fleet) -> Vec<Room> {
    let sorted = fleet.sorted();
    let working = begin(&sorted, &Wanted::default(), &Options::default());
    (0..sorted.nodes.len())
        .map(|node| working.room(node).unwrap().clone())
        .collect()
}

fn lacks(account: Option<i64>) -> i64 {
    account.map_or(0, |left| left.min(0))
}

/// A GPU that was promised more than it has, or wholly to one and in part to another.
fn overfull(slot: &Slot) -> bool {
    slot.size.is_some_and(|size| slot.promised > size) || slot.size.is_none() && slot.holders > 1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn capacity_is_never_exceeded_on_any_axis(
        fleet in any_fleet(), wanted in any_wanted(), options in any_options(),
    ) {
        prop_assert!(fleet.check().is_empty(), "{:?}", fleet.check());
        let (plan, _) = plan_with(&fleet, &wanted, &options);
        let after = plan.carried_out(&fleet, &wanted);
        prop_assert!(after.check().is_empty(), "{:?}", after.check());
        for (before, after) in rooms(&fleet).iter().zip(rooms(&after)) {
            prop_assert!(lacks(after.memory) >= lacks(before.memory));
            prop_assert!(lacks(after.cpu) >= lacks(before.cpu));
            for (before, after) in before.slots().iter().zip(after.slots()) {
                prop_assert!(!overfull(after) || overfull(before), "{after:?}");
            }
        }
        for placement in &plan.placements {
            let on = after.nodes.iter().find(|node| node.id == placement.node).unwrap();
            prop_assert_eq!(on.state, NodeState::Ready);
        }
    }

    #[test]
    fn the_order_of_the_input_changes_nothing(
        fleet in any_fleet(), wanted in any_wanted(), options in any_options(),
    ) {
        let mut turned = (fleet.clone(), wanted.clone());
        turned.0.nodes.reverse();
        for node in &mut turned.0.nodes {
            node.replicas.reverse();
            node.gpus.iter_mut().for_each(|gpus| gpus.reverse());
        }
        turned.1.models.reverse();
        prop_assert_eq!(
            plan_with(&fleet, &wanted, &options),
            plan_with(&turned.0, &turned.1, &options)
        );
    }

    #[test]
    fn planning_again_after_a_plan_changes_nothing(
        fleet in any_fleet(), wanted in any_wanted(), options in any_options(),
    ) {
        // What could not be placed may fit once something else has stopped; what was placed stays as it is.
        let (first, _) = plan_with(&fleet, &wanted, &options);
        let after = first.carried_out(&fleet, &wanted);
        let (second, _) = plan_with(&after, &wanted, &options);
        let moved: Vec<ReplicaId> = first.placements.iter().filter_map(|p| p.replaces).collect();
        for stop in &second.stops {
            let drained = stop.why == StopReason::Drained;
            prop_assert!(drained || !stop.why.is_surplus(), "{stop:?} {moved:?}");
        }
        if first.stops.is_empty() {
            prop_assert_eq!(&second.placements, &[]);
        }
        let (third, _) = plan_with(&second.carried_out(&after, &wanted), &wanted, &options);
        if second.placements.is_empty() {
            prop_assert_eq!(third.stops, []);
        }
    }

    #[test]
    fn what_runs_well_is_left_alone(fleet in any_fleet(), wanted in any_wanted()) {
        let (plan, _) = plan(&fleet, &wanted);
        let models = wanted.by_name();
        for stop in &plan.stops {
            let running = fleet.nodes.iter().flat_map(|node| &node.replicas);
            let of_model = running.filter(|r| r.model == stop.model && r.counts()).count();
            let kept = models[&stop.model].replicas();
            prop_assert!(of_model > usize::try_from(kept).unwrap(), "{stop:?}");
        }
    }

    #[test]
    fn a_node_that_fits_is_told_from_one_that_does_not_by_the_same_checks(
        fleet in any_fleet(), wanted in any_wanted(),
    ) {
        let fleet = fleet.sorted();
        let mut working = begin(&fleet, &wanted, &Options::default());
        for model in &wanted.models {
            for profile in model.profiles() {
                let ask = working.ask(Some(model), profile);
                let connected = profile.needs.fabric.is_none();
                for index in 0..fleet.nodes.len() {
                    let fits = working.best_of(&ask, |node| node == index).is_some();
                    let reasons = failing(&working, index, &ask);
                    prop_assert!(fits == reasons.is_empty() || !connected, "{reasons:?}");
                }
            }
        }
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
    fn another_node_never_unplaces_what_runs_or_was_placed(fleet in any_fleet(), wanted in any_wanted()) {
        let (before, _) = plan(&fleet, &wanted);
        let after_first = before.carried_out(&fleet, &wanted);
        let stops = plan(&after_first, &wanted).0.stops;
        let mut larger = after_first;
        larger.nodes.push(node(9_999, Bytes::gib(1_000)));
        let (after, _) = plan(&larger, &wanted);
        for stop in &after.stops {
            prop_assert!(stops.contains(stop) || stop.why == StopReason::Drained, "{stop:?}");
        }
    }

    #[test]
    fn a_room_gives_back_what_was_taken(fleet in any_fleet(), wanted in any_wanted()) {
        let mut classes = Classes::of(&fleet);
        for model in &wanted.models {
            let demand = Demand::of(&model.profiles()[0], &mut classes);
            for room in rooms(&fleet).iter().filter(|room| room.fits(&demand)) {
                let gpus = policy::tightest(room, &demand);
                let mut other = room.clone();
                other.take(&demand, gpus);
                other.give(&demand, gpus);
                prop_assert_eq!(&other, room);
            }
        }
    }

    #[test]
    fn a_fleet_survives_its_serial_form(fleet in any_fleet()) {
        let json = serde_json::to_string(&fleet).unwrap();
        prop_assert_eq!(serde_json::from_str::<Fleet>(&json).unwrap(), fleet);
    }
}

impl StopReason {
    fn is_surplus(&self) -> bool {
        *self == Self::Surplus
    }
}

/// How many of each model a plan places.
fn count(plan: &Plan) -> BTreeMap<ModelName, usize> {
    let mut counts = BTreeMap::new();
    for placement in &plan.placements {
        *counts.entry(placement.model.clone()).or_insert(0) += 1;
    }
    counts
}

proptest! {
    #[test]
    fn a_node_with_room_for_all_loses_nothing(fleet in any_fleet(), memory in proptest::collection::vec(1..30u64, 1..4)) {
        let models: Vec<Model> = memory
            .iter()
            .enumerate()
            .map(|(at, gib)| model(&format!("n{at}"), 2, &[Bytes::gib(*gib)]))
            .collect();
        let (before, _) = plan(&fleet, &wanted(&models));
        let mut larger = fleet;
        larger.nodes.push(node(9_999, Bytes::gib(1_000)));
        let (after, _) = plan(&larger, &wanted(&models));
        prop_assert!(count(&before).iter().all(|(name, placed)| count(&after)[name] >= *placed));
    }
}
