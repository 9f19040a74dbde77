use std::path::Path;

use llmgw_core::{
    cluster::catalog::{GpuNeed, KvCache},
    units::Bytes,
};
use serde_json::json;

use super::*;
use crate::engine::{InstalledEngine, Launch, openai::tests::spec};

fn vllm() -> VllmEngine {
    VllmEngine::new("vllm".parse().unwrap())
}

fn installed() -> InstalledEngine {
    InstalledEngine {
        name: "vllm".parse().unwrap(),
        version: "0.33.0".to_owned(),
        variant: "environment".to_owned(),
        launch: Launch::Environment {
            python: "/e/venv/bin/python".into(),
        },
    }
}

fn command(spec: &ReplicaSpec, card: Option<Bytes>) -> EngineCommand {
    vllm().command(&LaunchRequest {
        engine: &installed(),
        spec,
        weights: Path::new("/w/tiny"),
        port: 4_711,
        card,
    })
}

fn text(command: &EngineCommand) -> String {
    let args: Vec<_> = command
        .args
        .iter()
        .map(|arg| arg.to_str().unwrap())
        .collect();
    args.join(" ")
}

fn on_gpus(memory: Option<Bytes>) -> ReplicaSpec {
    let mut spec = spec("vllm");
    spec.gpus = vec![1, 3];
    spec.profile.needs.gpus = Some(GpuNeed {
        count: 2,
        classes: Vec::new(),
        memory,
    });
    spec
}

#[test]
fn a_profile_becomes_the_flags_that_vllm_reads() {
    let spec = on_gpus(Some(Bytes::gib(40)));
    let command = command(&spec, Some(Bytes::gib(80)));
    assert_eq!(command.program, Path::new("/e/venv/bin/python"));
    assert_eq!(
        text(&command),
        format!(
            "-I -m vllm.entrypoints.cli.main serve /w/tiny --host 127.0.0.1 --port 4711 \
             --served-model-name org/tiny:q4 {} --max-model-len 4096 --max-num-seqs 4 \
             --tensor-parallel-size 2 --disable-access-log-for-endpoints /health,/metrics,/v1/models \
             --gpu-memory-utilization 0.5000",
            spec.id
        )
    );
    let variable = |name: &str| {
        let found = command.env.iter().find(|(key, _)| key == name);
        found.unwrap().1.to_str().unwrap()
    };
    assert_eq!(variable("HF_HUB_OFFLINE"), "1");
    assert!(variable("PATH").starts_with("/e/venv/bin:/usr/local/sbin:"));
}

#[test]
fn a_quantised_cache_is_asked_for_by_its_type() {
    let mut spec = on_gpus(None);
    assert!(!text(&command(&spec, None)).contains("--kv-cache-dtype"));
    spec.profile.needs.kv_cache = KvCache::F8;
    assert!(text(&command(&spec, None)).ends_with(" --kv-cache-dtype fp8"));
}

#[test]
fn whole_gpus_are_left_to_vllm_and_parts_need_the_size_of_the_card() {
    assert!(!text(&command(&on_gpus(None), None)).contains("--gpu-memory-utilization"));
    let (engine, spec) = (installed(), on_gpus(Some(Bytes::gib(40))));
    let request = LaunchRequest {
        engine: &engine,
        spec: &spec,
        weights: Path::new("/w/tiny"),
        port: 1,
        card: None,
    };
    assert!(matches!(
        vllm().check(&request),
        Err(LaunchProblem::CardUnknown { .. })
    ));
    let request = LaunchRequest {
        card: Some(Bytes::gib(80)),
        ..request
    };
    assert_eq!(vllm().check(&request), Ok(()));
}

#[test]
fn a_replica_is_known_by_its_second_name() {
    let (mine, other) = (ReplicaId::generate(), ReplicaId::generate());
    let body = json!({"object": "list", "data": [
        {"id": "org/tiny:q4", "object": "model", "owned_by": "vllm", "root": "/w/tiny"},
        {"id": mine.to_string(), "object": "model", "owned_by": "vllm", "root": "/w/tiny"},
    ]})
    .to_string();
    assert!(vllm().is_identity(body.as_bytes(), mine));
    assert!(!vllm().is_identity(body.as_bytes(), other));
    assert!(!vllm().is_identity(b"<html>", mine));
}

#[test]
fn requests_that_run_are_counted_over_its_engines() {
    let text = b"vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 2.0\n\
        vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 1.0\n\
        vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 7.0\n";
    assert_eq!(vllm().busy(text), Some(3));
    assert_eq!(vllm().busy(b"{}"), None);
}
