//! From nothing to a real token, and to nothing again.

use std::{fs, os::unix::fs::PermissionsExt, time::Instant};

use super::harness::{Home, http, shell};

#[test]
fn a_first_start_serves_a_real_token_and_leaves_nothing_behind_real_engine() {
    let home = Home::new();
    let mut up = home.up(|_| {});
    up.ready();
    assert!(
        up.said().contains("engine: llamacpp by wheel"),
        "{}",
        up.said()
    );

    // The line to paste works as pasted.
    let pasted = shell(up.curl());
    let answer: serde_json::Value = serde_json::from_slice(&pasted.stdout).unwrap();
    assert_eq!(answer["model"], "smollm2-135m", "{answer}");
    assert!(
        answer["usage"]["completion_tokens"].as_u64().unwrap() > 0,
        "{answer}"
    );

    let mode = fs::metadata(home.key_file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let key = fs::read_to_string(home.key_file()).unwrap();
    assert!(
        !up.said().contains(key.trim()),
        "the key is in the file alone"
    );

    clients_are_refused_with_a_reason(&up.address(), key.trim());
    operators_see_what_is(&up, &home);
    keys_are_made_and_revoked_at_once(&up);
    let replica = replica_of(&up);

    assert!(up.terminate().success());
    assert_eq!(home.processes(), Vec::<String>::new());
    // A copy of the database file alone is whole: its log is empty, or gone.
    let log = fs::metadata(home.data_dir().join("llmgw.db-wal"));
    assert_eq!(log.map_or(0, |log| log.len()), 0);

    // The second start needs no network: every index and every proxy is a dead end.
    let begun = Instant::now();
    let mut again = home.up(|command| {
        let dead = "http://127.0.0.1:9";
        command.envs([
            ("PIP_INDEX_URL", dead),
            ("PIP_NO_INDEX", "1"),
            ("HTTPS_PROXY", dead),
            ("HTTP_PROXY", dead),
        ]);
    });
    again.ready();
    let took = begun.elapsed();
    eprintln!("the second start took {took:?}");
    assert!(
        !again.said().contains("fetching weights"),
        "{}",
        again.said()
    );
    assert!(!again.said().contains("downloading"), "{}", again.said());
    assert!(!again.said().contains("installing"), "{}", again.said());
    assert!(!again.said().contains("taken over"), "{}", again.said());
    let second = replica_of(&again);
    assert_ne!(second, replica);

    // What a kill leaves is taken over, and that is said.
    again.kill();
    let mut third = home.up(|_| {});
    third.ready();
    assert!(
        third
            .said()
            .contains("smollm2-135m: its engine still runs from before, and is taken over"),
        "{}",
        third.said()
    );
    assert_eq!(replica_of(&third), second);
    assert!(third.terminate().success());
    assert_eq!(home.processes(), Vec::<String>::new());
}

fn clients_are_refused_with_a_reason(address: &str, key: &str) {
    let chat = format!("{address}/v1/chat/completions");
    let bearer = format!("Authorization: Bearer {key}");
    let code = |arguments: &[&str]| {
        let (status, body) = http(arguments);
        (
            status,
            body["error"]["code"].as_str().unwrap_or("none").to_owned(),
        )
    };
    let wrong = [
        "-H",
        "Authorization: Bearer sk-wrong",
        "-d",
        "{}",
        chat.as_str(),
    ];
    assert_eq!(code(&wrong), (401, "invalid_api_key".into()));
    assert_eq!(code(&["-d", "{}", &chat]), (401, "invalid_api_key".into()));
    assert_eq!(
        code(&["-H", &bearer, "-d", "{", &chat]),
        (400, "invalid_json".into())
    );
    assert_eq!(
        code(&["-H", &bearer, "-d", "{}", &chat]),
        (400, "missing_field".into())
    );
    let unknown = r#"{"model": "nobody", "messages": []}"#;
    assert_eq!(
        code(&["-H", &bearer, "-d", unknown, &chat]),
        (404, "model_not_found".into())
    );
    let other = format!("{address}/v1/nothing");
    assert_eq!(code(&["-H", &bearer, &other]), (404, "unknown_url".into()));
    // The engine's own refusal, in the shape that clients read.
    let broken = r#"{"model": "smollm2-135m", "messages": "x"}"#;
    let (status, body) = http(&["-H", &bearer, "-d", broken, &chat]);
    assert_eq!(status, 400, "{body}");
    assert!(
        body["error"]["message"]
            .as_str()
            .unwrap()
            .contains("messages"),
        "{body}"
    );
    assert_eq!(http(&[&format!("{address}/readyz")]).0, 200);
    assert_eq!(http(&[&format!("{address}/healthz")]).0, 200);
}

fn operators_see_what_is(up: &super::harness::Up, home: &Home) {
    let summary = up.ctl_json(&["status"]);
    assert_eq!(
        (&summary["models_satisfied"], &summary["nodes_ready"]),
        (&1.into(), &1.into())
    );
    let nodes = up.ctl_json(&["nodes"]);
    assert_eq!(
        nodes[0]["provision"][0]["state"]["state"], "installed",
        "{nodes}"
    );

    // What fits nowhere is explained, node by node, and refused at once with the same reason.
    assert!(up.add_giant("giant", &home.path()).status.success());
    let explained = up.ctl_json(&["explain", "giant"]);
    let reason = &explained["report"]["rejections"][0]["reasons"][0];
    assert_eq!(reason["check"], "memory", "{explained}");
    assert_eq!(reason["need"]["bytes"], 400_000_000_000_u64);
    assert!(reason["short_by"].as_u64().unwrap() > 0);
    let key = fs::read_to_string(home.key_file()).unwrap();
    let bearer = format!("Authorization: Bearer {}", key.trim());
    let chat = format!("{}/v1/chat/completions", up.address());
    let body = r#"{"model": "giant", "messages": []}"#;
    let begun = Instant::now();
    let (status, body) = http(&["-H", &bearer, "-d", body, &chat]);
    assert!(begun.elapsed().as_secs() < 2, "it is answered at once");
    assert_eq!(
        (status, &body["error"]["code"]),
        (503, &"model_unplaceable".into()),
        "{body}"
    );
    let message = body["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("needs 372.5 GiB") && message.contains("short by"),
        "{message}"
    );
    assert!(up.ctl(&["remove", "giant"]).status.success());
    assert_eq!(up.ctl(&["remove", "giant"]).status.code(), Some(3));
    let declared = up.ctl(&["remove", "smollm2-135m"]);
    assert!(
        String::from_utf8_lossy(&declared.stderr).contains("declared"),
        "{declared:?}"
    );
}

fn keys_are_made_and_revoked_at_once(up: &super::harness::Up) {
    let models = format!("{}/v1/models", up.address());
    let status = |secret: &str| {
        let bearer = format!("Authorization: Bearer {secret}");
        http(&["-H", &bearer, &models]).0
    };
    let created = up.ctl(&["keys", "create", "another machine"]);
    assert!(created.status.success(), "{created:?}");
    let secret = String::from_utf8(created.stdout).unwrap().trim().to_owned();
    assert_eq!(status(&secret), 200);

    let keys = up.ctl_json(&["keys"]);
    let named = |key: &&serde_json::Value| key["name"] == "another machine";
    let key = keys.as_array().unwrap().iter().find(named).unwrap();
    let id = key["id"].as_str().unwrap();
    assert!(!keys.to_string().contains(&secret), "secrets are not kept");
    assert!(up.ctl(&["keys", "revoke", id]).status.success());
    assert_eq!(status(&secret), 401);

    let audit = up.ctl_json(&["audit"]);
    let orders: Vec<&str> = audit
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["action"].as_str().unwrap())
        .collect();
    let expected = ["model.add", "model.remove", "key.create", "key.revoke"];
    assert_eq!(orders, expected);
}

fn replica_of(up: &super::harness::Up) -> String {
    let replicas = up.ctl_json(&["replicas"]);
    assert_eq!(replicas.as_array().unwrap().len(), 1, "{replicas}");
    assert_eq!(replicas[0]["state"], "ready");
    replicas[0]["id"].as_str().unwrap().to_owned()
}
