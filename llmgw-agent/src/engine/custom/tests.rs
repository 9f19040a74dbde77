use std::path::Path;

use serde_json::json;

use super::*;
use crate::engine::{InstalledEngine, Launch, openai::tests::spec};

fn described(description: Value) -> DescribedEngine {
    let description = serde_json::from_value(description).unwrap();
    DescribedEngine::new("mine".parse().unwrap(), description)
}

#[test]
fn every_place_of_the_description_is_filled() {
    let engine = described(json!({
        "command": ["/opt/mine", "{model}", "{name}", "{replica}", "{host}:{port}", "c{context}", "p{parallel}",
                    "g{gpus}", "{{}}"],
        "env": {"MINE": "{port}"},
        "health": "/h",
    }));
    let mut spec = spec("mine");
    spec.gpus = vec![2, 5];
    let installed = InstalledEngine {
        name: "mine".parse().unwrap(),
        version: "custom".to_owned(),
        variant: "custom".to_owned(),
        launch: Launch::Custom(Box::new(engine.description.clone())),
    };
    let command = engine.command(&LaunchRequest {
        engine: &installed,
        spec: &spec,
        weights: Path::new("/w/a b.gguf"),
        port: 4_711,
        card: None,
    });
    assert_eq!(command.program, Path::new("/opt/mine"));
    let id = spec.id.to_string();
    let expected = [
        "/w/a b.gguf",
        "org/tiny:q4",
        &id,
        "127.0.0.1:4711",
        "c4096",
        "p4",
        "g2,5",
        "{}",
    ];
    assert_eq!(command.args, expected);
    assert!(command.env.contains(&("MINE".into(), "4711".into())));
}

#[test]
fn what_it_answers_is_judged_as_described() {
    let engine = described(json!({
        "command": ["/opt/mine", "{port}", "{replica}"],
        "health": "/h",
        "ready": "/r",
        "identity": "/who",
        "stop": "SIGINT",
        "metrics": {"path": "/m", "running": "mine_running"},
        "probe": {"path": "/p", "body": {"model": "{name}"}, "expect": "done"},
    }));
    assert_eq!((engine.health_path(), engine.ready_path()), ("/h", "/r"));
    assert_eq!(engine.stop_signal(), Some(StopSignal::Int));
    assert_eq!(engine.busy_path(), Some("/m"));
    assert_eq!(engine.busy(b"mine_running{a=\"1\"} 2\n"), Some(2));
    let spec = spec("mine");
    assert!(engine.is_identity(format!("I am {}", spec.id).as_bytes(), spec.id));
    assert!(!engine.is_identity(b"", spec.id));
    let (path, body) = engine.probe_request(&spec).unwrap();
    assert_eq!((path, body), ("/p", json!({"model": "org/tiny:q4"})));
    assert!(engine.probe_answered(b"it is done"));
    assert!(!engine.probe_answered(b"it is not"));
}

#[test]
fn what_is_not_described_is_not_asked() {
    let engine =
        described(json!({"command": ["/opt/mine", "{port}"], "health": "/h", "metrics": "/m"}));
    assert_eq!(engine.ready_path(), "/h");
    assert!(engine.identity_path().is_none() && engine.probe_request(&spec("mine")).is_none());
    assert_eq!(engine.busy(b"llamacpp:requests_processing 1\n"), Some(1));
    assert_eq!(engine.busy(b"other 1\n"), None);
}
