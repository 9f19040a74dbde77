//! The real `llmgw plan` on small files.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::{
    fs,
    process::{Command, Output},
};

use llmgw_core::{
    api::whatif::Outcome,
    gguf::{TensorType, Value, write::Draft},
};
use serde_json::Value as Json;
use tempfile::TempDir;

const FLEET: &str = include_str!("../../../examples/fleet.yaml");
const MODELS: &str = include_str!("../../../examples/models.yaml");
const LARGE: &str = "\
name: large
source: file:/models/large.gguf
profiles: [{memory: 8GiB, gpus: {count: 1, memory: 40GiB}}]
";

/// What a command left behind.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    /// Checks that it ended with this code, and said this and nothing else.
    fn said(self, code: i32, expected: &str) {
        let Self {
            code: ended,
            out,
            err,
        } = self;
        assert_eq!((ended, err.as_str()), (Some(code), ""), "{out}");
        assert_eq!(out, expected, "\n{out}");
    }

    /// Checks that it failed with this code, and on standard error these lines.
    fn failed(&self, code: i32, lines: &[&str]) {
        assert_eq!((self.code, self.out.as_str()), (Some(code), ""), "{self:?}");
        let said: Vec<&str> = self.err.lines().collect();
        assert_eq!(said, lines, "{self:?}");
    }
}

/// A directory with a fleet, what should run on it, and a model more.
fn files() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("fleet.yaml", FLEET),
        ("models.yaml", MODELS),
        ("large.yaml", LARGE),
    ] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

/// `llmgw plan` on these files, with more arguments.
fn plan(directory: &TempDir, arguments: &[&str]) -> Ran {
    let files = ["--fleet", "fleet.yaml", "--models", "models.yaml"];
    run(directory, &[&files, arguments].concat())
}

fn run(directory: &TempDir, arguments: &[&str]) -> Ran {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_llmgw"))
        .arg("plan")
        .args(arguments)
        .current_dir(directory.path())
        .env_clear()
        .output()
        .unwrap();
    Ran {
        code: status.code(),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    }
}

#[test]
fn a_plan_says_what_starts_and_why_what_does_not() {
    let directory = files();
    let starts = "\
Starts:
MODEL  PROFILE  NODE   GPUS  MEMORY   REMARK
chat   default  gpu-1  1     2.0 GiB  -
";
    plan(&directory, &[]).said(0, starts);
    let indented = LARGE.replace('\n', "\n    ");
    let models = format!("{MODELS}  - {}", indented.trim_end());
    fs::write(directory.path().join("models.yaml"), models).unwrap();
    let ran = plan(&directory, &[]);
    assert_eq!(ran.code, Some(1));
    let (placed, unplaced) = ran.out.split_once("\n\n").unwrap();
    assert_eq!(format!("{placed}\n"), starts);
    assert!(
        unplaced
            .starts_with("large is not placed: 2 nodes, 1 profile, none fits now. Nearest: gpu-"),
        "{unplaced}"
    );
    let help = "\
What would help (each was tried):
  now  add a node with 8.0 GiB of memory, 1 x GPU with 40.0 GiB (profile default) free
";
    assert!(unplaced.ends_with(help), "{unplaced}");
}

#[test]
fn changes_are_answered_with_what_they_would_do() {
    let directory = files();
    plan(&directory, &["--drain", "gpu-1"]).said(
        1,
        "\
Moves:
REPLICA     MODEL  FROM   TO     PROFILE  GPUS  WHY
r-1a2b3c01  coder  gpu-1  gpu-2  default  0     drained

Would lack replicas:
chat is not placed: 2 nodes, 1 profile, none fits now. Nearest: gpu-2 with default: gpu memory: needs 16.0 GiB on each of 1 GPU, has 4.0 GiB free, short by 12.0 GiB
NODE   PROFILE  STATE     ENGINE  GPU MEMORY                          MEMORY  DISK
gpu-1  default  draining  ok      16.0 GiB / 8.0 GiB  short 8.0 GiB   ok      ok
gpu-2  default  ok        ok      16.0 GiB / 4.0 GiB  short 12.0 GiB  ok      ok
What would help (each was tried):
  now  add a node with 2.0 GiB of memory, 1 x GPU with 16.0 GiB (profile default) free

Could have one more replica now, and could not then: chat, coder
",
    );
    plan(&directory, &["--drain", "gpu-1", "--add-nodes", "gpu-2=1"]).said(
        0,
        "\
Moves:
REPLICA     MODEL  FROM   TO     PROFILE  GPUS  WHY
planned     chat   gpu-1  gpu-2  default  0     drained
r-1a2b3c01  coder  gpu-1  new-1  default  0     drained

Could have one more replica now, and could not then: chat, coder
",
    );
    plan(&directory, &["--remove=coder", "--scale=chat=2"]).said(
        0,
        "\
Starts:
MODEL  PROFILE  NODE   GPUS
chat   default  gpu-2  0

Stops:
REPLICA     MODEL  NODE   WHY
r-1a2b3c01  coder  gpu-1  removed
",
    );
    plan(&directory, &["--scale", "chat=1"]).said(0, "Nothing would change.\n");
}

#[test]
fn changes_are_made_in_the_order_in_which_they_stand() {
    let directory = files();
    let add = ["--add-nodes", "gpu-2=1"];
    let lose = ["--lose", "new-1"];
    let after = plan(&directory, &[add, lose].concat());
    assert_eq!(after.code, Some(0), "{after:?}");
    plan(&directory, &[lose, add].concat())
        .failed(2, &["error: --lose new-1: there is no node new-1"]);
}

#[test]
fn json_and_yaml_have_all_of_it() {
    let directory = files();
    let drained = ["--drain", "gpu-1", "-o"];
    let json = plan(&directory, &[&drained[..], &["json"]].concat());
    let outcome: Outcome = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json.code, Some(1));
    assert_eq!(outcome.moves[0].to.hostname, "gpu-2");
    let yaml = plan(&directory, &[&drained[..], &["yaml"]].concat());
    assert_eq!(
        serde_saphyr::from_str::<Outcome>(&yaml.out).unwrap(),
        outcome
    );
    let planned = plan(&directory, &["-o", "json"]);
    let planned: Json = serde_json::from_str(&planned.out).unwrap();
    assert_eq!(planned["placements"][0]["hostname"], "gpu-1");
    assert_eq!(planned["reports"][0]["model"], "chat");
}

#[test]
fn a_policy_chooses_the_place() {
    let directory = files();
    let small = LARGE.replace("40GiB", "4GiB");
    fs::write(directory.path().join("small.yaml"), small).unwrap();
    for (policy, node, gpu) in [("packing", "gpu-1", 0), ("spread", "gpu-2", 0)] {
        let ran = plan(
            &directory,
            &["--add=small.yaml", "--policy", policy, "-o=json"],
        );
        let outcome: Outcome = serde_json::from_str(&ran.out).unwrap();
        let start = &outcome.starts[0];
        assert_eq!(
            (start.hostname.as_str(), &start.gpus[..]),
            (node, &[gpu][..]),
            "{policy}"
        );
    }
}

/// A llama of 4 layers; each keeps 4 KiB for a token.
fn weights() -> Vec<u8> {
    let mut draft = Draft::default()
        .with("general.architecture", Value::Text("llama".into()))
        .with("llama.block_count", Value::U32(4))
        .with("llama.context_length", Value::U32(131_072))
        .with("llama.embedding_length", Value::U32(1024))
        .with("llama.feed_forward_length", Value::U32(4096))
        .with("llama.attention.head_count", Value::U32(8))
        .with("llama.attention.head_count_kv", Value::U32(8))
        .with("tokenizer.ggml.tokens", Value::texts(["a"; 8192]))
        .tensor("token_embd.weight", &[1024, 8192], TensorType::F16)
        .tensor("output.weight", &[1024, 8192], TensorType::F16);
    for layer in 0..4 {
        let name = format!("blk.{layer}.ffn_up.weight");
        draft = draft.tensor(&name, &[1024, 4096], TensorType::F16);
    }
    draft.header().unwrap()
}

#[test]
fn known_weights_bring_remedies_of_context_and_slots() {
    let directory = files();
    let models = "models: [{name: coder, source: 'file:/c.gguf', profiles: [{memory: 66GiB, context: 131072, parallel: 8}]}]";
    fs::write(directory.path().join("models.yaml"), models).unwrap();
    fs::write(directory.path().join("coder.gguf"), weights()).unwrap();
    let fleet = FLEET.replace("model: coder", "model: other");
    fs::write(directory.path().join("fleet.yaml"), fleet).unwrap();
    let without = plan(&directory, &[]);
    assert_eq!(without.code, Some(1));
    assert!(!without.out.contains("context "), "{without:?}");
    let with = plan(&directory, &["--weights", "coder=coder.gguf"]);
    assert_eq!(with.code, Some(1));
    assert!(with.out.contains(" instead of 131072, "), "{}", with.out);
    assert!(with.out.contains(" instead of 8, "), "{}", with.out);

    plan(&directory, &["--weights", "nobody=coder.gguf"]).failed(
        2,
        &[
            "error: --weights nobody: there is no model nobody",
            "hint: name a model of --models, --add or --edit",
        ],
    );
    let missing = plan(&directory, &["--weights", "coder=none.gguf"]);
    assert_eq!(missing.code, Some(3), "{missing:?}");
}

#[test]
fn files_that_cannot_be_right_are_refused_with_the_place() {
    let directory = files();
    let put = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    put("unknown.yaml", "nodes:\n  - colour: red\n");
    put("twice.yaml", &FLEET.replace("index: 1", "index: 0"));
    put("zero.yaml", &MODELS.replace("memory: 4GiB", "memory: 0"));
    put(
        "pool.json",
        r#"{"nodes": [], "holds": [{"scope": {"pool": "none"}}]}"#,
    );
    let with = |fleet, models| run(&directory, &["--fleet", fleet, "--models", models]);
    let unknown = with("unknown.yaml", "models.yaml");
    assert_eq!(unknown.code, Some(2));
    let place = "error: unknown.yaml:2:5: unknown field `colour`";
    assert!(unknown.err.starts_with(place), "{unknown:?}");
    let hint = "hint: `llmgw plan --help` shows a fleet";
    with("twice.yaml", "models.yaml").failed(
        2,
        &[
            "error: twice.yaml: nodes[0].gpus[1].index: GPU 0 is named twice",
            hint,
        ],
    );
    with("pool.json", "models.yaml").failed(
        2,
        &[
            "error: pool.json: holds[0].scope.pool: there is no pool none",
            hint,
        ],
    );
    let zero = with("fleet.yaml", "zero.yaml");
    assert_eq!(zero.code, Some(2), "{zero:?}");
    assert!(zero.err.starts_with("error: zero.yaml:"), "{zero:?}");
    for arguments in [["none.yaml", "models.yaml"], ["fleet.yaml", "none.yaml"]] {
        let missing = with(arguments[0], arguments[1]);
        assert_eq!(missing.code, Some(3), "{missing:?}");
        assert!(
            missing.err.starts_with("error: reading none.yaml: "),
            "{missing:?}"
        );
    }
    assert_eq!(plan(&directory, &["--add", "none.yaml"]).code, Some(3));
    assert_eq!(plan(&directory, &["--scale", "chat"]).code, Some(2));
    assert_eq!(run(&directory, &["--fleet", "fleet.yaml"]).code, Some(2));
}

#[test]
fn the_help_shows_files_that_are_right() {
    let directory = files();
    let help = run(&directory, &["--help"]);
    assert_eq!(help.code, Some(0));
    let (_, rest) = help.out.split_once("A fleet:\n").unwrap();
    let (fleet, rest) = rest.split_once("What should run:\n").unwrap();
    let (models, _) = rest.split_once("Exit codes:\n").unwrap();
    fs::write(directory.path().join("fleet.yaml"), fleet).unwrap();
    fs::write(directory.path().join("models.yaml"), models).unwrap();
    let ran = plan(&directory, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.out.matches("small ").count(), 2, "{}", ran.out);
}

#[test]
fn a_snapshot_is_planned_from_with_its_own_policy() {
    let directory = files();
    let fleet: Json = serde_saphyr::from_str(FLEET).unwrap();
    let models: Json = serde_saphyr::from_str(MODELS).unwrap();
    let write = |policy: &str| {
        let snapshot = serde_json::json!({
            "policy": policy, "fleet": fleet, "models": models["models"],
        });
        fs::write(directory.path().join("now.json"), snapshot.to_string()).unwrap();
    };
    for policy in ["scarcity", "spread"] {
        write(policy);
        let Ran { out, .. } = plan(&directory, &["--policy", policy]);
        run(&directory, &["--snapshot", "now.json"]).said(0, &out);
    }
    write("luck");
    run(&directory, &["--snapshot", "now.json"]).failed(
        2,
        &[
            "error: now.json: policy: unknown variant `luck`, expected one of `scarcity`, \
             `fragmentation_gradient`, `best_fit`, `dot_product`, `packing`, `clustering`, `spread`",
            "hint: `llmgw ctl snapshot` writes such a file",
        ],
    );
    let ran = run(
        &directory,
        &["--snapshot", "now.json", "--models", "models.yaml"],
    );
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let ran = run(&directory, &["--fleet", "fleet.yaml"]);
    assert!(ran.err.contains("--models <FILE>"), "{ran:?}");
}
