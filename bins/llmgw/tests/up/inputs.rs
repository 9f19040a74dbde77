//! Bad input gets one clear line, a hint, and the right exit code.

use std::{
    fs,
    net::TcpListener,
    process::{Command, Stdio},
};

use super::harness::{Home, LLMGW};

/// Exit code and what was said on stderr.
fn refused(home: &Home, arguments: &[&str]) -> (i32, String) {
    let output = Command::new(LLMGW)
        .args(["up", "--admin-listen", "127.0.0.1:0", "--data-dir"])
        .arg(home.data_dir())
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), said)
}

#[test]
fn an_unknown_flag_is_refused_with_what_there_is() {
    let (code, said) = refused(&Home::new(), &["--lisen", "127.0.0.1:0"]);
    assert_eq!(code, 2);
    assert!(
        said.contains("--lisen") && said.contains("--listen"),
        "{said}"
    );
}

#[test]
fn a_busy_port_is_named_with_the_flag_that_changes_it() {
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap().to_string();
    let (code, said) = refused(&Home::new(), &["--listen", &address]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(&address) && said.contains("hint: "), "{said}");
    assert!(said.contains("--listen"), "{said}");
}

#[test]
fn a_directory_that_cannot_be_one_is_named() {
    let home = Home::new();
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    let inside = file.join("data");
    let output = Command::new(LLMGW)
        .args([
            "up",
            "--listen",
            "127.0.0.1:0",
            "--admin-listen",
            "127.0.0.1:0",
            "--data-dir",
        ])
        .arg(&inside)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("can't be used") && said.contains("hint: "),
        "{said}"
    );
}

#[test]
fn a_model_that_cannot_be_right_is_refused_before_anything_starts() {
    let home = Home::new();
    let (code, said) = refused(
        &home,
        &["--listen", "127.0.0.1:0", "--model", "tiny=file:/m.gguf"],
    );
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("memory is missing") && said.contains("hint: "),
        "{said}"
    );
    assert!(!home.data_dir().exists());
}

#[test]
fn broken_settings_are_refused_with_file_and_place() {
    let home = Home::new();
    let file = home.path().join("llmgw.yaml");
    fs::write(&file, "models:\n  - name: [\n").unwrap();
    let (code, said) = refused(
        &home,
        &[
            "--listen",
            "127.0.0.1:0",
            "--config",
            file.to_str().unwrap(),
        ],
    );
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("llmgw.yaml") && said.contains("line"),
        "{said}"
    );
}

#[test]
fn an_admin_api_for_everybody_is_refused_with_the_reason() {
    let output = Command::new(LLMGW)
        .args([
            "up",
            "--listen",
            "127.0.0.1:0",
            "--admin-listen",
            "0.0.0.0:0",
            "--data-dir",
        ])
        .arg(Home::new().data_dir())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("must not cross a network"), "{said}");
}
