//! A model that starts with the first call and ends when nobody asks.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::harness::{Contact, Home, Up, http};

/// Adds a model of the starter model's bytes.
fn add(home: &Home, up: &Up, name: &str, memory: u64, scaling: &str) {
    let starter = &up.ctl_json(&["models"])[0];
    let sources = &starter["source"];
    let definition = format!(
        "name: {name}\nsource: {sources}\nsha256: {SHA256}\nsize: 98362432\n{scaling}\n\
         profiles: [{{memory: {memory}, context: 512, parallel: 4}}]\n"
    );
    let file = home.path().join(format!("{name}.yaml"));
    fs::write(&file, definition).unwrap();
    let added = up.ctl(&["add", "-f", file.to_str().unwrap()]);
    assert!(added.status.success(), "{added:?}");
}

fn ask(up: &Contact, key: &str) -> (u16, Value) {
    let chat = format!("{}/v1/chat/completions", up.address());
    let bearer = format!("Authorization: Bearer {key}");
    let body =
        r#"{"model": "sleeper", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}"#;
    // A start on a busy machine takes its time.
    http(&["--max-time", "240", "-H", &bearer, "-d", body, &chat])
}

fn key(home: &Home) -> String {
    fs::read_to_string(home.key_file())
        .unwrap()
        .trim()
        .to_owned()
}

fn decided(up: &Up, what: &str) -> usize {
    let decisions = up.ctl_json(&["decisions", "sleeper"]);
    let all = decisions.as_array().unwrap().iter();
    all.filter(|one| one["what"] == what).count()
}

/// The models of the replicas that there are, in order.
fn replicas(up: &Up) -> Vec<String> {
    let replicas = up.ctl_json(&["replicas"]);
    let models = replicas.as_array().unwrap().iter();
    models
        .map(|replica| replica["model"].as_str().unwrap().to_owned())
        .collect()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "not in a minute: {what}");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn fifty_calls_at_once_start_a_model_once_and_it_ends_and_starts_again_real_engine() {
    let home = Home::new();
    let mut up = home.up(|_| {});
    up.ready();
    add(&home, &up, "sleeper", 448 << 20, ON_DEMAND);
    let key = key(&home);
    assert_eq!(replicas(&up), ["smollm2-135m"], "nobody has asked yet");

    let begun = Instant::now();
    let contact: &Contact = &up;
    let answers: Vec<(u16, Value)> = thread::scope(|scope| {
        let asked: Vec<_> = (0..50)
            .map(|_| scope.spawn(|| ask(contact, &key)))
            .collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    eprintln!("50 calls to a model that slept: {:?}", begun.elapsed());
    for (status, body) in &answers {
        assert_eq!(*status, 200, "{body}");
        assert!(
            body["usage"]["completion_tokens"].as_u64().unwrap() > 0,
            "{body}"
        );
    }
    assert_eq!(decided(&up, "placed"), 1, "started once");

    until("it idles out", || replicas(&up).len() == 1);
    assert_eq!(decided(&up, "stopped"), 1);
    let summary = up.ctl_json(&["status"]);
    assert_eq!(summary["models_satisfied"], 2, "{summary}");

    let begun = Instant::now();
    let (status, body) = ask(&up, &key);
    eprintln!("started again and answered: {:?}", begun.elapsed());
    assert_eq!(status, 200, "{body}");
    assert_eq!(decided(&up, "placed"), 2);
    assert!(up.terminate().success());
    assert_eq!(home.processes(), Vec::<String>::new());
}

#[test]
fn a_call_for_a_model_without_room_is_answered_with_reasons_and_served_once_there_is_real_engine() {
    let home = Home::new();
    let mut up = home.up(|_| {});
    up.ready();
    let key = key(&home);
    // Beside the starter model there is room for one of these and not for two.
    let node = &up.ctl_json(&["nodes"])[0];
    let bytes = |field: &str| node[field].as_u64().unwrap();
    let half = (bytes("memory_allocatable") - bytes("memory_reserved")) / 2 + (1 << 20);
    add(&home, &up, "hog", half, "replicas: 1");
    until("the other model is placed", || replicas(&up).len() == 2);
    add(&home, &up, "sleeper", half, ON_DEMAND);

    let begun = Instant::now();
    let (status, body) = ask(&up, &key);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    let code = &body["error"]["code"];
    assert_eq!((status, code), (503, &"model_unplaceable".into()), "{body}");
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.contains("short by"), "{message}");
    eprintln!("answered in {took:?}: {message}");
    let summary = up.ctl_json(&["status"]);
    assert_eq!(summary["models_total"], 3, "{summary}");
    let sleeper = up.ctl_json(&["explain", "sleeper"]);
    assert_eq!(sleeper["placed"], false, "{sleeper}");

    assert!(up.ctl(&["remove", "hog"]).status.success());
    let (status, body) = ask(&up, &key);
    assert_eq!(status, 200, "{body}");
    assert!(up.terminate().success());
}

const ON_DEMAND: &str = "min_replicas: 0\nidle_timeout: 2s";
/// Of the starter model's file.
const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
