//! The real `llmgw ctl` against the real admin API, over a control plane in memory.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod guard;
mod settings;

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::Arc,
};

use llmgw_core::{
    api::{
        admin::{ModelView, NodeView, Summary},
        frozen::{Frozen, SilentNode},
        whatif::{Outcome, Snapshot},
    },
    id::NodeId,
    testing::control::MemoryControl,
};
use llmgw_server::admin::{AdminDeps, serve};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::spawn_blocking};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

const TOKEN: &str = "0123456789abcdef";
const DEFINITION: &str = "\
name: org/new
aliases: [new]
source: file:/models/new.gguf
profiles:
  - memory: 1GiB
";

/// A control plane, and a home with a data directory that holds its token.
struct Plane {
    url: String,
    home: TempDir,
    memory: Arc<MemoryControl>,
    _serving: DropGuard,
}

/// What a command left behind.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Plane {
    async fn start(memory: Arc<MemoryControl>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let deps = AdminDeps::new(memory.control(), TOKEN);
        TaskTracker::new().spawn(serve(listener, deps, stop.clone()));
        let plane = Self {
            url,
            home: tempfile::tempdir().unwrap(),
            memory,
            _serving: stop.drop_guard(),
        };
        fs::create_dir_all(plane.data_dir()).unwrap();
        fs::write(plane.data_dir().join("admin.token"), format!("{TOKEN}\n")).unwrap();
        plane
    }

    async fn sample() -> Self {
        Self::start(MemoryControl::sample()).await
    }

    fn data_dir(&self) -> PathBuf {
        self.home.path().join(".local/share/llmgw")
    }

    /// `llmgw ctl` with the environment of someone who started the control plane at home.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bare(arguments);
        command
            .env("HOME", self.home.path())
            .env("LLMGW_ADMIN_URL", &self.url);
        command
    }

    async fn ctl(&self, arguments: &[&str]) -> Ran {
        run(self.command(arguments)).await
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.home.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Ran {
    fn succeeded(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{self:?}");
        self.out
    }

    /// Checks that it failed with this code, said nothing on standard output, and on standard error these lines.
    fn failed(self, code: i32, lines: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        let said: Vec<&str> = self.err.lines().collect();
        assert_eq!(said, lines, "{self:?}");
    }
}

fn bare(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_llmgw"));
    command
        .arg("ctl")
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null());
    command
}

async fn run(mut command: Command) -> Ran {
    let Output {
        status,
        stdout,
        stderr,
    } = spawn_blocking(move || command.output())
        .await
        .unwrap()
        .unwrap();
    Ran {
        code: status.code(),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    }
}

#[tokio::test]
async fn a_new_key_is_the_whole_answer_and_its_id_is_said_beside_it() {
    let plane = Plane::sample().await;
    let ran = plane.ctl(&["keys", "create", "somebody"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.out.lines().count(), 1, "{ran:?}");
    let listed = plane.ctl(&["keys", "-o", "json"]).await.succeeded();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let ids = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|key| key["id"].as_str().unwrap());
    let said = |id: &str| {
        ran.err
            .contains(&format!("its id is {id}: `llmgw ctl keys revoke {id}`"))
    };
    assert!(ids.clone().any(said), "{ran:?}");
    let json = plane
        .ctl(&["keys", "create", "a-program", "-o", "json"])
        .await;
    assert!(json.succeeded().contains("secret"));
}

#[tokio::test]
async fn tables_are_for_people() {
    let plane = Plane::sample().await;
    for (arguments, first, lines) in [
        (&["nodes"][..], "NAME   STATE", 4),
        (&["models"], "NAME          READY", 5),
        (&["replicas"], "ID          MODEL", 4),
        (&["replicas", "--model", "tiny"], "ID          MODEL", 2),
        (&["usage"], "MODEL         KEY", 3),
        (&["decisions"], "NUMBER  AGO", 6),
        (&["decisions", "broken", "--after", "3"], "NUMBER  AGO", 2),
        (&["decisions", "--limit", "2"], "NUMBER  AGO", 3),
        (&["status"], "llmgw 0.1.0, up 2h, leading", 9),
        (&["explain", "huge"], "huge is not placed: 3 nodes", 5),
        (&["explain", "tiny"], "smollm2-135m is placed", 2),
    ] {
        let out = plane.ctl(arguments).await.succeeded();
        assert!(out.starts_with(first), "{arguments:?}: {out}");
        assert_eq!(out.lines().count(), lines, "{arguments:?}: {out}");
    }
}

#[tokio::test]
async fn json_and_yaml_are_what_the_roles_say() {
    let plane = Plane::sample().await;
    let fleet = plane.memory.control().fleet;
    let nodes = fleet.nodes().await.unwrap();
    let json = plane.ctl(&["nodes", "-o", "json"]).await.succeeded();
    assert_eq!(serde_json::from_str::<Vec<NodeView>>(&json).unwrap(), nodes);
    let yaml = plane.ctl(&["-o", "yaml", "nodes"]).await.succeeded();
    assert_eq!(
        serde_saphyr::from_str::<Vec<NodeView>>(&yaml).unwrap(),
        nodes
    );
    let json = plane.ctl(&["status", "--output=json"]).await.succeeded();
    assert_eq!(
        serde_json::from_str::<Summary>(&json).unwrap(),
        fleet.summary().await.unwrap()
    );
}

#[tokio::test]
async fn what_changes_would_do_is_told_and_nothing_is_done() {
    let plane = Plane::sample().await;
    let control = plane.memory.control();
    // Ids as real replicas have them.
    let mut replicas = control.fleet.replicas(None).await.unwrap();
    for (number, replica) in replicas.iter_mut().enumerate() {
        let id = format!("r-0197c2a4f0e17b6c9a3d5e8f1a2b3c0{number}");
        replica.id = id.parse().unwrap();
    }
    plane.memory.set_replicas(replicas);
    let models = control.catalog.models().await.unwrap();
    let file = plane.file("new.yaml", DEFINITION);
    let out = plane
        .ctl(&["plan", "--remove", "org/qwen:7b", "--add", &file])
        .await
        .succeeded();
    let expected = "\
Starts:
MODEL    PROFILE  NODE   GPUS
org/new  default  alpha  -

Stops:
REPLICA     MODEL        NODE   WHY
r-1a2b3c01  org/qwen:7b  alpha  removed

Lack replicas now, and would still: huge
";
    assert_eq!(out, expected, "\n{out}");
    let changes = ["plan", "--scale", "smollm2-135m=2", "-o"];
    let json = plane.ctl(&[&changes[..], &["json"]].concat()).await;
    let outcome: Outcome = serde_json::from_str(&json.succeeded()).unwrap();
    assert_eq!(outcome.starts[0].hostname, "alpha");
    let yaml = plane.ctl(&[&changes[..], &["yaml"]].concat()).await;
    let same: Outcome = serde_saphyr::from_str(&yaml.succeeded()).unwrap();
    assert_eq!(same, outcome);
    // Who takes a snapshot plans without the control plane.
    let snapshot = plane.ctl(&["snapshot"]).await.succeeded();
    let taken: Snapshot = serde_json::from_str(&snapshot).unwrap();
    assert_eq!(taken.models.len(), models.len());
    let file = plane.file("now.json", &snapshot);
    let mut alone = Command::new(env!("CARGO_BIN_EXE_llmgw"));
    alone.args(["plan", "--snapshot", &file]);
    let ran = run(alone).await;
    assert!(ran.out.contains("huge is not placed: 3 nodes"), "{ran:?}");
    let out = plane.ctl(&["plan"]).await.succeeded();
    let nothing = "Nothing would change.\n\nLack replicas now, and would still: huge\n";
    assert_eq!(out, nothing, "\n{out}");
    plane
        .ctl(&["plan", "--drain", "nowhere"])
        .await
        .failed(2, &["error: --drain nowhere: there is no node nowhere"]);
    assert_eq!(control.catalog.models().await.unwrap(), models);
    assert_eq!(control.audit.audit(0, 1_000).await.unwrap(), []);
}

#[tokio::test]
async fn nothing_is_an_empty_list_and_not_a_failure() {
    let plane = Plane::start(Arc::default()).await;
    for (noun, remark) in [
        ("nodes", "no node has joined yet"),
        ("models", "there is no model yet"),
        ("replicas", "there is no replica"),
        ("usage", "nothing was used in that time"),
        ("decisions", "nothing was decided yet"),
    ] {
        let Ran { code, out, err } = plane.ctl(&[noun]).await;
        assert_eq!(
            (code, out.as_str(), err.trim_end()),
            (Some(0), "", remark),
            "{noun}"
        );
        let json = plane.ctl(&[noun, "-o", "json"]).await.succeeded();
        assert_eq!(json, "[]\n");
    }
}

#[tokio::test]
async fn a_model_is_added_tried_again_and_removed() {
    let plane = Plane::sample().await;
    let file = plane.file("new.yaml", DEFINITION);
    let out = plane.ctl(&["add", "-f", &file]).await.succeeded();
    assert_eq!(out, "added org/new\n");
    let models = plane.ctl(&["models", "-o", "json"]).await.succeeded();
    let models: Vec<ModelView> = serde_json::from_str(&models).unwrap();
    assert!(models.iter().any(|model| model.name.as_str() == "org/new"));
    plane.ctl(&["add", "-f", &file]).await.failed(
        1,
        &[
            "error: org/new is already a model",
            "hint: choose another name, or replace that model: `llmgw ctl add --replace`, PUT models/{name}",
        ],
    );
    let replace = ["add", "--replace", "-f", &file];
    let out = plane.ctl(&replace).await.succeeded();
    assert_eq!(out, "replaced org/new\n");
    let out = plane.ctl(&["retry", "new"]).await.succeeded();
    assert_eq!(
        out,
        "new is not parked and has not failed: there was nothing to try again\n"
    );
    let out = plane.ctl(&["retry", "broken"]).await.succeeded();
    assert_eq!(out, "broken is tried again\n");
    let out = plane.ctl(&["remove", "org/new"]).await.succeeded();
    assert_eq!(out, "removed org/new\n");
    for gone in [&["remove", "org/new"][..], &replace] {
        plane.ctl(gone).await.failed(
            3,
            &[
                "error: there is no model org/new",
                "hint: `llmgw ctl models` lists those there are",
            ],
        );
    }
}

#[tokio::test]
async fn a_definition_may_come_from_standard_input() {
    let plane = Plane::sample().await;
    let (reader, mut writer) = io::pipe().unwrap();
    writer.write_all(DEFINITION.as_bytes()).unwrap();
    drop(writer);
    let mut command = plane.command(&["add", "-f", "-", "-o", "json"]);
    command.stdin(reader);
    let out = run(command).await.succeeded();
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(answer, json!({"added": "org/new"}));
}

#[tokio::test]
async fn a_wrong_definition_is_refused_with_its_place() {
    let plane = Plane::sample().await;
    let hint = "hint: `llmgw ctl add --help` shows a definition";
    let broken = plane.file("broken.yaml", "name: a\n  source: [\n");
    let ran = plane.ctl(&["add", "-f", &broken]).await;
    let place = format!("error: {broken}:2:9: ");
    assert!(ran.err.starts_with(&place), "{ran:?}");
    assert_eq!((ran.code, ran.err.lines().nth(1)), (Some(2), Some(hint)));

    let unknown = plane.file("unknown.yaml", &format!("{DEFINITION}    gpu_count: 2\n"));
    let error = format!(
        "error: {unknown}:6:5: unknown field `gpu_count`, expected one of name, engine, memory, context, parallel, gpus, cpu, disk, shards, fabric, pool, labels, prefer, kv_cache, pooling"
    );
    plane
        .ctl(&["add", "-f", &unknown])
        .await
        .failed(2, &[&error, hint]);

    // What only the control plane can know is refused by it, and is wrong input all the same.
    let wrong = plane.file("wrong.yaml", &DEFINITION.replace("org/new", "a b"));
    let ran = plane.ctl(&["add", "-f", &wrong]).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.err.starts_with("error: name: \"a b\" is not"),
        "{ran:?}"
    );

    plane
        .ctl(&["add", "-f", "/nonexistent/a.yaml"])
        .await
        .failed(
            2,
            &[
                "error: reading /nonexistent/a.yaml: No such file or directory (os error 2)",
                "hint: name a file with a definition, or - for standard input; `llmgw ctl add --help` shows one",
            ],
        );
    let large = plane.file("large.yaml", &"#".repeat((1 << 20) + 1));
    let error = format!("error: {large} is larger than 1 MiB");
    plane.ctl(&["add", "-f", &large]).await.failed(2, &[&error]);
}

#[tokio::test]
async fn the_exit_code_says_what_kind_of_failure_it_was() {
    let plane = Plane::sample().await;
    for (arguments, code) in [
        (&["explain", "nobody"][..], 3),
        (&["replicas", "--model", "nobody"], 3),
        (&["retry", "nobody"], 3),
        (&["remove", "smollm2-135m"], 1),
        (&["nodes", "--colour"], 2),
        (&["paint"], 2),
        (&["explain"], 2),
        (&["explain", "a b"], 2),
        (&["nodes", "-o", "xml"], 2),
        (&["nodes", "--admin-url", "ftp://x"], 2),
    ] {
        let ran = plane.ctl(arguments).await;
        assert_eq!(ran.code, Some(code), "{arguments:?}: {ran:?}");
        assert_eq!(ran.out, "", "{arguments:?}");
        assert!(ran.err.starts_with("error: "), "{arguments:?}: {ran:?}");
    }
}

#[tokio::test]
async fn nobody_there_says_how_to_start_one() {
    let plane = Plane::sample().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = format!("error: no control plane answers at {url}");
    plane
        .ctl(&["nodes", "--admin-url", &url])
        .await
        .failed(4, &[&error, "hint: start one with `llmgw up`"]);
}

#[tokio::test]
async fn the_token_is_found_where_it_was_put() {
    let plane = Plane::sample().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let data_dir = plane.data_dir().display().to_string();

    let mut by_flag = bare(&["nodes", "--data-dir", &data_dir]);
    by_flag.env("LLMGW_ADMIN_URL", &plane.url);
    run(by_flag).await.succeeded();

    let mut by_variable = bare(&["nodes"]);
    by_variable
        .env("LLMGW_ADMIN_URL", &plane.url)
        .env("LLMGW_ADMIN_TOKEN", TOKEN);
    run(by_variable).await.succeeded();

    let mut by_data_home = bare(&["nodes"]);
    by_data_home
        .env("LLMGW_ADMIN_URL", &plane.url)
        .env("HOME", elsewhere.path())
        .env("XDG_DATA_HOME", plane.home.path().join(".local/share"));
    run(by_data_home).await.succeeded();

    // An empty variable counts as none.
    let mut empty = plane.command(&["nodes"]);
    empty.env("LLMGW_ADMIN_TOKEN", "");
    run(empty).await.succeeded();
}

#[tokio::test]
async fn a_missing_token_is_named_by_its_path() {
    let plane = Plane::sample().await;
    let path = plane.data_dir().join("admin.token");
    fs::remove_file(&path).unwrap();
    let error = format!(
        "error: there is no admin token: {} does not exist",
        path.display()
    );
    let hint = "hint: start a control plane with `llmgw up`, or give --data-dir DIR or --admin-token TOKEN";
    plane.ctl(&["nodes"]).await.failed(1, &[&error, hint]);
    run(bare(&["nodes"])).await.failed(
        1,
        &[
            "error: there is no admin token, and no home directory to look for it in",
            "hint: give --admin-token TOKEN or --data-dir DIR",
        ],
    );
}

#[tokio::test]
async fn a_refused_token_says_where_it_came_from_and_is_not_shown() {
    let plane = Plane::sample().await;
    let path = plane.data_dir().join("admin.token");
    fs::write(&path, "hunter2").unwrap();
    let hint = format!(
        "hint: it came from {}; is that the data directory of the control plane at {}?",
        path.display(),
        plane.url
    );
    let error = "error: that is not the admin token";
    plane.ctl(&["nodes"]).await.failed(1, &[error, &hint]);
    for arguments in [
        &["nodes", "--admin-token", "hunter2"][..],
        &["nodes", "--admin-token", "hunter2\u{7f}"],
        &["--help"],
    ] {
        let mut command = plane.command(arguments);
        command.env("LLMGW_ADMIN_TOKEN", "hunter2");
        let Ran { out, err, .. } = run(command).await;
        assert!(
            !out.contains("hunter2") && !err.contains("hunter2"),
            "{out}{err}"
        );
    }
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_is_no_failure() {
    let plane = Plane::sample().await;
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let mut command = plane.command(&["nodes"]);
    command.stdout(writer);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    drop(command);
    let output = spawn_blocking(move || child.wait_with_output())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stderr, b"");
}

#[tokio::test]
async fn an_answer_that_cannot_be_written_is_a_failure() {
    let plane = Plane::sample().await;
    let mut command = plane.command(&["nodes"]);
    command.stdout(fs::File::create("/dev/full").unwrap());
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    drop(command);
    let output = spawn_blocking(move || child.wait_with_output())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("error: writing the answer: "), "{said}");
}

#[tokio::test]
async fn help_tells_the_exit_codes_and_shows_a_definition_that_is_one() {
    let help = run(bare(&["--help"])).await.succeeded();
    assert!(help.contains("Exit codes:\n  0  done\n"), "{help}");
    let help = run(bare(&["add", "--help"])).await.succeeded();
    let (_, shown) = help.split_once("A definition:\n").unwrap();
    let digits = "0".repeat(64);
    let definition = shown
        .lines()
        .map(|line| line.strip_prefix("  ").unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n")
        .replace("64 hexadecimal digits", &digits);
    let plane = Plane::sample().await;
    // The sample has a model of that name, and none that is called other.
    let definition = definition
        .replace("smollm2-135m", "shown")
        .replace("tiny", "shown-too")
        .replace("[other]", "[huge]");
    let file = plane.file("shown.yaml", &definition);
    assert_eq!(
        plane.ctl(&["add", "-f", &file]).await.succeeded(),
        "added shown\n"
    );
}

#[tokio::test]
async fn a_drain_is_forced_and_moves_that_are_frozen_go_on() {
    let plane = Plane::sample().await;
    let said = plane.ctl(&["drain", "alpha", "--force"]).await.succeeded();
    assert_eq!(
        said,
        "alpha is draining; what has no room elsewhere stops\n"
    );
    let audit = plane.ctl(&["audit"]).await.succeeded();
    assert!(audit.contains(" draining force"), "{audit}");
    let rolled = plane.ctl(&["roll", "broken", "--force"]).await.succeeded();
    assert_eq!(
        rolled,
        "1 stale replica of broken will be replaced, the old ones first where there is no room for both; `llmgw ctl describe model broken` says how far it is\n"
    );
    plane.ctl(&["thaw"]).await.failed(
        1,
        &[
            "error: nothing is frozen: no nodes fell silent at once",
            "hint: a node that is silent alone is lost after 15 s, and what it ran is placed elsewhere",
        ],
    );
    let silent = |hostname: &str| SilentNode {
        hostname: hostname.to_owned(),
        id: NodeId::generate(),
    };
    plane.memory.freeze(Frozen {
        seconds: 130,
        silent: vec![silent("beta"), silent("delta")],
        of: 2,
    });
    let status = plane.ctl(&["status"]).await.succeeded();
    let line = "2 of 2 nodes fell silent at once 2m 10s ago: nothing is moved until they are heard again; `llmgw ctl thaw` \
                goes on without them";
    assert!(status.contains(line), "{status}");
    let said = plane.ctl(&["thaw"]).await.succeeded();
    assert_eq!(said, "2 of 2 nodes are given up: beta, delta\n");
    let status = plane.ctl(&["status"]).await.succeeded();
    assert!(!status.contains("thaw"), "{status}");
}
