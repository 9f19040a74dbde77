//! What is said of engines that go wrong while they compute, told by a stand-in; and what is remembered of those
//! that compute.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't be set up has failed"
)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use llmgw_agent::{
    engine::{InstalledEngine, Launch},
    process::inherited,
    provision::{
        ComputeProblem, Deadlines, Phase, ProvisionConfig, ProvisionError, ProvisionTimes,
        Provisioner,
    },
};
use llmgw_core::{
    clock::ManualClock,
    error::Coded as _,
    gguf::{TensorType, check::CheckModel},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

/// A node with the stand-in as its engine.
struct Site {
    directory: TempDir,
    provisioner: Provisioner,
}

impl Site {
    fn new() -> Self {
        Self::with(Deadlines {
            load: PATIENCE,
            compute: PATIENCE,
        })
    }

    fn with(deadlines: Deadlines) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let plan = directory.path().join("plan.json");
        let mut environment = inherited(std::env::vars_os());
        environment.push(("PLAN".into(), plan.into()));
        let config = ProvisionConfig {
            directory: directory.path().join("engines"),
            marker_env: vec![("LLMGW_TASK".into(), "engine".into())],
            environment,
            python: None,
            path_override: BTreeMap::new(),
            clock: Arc::new(ManualClock::default()),
        };
        let times = ProvisionTimes {
            compute: deadlines,
            ..ProvisionTimes::default()
        };
        Self {
            provisioner: Provisioner::with_times(config, times),
            directory,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Says what the engine does next.
    fn plan(&self, mut plan: Value) {
        plan["answers"] = answers();
        plan["starts"] = json!(self.path("starts"));
        fs::write(self.path("plan.json"), plan.to_string()).unwrap();
    }

    fn installed() -> InstalledEngine {
        Self::installed_at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scene/computing.py"))
    }

    fn installed_at(program: &Path) -> InstalledEngine {
        InstalledEngine {
            name: "llamacpp".parse().unwrap(),
            version: "b1".to_owned(),
            variant: "cpu".to_owned(),
            launch: Launch::Program {
                program: program.to_owned(),
            },
        }
    }

    /// A file of weights of this type.
    fn weights(&self, kind: TensorType) -> PathBuf {
        let path = self.path(&format!("{kind}.gguf"));
        let mut file = Vec::new();
        CheckModel::of(kind).unwrap().write(&mut file).unwrap();
        fs::write(&path, file).unwrap();
        path
    }

    async fn prove(&self, kind: TensorType) -> Result<(), ProvisionError> {
        let weights = self.weights(kind);
        self.provisioner
            .prove(&Self::installed(), &weights, &[], &[])
            .await
    }

    /// What is said of an engine that does as `plan` says.
    async fn problem(&self, plan: Value) -> ComputeProblem {
        self.plan(plan);
        match self.prove(TensorType::Q4_0).await {
            Err(ProvisionError::Compute { problem, types, .. }) => {
                assert_eq!(types, CheckModel::mixed_types());
                assert!(problem.hint().is_some(), "{problem}");
                problem
            }
            other => panic!("{other:?}"),
        }
    }

    /// One entry for each start of the engine.
    fn starts(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("starts")).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// What the check models of these tests are to answer.
fn answers() -> Value {
    let kinds = [TensorType::Q4_0, TensorType::Q5_0, TensorType::Q5_1];
    let answers = kinds.map(|kind| CheckModel::with(kind).unwrap());
    let pair = |model: &CheckModel| json!([model.prompt(), model.answer()]);
    answers.iter().map(pair).collect()
}

#[tokio::test]
async fn a_signal_is_named_with_what_the_engine_was_doing() {
    let site = Site::new();
    for (signal, name) in [(4, "SIGILL"), (11, "SIGSEGV")] {
        for (phase, doing) in [(Phase::Loading, "loading"), (Phase::Computing, "computing")] {
            let problem = site
                .problem(json!({"signal": signal, "phase": doing, "say": ["AMX is not ready"]}))
                .await;
            let said = vec!["AMX is not ready".to_owned()];
            let expected = ComputeProblem::Signal {
                signal,
                phase,
                said,
            };
            assert_eq!(problem, expected);
            let words = problem.to_string();
            assert!(
                words.starts_with(&format!("{name} while {doing}: ")),
                "{words}"
            );
        }
    }
    assert_eq!(site.starts().len(), 4);
}

#[tokio::test]
async fn a_signal_that_a_shell_tells_as_a_status_is_one_too() {
    let site = Site::new();
    let problem = site.problem(json!({"exit": 132})).await;
    let expected = ComputeProblem::Signal {
        signal: 4,
        phase: Phase::Loading,
        said: Vec::new(),
    };
    assert_eq!(problem, expected);
}

#[tokio::test]
async fn an_end_is_told_with_the_last_lines() {
    let site = Site::new();
    let problem = site
        .problem(json!({"exit": 3, "say": ["reading", "no room"]}))
        .await;
    assert_eq!(
        problem.to_string(),
        "it exited with 3 while loading: no room"
    );
    assert_eq!(problem.said(), ["reading", "no room"]);
    let problem = site.problem(json!({"exit": 1, "phase": "computing"})).await;
    assert_eq!(
        problem.to_string(),
        "it exited with 1 while computing: it printed nothing"
    );
}

#[tokio::test]
async fn an_engine_that_never_loads_is_given_up() {
    let load = Duration::from_millis(300);
    let site = Site::with(Deadlines {
        load,
        compute: PATIENCE,
    });
    let problem = site.problem(json!({"hang": true})).await;
    let phase = Phase::Loading;
    assert_eq!(problem, ComputeProblem::Hang { phase, after: load });
}

#[tokio::test]
async fn an_engine_that_never_answers_is_given_up() {
    let compute = Duration::from_millis(300);
    let site = Site::with(Deadlines {
        load: PATIENCE,
        compute,
    });
    let problem = site
        .problem(json!({"hang": true, "phase": "computing"}))
        .await;
    let (phase, after) = (Phase::Computing, compute);
    assert_eq!(problem, ComputeProblem::Hang { phase, after });
}

#[tokio::test]
async fn wrong_tokens_are_told_with_the_right_ones() {
    let site = Site::new();
    let expected = format!("{:?}", CheckModel::mixed().answer());
    let problem = site.problem(json!({"tokens": [300, 12]})).await;
    let got = "[300, 12]".to_owned();
    assert_eq!(problem, ComputeProblem::WrongTokens { expected, got });
    let problem = site.problem(json!({"text": " w1 w2"})).await;
    let expected = format!("{:?}", CheckModel::text(&CheckModel::mixed().answer()));
    let got = r#"" w1 w2""#.to_owned();
    assert_eq!(problem, ComputeProblem::WrongTokens { expected, got });
}

#[tokio::test]
async fn an_engine_that_gives_no_numbers_is_judged_by_its_words() {
    let site = Site::new();
    site.plan(json!({"text": CheckModel::text(&CheckModel::mixed().answer())}));
    site.prove(TensorType::Q4_0).await.unwrap();
}

#[tokio::test]
async fn an_answer_without_tokens_is_none() {
    let site = Site::new();
    let problem = site.problem(json!({"text": ""})).await;
    assert_eq!(
        problem,
        ComputeProblem::Unanswered("its answer is empty".to_owned())
    );
    let problem = site.problem(json!({"status": 500})).await;
    let words = problem.to_string();
    assert!(words.starts_with("it gave no tokens: 500"), "{words}");
}

#[tokio::test]
async fn another_program_on_the_port_is_not_taken_for_the_engine() {
    let site = Site::new();
    let problem = site.problem(json!({"name": "another"})).await;
    assert!(matches!(problem, ComputeProblem::Untried(_)), "{problem}");
}

#[tokio::test]
async fn an_engine_that_can_not_be_started_is_named() {
    let site = Site::new();
    let installed = Site::installed_at(&site.path("llama-server"));
    let weights = site.weights(TensorType::Q4_0);
    let error = site.provisioner.prove(&installed, &weights, &[], &[]).await;
    let words = error.unwrap_err().to_string();
    assert!(words.contains("it could not be tried: starting"), "{words}");
}

#[tokio::test]
async fn a_type_is_proven_once_and_others_when_they_come() {
    let site = Site::new();
    site.plan(json!({}));
    for kind in [TensorType::Q4_0, TensorType::Q6_K, TensorType::F16] {
        site.prove(kind).await.unwrap();
        assert_eq!(site.starts().len(), 1, "one model has all three: {kind}");
    }
    for _ in 0..2 {
        site.prove(TensorType::Q5_1).await.unwrap();
        assert_eq!(site.starts().len(), 2);
    }
    // On GPUs nothing was shown yet, and a build that says nothing of them does not compute there.
    let weights = site.weights(TensorType::Q4_0);
    let installed = Site::installed();
    let visible = [("CUDA_VISIBLE_DEVICES".into(), "GPU-7".into())];
    let gpu = site.provisioner.prove(&installed, &weights, &[0], &visible);
    let Err(ProvisionError::Compute { problem, .. }) = gpu.await else {
        panic!("it was proven");
    };
    assert!(
        matches!(problem, ComputeProblem::SilentCpu { .. }),
        "{problem}"
    );
    let start = site.starts().pop().unwrap();
    assert_eq!(start["env"]["LLAMA_ARG_LOG_VERBOSITY"], "4");
    assert_eq!(start["env"]["CUDA_VISIBLE_DEVICES"], "GPU-7");
}

#[tokio::test]
async fn a_build_is_proven_again_when_its_files_have_changed() {
    let site = Site::new();
    site.plan(json!({}));
    let stand_in = Site::installed();
    let Launch::Program { program } = &stand_in.launch else {
        panic!("{stand_in:?}");
    };
    let engines = site.path("engines/llamacpp/b1");
    fs::create_dir_all(&engines).unwrap();
    let ours = engines.join("llama-server");
    fs::copy(program, &ours).unwrap();
    let library = engines.join("libggml-cpu.so");
    fs::write(&library, "one").unwrap();
    let installed = Site::installed_at(&ours);
    let weights = site.weights(TensorType::Q4_0);
    for (starts, change) in [(1, ""), (1, "one"), (2, "another"), (2, "another")] {
        if !change.is_empty() && fs::read_to_string(&library).unwrap() != change {
            fs::write(&library, change).unwrap();
        }
        let proven = site.provisioner.prove(&installed, &weights, &[], &[]).await;
        proven.unwrap();
        assert_eq!(site.starts().len(), starts, "{change}");
    }
    assert!(engines.join("proven.json").exists());
    fs::write(engines.join("proven.json"), "{").unwrap();
    let proven = site.provisioner.prove(&installed, &weights, &[], &[]).await;
    proven.unwrap();
    assert_eq!(site.starts().len(), 3);
}

#[tokio::test]
async fn types_without_a_check_and_files_that_are_no_weights_are_left_to_the_engine() {
    let site = Site::new();
    site.plan(json!({"exit": 1}));
    let iq2_xxs = llmgw_core::gguf::write::Draft::default()
        .tensor("output.weight", &[256, 2], TensorType(16))
        .tensor("output_norm.weight", &[256], TensorType::F32);
    let path = site.path("iq2.gguf");
    fs::write(&path, iq2_xxs.header().unwrap()).unwrap();
    let text = site.path("text.gguf");
    fs::write(&text, "hello").unwrap();
    for path in [path, text, site.path("none"), site.path("")] {
        let proven = site
            .provisioner
            .prove(&Site::installed(), &path, &[], &[])
            .await;
        proven.unwrap();
    }
    assert_eq!(site.starts().len(), 0);
}

#[tokio::test]
async fn the_engine_gets_the_environment_of_a_replica_and_limits() {
    let site = Site::new();
    site.plan(json!({}));
    site.prove(TensorType::Q4_0).await.unwrap();
    let start = site.starts().pop().unwrap();
    let env = start["env"].as_object().unwrap();
    for name in ["LLMGW_TASK", "LLMGW_CHECK", "PATH"] {
        assert!(env.contains_key(name), "{name}");
    }
    // What this test itself was started with.
    assert!(std::env::vars_os().any(|(name, _)| name == "CARGO_MANIFEST_DIR"));
    assert!(!env.contains_key("CARGO_MANIFEST_DIR"));
    let args = start["args"].to_string();
    assert!(
        args.contains("127.0.0.1") && args.contains("--slots"),
        "{args}"
    );
    assert_eq!(start["limits"]["CORE"], 0, "{}", start["limits"]);
    assert!(start["limits"]["CPU"].as_i64().unwrap() > 0);
    assert!(start["limits"]["DATA"].as_i64().unwrap() > 0);
    // Nothing of it stays but the record.
    let left: Vec<_> = fs::read_dir(site.path("engines/.check")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn the_whole_tree_is_ended_also_what_has_left_the_group() {
    let site = Site::new();
    let cases = [
        (TensorType::Q5_0, json!({})),
        (TensorType::Q5_1, json!({"signal": 4})),
    ];
    for (kind, mut plan) in cases {
        let child = site.path("child");
        fs::remove_file(&child).ok();
        plan["child"] = json!(child);
        site.plan(plan);
        site.prove(kind).await.ok();
        let pid = fs::read_to_string(&child).unwrap();
        let begin = Instant::now();
        while runs(&pid) {
            assert!(begin.elapsed() < PATIENCE, "{pid} still runs");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn who_asks_at_the_same_time_shares_the_work() {
    let site = Site::new();
    site.plan(json!({}));
    let (one, other) = tokio::join!(site.prove(TensorType::Q4_0), site.prove(TensorType::Q4_0));
    one.unwrap();
    other.unwrap();
    assert_eq!(site.starts().len(), 1);
}

fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Much longer than anything here takes, for machines that do other work.
const PATIENCE: Duration = Duration::from_secs(60);
