//! The store of weights as a whole: sets, gated hubs, mirrors, a full disk, what is collected and evicted.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that can't be set up has failed, and its tasks end with its runtime"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use llmgw_agent::weights::{WeightsConfig, WeightsError, WeightsStore};
use llmgw_bundle::digest::digest;
use llmgw_core::{
    clock::{Clock, ManualClock, Timestamp},
    cluster::weights::{
        FetchProgress, HubToken, Sha256Digest, Weights, WeightsFile, WeightsOnDisk, WeightsOrders,
    },
    error::{Code, Coded as _},
    gguf::{TensorType, Value, write::Draft},
    units::Bytes,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

/// Serves files by path, to who has the token where there is one.
struct Server {
    base: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start(files: &[(&str, &[u8])], token: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let files: BTreeMap<String, Vec<u8>> = files
            .iter()
            .map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec()))
            .collect();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head: Vec<u8> = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => break,
                    }
                }
                let head = String::from_utf8(head).unwrap();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                let lower = head.to_ascii_lowercase();
                log.lock().unwrap().push(path.clone());
                let is_allowed = token.is_none_or(|token| {
                    lower.contains(&format!("authorization: bearer {token}\r\n"))
                });
                let answer = match files.get(&path) {
                    _ if !is_allowed => b"HTTP/1.1 401 X\r\ncontent-length: 0\r\n\r\n".to_vec(),
                    None => b"HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n".to_vec(),
                    Some(bytes) => {
                        let head =
                            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", bytes.len());
                        [head.as_bytes(), bytes].concat()
                    }
                };
                drop(stream.write_all(&answer).await);
                drop(stream.shutdown().await);
            }
        });
        Self { base, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn sha256(bytes: &[u8]) -> Sha256Digest {
    digest(bytes).unwrap().sha256
}

fn single(source: &str, bytes: &[u8]) -> Weights {
    Weights {
        sources: vec![source.parse().unwrap()],
        sha256: Some(sha256(bytes)),
        size: Some(Bytes(u64::try_from(bytes.len()).unwrap())),
        files: Vec::new(),
    }
}

fn set(source: &str, files: &[(&str, &[u8])]) -> Weights {
    let file = |(path, bytes): &(&str, &[u8])| WeightsFile {
        path: (*path).to_owned(),
        sha256: sha256(bytes),
        size: Some(Bytes(u64::try_from(bytes.len()).unwrap())),
    };
    Weights {
        sources: vec![source.parse().unwrap()],
        sha256: None,
        size: None,
        files: files.iter().map(file).collect(),
    }
}

fn store(directory: &TempDir, change: impl FnOnce(&mut WeightsConfig)) -> WeightsStore {
    let mut config = WeightsConfig::in_directory(directory.path().join("weights"));
    config.times.pause = Duration::from_millis(1);
    change(&mut config);
    WeightsStore::new(config).unwrap()
}

async fn get(store: &WeightsStore, weights: &Weights) -> Result<PathBuf, WeightsError> {
    store.ensure(weights, &|_| ()).await
}

fn clock_at(now: Timestamp) -> Arc<ManualClock> {
    let clock = ManualClock::default();
    clock.advance(now.since(Timestamp(0)));
    Arc::new(clock)
}

/// What lies there, by digest.
async fn stock(store: &WeightsStore) -> Vec<WeightsOnDisk> {
    store.look().await;
    store.stock().borrow().clone().unwrap()
}

fn part(number: u16) -> Vec<u8> {
    let draft = Draft::default()
        .with("general.architecture", Value::Text("llama".into()))
        .with("split.no", Value::U16(number))
        .with("split.count", Value::U16(2))
        .with("split.tensors.count", Value::I32(2));
    let name = format!("blk.{number}.attn_q.weight");
    draft
        .tensor(&name, &[64, 64], TensorType::F16)
        .header()
        .unwrap()
}

#[tokio::test]
async fn a_split_model_lies_together_and_is_opened_by_its_first_part() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (part(0), part(1));
    let server = Server::start(
        &[
            ("/q/m-00001-of-00002.gguf", &one),
            ("/q/m-00002-of-00002.gguf", &two),
        ],
        None,
    )
    .await;
    let files: [(&str, &[u8]); 2] = [
        ("m-00001-of-00002.gguf", &one),
        ("m-00002-of-00002.gguf", &two),
    ];
    let weights = set(&format!("{}/q/m-00001-of-00002.gguf", server.base), &files);
    let heard = Mutex::new(Vec::new());
    let hears = |progress: FetchProgress| heard.lock().unwrap().push(progress);
    let store = store(&directory, |_| {});
    let path = store.ensure(&weights, &hears).await.unwrap();
    assert!(path.ends_with("m-00001-of-00002.gguf"), "{path:?}");
    assert_eq!(std::fs::read(&path).unwrap(), one);
    let second = path.with_file_name("m-00002-of-00002.gguf");
    assert_eq!(std::fs::read(second).unwrap(), two);
    let last = heard.lock().unwrap().last().cloned().unwrap();
    assert_eq!(last.bytes_total, weights.total());
    assert_eq!(
        Some(last.bytes_done),
        weights.total(),
        "progress is that of the whole"
    );
    // Nothing is fetched again, and who takes a link away gets it back.
    std::fs::remove_file(&path).unwrap();
    assert_eq!(get(&store, &weights).await.unwrap(), path);
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn parts_of_different_models_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let one = part(0);
    let server = Server::start(
        &[
            ("/m-00001-of-00002.gguf", &one),
            ("/m-00002-of-00002.gguf", &one),
        ],
        None,
    )
    .await;
    let files: [(&str, &[u8]); 2] = [
        ("m-00001-of-00002.gguf", &one),
        ("m-00002-of-00002.gguf", &one),
    ];
    let weights = set(&format!("{}/m-00001-of-00002.gguf", server.base), &files);
    let error = get(&store(&directory, |_| {}), &weights).await.unwrap_err();
    assert!(matches!(error, WeightsError::Set { .. }), "{error:?}");
    assert_eq!(error.code(), Code::VerificationFailed);
}

#[tokio::test]
async fn a_repository_of_safetensors_is_a_directory_and_shares_files_with_others() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(
        &[
            ("/a/config.json", b"{\"a\":1}"),
            ("/a/model.safetensors", b"weights"),
            ("/b/config.json", b"{\"b\":1}"),
        ],
        None,
    )
    .await;
    let store = store(&directory, |_| {});
    let a = set(
        &format!("{}/a/model.safetensors", server.base),
        &[
            ("config.json", b"{\"a\":1}"),
            ("model.safetensors", b"weights"),
        ],
    );
    let path = get(&store, &a).await.unwrap();
    assert!(path.is_dir());
    assert_eq!(
        std::fs::read(path.join("model.safetensors")).unwrap(),
        b"weights"
    );
    let b = set(
        &format!("{}/b/model.safetensors", server.base),
        &[
            ("config.json", b"{\"b\":1}"),
            ("model.safetensors", b"weights"),
        ],
    );
    let other = get(&store, &b).await.unwrap();
    assert_ne!(path, other);
    assert_eq!(
        std::fs::read(other.join("config.json")).unwrap(),
        b"{\"b\":1}"
    );
    assert_eq!(server.asked().len(), 3, "the weights are there already");
}

#[tokio::test]
async fn a_file_of_a_set_that_is_missing_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&[("/config.json", b"{}")], None).await;
    let weights = set(
        &format!("{}/model.safetensors", server.base),
        &[("config.json", b"{}"), ("model.safetensors", b"weights")],
    );
    let error = get(&store(&directory, |_| {}), &weights).await.unwrap_err();
    assert_eq!(error.to_string(), "model.safetensors of the set");
    assert_eq!(error.code(), Code::NotFound);
}

#[tokio::test]
async fn a_gated_file_is_had_with_the_token_that_was_given_and_that_no_file_holds() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&[("/o/r/resolve/c/m.gguf", b"weights")], Some("hf_secret")).await;
    let store = store(&directory, |config| config.hub.clone_from(&server.base));
    let weights = single("hf:o/r/m.gguf@c", b"weights");
    let error = get(&store, &weights).await.unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied);
    let hint = error.hint().unwrap();
    assert!(hint.contains("accept the terms of o/r"), "{hint}");
    store.follow(WeightsOrders {
        hub_token: HubToken::parse("hf_secret"),
        ..WeightsOrders::default()
    });
    get(&store, &weights).await.unwrap();
    assert!(!format!("{store:?}").contains("hf_secret"));
    let mut waiting = vec![directory.path().to_owned()];
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(
                std::fs::read_dir(path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else {
            let bytes = std::fs::read(&path).unwrap();
            assert!(
                !String::from_utf8_lossy(&bytes).contains("hf_secret"),
                "{path:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_mirror_is_the_one_that_the_control_plane_names() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&[("/models/a%20b/m.gguf", b"weights")], None).await;
    let store = store(&directory, |_| {});
    let weights = Weights {
        sources: vec![llmgw_core::cluster::weights::Source::Mirror {
            path: "a b/m.gguf".to_owned(),
        }],
        ..single("mirror:x", b"weights")
    };
    let error = get(&store, &weights).await.unwrap_err();
    assert!(error.to_string().contains("names none"), "{error}");
    assert!(error.hint().unwrap().contains("mirror"));
    store.follow(WeightsOrders {
        mirror: Some(format!("{}/models/", server.base)),
        ..WeightsOrders::default()
    });
    get(&store, &weights).await.unwrap();
    assert_eq!(server.asked(), ["/models/a%20b/m.gguf"]);
}

#[tokio::test]
async fn what_lies_there_is_told_and_collected_unless_it_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&[("/a", b"weights a"), ("/b", b"weights b")], None).await;
    let clock = clock_at(Timestamp(1_790_000_000_000));
    let store = store(&directory, |config| {
        config.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    });
    assert_eq!(*store.stock().borrow(), None, "nobody has looked yet");
    assert_eq!(stock(&store).await, []);
    let (a, b) = (b"weights a", b"weights b");
    for (path, bytes) in [("a", a), ("b", b)] {
        get(&store, &single(&format!("{}/{path}", server.base), bytes))
            .await
            .unwrap();
    }
    let lies = directory.path().join("here.gguf");
    std::fs::write(&lies, a).unwrap();
    get(
        &store,
        &single(&format!("file:{}", lies.display()), b"weights a"),
    )
    .await
    .unwrap();
    store.set_in_use(BTreeSet::from([sha256(b)]));
    let found = stock(&store).await;
    let of = |digest| {
        found
            .iter()
            .find(move |one| one.sha256 == digest && !one.in_place)
            .unwrap()
    };
    assert_eq!((of(sha256(a)).in_use, of(sha256(b)).in_use), (false, true));
    assert_eq!(of(sha256(a)).size, Bytes(9));
    assert_eq!(of(sha256(a)).last_used, Some(Timestamp(1_790_000_000_000)));
    store.follow(WeightsOrders {
        collect: BTreeSet::from([sha256(a), sha256(b)]),
        ..WeightsOrders::default()
    });
    store.ordered().await;
    assert_eq!(store.collect().await, Bytes(9));
    let left = stock(&store).await;
    assert!(
        left.iter()
            .all(|one| one.sha256 == sha256(b) || one.in_place),
        "{left:?}"
    );
    assert!(lies.exists(), "what the operator has put there stays");
    store.set_in_use(BTreeSet::new());
    store.collect().await;
    assert!(stock(&store).await.iter().all(|one| one.in_place));
}

#[tokio::test]
async fn the_same_weights_at_two_paths_have_one_fingerprint() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(&directory, |_| {});
    let mut large = vec![7; 300 << 10];
    for (name, change) in [("a", None), ("b", None), ("c", Some(150 << 10))] {
        if let Some(at) = change {
            large[at] = 8;
        }
        let path = directory.path().join(name);
        std::fs::write(&path, &large).unwrap();
        get(&store, &single(&format!("file:{}", path.display()), &large))
            .await
            .unwrap();
    }
    let found = stock(&store).await;
    let of = |end: &str| {
        found
            .iter()
            .find(|one| one.name.ends_with(end))
            .unwrap()
            .fingerprint
    };
    assert!(of("/a").is_some());
    assert_eq!(of("/a"), of("/b"));
    assert_ne!(of("/a"), of("/c"));
}

#[tokio::test]
async fn what_was_used_longest_ago_makes_room_when_that_is_allowed() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(
        &[
            ("/a", b"weights a"),
            ("/b", b"weights b"),
            ("/c", b"weights c"),
        ],
        None,
    )
    .await;
    let clock = clock_at(Timestamp(1_790_000_000_000));
    let wanted = |path: &str| {
        single(
            &format!("{}/{path}", server.base),
            format!("weights {path}").as_bytes(),
        )
    };
    let open = store(&directory, |config| {
        config.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    });
    for path in ["a", "b", "a"] {
        get(&open, &wanted(path)).await.unwrap();
        clock.advance(Duration::from_secs(60));
    }
    drop(open);
    // A disk that has no room for anything beside its reserve.
    let full = store(&directory, |config| config.disk_reserve = Bytes(u64::MAX));
    let error = get(&full, &wanted("c")).await.unwrap_err();
    assert!(matches!(error, WeightsError::Short(_)), "{error:?}");
    assert_eq!(
        stock(&full).await.len(),
        2,
        "nothing goes unless that was allowed"
    );
    full.follow(WeightsOrders {
        evict: true,
        ..WeightsOrders::default()
    });
    full.set_in_use(BTreeSet::from([sha256(b"weights a")]));
    let error = get(&full, &wanted("c")).await.unwrap_err();
    assert!(
        matches!(error, WeightsError::Short(_)),
        "there is no room all the same: {error:?}"
    );
    let left = stock(&full).await;
    let names: Vec<&str> = left.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["a"], "what is in use stays");
}

#[tokio::test]
async fn parts_of_fetches_are_removed_once_nobody_has_wanted_them_for_a_week() {
    let directory = tempfile::tempdir().unwrap();
    let shelf = directory
        .path()
        .join("weights/sha256")
        .join(sha256(b"x").to_string());
    std::fs::create_dir_all(&shelf).unwrap();
    for name in ["m.1.partial", "m.1.partial.json"] {
        std::fs::write(shelf.join(name), "half").unwrap();
    }
    let gone = shelf.with_file_name(format!("{}.gone.partial", sha256(b"y")));
    std::fs::create_dir_all(&gone).unwrap();
    let now = llmgw_core::clock::SystemClock::new().now();
    let clock = clock_at(now);
    let store = store(&directory, |config| {
        config.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    });
    store.remove_abandoned().await;
    assert!(shelf.join("m.1.partial").exists(), "it may be continued");
    assert!(!gone.exists(), "a removal that was cut off is finished");
    clock.advance(Duration::from_secs(8 * 86_400));
    store.remove_abandoned().await;
    assert!(!shelf.exists());
}

/// Two models are of the same bytes, and the sources of one are wrong: that is no failure of the other.
#[tokio::test]
async fn who_waits_for_the_same_bytes_is_not_failed_by_the_sources_of_others() {
    let bytes = part(0);
    let server = Server::start(&[("/good.gguf", &bytes), ("/bad.gguf", b"other")], None).await;
    let home = TempDir::new().unwrap();
    let store = store(&home, |_| ());
    let good = single(&format!("{}/good.gguf", server.base), &bytes);
    let bad = single(&format!("{}/bad.gguf", server.base), &bytes);
    // The wrong one comes first, and the other joins it.
    let (wrong, right) = tokio::join!(get(&store, &bad), get(&store, &good));
    assert_eq!(std::fs::read(right.unwrap()).unwrap(), bytes);
    // Whoever fails is told of its own sources, or has what the other has fetched meanwhile.
    if let Err(error) = wrong {
        assert!(!error.to_string().contains("good.gguf"), "{error}");
    }
}
