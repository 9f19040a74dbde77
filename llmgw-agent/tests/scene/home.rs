//! What the tests of this crate share: a directory of their own, and an engine that does as it is told.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't set itself up fails"
)]

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use llmgw_agent::process::{
    identity::ProcessIdentity,
    inherited,
    launcher::Launcher,
    native::{Containment, NativeConfig, NativeRuntime},
};
use llmgw_core::id::ReplicaId;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A data directory that is removed at the end.
pub(crate) struct Home {
    dir: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A new life of the agent, as far as processes are concerned.
    pub(crate) fn runtime(&self) -> NativeRuntime {
        self.runtime_in(Containment::strongest(Some(launcher()), self.path()))
    }

    /// One whose processes are kept together by what the test says.
    pub(crate) fn runtime_in(&self, containment: Containment) -> NativeRuntime {
        let config = NativeConfig {
            data_dir: self.path().to_owned(),
            environment: environment(),
            containment,
        };
        config.build().unwrap()
    }

    /// Writes a model file that tells the engine what to do.
    pub(crate) fn plan(&self, plan: Value) -> PathBuf {
        self.plan_with(plan, &self.pids_file())
    }

    /// The same, with a file of its own for the numbers of its processes.
    pub(crate) fn plan_with(&self, mut plan: Value, pids: &Path) -> PathBuf {
        plan["pids"] = json!(pids);
        let path = self.path().join(format!("{}.gguf", ReplicaId::generate()));
        fs::write(&path, plan.to_string()).unwrap();
        path
    }

    fn pids_file(&self) -> PathBuf {
        self.path().join("pids")
    }

    /// The processes that engines have written down so far, as they are now.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.pids_file()).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Waits until so many processes were written down, and says which they are.
    pub(crate) async fn processes(&self, count: usize) -> Vec<ProcessIdentity> {
        eventually("all processes are up", || self.pids().len() >= count).await;
        let pids = self.pids();
        pids.into_iter()
            .filter_map(|pid| ProcessIdentity::of(pid).unwrap())
            .collect()
    }
}

/// What the agent's binary would hand on.
pub(crate) fn environment() -> Vec<(OsString, OsString)> {
    inherited(std::env::vars_os())
}

/// The launcher of this crate, for test programs are none.
pub(crate) fn launcher() -> Launcher {
    Launcher {
        program: env!("CARGO_BIN_EXE_llmgw-launcher").into(),
        args: Vec::new(),
    }
}

/// The program that stands in for an engine.
pub(crate) fn engine() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scene/engine.py")
}

/// Waits until a fact about the world outside of this process holds.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let look = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, look).await.is_err() {
        panic!("not within {PATIENCE:?}: {what}");
    }
}

/// How long a test waits before it fails: long, because the machine may be busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
