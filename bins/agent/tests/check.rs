//! `llmgw-agent check` as it is called: on archives that are good, broken, or called anything at all.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't be set up has failed"
)]

#[path = "scene/build.rs"]
mod build;

use std::{
    fs,
    process::{Command, Output},
};

use build::{noise, pack};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A directory with what a test is about, and another one in which the check works.
struct Bench {
    work: TempDir,
    scratch: TempDir,
}

impl Bench {
    fn new() -> Self {
        Self {
            work: tempfile::tempdir().unwrap(),
            scratch: tempfile::tempdir().unwrap(),
        }
    }

    fn archive(&self, name: &str, plan: Value) {
        pack(&self.work.path().join(name), plan, &[]);
    }

    /// Runs it, and sees that nothing of its work is left, however it ended.
    fn check(&self, arguments: &[&str]) -> Output {
        let output = Command::new(env!("CARGO_BIN_EXE_llmgw-agent"))
            .args(["check", "--directory"])
            .arg(self.scratch.path())
            .args(arguments)
            .current_dir(self.work.path())
            .output()
            .unwrap();
        let left: Vec<_> = fs::read_dir(self.scratch.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        output
    }

    /// What it says to programs, and what it ends with.
    fn verdict(&self, arguments: &[&str]) -> (Value, Option<i32>) {
        let output = self.check(&[arguments, &["-o", "json"]].concat());
        let verdict = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
        (verdict, output.status.code())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn words(verdict: &Value, key: &str) -> String {
    verdict[key]
        .as_str()
        .unwrap_or_else(|| panic!("{key} of {verdict:#}"))
        .to_owned()
}

#[test]
fn a_good_archive_is_tried_whole_and_told_step_by_step() {
    let bench = Bench::new();
    bench.archive(PUBLISHED, json!({}));
    let output = bench.check(&["--from", PUBLISHED]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let steps: Vec<&str> = said.lines().collect();
    let first = format!("unpacking {PUBLISHED}");
    let all = [
        first.as_str(),
        "checking what b4711 cpu needs",
        "asking b4711 cpu for its version",
        "computing with b4711 cpu",
    ];
    assert_eq!((steps.first(), steps.last()), (all.first(), all.last()));
    // In their order; one that is over at once may not be told.
    let mut rest = all.iter();
    assert!(
        steps.iter().all(|step| rest.any(|one| one == step)),
        "{steps:?}"
    );
    let shown = text(&output.stdout);
    let last = shown.lines().last().unwrap();
    assert_eq!(last, "result    llamacpp works here: b4711 (cpu)");
    assert!(shown.starts_with("machine   "), "{shown}");
    assert!(!shown.contains("warning   the program"), "{shown}");

    let (verdict, code) = bench.verdict(&["--from", PUBLISHED]);
    assert_eq!(code, Some(0));
    assert_eq!(verdict["works"], true);
    assert_eq!(words(&verdict, "engine"), "llamacpp");
    assert_eq!(words(&verdict, "version"), "b4711");
    assert_eq!(words(&verdict, "variant"), "cpu");
    assert_eq!(verdict["steps"].as_array().unwrap().len(), 4);
    let expected = json!({"state": "installed", "version": "b4711", "variant": "cpu"});
    assert_eq!(verdict["provision"]["state"], expected);
    for absent in ["error", "hint"] {
        assert!(verdict.get(absent).is_none(), "{verdict:#}");
    }
}

#[test]
fn a_build_that_dies_of_an_instruction_is_refused_with_that_reason() {
    let bench = Bench::new();
    bench.archive(PUBLISHED, json!({"signal": 4}));
    let (verdict, code) = bench.verdict(&["--from", PUBLISHED]);
    assert_eq!(code, Some(1));
    assert_eq!(verdict["works"], false);
    assert!(
        words(&verdict, "error").contains("SIGILL while loading"),
        "{verdict:#}"
    );
    assert!(!words(&verdict, "hint").is_empty());
    assert_eq!(
        verdict["provision"]["state"]["state"], "failed",
        "{verdict:#}"
    );
    assert_eq!(
        verdict["provision"]["state"]["error"], verdict["error"],
        "{verdict:#}"
    );
    let output = bench.check(&["--from", PUBLISHED]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    let result = shown.lines().find(|line| line.starts_with("result"));
    assert!(result.unwrap().contains("would not work here"), "{shown}");
}

#[test]
fn a_byte_of_an_archive_that_is_another_is_refused_by_the_archive_s_name() {
    let bench = Bench::new();
    let path = bench.work.path().join(PUBLISHED);
    pack(&path, json!({}), &[("libnoise.so", noise(64 << 10))]);
    let mut bytes = fs::read(&path).unwrap();
    let half = bytes.len() / 2;
    bytes[half] ^= 1;
    fs::write(&path, bytes).unwrap();
    let (verdict, code) = bench.verdict(&["--from", PUBLISHED]);
    assert_eq!(code, Some(1));
    assert!(words(&verdict, "error").contains(PUBLISHED), "{verdict:#}");
    assert!(!words(&verdict, "hint").is_empty());
    assert_eq!(verdict["provision"]["state"]["state"], "failed");
}

#[test]
fn an_archive_may_be_called_anything_and_packed_in_every_way() {
    let bench = Bench::new();
    for name in ["mine.tar", "my build (2).tgz", "llama.zip", "b4711.tar.gz"] {
        bench.archive(name, json!({}));
        let (verdict, code) = bench.verdict(&["--from", name]);
        assert_eq!(code, Some(0), "{name}: {verdict:#}");
        // The program says its own number; the file's name says none that it could contradict.
        assert_eq!(words(&verdict, "version"), "b4711", "{name}");
        assert!(
            verdict["provision"].get("warnings").is_none(),
            "{verdict:#}"
        );
    }
    // Also without an end that says how it is packed.
    for (from, to) in [
        ("mine.tar", "plain"),
        ("llama.zip", "zipped"),
        ("b4711.tar.gz", "packed"),
    ] {
        fs::rename(bench.work.path().join(from), bench.work.path().join(to)).unwrap();
        let (verdict, code) = bench.verdict(&["--from", to]);
        assert_eq!(code, Some(0), "{to}: {verdict:#}");
    }
}

#[test]
fn what_is_no_archive_is_wrong_input_and_said_to_be_what_it_is() {
    let bench = Bench::new();
    let path = |name: &str| bench.work.path().join(name);
    fs::create_dir(path("folder")).unwrap();
    fs::write(path("text.tar.gz"), "hello").unwrap();
    fs::write(path("empty"), "").unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(path("pipe"))
            .status()
            .unwrap()
            .success()
    );
    for (name, expected) in [
        ("folder", "it is a directory"),
        ("none", "there is no such file"),
        ("pipe", "it is no file"),
        ("text.tar.gz", "neither a tar nor a zip archive"),
        ("empty", "neither a tar nor a zip archive"),
    ] {
        let output = bench.check(&["--from", name]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        let first = said.lines().next().unwrap();
        assert!(first.starts_with("error: "), "{said}");
        assert!(first.contains(name) && first.contains(expected), "{said}");
        assert!(
            said.lines().any(|line| line.starts_with("hint: ")),
            "{said}"
        );
    }
}

#[test]
fn an_engine_is_named_with_or_without_its_version() {
    let bench = Bench::new();
    for engine in ["nothing", "llamacpp=", "=b1", ""] {
        let output = bench.check(&["--engine", engine]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    }
    // Nowhere to look it up: that is said, and is no wrong input.
    let arguments = [
        "--engine",
        "llamacpp=b4711",
        "--source",
        "github",
        "--releases",
        "none",
    ];
    let (verdict, code) = bench.verdict(&arguments);
    assert_eq!(code, Some(1));
    assert_eq!(verdict["works"], false);
    assert!(!words(&verdict, "error").is_empty() && !words(&verdict, "hint").is_empty());
    let state = &verdict["provision"]["state"];
    assert_eq!(state["state"], "failed", "{verdict:#}");
}

/// As a release of the stand-in would call it.
const PUBLISHED: &str = if cfg!(target_arch = "aarch64") {
    "llama-b4711-bin-ubuntu-arm64.tar.gz"
} else {
    "llama-b4711-bin-ubuntu-x64.tar.gz"
};
