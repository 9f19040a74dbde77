//! The admin listener towards clients that are slow, greedy or stay.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use llmgw_core::{
    api::{
        admin::{NodeView, ReplicaView, Summary},
        frozen::Thawed,
        orders::{LogView, NodeStateRequest, NodeStateView},
        whatif::{Change, Outcome, Snapshot},
    },
    control::{Control, ControlError, Fleet},
    id::ModelName,
    testing::control::MemoryControl,
};
use llmgw_server::admin::{AdminDeps, serve};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

const REQUEST: &[u8] = b"GET /api/v1/nodes HTTP/1.1\r\nhost: a\r\nauthorization: Bearer t\r\n\r\n";

/// Of a replica that serves: what it writes next is waited for.
const FOLLOW: &str = "GET /api/v1/replicas/r-00000000000000000000000000000001/log?follow=true HTTP/1.1\r\nhost: a\r\n\
                      authorization: Bearer t\r\n\r\n";

struct Listening {
    address: SocketAddr,
    stop: CancellationToken,
    served: JoinHandle<()>,
}

async fn listening(deps: AdminDeps) -> Listening {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let served = TaskTracker::new().spawn(serve(listener, deps, stop.clone()));
    Listening {
        address,
        stop,
        served,
    }
}

async fn admin() -> Listening {
    listening(AdminDeps::new(MemoryControl::sample().control(), "t")).await
}

impl Listening {
    async fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream
    }
}

/// Reads until `end` came.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read);
        if text.contains(end) {
            return text.into_owned();
        }
        assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0, "{read:?}");
    }
}

/// Reads until the other side closes; a reset closes too.
async fn read_to_close(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    drop(stream.read_to_end(&mut read).await);
    String::from_utf8_lossy(&read).into_owned()
}

#[tokio::test(start_paused = true)]
async fn a_head_that_does_not_end_is_not_waited_for() {
    let admin = admin().await;
    let mut stream = admin.send(b"GET /api/v1/nodes HTTP/1.1\r\nhost:").await;
    let started = Instant::now();
    read_to_close(&mut stream).await;
    assert_eq!(started.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed() {
    let admin = admin().await;
    let mut stream = admin.send(REQUEST).await;
    assert!(
        read_to_close(&mut stream)
            .await
            .starts_with("HTTP/1.1 200 OK")
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let admin = admin().await;
    let head = "POST /api/v1/models HTTP/1.1\r\nhost: a\r\nauthorization: Bearer t\r\n\
                content-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    let mut stream = admin.send(head.as_bytes()).await;
    let started = Instant::now();
    let answer = read_until(&mut stream, "did not come within 10 s").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(started.elapsed().as_secs(), 10);
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let admin = admin().await;
    for head in [
        format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}", "x".repeat(70 << 10)),
        format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(100)),
    ] {
        let mut stream = admin.send(head.as_bytes()).await;
        let answer = read_to_close(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
}

#[tokio::test]
async fn a_body_that_is_far_too_large_gets_its_answer() {
    let admin = admin().await;
    let length = 4 << 20;
    let head = format!(
        "POST /api/v1/models HTTP/1.1\r\nhost: a\r\nauthorization: Bearer t\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    let mut stream = admin.send(head.as_bytes()).await;
    stream.write_all(&vec![b' '; length]).await.unwrap();
    let answer = read_until(&mut stream, "request_too_large").await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

/// Most clients send the whole body before they look for an answer.
#[tokio::test]
async fn who_sends_a_body_that_nobody_reads_gets_the_answer() {
    let admin = admin().await;
    let length = 30 << 20;
    for (path, token, status) in [
        ("models", "t", "413 "),
        ("models", "wrong", "401 "),
        ("nothing", "t", "404 "),
    ] {
        let head = format!(
            "POST /api/v1/{path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        let mut stream = admin.send(head.as_bytes()).await;
        stream.write_all(&vec![b' '; length]).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
        assert!(answer.contains("\"error\":"), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_never_closes_is_not_waited_for_long() {
    let mut deps = AdminDeps::new(MemoryControl::sample().control(), "t");
    deps.config.max_connections = 1;
    let admin = listening(deps).await;
    let last = "GET /api/v1/nodes HTTP/1.1\r\nhost: a\r\nauthorization: Bearer t\r\nconnection: close\r\n\r\n";
    let mut first = admin.send(last.as_bytes()).await;
    read_to_close(&mut first).await;
    let started = Instant::now();
    let mut second = admin.send(REQUEST).await;
    read_until(&mut second, "200 OK").await;
    assert_eq!(started.elapsed().as_secs(), 5);
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn more_requests_than_there_are_places_wait() {
    let gate = Gate::new();
    let mut deps = gate.before();
    deps.config.max_connections = 1;
    let admin = listening(deps).await;
    let mut first = admin.send(REQUEST).await;
    gate.begun.acquire().await.unwrap().forget();
    let mut second = admin.send(REQUEST).await;
    // The first keeps its place: nothing can come on the second while it is answered.
    let early = timeout(Duration::from_secs(5), second.readable()).await;
    assert!(early.is_err(), "{early:?}");
    gate.allowed.add_permits(2);
    read_until(&mut first, "200 OK").await;
    read_until(&mut second, "200 OK").await;
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_keeps_nobody_out_and_who_follows_stays() {
    let mut deps = AdminDeps::new(MemoryControl::sample().control(), "t");
    deps.config.max_connections = 4;
    let admin = listening(deps).await;
    let mut reader = admin.send(FOLLOW.as_bytes()).await;
    read_until(&mut reader, "\r\n\r\n").await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(admin.send(b"GET / HTTP/1.1\r\nhost: a\r\nx: ").await);
    }
    let started = Instant::now();
    let mut asking = admin.send(REQUEST).await;
    read_until(&mut asking, "200 OK").await;
    assert_eq!(started.elapsed().as_secs(), 0);
    // The first of those who say nothing was closed, and the reader was not.
    assert_eq!(read_to_close(&mut silent[0]).await, "");
    let still = timeout(Duration::from_secs(5), read_to_close(&mut reader)).await;
    assert!(still.is_err(), "{still:?}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_does_not_hold_the_end() {
    let admin = admin().await;
    let mut stream = admin.send(REQUEST).await;
    read_until(&mut stream, "200 OK").await;
    let started = Instant::now();
    admin.stop.cancel();
    admin.served.await.unwrap();
    assert_eq!(started.elapsed().as_secs(), 0);
}

/// A fleet whose answers begin, and end when they are allowed to.
#[derive(Debug)]
struct Gate {
    begun: Semaphore,
    allowed: Semaphore,
}

impl Gate {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: Semaphore::new(0),
            allowed: Semaphore::new(0),
        })
    }

    fn before(self: &Arc<Self>) -> AdminDeps {
        let control = Control {
            fleet: Arc::<Self>::clone(self),
            ..MemoryControl::sample().control()
        };
        AdminDeps::new(control, "t")
    }
}

#[async_trait]
impl Fleet for Gate {
    async fn summary(&self) -> Result<Summary, ControlError> {
        std::future::pending().await
    }

    async fn nodes(&self) -> Result<Vec<NodeView>, ControlError> {
        self.begun.add_permits(1);
        self.allowed.acquire().await.unwrap().forget();
        Ok(Vec::new())
    }

    async fn replicas(&self, _: Option<&ModelName>) -> Result<Vec<ReplicaView>, ControlError> {
        std::future::pending().await
    }

    async fn use_node(&self, _: &str, _: NodeStateRequest) -> Result<NodeStateView, ControlError> {
        std::future::pending().await
    }

    async fn thaw(&self) -> Result<Thawed, ControlError> {
        std::future::pending().await
    }

    async fn approve(&self, _: &str) -> Result<NodeStateView, ControlError> {
        std::future::pending().await
    }

    async fn logs(&self, _: &ModelName) -> Result<Vec<LogView>, ControlError> {
        std::future::pending().await
    }

    async fn snapshot(&self) -> Result<Snapshot, ControlError> {
        std::future::pending().await
    }

    async fn plan(&self, _: &[Change]) -> Result<Outcome, ControlError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_running_request_ends_before_the_listener_does() {
    let gate = Gate::new();
    let admin = listening(gate.before()).await;
    let mut stream = admin.send(REQUEST).await;
    gate.begun.acquire().await.unwrap().forget();
    admin.stop.cancel();
    gate.allowed.add_permits(1);
    let answer = read_to_close(&mut stream).await;
    assert!(answer.ends_with("[]"), "{answer}");
    admin.served.await.unwrap();
    assert!(TcpStream::connect(admin.address).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_end_is_cut_off() {
    let gate = Gate::new();
    let admin = listening(gate.before()).await;
    let mut stream = admin.send(REQUEST).await;
    gate.begun.acquire().await.unwrap().forget();
    let started = Instant::now();
    admin.stop.cancel();
    admin.served.await.unwrap();
    assert_eq!(started.elapsed().as_secs(), 5);
    assert_eq!(read_to_close(&mut stream).await, "");
}

#[tokio::test]
async fn those_who_follow_leave_room_for_those_who_ask() {
    let admin = admin().await;
    let mut readers = Vec::new();
    for _ in 0..128 {
        let mut reader = admin.send(FOLLOW.as_bytes()).await;
        let head = read_until(&mut reader, "\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        readers.push(reader);
    }
    let mut late = admin.send(FOLLOW.as_bytes()).await;
    let refusal = read_until(&mut late, "}").await;
    assert!(refusal.starts_with("HTTP/1.1 503 "), "{refusal}");
    assert!(refusal.contains("128 readers follow events"), "{refusal}");
    let mut asking = admin.send(REQUEST).await;
    let answer = read_until(&mut asking, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    // Whoever leaves makes room.
    drop(readers.pop());
    let served = async {
        loop {
            let mut reader = admin.send(FOLLOW.as_bytes()).await;
            if read_until(&mut reader, "\r\n\r\n")
                .await
                .starts_with("HTTP/1.1 200 OK")
            {
                break;
            }
        }
    };
    timeout(Duration::from_secs(10), served).await.unwrap();
}
