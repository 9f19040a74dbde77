use std::collections::BTreeMap;

use llmgw_core::{cluster::engine::ProvisionState, units::Bytes};
use serde_json::{Value, json};

use super::*;

fn fleet(sizes: &[u64]) -> Fleet {
    let installed = ProvisionState::Installed {
        version: "1".into(),
        variant: "path".into(),
    };
    let node = |(number, gib): (u64, &u64)| FleetNode {
        memory_allocatable: Some(Bytes::gib(*gib)),
        engines: BTreeMap::from([("llamacpp".parse().unwrap(), installed.clone())]),
        ..FleetNode::named(NodeId::imagined(number + 100), format!("box-{number}"))
    };
    Fleet {
        nodes: (1..).zip(sizes).map(node).collect(),
        ..Fleet::default()
    }
}

fn definition(name: &str, replicas: u32, gib: u64) -> Value {
    json!({
        "name": name, "source": "file:/m.gguf", "replicas": replicas, "profiles": [{"memory": gib << 30}],
    })
}

fn wanted(definitions: &[Value]) -> Wanted {
    serde_json::from_value(json!({"models": definitions})).unwrap()
}

fn asked(fleet: &Fleet, wanted: &Wanted, changes: Value) -> Outcome {
    answered(fleet, wanted, changes).unwrap()
}

fn answered(fleet: &Fleet, wanted: &Wanted, changes: Value) -> Result<Outcome, DefinitionError> {
    let changes: Vec<Change> = serde_json::from_value(changes).unwrap();
    what_if(fleet, wanted, &changes, &Options::default())
}

fn names(models: &[ModelName]) -> Vec<&str> {
    models.iter().map(ModelName::as_str).collect()
}

#[test]
fn nothing_changes_by_no_change() {
    let wanted = wanted(&[definition("a", 2, 4), definition("b", 1, 100)]);
    let outcome = asked(&fleet(&[8, 8]), &wanted, json!([]));
    assert!(outcome.is_nothing(), "{outcome:?}");
    assert_eq!(names(&outcome.lacking_already), ["b"]);
}

#[test]
fn a_model_that_is_added_starts_and_may_take_the_last_slot_of_another() {
    let wanted = wanted(&[definition("a", 1, 4)]);
    let outcome = asked(
        &fleet(&[10]),
        &wanted,
        json!([{"add": definition("b", 1, 4)}]),
    );
    assert_eq!(outcome.starts.len(), 1);
    assert_eq!(outcome.starts[0].hostname, "box-1");
    assert_eq!(names(&outcome.last_slots), ["a"]);
    let outcome = asked(
        &fleet(&[10]),
        &wanted,
        json!([{"add": definition("b", 1, 7)}]),
    );
    assert_eq!(outcome.unplaceable.len(), 1);
    assert!(outcome.unplaceable[0].nearest.is_some());
}

#[test]
fn a_node_that_drains_or_fails_moves_what_it_runs_as_far_as_there_is_room() {
    let wanted = wanted(&[definition("a", 2, 4), definition("b", 1, 5)]);
    // The replicas of `a` keep apart, and `b` has room beside one of them.
    let fleet = fleet(&[10, 10, 4]);
    for (change, why) in [("drain", Why::Drained), ("lose", Why::Lost)] {
        let mut moves = 0;
        for node in ["box-1", "box-2", "box-3"] {
            let outcome = asked(&fleet, &wanted, json!([{change: node}]));
            let moved: BTreeSet<&str> = outcome.moves.iter().map(|m| m.to.model.as_str()).collect();
            let lost: BTreeSet<&str> = outcome
                .unplaceable
                .iter()
                .map(|r| r.model.as_str())
                .collect();
            assert!(moved.is_disjoint(&lost), "{outcome:?}");
            for one in &outcome.moves {
                assert_eq!((one.origin.as_str(), one.why), (node, why));
                assert_ne!(one.to.hostname, node);
            }
            assert_eq!(outcome.starts, []);
            moves += outcome.moves.len();
        }
        assert!(moves > 0, "{change}");
    }
}

#[test]
fn what_was_asked_for_is_not_suggested_to_be_undone() {
    let mut fleet = fleet(&[10, 4]);
    let helps = |fleet: &Fleet, changes: Value| {
        let outcome = asked(fleet, &wanted(&[]), changes);
        assert_eq!(outcome.unplaceable.len(), 1, "{outcome:?}");
        let remedies = outcome.unplaceable[0].remedies.iter();
        let remedies: Vec<String> = remedies.map(ToString::to_string).collect();
        remedies.iter().any(|one| one.contains("box-1"))
    };
    let add = json!({"add": definition("b", 1, 9)});
    assert!(!helps(&fleet, json!([{"drain": "box-1"}, add])));
    // What was so before is.
    fleet.nodes[0].state = NodeState::Draining;
    assert!(helps(&fleet, json!([add])));
}

#[test]
fn an_edit_begins_anew_beside_the_old_and_says_when_there_is_no_room_for_both() {
    let wanted = wanted(&[definition("a", 1, 4)]);
    let outcome = asked(
        &fleet(&[10]),
        &wanted,
        json!([{"edit": definition("a", 1, 5)}]),
    );
    assert_eq!(outcome.moves.len(), 1);
    assert_eq!(outcome.moves[0].why, Why::Edited);
    let outcome = asked(
        &fleet(&[10]),
        &wanted,
        json!([{"edit": definition("a", 1, 7)}]),
    );
    assert_eq!(outcome.unplaceable.len(), 1);
    let remedy = outcome.unplaceable[0].remedies[0].to_string();
    assert!(remedy.contains("of a ends on box-1"), "{remedy}");
    // Other words for the same.
    let mut same = definition("a", 1, 4);
    same["description"] = "new".into();
    assert!(asked(&fleet(&[10]), &wanted, json!([{"edit": same}])).is_nothing());
}

#[test]
fn what_is_removed_or_too_much_stops_and_makes_room() {
    let models = wanted(&[definition("a", 2, 4), definition("b", 1, 5)]);
    let outcome = asked(
        &fleet(&[9]),
        &models,
        json!([{"scale": {"model": "a", "replicas": 1}}]),
    );
    assert_eq!(outcome.stops, []);
    assert_eq!(outcome.lacking_already, []);
    let outcome = asked(
        &fleet(&[8]),
        &wanted(&[definition("a", 2, 4)]),
        json!([
            {"remove": "a"}, {"add": definition("b", 1, 5)},
        ]),
    );
    assert_eq!(outcome.stops.len(), 2);
    assert!(outcome.stops.iter().all(|stop| stop.why == Why::Removed));
    assert_eq!(outcome.starts.len(), 1);
}

/// A model between `min` and two replicas, of which so many run on the first node.
fn ranged(min: u32, running: u64) -> (Fleet, Wanted) {
    let mut model = definition("a", 1, 4);
    model.as_object_mut().unwrap().remove("replicas");
    model["min_replicas"] = min.into();
    model["max_replicas"] = 2.into();
    let mut fleet = fleet(&[10, 10]);
    let serving = |number| FleetReplica {
        on_demand: min == 0,
        idle_seconds: Some(3_600),
        ..FleetReplica::serving(
            ReplicaId::imagined(number + 1_000),
            "a".parse().unwrap(),
            Bytes::gib(4),
        )
    };
    fleet.nodes[0].replicas = (1..=running).map(serving).collect();
    (fleet, wanted(&[model]))
}

#[test]
fn what_runs_by_its_load_is_not_too_much() {
    for (min, running) in [(0, 1), (0, 2), (1, 2)] {
        let (fleet, wanted) = ranged(min, running);
        let outcome = asked(&fleet, &wanted, json!([]));
        assert!(outcome.is_nothing(), "{min} {running}: {outcome:?}");
        let moved = asked(&fleet, &wanted, json!([{"drain": "box-1"}]));
        assert_eq!(moved.stops, []);
        assert_eq!(u64::try_from(moved.moves.len()), Ok(running), "{moved:?}");
    }
    // Beyond its bounds it is, and what does not run is not begun.
    let (fleet, wanted) = ranged(0, 3);
    let outcome = asked(&fleet, &wanted, json!([{"lose": "box-2"}]));
    assert_eq!(outcome.starts, []);
    let (fleet, wanted) = ranged(0, 0);
    assert!(
        asked(&fleet, &wanted, json!([{"lose": "box-2"}]))
            .starts
            .is_empty()
    );
}

#[test]
fn an_edit_of_what_runs_by_its_load_begins_as_many_anew() {
    let (fleet, wanted) = ranged(0, 1);
    let mut edited: Value = serde_json::to_value(&wanted.models[0]).unwrap();
    edited["profiles"][0]["memory"] = (5_u64 << 30).into();
    let outcome = asked(&fleet, &wanted, json!([{"edit": edited}]));
    assert_eq!(outcome.moves.len(), 1, "{outcome:?}");
    assert_eq!(outcome.moves[0].why, Why::Edited);
    assert_eq!(outcome.stops, []);
}

#[test]
fn nodes_more_place_what_lacked_one() {
    let wanted = wanted(&[definition("a", 3, 6)]);
    let change = json!([{"add_nodes": {"like": "box-1", "count": 2}}]);
    let outcome = asked(&fleet(&[8]), &wanted, change);
    let hosts: Vec<&str> = outcome
        .starts
        .iter()
        .map(|start| start.hostname.as_str())
        .collect();
    assert_eq!(hosts.len(), 2, "{outcome:?}");
    assert!(hosts.contains(&"new-1") && hosts.contains(&"new-2"));
}

#[test]
fn nodes_that_are_added_twice_are_each_their_own() {
    let wanted = wanted(&[definition("a", 4, 6)]);
    let one = json!({"add_nodes": {"like": "box-1", "count": 1}});
    let two = json!({"add_nodes": {"like": "new-1", "count": 2}});
    let outcome = asked(&fleet(&[8]), &wanted, json!([one, two]));
    let nodes: BTreeSet<(NodeId, &str)> = outcome
        .starts
        .iter()
        .map(|start| (start.node, start.hostname.as_str()))
        .collect();
    let hosts: Vec<&str> = nodes.iter().map(|(_, name)| *name).collect();
    assert_eq!(hosts, ["new-1", "new-2", "new-3"], "{outcome:?}");
    assert_eq!(outcome.lacking_already, []);
}

#[test]
fn a_question_that_is_too_large_is_refused() {
    let wanted = wanted(&[definition("a", 1, 4)]);
    let many = vec![json!({"drain": "box-1"}); 1_001];
    let error = answered(&fleet(&[8]), &wanted, json!(many)).unwrap_err();
    assert_eq!(error.field, "changes");
    let nodes = json!({"add_nodes": {"like": "box-1", "count": 600}});
    let error = answered(&fleet(&[8]), &wanted, json!([nodes, nodes])).unwrap_err();
    assert_eq!(error.field, "changes[1].add_nodes.count");
    assert_eq!(error.problem, "1200 nodes in all; 1000 can be");
}

#[test]
fn a_change_that_can_not_be_made_is_named_by_its_path() {
    let wanted = wanted(&[definition("a", 1, 4)]);
    for (change, field) in [
        (json!({"remove": "x"}), "changes[1].remove"),
        (
            json!({"scale": {"model": "x", "replicas": 2}}),
            "changes[1].scale.model",
        ),
        (
            json!({"scale": {"model": "a", "replicas": 0}}),
            "changes[1].scale.replicas",
        ),
        (json!({"add": definition("a", 1, 4)}), "changes[1].add.name"),
        (
            json!({"edit": definition("x", 1, 4)}),
            "changes[1].edit.name",
        ),
        (json!({"drain": "x"}), "changes[1].drain"),
        (
            json!({"add_nodes": {"like": "x", "count": 1}}),
            "changes[1].add_nodes.like",
        ),
        (
            json!({"add_nodes": {"like": "box-1", "count": 0}}),
            "changes[1].add_nodes.count",
        ),
    ] {
        let changes = json!([{"drain": "box-1"}, change]);
        let error = answered(&fleet(&[8]), &wanted, changes).unwrap_err();
        assert_eq!(error.field, field);
    }
}
