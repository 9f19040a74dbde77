//! The daemon, killed at any moment and started again: engines are neither lost nor doubled.

#[path = "scene/plane.rs"]
mod scene;

use std::{fs, time::Duration};

use futures_util::StreamExt as _;
use llmgw_agent::process::{ProcessRuntime as _, native::NativeConfig};
use llmgw_core::cluster::replica::ReplicaState;
use scene::{PATIENCE, Scene, until};
use serde_json::json;
use tokio::process::Command;

#[tokio::test]
async fn a_kill_at_any_moment_neither_loses_nor_doubles_an_engine() {
    let scene = Scene::new(json!({"children": ["session"]})).await;
    // From before the first connection until long after the engine is ready.
    for delay in [0, 30, 60, 90, 120, 150, 180, 220, 260, 300, 400, 600] {
        let mut agent = scene.start();
        let serving = async {
            let mut frames = scene.accept().await;
            scene
                .want(&mut frames, std::slice::from_ref(&scene.spec))
                .await;
            while frames.next().await.is_some() {}
        };
        // The moment of the kill is what is tested, not waited for.
        let killed = tokio::time::sleep(Duration::from_millis(delay));
        tokio::select! {
            () = serving => panic!("the agent ended by itself"),
            () = killed => {}
        }
        agent.kill().await.unwrap();

        let mut agent = scene.start();
        let (mut frames, ready) = scene.ready().await;
        assert_eq!(ready.replicas.len(), 1, "{ready:?}");
        let alive = scene.alive();
        assert_eq!(
            alive.len(),
            2,
            "one engine and its child, after {delay} ms: {alive:?}"
        );
        // Left to the next round half of the time, ended the other half.
        if delay % 60 == 0 {
            scene.want(&mut frames, &[]).await;
            let gone = until(&mut frames, |report| report.replicas.is_empty()).await;
            assert!(gone.is_some());
            assert!(scene.alive().is_empty());
        }
        agent.kill().await.unwrap();
    }

    // And a good end.
    let mut agent = scene.start();
    let (mut frames, _) = scene.ready().await;
    let pid = agent.id().unwrap().to_string();
    let asked = Command::new("kill").args(["-TERM", &pid]).status().await;
    assert!(asked.unwrap().success());
    let last = until(&mut frames, |report| {
        report
            .replicas
            .iter()
            .all(|one| one.state == ReplicaState::Stopped)
    });
    assert!(last.await.is_some());
    let ended = tokio::time::timeout(PATIENCE, agent.wait())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(ended.code(), Some(0));
    assert!(scene.alive().is_empty());
    let config = NativeConfig::of_groups(&scene.home, Vec::new());
    assert_eq!(config.build().unwrap().leftovers().await.unwrap(), []);
}

#[tokio::test]
async fn a_second_signal_cuts_off_what_is_being_answered() {
    let dir = tempfile::tempdir().unwrap();
    let busy = dir.path().join("busy");
    fs::write(&busy, "1").unwrap();
    let scene = Scene::new(json!({"busy": busy, "stubborn": true, "children": ["daemon"]})).await;
    let mut agent = scene.start();
    let (mut frames, _) = scene.ready().await;
    let pid = agent.id().unwrap().to_string();
    let signal = || Command::new("kill").args(["-INT", &pid]).status();
    assert!(signal().await.unwrap().success());
    let draining = until(&mut frames, |report| {
        report
            .replicas
            .iter()
            .any(|one| one.state == ReplicaState::Draining)
    });
    assert!(draining.await.is_some());
    // Two that come together are one.
    assert!(signal().await.unwrap().success());
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(agent.try_wait().unwrap().is_none());
    let begin = tokio::time::Instant::now();
    assert!(signal().await.unwrap().success());
    let ended = tokio::time::timeout(PATIENCE, agent.wait()).await;
    // Neither the drain, 10 s, nor the grace, 5 s, is waited for.
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert_eq!(ended.unwrap().unwrap().code(), Some(0));
    assert!(scene.alive().is_empty());
}

#[tokio::test]
async fn an_engine_that_forks_in_every_way_leaves_nothing() {
    let kinds = ["plain", "group", "session", "daemon", "bare", "vanished"];
    let scene = Scene::new(json!({"children": kinds, "stubborn": true})).await;
    let mut agent = scene.start();
    let (mut frames, _) = scene.ready().await;
    assert_eq!(scene.alive().len(), 7);
    // And the agent that stops it is not the one that has started it.
    agent.kill().await.unwrap();
    drop(frames);
    let mut agent = scene.start();
    (frames, _) = scene.ready().await;
    assert_eq!(scene.alive().len(), 7);
    scene.want(&mut frames, &[]).await;
    let gone = until(&mut frames, |report| report.replicas.is_empty());
    assert!(gone.await.is_some());
    assert!(scene.alive().is_empty());
    agent.kill().await.unwrap();
}

#[tokio::test]
async fn wrong_input_is_one_line_a_hint_and_a_two() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    fs::write(&token, "secret\n").unwrap();
    let empty = dir.path().join("empty");
    fs::write(&empty, "\n").unwrap();
    for (server, token, expected) in [
        ("10.0.0.1:8443", &token, "secure session"),
        ("nowhere", &token, "not an address"),
        ("127.0.0.1:1", &empty, "holds no token"),
        ("127.0.0.1:1", &dir.path().join("none"), "No such file"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_llmgw-agent"))
            .args(["run", "--server", server, "--data-dir"])
            .arg(dir.path())
            .arg("--token-file")
            .arg(token)
            .output()
            .await
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        let lines: Vec<&str> = said.lines().collect();
        assert!(
            lines[0].starts_with("error: ") && lines[0].contains(expected),
            "{said}"
        );
        assert!(lines[1].starts_with("hint: "), "{said}");
        assert_eq!(lines.len(), 2, "{said}");
    }
}

#[tokio::test]
async fn facts_are_shown_for_people_and_for_programs() {
    let facts = |format: &'static str| async move {
        let output = Command::new(env!("CARGO_BIN_EXE_llmgw-agent"))
            .args(["facts", "-o", format])
            .output()
            .await
            .unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = facts("text").await;
    let json: llmgw_core::cluster::node::NodeFacts =
        serde_json::from_str(&facts("json").await).unwrap();
    assert!(shown.contains(&json.hostname), "{shown}");
    assert!(json.memory.is_some() && json.gpus.is_some());
}
