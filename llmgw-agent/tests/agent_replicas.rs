//! Lives of replicas with real processes: to ready and to the end, over crashes of the agent, never doubled.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't set itself up fails"
)]

#[path = "scene/replicas.rs"]
mod replicas;
#[path = "scene/home.rs"]
mod scene;

use std::{fs, sync::Arc, time::Duration};

use llmgw_agent::{
    process::{ProcessRuntime as _, identity::ProcessIdentity, log::Logs},
    supervise::{Adoption, Ending, Failure, Supervisor, Timing},
};
use llmgw_core::cluster::replica::{ReplicaSpec, ReplicaState};
use replicas::{StandIn, forgotten, reported, timing};
use scene::{Home, PATIENCE, eventually};
use serde_json::{Value, json};
use tokio::time::Instant;

#[tokio::test]
async fn a_replica_becomes_ready_and_leaves_nothing_when_it_is_not_asked_for() {
    let home = Home::new();
    let supervisor = home.supervisor(StandIn::open(), timing());
    let spec = home.spec(json!({"loading": 3, "children": ["session", "daemon"]}));
    supervisor.converge(std::slice::from_ref(&spec));
    let ready = reported(&supervisor, spec.id, ReplicaState::Ready).await;
    let port: u16 = ready
        .endpoint
        .unwrap()
        .strip_prefix("127.0.0.1:")
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(ready.fetch, None);
    let [entry] = &home.entries()[..] else {
        panic!("one entry");
    };
    assert_eq!((&entry.spec, entry.port), (&spec, port));
    assert!(entry.process.as_ref().unwrap().is_alive().unwrap());
    let tree = home.processes(3).await;

    supervisor.converge(&[]);
    forgotten(&supervisor, spec.id).await;
    assert!(tree.iter().all(|process| !process.is_alive().unwrap()));
    assert!(home.entries().is_empty());
    supervisor.shutdown(Ending::StopEngines).await;
}

#[tokio::test]
async fn a_failure_is_told_with_the_end_of_the_log_and_not_repeated() {
    let home = Home::new();
    let supervisor = home.supervisor(StandIn::open(), timing());
    let spec =
        home.spec(json!({"say": ["loading", "out of memory"], "exit": 3, "children": ["session"]}));
    supervisor.converge(std::slice::from_ref(&spec));
    let failed = reported(&supervisor, spec.id, ReplicaState::Failed).await;
    assert_eq!(failed.error.as_deref(), Some("llamacpp exited with 3"));
    assert_eq!(failed.log_tail, ["loading", "out of memory"]);
    assert_eq!(failed.endpoint, None);
    assert!(
        home.processes(2).await.is_empty(),
        "the child of the failed engine has ended"
    );

    let again = home.spec(json!({"say": ["port is taken"], "exit": 1}));
    supervisor.converge(&[spec.clone(), again.clone()]);
    reported(&supervisor, again.id, ReplicaState::Failed).await;
    assert_eq!(home.pids().len(), 3, "the first one was not started again");
    let first = Logs::open(home.path().join("logs"))
        .unwrap()
        .first_failure(&spec.model);
    assert!(fs::read_to_string(first).unwrap().contains("out of memory"));

    supervisor.converge(std::slice::from_ref(&again));
    forgotten(&supervisor, spec.id).await;
    reported(&supervisor, again.id, ReplicaState::Failed).await;
    supervisor.shutdown(Ending::StopEngines).await;
}

#[tokio::test]
async fn a_log_stays_short_however_much_an_engine_says() {
    let home = Home::new();
    let timing = Timing {
        check_every: Duration::from_millis(50),
        ..timing()
    };
    let supervisor = home.supervisor(StandIn::open(), timing);
    let spec = home.spec(json!({"chatter": 40 << 20}));
    supervisor.converge(std::slice::from_ref(&spec));
    reported(&supervisor, spec.id, ReplicaState::Ready).await;
    let log = home.entries().remove(0).log;
    // Its end is kept, in whole lines. While it is being cut it is empty for a moment.
    eventually("it is cut", || {
        let length = fs::metadata(&log).unwrap().len();
        ((1 << 20) - 1024..=16 << 20).contains(&length)
    })
    .await;
    supervisor.shutdown(Ending::StopEngines).await;
}

#[tokio::test]
async fn a_kill_is_told_by_its_signal() {
    let home = Home::new();
    let supervisor = home.supervisor(StandIn::open(), timing());
    let spec = home.spec(json!({}));
    supervisor.converge(std::slice::from_ref(&spec));
    reported(&supervisor, spec.id, ReplicaState::Ready).await;
    kill(&home.processes(1).await).await;
    let failed = reported(&supervisor, spec.id, ReplicaState::Failed).await;
    assert_eq!(
        failed.error.as_deref(),
        Some("llamacpp was ended by SIGKILL")
    );
    assert!(failed.hint.unwrap().contains("memory"));
    supervisor.shutdown(Ending::StopEngines).await;
}

#[tokio::test]
async fn an_engine_that_falls_silent_is_ended() {
    let home = Home::new();
    let error = fall_silent(&home, json!({}), PATIENCE).await;
    assert!(error.contains("no health check"), "{error}");
    let alive = home
        .pids()
        .into_iter()
        .filter_map(|pid| ProcessIdentity::of(pid).unwrap());
    assert_eq!(alive.count(), 0);
}

#[tokio::test]
async fn an_engine_that_is_too_busy_to_answer_is_given_time() {
    let home = Home::new();
    let patience = Duration::from_secs(2);
    let begin = Instant::now();
    let error = fall_silent(&home, json!({"spin": true}), patience).await;
    assert!(begin.elapsed() >= patience, "{error}");
}

/// Lets a ready engine answer nobody any more, and says what is told when it has failed.
async fn fall_silent(home: &Home, mut plan: Value, busy_patience: Duration) -> String {
    let timing = Timing {
        answer_within: Duration::from_millis(200),
        check_every: Duration::from_millis(50),
        busy_patience,
        ..timing()
    };
    let supervisor = home.supervisor(StandIn::open(), timing);
    let mute = home.path().join("mute");
    plan["mute"] = json!(mute);
    let spec = home.spec(plan);
    supervisor.converge(std::slice::from_ref(&spec));
    reported(&supervisor, spec.id, ReplicaState::Ready).await;
    fs::write(mute, "").unwrap();
    let failed = reported(&supervisor, spec.id, ReplicaState::Failed).await;
    supervisor.shutdown(Ending::StopEngines).await;
    failed.error.unwrap()
}

#[tokio::test]
async fn requests_in_flight_are_waited_for() {
    let home = Home::new();
    let supervisor = Arc::new(home.supervisor(StandIn::open(), timing()));
    let busy = home.path().join("busy");
    fs::write(&busy, "1").unwrap();
    let spec = home.spec(json!({"busy": busy}));
    supervisor.converge(std::slice::from_ref(&spec));
    reported(&supervisor, spec.id, ReplicaState::Ready).await;
    let engine = home.processes(1).await;

    supervisor.converge(&[]);
    let draining = reported(&supervisor, spec.id, ReplicaState::Draining).await;
    assert!(draining.endpoint.is_some());
    assert!(engine[0].is_alive().unwrap());
    fs::write(&busy, "0").unwrap();
    forgotten(&supervisor, spec.id).await;
    assert!(!engine[0].is_alive().unwrap());
    supervisor.shutdown(Ending::StopEngines).await;
}

#[tokio::test]
async fn a_replica_that_waits_for_its_parts_can_be_taken_back() {
    let home = Home::new();
    let parts = StandIn::closed();
    let trouble = Failure {
        error: "no disk".into(),
        hint: Some("make room".into()),
    };
    *parts.trouble.lock().unwrap() = Some(trouble);
    let supervisor = home.supervisor(Arc::clone(&parts), timing());
    let spec = home.spec(json!({}));
    supervisor.converge(std::slice::from_ref(&spec));
    let mut statuses = supervisor.statuses();
    let waiting = statuses.wait_for(|all| all.get(&spec.id).is_some_and(|one| one.error.is_some()));
    let waiting = waiting.await.unwrap()[&spec.id].clone();
    assert_eq!(waiting.state, ReplicaState::Provisioning);
    assert_eq!(waiting.hint.as_deref(), Some("make room"));

    supervisor.converge(&[]);
    forgotten(&supervisor, spec.id).await;
    assert!(home.pids().is_empty() && home.entries().is_empty());

    // And asked for again.
    parts.gate.add_permits(1);
    supervisor.converge(std::slice::from_ref(&spec));
    let ready = reported(&supervisor, spec.id, ReplicaState::Ready).await;
    assert_eq!(ready.error, None);
    supervisor.shutdown(Ending::StopEngines).await;
    assert!(home.processes(1).await.is_empty());
}

#[tokio::test]
async fn weights_that_can_not_be_had_are_a_failure() {
    let home = Home::new();
    let parts = StandIn::open();
    *parts.no_weights.lock().unwrap() = Some(Failure::new("no source answers"));
    let supervisor = home.supervisor(parts, timing());
    let spec = home.spec(json!({}));
    supervisor.converge(std::slice::from_ref(&spec));
    let failed = reported(&supervisor, spec.id, ReplicaState::Failed).await;
    assert_eq!(failed.error.as_deref(), Some("no source answers"));
    assert!(home.pids().is_empty() && home.entries().is_empty());
    supervisor.shutdown(Ending::StopEngines).await;
}

#[tokio::test]
async fn an_order_that_is_repeated_changes_nothing() {
    let home = Home::new();
    let supervisor = home.supervisor(StandIn::open(), timing());
    let specs = [home.spec(json!({})), home.spec(json!({}))];
    for _ in 0..20 {
        supervisor.converge(&specs);
    }
    let mut ports = Vec::new();
    for spec in &specs {
        let ready = reported(&supervisor, spec.id, ReplicaState::Ready).await;
        ports.push(ready.endpoint);
        supervisor.converge(&specs);
    }
    assert_ne!(ports[0], ports[1]);
    assert_eq!(home.pids().len(), 2);
    supervisor.shutdown(Ending::StopEngines).await;
    assert!(home.processes(2).await.is_empty());
}

#[tokio::test]
async fn the_next_life_takes_over_and_waits_for_orders() {
    let home = Home::new();
    let (spec, leader) = left_running(&home, json!({"children": ["session"]})).await;

    let after = home.supervisor(StandIn::open(), timing());
    assert_eq!(
        after.adopt().await.unwrap(),
        Adoption {
            adopted: 1,
            ended: 0
        }
    );
    let adopted = reported(&after, spec.id, ReplicaState::Ready).await;
    assert_eq!(adopted.spec, spec);
    after.converge(std::slice::from_ref(&spec));
    assert!(leader.is_alive().unwrap());
    assert_eq!(home.pids().len(), 2, "nothing was started again");

    after.converge(&[]);
    forgotten(&after, spec.id).await;
    assert!(home.processes(2).await.is_empty());
    after.shutdown(Ending::StopEngines).await;
}

#[tokio::test]
async fn an_adopted_engine_that_is_busy_is_not_asked_for_a_token() {
    let home = Home::new();
    let (busy, mute) = (home.path().join("busy"), home.path().join("no-tokens"));
    let (spec, leader) = left_running(&home, json!({"busy": busy, "no_tokens": mute})).await;
    // Its only slot is taken: who asks for a token waits.
    fs::write(&mute, "").unwrap();
    fs::write(&busy, "1").unwrap();
    let after = home.supervisor(StandIn::open(), timing());
    after.adopt().await.unwrap();
    reported(&after, spec.id, ReplicaState::Ready).await;
    assert!(leader.is_alive().unwrap());
    fs::write(&busy, "0").unwrap();
    after.shutdown(Ending::StopEngines).await;
}

#[tokio::test]
async fn an_adopted_engine_that_dies_has_failed() {
    let home = Home::new();
    let (spec, leader) = left_running(&home, json!({"say": ["hello"]})).await;
    let after = home.supervisor(StandIn::open(), timing());
    after.adopt().await.unwrap();
    reported(&after, spec.id, ReplicaState::Ready).await;
    kill(&[leader]).await;
    let failed = reported(&after, spec.id, ReplicaState::Failed).await;
    // Its launcher is its parent, and outlives agents.
    assert_eq!(
        failed.error.as_deref(),
        Some("llamacpp was ended by SIGKILL")
    );
    assert_eq!(failed.log_tail, ["hello"]);
    // Nobody asked for it: it is forgotten with the first order.
    after.converge(&[]);
    forgotten(&after, spec.id).await;
    after.shutdown(Ending::StopEngines).await;
}

#[tokio::test]
async fn a_crash_between_intent_and_start_leaves_nothing_and_doubles_nothing() {
    let home = Home::new();
    // The agent was killed after it had written the intent and started the engine, and before it wrote which
    // process that is.
    let (spec, _) = left_running(&home, json!({"children": ["session", "daemon"]})).await;
    let mut entry = home.entries().remove(0);
    entry.process = None;
    home.ledger().write(&entry).unwrap();
    let tree = home.processes(3).await;

    let after = home.supervisor(StandIn::open(), timing());
    assert_eq!(
        after.adopt().await.unwrap(),
        Adoption {
            adopted: 0,
            ended: 1
        }
    );
    assert!(tree.iter().all(|process| !process.is_alive().unwrap()));
    assert!(home.entries().is_empty() && after.statuses().borrow().is_empty());

    after.converge(std::slice::from_ref(&spec));
    reported(&after, spec.id, ReplicaState::Ready).await;
    assert_eq!(home.processes(6).await.len(), 3);
    after.shutdown(Ending::StopEngines).await;
}

#[tokio::test]
async fn a_crash_before_the_start_leaves_only_the_intent() {
    let home = Home::new();
    let (spec, _) = left_running(&home, json!({})).await;
    let mut entry = home.entries().remove(0);
    home.runtime().stop(spec.id, PATIENCE).await.unwrap();
    entry.process = None;
    home.ledger().write(&entry).unwrap();
    let after = home.supervisor(StandIn::open(), timing());
    assert_eq!(after.adopt().await.unwrap(), Adoption::default());
    assert!(home.entries().is_empty());
    after.shutdown(Ending::StopEngines).await;
}

#[tokio::test]
async fn a_ledger_that_names_another_process_ends_the_engine_and_not_that_process() {
    let home = Home::new();
    let (_, leader) = left_running(&home, json!({})).await;
    let mut innocent = tokio::process::Command::new("sleep")
        .arg("1000")
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let other = ProcessIdentity::of(innocent.id().unwrap())
        .unwrap()
        .unwrap();
    let mut entry = home.entries().remove(0);
    // The number was given to another process, which began later than the ledger says.
    entry.process = Some(ProcessIdentity {
        start_time: other.start_time - 1,
        ..other.clone()
    });
    home.ledger().write(&entry).unwrap();

    let after = home.supervisor(StandIn::open(), timing());
    assert_eq!(
        after.adopt().await.unwrap(),
        Adoption {
            adopted: 0,
            ended: 1
        }
    );
    assert!(other.is_alive().unwrap() && !leader.is_alive().unwrap());
    innocent.kill().await.unwrap();
    after.shutdown(Ending::StopEngines).await;
}

#[tokio::test]
async fn a_damaged_ledger_is_no_hindrance() {
    let home = Home::new();
    let (spec, leader) = left_running(&home, json!({})).await;
    let dir = home.path().join("replicas");
    fs::write(dir.join(format!("{}.json", spec.id)), "{\"spec\": {").unwrap();
    fs::write(dir.join("r-0.json.new"), "half").unwrap();
    let after = home.supervisor(StandIn::open(), timing());
    assert_eq!(
        after.adopt().await.unwrap(),
        Adoption {
            adopted: 0,
            ended: 1
        }
    );
    assert!(!leader.is_alive().unwrap());
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
    after.shutdown(Ending::StopEngines).await;
}

#[tokio::test]
async fn an_engine_that_ignores_every_request_to_end_is_made_to() {
    let home = Home::new();
    let supervisor = home.supervisor(StandIn::open(), timing());
    let spec = home.spec(json!({"stubborn": true, "children": ["plain", "session"]}));
    supervisor.converge(std::slice::from_ref(&spec));
    reported(&supervisor, spec.id, ReplicaState::Ready).await;
    supervisor.shutdown(Ending::StopEngines).await;
    assert!(home.processes(3).await.is_empty());
    let statuses = supervisor.statuses();
    assert_eq!(statuses.borrow()[&spec.id].state, ReplicaState::Stopped);
}

/// A replica that is ready, and whose agent is gone.
async fn left_running(home: &Home, plan: Value) -> (ReplicaSpec, ProcessIdentity) {
    let before: Supervisor = home.supervisor(StandIn::open(), timing());
    let spec = home.spec(plan);
    before.converge(std::slice::from_ref(&spec));
    reported(&before, spec.id, ReplicaState::Ready).await;
    before.shutdown(Ending::KeepEngines).await;
    let leader = home.entries().remove(0).process.unwrap();
    assert!(leader.is_alive().unwrap());
    (spec, leader)
}

async fn kill(processes: &[ProcessIdentity]) {
    for process in processes {
        let killed = std::process::Command::new("kill")
            .args(["-9", &process.pid.to_string()])
            .status();
        assert!(killed.unwrap().success());
        eventually("it is dead", || !process.is_alive().unwrap()).await;
    }
}
