//! Trees of real processes: started, found again, ended to the last one, and never another's.

#![expect(clippy::unwrap_used, reason = "a test that can't set itself up fails")]

#[path = "scene/home.rs"]
mod scene;

use std::{ffi::OsString, fs, path::Path, process::Stdio, time::Duration};

use llmgw_agent::process::{
    DATA_DIR_MARK, Exit, Leftover, Limits, ProcessError, ProcessRuntime as _, ProcessStart,
    TASK_MARK, identity::ProcessIdentity,
};
use llmgw_core::{error::Coded as _, id::ReplicaId, units::Bytes};
use scene::{Home, eventually};
use serde_json::{Value, json};

#[tokio::test]
async fn an_exit_is_told_as_often_as_it_is_asked() {
    let home = Home::new();
    let runtime = home.runtime();
    for (script, exit) in [("exit 3", Exit::Code(3)), ("kill -9 $$", Exit::Signal(9))] {
        let replica = ReplicaId::generate();
        runtime.start(&home.shell(replica, script)).await.unwrap();
        assert_eq!(runtime.wait(replica).await.unwrap(), exit);
        assert_eq!(runtime.wait(replica).await.unwrap(), exit);
        runtime.stop(replica, GRACE).await.unwrap();
        let error = runtime.wait(replica).await.unwrap_err();
        assert!(matches!(error, ProcessError::Unknown(_)), "{error}");
    }
}

#[tokio::test]
async fn an_engine_gets_few_variables_and_its_marks() {
    let home = Home::new();
    let runtime = home.runtime();
    let replica = ReplicaId::generate();
    let mut start = home.shell(replica, "env; cat; echo problem >&2");
    start.env = vec![("OMP_NUM_THREADS".into(), "2".into())];
    runtime.start(&start).await.unwrap();
    assert_eq!(runtime.wait(replica).await.unwrap(), Exit::Code(0));
    let log = fs::read_to_string(&start.log).unwrap();
    let mut names: Vec<&str> = log
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0))
        // Set by the shell itself.
        .filter(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name))
        .filter(|name| !llmgw_agent::process::INHERITED.contains(name))
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["LLMGW_DATA_DIR", "LLMGW_REPLICA", "OMP_NUM_THREADS"]
    );
    assert!(log.contains("problem"), "{log}");
    runtime.stop(replica, GRACE).await.unwrap();
}

#[tokio::test]
async fn a_tree_ends_whatever_its_members_did_to_stay() {
    let home = Home::new();
    let runtime = home.runtime();
    let replica = ReplicaId::generate();
    let plan = json!({
        "stubborn": true,
        "children": ["plain", "session", "group", "daemon", "bare"],
    });
    runtime.start(&home.tree(replica, plan)).await.unwrap();
    let tree = home.processes(6).await;
    assert_eq!(tree.len(), 6);
    runtime
        .stop(replica, Duration::from_millis(50))
        .await
        .unwrap();
    let left: Vec<_> = tree
        .iter()
        .filter(|process| process.is_alive().unwrap())
        .collect();
    assert!(left.is_empty(), "{left:?}");
    // Again, for nothing.
    runtime.stop(replica, GRACE).await.unwrap();
}

#[tokio::test]
async fn who_ends_when_asked_is_not_made_to() {
    let home = Home::new();
    let runtime = home.runtime();
    let replica = ReplicaId::generate();
    let start = home.shell(
        replica,
        "trap 'echo goodbye; exit 0' TERM; echo up; while :; do sleep 0.01; done",
    );
    runtime.start(&start).await.unwrap();
    let log = || fs::read_to_string(&start.log).unwrap();
    eventually("the trap is set", || log().contains("up")).await;
    runtime.stop(replica, scene::PATIENCE).await.unwrap();
    assert!(log().contains("goodbye"), "{}", log());
}

#[tokio::test]
async fn children_of_an_engine_that_has_died_are_ended() {
    let home = Home::new();
    let runtime = home.runtime();
    let replica = ReplicaId::generate();
    let plan = json!({"children": ["plain", "session", "bare"], "signal": 9});
    runtime.start(&home.tree(replica, plan)).await.unwrap();
    assert_eq!(runtime.wait(replica).await.unwrap(), Exit::Signal(9));
    let children = home.processes(4).await;
    assert_eq!(children.len(), 3);
    runtime.stop(replica, GRACE).await.unwrap();
    assert!(children.iter().all(|process| !process.is_alive().unwrap()));
}

#[tokio::test]
async fn the_next_life_ends_a_tree_that_it_only_knows_by_its_marks() {
    let home = Home::new();
    let replica = ReplicaId::generate();
    let before = home.runtime();
    let plan = json!({"children": ["daemon", "session"]});
    before.start(&home.tree(replica, plan)).await.unwrap();
    let tree = home.processes(3).await;
    before.release().await;
    assert!(
        tree.iter().all(|process| process.is_alive().unwrap()),
        "release ends nothing"
    );

    let after = home.runtime();
    after.stop(replica, GRACE).await.unwrap();
    assert!(tree.iter().all(|process| !process.is_alive().unwrap()));
}

#[tokio::test]
async fn a_running_process_is_adopted_and_its_end_noticed() {
    let home = Home::new();
    let replica = ReplicaId::generate();
    let before = home.runtime();
    let leader = before.start(&home.tree(replica, json!({}))).await.unwrap();
    home.processes(1).await;
    before.release().await;

    let after = home.runtime();
    after.adopt(replica, &leader).await.unwrap();
    assert_eq!(after.leftovers().await.unwrap(), []);
    let again = after.adopt(replica, &leader).await.unwrap_err();
    assert!(matches!(again, ProcessError::Running(_)), "{again}");
    after.stop(replica, GRACE).await.unwrap();
    assert!(!leader.is_alive().unwrap());
    let gone = after.adopt(replica, &leader).await.unwrap_err();
    assert!(matches!(gone, ProcessError::Stranger { .. }), "{gone}");
}

#[tokio::test]
async fn a_process_that_has_the_number_of_an_engine_is_neither_adopted_nor_hit() {
    let home = Home::new();
    let runtime = home.runtime();
    let mut innocent = tokio::process::Command::new("sleep")
        .arg("1000")
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let now = ProcessIdentity::of(innocent.id().unwrap())
        .unwrap()
        .unwrap();
    let earlier = ProcessIdentity {
        start_time: now.start_time - 1,
        ..now.clone()
    };
    let other_boot = ProcessIdentity {
        boot_id: "another".into(),
        ..now.clone()
    };
    let replica = ReplicaId::generate();
    // Not even with its true identity: it carries no mark of ours.
    for identity in [&earlier, &other_boot, &now] {
        let error = runtime.adopt(replica, identity).await.unwrap_err();
        assert!(matches!(error, ProcessError::Stranger { .. }), "{error}");
    }
    let leftover = Leftover {
        replica: Some(replica),
        processes: vec![earlier, other_boot],
    };
    runtime.end(&[leftover], Duration::ZERO).await.unwrap();
    runtime.stop(replica, Duration::ZERO).await.unwrap();
    assert!(now.is_alive().unwrap());
    innocent.kill().await.unwrap();
}

#[tokio::test]
async fn another_replicas_process_is_not_adopted() {
    let home = Home::new();
    let runtime = home.runtime();
    let replica = ReplicaId::generate();
    let leader = runtime.start(&home.tree(replica, json!({}))).await.unwrap();
    let error = home
        .runtime()
        .adopt(ReplicaId::generate(), &leader)
        .await
        .unwrap_err();
    assert!(matches!(error, ProcessError::Stranger { .. }), "{error}");
    runtime.stop(replica, GRACE).await.unwrap();
}

#[tokio::test]
async fn leftovers_are_what_carries_our_marks_and_nobody_knows() {
    let (home, neighbour) = (Home::new(), Home::new());
    let runtime = home.runtime();
    let known = ReplicaId::generate();
    runtime.start(&home.tree(known, json!({}))).await.unwrap();
    let forgotten = ReplicaId::generate();
    let before = home.runtime();
    before
        .start(&home.tree(forgotten, json!({"children": ["session"]})))
        .await
        .unwrap();
    let others = neighbour.runtime();
    let other = ReplicaId::generate();
    others
        .start(&neighbour.tree(other, json!({})))
        .await
        .unwrap();
    neighbour.processes(1).await;
    let ours = home.processes(3).await;
    // An installation whose agent is gone, and an operator's shell.
    let installation = orphan(&home, "pip", true).await;
    let shell = orphan(&home, "shell", false).await;

    let mut leftovers = runtime.leftovers().await.unwrap();
    leftovers.sort_by_key(|leftover| leftover.replica);
    let [task, tree] = leftovers.as_slice() else {
        panic!("two leftovers, not {leftovers:?}");
    };
    assert_eq!((task.replica, tree.replica), (None, Some(forgotten)));
    assert_eq!(task.processes, vec![installation.clone()]);
    // With its launcher.
    assert_eq!(tree.processes.len(), 3);

    runtime.end(&leftovers, GRACE).await.unwrap();
    assert!(!installation.is_alive().unwrap());
    assert!(shell.is_alive().unwrap());
    let alive = ours
        .iter()
        .filter(|process| process.is_alive().unwrap())
        .count();
    assert_eq!(alive, 1, "the known one goes on");
    assert_eq!(runtime.leftovers().await.unwrap(), []);

    runtime.stop(known, GRACE).await.unwrap();
    others.stop(other, GRACE).await.unwrap();
    let remains = Leftover {
        replica: None,
        processes: vec![shell],
    };
    runtime.end(&[remains], Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn a_replica_has_one_process_at_most() {
    let home = Home::new();
    let runtime = home.runtime();
    let replica = ReplicaId::generate();
    runtime.start(&home.tree(replica, json!({}))).await.unwrap();
    let error = runtime
        .start(&home.tree(replica, json!({})))
        .await
        .unwrap_err();
    assert!(matches!(error, ProcessError::Running(_)), "{error}");
    runtime.stop(replica, GRACE).await.unwrap();
}

#[tokio::test]
async fn a_program_that_can_not_be_run_is_named() {
    let home = Home::new();
    let runtime = home.runtime();
    let replica = ReplicaId::generate();
    let start = home.program(replica, "/nowhere/llama-server".as_ref(), &[]);
    let error = runtime.start(&start).await.unwrap_err();
    assert!(
        error.to_string().contains("/nowhere/llama-server"),
        "{error}"
    );
    assert!(error.hint().is_some());
    assert!(matches!(
        runtime.wait(replica).await,
        Err(ProcessError::Unknown(_))
    ));
}

#[tokio::test]
async fn what_a_tree_uses_is_counted() {
    let home = Home::new();
    let runtime = home.runtime();
    let replica = ReplicaId::generate();
    runtime
        .start(&home.tree(replica, json!({"children": ["session"]})))
        .await
        .unwrap();
    home.processes(2).await;
    let usage = runtime.usage().await.unwrap();
    let used = usage[&replica];
    // Two Python interpreters: more than nothing, less than a model.
    assert!(used.held > Bytes::mib(2), "{used:?}");
    assert!(used.held < Bytes::gib(1), "{used:?}");
    runtime.stop(replica, GRACE).await.unwrap();
    assert!(runtime.usage().await.unwrap().is_empty());
}

impl Home {
    /// The start of a stand-in engine without a port: a tree of processes and nothing else.
    fn tree(&self, replica: ReplicaId, plan: Value) -> ProcessStart {
        let model = self.plan(plan);
        self.program(
            replica,
            &scene::engine(),
            &[OsString::from("-m"), model.into()],
        )
    }

    /// The start of a shell command.
    fn shell(&self, replica: ReplicaId, script: &str) -> ProcessStart {
        self.program(replica, Path::new("sh"), &["-c".into(), script.into()])
    }

    fn program(&self, replica: ReplicaId, program: &Path, args: &[OsString]) -> ProcessStart {
        ProcessStart {
            replica,
            program: program.to_owned(),
            args: args.to_vec(),
            env: Vec::new(),
            log: self.path().join(format!("{replica}.log")),
            limits: Limits::default(),
        }
    }
}

/// A process without a parent of ours, as the crash of an agent leaves them.
async fn orphan(home: &Home, name: &str, marked: bool) -> ProcessIdentity {
    let file = home.path().join(name);
    let mut command = tokio::process::Command::new("sh");
    command
        .args([
            "-c",
            "sleep 1000 & echo $! > \"$0.part\"; mv \"$0.part\" \"$0\"",
        ])
        .arg(&file)
        .env(DATA_DIR_MARK, fs::canonicalize(home.path()).unwrap())
        .stdin(Stdio::null());
    if marked {
        command.env(TASK_MARK, name);
    }
    assert!(command.status().await.unwrap().success());
    let pid = fs::read_to_string(file).unwrap().trim().parse().unwrap();
    ProcessIdentity::of(pid).unwrap().unwrap()
}

/// Long: who has to be made to end is told so with a short one.
const GRACE: Duration = Duration::from_secs(30);
