//! What a control plane and an agent say to each other.
//!
//! Frames are JSON, one after another, each behind its length (four bytes, big endian), at most
//! [`MAX_FRAME`] bytes. A kind of frame that the reader does not know is [`ToAgent::Unknown`] or
//! [`ToServer::Unknown`] and is passed over, so that one version of skew does no harm.
//!
//! The server sends the whole desired state of a node, with a revision; the agent converges on it and reports
//! the whole of what is. A lost frame costs nothing: the next one says it all. Beside that, the server may ask for
//! parts of logs, each question with its one answer.

use serde::{Deserialize, Serialize};

use super::log::{LogAnswer, LogAsk};
use crate::{
    clock::Timestamp,
    cluster::{
        engine::{Provision, WantedEngine},
        node::NodeFacts,
        replica::{ReplicaSpec, ReplicaStatus},
        weights::{ToldHeader, WeightsOnDisk, WeightsOrders},
    },
    id::NodeId,
};

/// The protocol that this release speaks.
pub const PROTOCOL: u32 = 1;

/// The most bytes that a frame may have.
pub const MAX_FRAME: usize = 8 << 20;

/// How often an agent reports even if nothing has changed, in milliseconds.
pub const HEARTBEAT_MS: u64 = 2_000;

/// From an agent to the server.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum ToServer {
    /// The first frame of a session.
    Hello(Hello),
    /// All that is, on this node.
    Report(Box<NodeReport>),
    /// A part of a log that was asked for.
    Log(Box<LogAnswer>),
    /// A frame of a newer agent.
    #[serde(other)]
    Unknown,
}

/// From the server to an agent.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum ToAgent {
    /// The session is accepted.
    Welcome {
        /// The protocol that the server speaks.
        protocol: u32,
    },
    /// The session is refused, and why; the stream is closed after it.
    Refused {
        /// The reason, in one line.
        reason: String,
    },
    /// What time it is at the server; said once, right after [`ToAgent::Welcome`].
    Time {
        /// By its wall clock.
        now: Timestamp,
    },
    /// All that should be, on this node.
    Desired(Box<DesiredState>),
    /// Asks for a part of a log, of an agent that [tells them](Hello::tells_logs).
    ReadLog(LogAsk),
    /// A frame of a newer server.
    #[serde(other)]
    Unknown,
}

/// Who an agent is.
#[derive(Clone, Deserialize, PartialEq, Serialize)]
pub struct Hello {
    /// The node's lasting id.
    pub node: NodeId,
    /// The shared secret that admits agents; absent over a pipe inside one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The protocol that the agent speaks.
    pub protocol: u32,
    /// The agent's release.
    pub agent_version: String,
    /// Whether it answers [`ToAgent::ReadLog`]: one that is older passes that over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tells_logs: bool,
}

/// All that is, on a node.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct NodeReport {
    /// The desired revision that the agent works towards; 0 before the first.
    pub revision: u64,
    /// The lease epoch that came with it; 0 before the first.
    pub epoch: u64,
    /// The highest lease epoch that the agent has ever followed, in earlier lives too: it follows no lower one.
    #[serde(default)]
    pub highest_epoch: u64,
    /// The highest revision that it has followed within that epoch.
    #[serde(default)]
    pub highest_revision: u64,
    /// The agent has ended what it ran, and says no more: its node need not be waited for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// What the agent found on the machine.
    pub facts: NodeFacts,
    /// How far it is with each wanted engine.
    pub provision: Vec<Provision>,
    /// Everything that it runs, is about to run, or ran and failed.
    pub replicas: Vec<ReplicaStatus>,
    /// The weights that lie on its disk, by digest; absent while it has not looked, and of an agent that is too old to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Vec<WeightsOnDisk>>,
    /// The headers that it was asked for, of weights that it holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<ToldHeader>,
}

/// All that should be, on a node.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct DesiredState {
    /// The lease epoch of the control plane that says so; an agent refuses less than it has seen.
    pub epoch: u64,
    /// Grows with every change within an epoch; an agent refuses less than it has seen.
    pub revision: u64,
    /// Engines to have.
    pub engines: Vec<WantedEngine>,
    /// Replicas to run; what is not here is to be stopped.
    pub replicas: Vec<ReplicaSpec>,
    /// What to do about weights, besides fetching those of the replicas.
    #[serde(default, skip_serializing_if = "WeightsOrders::is_empty")]
    pub weights: WeightsOrders,
}

impl std::fmt::Debug for Hello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            node,
            token,
            protocol,
            agent_version,
            tells_logs,
        } = self;
        f.debug_struct("Hello")
            .field("node", node)
            .field("token", &token.as_ref().map(|_| "…"))
            .field("protocol", protocol)
            .field("agent_version", agent_version)
            .field("tells_logs", tells_logs)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_a_newer_peer_are_passed_over() {
        let frame: ToAgent = serde_json::from_str(r#"{"kind":"dance","steps":[1,2]}"#).unwrap();
        assert_eq!(frame, ToAgent::Unknown);
        let frame: ToServer = serde_json::from_str(r#"{"kind":"song","verse":{}}"#).unwrap();
        assert_eq!(frame, ToServer::Unknown);
    }

    #[test]
    fn new_fields_of_a_known_frame_are_passed_over() {
        let frame: ToAgent =
            serde_json::from_str(r#"{"kind":"welcome","protocol":2,"mood":"good"}"#).unwrap();
        assert_eq!(frame, ToAgent::Welcome { protocol: 2 });
    }

    #[test]
    fn what_an_older_peer_does_not_say_is_not_known() {
        let report: NodeReport = serde_json::from_str(
            r#"{"revision":0,"epoch":0,"facts":{"hostname":"a","arch":"x","agent_version":"0"},
                "provision":[],"replicas":[]}"#,
        )
        .unwrap();
        assert_eq!(report.weights, None);
        let hello = format!(
            r#"{{"node":"{}","protocol":1,"agent_version":"0"}}"#,
            NodeId::generate()
        );
        let hello: Hello = serde_json::from_str(&hello).unwrap();
        assert!(!hello.tells_logs);
        let desired: DesiredState =
            serde_json::from_str(r#"{"epoch":1,"revision":1,"engines":[],"replicas":[]}"#).unwrap();
        assert!(desired.weights.is_empty());
        assert!(!serde_json::to_string(&desired).unwrap().contains("weights"));
    }

    #[test]
    fn the_token_is_not_shown() {
        let hello = Hello {
            node: NodeId::generate(),
            token: Some("hunter2".into()),
            protocol: PROTOCOL,
            agent_version: "0".into(),
            tells_logs: true,
        };
        assert!(!format!("{hello:?}").contains("hunter2"));
    }
}
