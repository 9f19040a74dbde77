//! A release list and the host of its files, as GitHub has them, on sockets of the test's own.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use llmgw_core::fetch::FetchTimes;
use llmgw_core::releases::ReleaseClient;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// A published release and how its hosts behave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Published {
    pub(crate) tag: String,
    /// Hours since it was published.
    pub(crate) age_hours: i64,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// What is listed as a file's digest instead of its own; `None` for none.
    pub(crate) digests: BTreeMap<String, Option<String>>,
    /// Answers of the list before it answers as it should.
    pub(crate) refusals: Vec<String>,
    /// The host of the files breaks off after so many bytes, so many times.
    pub(crate) breaks: Vec<usize>,
    /// After so many bytes it sends no more and waits until the other side has gone, once.
    pub(crate) holds: Option<usize>,
}

/// The two hosts.
#[derive(Clone, Debug)]
pub(crate) struct Github {
    pub(crate) list: String,
    files: String,
    pub(crate) published: Arc<Mutex<Published>>,
    /// The heads of all requests, of both hosts.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

impl Github {
    pub(crate) async fn of(published: Published) -> Self {
        let (list, files) = (listen().await, listen().await);
        let address = |listener: &TcpListener| listener.local_addr().unwrap();
        let github = Self {
            list: format!(
                "http://{}/repos/ggml-org/llama.cpp/releases",
                address(&list)
            ),
            files: format!("http://{}", address(&files)),
            published: Arc::new(Mutex::new(published)),
            asked: Arc::default(),
        };
        serve(list, github.clone(), Host::List);
        serve(files, github.clone(), Host::Files);
        github
    }

    pub(crate) fn client(&self) -> ReleaseClient {
        let client = ReleaseClient::new(&self.list, FetchTimes::default()).unwrap();
        client.with_token(Some("the-token".to_owned()))
    }

    /// How often a file was asked for at its own host.
    pub(crate) fn downloads(&self) -> usize {
        let asked = self.asked.lock().unwrap();
        asked
            .iter()
            .filter(|head| head.starts_with("GET /cdn/"))
            .count()
    }

    fn answer(&self, host: Host, path: &str, head: &str) -> (Vec<u8>, Option<usize>) {
        let mut published = self.published.lock().unwrap();
        match host {
            Host::List if path.starts_with("/download/") => {
                // As GitHub does: the file lies on another host, behind a signed address.
                let location = path.replace("/download/", &format!("{}/cdn/", self.files));
                let head = format!("302 Found\r\nlocation: {location}?signature=s3cret");
                (answer(&head, b""), None)
            }
            Host::List => {
                if !published.refusals.is_empty() {
                    return (answer(&published.refusals.remove(0), b"{}"), None);
                }
                if path.ends_with(&format!("/tags/{}", published.tag)) {
                    let body = self.release(&published).to_string();
                    (answer("200 OK", body.as_bytes()), None)
                } else {
                    (answer("404 Not Found", b"{}"), None)
                }
            }
            Host::Files => {
                let name = path
                    .trim_start_matches("/cdn/")
                    .split('?')
                    .next()
                    .unwrap_or_default();
                let Some(bytes) = published.files.get(name).cloned() else {
                    return (answer("404 Not Found", b""), None);
                };
                let breaks = (!published.breaks.is_empty()).then(|| published.breaks.remove(0));
                let from = head
                    .lines()
                    .find_map(|line| {
                        line.to_ascii_lowercase()
                            .strip_prefix("range: bytes=")
                            .map(str::to_owned)
                    })
                    .and_then(|range| range.split('-').next()?.parse::<usize>().ok());
                let whole = match from.filter(|from| *from < bytes.len()) {
                    None => answer("200 OK\r\netag: \"one\"\r\naccept-ranges: bytes", &bytes),
                    Some(from) => {
                        let status = format!(
                            "206 Partial Content\r\netag: \"one\"\r\ncontent-range: bytes {from}-{}/{}",
                            bytes.len() - 1,
                            bytes.len()
                        );
                        answer(&status, &bytes[from..])
                    }
                };
                (whole, breaks)
            }
        }
    }

    fn release(&self, published: &Published) -> Value {
        let base = self.list.split("/repos/").next().unwrap();
        let assets: Vec<Value> = published
            .files
            .iter()
            .map(|(name, bytes)| {
                let own = Some(format!("sha256:{}", sha256(bytes)));
                let digest = published.digests.get(name).cloned().unwrap_or(own);
                json!({
                    "name": name,
                    "browser_download_url": format!("{base}/download/{name}"),
                    "size": bytes.len(),
                    "state": "uploaded",
                    "digest": digest,
                })
            })
            .collect();
        // 2026-11-30T12:00:00Z less its age.
        let hour = 12 - published.age_hours;
        let published_at = if hour >= 0 {
            format!("2026-11-30T{hour:02}:00:00Z")
        } else {
            "2026-11-01T00:00:00Z".to_owned()
        };
        json!({"tag_name": published.tag, "published_at": published_at, "assets": assets})
    }
}

/// 2026-11-30T12:00:00Z, in milliseconds.
pub(crate) const NOW: i64 = 1_796_040_000_000;

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[derive(Clone, Copy)]
enum Host {
    List,
    Files,
}

async fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the server ends with the test's own runtime"
)]
fn serve(listener: TcpListener, github: Github, host: Host) {
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let head = head(&mut stream).await;
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let (answer, breaks) = github.answer(host, &path, &head);
            github.asked.lock().unwrap().push(head);
            let body = answer
                .windows(4)
                .position(|four| four == b"\r\n\r\n")
                .unwrap()
                + 4;
            let end = breaks.map_or(answer.len(), |after| (body + after).min(answer.len()));
            let holds = match host {
                Host::Files => github.published.lock().unwrap().holds.take(),
                Host::List => None,
            };
            if let Some(after) = holds {
                drop(stream.write_all(&answer[..(body + after).min(end)]).await);
                let mut rest = Vec::new();
                drop(stream.read_to_end(&mut rest).await);
                continue;
            }
            drop(stream.write_all(&answer[..end]).await);
            drop(stream.shutdown().await);
        }
    });
}

async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

fn answer(status: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}
