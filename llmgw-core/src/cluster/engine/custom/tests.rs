use serde_json::json;

use super::*;

fn definition(change: impl FnOnce(&mut Value)) -> CustomEngineDefinition {
    let mut value = json!({
        "command": ["/opt/mine/server", "--model", "{model}", "--listen={host}:{port}", "--alias", "{replica}"],
        "env": {"MINE_THREADS": "{parallel}"},
        "health": "/health",
        "ready": "/ready",
        "identity": "/v1/models",
        "stop": "SIGINT",
        "metrics": {"path": "/metrics", "running": "mine:running"},
        "probe": {
            "path": "/v1/completions",
            "body": {"model": "{name}", "prompt": ["hi"], "max_tokens": 1},
            "expect": "completion_tokens",
        },
        "version": "1.2",
    });
    change(&mut value);
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_definition_survives_its_checked_form() {
    let definition = definition(|_| ());
    let engine = definition.clone().checked("engines.mine").unwrap();
    assert_eq!(engine.program(), "/opt/mine/server");
    assert_eq!(engine.stop(), StopSignal::Int);
    assert_eq!(CustomEngineDefinition::from(engine.clone()), definition);
    let json = serde_json::to_string(&engine).unwrap();
    assert_eq!(serde_json::from_str::<CustomEngine>(&json).unwrap(), engine);
}

#[test]
fn what_is_left_out_has_a_sensible_value() {
    let least = json!({"command": ["/s", "{port}"], "health": "/h", "metrics": "/m"});
    let engine: CustomEngine = serde_json::from_value(least).unwrap();
    assert_eq!(
        (engine.ready(), engine.stop(), engine.version()),
        ("/h", StopSignal::Term, "custom")
    );
    assert!(engine.identity().is_none() && engine.probe().is_none());
    assert_eq!(engine.metrics().unwrap().running, None);
}

#[test]
fn what_can_not_be_right_is_refused_with_the_path_of_its_field() {
    let cases: [(&str, Value, &str); 15] = [
        (
            "probe",
            json!({"path": "/p", "body": "{port}"}),
            "engines.mine.probe.body: {port} has no meaning in a request",
        ),
        ("command", json!([]), "engines.mine.command: it is empty"),
        (
            "command",
            json!(["server", "{port}"]),
            "engines.mine.command[0]: it is not an absolute path",
        ),
        (
            "command",
            json!(["/{model}", "{port}"]),
            "engines.mine.command[0]: the program has a placeholder",
        ),
        (
            "command",
            json!(["/s", "{port}", "--gpu={gpu}"]),
            "engines.mine.command[2]: {gpu} is not a placeholder",
        ),
        (
            "command",
            json!(["/s", "--port", "80"]),
            "engines.mine.command: it does not say where to listen",
        ),
        (
            "command",
            json!(["/s", "{port}"]),
            "engines.mine.identity: the command does not hand over the replica's id",
        ),
        (
            "env",
            json!({"LLMGW_REPLICA": "r"}),
            "engines.mine.env.LLMGW_REPLICA: names that begin with LLMGW_",
        ),
        (
            "env",
            json!({"A": "{x}"}),
            "engines.mine.env.A: {x} is not a placeholder",
        ),
        (
            "health",
            json!("health"),
            "engines.mine.health: it does not begin with /",
        ),
        (
            "ready",
            json!("/a b"),
            "engines.mine.ready: it is longer than 256 bytes or has",
        ),
        (
            "metrics",
            json!({"path": "/m", "running": "a{b}"}),
            "engines.mine.metrics.running: it is not the name of a number",
        ),
        (
            "probe",
            json!({"path": "/p", "body": {"a": ["{name}", "{b}"]}}),
            "engines.mine.probe.body.a[1]: {b} is not a placeholder",
        ),
        (
            "probe",
            json!({"path": "/p", "body": "x".repeat(MAX_BODY)}),
            "engines.mine.probe.body: it is larger than 16 KiB",
        ),
        ("version", json!(""), "engines.mine.version: it is empty"),
    ];
    for (field, value, says) in cases {
        let wrong = definition(|definition| definition[field] = value);
        let error = wrong.checked("engines.mine").unwrap_err();
        assert!(error.to_string().starts_with(says), "{error}");
        assert!(error.hint.is_some(), "{error}");
    }
}

#[test]
fn a_probe_fills_the_places_of_its_texts() {
    let engine = definition(|_| ()).checked("").unwrap();
    let body = engine.probe().unwrap().body(&|place| match place {
        Placeholder::Name => "org/tiny".to_owned(),
        other => other.as_str().to_owned(),
    });
    assert_eq!(
        body,
        json!({"model": "org/tiny", "prompt": ["hi"], "max_tokens": 1})
    );
}

#[test]
fn a_view_tells_no_secret_of_a_description() {
    let command = json!([
        "/opt/serve",
        "--api-key",
        "one",
        "--port",
        "{port}",
        "--hf-token=two",
        "--model",
        "{model}",
        "--alias",
        "{replica}"
    ]);
    let full = definition(|definition| {
        definition["command"] = command;
        definition["env"] = json!({"HF_TOKEN": "three", "HOME": "{model}"});
    });
    let full = full.checked("").unwrap();
    let told = full.without_secrets();
    let shown = serde_json::to_string(&CustomEngineDefinition::from(told.clone())).unwrap();
    for secret in ["one", "two", "three"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    for part in ["--api-key", "--hf-token=…", "{port}", "HF_TOKEN"] {
        assert!(shown.contains(part), "{shown}");
    }
    assert_eq!(told.version(), full.version(), "it is the same engine");
}
