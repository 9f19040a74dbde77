//! Calls of APIs that engines don't speak, put into those that they do; and the answers put back.
//!
//! Everything here is pure: a [`Translation`] makes another body of a body, and remembers in a [`Reply`] what the answer
//! needs; an [`Interpreter`] makes another answer of an answer, chunk by chunk or whole. The call itself goes through the
//! same stages as any other.

mod chat;
mod messages;
mod ollama;
mod responses;

use std::fmt;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;

pub(super) use self::ollama::Ollama;
use super::{
    dialect::{Dialect, ErrorShape},
    inspect::not_json,
    refusal::Refusal,
    rewrite::Output,
};
use crate::{clock::Timestamp, error::Code};

/// An API that is put into another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Translation {
    /// One of Ollama's.
    Ollama(Ollama),
    /// Anthropic's Messages.
    Messages,
    /// OpenAI's Responses.
    Responses,
}

/// A call as an engine understands it.
#[derive(Debug)]
pub(super) struct Translated {
    pub(super) text: Bytes,
    /// The API that it is in now.
    pub(super) dialect: &'static Dialect,
    pub(super) reply: Reply,
}

/// The model, the path and the body of a call that was translated.
type Made = (String, &'static str, Value);

/// What an answer is put back with.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    translation: Translation,
    /// The form of the client's errors.
    pub(super) errors: ErrorShape,
    /// The model as the client calls it.
    model: String,
    /// When the call came in.
    at: Timestamp,
    since: Instant,
}

/// Puts one answer back.
///
/// An answer comes in chunks, each of which is the JSON of one event, and then ends; or it comes whole.
pub(super) trait Interpreter: fmt::Debug + Send {
    /// The next chunk.
    ///
    /// # Errors
    /// When it is not what the API has.
    fn chunk(&mut self, chunk: &[u8], out: &mut Output) -> serde_json::Result<()>;

    /// The stream ended as it should.
    fn end(&mut self, out: &mut Output);

    /// The answer in one piece.
    ///
    /// # Errors
    /// When it is not what the API has.
    fn whole(&mut self, answer: &[u8]) -> serde_json::Result<String>;
}

// === impl Translation ===

impl Translation {
    /// Translates a call that came in at this time.
    pub(super) fn request(
        self,
        text: &[u8],
        errors: ErrorShape,
        at: Timestamp,
    ) -> Result<Translated, Refusal> {
        let (model, path, body) = match self {
            Self::Ollama(route) => route.request(text),
            Self::Messages => messages::request(text),
            Self::Responses => responses::request(text),
        }?;
        let Some(dialect) = Dialect::of(path) else {
            return Err(Refusal::new(Code::Internal, "an API is put into none"));
        };
        Ok(Translated {
            text: body.to_string().into(),
            dialect,
            reply: Reply {
                translation: self,
                errors,
                model,
                at,
                since: Instant::now(),
            },
        })
    }
}

// === impl Reply ===

impl Reply {
    /// Puts one answer back.
    pub(super) fn interpreter(&self) -> Box<dyn Interpreter> {
        match self.translation {
            Translation::Ollama(route) => {
                route.interpreter(self.model.clone(), self.at, self.since)
            }
            Translation::Messages => Box::new(messages::Answer::new(self.model.clone())),
            Translation::Responses => Box::new(responses::Answer::new(self.model.clone(), self.at)),
        }
    }

    /// The content type of a stream.
    pub(super) fn stream_kind(&self) -> &'static str {
        match self.errors {
            ErrorShape::Ollama => "application/x-ndjson",
            _ => "text/event-stream",
        }
    }
}

/// What an engine gets that answers in what is no JSON of its API.
pub(super) fn unreadable(error: &serde_json::Error) -> Refusal {
    let message = format!("the engine's answer can't be read: {error}");
    Refusal::new(Code::UpstreamError, message)
}

fn read<'a, T: serde::Deserialize<'a>>(text: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(text).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => Refusal::new(
            Code::InvalidRequest,
            format!("the body is not right: {error}"),
        ),
        _ => not_json(&error),
    })
}

fn missing(field: &'static str) -> Refusal {
    let message = format!("the body has no {field:?}");
    Refusal::new(Code::MissingField, message).with_param(field)
}
