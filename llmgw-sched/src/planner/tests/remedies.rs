//! Remedies: each works, each is as small as it can be, and they come in their fixed order.

use llmgw_core::{
    cluster::catalog::Profile,
    reason::remedy::{Awaited, Change, Remedy},
    units::{Cores, Tokens},
};
use proptest::prelude::*;

use super::{
    properties::{any_fleet, any_wanted},
    *,
};
use crate::{
    fit::{Cache, Kind, Layer, Reach, Shape},
    fleet::{FleetGpu, Hold, HoldScope},
};

/// A plain decoder: 32 layers that keep 2 x 8 heads of 128 halves for each token, 128 KiB in all.
fn decoder() -> Shape {
    let cache = Cache {
        reach: Reach::All,
        heads: 8,
        key: 128,
        value: 128,
    };
    let layer = Layer {
        cache: Some(cache),
        state: Bytes::ZERO,
        weights: Bytes::mib(100),
    };
    Shape {
        architecture: "llama".into(),
        kind: Kind::Writer,
        layers: vec![layer; 32],
        draft: Vec::new(),
        embedding: 4_096,
        vocabulary: 32_000,
        feed_forward: 11_008,
        experts: None,
        heads: 32,
        head_width: 128,
        recurrent_width: 0,
        trained_context: None,
        input: Bytes::mib(200),
        output: Bytes::mib(200),
        tied: Bytes::ZERO,
    }
}

fn sized(model: &Model) -> Options {
    let mut sizes = Sizes::default();
    sizes.insert(model.name().clone(), decoder());
    Options {
        sizes: Arc::new(sizes),
        ..Options::default()
    }
}

fn defined(profile: serde_json::Value) -> Model {
    serde_json::from_value(serde_json::json!({
        "name": "m", "source": "file:/m.gguf", "profiles": [profile],
    }))
    .unwrap()
}

fn kinds(report: &Report) -> Vec<String> {
    let kind = |remedy: &Remedy| {
        let json = serde_json::to_value(remedy).unwrap();
        json["kind"].as_str().unwrap().to_owned()
    };
    report.remedies.iter().map(kind).collect()
}

fn serving(number: u128, model: &str, memory: Bytes, idle: Option<u64>) -> FleetReplica {
    FleetReplica {
        idle_seconds: idle,
        ..FleetReplica::serving(
            // Real ids are not as low as imagined ones.
            ReplicaId::from_uuid(uuid(number | 1 << 100)),
            model.parse().unwrap(),
            memory,
        )
    }
}

#[test]
fn less_context_and_fewer_slots_are_offered_as_far_as_they_have_to_go() {
    let model = defined(serde_json::json!({
        "memory": "16GiB", "context": 32_768, "parallel": 4,
    }));
    let fleet = fleet_of(vec![node(1, Bytes::gib(8)), node(2, Bytes::gib(10))]);
    let options = sized(&model);
    let report = trial_with(&fleet, &model, &options);
    assert_eq!(kinds(&report), ["context", "slots"]);
    let Change::Context { from, to, needs } = report.remedies[0].change else {
        panic!("{:?}", report.remedies);
    };
    assert_eq!(from, Tokens(32_768));
    // 4 x 128 KiB for each token of context: 6 GiB less are 12,288 tokens less, and a part of the buffers.
    assert!((20_480..=22_528).contains(&to.0), "{to}");
    assert_eq!(
        report.remedies[0].places.as_ref().unwrap().hostname,
        "node-2"
    );
    let Change::Slots { from: 4, to: 2, .. } = report.remedies[1].change else {
        panic!("{:?}", report.remedies);
    };
    assert!(needs.memory <= Bytes::gib(10), "{needs}");
    // Whoever does as it says has a model that is placed.
    let mut followed: llmgw_core::cluster::catalog::ModelDefinition = model.clone().into();
    followed.profiles[0].context = Some(to.0);
    followed.profiles[0].memory = Some(needs.memory);
    let followed: Model = followed.try_into().unwrap();
    assert!(trial(&fleet, &followed).fits.is_some());
    // So much works, and a little more does not.
    let with = |context: Tokens| {
        let profile = options
            .sizes
            .resized(model.name(), &model.profiles()[0], context, 4)
            .unwrap();
        only(&model, &profile)
    };
    assert!(trial(&fleet, &with(to)).fits.is_some());
    assert!(trial(&fleet, &with(Tokens(to.0 + 256))).fits.is_none());
    // Nothing is known of the weights: nothing is guessed.
    assert_eq!(kinds(&trial(&fleet, &model)), ["node"]);
}

#[test]
fn a_node_without_gpus_is_not_nearer_than_one_whose_gpu_is_full() {
    let gpu = FleetGpu {
        index: 0,
        class: None,
        memory: Some(Bytes::gib(20)),
        in_use: false,
        fault: None,
    };
    let with_gpu = FleetNode {
        gpus: Some(vec![gpu]),
        ..node(2, Bytes::gib(64))
    };
    let without = FleetNode {
        gpus: Some(Vec::new()),
        ..node(1, Bytes::gib(64))
    };
    let gpus = serde_json::json!({"count": 1, "memory": "24GiB"});
    let model = defined(serde_json::json!({"memory": "1GiB", "gpus": gpus}));
    let report = trial(&fleet_of(vec![without, with_gpu]), &model);
    assert_eq!(report.nearest.unwrap().hostname, "node-2");
}

#[test]
fn a_demand_for_which_there_is_no_node_can_be_dropped() {
    let gpu = FleetGpu {
        index: 0,
        class: Some("L4".into()),
        memory: Some(Bytes::gib(24)),
        in_use: false,
        fault: None,
    };
    let fleet = fleet_of(vec![FleetNode {
        gpus: Some(vec![gpu]),
        ..node(1, Bytes::gib(64))
    }]);
    let without = |profile| {
        let report = trial(&fleet, &defined(profile));
        report.remedies[0].change.to_string()
    };
    let class = serde_json::json!({"count": 1, "class": ["H100", "H200"], "memory": "20GiB"});
    assert_eq!(
        without(serde_json::json!({"memory": "1GiB", "gpus": class})),
        "without the GPU class H100 or H200"
    );
    assert_eq!(
        without(serde_json::json!({"memory": "1GiB", "pool": "a"})),
        "without the pool a"
    );
    assert_eq!(
        without(serde_json::json!({"memory": "1GiB", "labels": {"zone": "b"}})),
        "without the labels zone=b"
    );
}

#[test]
fn the_fewest_and_the_longest_idle_are_stopped() {
    let mut full = node(1, Bytes::gib(20));
    full.replicas = vec![
        serving(11, "busy", Bytes::gib(8), None),
        serving(12, "idle", Bytes::gib(8), Some(2_460)),
        serving(13, "tiny", Bytes::gib(1), Some(9_000)),
        serving(14, "m", Bytes::gib(3), Some(90_000)),
    ];
    let report = trial(&fleet_of(vec![full]), &model("m", 1, &[Bytes::gib(8)]));
    let lines: Vec<String> = report.remedies.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        ["stop r-0000000c of idle on node-1, idle for 41 min: places on node-1 with p0"]
    );
}

#[test]
fn what_is_on_its_way_is_waited_for_and_what_is_kept_out_can_be_let_in() {
    let mut ending = node(1, Bytes::gib(8));
    ending.replicas = vec![FleetReplica {
        phase: Phase::Leaving,
        ..serving(11, "old", Bytes::gib(6), None)
    }];
    let mut cordoned = node(2, Bytes::gib(8));
    cordoned.state = NodeState::Cordoned;
    let mut held = node(3, Bytes::gib(8));
    held.labels.insert("facility".into(), "north".into());
    let mut full = node(4, Bytes::gib(8));
    full.disk_free = Some(Bytes::gib(1));
    let mut fleet = fleet_of(vec![ending, cordoned, held, full]);
    fleet.holds.push(Hold {
        scope: HoldScope::Facility("north".into()),
        reason: "new racks".into(),
    });
    let model: Model = serde_json::from_value(serde_json::json!({
        "name": "m", "source": "https://weights.example/m.gguf", "size": "4GiB",
        "sha256": "a".repeat(64), "profiles": [{"name": "p0", "memory": "4GiB"}],
    }))
    .unwrap();
    let report = trial(&fleet, &model);
    assert_eq!(kinds(&report), ["wait", "ready", "lift", "disk"]);
    let text = render::explanation(&report);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = text.lines().map(words).collect();
    for line in [
        "later r-0000000b of old ends on node-1 places on node-1 with p0",
        "now uncordon node-2 places on node-2 with p0",
        "now lift the hold on facility north (\"new racks\") places on node-3 with p0",
        "now free 3.0 GiB of disk on node-4 places on node-4 with p0",
    ] {
        assert!(lines.iter().any(|found| found == line), "{line}\n{text}");
    }
    assert_eq!(
        report.pending.as_deref(),
        Some("r-0000000b of old ends on node-1")
    );
}

/// The second model of a batch is not told that it fits where the first has just been placed.
#[test]
fn what_the_plan_has_given_away_is_not_offered_again() {
    let mut busy = node(1, Bytes::gib(20));
    busy.replicas = vec![serving(11, "old", Bytes::gib(4), Some(60))];
    let wanted = Wanted {
        models: vec![
            model("large", 1, &[Bytes::gib(12)]),
            model("small", 1, &[Bytes::gib(10)]),
        ],
    };
    let (plan, reports) = plan(&fleet_of(vec![busy]), &wanted);
    assert_eq!(plan.placements.len(), 1);
    let small = &reports[1];
    assert!(small.fits.is_none());
    // With `old` stopped 8 GiB are free, not 20.
    assert_eq!(kinds(small), ["node"], "{:?}", small.remedies);
}

/// Two models lack room. Whoever makes it for the smaller one must know that the larger chooses first.
#[test]
fn room_that_another_model_would_take_first_is_not_offered() {
    let mut near = node(1, Bytes::gib(12));
    near.replicas = vec![serving(11, "idle", Bytes::gib(12), Some(600))];
    let mut far = node(2, Bytes::gib(9));
    far.replicas = vec![serving(12, "other", Bytes::gib(9), Some(60))];
    let wanted = Wanted {
        models: vec![
            model("large", 1, &[Bytes::gib(10)]),
            model("small", 1, &[Bytes::gib(8)]),
        ],
    };
    let fleet = fleet_of(vec![near, far]);
    let (_, reports) = plan(&fleet, &wanted);
    let lines = |report: &Report| -> Vec<String> {
        report.remedies.iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        lines(&reports[0]),
        ["stop r-0000000b of idle on node-1, idle for 10 min: places on node-1 with p0"]
    );
    // With `idle` stopped, `large` is there.
    assert_eq!(
        lines(&reports[1]),
        ["stop r-0000000c of other on node-2, idle for 1 min: places on node-2 with p0"]
    );
    // Asked about alone it is told the same, for it is still the second in the plan.
    let name = "small".parse().unwrap();
    let explained = explain(&fleet, &wanted, &name, &Options::default()).unwrap();
    assert_eq!(explained, reports[1]);
}

#[test]
fn how_many_replicas_have_no_place_is_said() {
    let fleet = fleet_of(vec![node(1, Bytes::gib(20))]);
    let wanted = Wanted {
        models: vec![model("m", 3, &[Bytes::gib(15)])],
    };
    let (plan, reports) = plan(&fleet, &wanted);
    assert_eq!(plan.placements.len(), 1);
    assert_eq!((reports[0].replicas, reports[0].missing), (3, 2));
    let headline = render::headline(&reports[0]);
    let expected = "m has 1 of 3 replicas: 1 node, 1 profile, no further one fits now";
    assert!(headline.starts_with(expected), "{headline}");
}

#[test]
fn a_stop_that_holds_another_is_not_offered_beside_it() {
    // The first profile needs both to stop, the second only one of them.
    let mut full = node(1, Bytes::gib(20));
    full.replicas = vec![
        serving(11, "a", Bytes::gib(9), Some(600)),
        serving(12, "b", Bytes::gib(9), Some(500)),
    ];
    let report = trial(
        &fleet_of(vec![full]),
        &model("m", 1, &[Bytes::gib(18), Bytes::gib(10)]),
    );
    let lines: Vec<String> = report.remedies.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        ["stop r-0000000b of a on node-1, idle for 10 min: places on node-1 with p1"]
    );
}

/// The model with this profile alone.
fn only(model: &Model, profile: &Profile) -> Model {
    let mut definition: llmgw_core::cluster::catalog::ModelDefinition =
        serde_json::from_value(serde_json::to_value(model).unwrap()).unwrap();
    definition
        .profiles
        .retain(|written| written.name.as_deref() == Some(profile.name.as_str()));
    for written in &mut definition.profiles {
        written.memory = Some(profile.memory);
        written.context = Some(profile.context.0);
        written.parallel = Some(profile.parallel);
    }
    definition.try_into().unwrap()
}

/// The fleet and the model after a change; several where it says that each part of it is needed.
fn applied(fleet: &Fleet, model: &Model, change: &Change) -> (Fleet, Model) {
    let (mut fleet, mut model) = (fleet.clone(), model.clone());
    let mut on = |hostname: &str, act: &mut dyn FnMut(&mut FleetNode)| {
        let nodes = fleet.nodes.iter_mut();
        nodes.filter(|node| node.hostname == hostname).for_each(act);
    };
    match change {
        Change::Stop { replicas } => {
            for stopped in replicas {
                on(&stopped.hostname, &mut |node| {
                    node.replicas.retain(|other| other.id != stopped.replica);
                });
            }
        }
        Change::Wait {
            until: Awaited::Leaving {
                replica, hostname, ..
            },
            ..
        } => on(hostname, &mut |node| {
            node.replicas.retain(|other| other.id != *replica);
        }),
        Change::Ready { hostname, .. } => on(hostname, &mut |node| node.state = NodeState::Ready),
        Change::Disk { hostname, free, .. } => on(hostname, &mut |node| {
            node.disk_free = node.disk_free.map(|known| known + *free);
        }),
        Change::Profile { .. } => {
            let mut definition: llmgw_core::cluster::catalog::ModelDefinition = model.into();
            for profile in &mut definition.profiles {
                profile.labels.clear();
                profile.pool = None;
                if let Some(gpus) = &mut profile.gpus {
                    gpus.class = None;
                }
                if let Some(fabric) = &mut profile.fabric {
                    fabric.required = false;
                }
            }
            model = definition.try_into().unwrap();
        }
        Change::Node { .. } => fleet.nodes.push(FleetNode {
            cpu: Some(Cores::whole(64)),
            gpus: Some(ideal_gpus(&model)),
            labels: [("half".to_owned(), "1".to_owned())].into(),
            ..node(99, Bytes::gib(1_000))
        }),
        _ => panic!("{change:?} is not made of these fleets"),
    }
    (fleet, model)
}

/// Whoever stops a replica does not want it any more.
fn without_stopped(wanted: &Wanted, change: &Change) -> Wanted {
    let Change::Stop { replicas } = change else {
        return wanted.clone();
    };
    let left = wanted.models.iter().filter_map(|model| {
        let of_it = replicas.iter().filter(|one| one.model == *model.name());
        // It may run more than it should.
        let stopped = u32::try_from(of_it.count()).unwrap();
        let left = model.replicas().saturating_sub(stopped);
        let mut definition: llmgw_core::cluster::catalog::ModelDefinition = model.clone().into();
        definition.replicas = Some(left);
        (left > 0).then(|| definition.try_into().unwrap())
    });
    Wanted {
        models: left.collect(),
    }
}

fn ideal_gpus(model: &Model) -> Vec<FleetGpu> {
    let classes = model
        .profiles()
        .iter()
        .filter_map(|p| p.needs.gpus.as_ref()?.classes.first());
    let classes: Vec<String> = classes.cloned().collect();
    let of = |index: u32| FleetGpu {
        index,
        class: classes.get(usize::try_from(index).unwrap() / 8).cloned(),
        memory: Some(Bytes::gib(1_000)),
        in_use: false,
        fault: None,
    };
    (0..32).map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_remedy_works_and_no_part_of_a_stop_is_idle(
        fleet in any_fleet(), wanted in any_wanted(),
    ) {
        for model in &wanted.models {
            let report = trial(&fleet, model);
            if report.fits.is_some() {
                prop_assert!(report.remedies.is_empty());
                continue;
            }
            for remedy in &report.remedies {
                let (changed, with) = applied(&fleet, model, &remedy.change);
                let then = trial(&changed, &with);
                prop_assert!(then.fits.is_some(), "{remedy} does not help: {then:?}");
                if let (Change::Stop { replicas }, Some(places)) = (&remedy.change, &remedy.places) {
                    let alone = only(model, model.profile(&places.profile).unwrap());
                    for left in 0..replicas.len() {
                        let mut fewer = replicas.clone();
                        fewer.remove(left);
                        let change = Change::Stop { replicas: fewer };
                        let (changed, _) = applied(&fleet, &alone, &change);
                        prop_assert!(trial(&changed, &alone).fits.is_none(), "{remedy} is too much");
                    }
                }
            }
        }
    }

    /// Whoever carries the plan out and then does what is offered sees one replica more of that model, whatever
    /// other models wait for.
    #[test]
    fn every_remedy_works_in_the_plan_of_all_models(
        fleet in any_fleet(), wanted in any_wanted(),
    ) {
        let (first, reports) = plan(&fleet, &wanted);
        let fleet = first.carried_out(&fleet, &wanted);
        for report in reports.iter().filter(|report| report.missing > 0) {
            let model = wanted.models.iter().find(|one| *one.name() == report.model).unwrap();
            for remedy in &report.remedies {
                if matches!(remedy.change, Change::Profile { .. } | Change::Node { .. }) {
                    continue;
                }
                let (changed, _) = applied(&fleet, model, &remedy.change);
                let (_, then) = plan(&changed, &without_stopped(&wanted, &remedy.change));
                let now = then.iter().find(|one| one.model == report.model);
                let missing = now.map_or(0, |one| one.missing);
                prop_assert!(missing < report.missing, "{remedy} does not help {}", report.model);
            }
        }
    }

    #[test]
    fn verdicts_add_up(fleet in any_fleet(), wanted in any_wanted()) {
        for model in &wanted.models {
            let report = trial(&fleet, model);
            if report.fits.is_some() {
                continue;
            }
            let counted: usize = report.summary.iter().map(|count| count.nodes).sum();
            prop_assert_eq!(counted, fleet.nodes.len());
            let pairs = fleet.nodes.len() * model.profiles().len();
            prop_assert_eq!(report.rejections.len(), pairs);
        }
    }
}

#[test]
fn a_cache_of_eight_bits_grows_half_as_fast() {
    let growth = |kv_cache: &str| {
        let model = defined(serde_json::json!({
            "engine": "vllm", "memory": "20GiB", "context": 4_096, "parallel": 4, "kv_cache": kv_cache,
            "gpus": {"count": 1, "memory": "40GiB"},
        }));
        let mut sizes = Sizes::default();
        sizes.insert(model.name().clone(), decoder());
        let larger = sizes.resized(model.name(), &model.profiles()[0], Tokens(8_192), 4);
        let gpus = larger.unwrap().needs.gpus.unwrap();
        (gpus.memory.unwrap() - Bytes::gib(40)).0
    };
    let (whole, half) = (growth("auto"), growth("f8"));
    assert!(
        whole > 0 && whole.abs_diff(2 * half) <= 1 << 20,
        "{whole} {half}"
    );
}
