//! One running copy of a model, as its agent tells it.

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    cluster::{
        catalog::Profile,
        weights::{FetchProgress, Weights},
    },
    fingerprint::Fingerprint,
    id::{ModelName, ReplicaId},
    units::Bytes,
};

/// What an agent is asked to run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ReplicaSpec {
    /// Which replica this is; never used again for another.
    pub id: ReplicaId,
    /// The model it serves.
    pub model: ModelName,
    /// How to run it.
    pub profile: Profile,
    /// What it runs.
    pub weights: Weights,
    /// Tells whether the definition has changed since.
    pub fingerprint: Fingerprint,
    /// The numbers of the GPUs that it may use; empty when it runs without, or may use all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<u32>,
}

/// The life of a replica.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaState {
    /// Given to a node, which has not yet said that it knows.
    Placing,
    /// Waits for its engine to be installed.
    Provisioning,
    /// Its weights are being fetched.
    Fetching,
    /// The engine runs and does not answer yet.
    Starting,
    /// It has given a real token.
    Ready,
    /// It takes no new requests and finishes those it has.
    Draining,
    /// Its processes have ended, as asked.
    Stopped,
    /// It could not be started, or has ended by itself.
    Failed,
    /// Its node is unheard.
    Lost,
    /// A state of a newer agent.
    #[serde(other)]
    Unknown,
}

/// What an agent says of a replica.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ReplicaStatus {
    /// What was asked for.
    pub spec: ReplicaSpec,
    /// How far it is.
    pub state: ReplicaState,
    /// When it came into this state, by the agent's clock; for people only.
    pub since: Timestamp,
    /// Where it listens, `host:port` on the node's loopback; from `Starting` on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// How far the fetch is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch: Option<FetchProgress>,
    /// What it holds, the most that was measured since it was ready; absent before, and of an agent that is too old to
    /// measure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<MemoryUse>,
    /// Why it failed, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What would help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The last lines of the engine's log, when it failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log_tail: Vec<String>,
}

/// Memory that all processes of a replica together were measured to hold. What could not be measured is absent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct MemoryUse {
    /// Main memory: what they hold themselves, and the pages of files, such as weights, that they have mapped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub main: Option<Bytes>,
    /// Memory of each of its GPUs that could be asked, by their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuMemoryUse>,
}

/// Memory of one GPU that a replica was measured to hold.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct GpuMemoryUse {
    /// The GPU's number on its node.
    pub gpu: u32,
    /// What the replica holds of it.
    pub memory: Bytes,
}

impl MemoryUse {
    /// The larger of both, part by part: what is measured once is needed again.
    #[must_use]
    pub fn most(&self, other: &Self) -> Self {
        let mut most = self.clone();
        most.main = most.main.max(other.main);
        for one in &other.gpus {
            match most.gpus.iter_mut().find(|known| known.gpu == one.gpu) {
                Some(known) => known.memory = known.memory.max(one.memory),
                None => most.gpus.push(*one),
            }
        }
        most.gpus.sort_by_key(|one| one.gpu);
        most
    }
}

impl ReplicaStatus {
    /// What went wrong, with the last thing that the engine said: an exit code alone helps nobody.
    #[must_use]
    pub fn failure(&self) -> String {
        let error = self.error.as_deref().unwrap_or("failed without saying why");
        let said = self.log_tail.iter().rev();
        match said.map(|line| line.trim()).find(|line| !line.is_empty()) {
            Some(line) => {
                let line: String = line.chars().take(MAX_SAID).collect();
                format!("{error}: {line}")
            }
            None => error.to_owned(),
        }
    }
}

impl ReplicaState {
    /// The state as it stands in tables and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Placing => "placing",
            Self::Provisioning => "provisioning",
            Self::Fetching => "fetching",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
        }
    }

    /// Whether a replica in this state may hold memory on its node.
    #[must_use]
    pub fn holds_memory(self) -> bool {
        !matches!(self, Self::Stopped | Self::Failed)
    }
}

/// Characters of an engine's last line that go into a reason.
const MAX_SAID: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_once_stays_though_less_or_nothing_is_measured_later() {
        let of = |main: Option<u64>, gpus: &[(u32, u64)]| MemoryUse {
            main: main.map(Bytes),
            gpus: gpus
                .iter()
                .map(|(gpu, memory)| GpuMemoryUse {
                    gpu: *gpu,
                    memory: Bytes(*memory),
                })
                .collect(),
        };
        let most = of(Some(5), &[(1, 7)]).most(&of(Some(4), &[(0, 2), (1, 9)]));
        assert_eq!(most, of(Some(5), &[(0, 2), (1, 9)]));
        assert_eq!(most.most(&of(None, &[])), most);
    }
}
