//! The guard in front of a real engine.

use std::{
    fs,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::harness::{Home, Up};

#[test]
fn a_stream_is_blocked_and_changed_as_the_rules_of_the_moment_say_real_engine() {
    let home = Home::new();
    let file = home.path().join("llmgw.yaml");
    let blocks =
        "guard: {rules: [{name: long, regex: '(?s).{30}', stages: output, action: block}]}\n";
    fs::write(&file, blocks).unwrap();
    let start = || {
        let mut up = home.up(|command| {
            command.arg("--config").arg(&file);
        });
        up.ready();
        up
    };
    let up = start();
    let key = fs::read_to_string(home.key_file()).unwrap();
    let shown = up.ctl(&["guard"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("regex: (?s).{30}"), "{shown}");

    // It says more than thirty letters: none of them gets through.
    let (text, events) = stream(&up, key.trim());
    let last = events.last().unwrap();
    assert!(last.contains("content_policy_violation"), "{events:?}");
    assert!(!events.iter().any(|event| event == "[DONE]"));
    assert!(text.chars().count() < 30, "{text}");

    // Another policy, while it runs.
    let redacts =
        "{rules: [{name: vowels, regex: '[aeiouAEIOU]+', stages: output, action: redact}]}";
    let set = up.ctl(&["settings", "set", "guard", redacts]);
    assert!(set.status.success(), "{set:?}");
    let (text, events) = stream(&up, key.trim());
    assert_eq!(events.last().unwrap(), "[DONE]");
    assert!(text.contains("[redacted:vowels]"), "{text}");
    let rest = text.replace("[redacted:vowels]", "");
    assert!(!rest.contains(['a', 'e', 'i', 'o', 'u']), "{text}");

    until("both are written down", || decisions(&up).len() == 2);
    let before = decisions(&up);
    let [redacted, blocked] = before.as_slice() else {
        panic!("{before:?}");
    };
    assert_eq!(redacted["decisions"][0]["rule"], "vowels");
    assert_eq!(redacted["status"], 200);
    assert_eq!(blocked["decisions"][0]["action"], "block");
    assert_eq!(blocked["status"], 400);
    assert!(up.terminate().success());

    let up = start();
    assert_eq!(decisions(&up), before, "they are there after a restart");
    assert!(up.terminate().success());
}

fn decisions(up: &Up) -> Vec<Value> {
    let calls = up.ctl_json(&["guard", "decisions"]);
    calls.as_array().unwrap().clone()
}

/// The text of a streamed answer, and the data of its events.
fn stream(up: &Up, key: &str) -> (String, Vec<String>) {
    let body = r#"{"model":"smollm2-135m","stream":true,"max_tokens":60,"temperature":0,"messages":[{"role":"user","content":"Tell me about the sea, at length."}]}"#;
    let output = Command::new("curl")
        .args(["-sSN", "--max-time", "120", "-d", body])
        .args(["-H", &format!("authorization: Bearer {key}")])
        .arg(format!("{}/v1/chat/completions", up.address()))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let lines = said.lines();
    let mut events: Vec<String> = lines
        .filter_map(|line| line.strip_prefix("data: "))
        .map(str::to_owned)
        .collect();
    if events.is_empty() {
        // It was refused before a stream began.
        events.push(said);
    }
    let text = events.iter().filter_map(|event| {
        let json: Value = serde_json::from_str(event).ok()?;
        let delta = json["choices"][0]["delta"]["content"].as_str()?;
        Some(delta.to_owned())
    });
    (text.collect(), events)
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "not in a minute: {what}");
        thread::sleep(Duration::from_millis(100));
    }
}
