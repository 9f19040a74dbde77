//! What engines wrote, as it is asked for and told: between a control plane and an agent, and by the admin API.
//!
//! A place in a log is a [cursor](LogPart::cursor): how many bytes were written before it, since the log was begun. It
//! stays right when an agent cuts a log that has grown too large: what is lost by that is counted.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{id::ReplicaId, units::Bytes};

/// Where to begin to read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogFrom {
    /// With the last so many lines that there are.
    Last(u32),
    /// With what was written after this cursor.
    After(u64),
}

/// A control plane asks an agent for a part of a log.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LogAsk {
    /// Stands in the answer too.
    pub ask: u64,
    /// Whose log.
    pub replica: ReplicaId,
    /// The cursor to begin after; absent for the last lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// How many of the last lines, when there is no cursor.
    #[serde(default)]
    pub lines: u32,
    /// How many bytes of the log may go into the answer.
    pub most: u64,
    /// How long to wait for something to tell, in milliseconds; 0 not to wait.
    #[serde(default)]
    pub wait_ms: u64,
}

/// An agent's answer.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LogAnswer {
    /// That of the question.
    pub ask: u64,
    /// Whose log.
    pub replica: ReplicaId,
    /// Where to go on.
    #[serde(default)]
    pub cursor: u64,
    /// Whole lines, without control characters, each bounded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// How much was cut off the log before it was read, in bytes.
    #[serde(default)]
    pub skipped: u64,
    /// Nothing will come after these lines; absent while something may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<LogEnd>,
    /// Why there are no lines; absent when nothing is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<LogProblem>,
}

/// Why an agent can't tell a log.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogProblem {
    /// It has none of that replica: it never ran here, or its log was removed to make room for later ones.
    NoLog,
    /// It answers as many questions as it may.
    Busy,
    /// Its disk does not let it read.
    Unreadable,
    /// Something that a newer release tells of.
    #[serde(other)]
    Unknown,
}

/// `GET replicas/{id}/log` answers this: a part of what a replica's engine wrote.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LogPart {
    /// The replica.
    pub replica: ReplicaId,
    /// What people call its node.
    pub hostname: String,
    /// Where to go on: ask for what comes after it.
    pub cursor: u64,
    /// Whole lines, the last one last.
    pub lines: Vec<String>,
    /// How much before these lines is lost, because the log had grown too large.
    #[serde(default)]
    pub skipped: Bytes,
    /// Why nothing more will come; absent while something may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<LogEnd>,
}

/// Why a log goes on no more.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LogEnd {
    /// The kind of end.
    pub reason: LogEnded,
    /// The same for people, in one line.
    pub text: String,
}

/// Kinds of ends of a log.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogEnded {
    /// The replica failed.
    Failed,
    /// The replica was stopped.
    Stopped,
    /// It can't be read any further: its node is not heard, or this control plane ends. It may go on all the same.
    Unreachable,
    /// Something that a newer release tells of.
    #[serde(other)]
    Unknown,
}

// === impl LogAsk ===

impl LogAsk {
    /// Where to begin.
    #[must_use]
    pub fn from(&self) -> LogFrom {
        self.after.map_or(LogFrom::Last(self.lines), LogFrom::After)
    }
}

// === impl LogAnswer ===

impl LogAnswer {
    /// An answer without lines, for the reason that it names.
    #[must_use]
    pub fn without_lines(ask: &LogAsk, problem: LogProblem) -> Self {
        Self {
            ask: ask.ask,
            replica: ask.replica,
            cursor: ask.after.unwrap_or_default(),
            lines: Vec::new(),
            skipped: 0,
            end: None,
            problem: Some(problem),
        }
    }
}

// === impl LogPart ===

impl LogPart {
    /// Whether it tells nothing but that there is nothing yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.skipped == Bytes::ZERO && self.end.is_none()
    }
}

// === impl LogEnd ===

impl fmt::Display for LogEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::agent::{ToAgent, ToServer};

    #[test]
    fn a_newer_peers_words_are_understood_as_far_as_they_are_known() {
        let replica = ReplicaId::generate();
        let asked = json!({"kind": "read_log", "ask": 7, "replica": replica, "most": 9, "mood": 1});
        let ToAgent::ReadLog(ask) = serde_json::from_value(asked).unwrap() else {
            panic!("it asks for a log");
        };
        assert_eq!((ask.from(), ask.wait_ms), (LogFrom::Last(0), 0));
        let told = json!({"kind": "log", "ask": 7, "replica": replica, "problem": "asleep",
            "end": {"reason": "eaten", "text": "a dog ate it"}});
        let ToServer::Log(answer) = serde_json::from_value(told).unwrap() else {
            panic!("it tells a log");
        };
        assert_eq!(answer.problem, Some(LogProblem::Unknown));
        assert_eq!(answer.end.unwrap().reason, LogEnded::Unknown);
    }
}
