//! `llmgw-agent facts` on recorded machines: the same text and the same JSON everywhere.
//!
//! Beside each tree in `llmgw-agent/tests/machines` stand both, as `NAME.txt` and `NAME.json`. A change of either is
//! a change of what people or programs see, and is reviewed as such: `facts --root NAME -o FORMAT` writes it.

#![expect(clippy::unwrap_used, reason = "a test that can't set itself up fails")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use llmgw_agent::process::cgroup::Cgroups;
use serde_json::Value;

#[test]
fn each_recorded_machine_is_shown_as_its_golden_text_says() {
    for tree in trees() {
        let shown = stdout(&facts(&["--root", tree.to_str().unwrap()]));
        let golden = fs::read_to_string(tree.with_added_extension("txt")).unwrap();
        assert_eq!(shown, golden, "{}", tree.display());
    }
}

#[test]
fn each_recorded_machine_is_told_as_its_golden_json_says() {
    for tree in trees() {
        let output = facts(&["--root", tree.to_str().unwrap(), "-o", "json"]);
        let golden = fs::read_to_string(tree.with_added_extension("json")).unwrap();
        assert_eq!(
            without_release(&stdout(&output)),
            without_release(&golden),
            "{}",
            tree.display()
        );
    }
}

#[test]
fn a_machine_is_recorded_once_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    let tree = tree.to_str().unwrap();
    // The same place on both: a disk that is nearly full is told with what it holds.
    let recorded = facts(&["--record", tree, "--data-dir", "/", "-o", "json"]);
    assert!(recorded.status.success(), "{recorded:?}");
    let said = String::from_utf8(recorded.stderr.clone()).unwrap();
    assert!(said.starts_with(&format!("recorded in {tree}: ")), "{said}");
    let again = facts(&["--root", tree, "--data-dir", "/", "-o", "json"]);
    assert_eq!(stdout(&recorded), stdout(&again));
    let twice = facts(&["--record", tree]);
    assert_eq!(twice.status.code(), Some(1));
    let said = String::from_utf8(twice.stderr).unwrap();
    assert!(said.contains("is not empty\nhint: "), "{said}");
}

#[test]
fn that_engines_would_not_be_held_to_their_memory_is_said_where_it_is_so() {
    let dir = tempfile::tempdir().unwrap();
    let output = facts(&["--data-dir", dir.path().to_str().unwrap(), "-o", "json"]);
    let told: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let mut warnings = told["warnings"].as_array().into_iter().flatten();
    let found = warnings.any(|warning| warning["code"] == "engine_memory_unlimited");
    assert_eq!(found, Cgroups::outlook().is_err(), "{told}");
}

#[test]
fn what_is_no_recorded_machine_is_wrong_input() {
    let dir = tempfile::tempdir().unwrap();
    let output = facts(&["--root", dir.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("machine.json") && said.contains("--record"),
        "{said}"
    );
}

fn facts(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_llmgw-agent"))
        .arg("facts")
        .args(args)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The release that looked changes with every release.
fn without_release(json: &str) -> Value {
    let mut value: Value = serde_json::from_str(json).unwrap();
    value
        .as_object_mut()
        .unwrap()
        .remove("agent_version")
        .unwrap();
    value
}

fn trees() -> Vec<PathBuf> {
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../llmgw-agent/tests/machines");
    let mut trees: Vec<PathBuf> = fs::read_dir(machines)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    trees.sort();
    assert!(trees.len() >= 12, "{trees:?}");
    trees
}
