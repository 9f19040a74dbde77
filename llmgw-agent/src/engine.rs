//! What the agent knows of an inference server program: how it is started, and how it is asked how it is.
//!
//! [`Engine`] is the role; [`engine`] finds the one of a name. An engine only describes: it starts nothing and
//! opens no connection. Who starts processes is [`crate::process`], who asks them is [`crate::supervise`].

use std::{
    ffi::OsString,
    fmt::{self, Debug},
    path::{Path, PathBuf},
    sync::Arc,
};

use llmgw_core::{
    cluster::replica::ReplicaSpec,
    id::{EngineName, ReplicaId},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::llamacpp::LlamaCppEngine;

mod llamacpp;

/// An engine that was installed and checked.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct InstalledEngine {
    /// Which program.
    pub name: EngineName,
    /// The version as the build says it: `2026.10.11549`, `b10991`.
    pub version: String,
    /// The form it came in: `wheel`, `path`.
    pub variant: String,
    /// How it is started.
    pub launch: Launch,
}

impl fmt::Display for InstalledEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.name, self.version, self.variant)
    }
}

/// How an installed engine is started.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Launch {
    /// A Python package, by a launcher of ours.
    Wheel {
        /// The interpreter of the package's own environment.
        python: PathBuf,
        /// Our script.
        launcher: PathBuf,
    },
    /// The engine's own server program.
    Program {
        /// Where it is.
        program: PathBuf,
    },
}

/// One start of an engine. It listens on 127.0.0.1, always.
#[derive(Clone, Copy, Debug)]
pub struct LaunchRequest<'a> {
    /// What is started.
    pub engine: &'a InstalledEngine,
    /// What for.
    pub spec: &'a ReplicaSpec,
    /// The file that holds the model.
    pub weights: &'a Path,
    /// Where it listens.
    pub port: u16,
}

/// A command line, and all of the environment that it gets besides `PATH`, `HOME`, `LANG`, `TMPDIR` and the variables
/// that show it its own GPUs alone ([`crate::facts::gpu::visible`]).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EngineCommand {
    /// What is run.
    pub program: PathBuf,
    /// With which arguments.
    pub args: Vec<OsString>,
    /// With which variables.
    pub env: Vec<(OsString, OsString)>,
}

/// An inference server program.
///
/// # Contract
/// * Every method is pure: the same arguments give the same answer, nothing is read, started or connected to.
/// * Paths are asked with GET at the replica's own endpoint, except that of [`Engine::probe_request`], which
///   takes a POST with the body that stands beside it.
/// * What answers on a port may be another program, or another replica. So a body is judged without trust:
///   what can't be read is a "no", never a panic. The caller bounds how much of a body it reads.
/// * `command` MUST start the engine so that [`Engine::is_identity`] is true for this replica and false for
///   every other one.
pub trait Engine: Debug + Send + Sync + 'static {
    /// The name that profiles use.
    fn name(&self) -> &EngineName;

    /// How this start is written as a command.
    fn command(&self, request: &LaunchRequest<'_>) -> EngineCommand;

    /// Answers 200 when the model is loaded.
    fn health_path(&self) -> &'static str;

    /// Answers with what [`Engine::is_identity`] reads.
    fn identity_path(&self) -> &'static str;

    /// Tells from a body whether this replica gave it.
    fn is_identity(&self, body: &[u8], replica: ReplicaId) -> bool;

    /// A path and a JSON body that ask for one synthetic token.
    fn probe_request(&self, spec: &ReplicaSpec) -> (&'static str, Value);

    /// Tells from the answer to [`Engine::probe_request`] whether a token was computed.
    fn probe_answered(&self, body: &[u8]) -> bool;

    /// Answers with what [`Engine::busy`] reads.
    fn busy_path(&self) -> &'static str;

    /// How many requests are being computed: proof of life while health checks are missed. `None` when the
    /// body does not say.
    fn busy(&self, body: &[u8]) -> Option<usize>;
}

/// The engine of this name, when this release has one.
#[must_use]
pub fn engine(name: &EngineName) -> Option<Arc<dyn Engine>> {
    match name.as_str() {
        LlamaCppEngine::NAME => Some(Arc::new(LlamaCppEngine::new(name.clone()))),
        _ => None,
    }
}

/// Whether an engine loads GGUF files and answers as llama.cpp does.
pub(crate) fn loads_gguf(name: &EngineName) -> bool {
    name.as_str() == LlamaCppEngine::NAME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_found_by_its_name_alone() {
        let name: EngineName = "llamacpp".parse().unwrap();
        assert_eq!(engine(&name).unwrap().name(), &name);
        assert!(engine(&"vllm".parse().unwrap()).is_none());
    }

    #[test]
    fn an_installed_engine_survives_its_serial_form() {
        let installed = InstalledEngine {
            name: "llamacpp".parse().unwrap(),
            version: "2026.10.11549".to_owned(),
            variant: "wheel".to_owned(),
            launch: Launch::Wheel {
                python: "/e/venv/bin/python".into(),
                launcher: "/e/launcher.py".into(),
            },
        };
        let json = serde_json::to_string(&installed).unwrap();
        assert!(json.contains(r#""launch":{"wheel":"#), "{json}");
        assert_eq!(
            serde_json::from_str::<InstalledEngine>(&json).unwrap(),
            installed
        );
    }
}
