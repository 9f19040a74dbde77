//! Weights from servers and files, told by sockets and directories of the test's own.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that can't be set up has failed, and its tasks end with its runtime"
)]

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use llmgw_agent::weights::{WeightsConfig, WeightsError, WeightsStore};
use llmgw_bundle::digest::digest;
use llmgw_core::{
    cluster::weights::{FetchProgress, Weights},
    error::{Code, Coded as _},
    units::Bytes,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::{Notify, Semaphore},
};

const BODY: &[u8] = b"GGUF, and then the weights";

/// Serves `body` to everyone, after the gate has let it pass.
struct Server {
    base: String,
    asked: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

impl Server {
    async fn start(body: &'static [u8]) -> Self {
        let server = Self::held(body).await;
        server.gate.add_permits(100);
        server
    }

    /// Sends the first half of the body, and the rest when the gate is opened.
    async fn held(body: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            base: format!("http://{}", listener.local_addr().unwrap()),
            asked: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
        };
        let (asked, gate) = (Arc::clone(&server.asked), Arc::clone(&server.gate));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head: Vec<u8> = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                asked.fetch_add(1, Ordering::SeqCst);
                let head = String::from_utf8(head).unwrap();
                let (status, body) = match head.split(' ').nth(1).unwrap() {
                    "/o/r/resolve/rev/dir/m.gguf" | "/m.gguf" => ("200 OK", body),
                    _ => ("404 Not Found", &b""[..]),
                };
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                let (first, rest) = body.split_at(body.len() / 2);
                let gate = Arc::clone(&gate);
                let first = [head.as_bytes(), first].concat();
                tokio::spawn(async move {
                    // Who asked may have left.
                    drop(stream.write_all(&first).await);
                    gate.acquire().await.unwrap().forget();
                    drop(stream.write_all(rest).await);
                });
            }
        });
        server
    }

    fn url(&self) -> String {
        format!("{}/m.gguf", self.base)
    }
}

fn weights(sources: &[&str], sha256_of: Option<&[u8]>) -> Weights {
    Weights {
        sources: sources.iter().map(|text| text.parse().unwrap()).collect(),
        sha256: sha256_of.map(|bytes| digest(bytes).unwrap().sha256),
        size: None,
        files: Vec::new(),
    }
}

fn store(directory: &TempDir, hub: &str) -> WeightsStore {
    let mut config = WeightsConfig::in_directory(directory.path().join("weights"));
    hub.clone_into(&mut config.hub);
    WeightsStore::new(config).unwrap()
}

async fn get(store: &WeightsStore, weights: &Weights) -> Result<PathBuf, WeightsError> {
    store.ensure(weights, &|_| ()).await
}

/// A port where nobody listens.
async fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}/m.gguf", listener.local_addr().unwrap())
}

fn files_under(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(directory) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files
}

fn names_under(directory: &Path) -> Vec<String> {
    let files = files_under(directory);
    let names = files
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_file_of_the_hub_is_fetched_once_and_needs_no_network_then() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(BODY).await;
    let weights = weights(&["hf:o/r/dir/m.gguf@rev"], Some(BODY));
    let store = store(&directory, &server.base);
    let last = std::sync::Mutex::new(None);
    let hears = |progress: FetchProgress| *last.lock().unwrap() = Some(progress);
    let path = store.ensure(&weights, &hears).await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), BODY);
    assert!(path.ends_with(format!("weights/sha256/{}/m.gguf", weights.sha256.unwrap())));
    let progress = last.lock().unwrap().clone().unwrap();
    assert_eq!(progress.source, weights.sources[0]);
    let again = self::store(&directory, "http://127.0.0.1:9");
    assert_eq!(get(&again, &weights).await.unwrap(), path);
    assert_eq!(server.asked.load(Ordering::SeqCst), 1);
    assert!(again.notes(&weights).is_empty());
}

#[tokio::test]
async fn a_source_that_fails_is_noted_and_the_next_is_tried() {
    let directory = tempfile::tempdir().unwrap();
    let (server, nowhere) = (Server::start(BODY).await, nowhere().await);
    let weights = weights(
        &[&nowhere, "hf:o/r/missing.gguf", &server.url()],
        Some(BODY),
    );
    let store = store(&directory, &server.base);
    get(&store, &weights).await.unwrap();
    let notes = store.notes(&weights);
    let host = nowhere.strip_prefix("http://").unwrap();
    let host = host.strip_suffix("/m.gguf").unwrap();
    assert!(
        notes[0].starts_with(&format!("{host} could not be reached: "))
            && notes[0].ends_with(": trying hf:o/r/missing.gguf"),
        "{notes:?}"
    );
    assert_eq!(
        notes[1],
        format!(
            "{}/o/r/resolve/main/missing.gguf answered 404: trying {}",
            server.base,
            server.url()
        )
    );
    assert_eq!(notes.len(), 2);
}

#[tokio::test]
async fn other_bytes_are_refused_with_both_digests_and_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(b"other weights").await;
    let weights = weights(&[&server.url(), "hf:o/r/missing.gguf"], Some(BODY));
    let store = store(&directory, &server.base);
    let error = get(&store, &weights).await.unwrap_err();
    let WeightsError::NoSource { attempts } = &error else {
        panic!("{error:?}");
    };
    let actual = digest(&b"other weights"[..]).unwrap().sha256;
    assert_eq!(
        attempts[0].line,
        format!(
            "{} gives other bytes: sha256 {actual}, not the expected {}",
            server.url(),
            weights.sha256.unwrap()
        )
    );
    assert_eq!(attempts[0].code, Code::VerificationFailed);
    assert_eq!(attempts[1].code, Code::NotFound);
    assert!(error.to_string().contains("answered 404"), "{error}");
    assert_eq!(files_under(directory.path()), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn who_asks_at_the_same_time_shares_one_download() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(BODY).await;
    let store = store(&directory, &server.base);
    let one = weights(&[&server.url()], Some(BODY));
    let two = weights(&["hf:o/r/dir/m.gguf@rev"], Some(BODY));
    let (one, two) = tokio::join!(get(&store, &one), get(&store, &two));
    assert_eq!(one.unwrap(), two.unwrap());
    assert_eq!(server.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_fetch_that_was_given_up_half_way_is_continued_in_another_life() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::held(BODY).await;
    let weights = weights(&[&server.url()], Some(BODY));
    let begun = Notify::new();
    let hears = |progress: FetchProgress| {
        if progress.bytes_total.is_some() {
            begun.notify_one();
        }
    };
    let first = store(&directory, &server.base);
    tokio::select! {
        done = first.ensure(&weights, &hears) => panic!("{done:?}"),
        () = begun.notified() => {}
    }
    drop(first);
    let left = files_under(directory.path());
    assert!(
        left.iter()
            .any(|path| path.extension().is_some_and(|end| end == "partial")),
        "{left:?}"
    );
    server.gate.add_permits(2);
    let path = get(&store(&directory, &server.base), &weights)
        .await
        .unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), BODY);
    assert_eq!(server.asked.load(Ordering::SeqCst), 2);
    let mut names = names_under(directory.path());
    names.retain(|name| name != "verified.json.used");
    assert_eq!(names, ["m.gguf", "verified.json"]);
}

#[tokio::test]
async fn a_disk_without_room_is_told_before_anything_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(BODY).await;
    let mut config = WeightsConfig::in_directory(directory.path().join("weights"));
    config.disk_reserve = Bytes(u64::MAX);
    config.hub.clone_from(&server.base);
    let store = WeightsStore::new(config).unwrap();
    let lies = directory.path().join("here.gguf");
    std::fs::write(&lies, BODY).unwrap();
    let far = [server.url(), "pip:demo==1/demo/m.gguf".to_owned()];
    let mut wanted = weights(&[&far[0], &far[1]], Some(BODY));
    wanted.size = Some(Bytes(26));
    let error = get(&store, &wanted).await.unwrap_err();
    let WeightsError::Short(short) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(
        (short.need, short.have, short.short),
        (Bytes(26), Bytes::ZERO, Bytes(26))
    );
    assert_eq!(files_under(&directory.path().join("weights")).len(), 0);
    // A file that lies on the node needs no room.
    let file = format!("file:{}", lies.display());
    wanted.sources.push(file.parse().unwrap());
    assert_eq!(get(&store, &wanted).await.unwrap(), lies);
}

#[tokio::test]
async fn a_file_on_the_node_is_used_where_it_lies_and_read_once() {
    let directory = tempfile::tempdir().unwrap();
    let lies = directory.path().join("here.gguf");
    std::fs::write(&lies, BODY).unwrap();
    let store = store(&directory, "http://127.0.0.1:9");
    let file = format!("file:{}", lies.display());
    let unchecked = weights(&[&file], None);
    assert_eq!(get(&store, &unchecked).await.unwrap(), lies);
    assert_eq!(files_under(&directory.path().join("weights")).len(), 0);
    let checked = weights(&[&file], Some(BODY));
    assert_eq!(get(&store, &checked).await.unwrap(), lies);
    let records = files_under(&directory.path().join("weights/in-place"));
    assert_eq!(records.len(), 1);
    let written = std::fs::metadata(&records[0]).unwrap().modified().unwrap();
    assert_eq!(get(&store, &checked).await.unwrap(), lies);
    let now = std::fs::metadata(&records[0]).unwrap().modified().unwrap();
    assert_eq!(now, written, "the file was read again");
    std::fs::write(&lies, b"GGUF, and then other stuff").unwrap();
    let error = get(&store, &checked).await.unwrap_err();
    assert_eq!(error.code(), Code::VerificationFailed);
    assert!(error.to_string().contains("gives other bytes"), "{error}");
}

#[tokio::test]
async fn a_path_without_a_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(&directory, "http://127.0.0.1:9");
    let error = get(&store, &weights(&["file:/nonexistent/m.gguf"], None))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "no source gives the weights: there is no file at /nonexistent/m.gguf"
    );
    assert_eq!(error.code(), Code::NotFound);
    let empty = directory.path().join("empty.gguf");
    std::fs::write(&empty, "").unwrap();
    for path in [empty.as_path(), directory.path()] {
        let file = format!("file:{}", path.display());
        let error = get(&store, &weights(&[&file], None)).await.unwrap_err();
        assert!(error.to_string().contains("is not a file"), "{error}");
    }
}

#[tokio::test]
async fn bytes_from_elsewhere_are_not_used_without_a_digest() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(BODY).await;
    let store = store(&directory, &server.base);
    let wanted = weights(&[&server.url()], None);
    let error = get(&store, &wanted).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidRequest);
    assert_eq!(server.asked.load(Ordering::SeqCst), 0);
}
