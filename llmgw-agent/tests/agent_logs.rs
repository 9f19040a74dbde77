//! What engines write, read from a supervisor while they run and after their end.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't set itself up fails"
)]

#[path = "scene/replicas.rs"]
mod replicas;
#[path = "scene/home.rs"]
mod scene;

use std::{fs, io::Write as _};

use llmgw_agent::{
    session::EngineLogs as _,
    supervise::{Ending, Supervisor},
};
use llmgw_core::{
    api::log::{LogAnswer, LogAsk, LogEnded, LogProblem},
    cluster::replica::ReplicaState,
    id::ReplicaId,
};
use replicas::{StandIn, forgotten, reported, timing};
use scene::{Home, PATIENCE};
use serde_json::json;

/// Asks for what is there now.
fn now(replica: ReplicaId, after: Option<u64>) -> LogAsk {
    LogAsk {
        ask: 1,
        replica,
        after,
        lines: 100,
        most: 64 << 10,
        wait_ms: 0,
    }
}

/// Waits for what comes after that.
async fn next(supervisor: &Supervisor, replica: ReplicaId, after: u64) -> LogAnswer {
    let waiting = LogAsk {
        wait_ms: 30_000,
        ..now(replica, Some(after))
    };
    let reading = supervisor.read(&waiting);
    tokio::time::timeout(PATIENCE, reading).await.unwrap()
}

fn end(answer: &LogAnswer) -> Option<(LogEnded, &str)> {
    let end = answer.end.as_ref()?;
    Some((end.reason, end.text.as_str()))
}

#[tokio::test]
async fn what_an_engine_writes_is_read_while_it_runs_and_when_it_was_stopped() {
    let home = Home::new();
    let supervisor = home.supervisor(StandIn::open(), timing());
    let spec = home.spec(json!({"say": ["loading", "\u{1b}[1mlistening\u{1b}[0m"]}));
    supervisor.converge(std::slice::from_ref(&spec));
    reported(&supervisor, spec.id, ReplicaState::Ready).await;
    let tree = home.processes(1).await;
    let first = supervisor.read(&now(spec.id, None)).await;
    assert_eq!((first.ask, first.problem, &first.end), (1, None, &None));
    assert_eq!(first.lines, ["loading", "listening"]);
    let last = LogAsk {
        lines: 1,
        ..now(spec.id, None)
    };
    assert_eq!(supervisor.read(&last).await.lines, ["listening"]);

    let log = home.entries().remove(0).log;
    let write = |text: &str| {
        let mut file = fs::OpenOptions::new().append(true).open(&log).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    let nothing = supervisor.read(&now(spec.id, Some(first.cursor))).await;
    assert_eq!((nothing.lines.len(), nothing.cursor), (0, first.cursor));
    let writing = async { write("a request\nhalf a l") };
    let (more, ()) = tokio::join!(next(&supervisor, spec.id, first.cursor), writing);
    assert_eq!(
        (more.lines.as_slice(), &more.end),
        (&["a request".to_owned()][..], &None)
    );

    let stopping = async { supervisor.converge(&[]) };
    let (rest, ()) = tokio::join!(next(&supervisor, spec.id, more.cursor), stopping);
    assert_eq!(rest.lines, ["half a l"]);
    assert_eq!(end(&rest), Some((LogEnded::Stopped, "stopped")));
    assert!(tree.iter().all(|process| !process.is_alive().unwrap()));
    forgotten(&supervisor, spec.id).await;
    let whole = supervisor.read(&now(spec.id, Some(0))).await;
    assert_eq!(whole.lines.len(), 4, "{whole:?}");
    assert!(whole.end.is_some());
    supervisor.shutdown(Ending::StopEngines).await;
}

#[tokio::test]
async fn a_failure_is_the_end_of_a_log() {
    let home = Home::new();
    let supervisor = home.supervisor(StandIn::open(), timing());
    let spec = home.spec(json!({"say": ["out of memory"], "exit": 3}));
    supervisor.converge(std::slice::from_ref(&spec));
    reported(&supervisor, spec.id, ReplicaState::Failed).await;
    let answer = next(&supervisor, spec.id, 0).await;
    assert_eq!(answer.lines, ["out of memory"]);
    let expected = (LogEnded::Failed, "failed: llamacpp exited with 3");
    assert_eq!(end(&answer), Some(expected));
    supervisor.shutdown(Ending::StopEngines).await;
}

#[tokio::test]
async fn a_replica_without_an_engine_has_written_nothing_and_an_unknown_one_has_no_log() {
    let home = Home::new();
    let supervisor = home.supervisor(StandIn::closed(), timing());
    let spec = home.spec(json!({}));
    supervisor.converge(std::slice::from_ref(&spec));
    reported(&supervisor, spec.id, ReplicaState::Provisioning).await;
    let answer = supervisor.read(&now(spec.id, None)).await;
    assert_eq!(
        (answer.problem, answer.lines.len(), &answer.end),
        (None, 0, &None)
    );
    let answer = next(&supervisor, ReplicaId::generate(), 7).await;
    assert_eq!(
        (answer.problem, answer.cursor),
        (Some(LogProblem::NoLog), 7)
    );
    supervisor.shutdown(Ending::StopEngines).await;
}
