//! A control plane that does what a test says, and the daemon that it speaks with.

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
use llmgw_agent::process::identity::ProcessIdentity;
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
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    process::{Child, Command},
};
use tokio_util::codec::{Framed, LengthDelimitedCodec};

/// A node with one replica to run.
pub(crate) struct Scene {
    pub(crate) dir: tempfile::TempDir,
    listener: TcpListener,
    pub(crate) spec: ReplicaSpec,
    /// The engine that is wanted.
    pub(crate) engine: WantedEngine,
    /// Flags for the daemon, besides those that every scene needs.
    pub(crate) flags: Vec<String>,
    /// Where the daemon keeps its things.
    pub(crate) home: PathBuf,
}

pub(crate) type Frames = Framed<TcpStream, LengthDelimitedCodec>;

impl Scene {
    /// With an engine that does as the plan says.
    pub(crate) async fn new(mut plan: Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("token"), "secret").unwrap();
        let model = dir.path().join("model.gguf");
        plan["pids"] = json!(dir.path().join("pids"));
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
                files: Vec::new(),
            },
            fingerprint: Fingerprint(1),
            gpus: Vec::new(),
        };
        Self {
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            spec,
            engine: WantedEngine::new("llamacpp".parse().unwrap(), EngineSource::Auto),
            flags: vec!["--llamacpp-path".into(), engine().display().to_string()],
            home: dir.path().join("home"),
            dir,
        }
    }

    pub(crate) fn start(&self) -> Child {
        self.command().spawn().unwrap()
    }

    /// The daemon of this node.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_llmgw-agent"));
        command
            .args([
                "run",
                "--server",
                &self.listener.local_addr().unwrap().to_string(),
            ])
            .arg("--data-dir")
            .arg(&self.home)
            .arg("--token-file")
            .arg(self.dir.path().join("token"))
            .args(&self.flags)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// The next session whose agent still lives: one that was killed may have left a connection behind.
    pub(crate) async fn accept(&self) -> Frames {
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

    pub(crate) async fn want(&self, frames: &mut Frames, replicas: &[ReplicaSpec]) {
        let desired = ToAgent::Desired(Box::new(DesiredState {
            epoch: 1,
            revision: 1,
            engines: vec![self.engine.clone()],
            replicas: replicas.to_vec(),
            weights: Default::default(),
        }));
        let json = serde_json::to_vec(&desired).unwrap();
        // The agent may have been killed just now.
        drop(frames.send(&json[..]).await);
    }

    /// Speaks with the agent that lives until it says that the replica is ready.
    pub(crate) async fn ready(&self) -> (Frames, NodeReport) {
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
    pub(crate) fn alive(&self) -> BTreeSet<ProcessIdentity> {
        let pids = fs::read_to_string(self.dir.path().join("pids")).unwrap_or_default();
        pids.lines()
            .filter_map(|pid| ProcessIdentity::of(pid.parse().unwrap()).unwrap())
            .collect()
    }
}

/// The first report that is as it should be; `None` when the agent has gone.
pub(crate) async fn until(
    frames: &mut Frames,
    holds: impl Fn(&NodeReport) -> bool,
) -> Option<NodeReport> {
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

/// How long a test waits before it fails: as long as an installation may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
