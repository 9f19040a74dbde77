//! What would help, as data: each remedy was tried before it is said.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Fit;
use crate::{
    cluster::node::NodeState,
    id::{EngineName, ModelName, NodeId, ReplicaId},
    units::{Bytes, Tokens},
};

/// A change after which a model was placed when it was tried.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Remedy {
    /// What to change.
    #[serde(flatten)]
    pub change: Change,
    /// Where the model is placed then; absent for a node that is not there yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<Fit>,
}

/// What to change. Kinds are offered in this order.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum Change {
    /// A profile with less context. The largest that fits: a little more does not.
    Context {
        /// Tokens of each request now.
        from: Tokens,
        /// Tokens of each request that fit.
        to: Tokens,
        /// What the profile asks for then.
        #[serde(flatten)]
        needs: Resized,
    },
    /// A profile with fewer requests at the same time. The most that fit.
    Slots {
        /// Requests now.
        from: u32,
        /// Requests that fit.
        to: u32,
        /// What the profile asks for then.
        #[serde(flatten)]
        needs: Resized,
    },
    /// A profile that asks for less choice.
    Profile {
        /// What it would not ask for any more, such as `the pool a100`.
        without: String,
    },
    /// Other replicas to stop: with any of them left, the model does not fit.
    Stop {
        /// Which.
        replicas: Vec<Stoppable>,
    },
    /// Something that passes by itself.
    Wait {
        /// For what.
        until: Awaited,
        /// How much is done, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        percent: Option<u8>,
        /// How long it will take, in seconds, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seconds: Option<u64>,
    },
    /// A node to be used again.
    Ready {
        /// The node.
        node: NodeId,
        /// What people call it.
        hostname: String,
        /// What it is now.
        from: NodeState,
    },
    /// A hold to lift.
    Lift {
        /// On what, such as `facility north`.
        hold: String,
        /// Why it was made, in the operator's words; may be empty.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// Disk to free. With less, the model does not fit.
    Disk {
        /// The node.
        node: NodeId,
        /// What people call it.
        hostname: String,
        /// How much.
        free: Bytes,
    },
    /// A node to add, since nothing that is there would do.
    Node {
        /// What it must have free, in words.
        with: String,
    },
}

/// The memory that a profile asks for once it is smaller.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Resized {
    /// Main memory.
    pub memory: Bytes,
    /// Memory on each GPU, where the profile says one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<Bytes>,
}

/// A replica that could be stopped for another.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Stoppable {
    /// Which.
    pub replica: ReplicaId,
    /// What it serves.
    pub model: ModelName,
    /// What people call its node.
    pub hostname: String,
    /// Seconds since its last call ended; absent when it is at work or when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_seconds: Option<u64>,
}

/// What passes by itself.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum Awaited {
    /// An engine that is being installed.
    Engine {
        /// Which.
        engine: EngineName,
        /// What people call the node.
        hostname: String,
        /// How far it is, in the node's own words.
        state: String,
    },
    /// A replica of the model itself that is on its way up, and whose weights are being fetched.
    Weights {
        /// Which.
        replica: ReplicaId,
        /// What people call its node.
        hostname: String,
        /// How far the fetch is: `2.0 GiB of 8.0 GiB (25 %)`.
        state: String,
    },
    /// A replica that is on its way out.
    Leaving {
        /// Which.
        replica: ReplicaId,
        /// What it serves.
        model: ModelName,
        /// What people call its node.
        hostname: String,
    },
}

impl Change {
    /// The kind as it stands in JSON.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Context { .. } => "context",
            Self::Slots { .. } => "slots",
            Self::Profile { .. } => "profile",
            Self::Stop { .. } => "stop",
            Self::Wait { .. } => "wait",
            Self::Ready { .. } => "ready",
            Self::Lift { .. } => "lift",
            Self::Disk { .. } => "disk",
            Self::Node { .. } => "node",
        }
    }
}

impl Remedy {
    /// When it helps: `now`, or how long it takes as far as that is known.
    #[must_use]
    pub fn when(&self) -> String {
        match &self.change {
            Change::Wait {
                seconds: Some(seconds),
                ..
            } => format!("in ~{}", span(*seconds)),
            Change::Wait { .. } => "later".to_owned(),
            _ => "now".to_owned(),
        }
    }

    /// Whether it comes without anybody's doing.
    #[must_use]
    pub fn passes_by_itself(&self) -> bool {
        matches!(self.change, Change::Wait { .. })
    }
}

impl fmt::Display for Remedy {
    /// One line: `context 24576 instead of 32768: places on gpu-2 with q4`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.change.fmt(f)?;
        match &self.places {
            Some(Fit {
                hostname, profile, ..
            }) => write!(f, ": places on {hostname} with {profile}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Change {
    /// A few words: `stop r-7f3 of coder, idle for 41 min`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Context { from, to, needs } => {
                write!(f, "context {to} instead of {from}, which takes {needs}")
            }
            Self::Slots { from, to, needs } => write!(
                f,
                "{to} requests at the same time instead of {from}, which takes {needs}"
            ),
            Self::Profile { without } => write!(f, "without {without}"),
            Self::Stop { replicas } => {
                f.write_str("stop ")?;
                for (index, replica) in replicas.iter().enumerate() {
                    let separator = if index == 0 { "" } else { " and " };
                    write!(f, "{separator}{replica}")?;
                }
                Ok(())
            }
            Self::Wait { until, .. } => until.fmt(f),
            Self::Ready { hostname, from, .. } => match from {
                NodeState::Cordoned => write!(f, "uncordon {hostname}"),
                NodeState::Draining => write!(
                    f,
                    "end the draining of {hostname} (`llmgw ctl uncordon {hostname}`)"
                ),
                NodeState::Pending => write!(f, "approve {hostname}"),
                NodeState::Lost => write!(f, "have {hostname} heard again: start its agent"),
                NodeState::Ready => write!(f, "use {hostname}"),
            },
            Self::Lift { hold, reason } if reason.is_empty() => {
                write!(f, "lift the hold on {hold}")
            }
            Self::Lift { hold, reason } => write!(f, "lift the hold on {hold} ({reason:?})"),
            Self::Disk { hostname, free, .. } => write!(f, "free {free} of disk on {hostname}"),
            Self::Node { with } => write!(f, "add a node with {with} free"),
        }
    }
}

impl fmt::Display for Resized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory {}", self.memory)?;
        match self.gpu_memory {
            Some(memory) => write!(f, " and {memory} on each GPU"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Stoppable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            replica,
            model,
            hostname,
            idle_seconds,
        } = self;
        write!(f, "{} of {model} on {hostname}", replica.short())?;
        match idle_seconds {
            Some(seconds) => write!(f, ", idle for {}", span(*seconds)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine {
                engine,
                hostname,
                state,
            } => write!(f, "{hostname}: {engine} is {state}"),
            Self::Weights {
                replica,
                hostname,
                state,
            } => write!(
                f,
                "{hostname}: weights for {} are being fetched: {state}",
                replica.short()
            ),
            Self::Leaving {
                replica,
                model,
                hostname,
            } => {
                write!(f, "{} of {model} ends on {hostname}", replica.short())
            }
        }
    }
}

/// A span in its largest whole unit: `41 min`.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_is_one_line_for_people_and_fields_for_programs() {
        let remedy = Remedy {
            change: Change::Context {
                from: Tokens(32_768),
                to: Tokens(24_576),
                needs: Resized {
                    memory: Bytes::gib(6),
                    gpu_memory: None,
                },
            },
            places: Some(Fit {
                node: NodeId::generate(),
                hostname: "gpu-2".into(),
                profile: "q4".parse().unwrap(),
            }),
        };
        assert_eq!(
            remedy.to_string(),
            "context 24576 instead of 32768, which takes memory 6.0 GiB: places on gpu-2 with q4"
        );
        assert_eq!(remedy.when(), "now");
        let json = serde_json::to_value(&remedy).unwrap();
        assert_eq!(json["kind"], remedy.change.kind());
        assert_eq!(
            (&json["kind"], &json["to"]),
            (&"context".into(), &24_576.into())
        );
        assert_eq!(serde_json::from_value::<Remedy>(json).unwrap(), remedy);
    }

    #[test]
    fn what_is_waited_for_says_how_long_when_that_is_known() {
        let remedy = |seconds| Remedy {
            change: Change::Wait {
                until: Awaited::Engine {
                    engine: "llamacpp".parse().unwrap(),
                    hostname: "gpu-3".into(),
                    state: "installing: downloading (43 %)".into(),
                },
                percent: Some(43),
                seconds,
            },
            places: None,
        };
        assert_eq!(remedy(Some(125)).when(), "in ~2 min");
        assert_eq!(remedy(None).when(), "later");
        assert!(remedy(None).passes_by_itself());
    }
}
