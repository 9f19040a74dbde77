//! Everything that an operator may order, while twenty clients stream.

use std::time::Instant;

use super::{
    crowd::{Call, Crowd, Outcome, tally},
    fleet::{Fleet, settings},
};

#[test]
fn no_stream_breaks_while_models_are_added_scaled_moved_rolled_and_removed_real_engine() {
    let nodes = [("a", "1GiB"), ("b", "1GiB"), ("c", "1GiB")];
    let mut fleet = Fleet::start(&settings("steady", 1, 512), &nodes);
    fleet.until("the declared model serves", |fleet| {
        fleet.ready("steady").len() == 1
    });
    let crowd = Crowd::start(20, (fleet.clients(), fleet.key()), "steady", 16);
    fleet.until("all clients stream", |_| crowd.whole("steady") >= 20);

    fleet.add("extra");
    fleet.until("the added model serves", |fleet| {
        fleet.ready("extra").len() == 1
    });
    crowd.ask_also("extra");
    fleet.until("its clients stream", |_| crowd.whole("extra") >= 5);

    fleet.ctl(&["scale", "extra", "2"]);
    fleet.until("it is scaled", |fleet| fleet.ready("extra").len() == 2);

    // Something serves in its place before what the node has goes.
    let drained = fleet.ready("steady").remove(0);
    fleet.ctl(&["drain", &drained, "--reason", "a new disk"]);
    fleet.until("the node is empty", |fleet| {
        let serving = fleet.seen(&["models"]);
        let mut serving = serving.as_array().unwrap().iter();
        let steady = serving.find(|one| one["name"] == "steady").unwrap();
        assert!(steady["ready_replicas"].as_u64().unwrap() >= 1, "{steady}");
        fleet.on(&drained) == 0
    });
    assert_ne!(fleet.ready("steady"), [drained.as_str()]);
    fleet.ctl(&["uncordon", &drained]);

    // A definition that has changed moves nothing by itself.
    fleet.settle_on(&settings("steady", 1, 768));
    let restarted = Instant::now();
    fleet.restart_server();
    fleet.until("what runs is taken over", |fleet| {
        fleet.ready("steady").len() == 1 && fleet.ready("extra").len() == 2
    });
    let taken_over = Instant::now();
    let old = fleet.replicas("steady");
    assert_eq!(old[0]["stale"], true, "{old:?}");
    fleet.ctl(&["roll", "steady"]);
    fleet.until("the model is rolled", |fleet| {
        let replicas = fleet.replicas("steady");
        let is_new = |one: &serde_json::Value| one["state"] == "ready" && one["stale"] == false;
        replicas.len() == 1 && is_new(&replicas[0])
    });
    assert_ne!(fleet.replicas("steady")[0]["id"], old[0]["id"]);

    let removed = Instant::now();
    fleet.ctl(&["remove", "extra"]);
    fleet.until("the removed model is gone", |fleet| {
        fleet.replicas("extra").is_empty() && fleet.engines().len() == 1
    });
    let before = crowd.whole("steady");
    fleet.until("all clients stream on", |_| {
        crowd.whole("steady") >= before + 20
    });

    let calls = crowd.end();
    for ((model, way), count) in tally(&calls) {
        eprintln!("{count:6} {model}: {way}");
    }
    // Only a server that is being restarted turns a call away, before a stream has begun; and a model is asked for
    // until it is known to be gone.
    let is_right = |call: &&Call| match &call.outcome {
        Outcome::Whole(_) => true,
        Outcome::Broken(_) => false,
        Outcome::Refused(404, code) => {
            call.ended >= removed && call.model == "extra" && code == "model_not_found"
        }
        Outcome::Refused(..) | Outcome::Unheard => {
            call.ended >= restarted && call.begun <= taken_over
        }
    };
    let wrong: Vec<_> = calls.iter().filter(|call| !is_right(call)).collect();
    let wrong: Vec<_> = wrong
        .iter()
        .map(|call| (call.model, &call.outcome))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    fleet.end();
}
