use std::{os::unix::process::ExitStatusExt as _, sync::Mutex};

use tokio::time::timeout;

use super::{
    heard::{MAX_LINE, MAX_TAIL},
    *,
};

fn shell<'a>(script: &str, directory: &'a Path, patience: Patience) -> Helper<'a> {
    Helper {
        program: Path::new("/bin/sh"),
        args: vec!["-c".into(), script.into()],
        env: &[],
        inherits: Inherits::Basics,
        without: &[],
        directory,
        patience,
    }
}

const SOON: Patience = Patience::Whole(Duration::from_secs(20));

#[tokio::test]
async fn both_outputs_are_heard_and_the_status_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let heard = Mutex::new(Vec::new());
    let finished = shell(
        "echo one; printf 'two\\rthree' >&2; exit 3",
        directory.path(),
        SOON,
    )
    .run(&Listener {
        line: &|line| heard.lock().unwrap().push(line.to_owned()),
        filling: None,
    })
    .await
    .unwrap();
    assert_eq!(finished.status.code(), Some(3));
    let mut lines = finished.lines.clone();
    lines.sort();
    assert_eq!(lines, ["one", "three", "two"]);
    assert_eq!(*heard.lock().unwrap(), finished.lines);
}

#[tokio::test]
async fn endless_output_is_kept_to_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let script = "i=0; while [ $i -lt 4000 ]; do echo line $i of many more; i=$((i+1)); done; \
                  head -c 9000 /dev/zero | tr '\\0' x";
    let finished = shell(script, directory.path(), SOON)
        .run(&Listener::NONE)
        .await
        .unwrap();
    assert_eq!(finished.last_line().len(), MAX_LINE);
    assert!(finished.lines.iter().map(String::len).sum::<usize>() <= MAX_TAIL);
    assert!(
        finished
            .lines
            .contains(&"line 3999 of many more".to_owned())
    );
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let helper = Helper {
        program: Path::new("/nonexistent/python"),
        ..shell("", directory.path(), SOON)
    };
    let error = helper.run(&Listener::NONE).await.unwrap_err();
    assert_eq!(error.to_string(), "starting /nonexistent/python");
}

/// Waits until a script has written its own number and a child's.
async fn numbers(path: &Path) -> Vec<i32> {
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if text.ends_with('\n') {
            return text
                .split_whitespace()
                .map(|number| number.parse().unwrap())
                .collect();
        }
        tokio::task::yield_now().await;
    }
}

/// Waits until none of these processes runs; a killed one may stay a zombie until its parent looks.
async fn gone(numbers: &[i32]) {
    let runs = |number: &i32| {
        std::fs::read_to_string(format!("/proc/{number}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
    };
    while numbers.iter().any(runs) {
        tokio::task::yield_now().await;
    }
}

const FAMILY: &str = "sleep 1000 & echo $$ $! > numbers; wait";

#[tokio::test]
async fn a_deadline_ends_the_program_and_its_children() {
    let directory = tempfile::tempdir().unwrap();
    let patience = Patience::Whole(Duration::from_millis(300));
    let error = shell(FAMILY, directory.path(), patience)
        .run(&Listener::NONE)
        .await
        .unwrap_err();
    assert!(matches!(error, HelperError::Deadline { .. }), "{error}");
    let numbers = numbers(&directory.path().join("numbers")).await;
    assert_eq!(numbers.len(), 2);
    timeout(Duration::from_secs(10), gone(&numbers))
        .await
        .unwrap();
}

#[tokio::test]
async fn dropping_the_future_ends_the_program_and_its_children() {
    let directory = tempfile::tempdir().unwrap();
    let helper = shell(FAMILY, directory.path(), SOON);
    let path = directory.path().join("numbers");
    let numbers = tokio::select! {
        finished = helper.run(&Listener::NONE) => unreachable!("{finished:?}"),
        numbers = numbers(&path) => numbers,
    };
    timeout(Duration::from_secs(10), gone(&numbers))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_grandchild_that_is_left_behind_is_ended() {
    let directory = tempfile::tempdir().unwrap();
    let script = "sleep 1000 & echo $$ $! > numbers; exit 0";
    let finished = shell(script, directory.path(), SOON)
        .run(&Listener::NONE)
        .await
        .unwrap();
    assert!(finished.status.success());
    let numbers = numbers(&directory.path().join("numbers")).await;
    timeout(Duration::from_secs(10), gone(&numbers))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_silent_program_is_ended_and_a_busy_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let patience = Patience::Silence(Duration::from_secs(1));
    let error = shell("exec sleep 1000", directory.path(), patience)
        .run(&Listener::NONE)
        .await
        .unwrap_err();
    assert!(matches!(error, HelperError::Silent { .. }), "{error}");
    // Says nothing, and fills its directory for longer than the silence that is allowed.
    let script = "i=0; while [ $i -lt 20 ]; do echo x >> file; sleep 0.1; i=$((i+1)); done";
    let seen = Mutex::new(Vec::new());
    let finished = shell(script, directory.path(), patience)
        .run(&Listener {
            line: &|_| (),
            filling: Some((directory.path(), &|bytes| seen.lock().unwrap().push(bytes))),
        })
        .await
        .unwrap();
    assert!(finished.status.success());
    assert!(seen.lock().unwrap().len() > 2, "{seen:?}");
}

#[tokio::test]
async fn a_signal_is_told_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let finished = shell("kill -ILL $$", directory.path(), SOON)
        .run(&Listener::NONE)
        .await
        .unwrap();
    assert_eq!(finished.status.signal(), Some(4));
    assert!(finished.how().contains("SIGILL"), "{}", finished.how());
}

#[tokio::test]
async fn a_program_gets_what_is_named_of_our_environment_and_what_it_is_given() {
    let directory = tempfile::tempdir().unwrap();
    // Cargo and the runner of tests have set some of theirs: they stand for whatever an operator has.
    assert!(std::env::vars_os().any(|(name, _)| name.to_string_lossy().starts_with("CARGO_")));
    let given = [("LLMGW_TASK".into(), "engine".into())];
    let helper = Helper {
        env: &given,
        ..shell("env", directory.path(), SOON)
    };
    let finished = helper.run(&Listener::NONE).await.unwrap();
    let names: Vec<&str> = finished
        .lines
        .iter()
        .filter_map(|line| Some(line.split_once('=')?.0))
        .collect();
    assert!(
        names.contains(&"PATH") && names.contains(&"LLMGW_TASK"),
        "{names:?}"
    );
    assert!(
        !names.iter().any(|name| name.starts_with("CARGO")),
        "{names:?}"
    );
}
