//! The worked examples of the published policies, and what ours is for.

use super::*;
use crate::planner::{
    mix::Typical,
    room::{Slot, amount},
};

/// As the published trace measures: a GPU of 1,000, nodes of at most 8 GPUs and 128 cores.
const SCALE: Scale = Scale {
    gpu_thousandth: 1.0,
    node_gpus: 8_000.0,
    node_cpu: 128_000.0,
};

fn room(cpu: i64, free: &[i64]) -> Room {
    let slot = |free: &i64| Slot {
        class: None,
        size: Some(1_000),
        promised: 1_000 - free,
        holders: u16::from(*free < 1_000),
        works: true,
    };
    Room {
        cpu: Some(cpu),
        memory: Some(1 << 40),
        gpus: Some(free.iter().map(slot).collect()),
        kinds: 0,
    }
}

fn demand(cpu: i64, gpus: usize, per_gpu: Option<i64>) -> Demand {
    Demand {
        cpu,
        gpus,
        per_gpu,
        ..Demand::default()
    }
}

fn score(name: PolicyName, room: &Room, demand: &Demand) -> i64 {
    name.policy(Mix::default(), SCALE).worth(room, demand).main
}

fn mix(demands: &[(Demand, f64)]) -> Mix {
    let typical = demands.iter().cloned();
    Mix {
        typical: typical
            .map(|(demand, share)| Typical { demand, share })
            .collect(),
    }
}

#[test]
fn the_worked_examples_of_the_published_policies_come_out() {
    let empty = room(96_000, &[1_000; 8]);
    let one = demand(8_000, 1, None);
    assert_eq!(score(PolicyName::DotProduct, &empty, &one), 91);
    assert_eq!(score(PolicyName::BestFit, &empty, &one), 21);
    assert_eq!(score(PolicyName::Clustering, &empty, &one), 25);
    assert_eq!(score(PolicyName::Packing, &empty, &one), 25);
    let pair = room(64_000, &[1_000; 2]);
    assert_eq!(score(PolicyName::Clustering, &pair, &one), 43);
    assert_eq!(score(PolicyName::Packing, &pair, &one), 31);
    let half = demand(4_000, 1, Some(500));
    assert_eq!(
        score(PolicyName::Packing, &room(64_000, &[300, 500]), &half),
        95
    );
    assert_eq!(
        score(PolicyName::Packing, &room(64_000, &[300, 1_000]), &one),
        49
    );
}

#[test]
fn a_cluster_of_one_kind_is_preferred_to_a_mixed_one() {
    let one = demand(1_000, 1, None);
    let with = |kinds: u16| {
        let mut room = room(96_000, &[1_000; 8]);
        room.kinds = kinds;
        score(PolicyName::Clustering, &room, &one)
    };
    let (share, whole, pair) = (1, 1 << 1, 1 << 2);
    assert_eq!(
        [with(whole), with(whole | pair), with(0), with(share)],
        [75, 50, 25, 0]
    );
}

#[test]
fn a_gradient_is_as_coarse_as_the_published_one() {
    for (less, score) in [
        (100.0, 52),
        (0.0, 50),
        (39.9, 50),
        (40.1, 51),
        (-1.0, 49),
        (-39.9, 49),
    ] {
        assert_eq!(gradient::coarse(less), score, "{less}");
    }
}

#[test]
fn all_kinds_of_useless_memory_are_counted() {
    let room = room(4_000, &[1_000, 400, 0]);
    let useless = |demand: Demand| mix(&[(demand, 1.0)]).fragmentation(&room, SCALE);
    // Only what is too small for the demand.
    assert!((useless(demand(1_000, 1, Some(500))) - 400.0).abs() < 1e-9);
    // All of it: too few GPUs, too few cores, no GPU wanted.
    for all in [
        demand(0, 2, None),
        demand(5_000, 1, Some(100)),
        demand(1_000, 0, None),
    ] {
        assert!((useless(all) - 1_400.0).abs() < 1e-9);
    }
    // None of it.
    assert!(useless(demand(1_000, 1, Some(400))).abs() < 1e-9);
}

#[test]
fn a_share_goes_where_it_leaves_a_whole_gpu_whole() {
    let typical = mix(&[
        (demand(1_000, 1, None), 0.5),
        (demand(1_000, 1, Some(500)), 0.5),
    ]);
    let room = room(96_000, &[1_000, 500]);
    for name in [
        PolicyName::Scarcity,
        PolicyName::FragmentationGradient,
        PolicyName::BestFit,
    ] {
        let policy = name.policy(typical.clone(), SCALE);
        let gpus = policy.gpus(&room, &demand(1_000, 1, Some(500)));
        assert_eq!(gpus.places().collect::<Vec<_>>(), [1], "{name:?}");
    }
}

#[test]
fn what_few_nodes_have_is_spared_for_those_who_need_it() {
    let mut classes = crate::planner::demand::Classes::default();
    let (rare, common) = (classes.id("rare"), classes.id("common"));
    let of = |class| {
        let mut room = room(96_000, &[1_000; 2]);
        for slot in room.gpus.iter_mut().flatten() {
            slot.class = Some(class);
        }
        room
    };
    let wants_rare = Demand {
        classes: vec![rare],
        ..demand(1_000, 1, None)
    };
    let any = demand(1_000, 1, None);
    let mut policy =
        PolicyName::Scarcity.policy(mix(&[(any.clone(), 0.8), (wants_rare, 0.2)]), SCALE);
    let rooms = [(of(rare), 1), (of(common), 99)];
    policy.watch(&mut rooms.iter().map(|(room, nodes)| (room, *nodes)));
    let (on_rare, on_common) = (
        policy.worth(&of(rare), &any),
        policy.worth(&of(common), &any),
    );
    assert!(
        on_common.main > on_rare.main + 1,
        "{on_rare:?} {on_common:?}"
    );
}

#[test]
fn without_gpus_the_tightest_memory_is_best() {
    let policy = PolicyName::default().policy(Mix::default(), SCALE);
    let with = |memory: i64| {
        let mut room = room(8_000, &[]);
        room.memory = Some(memory);
        assert_eq!(amount(memory).0, u64::try_from(memory).unwrap());
        policy.worth(&room, &demand(0, 0, None))
    };
    assert!(with(1 << 30) > with(1 << 33));
}
