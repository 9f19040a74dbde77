use std::process::Command;

use super::*;

/// A directory with a program `python3` that answers `answer`, whatever it is asked.
fn fake(answer: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("python3");
    // Written by a child: a descriptor of ours, inherited by another test's child, would keep it busy.
    let written = Command::new("/bin/sh")
        .args([
            "-c",
            r#"printf '#!/bin/sh\ncat <<.\n%s\n.\n' "$1" > "$2" && chmod +x "$2""#,
            "sh",
        ])
        .arg(answer)
        .arg(&path)
        .status()
        .unwrap();
    assert!(written.success());
    (directory, path)
}

async fn find(answer: &str, need: Need) -> Result<Python, PythonError> {
    let (directory, path) = fake(answer);
    let search = Search {
        configured: Some(&path),
        directory: directory.path(),
        env: &[],
    };
    search.find(need).await
}

fn answer(version: &str, environments: bool, pip: bool) -> String {
    format!(
        r#"{{"executable": "/usr/bin/python3", "version": {version}, "environments": {environments}, "pip": {pip}}}"#
    )
}

#[tokio::test]
async fn this_machine_has_a_python() {
    let directory = tempfile::tempdir().unwrap();
    let search = Search {
        configured: None,
        directory: directory.path(),
        env: &[],
    };
    let python = search.find(Need::Environment).await.unwrap();
    assert!(python.version >= OLDEST);
    assert!(python.executable.is_absolute());
}

#[tokio::test]
async fn an_old_python_is_named_with_its_version() {
    let error = find(&answer("[2, 7, 18]", false, true), Need::Pip)
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "Python 3.10 or newer is needed, and /usr/bin/python3 is 2.7.18"
    );
    assert!(error.hint().unwrap().contains("python3-venv"));
}

#[tokio::test]
async fn a_python_without_venv_is_told_with_the_package_that_helps() {
    let without = answer("[3, 12, 3]", false, true);
    let error = find(&without, Need::Environment).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "Python 3.12.3 at /usr/bin/python3 can't make environments: its modules venv and ensurepip \
         are not there"
    );
    assert!(error.hint().unwrap().contains("python3-venv"));
    let python = find(&without, Need::Pip).await.unwrap();
    assert!(python.has_pip && !python.makes_environments);
}

#[tokio::test]
async fn what_is_no_python_is_no_python() {
    for strange in ["", "hello", "{", r#"{"version": 3}"#] {
        let error = find(strange, Need::Pip).await.unwrap_err();
        assert!(error.to_string().ends_with("is no Python"), "{error}");
    }
    let search = Search {
        configured: Some(Path::new("/nonexistent/python3")),
        directory: Path::new("/"),
        env: &[],
    };
    let error = search.find(Need::Pip).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "Python 3.10 or newer is needed, and /nonexistent/python3 is no Python"
    );
}
