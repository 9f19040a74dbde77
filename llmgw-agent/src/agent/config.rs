use std::{collections::BTreeMap, ffi::OsString, fmt, path::PathBuf, time::Duration};

use llmgw_core::{cluster::node::NodeFacts, id::EngineName, units::Bytes};

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
    /// What the node calls itself; what the machine does when absent. Agents that share a machine need names of their
    /// own.
    pub hostname: Option<String>,
    /// The most main memory for engines in all, such as a slice of a machine that others use too; what the machine has
    /// when absent.
    pub memory: Option<Bytes>,
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
            hostname: None,
            memory: None,
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

impl AgentConfig {
    /// Puts what the operator said of the node in the place of what was found.
    pub(super) fn restrict(&self, facts: &mut NodeFacts) {
        facts.labels.clone_from(&self.labels);
        if let Some(hostname) = &self.hostname {
            facts.hostname.clone_from(hostname);
        }
        if let (Some(most), Some(memory)) = (self.memory, &mut facts.memory) {
            memory.allocatable = memory.allocatable.min(most);
        }
    }
}

impl fmt::Debug for AgentConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            data_dir,
            hostname,
            memory,
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
            .field("hostname", hostname)
            .field("memory", memory)
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

#[cfg(test)]
mod tests {
    use llmgw_core::cluster::node::Memory;

    use super::*;

    #[test]
    fn a_slice_of_a_machine_is_never_more_than_the_machine_has() {
        let found = |most: Option<Bytes>, hostname: Option<&str>| {
            let mut facts = NodeFacts {
                hostname: "machine".into(),
                memory: Some(Memory {
                    total: Bytes::gib(8),
                    allocatable: Bytes::gib(6),
                }),
                ..NodeFacts::default()
            };
            let config = AgentConfig {
                memory: most,
                hostname: hostname.map(Into::into),
                ..AgentConfig::new("/data")
            };
            config.restrict(&mut facts);
            (facts.memory.unwrap().allocatable, facts.hostname)
        };
        assert_eq!(found(None, None), (Bytes::gib(6), "machine".into()));
        assert_eq!(
            found(Some(Bytes::gib(1)), Some("a")),
            (Bytes::gib(1), "a".into())
        );
        assert_eq!(found(Some(Bytes::gib(9)), None).0, Bytes::gib(6));
    }
}
