//! A hub of the test's own, which answers as the real one does.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::{
    error::{Code, Coded as _},
    fetch::FetchTimes,
    gguf::{TensorType, Value, write::Draft},
};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// One repository, `o/r`, whose `main` is [`COMMIT`].
struct Repo {
    files: BTreeMap<&'static str, (Vec<u8>, bool)>,
    token: Option<&'static str>,
    /// What the hub says that git calls each file, when it lies.
    blob: Option<String>,
}

struct Served {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Repo {
    /// Whether a file is in LFS is said with it.
    fn new(files: &[(&'static str, &[u8], bool)]) -> Self {
        let file =
            |(name, bytes, lfs): &(&'static str, &[u8], bool)| (*name, (bytes.to_vec(), *lfs));
        Self {
            files: files.iter().map(file).collect(),
            token: None,
            blob: None,
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the server ends with the test's own runtime"
    )]
    async fn serve(self) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => break,
                    }
                }
                let head = String::from_utf8(head).unwrap();
                let length = header(&head, "content-length").map_or(0, |n| n.parse().unwrap());
                let mut body = vec![0; length];
                stream.read_exact(&mut body).await.unwrap();
                log.lock()
                    .unwrap()
                    .push(head.lines().next().unwrap_or_default().to_owned());
                let answer = self.answer(&head, &body, address);
                drop(stream.write_all(&answer).await);
                drop(stream.shutdown().await);
            }
        });
        Served { address, asked }
    }

    fn answer(&self, head: &str, body: &[u8], address: SocketAddr) -> Vec<u8> {
        let path = head.split(' ').nth(1).unwrap();
        if let Some(name) = path.strip_prefix("/cdn/") {
            assert!(header(head, "authorization").is_none() || self.token.is_none());
            let (name, _) = name.split_once("?X-Signature=").expect("a signed address");
            return ranged(head, &self.files[name].0);
        }
        if let Some(token) = self.token
            && header(head, "authorization").as_deref() != Some(&format!("Bearer {token}"))
        {
            let status = if header(head, "authorization").is_some() {
                403
            } else {
                401
            };
            return plain(
                status,
                "x-error-code: GatedRepo\r\n",
                b"{\"error\":\"gated\"}",
            );
        }
        if let Some(revision) = path.strip_prefix("/api/models/o/r/revision/") {
            if revision != "main" && revision != COMMIT {
                return plain(404, "", b"{}");
            }
            let siblings: Vec<_> = self
                .files
                .keys()
                .map(|name| serde_json::json!({"rfilename": name}))
                .collect();
            let answer = serde_json::json!({"id": "o/r", "sha": COMMIT, "siblings": siblings});
            return plain(200, "", answer.to_string().as_bytes());
        }
        if path == format!("/api/models/o/r/paths-info/{COMMIT}") {
            let question: serde_json::Value = serde_json::from_slice(body).unwrap();
            let paths = question["paths"].as_array().unwrap();
            let infos: Vec<_> = paths
                .iter()
                .filter_map(|path| {
                    let path = path.as_str()?;
                    let (bytes, lfs) = self.files.get(path)?;
                    let mut info = serde_json::json!({
                        "type": "file", "path": path, "size": bytes.len(), 
                        "oid": self.blob.clone().unwrap_or_else(|| answers::git_blob(bytes)),
                    });
                    if *lfs {
                        let oid = Sha256Digest(Sha256::digest(bytes).into()).to_string();
                        info["lfs"] = serde_json::json!({"oid": oid, "size": bytes.len(), "pointerSize": 134});
                    }
                    Some(info)
                })
                .collect();
            return plain(
                200,
                "",
                serde_json::Value::from(infos).to_string().as_bytes(),
            );
        }
        if let Some(name) = path.strip_prefix(&format!("/o/r/resolve/{COMMIT}/")) {
            let Some((bytes, lfs)) = self.files.get(name) else {
                return plain(404, "x-error-code: EntryNotFound\r\n", b"");
            };
            if !lfs {
                return ranged(head, bytes);
            }
            let oid = Sha256Digest(Sha256::digest(bytes).into());
            let onward = format!(
                "location: http://{address}/cdn/{name}?X-Signature=1\r\nx-repo-commit: {COMMIT}\r\n\
                 x-linked-etag: \"{oid}\"\r\nx-linked-size: {}\r\n",
                bytes.len()
            );
            return plain(302, &onward, b"");
        }
        plain(404, "", b"")
    }
}

fn header(head: &str, name: &str) -> Option<String> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(": ")?;
        key.eq_ignore_ascii_case(name).then(|| value.to_owned())
    })
}

fn plain(status: u16, head: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status} X\r\n{head}content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn ranged(head: &str, bytes: &[u8]) -> Vec<u8> {
    let range = header(head, "range");
    let Some(range) = range
        .as_deref()
        .and_then(|range| range.strip_prefix("bytes="))
    else {
        return plain(200, "etag: \"e\"\r\n", bytes);
    };
    let (from, to) = range.split_once('-').unwrap();
    let from: usize = from.parse().unwrap();
    let to = to.parse().unwrap_or(usize::MAX).min(bytes.len() - 1);
    let head = format!(
        "etag: \"e\"\r\ncontent-range: bytes {from}-{to}/{}\r\n",
        bytes.len()
    );
    plain(206, &head, &bytes[from..=to])
}

impl Served {
    fn hub(&self, token: Option<&str>) -> Hub {
        let fetcher = Fetcher::new(FetchTimes::default()).unwrap();
        let token = token.and_then(HubToken::parse);
        Hub::new(fetcher, &format!("http://{}/", self.address), token)
    }
}

fn weights(sources: &[&str]) -> Weights {
    Weights {
        sources: sources.iter().map(|text| text.parse().unwrap()).collect(),
        sha256: None,
        size: None,
        files: Vec::new(),
    }
}

fn sha256(bytes: &[u8]) -> Sha256Digest {
    Sha256Digest(Sha256::digest(bytes).into())
}

/// A GGUF header, of a whole model or of one of two parts.
fn model(part: Option<u16>) -> Vec<u8> {
    let mut draft = Draft::default()
        .with("general.architecture", Value::Text("llama".into()))
        .with("llama.block_count", Value::U32(1));
    if let Some(part) = part {
        draft = draft
            .with("split.no", Value::U16(part))
            .with("split.count", Value::U16(2))
            .with("split.tensors.count", Value::I32(2));
    }
    let name = format!("blk.{}.attn_q.weight", part.unwrap_or(0));
    let mut bytes = draft
        .tensor(&name, &[64, 64], TensorType::F16)
        .header()
        .unwrap();
    bytes.extend([7; 5_000]);
    bytes
}

#[tokio::test]
async fn a_branch_is_the_commit_that_it_was_and_a_file_has_its_digest() {
    let served = Repo::new(&[("dir/m.gguf", b"weights", true)]).serve().await;
    let asked_for = weights(&["hf:o/r/dir/m.gguf", "https://elsewhere/m.gguf"]);
    let pinned = served.hub(None).pin(&asked_for).await.unwrap().unwrap();
    assert_eq!(
        pinned.sources[0].to_string(),
        format!("hf:o/r/dir/m.gguf@{COMMIT}")
    );
    assert_eq!(pinned.sources[1], asked_for.sources[1]);
    assert_eq!(pinned.sha256, Some(sha256(b"weights")));
    assert_eq!((pinned.size, pinned.files.len()), (Some(Bytes(7)), 0));
    assert_eq!(
        served.hub(None).pin(&pinned).await.unwrap(),
        None,
        "nothing is missing"
    );
    let files = weights(&["file:/m.gguf"]);
    assert_eq!(served.hub(None).pin(&files).await.unwrap(), None);
}

#[tokio::test]
async fn a_commit_is_that_of_its_own_repository() {
    let served = Repo::new(&[("m.gguf", b"weights", true)]).serve().await;
    let asked_for = weights(&["hf:o/r/m.gguf", "hf:copy/r/m.gguf@v1"]);
    let pinned = served.hub(None).pin(&asked_for).await.unwrap().unwrap();
    assert_eq!(
        pinned.sources[0].to_string(),
        format!("hf:o/r/m.gguf@{COMMIT}")
    );
    assert_eq!(pinned.sources[1], asked_for.sources[1]);
}

#[tokio::test]
async fn a_small_file_is_known_by_what_git_calls_it() {
    let served = Repo::new(&[("m.gguf", b"hello\n", false)]).serve().await;
    let pinned = served
        .hub(None)
        .pin(&weights(&["hf:o/r/m.gguf"]))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(pinned.sha256, Some(sha256(b"hello\n")));
    // The same name for other bytes.
    let mut repo = Repo::new(&[("m.gguf", b"hello!", false)]);
    repo.blob = Some(answers::git_blob(b"hello\n"));
    let served = repo.serve().await;
    let error = served
        .hub(None)
        .pin(&weights(&["hf:o/r/m.gguf"]))
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("not those that its commit names"),
        "{error}"
    );
}

#[tokio::test]
async fn a_split_model_is_all_its_parts_whichever_is_named() {
    let (one, two) = (model(Some(0)), model(Some(1)));
    let served = Repo::new(&[
        ("q/m-00001-of-00002.gguf", &one, true),
        ("q/m-00002-of-00002.gguf", &two, true),
        ("q/other.gguf", b"x", true),
    ])
    .serve()
    .await;
    let hub = served.hub(None);
    let pinned = hub
        .pin(&weights(&["hf:o/r/q/m-00002-of-00002.gguf@main"]))
        .await
        .unwrap()
        .unwrap();
    let paths: Vec<&str> = pinned.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]);
    assert_eq!(pinned.files[1].sha256, sha256(&two));
    assert_eq!(pinned.opened_by(), Some("m-00001-of-00002.gguf"));
    assert_eq!(pinned.sha256, None);
    let WeightsHeader::Gguf(header) = hub.header_of(&pinned, None).await.unwrap() else {
        panic!();
    };
    assert_eq!(header.tensors.len(), 2);
    let missing = hub
        .pin(&weights(&["hf:o/r/q/n-00001-of-00002.gguf"]))
        .await
        .unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
}

#[tokio::test]
async fn parts_that_do_not_belong_together_are_refused_by_their_headers() {
    let (one, two, whole) = (model(Some(0)), model(Some(0)), model(None));
    let served = Repo::new(&[
        ("m-00001-of-00002.gguf", &one, true),
        ("m-00002-of-00002.gguf", &two, true),
        ("n-00001-of-00003.gguf", &one, true),
        ("n-00002-of-00003.gguf", &two, true),
        ("n-00003-of-00003.gguf", &two, true),
        ("w-00001-of-00002.gguf", &whole, true),
        ("w-00002-of-00002.gguf", &two, true),
        ("alone.gguf", &one, true),
    ])
    .serve()
    .await;
    let hub = served.hub(None);
    for (name, says) in [
        ("m-00001-of-00002.gguf", "its split.no is 0, not 1"),
        ("n-00001-of-00003.gguf", "the name does not end in"),
        ("w-00001-of-00002.gguf", "says that it is whole"),
        ("alone.gguf", "the name does not end in"),
    ] {
        let pinned = hub
            .pin(&weights(&[&format!("hf:o/r/{name}")]))
            .await
            .unwrap()
            .unwrap();
        let error = hub.header_of(&pinned, None).await.unwrap_err();
        assert!(error.to_string().contains(says), "{name}: {error}");
    }
}

#[tokio::test]
async fn a_model_in_safetensors_is_its_index_its_shards_and_what_it_needs_beside() {
    let index = br#"{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}"#;
    let shard = |name: &str| {
        let json = format!(r#"{{"{name}":{{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}}}"#);
        let length = u64::try_from(json.len()).unwrap().to_le_bytes();
        [&length, json.as_bytes(), &[0; 4]].concat()
    };
    let (a, b) = (shard("a"), shard("b"));
    let served = Repo::new(&[
        ("model.safetensors.index.json", index, false),
        ("model-00001-of-00002.safetensors", &a, true),
        ("model-00002-of-00002.safetensors", &b, true),
        ("config.json", br#"{"model_type":"llama"}"#, false),
        ("tokenizer.json", b"{}", true),
        ("modeling.py", b"import os", false),
        ("README.md", b"#", false),
    ])
    .serve()
    .await;
    let hub = served.hub(None);
    let pinned = hub
        .pin(&weights(&["hf:o/r/model.safetensors.index.json"]))
        .await
        .unwrap()
        .unwrap();
    let paths: Vec<&str> = pinned.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "config.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
            "tokenizer.json",
        ]
    );
    assert_eq!(pinned.opened_by(), None, "an engine opens the directory");
    let WeightsHeader::Safetensors { config, header } = hub.header_of(&pinned, None).await.unwrap()
    else {
        panic!();
    };
    assert_eq!(config.model_type().unwrap(), Some("llama"));
    assert_eq!(header.tensors.len(), 2);
}

#[tokio::test]
async fn a_gated_repository_wants_its_terms_accepted_and_a_token() {
    let mut repo = Repo::new(&[("m.gguf", b"weights", true)]);
    repo.token = Some("hf_right");
    let served = repo.serve().await;
    let asked_for = weights(&["hf:o/r/m.gguf"]);
    let error = served.hub(None).pin(&asked_for).await.unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied);
    let hint = error.hint().unwrap();
    assert!(
        hint.contains("accept the terms of o/r") && hint.contains("token"),
        "{hint}"
    );
    let error = served
        .hub(Some("hf_wrong"))
        .pin(&asked_for)
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            HubError::Gated {
                status: 403,
                token: true,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(!format!("{error:?} {error}").contains("hf_wrong"));
    served
        .hub(Some("hf_right"))
        .pin(&asked_for)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_hub_that_says_what_can_not_be_is_not_believed() {
    let served = Repo::new(&[("m.gguf", b"weights", true)]).serve().await;
    let mut sized = weights(&["hf:o/r/m.gguf"]);
    sized.size = Some(Bytes(8));
    let error = served.hub(None).pin(&sized).await.unwrap_err();
    assert!(matches!(error, HubError::Size { .. }), "{error:?}");
    let other = "1".repeat(40);
    let commit = weights(&[&format!("hf:o/r/m.gguf@{other}")]);
    let error = served.hub(None).pin(&commit).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    let first = served.asked.lock().unwrap()[0].clone();
    assert_eq!(first, "GET /api/models/o/r/revision/main HTTP/1.1");
}

#[test]
fn addresses_are_those_of_the_hub_whatever_names_contain() {
    let fetcher = Fetcher::new(FetchTimes::default()).unwrap();
    let hub = Hub::new(fetcher, "https://hub.example/", None);
    assert_eq!(
        hub.address("owner/repo", "dir/a.gguf", None),
        "https://hub.example/owner/repo/resolve/main/dir/a.gguf"
    );
    assert_eq!(
        hub.address("o/r", "50%?#é/x", Some("refs/pr/1")),
        "https://hub.example/o/r/resolve/refs%2Fpr%2F1/50%25%3F%23%C3%A9/x"
    );
}
