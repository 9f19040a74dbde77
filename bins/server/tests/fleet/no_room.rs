//! A node is drained where there is no room for what it has.

use super::{
    crowd::{Outcome, stream},
    fleet::{Fleet, settings},
};

#[test]
fn a_drain_without_room_says_which_constraint_and_goes_on_once_room_is_made_real_engine() {
    let nodes = [("a", "512MiB"), ("b", "512MiB"), ("c", "512MiB")];
    let mut fleet = Fleet::start(&settings("steady", 1, 512), &nodes);
    fleet.until("the declared model serves", |fleet| {
        fleet.ready("steady").len() == 1
    });
    // One of the two other nodes is full, and nothing is placed on the other.
    fleet.add("other");
    fleet.until("the other model serves", |fleet| {
        fleet.ready("other").len() == 1
    });
    let (drained, full) = (
        fleet.ready("steady").remove(0),
        fleet.ready("other").remove(0),
    );
    let is_free = |(node, _): &&(&str, &str)| *node != drained && *node != full;
    let (free, _) = *nodes.iter().find(is_free).unwrap();
    fleet.ctl(&["cordon", free]);
    let replica = fleet.replicas("steady")[0]["id"].clone();

    let said = fleet.ctl(&["drain", &drained, "--reason", "a new disk"]);
    eprintln!("{said}");
    let keeps = format!("{drained} is draining and keeps steady: no room for its successor");
    fleet.until("the operator is told that it waits", |fleet| {
        fleet.ctl(&["status"]).contains(&keeps)
    });
    // Wherever one may look: which node, which constraint.
    for (asked, told) in [
        (&["status"][..], [keeps.as_str(), "--force` stops it first"]),
        (&["explain", "steady"], [full.as_str(), "short 384.0 MiB"]),
        (&["explain", "steady"], [free, "cordoned"]),
        (
            &["describe", "node", &drained],
            ["a new disk", "of steady leaves"],
        ),
        (
            &["describe", "model", "steady"],
            ["there is none. Nearest: ", "it takes no new replicas"],
        ),
    ] {
        let answer = fleet.ctl(asked);
        eprintln!("$ llmgw ctl {}\n{answer}", asked.join(" "));
        for text in told {
            assert!(
                answer.contains(text),
                "ctl {asked:?} lacks {text:?}:\n{answer}"
            );
        }
    }
    // It waits, and serves as before.
    let whole = |fleet: &Fleet| {
        let outcome = stream((fleet.clients(), &fleet.key()), "steady", 4);
        assert!(matches!(outcome, Outcome::Whole(_)), "{outcome:?}");
    };
    whole(&fleet);
    assert_eq!(fleet.ready("steady"), [drained.as_str()]);
    assert_eq!(fleet.replicas("steady")[0]["id"], replica);

    fleet.ctl(&["remove", "other"]);
    fleet.until("it moves to where there is room now", |fleet| {
        fleet.ready("steady") == [full.as_str()] && fleet.on(&drained) == 0
    });
    whole(&fleet);
    let status = fleet.ctl(&["status"]);
    assert!(!status.contains("is draining and keeps"), "{status}");
    fleet.end();
}
