//! How a gateway behaves.

use std::time::Duration;

use super::{framing::HeadBounds, inspect::BodyBounds, respond::UnaryBounds};
use crate::units::Bytes;

/// How a gateway behaves. Plain data; the defaults suit a real deployment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GatewayConfig {
    /// The largest request body.
    pub body_limit: Bytes,
    /// The longest time without a byte of a request's body.
    pub body_read_timeout: Duration,
    /// The largest sum of a request's header names and values.
    pub header_limit: Bytes,
    /// The most headers of a request.
    pub header_count: usize,
    /// The longest time for a request's head to come in; also how long an idle connection of a client is kept.
    pub header_read_timeout: Duration,
    /// The longest time that a client may leave what is written to it unread.
    pub client_stall_timeout: Duration,
    /// The most client connections at once; more are answered with 503 `queue_full` and closed, and a flood of
    /// them only closed. Each may need two file descriptors, its own and one to an engine.
    pub max_connections: usize,
    /// The longest time for a connection to an engine to open.
    pub connect_timeout: Duration,
    /// The longest time until an engine's answer begins: for a stream, its first event.
    pub first_byte_timeout: Duration,
    /// The longest time without a byte of an answer that has begun.
    pub idle_timeout: Duration,
    /// How long an idle connection to an engine is kept: less than engines keep them (uvicorn and llama.cpp: 5 s),
    /// so that none is used that is being closed.
    pub upstream_idle: Duration,
    /// The most attempts for one call, on all replicas together.
    pub max_attempts: u32,
    /// The largest event of a stream.
    pub event_limit: Bytes,
    /// Unary answers up to this size are held until they are whole; longer ones pass as they come.
    pub answer_hold: Bytes,
    /// The longest wait for an attempt to place a model that nothing serves.
    pub activation_patience: Duration,
    /// The longest time that a call waits for a model on demand to be served.
    pub activation_deadline: Duration,
    /// Whether a streamed call that waits for a model on demand is told in comments how far it is, unless the client
    /// says `x-llmgw-progress: 0`; else only when it says `x-llmgw-progress: 1`.
    pub progress_comments: bool,
    /// The longest time between two such comments; what changes is said sooner.
    pub progress_interval: Duration,
    /// The most calls that wait for one model on demand.
    pub waiting_per_model: usize,
    /// The most calls that wait for models on demand in all.
    pub waiting: usize,
    /// The longest time that calls may go on after shutdown was asked for.
    pub drain_deadline: Duration,
    /// The longest time that usage waits to be written.
    pub journal_interval: Duration,
    /// The most usage records that are kept while the store fails.
    pub journal_limit: usize,
    /// The longest time to write what usage is left at the end.
    pub journal_farewell: Duration,
}

// === impl GatewayConfig ===

impl GatewayConfig {
    pub(super) fn head_bounds(&self) -> HeadBounds {
        HeadBounds {
            size: self.header_limit,
            count: self.header_count,
        }
    }

    pub(super) fn body_bounds(&self) -> BodyBounds {
        BodyBounds {
            limit: self.body_limit,
            timeout: self.body_read_timeout,
        }
    }

    pub(super) fn unary_bounds(&self) -> UnaryBounds {
        UnaryBounds {
            hold: usize::try_from(self.answer_hold.0).unwrap_or(usize::MAX),
            idle: self.idle_timeout,
        }
    }
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            body_limit: Bytes::mib(64),
            body_read_timeout: Duration::from_secs(30),
            header_limit: Bytes(64 << 10),
            header_count: 64,
            header_read_timeout: Duration::from_secs(30),
            client_stall_timeout: Duration::from_secs(300),
            max_connections: 4096,
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(600),
            idle_timeout: Duration::from_secs(300),
            upstream_idle: Duration::from_secs(4),
            max_attempts: 3,
            event_limit: Bytes::mib(8),
            answer_hold: Bytes::mib(1),
            activation_patience: Duration::from_secs(2),
            // Half of what clients wait by default, and enough for a model that lies on the node's disk.
            activation_deadline: Duration::from_secs(300),
            progress_comments: false,
            progress_interval: Duration::from_secs(10),
            waiting_per_model: 256,
            waiting: 1024,
            drain_deadline: Duration::from_secs(30),
            journal_interval: Duration::from_millis(200),
            journal_limit: 100_000,
            journal_farewell: Duration::from_secs(5),
        }
    }
}
