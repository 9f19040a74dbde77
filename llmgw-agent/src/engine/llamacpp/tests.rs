use std::path::Path;

use llmgw_core::{
    cluster::{
        catalog::{Needs, Profile},
        weights::{Source, Weights},
    },
    fingerprint::Fingerprint,
    units::Tokens,
};

use serde_json::json;

use super::*;
use crate::engine::InstalledEngine;

fn spec() -> ReplicaSpec {
    ReplicaSpec {
        id: ReplicaId::generate(),
        model: "org/tiny:q4".parse().unwrap(),
        profile: Profile {
            name: "default".parse().unwrap(),
            engine: "llamacpp".parse().unwrap(),
            memory: Bytes::mib(800),
            context: Tokens(4_096),
            parallel: 4,
            needs: Needs::default(),
        },
        weights: Weights {
            sources: vec![Source::File {
                path: "/models/tiny.gguf".to_owned(),
            }],
            sha256: None,
            size: None,
            files: Vec::new(),
        },
        fingerprint: Fingerprint(1),
        gpus: Vec::new(),
    }
}

fn command(spec: &ReplicaSpec, launch: Launch) -> (String, Vec<String>) {
    let engine = InstalledEngine {
        name: "llamacpp".parse().unwrap(),
        version: "1".to_owned(),
        variant: "test".to_owned(),
        launch,
    };
    let command = LlamaCppEngine::new(engine.name.clone()).command(&LaunchRequest {
        engine: &engine,
        spec,
        weights: Path::new("/w/tiny.gguf"),
        port: 4_711,
        card: None,
    });
    let args = command
        .args
        .iter()
        .map(|arg| arg.to_str().unwrap().to_owned())
        .collect();
    (command.program.display().to_string(), args)
}

fn value<'a>(args: &'a [String], flag: &str) -> &'a str {
    let at = args.iter().position(|arg| arg == flag).unwrap();
    &args[at + 1]
}

#[test]
fn threads_that_share_cores_soon_sleep_while_they_wait() {
    let env = |gpus: Vec<u32>| {
        let spec = ReplicaSpec { gpus, ..spec() };
        let engine = InstalledEngine {
            name: "llamacpp".parse().unwrap(),
            version: "1".to_owned(),
            variant: "test".to_owned(),
            launch: Launch::Program {
                program: "/opt/llama-server".into(),
            },
        };
        let command = LlamaCppEngine::new(engine.name.clone()).command(&LaunchRequest {
            engine: &engine,
            spec: &spec,
            weights: Path::new("/w/tiny.gguf"),
            port: 4_711,
            card: None,
        });
        command.env
    };
    let few = [("GOMP_SPINCOUNT".into(), "200".into())];
    assert_eq!(env(Vec::new()), few);
    assert_eq!(env(vec![0]), []);
}

#[test]
fn the_program_gets_the_context_of_all_slots_together() {
    let spec = spec();
    let (program, args) = command(
        &spec,
        Launch::Program {
            program: "/opt/llama-server".into(),
        },
    );
    assert_eq!(program, "/opt/llama-server");
    assert_eq!(value(&args, "--ctx-size"), "16384");
    assert_eq!(value(&args, "--parallel"), "4");
    assert_eq!(value(&args, "--host"), "127.0.0.1");
    assert_eq!(value(&args, "--port"), "4711");
    assert_eq!(value(&args, "-m"), "/w/tiny.gguf");
    assert_eq!(
        value(&args, "--alias"),
        format!("org/tiny:q4,{id}", id = spec.id)
    );
}

#[test]
fn the_launcher_gets_the_context_of_one_slot_and_both_aliases() {
    let spec = spec();
    let (program, args) = command(
        &spec,
        Launch::Wheel {
            python: "/e/python".into(),
            launcher: "/e/launcher.py".into(),
        },
    );
    assert_eq!(program, "/e/python");
    assert_eq!(args[..2], ["-I", "/e/launcher.py"]);
    assert_eq!(value(&args, "--context"), "4096");
    assert_eq!(value(&args, "--parallel"), "4");
    let aliases: Vec<&String> = args
        .windows(2)
        .filter(|pair| pair[0] == "--alias")
        .map(|pair| &pair[1])
        .collect();
    assert_eq!(aliases, [&"org/tiny:q4".to_owned(), &spec.id.to_string()]);
}

#[test]
fn what_a_profile_says_of_pooling_reaches_either_server() {
    let args = |pooling: Option<Pooling>, launch: Launch| {
        let mut spec = spec();
        spec.profile.needs.pooling = pooling;
        command(&spec, launch).1
    };
    let wheel = || Launch::Wheel {
        python: "/e/python".into(),
        launcher: "/e/launcher.py".into(),
    };
    let program = || Launch::Program {
        program: "/opt/llama-server".into(),
    };
    for launch in [wheel(), program()] {
        let plain = args(None, launch);
        assert!(
            !plain
                .iter()
                .any(|arg| arg.contains("pool") || arg.contains("embed"))
        );
    }
    assert_eq!(
        value(&args(Some(Pooling::Mean), wheel()), "--pooling"),
        "mean"
    );
    let mean = args(Some(Pooling::Mean), program());
    assert!(mean.contains(&"--embeddings".to_owned()));
    assert_eq!(
        (value(&mean, "--pooling"), value(&mean, "--ubatch-size")),
        ("mean", "4096")
    );
    let auto = args(Some(Pooling::Auto), program());
    assert!(auto.contains(&"--embeddings".to_owned()) && !auto.contains(&"--pooling".to_owned()));
    assert!(args(Some(Pooling::Rank), program()).contains(&"--reranking".to_owned()));
}

#[test]
fn the_probe_asks_for_what_the_replica_makes() {
    let engine = LlamaCppEngine::new("llamacpp".parse().unwrap());
    let mut spec = spec();
    for (pooling, path) in [
        (Pooling::Mean, "/v1/embeddings"),
        (Pooling::Auto, "/v1/embeddings"),
        (Pooling::Rank, "/v1/rerank"),
    ] {
        spec.profile.needs.pooling = Some(pooling);
        let (asked, body) = engine.probe_request(&spec).unwrap();
        assert_eq!((asked, &body["model"]), (path, &json!("org/tiny:q4")));
    }
    assert!(engine.probe_answered(br#"{"data":[{"embedding":[0.5]}]}"#));
}

#[test]
fn the_prompt_cache_stays_within_the_profile() {
    assert_eq!(prompt_cache_mib(Bytes::mib(800)), 50);
    assert_eq!(prompt_cache_mib(Bytes(1)), 0);
    assert_eq!(prompt_cache_mib(Bytes(u64::MAX)), ENGINE_DEFAULT_CACHE_MIB);
}

#[test]
fn a_replica_is_known_by_its_id_and_not_by_its_model() {
    let engine = LlamaCppEngine::new("llamacpp".parse().unwrap());
    let (mine, other) = (ReplicaId::generate(), ReplicaId::generate());
    let listed = json!({"object": "list", "data": [
        {"id": "tiny", "aliases": ["tiny", mine.to_string()], "object": "model"},
    ]});
    let body = listed.to_string();
    assert!(engine.is_identity(body.as_bytes(), mine));
    assert!(!engine.is_identity(body.as_bytes(), other));
    let joined = json!({"data": [{"id": format!("tiny,{mine}")}]}).to_string();
    assert!(engine.is_identity(joined.as_bytes(), mine));
    for strange in ["", "[]", "{}", "null", r#"{"data": 3}"#] {
        assert!(!engine.is_identity(strange.as_bytes(), mine), "{strange}");
    }
}

#[test]
fn a_probe_is_answered_by_a_counted_token_alone() {
    let engine = LlamaCppEngine::new("llamacpp".parse().unwrap());
    let answered = |body: &str| engine.probe_answered(body.as_bytes());
    assert!(answered(
        r#"{"choices":[{"text":" three"}],"usage":{"completion_tokens":1,"prompt_tokens":4}}"#
    ));
    assert!(!answered(
        r#"{"choices":[],"usage":{"completion_tokens":0,"prompt_tokens":4}}"#
    ));
    assert!(!answered(
        r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#
    ));
    assert!(!answered("<html>"));
    let spec = spec();
    let (path, body) = engine.probe_request(&spec).unwrap();
    assert_eq!(path, "/v1/completions");
    assert_eq!(body["max_tokens"], 1);
    assert_eq!(body["model"], "org/tiny:q4");
}

#[test]
fn slots_that_compute_are_counted() {
    let engine = LlamaCppEngine::new("llamacpp".parse().unwrap());
    let body = br#"[{"id":0,"n_ctx":1024,"is_processing":true},{"id":1,"is_processing":false}]"#;
    assert_eq!(engine.busy(body), Some(1));
    assert_eq!(engine.busy(b"[]"), Some(0));
    assert_eq!(engine.busy(br#"{"error":{"code":501}}"#), None);
}
