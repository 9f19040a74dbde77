use std::{collections::BTreeMap, ffi::OsString, fmt, path::PathBuf, time::Duration};

use llmgw_core::id::EngineName;

use crate::{
    facts::Root,
    process::launcher::Launcher,
    supervise::{Ending, Timing},
};

/// What an [`Agent`](super::Agent) is made of.
#[derive(Clone)]
pub struct AgentConfig {
    /// Where it keeps everything; made when it is missing, and held by one agent at a time.
    pub data_dir: PathBuf,
    /// The operator's own marks on the node.
    pub labels: BTreeMap<String, String>,
    /// The Python that installs wheels; one that is found when absent.
    pub python: Option<PathBuf>,
    /// Engine programs that are on the node already.
    pub engine_paths: BTreeMap<EngineName, PathBuf>,
    /// The address of the model hub; the usual one when absent.
    pub hub: Option<String>,
    /// The list of releases that is asked where no control plane has done it; none when absent.
    pub releases: Option<String>,
    /// How often installed engines are looked at again.
    pub engine_check: Duration,
    /// The secret that admits agents; none is needed over a pipe.
    pub token: Option<String>,
    /// What engines get of the agent's own environment: [`crate::process::inherited`] of it.
    pub environment: Vec<(OsString, OsString)>,
    /// How a launcher is run, which keeps each engine's processes together; without one they are told apart by
    /// weaker signs (see [`Containment`](crate::process::native::Containment)). A binary that calls
    /// [`run`](crate::process::launcher::run) when it is asked to names itself.
    pub launcher: Option<Launcher>,
    /// What becomes of engines when the agent is told to end.
    pub ending: Ending,
    /// How long the steps in a replica's life may take.
    pub timing: Timing,
    /// Where the kernel's files are.
    pub root: Root,
}

impl AgentConfig {
    /// The usual agent in this directory: engines get no variables, and end with the agent.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            labels: BTreeMap::new(),
            python: None,
            engine_paths: BTreeMap::new(),
            hub: None,
            releases: None,
            // An unrelated upgrade can remove a library at any time.
            engine_check: Duration::from_secs(600),
            token: None,
            environment: Vec::new(),
            launcher: None,
            ending: Ending::default(),
            timing: Timing::default(),
            root: Root::system(),
        }
    }
}

impl fmt::Debug for AgentConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            data_dir,
            labels,
            python,
            engine_paths,
            hub,
            releases,
            engine_check,
            token,
            environment,
            launcher,
            ending,
            timing,
            root,
        } = self;
        f.debug_struct("AgentConfig")
            .field("data_dir", data_dir)
            .field("labels", labels)
            .field("python", python)
            .field("engine_paths", engine_paths)
            .field("hub", hub)
            .field("releases", releases)
            .field("engine_check", engine_check)
            .field("token", &token.as_ref().map(|_| "…"))
            .field("environment", environment)
            .field("launcher", launcher)
            .field("ending", ending)
            .field("timing", timing)
            .field("root", root)
            .finish()
    }
}
