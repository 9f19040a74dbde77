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
        &["--listen", "127.0.0.1:0", "--model", "tiny=pip:p==1/m.gguf"],
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
    fs::write(&file, "models:\n  - name: a\n  source: file:/m\n").unwrap();
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
        said.contains("llmgw.yaml:3:3: ") && said.contains("hint: "),
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

#[test]
fn an_address_that_is_none_is_refused_with_one_that_is() {
    let (code, said) = refused(&Home::new(), &["--listen", "nonsense"]);
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("nonsense") && said.contains("127.0.0.1:8080"),
        "{said}"
    );
}

#[test]
fn a_model_that_is_declared_twice_is_refused_before_anything_starts() {
    let home = Home::new();
    let model = "tiny=file:/m.gguf,memory=1GiB";
    let (code, said) = refused(
        &home,
        &[
            "--listen",
            "127.0.0.1:0",
            "--model",
            model,
            "--model",
            model,
        ],
    );
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("tiny is declared twice") && said.contains("hint: "),
        "{said}"
    );
    assert!(!home.data_dir().exists());
}

#[test]
fn an_engine_that_is_not_there_is_refused_before_anything_starts() {
    let home = Home::new();
    let file = home.path().join("llmgw.yaml");
    fs::write(&file, "engines:\n  llamacpp: {path: /nope/llama-server}\n").unwrap();
    let config = file.to_str().unwrap();
    let (code, said) = refused(&home, &["--listen", "127.0.0.1:0", "--config", config]);
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("/nope/llama-server: there is no such file") && said.contains("hint: "),
        "{said}"
    );
    assert!(!home.data_dir().exists());
}

#[test]
fn a_key_file_that_holds_something_else_is_left_as_it_is() {
    let home = Home::new();
    fs::write(home.key_file(), "my notes\n").unwrap();
    let key_file = home.key_file();
    let (code, said) = refused(
        &home,
        &[
            "--listen",
            "127.0.0.1:0",
            "--api-key-file",
            key_file.to_str().unwrap(),
        ],
    );
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("api-key: it holds something that is no API key") && said.contains("hint: "),
        "{said}"
    );
    assert_eq!(fs::read_to_string(&key_file).unwrap(), "my notes\n");
}

#[test]
fn a_key_file_in_no_directory_is_refused_with_what_helps() {
    let home = Home::new();
    let inside = home.path().join("no/key");
    let (code, said) = refused(
        &home,
        &[
            "--listen",
            "127.0.0.1:0",
            "--api-key-file",
            inside.to_str().unwrap(),
        ],
    );
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("no/key") && said.contains("hint: make the directory "),
        "{said}"
    );
}

#[test]
fn a_damaged_store_is_named_with_what_is_lost_without_it() {
    let home = Home::new();
    fs::create_dir(home.data_dir()).unwrap();
    let file = home.data_dir().join("llmgw.db");
    fs::write(&file, "no database at all ".repeat(300)).unwrap();
    let (code, said) = refused(&home, &["--listen", "127.0.0.1:0"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("data/llmgw.db"), "{said}");
    assert!(
        said.contains("hint: restore the store from a backup") && said.contains("API keys"),
        "{said}"
    );
}

#[test]
fn an_agent_that_can_not_go_on_ends_the_whole_and_says_why() {
    let home = Home::new();
    let ledger = home.data_dir().join("agent/replicas");
    fs::create_dir_all(&ledger).unwrap();
    // A regular file whose first byte the kernel refuses to read.
    let entry = ledger.join("unreadable.json");
    std::os::unix::fs::symlink("/proc/self/mem", &entry).unwrap();
    let (code, said) = refused(&home, &["--listen", "127.0.0.1:0"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("agent/replicas"), "{said}");
    assert!(said.contains("stopping: "), "{said}");
    assert!(fs::symlink_metadata(&entry).is_ok(), "it is not removed");
}
