//! Settings that change while `llmgw up` serves.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::harness::{Home, Up};

#[test]
fn settings_change_while_a_model_serves_and_are_there_after_a_restart_real_engine() {
    let home = Home::new();
    let file = home.path().join("llmgw.yaml");
    fs::write(&file, "queue: {max_total: 100}\n").unwrap();
    let start = || {
        let mut up = home.up(|command| {
            command.arg("--config").arg(&file);
        });
        up.ready();
        up
    };
    let up = start();
    let before = replicas(&up);
    let starter = up.ctl_json(&["models"])[0].clone();
    // Another of the same bytes, which only the document names.
    let model = format!(
        "{{source: {}, sha256: {SHA256}, size: 98362432, profiles: [{{memory: 448MiB, context: 512}}]}}",
        starter["source"]
    );
    let set = up.ctl(&["settings", "set", "models.second", &model]);
    assert!(set.status.success(), "{set:?}");
    until("both serve", || ready(&up) == 2);

    let next = home.path().join("next.yaml");
    fs::write(&next, "queue: {max_total: 50}\n").unwrap();
    fs::rename(&next, &file).unwrap();
    until("the file is read again", || in_force(&up) == 50);
    fs::write(&file, "queue: {max_total: none}\n").unwrap();
    until("what can't be right is shown", || {
        up.ctl_json(&["settings"])["problem"].is_string()
    });
    assert_eq!(in_force(&up), 50);
    fs::write(&file, "queue: {max_total: 60}\n").unwrap();
    until("it is mended", || in_force(&up) == 60);
    assert!(up.ctl_json(&["settings"])["problem"].is_null());
    assert!(
        before.iter().all(|one| replicas(&up).contains(one)),
        "{before:?}"
    );
    assert!(up.terminate().success());

    let up = start();
    assert_eq!(up.ctl_json(&["settings"])["version"], 1);
    until("both serve again", || ready(&up) == 2);
    let back = up.ctl(&["settings", "rollback", "0"]);
    assert!(back.status.success(), "{back:?}");
    until("one is gone", || replicas(&up).len() == 1);
    assert!(up.terminate().success());
    assert_eq!(home.processes(), Vec::<String>::new());
}

fn in_force(up: &Up) -> u64 {
    up.ctl_json(&["settings"])["queue"]["max_total"]
        .as_u64()
        .unwrap()
}

fn replicas(up: &Up) -> Vec<String> {
    let replicas = up.ctl_json(&["replicas"]);
    let all = replicas.as_array().unwrap().iter();
    all.map(|one| one["id"].as_str().unwrap().to_owned())
        .collect()
}

fn ready(up: &Up) -> usize {
    let replicas = up.ctl_json(&["replicas"]);
    let all = replicas.as_array().unwrap().iter();
    let ready: Vec<&Value> = all.filter(|one| one["state"] == "ready").collect();
    ready.len()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "not in a minute: {what}");
        thread::sleep(Duration::from_millis(100));
    }
}

const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
