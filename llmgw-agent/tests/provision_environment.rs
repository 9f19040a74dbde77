//! Environments made by the real `uv` from tiny packages of the test's own: what goes well, and all that goes wrong.
//!
//! `uv` itself comes from the node's own package index, once for all tests of a run.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't be set up has failed"
)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use llmgw_agent::{
    engine::{InstalledEngine, Launch},
    facts::{Root, capture::Machine},
    provision::{
        EnvironmentProblem, LockError, ProvisionConfig, ProvisionDeps, ProvisionError,
        ProvisionTimes, Provisioner,
    },
    python::uv::UvError,
};
use llmgw_core::{
    clock::SystemClock,
    cluster::engine::{EngineSource, ProvisionState, WantedEngine},
    error::{Code, Coded as _},
};
use tempfile::TempDir;
use tokio::sync::Notify;

/// Makes the wheels of a small vLLM and a small torch, and prints their digests. What they do is written in the first
/// argument's file, so that a test can break them.
const WHEELS: &str = r#"
import base64, hashlib, sys, zipfile, pathlib
out = pathlib.Path(sys.argv[1])
def wheel(name, version, files):
    record = f"{name}-{version}.dist-info/RECORD"
    files[f"{name}-{version}.dist-info/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files[f"{name}-{version}.dist-info/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    rows = []
    path = out / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in files.items():
            data = text.encode()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{inside},sha256={digest},{len(data)}")
            archive.writestr(inside, data)
        archive.writestr(record, "\n".join(rows + [f"{record},,"]) + "\n")
    print(f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}")
torch = """
import types
__version__ = "1.0"
version = types.SimpleNamespace(cuda=None, hip=None)
cuda = types.SimpleNamespace(is_available=lambda: False, device_count=lambda: 0)
"""
cli = """
import os, signal, sys
how = open(os.environ["SMALL_VLLM"]).read().strip()
if how == "dies":
    os.kill(os.getpid(), signal.SIGILL)
if how == "fails":
    sys.exit("no device")
print("INFO starting")
print("0.0.2" if how == "other" else "0.0.1")
"""
wheel("torch", "1.0", {"torch/__init__.py": torch})
# Its compiled module is found by its name, and is a plain one for Python.
wheel("vllm", "0.0.1", {
    "vllm/__init__.py": "", "vllm/entrypoints/__init__.py": "", "vllm/entrypoints/cli/__init__.py": "",
    "vllm/entrypoints/cli/main.py": cli, "vllm/_C.no.so": "no object", "vllm/_C.py": "",
})
"#;

struct Site {
    directory: TempDir,
    lock: String,
    heard: Mutex<Vec<String>>,
}

impl Site {
    /// A machine whose index is a directory with two wheels, and whose operator has a lock of them.
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("wheels")).unwrap();
        let made = Command::new("python3")
            .args(["-c", WHEELS])
            .arg(directory.path().join("wheels"))
            .output()
            .unwrap();
        let lock = String::from_utf8(made.stdout).unwrap();
        assert!(made.status.success(), "{lock}");
        let site = Self {
            directory,
            lock,
            heard: Mutex::default(),
        };
        site.write("lock.txt", &site.lock);
        site.write("how", "well");
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn engines(&self) -> PathBuf {
        self.path("engines")
    }

    fn provisioner(&self) -> Provisioner {
        self.provisioner_of(Root::system())
    }

    /// One for a machine whose kernel's files are elsewhere.
    fn provisioner_of(&self, root: Root) -> Provisioner {
        let config = ProvisionConfig {
            directory: self.engines(),
            // As an operator's own configuration of pip would say it.
            marker_env: vec![
                ("SMALL_VLLM".into(), self.path("how").into()),
                ("PIP_NO_INDEX".into(), "1".into()),
                ("PIP_FIND_LINKS".into(), self.path("wheels").into()),
            ],
            environment: Vec::new(),
            python: None,
            path_override: BTreeMap::new(),
            clock: Arc::new(SystemClock::new()),
        };
        let times = ProvisionTimes {
            environment: Duration::from_secs(60),
            ..ProvisionTimes::default()
        };
        fs::create_dir_all(self.engines()).unwrap();
        share_uv(&self.engines());
        let deps = ProvisionDeps {
            root,
            ..ProvisionDeps::default()
        };
        Provisioner::build(config, times, deps)
    }

    async fn ensure(&self, source: EngineSource) -> Result<InstalledEngine, ProvisionError> {
        self.ensure_by(&self.provisioner(), source).await
    }

    async fn ensure_by(
        &self,
        provisioner: &Provisioner,
        source: EngineSource,
    ) -> Result<InstalledEngine, ProvisionError> {
        self.heard.lock().unwrap().clear();
        let wanted = WantedEngine::new("vllm".parse().unwrap(), source);
        let hears = |_: &str, state: ProvisionState| {
            self.heard.lock().unwrap().push(state.describe());
        };
        provisioner.ensure(&wanted, &hears).await
    }

    fn by_lock(&self) -> EngineSource {
        EngineSource::Lock(self.path("lock.txt").display().to_string())
    }

    /// The directory of the environment, when there is one.
    fn environment(&self) -> Option<PathBuf> {
        let entries = fs::read_dir(self.engines().join("vllm")).ok()?;
        let mut found: Vec<PathBuf> = entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                let name = path.file_name().unwrap().to_str().unwrap();
                name.starts_with("environment-0.0.1-")
            })
            .collect();
        assert!(found.len() < 2, "{found:?}");
        found.pop()
    }

    fn is_marked(&self) -> bool {
        self.environment()
            .is_some_and(|path| path.join("installed.json").exists())
    }

    fn has_heard(&self, word: &str) -> bool {
        self.heard
            .lock()
            .unwrap()
            .iter()
            .any(|one| one.contains(word))
    }
}

/// Gives a site the `uv` that the first test of a run has got from the node's index.
fn share_uv(engines: &Path) {
    let shared = Path::new(env!("CARGO_TARGET_TMPDIR")).join("provision_environment");
    fs::create_dir_all(&shared).unwrap();
    let lock = fs::File::create(shared.join("lock")).unwrap();
    // Tests are processes: one gets it, the others wait.
    lock.lock().unwrap();
    let name = format!("uv-{UV}");
    let environment = shared.join(&name).join("venv");
    if !environment.join("bin/uv").exists() {
        let run = |program: &Path, args: &[&str]| {
            let done = Command::new(program).args(args).status().unwrap();
            assert!(done.success(), "{args:?}: is the package index reached?");
        };
        let path = environment.to_str().unwrap();
        run(Path::new("python3"), &["-m", "venv", "--clear", path]);
        let pinned = format!("uv=={UV}");
        let python = environment.join("bin/python");
        run(&python, &["-m", "pip", "install", "--quiet", &pinned]);
    }
    let link = engines.join(&name);
    if fs::symlink_metadata(&link).is_err() {
        std::os::unix::fs::symlink(shared.join(&name), link).unwrap();
    }
}

/// The version that the code pins.
const UV: &str = "0.13.9";

fn problems(error: ProvisionError) -> Vec<EnvironmentProblem> {
    match error {
        ProvisionError::Environment { problems, .. } => problems,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_has_not_changed_is_looked_at_and_not_run_again_and_what_has_is_run() {
    let site = Site::new();
    let provisioner = site.provisioner();
    let ensure = || site.ensure_by(&provisioner, site.by_lock());
    ensure().await.unwrap();
    // Were it run, it would be found to die.
    site.write("how", "dies");
    ensure().await.unwrap();

    let libraries = site.environment().unwrap().join("venv/lib");
    let python = fs::read_dir(&libraries).unwrap().next().unwrap().unwrap();
    let file = python.path().join("site-packages/vllm/__init__.py");
    fs::write(&file, "# an upgrade").unwrap();
    ensure().await.unwrap_err();
    // What was wrong is run until it is right.
    ensure().await.unwrap_err();
    site.write("how", "well");
    ensure().await.unwrap();

    // An agent that starts anew runs it once.
    site.write("how", "dies");
    site.ensure(site.by_lock()).await.unwrap_err();
}

#[tokio::test]
async fn an_environment_is_made_from_an_operator_s_lock_and_kept() {
    let site = Site::new();
    let installed = site.ensure(site.by_lock()).await.unwrap();
    assert_eq!(
        (installed.version.as_str(), installed.variant.as_str()),
        ("0.0.1", "environment")
    );
    let Launch::Environment { python } = &installed.launch else {
        panic!("{installed:?}");
    };
    assert_eq!(*python, site.environment().unwrap().join("venv/bin/python"));
    for words in [
        "making an environment of Python",
        "downloading vllm 0.0.1 (2 packages)",
        "checking vllm: asking for --version",
    ] {
        assert!(site.has_heard(words), "{words}: {:?}", site.heard);
    }
    assert!(site.is_marked());
    // What was downloaded is the environment now, and nothing beside it.
    assert!(!site.engines().join("vllm/.uv-cache").exists());

    let again = site.ensure(site.by_lock()).await.unwrap();
    assert_eq!(again, installed);
    assert!(!site.has_heard("downloading"), "{:?}", site.heard);
}

#[tokio::test]
async fn uv_itself_comes_from_the_index_of_the_node() {
    let site = Site::new();
    let engines = site.engines();
    let provisioner = Provisioner::new(ProvisionConfig {
        directory: engines.clone(),
        marker_env: Vec::new(),
        environment: Vec::new(),
        python: None,
        path_override: BTreeMap::new(),
        clock: Arc::new(SystemClock::new()),
    });
    // The operator's wheels are not in the index: all goes well until they are looked for.
    let lock = site.lock.replace("torch==1.0", "torch==0.0.0.1");
    site.write("lock.txt", &lock);
    let error = site
        .ensure_by(&provisioner, site.by_lock())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, ProvisionError::Uv(UvError::Missing { package }) if package.starts_with("torch")),
        "{error:?}"
    );
    let own = site.has_heard("by this machine's uv");
    assert!(own || engines.join(format!("uv-{UV}/venv/bin/uv")).exists());
}

#[tokio::test]
async fn an_environment_that_somebody_else_has_made_is_checked_and_used() {
    let site = Site::new();
    site.ensure(site.by_lock()).await.unwrap();
    let theirs = site.environment().unwrap().join("venv");
    let other = Site::new();
    let path = EngineSource::Path(theirs.display().to_string());
    let installed = other.ensure(path).await.unwrap();
    assert_eq!(installed.version, "0.0.1");
    let missing = EngineSource::Path("/nonexistent/venv".to_owned());
    let error = other.ensure(missing).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the environment of vllm: there is no Python environment at /nonexistent/venv"
    );
}

#[tokio::test]
async fn other_bytes_than_pinned_are_refused_and_nothing_is_installed() {
    let site = Site::new();
    let wheel = site.path("wheels/torch-1.0-py3-none-any.whl");
    let whole = fs::read(&wheel).unwrap();
    // Another wheel under the same name: it can be unpacked, and is not the one that is pinned.
    let add =
        "import sys, zipfile; zipfile.ZipFile(sys.argv[1], 'a').writestr('torch/more.py', '')";
    let added = Command::new("python3")
        .args(["-c", add])
        .arg(&wheel)
        .status()
        .unwrap();
    assert!(added.success());
    let error = site.ensure(site.by_lock()).await.unwrap_err();
    assert!(
        matches!(&error, ProvisionError::Uv(UvError::Hash { package, .. }) if package == "torch 1.0"),
        "{error:?}"
    );
    assert_eq!(error.code(), Code::VerificationFailed);
    assert!(!site.is_marked());

    // One byte of what it holds.
    let mut damaged = whole.clone();
    let at = whole
        .windows(12)
        .position(|part| part == b"import types")
        .unwrap();
    damaged[at] ^= 1;
    fs::write(&wheel, damaged).unwrap();
    let error = site.ensure(site.by_lock()).await.unwrap_err();
    assert!(
        matches!(&error, ProvisionError::Uv(UvError::Damaged { package, .. }) if package == "torch 1.0"),
        "{error:?}"
    );
    assert_eq!(error.code(), Code::VerificationFailed);
    assert!(!site.is_marked());

    fs::write(&wheel, whole).unwrap();
    site.ensure(site.by_lock()).await.unwrap();
}

#[tokio::test]
async fn a_package_that_the_index_lacks_is_named() {
    let site = Site::new();
    fs::remove_file(site.path("wheels/torch-1.0-py3-none-any.whl")).unwrap();
    let error = site.ensure(site.by_lock()).await.unwrap_err();
    assert!(
        matches!(&error, ProvisionError::Uv(UvError::Missing { package }) if package.starts_with("torch")),
        "{error:?}"
    );
    assert!(error.hint().unwrap().contains("index"));
}

#[tokio::test]
async fn an_interrupted_installation_begins_again_and_finishes() {
    let site = Site::new();
    let provisioner = site.provisioner();
    for moment in ["making an environment", "downloading", "checking"] {
        let reached = Notify::new();
        let wanted = WantedEngine::new("vllm".parse().unwrap(), site.by_lock());
        let hears = |_: &str, state: ProvisionState| {
            if state.describe().contains(moment) {
                reached.notify_one();
            }
        };
        // The future is dropped in the middle of it, as a kill would end it.
        tokio::select! {
            biased;
            () = reached.notified() => {}
            ended = provisioner.ensure(&wanted, &hears) => panic!("{moment} was not reached: {ended:?}"),
        }
        assert!(!site.is_marked(), "{moment}");
    }
    site.ensure_by(&provisioner, site.by_lock()).await.unwrap();
    assert!(site.is_marked());
}

#[tokio::test]
async fn what_does_not_work_is_not_marked_and_says_where_it_failed() {
    let site = Site::new();
    for (how, says) in [
        (
            "fails",
            "asking for --version: RuntimeError: status 1: no device",
        ),
        ("dies", "asking for --version: RuntimeError: status -4"),
        ("other", "it says that it is 0.0.2, and 0.0.1 is installed"),
    ] {
        site.write("how", how);
        let problems = problems(site.ensure(site.by_lock()).await.unwrap_err());
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].to_string().starts_with(says), "{problems:?}");
        assert!(!site.is_marked(), "{how}");
    }
}

#[tokio::test]
async fn the_environment_of_another_lock_takes_the_place_of_the_old_one() {
    let site = Site::new();
    site.ensure(site.by_lock()).await.unwrap();
    let old = site.environment().unwrap();
    site.write("lock.txt", &format!("# another\n{}", site.lock));
    site.ensure(site.by_lock()).await.unwrap();
    let new = site.environment().unwrap();
    assert!(new != old && !old.exists() && site.is_marked());
}

#[tokio::test]
async fn what_was_changed_afterwards_is_noticed_and_made_again() {
    let site = Site::new();
    site.ensure(site.by_lock()).await.unwrap();
    let packages = fs::read_dir(site.environment().unwrap().join("venv/lib"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path()
        .join("site-packages");
    fs::remove_dir_all(packages.join("torch-1.0.dist-info")).unwrap();
    site.ensure(site.by_lock()).await.unwrap();
    assert!(site.has_heard("making it again: torch is not installed, and 1.0 is pinned"));
    assert!(packages.join("torch-1.0.dist-info").exists());
}

#[tokio::test]
async fn what_can_be_told_before_a_download_is_told_before_it() {
    let site = Site::new();
    let digest = "a".repeat(64);
    let with = |head: &str| format!("{head}\n{}", site.lock);

    site.write(
        "lock.txt",
        &with(&format!("nvidia-cublas==1 --hash=sha256:{digest}")),
    );
    let root = Root::captured(site.path("no-machine"), Machine::default());
    let provisioner = site.provisioner_of(root);
    let error = site
        .ensure_by(&provisioner, site.by_lock())
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the environment of vllm: this machine has no NVIDIA driver: vllm's build needs one"
    );
    assert!(error.hint().unwrap().contains("driver"));

    site.write("lock.txt", &with("# download: 1000000000000000"));
    let problems = problems(site.ensure(site.by_lock()).await.unwrap_err());
    assert!(
        matches!(problems[..], [EnvironmentProblem::Room { .. }]),
        "{problems:?}"
    );

    site.write("lock.txt", &with("# glibc: 9.99"));
    let error = site.ensure(site.by_lock()).await.unwrap_err();
    assert!(
        matches!(
            error,
            ProvisionError::Lock(LockError::Glibc { need: (9, 99), .. })
        ),
        "{error:?}"
    );

    site.write("lock.txt", &with("# python: 3.2"));
    let error = site.ensure(site.by_lock()).await.unwrap_err();
    assert!(
        error.to_string().starts_with("Python 3.2 is needed, and "),
        "{error}"
    );

    site.write("lock.txt", &with("--index-url x"));
    let error = site.ensure(site.by_lock()).await.unwrap_err();
    assert!(error.to_string().contains("is an option"), "{error}");
    assert!(site.environment().is_none(), "{:?}", site.environment());
}
