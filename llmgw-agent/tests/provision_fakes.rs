//! Installations that go wrong, told by a `python3` of the test's own; and programs at a path.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't be set up has failed"
)]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use llmgw_agent::{
    engine::{InstalledEngine, Launch},
    process::inherited,
    provision::{
        ComputeProblem, ProgramProblem, ProvisionConfig, ProvisionError, ProvisionTimes,
        Provisioner,
    },
    python::{PythonError, pip::PipError},
};
use llmgw_core::{
    clock::ManualClock,
    cluster::{
        engine::{EngineSource, Provision, ProvisionState, WantedEngine},
        node::Warning,
    },
    error::{Code, Coded as _},
    gguf::check::CheckModel,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;

/// Does what the real one does, as far as an installation sees it. It is told how to fail by files beside it, and
/// it writes down each time that `pip` is run.
const PYTHON: &str = r#"#!/bin/sh
home=HOME
case "$2 $3 $4" in
    "-c "*)
        echo '{"executable": "HOME/python3", "version": [3, 11, 7], "environments": ENVIRONMENTS, "pip": true}' ;;
    "-m venv "*)
        mkdir -p "$4/bin" && cp "$home/python3" "$4/bin/python" ;;
    "-u -m pip")
        echo run >> "$home/pip-runs"
        if [ -e "$home/hang" ]; then
            sleep 1000 & echo $$ $! > "$home/numbers"; wait
        fi
        if [ -e "$home/hash" ]; then
            echo 'ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.' >&2
            echo '        Expected sha256 aaaa' >&2
            echo '             Got        bbbb' >&2
            exit 1
        fi
        echo '  Downloading xllamacpp-2026.10.11549-cp310-abi3-any.whl (33.8 MB)'
        echo 'Installing collected packages: xllamacpp' ;;
    *" --model "*)
        exec python3 SCENE/computing.py "$@" ;;
    *" --version "*)
        [ -e "$home/broken" ] && { echo 'llmgw-launcher: the engine cannot be imported' >&2; exit 1; }
        echo 'xllamacpp 2026.10.11549' ;;
    *)
        echo "unexpected: $*" >&2; exit 9 ;;
esac
"#;

struct Site {
    directory: TempDir,
    heard: Mutex<Vec<(String, ProvisionState)>>,
}

impl Site {
    fn new() -> Self {
        Self::with_python(&PYTHON.replace("ENVIRONMENTS", "true"))
    }

    fn with_python(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let scene = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scene");
        let text = text
            .replace("HOME", directory.path().to_str().unwrap())
            .replace("SCENE", scene.to_str().unwrap());
        script(&directory.path().join("python3"), &text);
        let site = Self {
            directory,
            heard: Mutex::default(),
        };
        site.plan(json!({}));
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Says what the engine does when it is asked to compute.
    fn plan(&self, mut plan: Value) {
        let model = CheckModel::mixed();
        plan["answers"] = json!([[model.prompt(), model.answer()]]);
        std::fs::write(self.path("plan.json"), plan.to_string()).unwrap();
    }

    fn touch(&self, name: &str) {
        std::fs::write(self.path(name), "").unwrap();
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.path(name)).unwrap();
    }

    fn installation(&self) -> PathBuf {
        self.path("engines/llamacpp/wheel-2026.10.11549")
    }

    fn is_marked(&self) -> bool {
        self.installation().join("installed.json").exists()
    }

    fn pip_runs(&self) -> usize {
        std::fs::read_to_string(self.path("pip-runs"))
            .unwrap_or_default()
            .lines()
            .count()
    }

    fn provisioner(&self) -> Provisioner {
        let mut environment = inherited(std::env::vars_os());
        environment.push(("PLAN".into(), self.path("plan.json").into()));
        let config = ProvisionConfig {
            directory: self.path("engines"),
            marker_env: vec![("LLMGW_TEST".into(), "1".into())],
            environment,
            python: Some(self.path("python3")),
            path_override: BTreeMap::new(),
            clock: Arc::new(ManualClock::default()),
        };
        let times = ProvisionTimes {
            version: Duration::from_secs(3),
            silence: Duration::from_secs(3),
            ..ProvisionTimes::default()
        };
        Provisioner::with_times(config, times)
    }

    async fn ensure(&self, provisioner: &Provisioner) -> Result<InstalledEngine, ProvisionError> {
        self.heard.lock().unwrap().clear();
        let hears = |line: &str, state: ProvisionState| {
            self.heard.lock().unwrap().push((line.to_owned(), state));
        };
        provisioner
            .ensure(&wanted(EngineSource::Auto), &hears)
            .await
    }

    fn words(&self) -> Vec<String> {
        let heard = self.heard.lock().unwrap();
        heard.iter().map(|(_, state)| state.describe()).collect()
    }
}

fn wanted(source: EngineSource) -> WantedEngine {
    WantedEngine::new("llamacpp".parse().unwrap(), source)
}

/// Written by a child: a descriptor of ours, inherited by another test's child, would keep the program busy.
fn script(path: &Path, text: &str) {
    let written = Command::new("/bin/sh")
        .args(["-c", r#"printf %s "$1" > "$2" && chmod +x "$2""#, "sh"])
        .arg(text)
        .arg(path)
        .status()
        .unwrap();
    assert!(written.success());
}

/// Waits until none of the processes whose numbers stand in `path` runs.
async fn all_gone(path: &Path) {
    let numbers = std::fs::read_to_string(path).unwrap();
    let runs = |number: &str| {
        std::fs::read_to_string(format!("/proc/{number}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
    };
    let gone = async {
        while numbers.split_whitespace().any(runs) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone)
        .await
        .unwrap();
}

#[tokio::test]
async fn an_installation_says_its_choice_and_each_step() {
    let site = Site::new();
    let installed = site.ensure(&site.provisioner()).await.unwrap();
    assert_eq!(
        (installed.version.as_str(), installed.variant.as_str()),
        ("2026.10.11549", "wheel")
    );
    let Launch::Wheel { python, launcher } = installed.launch else {
        panic!("{:?}", installed.launch);
    };
    assert_eq!(python, site.installation().join("venv/bin/python"));
    assert_eq!(launcher, site.installation().join("launcher.py"));
    assert!(site.is_marked());
    assert!(!site.installation().join("tmp").exists());
    let heard = site.heard.lock().unwrap().clone();
    for (line, _) in &heard {
        assert_eq!(
            line,
            "llamacpp by wheel (xllamacpp 2026.10.11549): no path is configured"
        );
    }
    let words = site.words();
    assert_eq!(words.last().unwrap(), "installed: 2026.10.11549 (wheel)");
    assert!(
        words.contains(&"installing: checking xllamacpp 2026.10.11549".to_owned()),
        "{words:?}"
    );
}

#[tokio::test]
async fn a_second_call_checks_and_does_not_install() {
    let site = Site::new();
    let first = site.ensure(&site.provisioner()).await.unwrap();
    let second = site.ensure(&site.provisioner()).await.unwrap();
    assert_eq!(first, second);
    assert_eq!(site.pip_runs(), 1);
}

#[tokio::test]
async fn who_asks_at_the_same_time_shares_the_installation() {
    let site = Site::new();
    let provisioner = site.provisioner();
    let (one, two) = tokio::join!(site.ensure(&provisioner), site.ensure(&provisioner));
    assert_eq!(one.unwrap(), two.unwrap());
    assert_eq!(site.pip_runs(), 1);
}

#[tokio::test]
async fn a_python_without_venv_is_told_before_anything_is_made() {
    let site = Site::with_python(&PYTHON.replace("ENVIRONMENTS", "false"));
    let error = site.ensure(&site.provisioner()).await.unwrap_err();
    assert!(
        matches!(&error, ProvisionError::Python(PythonError::NoVenv { .. })),
        "{error:?}"
    );
    assert!(error.to_string().contains("Python 3.11.7"), "{error}");
    assert!(error.hint().unwrap().contains("python3-venv"));
    assert!(!site.installation().exists());
}

#[tokio::test]
async fn other_bytes_than_pinned_are_not_installed() {
    let site = Site::new();
    site.touch("hash");
    let error = site.ensure(&site.provisioner()).await.unwrap_err();
    assert!(
        matches!(&error, ProvisionError::Pip(PipError::Hash { package, .. })
            if package == "xllamacpp 2026.10.11549"),
        "{error:?}"
    );
    assert_eq!(error.code(), Code::VerificationFailed);
    assert!(!site.is_marked());
    site.remove("hash");
    site.ensure(&site.provisioner()).await.unwrap();
}

#[tokio::test]
async fn a_pip_that_hangs_is_ended_with_its_children() {
    let site = Site::new();
    site.touch("hang");
    let error = site.ensure(&site.provisioner()).await.unwrap_err();
    assert!(
        matches!(error, ProvisionError::Pip(PipError::Helper { .. })),
        "{error:?}"
    );
    all_gone(&site.path("numbers")).await;
}

#[tokio::test]
async fn an_installation_that_was_given_up_half_way_is_done_again() {
    let site = Site::new();
    site.touch("hang");
    let provisioner = site.provisioner();
    let runs = async {
        while !std::fs::read_to_string(site.path("numbers")).is_ok_and(|text| text.ends_with('\n'))
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        done = site.ensure(&provisioner) => panic!("{done:?}"),
        () = runs => {}
    }
    all_gone(&site.path("numbers")).await;
    assert!(site.installation().exists() && !site.is_marked());
    let stale = site.installation().join("venv/stale");
    std::fs::write(&stale, "").unwrap();
    site.remove("hang");
    site.ensure(&provisioner).await.unwrap();
    assert!(site.is_marked() && !stale.exists());
    let left: Vec<_> = std::fs::read_dir(site.path("engines/llamacpp"))
        .unwrap()
        .collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[tokio::test]
async fn work_goes_on_for_who_still_waits() {
    let site = Site::new();
    let provisioner = site.provisioner();
    let begun = Notify::new();
    let hears = |_: &str, _: ProvisionState| begun.notify_one();
    let wanted = wanted(EngineSource::Auto);
    let first = async {
        tokio::select! {
            done = provisioner.ensure(&wanted, &hears) => drop(done),
            () = begun.notified() => {}
        }
    };
    let ((), second) = tokio::join!(first, site.ensure(&provisioner));
    second.unwrap();
    assert_eq!(site.pip_runs(), 1);
}

#[tokio::test]
async fn a_package_that_does_not_work_is_not_marked() {
    let site = Site::new();
    site.touch("broken");
    let error = site.ensure(&site.provisioner()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "xllamacpp 2026.10.11549 was installed and does not work: exit status: 1: \
         llmgw-launcher: the engine cannot be imported"
    );
    assert!(!site.is_marked());
}

#[tokio::test]
async fn a_package_that_does_not_compute_is_not_marked() {
    let site = Site::new();
    site.plan(json!({"signal": 4, "phase": "loading"}));
    let error = site.ensure(&site.provisioner()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "llamacpp 2026.10.11549 (wheel) does not compute with weights of F16, Q4_0, Q8_0, Q4_K, Q6_K: \
         SIGILL while loading: this build uses instructions that this CPU lacks"
    );
    assert!(!site.is_marked());
    assert!(matches!(
        error,
        ProvisionError::Compute {
            problem: ComputeProblem::Signal { signal: 4, .. },
            ..
        }
    ));
    site.plan(json!({}));
    site.ensure(&site.provisioner()).await.unwrap();
    assert!(site.is_marked());
    // What has computed once is not asked again, until its files change.
    site.plan(json!({"exit": 1}));
    site.ensure(&site.provisioner()).await.unwrap();
    assert_eq!(site.pip_runs(), 2);
}

#[tokio::test]
async fn what_has_broken_since_is_installed_again_and_says_why() {
    let site = Site::new();
    site.ensure(&site.provisioner()).await.unwrap();
    site.touch("broken");
    site.ensure(&site.provisioner()).await.unwrap_err();
    assert_eq!(site.pip_runs(), 2);
    site.remove("broken");
    std::fs::remove_file(site.installation().join("venv/bin/python")).ok();
    site.ensure(&site.provisioner()).await.unwrap();
    assert_eq!(site.pip_runs(), 3);
    site.ensure(&site.provisioner()).await.unwrap();
    assert_eq!(site.pip_runs(), 3);
    std::fs::remove_file(site.installation().join("venv/bin/python")).unwrap();
    site.ensure(&site.provisioner()).await.unwrap();
    assert_eq!(site.pip_runs(), 4);
}

#[tokio::test]
async fn a_directory_without_a_marker_is_done_again() {
    let site = Site::new();
    site.ensure(&site.provisioner()).await.unwrap();
    let marker = site.installation().join("installed.json");
    for text in [
        None,
        Some("{"),
        Some(r#"{"package":"xllamacpp","version":"1","installed_at":0}"#),
    ] {
        match text {
            None => std::fs::remove_file(&marker).unwrap(),
            Some(text) => std::fs::write(&marker, text).unwrap(),
        }
        let before = site.pip_runs();
        site.ensure(&site.provisioner()).await.unwrap();
        assert_eq!(site.pip_runs(), before + 1, "{text:?}");
    }
}

#[tokio::test]
async fn a_launcher_that_is_not_ours_is_replaced() {
    let site = Site::new();
    site.ensure(&site.provisioner()).await.unwrap();
    let launcher = site.installation().join("launcher.py");
    let ours = std::fs::read(&launcher).unwrap();
    std::fs::write(&launcher, "import antigravity").unwrap();
    site.ensure(&site.provisioner()).await.unwrap();
    assert_eq!(std::fs::read(&launcher).unwrap(), ours);
    assert_eq!(site.pip_runs(), 1);
}

#[tokio::test]
async fn a_program_at_a_path_that_has_not_computed_is_told_as_such() {
    let site = Site::new();
    let path = site.path("llama-server");
    script(&path, "#!/bin/sh\necho 'version: 10991 (abc1234)'\n");
    let source = EngineSource::Path(path.display().to_string());
    let told = Mutex::new(Vec::new());
    let hears = |provision: Provision| *told.lock().unwrap() = provision.warnings;
    site.provisioner()
        .converge(&wanted(source), &hears)
        .await
        .unwrap();
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].code, Warning::NOT_COMPUTED);
    assert!(told[0].text.contains("llama-server"), "{}", told[0].text);
}

async fn program(text: &str) -> Result<InstalledEngine, ProgramProblem> {
    let site = Site::new();
    let path = site.path("llama-server");
    script(&path, text);
    let source = EngineSource::Path(path.display().to_string());
    match site.provisioner().ensure(&wanted(source), &|_, _| ()).await {
        Ok(installed) => Ok(installed),
        Err(ProvisionError::Program {
            path: named,
            problem,
        }) => {
            assert_eq!(named, path);
            Err(problem)
        }
        Err(error) => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn a_program_at_a_path_is_asked_for_its_version() {
    let said = "#!/bin/sh\necho 'version: 10991 (abc1234)' >&2\necho 'built with cc' >&2\n";
    let installed = program(said).await.unwrap();
    assert_eq!(
        (installed.version.as_str(), installed.variant.as_str()),
        ("b10991", "path")
    );
    assert!(matches!(installed.launch, Launch::Program { .. }));
}

/// What was downloaded may be anything: it gets what engines get, and leaves nothing behind.
#[tokio::test]
async fn a_program_sees_nothing_of_the_agents_environment_and_leaves_nothing() {
    // Cargo's variables stand for an operator's secrets.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let home = tempfile::tempdir().unwrap();
    let (seen, pid) = (home.path().join("seen"), home.path().join("pid"));
    let text = format!(
        "#!/bin/sh\n/usr/bin/env > '{}'\n/usr/bin/setsid /bin/sh -c 'echo $$ > \"{}\"; exec /bin/sleep 600' &\n\
         while [ ! -s '{}' ]; do /bin/sleep 0.01; done\necho 'version: 10991 (abc1234)'\n",
        seen.display(),
        pid.display(),
        pid.display(),
    );
    program(&text).await.unwrap();
    let seen = std::fs::read_to_string(seen).unwrap();
    assert!(!seen.contains("CARGO"), "{seen}");
    let pid = std::fs::read_to_string(pid).unwrap();
    let left = std::fs::read(format!("/proc/{}/cmdline", pid.trim())).unwrap_or_default();
    assert!(left.is_empty(), "{}", String::from_utf8_lossy(&left));
}

#[tokio::test]
async fn a_program_that_is_not_the_engine_is_refused_with_what_it_did() {
    let problem = program("#!/bin/sh\necho hello\n").await.unwrap_err();
    let said = "hello".to_owned();
    assert_eq!(problem, ProgramProblem::NoVersion { said });
    let lacks =
        "#!/bin/sh\necho 'error while loading shared libraries: libgomp.so.1' >&2; exit 127";
    let problem = program(lacks).await.unwrap_err();
    assert!(problem.to_string().ends_with("libgomp.so.1"), "{problem}");
    let problem = program("#!/bin/sh\nkill -ILL $$").await.unwrap_err();
    assert!(problem.to_string().contains("SIGILL"), "{problem}");
    let problem = program("#!/bin/sh\nexec sleep 1000").await.unwrap_err();
    assert_eq!(problem, ProgramProblem::Slow(Duration::from_secs(3)));
    let problem = program("#!/nonexistent/sh\n").await.unwrap_err();
    assert!(
        matches!(problem, ProgramProblem::Unrunnable(_)),
        "{problem}"
    );
}

#[tokio::test]
async fn a_path_without_a_program_is_refused() {
    let site = Site::new();
    site.touch("plain");
    let plain = site.path("plain").display().to_string();
    for (path, expected) in [
        ("/nonexistent/llama-server", ProgramProblem::Missing),
        ("llama-server", ProgramProblem::Relative),
        (plain.as_str(), ProgramProblem::NotExecutable),
        ("/", ProgramProblem::NotExecutable),
    ] {
        let source = EngineSource::Path(path.to_owned());
        let provisioner = site.provisioner();
        let error = provisioner.ensure(&wanted(source), &|_, _| ()).await;
        let Err(ProvisionError::Program { problem, .. }) = error else {
            panic!("{error:?}");
        };
        assert_eq!(problem, expected, "{path}");
    }
}
