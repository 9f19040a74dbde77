//! A whole agent that runs an engine which no release knows, as an operator describes it.

#![expect(clippy::unwrap_used, reason = "a test that can't set itself up fails")]

#[path = "scene/plane.rs"]
mod plane;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use llmgw_agent::{
    agent::AgentConfig,
    process::inherited,
    supervise::{Ending, Timing},
};
use llmgw_core::{
    api::agent::NodeReport,
    cluster::{
        catalog::{Needs, Profile},
        engine::{EngineSource, ProvisionState, WantedEngine},
        replica::{ReplicaSpec, ReplicaState},
        weights::Weights,
    },
    fingerprint::Fingerprint,
    id::ReplicaId,
    units::{Bytes, Tokens},
};
use plane::Plane;
use serde_json::{Value, json};
use tempfile::TempDir;

struct Site {
    home: TempDir,
}

impl Site {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("model"), "weights of any kind").unwrap();
        Self { home }
    }

    fn words_file(&self) -> PathBuf {
        self.home.path().join("words")
    }

    fn words(&self) -> Vec<String> {
        let words = fs::read_to_string(self.words_file()).unwrap_or_default();
        words.lines().map(ToOwned::to_owned).collect()
    }

    fn config(&self, ending: Ending) -> AgentConfig {
        AgentConfig {
            environment: inherited(std::env::vars_os()),
            ending,
            timing: Timing {
                start_poll: Duration::from_millis(20),
                grace: Duration::from_secs(5),
                ..Timing::default()
            },
            ..AgentConfig::new(self.home.path().join("agent"))
        }
    }

    fn model(&self) -> PathBuf {
        self.home.path().join("model")
    }

    /// The engine as an operator would describe it, with or without a name that it answers with.
    fn described(&self, knows_names: bool) -> WantedEngine {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scene/described.py");
        let mut engine = json!({
            "command": [script, "--model", "{model}", "--listen", "{host}:{port}", "--words", self.words_file()],
            "env": {"DESCRIBED_LIMIT": "{context}x{parallel}"},
            "health": "/alive",
            "ready": "/prepared",
            "stop": "SIGINT",
            "metrics": {"path": "/numbers", "running": "described_running"},
            "probe": {"path": "/speak", "body": {"name": "{name}"}, "expect": "\"limit\": \"512x2\""},
            "version": "7",
        });
        if knows_names {
            let command = engine["command"].as_array_mut().unwrap();
            command.extend([json!("--alias"), json!("{replica}")]);
            engine["identity"] = json!("/names");
        }
        wanted(engine)
    }

    fn spec(&self) -> ReplicaSpec {
        ReplicaSpec {
            id: ReplicaId::generate(),
            model: "described".parse().unwrap(),
            profile: Profile {
                name: "default".parse().unwrap(),
                engine: "mine".parse().unwrap(),
                memory: Bytes::mib(100),
                context: Tokens(512),
                parallel: 2,
                needs: Needs::default(),
            },
            weights: Weights {
                sources: vec![format!("file:{}", self.model().display()).parse().unwrap()],
                sha256: None,
                size: None,
                files: Vec::new(),
            },
            fingerprint: Fingerprint(1),
            gpus: Vec::new(),
        }
    }
}

fn wanted(engine: Value) -> WantedEngine {
    let source = EngineSource::Custom(Box::new(serde_json::from_value(engine).unwrap()));
    WantedEngine::new("mine".parse().unwrap(), source)
}

fn is_ready(report: &NodeReport) -> bool {
    let failed = report
        .replicas
        .iter()
        .find(|one| one.state == ReplicaState::Failed);
    assert!(failed.is_none(), "{failed:?}");
    !report.replicas.is_empty()
        && report
            .replicas
            .iter()
            .all(|one| one.state == ReplicaState::Ready)
}

#[tokio::test]
async fn a_described_engine_serves_and_is_ended_by_its_own_signal() {
    for knows_names in [true, false] {
        let site = Site::new();
        let engine = site.described(knows_names);
        let spec = site.spec();
        let mut plane = Plane::of(site.config(Ending::StopEngines), 1).await;
        plane.want(std::slice::from_ref(&engine), &[&spec]).await;
        let report = plane.until(is_ready).await;
        let ProvisionState::Installed { version, variant } = &report.provision[0].state else {
            panic!("{:?}", report.provision);
        };
        assert_eq!((version.as_str(), variant.as_str()), ("7", "custom"));
        assert_eq!(site.words(), [format!("serves {}", site.model().display())]);
        plane.want(&[engine], &[]).await;
        plane.until(|report| report.replicas.is_empty()).await;
        assert_eq!(site.words()[1..], ["SIGINT"], "{knows_names}");
        plane.end().await;
    }
}

#[tokio::test]
async fn a_described_engine_is_taken_over_before_anybody_describes_it_again() {
    let site = Site::new();
    let engine = site.described(true);
    let spec = site.spec();
    let mut plane = Plane::of(site.config(Ending::KeepEngines), 1).await;
    plane.want(std::slice::from_ref(&engine), &[&spec]).await;
    let before = plane.until(is_ready).await;
    plane.end().await;

    let mut plane = Plane::of(site.config(Ending::StopEngines), 2).await;
    let after = plane.until(is_ready).await;
    assert_eq!(after.replicas[0].endpoint, before.replicas[0].endpoint);
    assert_eq!(site.words().len(), 1);
    plane.want(&[engine], &[]).await;
    plane.until(|report| report.replicas.is_empty()).await;
    assert_eq!(site.words()[1..], ["SIGINT"]);
    plane.end().await;
}

#[tokio::test]
async fn another_replica_behind_the_port_is_not_taken_for_this_one() {
    let site = Site::new();
    let mut engine = serde_json::to_value(site.described(true).source).unwrap();
    // It answers with a name that is not its own.
    let command = engine["custom"]["command"].as_array_mut().unwrap();
    *command.last_mut().unwrap() = json!("{replica}");
    command.push(json!("--alias"));
    command.push(json!("another"));
    let engine = wanted(engine["custom"].clone());
    let spec = site.spec();
    let mut config = site.config(Ending::StopEngines);
    config.timing.start_base = Duration::ZERO;
    let mut plane = Plane::of(config, 1).await;
    plane.want(&[engine], &[&spec]).await;
    plane
        .until(|report| {
            report
                .replicas
                .iter()
                .any(|one| one.state == ReplicaState::Starting)
        })
        .await;
    let waited = tokio::time::timeout(Duration::from_secs(3), plane.until(is_ready)).await;
    assert!(waited.is_err(), "it is taken for the replica");
    plane.end().await;
}

#[tokio::test]
async fn a_program_that_is_not_there_is_told_by_its_path() {
    let site = Site::new();
    let engine = wanted(json!({"command": ["/nonexistent/server", "{port}"], "health": "/h"}));
    let mut plane = Plane::of(site.config(Ending::StopEngines), 1).await;
    plane.want(&[engine], &[]).await;
    let report = plane
        .until(|report| {
            matches!(
                report.provision.first().map(|one| &one.state),
                Some(ProvisionState::Failed { .. })
            )
        })
        .await;
    let ProvisionState::Failed { error, .. } = &report.provision[0].state else {
        panic!("{report:?}");
    };
    assert_eq!(error, "/nonexistent/server: there is no such file");
    plane.end().await;
}
