//! What was decided, and from what.

use std::{fmt, io};

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    fingerprint::Fingerprint,
    id::{ModelName, NodeId, ProfileName, ReplicaId},
    reason::{Report, render},
};

/// `GET decisions`, one of: a decision on a model, with the reasons.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Decision {
    /// Its number since the control plane was started; later decisions have higher ones.
    pub number: u64,
    /// When it was made.
    pub at: Timestamp,
    /// The epoch of the lease that it was made under.
    pub epoch: u64,
    /// Of the fleet and of what was wanted, as the planner saw them: equal for decisions that were made from the same.
    pub inputs: Fingerprint,
    /// The policy that scored nodes.
    pub policy: String,
    /// The model that it is about.
    pub model: ModelName,
    /// What was decided, with the reasons.
    #[serde(flatten)]
    pub what: Outcome,
    /// How often the same was decided again, with nothing else on this model in between.
    pub again: u64,
    /// When it was decided the last time.
    pub last_at: Timestamp,
}

/// What was decided.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "what")]
#[non_exhaustive]
pub enum Outcome {
    /// A replica was given to a node.
    Placed {
        /// Which.
        replica: ReplicaId,
        /// How it runs.
        profile: ProfileName,
        /// Where.
        node: NodeId,
        /// What people call that node.
        hostname: String,
        /// The numbers of its GPUs there.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        gpus: Vec<u32>,
    },
    /// No node could take a replica that is missing.
    NotPlaced {
        /// Why not. Of the rejections the first 64 are kept; the summary counts all, and the nearest is whole.
        report: Box<Report>,
    },
    /// A replica that ran already was taken over.
    Adopted {
        /// Which.
        replica: ReplicaId,
        /// Where.
        node: NodeId,
        /// What people call that node.
        hostname: String,
    },
    /// A replica gets no new calls, and is stopped once it has ended those that it has.
    Draining {
        /// Which.
        replica: ReplicaId,
        /// Why.
        why: Leaving,
    },
    /// A replica was stopped.
    Stopped {
        /// Which.
        replica: ReplicaId,
        /// Why.
        why: Leaving,
    },
    /// A replica failed, and the failure was counted.
    Failed {
        /// Which.
        replica: ReplicaId,
        /// What went wrong; at most 1,000 characters.
        error: String,
    },
    /// A replica is out of reach, and no failure was counted.
    LetGo {
        /// Which.
        replica: ReplicaId,
        /// Why.
        why: Leaving,
    },
    /// The model has served well for a while: its failures are forgotten.
    Absolved,
    /// The model should have more or fewer replicas.
    Scaled {
        /// How many it should have had.
        from: u32,
        /// How many it should have.
        to: u32,
        /// Why.
        why: ScaleReason,
    },
    /// A replica that was on its way out gets calls again.
    Kept {
        /// Which.
        replica: ReplicaId,
    },
    /// The model failed too often in a row, and is not tried again by itself.
    Parked {
        /// Failures in a row.
        failures: u32,
        /// The last of them; at most 1,000 characters.
        error: String,
    },
    /// The model is defined otherwise than when it was parked, and is tried again.
    Unparked,
    /// A roll that was ordered has begun.
    RollBegun {
        /// Which roll of the model.
        roll: u64,
    },
    /// A roll is over.
    RollEnded {
        /// Which roll of the model.
        roll: u64,
        /// How it ended.
        ended: RollEnd,
    },
    /// A decision of a newer release.
    #[serde(other)]
    Unknown,
}

/// Why a model should have another number of replicas.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ScaleReason {
    /// It was asked for, and nothing served it.
    Asked {
        /// Calls that waited.
        waiting: u64,
    },
    /// There was more load than its replicas have slots for.
    Load {
        /// Calls that were answered or waited.
        calls: u64,
        /// What its replicas answer at once.
        slots: u64,
        /// For how long.
        seconds: u64,
    },
    /// Fewer replicas would have done for a while.
    LessLoad {
        /// The most that were needed in that time.
        needed: u32,
        /// For how long.
        seconds: u64,
    },
    /// Nobody has asked for it for a while.
    Idle {
        /// For how long.
        seconds: u64,
    },
    /// A reason of a newer release.
    #[serde(other)]
    Unknown,
}

/// How a roll ended.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RollEnd {
    /// All replicas are of the definition that there is.
    Done {
        /// How many were replaced.
        replaced: u32,
    },
    /// No replica was of another definition than the one there is, or there is no such model any more.
    NothingToDo,
    /// The new definition does not work; replicas of the old one that were left stay.
    BackedOut {
        /// What went wrong.
        why: String,
    },
    /// An end of a newer release.
    #[serde(other)]
    Unknown,
}

/// Why a replica leaves.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Leaving {
    /// Its model was removed.
    ModelRemoved,
    /// The model has more replicas than it should.
    Surplus,
    /// The model is switched off.
    SwitchedOff,
    /// Nobody has asked for the model for a while.
    Idle,
    /// The model has less load than its replicas are for.
    LessLoad,
    /// Its node is draining, and others serve in its place.
    Moved,
    /// A replica of the model's new definition serves in its place.
    Rolled,
    /// Its node is draining, there is no room for it elsewhere, and an operator forced it to go.
    MovedByForce,
    /// Its model is rolled, there is no room for its successor beside it, and an operator forced it to go.
    RolledByForce,
    /// It is of a new definition that does not work.
    BackedOut,
    /// This model needs the room.
    RoomFor(ModelName),
    /// Its node is not heard.
    NodeLost,
    /// Its node no longer knows it.
    Vanished,
    /// Its agent was told to end, and ended it.
    AgentEnded,
    /// A reason of a newer release.
    #[serde(other)]
    Unknown,
}

// === impl Decision ===

impl Decision {
    /// The length of its JSON form, in bytes.
    #[must_use]
    pub fn json_len(&self) -> usize {
        let mut counted = Counted(0);
        // Plain data always has a JSON form, and the count takes everything.
        match serde_json::to_writer(&mut counted, self) {
            Ok(()) => counted.0,
            Err(_) => usize::MAX,
        }
    }
}

// === impl Outcome ===

impl Outcome {
    /// What was decided, in a word or two: `not placed`.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Placed { .. } => "placed",
            Self::NotPlaced { .. } => "not placed",
            Self::Adopted { .. } => "adopted",
            Self::Draining { .. } => "draining",
            Self::Stopped { .. } => "stopped",
            Self::Failed { .. } => "failed",
            Self::LetGo { .. } => "let go",
            Self::Absolved => "absolved",
            Self::Scaled { .. } => "scaled",
            Self::Kept { .. } => "kept",
            Self::Parked { .. } => "parked",
            Self::Unparked => "unparked",
            Self::RollBegun { .. } => "roll begun",
            Self::RollEnded { .. } => "roll ended",
            Self::Unknown => "unknown",
        }
    }

    /// Why, or where, in one line.
    #[must_use]
    pub fn why(&self) -> String {
        match self {
            Self::Placed {
                replica,
                profile,
                hostname,
                ..
            } => format!("{} on {hostname} with {profile}", replica.short()),
            Self::NotPlaced { report } => render::headline(report),
            Self::Adopted {
                replica, hostname, ..
            } => format!("{} ran on {hostname} already", replica.short()),
            Self::Draining { replica, why }
            | Self::Stopped { replica, why }
            | Self::LetGo { replica, why } => format!("{}: {why}", replica.short()),
            Self::Failed { replica, error } => format!("{}: {error}", replica.short()),
            Self::Absolved => "it has served well for a while".to_owned(),
            Self::Scaled { from, to, why } => format!("{from} to {to} replicas: {why}"),
            Self::Kept { replica } => format!("{} is needed all the same", replica.short()),
            Self::Parked { failures, error } => format!("{failures} failures in a row: {error}"),
            Self::Unparked => "it is defined otherwise now".to_owned(),
            Self::RollBegun { roll } => format!("roll {roll}"),
            Self::RollEnded { roll, ended } => format!("roll {roll}: {ended}"),
            Self::Unknown => "a newer release says why".to_owned(),
        }
    }
}

// === impl ScaleReason ===

impl fmt::Display for ScaleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked { waiting: 0 } => f.write_str("it was asked for"),
            Self::Asked { waiting: 1 } => f.write_str("it was asked for, and 1 call waits"),
            Self::Asked { waiting } => write!(f, "it was asked for, and {waiting} calls wait"),
            Self::Load {
                calls,
                slots,
                seconds,
            } => write!(f, "{calls} calls for {slots} slots, for {seconds} s"),
            Self::LessLoad { needed, seconds } => {
                write!(f, "no more than {needed} were needed for {seconds} s")
            }
            Self::Idle { seconds } => write!(f, "nobody has asked for it for {seconds} s"),
            Self::Unknown => f.write_str("a newer release says why"),
        }
    }
}

// === impl RollEnd ===

impl fmt::Display for RollEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done { replaced: 1 } => f.write_str("1 replica was replaced"),
            Self::Done { replaced } => write!(f, "{replaced} replicas were replaced"),
            Self::NothingToDo => f.write_str("nothing was to be replaced"),
            Self::BackedOut { why } => write!(f, "backed out, the old replicas stay: {why}"),
            Self::Unknown => f.write_str("a newer release says how"),
        }
    }
}

// === impl Leaving ===

impl fmt::Display for Leaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RoomFor(model) => return write!(f, "{model} needs the room"),
            Self::ModelRemoved => "its model was removed",
            Self::Surplus => "its model has more replicas than it should",
            Self::SwitchedOff => "its model is switched off",
            Self::Idle => "nobody has asked for its model for a while",
            Self::LessLoad => "its model has less load than its replicas are for",
            Self::Moved => "its node is draining, and others serve in its place",
            Self::Rolled => "a replica of the new definition serves in its place",
            Self::MovedByForce => {
                "its node is draining, there is no room elsewhere, and it was forced to go"
            }
            Self::RolledByForce => {
                "its model is rolled, there is no room beside it for another, and it was forced to go"
            }
            Self::BackedOut => "the new definition does not work",
            Self::NodeLost => "its node is not heard",
            Self::Vanished => "its node no longer knows it",
            Self::AgentEnded => "its agent was told to end",
            Self::Unknown => "a newer release says why",
        })
    }
}

/// Counts what is written, and keeps nothing.
struct Counted(usize);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decision(what: serde_json::Value) -> Decision {
        let mut whole = json!({
            "number": 7, "at": 5, "epoch": 2, "inputs": "00000000000000ff", "policy": "scarcity",
            "model": "m", "again": 0, "last_at": 5,
        });
        let fields = whole.as_object_mut().unwrap();
        fields.extend(what.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn a_decision_keeps_its_serial_form_and_knows_its_length() {
        let replica = "r-0197c2a4f0e17b6c9a3d5e8f10213243";
        let what = json!({"what": "let_go", "replica": replica, "why": "node_lost"});
        let decision = decision(what);
        let text = serde_json::to_string(&decision).unwrap();
        assert_eq!(
            text,
            format!(
                r#"{{"number":7,"at":5,"epoch":2,"inputs":"00000000000000ff","policy":"scarcity","model":"m","what":"let_go","replica":"{replica}","why":"node_lost","again":0,"last_at":5}}"#
            )
        );
        assert_eq!(decision.json_len(), text.len());
        assert_eq!(decision.what.why(), "r-10213243: its node is not heard");
    }

    #[test]
    fn what_a_decision_says_of_itself_is_said_once() {
        let replica = "r-0197c2a4f0e17b6c9a3d5e8f10213243";
        let node = "node-0197c2a4f0e17b6c9a3d5e8f10213243";
        let outcomes = [
            json!({"what": "placed", "replica": replica, "profile": "p", "node": node, "hostname": "a"}),
            json!({"what": "adopted", "replica": replica, "node": node, "hostname": "a"}),
            json!({"what": "draining", "replica": replica, "why": "moved"}),
            json!({"what": "failed", "replica": replica, "error": "e"}),
            json!({"what": "scaled", "from": 1, "to": 2, "why": {"asked": {"waiting": 1}}}),
            json!({"what": "kept", "replica": replica}),
            json!({"what": "parked", "failures": 5, "error": "e"}),
            json!({"what": "unparked"}),
            json!({"what": "roll_begun", "roll": 3}),
            json!({"what": "roll_ended", "roll": 3, "ended": "nothing_to_do"}),
        ];
        for what in outcomes {
            let given = decision(what.clone());
            let text = serde_json::to_string(&given).unwrap();
            let read: Result<Decision, _> = serde_json::from_str(&text);
            assert_eq!(
                read.map_err(|error| format!("{error}: {text}")),
                Ok(given),
                "{what}"
            );
        }
    }

    #[test]
    fn what_a_newer_release_decides_can_be_read() {
        let newer = decision(json!({"what": "folded", "replica": 7}));
        assert_eq!(newer.what, Outcome::Unknown);
        let replica = "r-0197c2a4f0e17b6c9a3d5e8f10213243";
        let newer = decision(json!({"what": "stopped", "replica": replica, "why": "whim"}));
        assert_eq!(newer.what.verb(), "stopped");
        assert!(newer.what.why().ends_with("a newer release says why"));
    }
}
