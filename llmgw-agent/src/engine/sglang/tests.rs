use std::path::Path;

use llmgw_core::{
    cluster::catalog::{GpuNeed, KvCache},
    units::Bytes,
};
use serde_json::json;

use super::*;
use crate::engine::{InstalledEngine, Launch, openai::tests::spec};

fn sglang() -> SglangEngine {
    SglangEngine::new("sglang".parse().unwrap())
}

fn text(spec: &ReplicaSpec, card: Option<Bytes>) -> String {
    let engine = InstalledEngine {
        name: "sglang".parse().unwrap(),
        version: "0.5.23".to_owned(),
        variant: "environment".to_owned(),
        launch: Launch::Environment {
            python: "/e/venv/bin/python".into(),
        },
    };
    let command = sglang().command(&LaunchRequest {
        engine: &engine,
        spec,
        weights: Path::new("/w/tiny"),
        port: 4_711,
        card,
    });
    let args: Vec<_> = command
        .args
        .iter()
        .map(|arg| arg.to_str().unwrap())
        .collect();
    args.join(" ")
}

#[test]
fn a_profile_becomes_the_flags_that_sglang_reads() {
    let mut spec = spec("sglang");
    spec.gpus = vec![0, 1, 2, 3];
    spec.profile.needs.gpus = Some(GpuNeed {
        count: 4,
        classes: Vec::new(),
        memory: Some(Bytes::gib(40)),
    });
    assert_eq!(
        text(&spec, Some(Bytes::gib(80))),
        format!(
            "-I -m sglang.launch_server --model-path /w/tiny --host 127.0.0.1 --port 4711 \
             --served-model-name org/tiny:q4 --weight-version {} --context-length 4096 \
             --max-running-requests 4 --tensor-parallel-size 4 --enable-metrics --mem-fraction-static 0.4400",
            spec.id
        )
    );
    spec.profile.needs.gpus = None;
    spec.profile.needs.kv_cache = KvCache::F8;
    assert!(text(&spec, None).ends_with(" --kv-cache-dtype fp8_e4m3"));
    assert!(!text(&spec, None).contains("--mem-fraction-static"));
}

#[test]
fn a_replica_is_known_by_the_version_of_its_weights() {
    let (mine, other) = (ReplicaId::generate(), ReplicaId::generate());
    let body = json!({
        "model_path": "/w/tiny", "served_model_name": "org/tiny:q4", "is_generation": true,
        "weight_version": mine.to_string(),
    })
    .to_string();
    assert!(sglang().is_identity(body.as_bytes(), mine));
    assert!(!sglang().is_identity(body.as_bytes(), other));
    for strange in ["", "{}", r#"{"weight_version": 3}"#] {
        assert!(!sglang().is_identity(strange.as_bytes(), mine), "{strange}");
    }
}

#[test]
fn requests_that_run_are_counted() {
    let text = b"sglang:num_running_reqs{model_name=\"m\",tp_rank=\"0\"} 2.0\n\
        sglang:num_queue_reqs{model_name=\"m\"} 9.0\n";
    assert_eq!(sglang().busy(text), Some(2));
    assert_eq!(sglang().busy(b""), None);
}
