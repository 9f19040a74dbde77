//! The daemon, killed at any moment and started again: engines are neither lost nor doubled.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't set itself up fails"
)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use futures_util::{SinkExt as _, StreamExt as _};
use llmgw_agent::process::{ProcessRuntime as _, identity::ProcessIdentity, native::NativeConfig};
use llmgw_core::{
    api::agent::{DesiredState, MAX_FRAME, NodeReport, PROTOCOL, ToAgent, ToServer},
    cluster::{
        catalog::{Needs, Profile},
        engine::{EngineSource, WantedEngine},
        replica::{ReplicaSpec, ReplicaState},
        weights::Weights,
    },
    fingerprint::Fingerprint,
    id::ReplicaId,
    units::{Bytes, Tokens},
};
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpStream},
    process::{Child, Command},
};
use tokio_util::codec::{Framed, LengthDelimitedCodec};

struct Scene {
    dir: tempfile::TempDir,
    listener: TcpListener,
    spec: ReplicaSpec,
}

type Frames = Framed<TcpStream, LengthDelimitedCodec>;

#[tokio::test]
async fn a_kill_at_any_moment_neither_loses_nor_doubles_an_engine() {
    let scene = Scene::new().await;
    // From before the first connection until long after the engine is ready.
    for delay in [0, 30, 60, 90, 120, 150, 180, 220, 260, 300, 400, 600] {
        let mut agent = scene.start();
        let serving = async {
            let mut frames = scene.accept().await;
            scene
                .want(&mut frames, std::slice::from_ref(&scene.spec))
                .await;
            while frames.next().await.is_some() {}
        };
        // The moment of the kill is what is tested, not waited for.
        let killed = tokio::time::sleep(Duration::from_millis(delay));
        tokio::select! {
            () = serving => panic!("the agent ended by itself"),
            () = killed => {}
        }
        agent.kill().await.unwrap();

        let mut agent = scene.start();
        let (mut frames, ready) = scene.ready().await;
        assert_eq!(ready.replicas.len(), 1, "{ready:?}");
        let alive = scene.alive();
        assert_eq!(
            alive.len(),
            2,
            "one engine and its child, after {delay} ms: {alive:?}"
        );
        // Left to the next round half of the time, ended the other half.
        if delay % 60 == 0 {
            scene.want(&mut frames, &[]).await;
            let gone = until(&mut frames, |report| report.replicas.is_empty()).await;
            assert!(gone.is_some());
            assert!(scene.alive().is_empty());
        }
        agent.kill().await.unwrap();
    }

    // And a good end.
    let mut agent = scene.start();
    let (mut frames, _) = scene.ready().await;
    let pid = agent.id().unwrap().to_string();
    let asked = Command::new("kill").args(["-TERM", &pid]).status().await;
    assert!(asked.unwrap().success());
    let last = until(&mut frames, |report| {
        report
            .replicas
            .iter()
            .all(|one| one.state == ReplicaState::Stopped)
    });
    assert!(last.await.is_some());
    let ended = tokio::time::timeout(PATIENCE, agent.wait())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(ended.code(), Some(0));
    assert!(scene.alive().is_empty());
    let config = NativeConfig {
        data_dir: scene.home(),
        environment: Vec::new(),
    };
    assert_eq!(config.build().unwrap().leftovers().await.unwrap(), []);
}

#[tokio::test]
async fn wrong_input_is_one_line_a_hint_and_a_two() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    fs::write(&token, "secret\n").unwrap();
    let empty = dir.path().join("empty");
    fs::write(&empty, "\n").unwrap();
    for (server, token, expected) in [
        ("10.0.0.1:8443", &token, "secure session"),
        ("nowhere", &token, "not an address"),
        ("127.0.0.1:1", &empty, "holds no token"),
        ("127.0.0.1:1", &dir.path().join("none"), "No such file"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_llmgw-agent"))
            .args(["run", "--server", server, "--data-dir"])
            .arg(dir.path())
            .arg("--token-file")
            .arg(token)
            .output()
            .await
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        let lines: Vec<&str> = said.lines().collect();
        assert!(
            lines[0].starts_with("error: ") && lines[0].contains(expected),
            "{said}"
        );
        assert!(lines[1].starts_with("hint: "), "{said}");
        assert_eq!(lines.len(), 2, "{said}");
    }
}

#[tokio::test]
async fn facts_are_shown_for_people_and_for_programs() {
    let facts = |format: &'static str| async move {
        let output = Command::new(env!("CARGO_BIN_EXE_llmgw-agent"))
            .args(["facts", "-o", format])
            .output()
            .await
            .unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = facts("text").await;
    let json: llmgw_core::cluster::node::NodeFacts =
        serde_json::from_str(&facts("json").await).unwrap();
    assert!(shown.contains(&json.hostname), "{shown}");
    assert!(json.memory.is_some() && json.gpus.is_some());
}

impl Scene {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("token"), "secret").unwrap();
        let model = dir.path().join("model.gguf");
        let plan = json!({"children": ["session"], "pids": dir.path().join("pids")});
        fs::write(&model, plan.to_string()).unwrap();
        let spec = ReplicaSpec {
            id: ReplicaId::generate(),
            model: "stand-in".parse().unwrap(),
            profile: Profile {
                name: "default".parse().unwrap(),
                engine: "llamacpp".parse().unwrap(),
                memory: Bytes::mib(100),
                context: Tokens(512),
                parallel: 1,
                needs: Needs::default(),
            },
            weights: Weights {
                sources: vec![format!("file:{}", model.display()).parse().unwrap()],
                sha256: None,
                size: None,
            },
            fingerprint: Fingerprint(1),
            gpus: Vec::new(),
        };
        Self {
            dir,
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            spec,
        }
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    fn start(&self) -> Child {
        Command::new(env!("CARGO_BIN_EXE_llmgw-agent"))
            .args([
                "run",
                "--server",
                &self.listener.local_addr().unwrap().to_string(),
            ])
            .arg("--data-dir")
            .arg(self.home())
            .arg("--token-file")
            .arg(self.dir.path().join("token"))
            .arg("--llamacpp-path")
            .arg(engine())
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    /// The next session whose agent still lives: one that was killed may have left a connection behind.
    async fn accept(&self) -> Frames {
        let accepted = async {
            loop {
                let (stream, _) = self.listener.accept().await.unwrap();
                let codec = LengthDelimitedCodec::builder()
                    .max_frame_length(MAX_FRAME)
                    .new_codec();
                let mut frames = Framed::new(stream, codec);
                let welcome = serde_json::to_vec(&ToAgent::Welcome { protocol: PROTOCOL }).unwrap();
                if let Some(Ok(hello)) = frames.next().await
                    && frames.send(&welcome[..]).await.is_ok()
                    && let Some(Ok(_report)) = frames.next().await
                {
                    let ToServer::Hello(hello) = serde_json::from_slice(&hello).unwrap() else {
                        panic!("a hello comes first");
                    };
                    assert_eq!(hello.token.as_deref(), Some("secret"));
                    return frames;
                }
            }
        };
        tokio::time::timeout(PATIENCE, accepted).await.unwrap()
    }

    async fn want(&self, frames: &mut Frames, replicas: &[ReplicaSpec]) {
        let desired = ToAgent::Desired(Box::new(DesiredState {
            epoch: 1,
            revision: 1,
            engines: vec![WantedEngine {
                name: "llamacpp".parse().unwrap(),
                source: EngineSource::Auto,
            }],
            replicas: replicas.to_vec(),
        }));
        let json = serde_json::to_vec(&desired).unwrap();
        // The agent may have been killed just now.
        drop(frames.send(&json[..]).await);
    }

    /// Speaks with the agent that lives until it says that the replica is ready.
    async fn ready(&self) -> (Frames, NodeReport) {
        loop {
            let mut frames = self.accept().await;
            self.want(&mut frames, std::slice::from_ref(&self.spec))
                .await;
            let ready = |report: &NodeReport| {
                report
                    .replicas
                    .iter()
                    .any(|one| one.state == ReplicaState::Ready)
            };
            if let Some(report) = until(&mut frames, ready).await {
                return (frames, report);
            }
        }
    }

    /// The processes that engines of all lives have written down, as far as they run.
    fn alive(&self) -> BTreeSet<ProcessIdentity> {
        let pids = fs::read_to_string(self.dir.path().join("pids")).unwrap_or_default();
        pids.lines()
            .filter_map(|pid| ProcessIdentity::of(pid.parse().unwrap()).unwrap())
            .collect()
    }
}

/// The first report that is as it should be; `None` when the agent has gone.
async fn until(frames: &mut Frames, holds: impl Fn(&NodeReport) -> bool) -> Option<NodeReport> {
    let found = async {
        while let Some(Ok(frame)) = frames.next().await {
            if let ToServer::Report(report) = serde_json::from_slice(&frame).unwrap()
                && holds(&report)
            {
                return Some(*report);
            }
        }
        None
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap()
}

/// The stand-in of the agent library's own tests.
fn engine() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../llmgw-agent/tests/scene/engine.py")
}

const PATIENCE: Duration = Duration::from_secs(60);
