//! The admin API's `events`: what happens, as it happens.

use serde::{Deserialize, Serialize};

use super::{admin::JobView, decision::Decision};
use crate::{
    cluster::{node::NodeState, replica::ReplicaState},
    id::{ModelName, NodeId, ReplicaId},
};

/// Something that happened. A reader passes over what it does not know.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// This control plane began to lead, or leads no more.
    Leading {
        /// The epoch that it leads with; absent when it does not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epoch: Option<u64>,
    },
    /// A node was heard for the first time, or is used otherwise, or is lost.
    Node {
        /// The node.
        id: NodeId,
        /// What people call it.
        hostname: String,
        /// What it may be used for.
        state: NodeState,
    },
    /// A replica came into another state.
    Replica {
        /// The replica.
        id: ReplicaId,
        /// What it serves.
        model: ModelName,
        /// What people call its node.
        hostname: String,
        /// How far it is.
        state: ReplicaState,
        /// Why it failed; absent when it did not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Something was decided.
    Decision {
        /// What, and why.
        decision: Box<Decision>,
    },
    /// A job was begun, or went on.
    Job {
        /// How far it is.
        job: Box<JobView>,
    },
    /// A job has ended; how, is told by the node or the replica.
    JobEnded {
        /// Which.
        id: String,
    },
    /// The reader was too slow, and this many things that happened are left out.
    Missed {
        /// How many.
        count: u64,
    },
    /// Something that a newer release tells of.
    #[serde(other)]
    Unknown,
}

// === impl Event ===

impl Event {
    /// Its kind as it stands in JSON.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Leading { .. } => "leading",
            Self::Node { .. } => "node",
            Self::Replica { .. } => "replica",
            Self::Decision { .. } => "decision",
            Self::Job { .. } => "job",
            Self::JobEnded { .. } => "job_ended",
            Self::Missed { .. } => "missed",
            Self::Unknown => "unknown",
        }
    }

    /// The same for people, in one line.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Leading { epoch: Some(epoch) } => format!("leading with epoch {epoch}"),
            Self::Leading { epoch: None } => "leading no more".to_owned(),
            Self::Node {
                hostname, state, ..
            } => format!("{hostname} is {}", state.as_str()),
            Self::Replica {
                id,
                model,
                hostname,
                state,
                error,
            } => {
                let why = error.as_deref().map(|error| format!(": {error}"));
                let (id, state, why) = (id.short(), state.as_str(), why.unwrap_or_default());
                format!("{id} of {model} on {hostname} is {state}{why}")
            }
            Self::Decision { decision } => {
                let (model, what) = (&decision.model, &decision.what);
                format!("{model}: {}: {}", what.verb(), what.why())
            }
            Self::Job { job } => format!("{} on {}: {}", job.subject, job.hostname, job.detail),
            Self::JobEnded { id } => format!("{id} has ended"),
            Self::Missed { count } => format!("{count} events were missed"),
            Self::Unknown => "something that this release does not know".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_newer_release_tells_of_is_passed_over() {
        let event: Event = serde_json::from_str(r#"{"event":"eclipse","at":3}"#).unwrap();
        assert_eq!(event, Event::Unknown);
        let missed = Event::Missed { count: 3 };
        let json = serde_json::to_string(&missed).unwrap();
        assert_eq!(json, r#"{"event":"missed","count":3}"#);
        assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), missed);
    }
}
