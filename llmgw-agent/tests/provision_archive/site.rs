//! A node of the test's own: its directory, its system's files, what it is told and what it hears.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use llmgw_agent::{
    engine::InstalledEngine,
    facts::{Root, capture::Machine},
    provision::{
        ComputeProblem, Family, PackageManager, Phase, Prover, ProvisionConfig, ProvisionDeps,
        ProvisionError, ProvisionTimes, Provisioner, SystemPackages,
    },
};
use llmgw_core::{
    clock::ManualClock,
    cluster::engine::{EngineSource, Provision, WantedEngine},
    units::Bytes,
};
use tempfile::TempDir;

use crate::github::{Github, NOW};

pub(crate) struct Site {
    directory: PathBuf,
    /// Removed with it; absent for a directory of somebody else's.
    own: Option<TempDir>,
    pub(crate) heard: Mutex<Vec<Provision>>,
    pub(crate) prover: Arc<ScriptedProver>,
    pub(crate) packages: SystemPackages,
    pub(crate) reserve: Bytes,
}

/// Says of each build in turn what it is told to; that it computes when nothing is left to say.
#[derive(Debug, Default)]
pub(crate) struct ScriptedProver {
    pub(crate) answers: Mutex<Vec<Result<(), ComputeProblem>>>,
    pub(crate) asked: Mutex<Vec<(InstalledEngine, bool)>>,
}

#[async_trait]
impl Prover for ScriptedProver {
    async fn prove(&self, installed: &InstalledEngine, on_gpu: bool) -> Result<(), ComputeProblem> {
        self.asked.lock().unwrap().push((installed.clone(), on_gpu));
        let mut answers = self.answers.lock().unwrap();
        if answers.is_empty() {
            Ok(())
        } else {
            answers.remove(0)
        }
    }
}

pub(crate) fn sigill() -> ComputeProblem {
    ComputeProblem::Signal {
        signal: 4,
        phase: Phase::Loading,
        said: Vec::new(),
    }
}

impl Site {
    pub(crate) fn new() -> Self {
        let own = tempfile::tempdir().unwrap();
        let mut site = Self::at(own.path());
        site.own = Some(own);
        site
    }

    /// The node whose directory is this.
    pub(crate) fn at(directory: &Path) -> Self {
        let site = Self {
            directory: directory.to_owned(),
            own: None,
            heard: Mutex::default(),
            prover: Arc::default(),
            packages: SystemPackages::Leave {
                reason: "the agent does not run as root".to_owned(),
            },
            reserve: Bytes::ZERO,
        };
        // The system's files: a loader and a C library, by their names.
        for file in [
            "lib64/ld-linux-x86-64.so.2",
            "lib/ld-linux-aarch64.so.1",
            "usr/lib64/libc.so.6",
        ] {
            site.system(file);
        }
        // No Python of the machine's own: the wheel is out of reach unless a test puts one there.
        script(&site.path("python3"), "#!/bin/sh\nexit 1\n");
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Makes a file of the system.
    pub(crate) fn system(&self, file: &str) {
        let path = self.path("root").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }

    pub(crate) fn remove_from_system(&self, file: &str) {
        std::fs::remove_file(self.path("root").join(file)).unwrap();
    }

    /// A package manager that has `package` and makes `file` of it; it writes down what it is asked.
    pub(crate) fn with_packages(mut self, package: &str, file: &str) -> Self {
        let program = self.path("apt-get");
        let text = format!(
            "#!/bin/sh\necho \"$*\" >> {asked}\ncase \"$*\" in\n  *\"install -y {package}\") \
             mkdir -p {directory} && : > {file};;\n  *update*) ;;\n  *) echo 'E: Unable to locate package' >&2; exit 100;;\nesac\n",
            asked = self.path("apt-asked").display(),
            directory = self.path("root").join(file).parent().unwrap().display(),
            file = self.path("root").join(file).display(),
        );
        script(&program, &text);
        self.packages = SystemPackages::Install(PackageManager {
            family: Family::Debian,
            program,
        });
        self
    }

    pub(crate) fn asked_of_packages(&self) -> String {
        std::fs::read_to_string(self.path("apt-asked")).unwrap_or_default()
    }

    pub(crate) fn provisioner(&self, github: Option<&Github>) -> Provisioner {
        let clock = ManualClock::default();
        clock.advance(Duration::from_millis(u64::try_from(NOW).unwrap()));
        let config = ProvisionConfig {
            directory: self.path("engines"),
            marker_env: vec![("LLMGW_TEST".into(), "1".into())],
            environment: Vec::new(),
            python: Some(self.path("python3")),
            path_override: BTreeMap::new(),
            clock: Arc::new(clock),
        };
        let times = ProvisionTimes {
            version: Duration::from_secs(10),
            ..ProvisionTimes::default()
        };
        let deps = ProvisionDeps {
            releases: github.map(Github::client),
            packages: self.packages.clone(),
            prover: Some(self.prover.clone()),
            root: Root::captured(self.path("root"), Machine::default()),
            reserve: self.reserve,
        };
        Provisioner::build(config, times, deps)
    }

    pub(crate) async fn converge(
        &self,
        provisioner: &Provisioner,
        wanted: &WantedEngine,
    ) -> Result<InstalledEngine, ProvisionError> {
        self.heard.lock().unwrap().clear();
        let hears = |told: Provision| self.heard.lock().unwrap().push(told);
        provisioner.converge(wanted, &hears).await
    }

    pub(crate) fn words(&self) -> Vec<String> {
        let heard = self.heard.lock().unwrap();
        heard.iter().map(|told| told.state.describe()).collect()
    }

    pub(crate) fn last(&self) -> Provision {
        self.heard.lock().unwrap().last().unwrap().clone()
    }

    /// What lies below the directory of engines, by path.
    pub(crate) fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        let engines = self.path("engines");
        let mut waiting = vec![engines.clone()];
        while let Some(next) = waiting.pop() {
            for entry in std::fs::read_dir(next).into_iter().flatten().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    waiting.push(entry.path());
                } else {
                    let path = entry.path();
                    left.push(path.strip_prefix(&engines).unwrap().display().to_string());
                }
            }
        }
        left.sort();
        left
    }
}

pub(crate) fn wanted(source: EngineSource) -> WantedEngine {
    WantedEngine::new("llamacpp".parse().unwrap(), source)
}

/// Written by a child: a descriptor of ours, inherited by another test's child, would keep the program busy.
pub(crate) fn script(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let written = Command::new("/bin/sh")
        .args(["-c", r#"printf %s "$1" > "$2" && chmod +x "$2""#, "sh"])
        .arg(text)
        .arg(path)
        .status()
        .unwrap();
    assert!(written.success());
}
