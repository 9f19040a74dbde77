//! What a scripted engine does with a call.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// How one call is answered.
#[derive(Clone, Debug, Default)]
pub struct Script {
    pub(super) before: Vec<Step>,
    pub(super) head: Option<Head>,
    pub(super) after: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Pause(Duration),
    Wait,
    Bytes(Bytes),
    Echo,
    Hang,
    /// Lets what was sent before go out.
    Flush,
    Abort,
}

#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
}

// === impl Script ===

impl Script {
    /// An empty script: the connection is closed without an answer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A whole JSON answer.
    #[must_use]
    pub fn json(status: u16, body: impl Into<Bytes>) -> Self {
        Self::new()
            .head(status)
            .header("content-type", "application/json")
            .bytes(body)
    }

    /// The head of a stream of events.
    #[must_use]
    pub fn events() -> Self {
        Self::new()
            .head(200)
            .header("content-type", "text/event-stream")
    }

    /// Answers with what came in.
    #[must_use]
    pub fn echo() -> Self {
        let mut script = Self::new()
            .head(200)
            .header("content-type", "application/json");
        script.after.push(Step::Echo);
        script
    }

    /// Sends the head of the answer; steps before this one happen before it.
    #[must_use]
    pub fn head(mut self, status: u16) -> Self {
        self.head = Some(Head {
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            headers: HeaderMap::new(),
        });
        self
    }

    /// Adds a header to the head; one that is none is left out.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        if let (Some(head), Ok(value)) = (&mut self.head, HeaderValue::from_str(value)) {
            head.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    /// Sends bytes, as a chunk of their own.
    #[must_use]
    pub fn bytes(self, bytes: impl Into<Bytes>) -> Self {
        self.step(Step::Bytes(bytes.into()))
    }

    /// Sends `data: {json}` as an event.
    #[must_use]
    pub fn event(self, json: &str) -> Self {
        self.bytes(format!("data: {json}\n\n"))
    }

    /// Sends the end of a stream.
    #[must_use]
    pub fn done(self) -> Self {
        self.event("[DONE]")
    }

    /// Does nothing for a while.
    #[must_use]
    pub fn pause(self, span: Duration) -> Self {
        self.step(Step::Pause(span))
    }

    /// Does nothing until [`ScriptedEngine::go`](super::ScriptedEngine::go).
    #[must_use]
    pub fn wait(self) -> Self {
        self.step(Step::Wait)
    }

    /// Does nothing any more, and keeps the connection.
    #[must_use]
    pub fn hang(self) -> Self {
        self.step(Step::Hang)
    }

    /// Breaks the connection, behind what was sent before.
    #[must_use]
    pub fn abort(self) -> Self {
        self.step(Step::Flush).step(Step::Abort)
    }

    fn step(mut self, step: Step) -> Self {
        match self.head {
            None => self.before.push(step),
            Some(_) => self.after.push(step),
        }
        self
    }
}
