//! The server is killed while clients stream.

use std::time::{Duration, Instant};

use super::{
    crowd::{Call, Crowd, Outcome, tally},
    fleet::{Fleet, settings},
};

#[test]
fn a_server_that_was_killed_under_load_takes_every_engine_over_and_starts_none_real_engine() {
    let nodes = [("a", "512MiB"), ("b", "512MiB"), ("c", "512MiB")];
    let mut fleet = Fleet::start(&settings("steady", 3, 512), &nodes);
    fleet.until("the model serves on all nodes", |fleet| {
        fleet.ready("steady") == ["a", "b", "c"]
    });
    let ids = |fleet: &Fleet| {
        let replicas = fleet.replicas("steady");
        let mut ids: Vec<_> = replicas.iter().map(|one| one["id"].to_string()).collect();
        ids.sort();
        ids
    };
    let (replicas, engines) = (ids(&fleet), fleet.engines());
    assert_eq!((replicas.len(), engines.len()), (3, 3));
    let crowd = Crowd::start(20, (fleet.clients(), fleet.key()), "steady", 4);
    fleet.until("all clients stream", |_| crowd.whole("steady") >= 40);

    let killed = Instant::now();
    fleet.kill_server();
    fleet.until("every replica is taken over", |fleet| {
        fleet.ready("steady") == ["a", "b", "c"]
    });
    let taken_over = Instant::now();
    let before = crowd.whole("steady");
    fleet.until("all clients stream on", |_| {
        crowd.whole("steady") >= before + 60
    });
    assert_eq!(ids(&fleet), replicas);
    assert_eq!(fleet.engines(), engines, "the same processes");

    let calls = crowd.end();
    for ((model, way), count) in tally(&calls) {
        eprintln!("{count:6} {model}: {way}");
    }
    let is_right = |call: &&Call| match &call.outcome {
        Outcome::Whole(_) => true,
        // It went through the server that was killed, and its client knew at once.
        Outcome::Broken(_) => call.begun <= killed && call.ended <= killed + Duration::from_secs(2),
        Outcome::Refused(..) | Outcome::Unheard => call.ended >= killed && call.begun <= taken_over,
    };
    let wrong: Vec<_> = calls.iter().filter(|call| !is_right(call)).collect();
    let wrong: Vec<_> = wrong.iter().map(|call| &call.outcome).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let broken = |call: &&Call| matches!(call.outcome, Outcome::Broken(_));
    assert!(
        calls.iter().any(|call| broken(&call)),
        "nothing was under way"
    );
    fleet.end();
}
