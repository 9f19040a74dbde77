//! Logs as a client sees them that knows HTTP alone: in parts, and as they go on.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use llmgw_core::{
    api::log::{LogEnd, LogEnded, LogFrom, LogPart},
    control::{Control, ControlError, Logs},
    id::ReplicaId,
    testing::control::MemoryControl,
    units::Bytes,
};
use llmgw_server::admin::{AdminDeps, router, serve};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

const TOKEN: &str = "0123456789abcdef";

/// The replica of the sample that serves.
const SERVING: &str = "r-00000000000000000000000000000001";
/// One that failed.
const FAILED: &str = "r-00000000000000000000000000000003";

fn request(path: &str) -> http::request::Builder {
    Request::builder()
        .uri(format!("/api/v1/replicas/{path}"))
        .header("authorization", format!("Bearer {TOKEN}"))
}

async fn send(control: Control, request: Request<Body>) -> Response<Body> {
    let deps = AdminDeps::new(control, TOKEN);
    router(deps).oneshot(request).await.unwrap()
}

async fn ask(memory: &Arc<MemoryControl>, path: &str) -> (StatusCode, Value) {
    let request = request(path).body(Body::empty()).unwrap();
    let answer = send(memory.control(), request).await;
    let status = answer.status();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap())
}

/// The next event of a stream: its kind, its id, its data. `None` at the end.
async fn event(body: &mut Body) -> Option<(String, String, Value)> {
    let frame = timeout(Duration::from_secs(10), body.frame());
    let bytes = frame.await.unwrap()?.unwrap().into_data().unwrap();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let field = |name: &str| {
        let lines = text.lines();
        let found = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        found.collect::<Vec<_>>().join("\n")
    };
    let data = serde_json::from_str(&field("data")).unwrap();
    Some((field("event"), field("id"), data))
}

fn id(text: &str) -> ReplicaId {
    text.parse().unwrap()
}

#[tokio::test]
async fn a_part_is_what_was_asked_for_and_says_where_to_go_on() {
    let memory = MemoryControl::sample();
    let (status, part) = ask(&memory, &format!("{SERVING}/log?lines=1")).await;
    assert_eq!(status, StatusCode::OK, "{part}");
    assert_eq!(part["lines"], serde_json::json!(["server is listening"]));
    assert_eq!(
        (&part["hostname"], part.get("end")),
        (&"alpha".into(), None)
    );
    memory.write_log(id(SERVING), &["a request"]);
    let cursor = &part["cursor"];
    let (_, next) = ask(&memory, &format!("{SERVING}/log?after={cursor}&wait=5s")).await;
    assert_eq!(next["lines"], serde_json::json!(["a request"]));
    let (_, ended) = ask(&memory, &format!("{FAILED}/log")).await;
    assert_eq!(ended["end"]["reason"], "failed", "{ended}");
}

#[tokio::test]
async fn what_cannot_be_asked_so_is_refused_with_its_place() {
    let memory = MemoryControl::sample();
    let nobody = ReplicaId::generate();
    for (path, status, says) in [
        ("nobody/log".to_owned(), 400, "id: "),
        (format!("{SERVING}/log?lines=x"), 400, "lines"),
        (
            format!("{SERVING}/log?lines=1&after=1"),
            400,
            "lines, after: ",
        ),
        (format!("{SERVING}/log?wait=soon"), 400, "wait: "),
        (format!("{SERVING}/log?follow=1"), 400, "follow"),
        (format!("{SERVING}/log?colour=red"), 400, "colour"),
        (format!("{nobody}/log"), 404, "there is no log of"),
        // Before anything is streamed.
        (
            format!("{nobody}/log?follow=true"),
            404,
            "there is no log of",
        ),
    ] {
        let (found, body) = ask(&memory, &path).await;
        assert_eq!(found.as_u16(), status, "{path}: {body}");
        let error = body["error"].as_str().unwrap();
        assert!(error.contains(says), "{path}: {error}");
    }
}

#[tokio::test]
async fn what_is_followed_comes_as_it_is_written_until_it_ends() {
    let memory = MemoryControl::sample();
    let following = request(&format!("{SERVING}/log?lines=1&follow=true"));
    let answer = send(memory.control(), following.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let mut body = answer.into_body();
    let (kind, first, part) = event(&mut body).await.unwrap();
    assert_eq!(
        (kind.as_str(), &part["lines"][0]),
        ("lines", &"server is listening".into())
    );
    assert_eq!(first, part["cursor"].to_string());
    memory.write_log(id(SERVING), &["one", "two"]);
    let (_, _, part) = event(&mut body).await.unwrap();
    assert_eq!(part["lines"], serde_json::json!(["one", "two"]));

    // Whoever lost the connection says what they saw last.
    let again = request(&format!("{SERVING}/log?follow=true")).header("last-event-id", first);
    let answer = send(memory.control(), again.body(Body::empty()).unwrap()).await;
    let (_, _, part) = event(&mut answer.into_body()).await.unwrap();
    assert_eq!(part["lines"], serde_json::json!(["one", "two"]));

    memory.write_log(id(SERVING), &["last words"]);
    let end = LogEnd {
        reason: LogEnded::Stopped,
        text: "stopped: its model was removed".to_owned(),
    };
    memory.end_log(id(SERVING), end);
    let (_, _, part) = event(&mut body).await.unwrap();
    assert_eq!(
        (&part["lines"][0], part.get("end")),
        (&"last words".into(), None)
    );
    let (kind, _, end) = event(&mut body).await.unwrap();
    assert_eq!((kind.as_str(), &end["reason"]), ("end", &"stopped".into()));
    assert_eq!(end["text"], "stopped: its model was removed");
    assert_eq!(event(&mut body).await, None);
}

/// An engine that writes a line whenever it is asked, until it is told to wait.
#[derive(Debug, Default)]
struct Chatter {
    asked: AtomicUsize,
    silent_after: usize,
    dropped: Arc<Notify>,
    fails: bool,
}

#[async_trait]
impl Logs for Chatter {
    async fn read_log(
        &self,
        replica: ReplicaId,
        _: LogFrom,
        _: Duration,
    ) -> Result<LogPart, ControlError> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        if asked >= self.silent_after {
            if self.fails {
                let code = llmgw_core::error::Code::Unavailable;
                return Err(ControlError::new(code, "alpha is not heard"));
            }
            let _told = TellsWhenDropped(Arc::clone(&self.dropped));
            return std::future::pending().await;
        }
        Ok(LogPart {
            replica,
            hostname: String::new(),
            cursor: u64::try_from(asked).unwrap() + 1,
            lines: vec!["x".to_owned()],
            skipped: Bytes::ZERO,
            end: None,
        })
    }
}

struct TellsWhenDropped(Arc<Notify>);

impl Drop for TellsWhenDropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

async fn following(chatter: &Arc<Chatter>) -> Body {
    let control = Control {
        logs: Arc::<Chatter>::clone(chatter),
        ..MemoryControl::sample().control()
    };
    let asked = request(&format!("{SERVING}/log?follow=true"));
    let answer = send(control, asked.body(Body::empty()).unwrap()).await;
    answer.into_body()
}

#[tokio::test]
async fn a_reader_that_takes_nothing_asks_for_nothing_and_one_that_has_gone_waits_for_nothing() {
    let chatter = Arc::new(Chatter {
        silent_after: 3,
        ..Chatter::default()
    });
    let mut body = following(&chatter).await;
    for taken in 1..=3 {
        assert!(event(&mut body).await.is_some());
        tokio::task::yield_now().await;
        assert_eq!(chatter.asked.load(Ordering::SeqCst), taken);
    }
    let waiting = timeout(Duration::from_millis(10), event(&mut body)).await;
    assert!(waiting.is_err());
    assert_eq!(chatter.asked.load(Ordering::SeqCst), 4);
    drop(body);
    let gone = timeout(Duration::from_secs(10), chatter.dropped.notified());
    gone.await.unwrap();
}

#[tokio::test]
async fn a_node_that_is_lost_ends_what_is_followed_and_says_so() {
    let chatter = Arc::new(Chatter {
        silent_after: 1,
        fails: true,
        ..Chatter::default()
    });
    let mut body = following(&chatter).await;
    assert_eq!(event(&mut body).await.unwrap().0, "lines");
    let (kind, _, end) = event(&mut body).await.unwrap();
    assert_eq!(
        (kind.as_str(), &end["reason"]),
        ("end", &"unreachable".into())
    );
    assert_eq!(end["text"], "alpha is not heard");
    assert_eq!(event(&mut body).await, None);
}

#[tokio::test]
async fn a_control_plane_that_stops_ends_what_is_followed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let deps = AdminDeps::new(MemoryControl::sample().control(), TOKEN);
    let tasks = TaskTracker::new();
    tasks.spawn(serve(listener, deps, stop.clone()));
    tasks.close();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let asked = format!(
        "GET /api/v1/replicas/{SERVING}/log?follow=true HTTP/1.1\r\nhost: x\r\n\
         authorization: Bearer {TOKEN}\r\n\r\n"
    );
    stream.write_all(asked.as_bytes()).await.unwrap();
    let mut seen = String::new();
    let whole = async {
        let mut bytes = [0; 4096];
        loop {
            let read = stream.read(&mut bytes).await.unwrap();
            if read == 0 {
                break;
            }
            seen.push_str(&String::from_utf8_lossy(&bytes[..read]));
            if seen.contains("server is listening") {
                stop.cancel();
            }
        }
    };
    timeout(Duration::from_secs(10), whole).await.unwrap();
    assert!(seen.contains("event: end"), "{seen}");
    assert!(seen.contains("this control plane is stopping"), "{seen}");
    timeout(Duration::from_secs(10), tasks.wait())
        .await
        .unwrap();
}
