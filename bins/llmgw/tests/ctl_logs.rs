//! The real `llmgw ctl logs` against the real admin API, over a control plane in memory.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::{process::Stdio, sync::Arc, time::Duration};

use llmgw_core::{
    api::{
        admin::ReplicaView,
        log::{LogEnd, LogEnded},
    },
    id::{ModelName, ReplicaId},
    testing::control::MemoryControl,
};
use llmgw_server::admin::{AdminDeps, serve};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader, Lines},
    net::TcpListener,
    process::{Child, Command},
    time::timeout,
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

const TOKEN: &str = "0123456789abcdef";

/// A control plane.
struct Plane {
    url: String,
    memory: Arc<MemoryControl>,
    _serving: DropGuard,
}

impl Plane {
    async fn sample() -> Self {
        let memory = MemoryControl::sample();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let deps = AdminDeps::new(memory.control(), TOKEN);
        TaskTracker::new().spawn(serve(listener, deps, stop.clone()));
        Self {
            url,
            memory,
            _serving: stop.drop_guard(),
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_llmgw"));
        command
            .args(["ctl", "logs"])
            .args(arguments)
            .env_clear()
            .env("LLMGW_ADMIN_URL", &self.url)
            .env("LLMGW_ADMIN_TOKEN", TOKEN)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// What it leaves: its exit code, standard output, standard error.
    async fn logs(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let ran = timeout(PATIENCE, self.command(arguments).output());
        let ran = ran.await.unwrap().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (ran.status.code(), text(ran.stdout), text(ran.stderr))
    }

    async fn replicas(&self, model: &str) -> Vec<ReplicaView> {
        let model: ModelName = model.parse().unwrap();
        let fleet = self.memory.control().fleet;
        fleet.replicas(Some(&model)).await.unwrap()
    }

    /// Gives the model that serves another replica, beside those there are or alone.
    async fn another(&self, is_alone: bool) -> ReplicaId {
        let mut all = self.memory.control().fleet.replicas(None).await.unwrap();
        let serving = self.replicas("tiny").await.remove(0);
        let id = ReplicaId::generate();
        if is_alone {
            all.retain(|view| view.model != serving.model);
        }
        all.push(ReplicaView { id, ..serving });
        self.memory.set_replicas(all);
        id
    }
}

async fn next<R: AsyncRead + Unpin>(lines: &mut Lines<BufReader<R>>) -> String {
    let line = timeout(PATIENCE, lines.next_line()).await.unwrap();
    line.unwrap().unwrap()
}

async fn ended(child: &mut Child) -> Option<i32> {
    timeout(PATIENCE, child.wait())
        .await
        .unwrap()
        .unwrap()
        .code()
}

#[tokio::test]
async fn a_replica_that_runs_shows_its_last_lines_and_nothing_else() {
    let plane = Plane::sample().await;
    let (code, out, err) = plane.logs(&["tiny", "--lines", "1"]).await;
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (Some(0), "server is listening\n", "")
    );
    let id = plane.replicas("tiny").await[0].id;
    plane.memory.write_log(id, &["\u{1b}[2Jred\u{202e}"]);
    let (_, out, _) = plane.logs(&["tiny"]).await;
    assert_eq!(out, "loading model\nserver is listening\n [2Jred \n");
}

#[tokio::test]
async fn what_failed_says_why_beside_its_lines() {
    let plane = Plane::sample().await;
    let (code, out, err) = plane.logs(&["broken"]).await;
    assert_eq!((code, out.as_str()), (Some(0), "loading tensors\n"));
    assert_eq!(
        err,
        "r-00000003 failed: the engine ended with signal 4 (SIGILL)\n"
    );
}

#[tokio::test]
async fn a_model_without_a_replica_says_why_there_is_none() {
    let plane = Plane::sample().await;
    let (code, out, err) = plane.logs(&["huge"]).await;
    assert_eq!((code, out.as_str()), (Some(0), ""));
    assert!(
        err.starts_with("there is no replica: huge is not placed: "),
        "{err}"
    );
    assert_eq!(plane.logs(&["nobody"]).await.0, Some(3));
    let (code, _, err) = plane.logs(&["tiny", "--replica", "r-0000000f"]).await;
    assert_eq!(code, Some(3));
    assert!(
        err.contains("smollm2-135m has no replica") || err.contains("tiny has no replica"),
        "{err}"
    );
    let gone = ReplicaId::generate().to_string();
    let (code, _, err) = plane.logs(&["tiny", "--replica", &gone]).await;
    assert_eq!(code, Some(3));
    assert!(err.contains(&format!("there is no log of {gone}")), "{err}");
}

#[tokio::test]
async fn lines_of_several_replicas_say_whose_they_are() {
    let plane = Plane::sample().await;
    let second = plane.another(false).await;
    plane.memory.write_log(second, &["hello"]);
    let (code, out, err) = plane.logs(&["tiny"]).await;
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let second_says = format!("{} | hello", second.short());
    let mut expected = vec![
        "r-00000001 | loading model",
        "r-00000001 | server is listening",
        second_says.as_str(),
    ];
    expected.sort_unstable();
    assert_eq!(lines, expected);
    let short = second.short();
    let (_, out, _) = plane.logs(&["tiny", "--replica", &short]).await;
    assert_eq!(out, "hello\n");
}

#[tokio::test]
async fn programs_get_an_entry_on_each_line() {
    let plane = Plane::sample().await;
    let (code, out, err) = plane.logs(&["broken", "-o", "json"]).await;
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let entries: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let [line, note] = entries.as_slice() else {
        unreachable!("{out}");
    };
    assert_eq!(
        (&line["line"], &line["hostname"]),
        (&"loading tensors".into(), &"beta".into())
    );
    assert!(
        note["note"].as_str().unwrap().contains("failed: "),
        "{note}"
    );
}

#[tokio::test]
async fn what_is_followed_goes_on_with_the_replica_that_takes_the_place() {
    let plane = Plane::sample().await;
    let first = plane.replicas("tiny").await[0].id;
    let mut command = plane.command(&["tiny", "-f", "--lines", "1"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut err = BufReader::new(child.stderr.take().unwrap()).lines();
    assert_eq!(next(&mut out).await, "server is listening");
    plane.memory.write_log(first, &["a request"]);
    assert_eq!(next(&mut out).await, "a request");
    let end = LogEnd {
        reason: LogEnded::Stopped,
        text: "stopped: its definition has changed".to_owned(),
    };
    plane.memory.end_log(first, end);
    let said = next(&mut err).await;
    assert_eq!(said, "r-00000001 stopped: its definition has changed");
    let second = plane.another(true).await;
    plane.memory.write_log(second, &["hello"]);
    let short = second.short();
    assert_eq!(next(&mut err).await, format!("{short} begins on alpha"));
    assert_eq!(next(&mut out).await, format!("{short} | hello"));
    assert!(child.try_wait().unwrap().is_none(), "it goes on");
    child.kill().await.unwrap();
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_ends_what_is_followed() {
    let plane = Plane::sample().await;
    let id = plane.replicas("tiny").await[0].id;
    let mut child = plane
        .command(&["tiny", "-f"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(next(&mut out).await, "loading model");
    drop(out);
    plane.memory.write_log(id, &["nobody reads this"]);
    assert_eq!(ended(&mut child).await, Some(0));
}

#[tokio::test]
async fn one_replica_is_followed_to_its_end() {
    let plane = Plane::sample().await;
    let id = plane.replicas("tiny").await[0].id;
    let child = plane.command(&["tiny", "-f", "--replica", &id.to_string()]);
    let mut child = { child }
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(next(&mut out).await, "loading model");
    let end = LogEnd {
        reason: LogEnded::Failed,
        text: "failed".to_owned(),
    };
    plane.memory.end_log(id, end);
    assert_eq!(ended(&mut child).await, Some(0));
}

/// Long: the machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);
