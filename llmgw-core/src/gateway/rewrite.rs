//! Edits answers while they pass: the model is called what the client called it, and usage that it did not ask
//! for is taken out.
//!
//! What OpenAI's clients see without `include_usage` is a stream without `usage`. The gateway asks the engine
//! for it all the same, so the chunk that has only usage is dropped, and a `usage` beside content (llama.cpp's
//! `/v1/completions` writes one unasked) is cut out.

mod typed;

use std::{ops::Range, sync::LazyLock};

use bytes::{Bytes, BytesMut};
use memchr::memmem;

pub(super) use self::typed::{Ending, Part};
use super::{
    dialect::{Dialect, Stream},
    json::{Mark, Member, Scanner, cut_range},
    sse::{Payload, payload},
};

/// Bytes on their way to the client. One piece alone is passed on as it is; several become one, which costs
/// less than to write them one by one.
#[derive(Debug, Default)]
pub(super) struct Output {
    alone: Bytes,
    joined: BytesMut,
}

/// Edits the events of one stream.
#[derive(Debug)]
pub(super) struct EventRewriter {
    /// The name that the client asked for, in quotes.
    model: Bytes,
    strip_usage: bool,
    dialect: &'static Dialect,
}

/// What an event was.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Seen {
    /// A comment, or data that says nothing yet.
    Other,
    /// The first chunk of a chat, which only says whose turn it is.
    Opening,
    /// Usage alone.
    Usage(Bytes),
    /// A piece of the answer.
    Content(Content),
    /// An event that says its type.
    Part(Part),
    /// The engine's error.
    Error(Bytes),
    /// `[DONE]`
    Done,
}

/// A piece of the answer.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Content {
    /// Of so many choices; at least one.
    pub(super) count: u64,
    /// The choices themselves.
    pub(super) choices: Bytes,
    /// Usage, where the engine told it along with them.
    pub(super) usage: Option<Bytes>,
}

/// Edits one JSON answer that comes in pieces.
#[derive(Debug)]
pub(super) struct AnswerRewriter {
    scanner: Scanner,
    model: Bytes,
    /// Within the engine's own value of `model`.
    skipping: bool,
    /// The value of `usage`, as far as it came.
    usage: BytesMut,
    in_usage: bool,
    /// Choices that have begun.
    choices: u64,
}

/// Where the members stand in an event's data.
#[derive(Debug, Default)]
struct Places {
    model: Range<usize>,
    usage: Range<usize>,
    choices: Range<usize>,
    error: Range<usize>,
    /// The value of `type`.
    kind: Range<usize>,
    response: Range<usize>,
    message: Range<usize>,
    /// Objects among the choices.
    count: u64,
}

// === impl EventRewriter ===

impl EventRewriter {
    /// For streams of this API.
    pub(super) fn new(dialect: &'static Dialect, model: &str, strip_usage: bool) -> Self {
        Self {
            model: quoted(model),
            strip_usage,
            dialect,
        }
    }

    /// The API of the stream.
    pub(super) fn dialect(&self) -> &'static Dialect {
        self.dialect
    }

    /// Passes an event on, as the client should see it. `[DONE]` and errors are told, not passed on.
    pub(super) fn event(&self, event: Bytes, out: &mut Output) -> Seen {
        let data = match payload(&event) {
            Payload::Nothing | Payload::Lines => {
                out.push(event);
                return Seen::Other;
            }
            Payload::Error(range) => return Seen::Error(event.slice(range)),
            Payload::Data(range) => range,
        };
        let slice =
            |range: &Range<usize>| event.slice(data.start + range.start..data.start + range.end);
        let text = event.get(data.clone()).unwrap_or_default();
        if text.trim_ascii() == b"[DONE]" {
            return match self.dialect.stream {
                Stream::Typed(typed) if !typed.done => Seen::Other,
                Stream::Chunks | Stream::Typed(_) => Seen::Done,
            };
        }
        if let Stream::Typed(typed) = self.dialect.stream {
            return self.typed_event(typed, event, data, out);
        }
        let places = Places::find(text);
        if is_told(text, &places.error) {
            return Seen::Error(event.slice(data));
        }
        let usage = is_told(text, &places.usage).then(|| slice(&places.usage));
        let choices = text.get(places.choices.clone()).unwrap_or_default();
        let has_content = choices.len() > 2 && !is_empty_array(choices);
        if let (Some(usage), true, false) = (&usage, self.strip_usage, has_content) {
            return Seen::Usage(usage.clone());
        }

        let mut edits: [(Range<usize>, &[u8]); 2] = Default::default();
        let engine_model = text.get(places.model.clone()).unwrap_or_default();
        if engine_model.starts_with(b"\"") && engine_model != self.model {
            edits[0] = (places.model, &self.model);
        }
        if self.strip_usage && !places.usage.is_empty() {
            edits[1] = (cut_range(text, "usage", places.usage), b"");
        }
        let seen = match (has_content, usage) {
            (true, None) if is_opening(choices) => Seen::Opening,
            (true, usage) => Seen::Content(Content {
                count: places.count.max(1),
                choices: slice(&places.choices),
                usage,
            }),
            (false, Some(usage)) => Seen::Usage(usage),
            (false, None) => Seen::Other,
        };
        splice(event, data.start, edits, out);
        seen
    }
}

// === impl AnswerRewriter ===

impl AnswerRewriter {
    pub(super) fn new(model: &str) -> Self {
        Self {
            scanner: Scanner::default(),
            model: quoted(model),
            skipping: false,
            usage: BytesMut::new(),
            in_usage: false,
            choices: 0,
        }
    }

    /// Choices that have begun until now.
    pub(super) fn choices(&self) -> u64 {
        self.choices
    }

    /// Passes the next piece on.
    pub(super) fn feed(&mut self, piece: Bytes, out: &mut Output) {
        let Self {
            scanner,
            model,
            skipping,
            usage,
            in_usage,
            choices,
        } = self;
        let (mut from, mut usage_from) = (0, 0);
        scanner.feed(&piece, |mark| match mark {
            Mark::Start(Member::Model, at) if piece.get(at) == Some(&b'"') => {
                out.push(piece.slice(from..at));
                out.push(model.clone());
                *skipping = true;
            }
            Mark::End(Member::Model, at) if *skipping => {
                *skipping = false;
                from = at;
            }
            Mark::Start(Member::Usage, at) => {
                usage.clear();
                *in_usage = true;
                usage_from = at;
            }
            Mark::End(Member::Usage, at) => {
                *in_usage = false;
                keep(usage, piece.get(usage_from..at).unwrap_or_default());
            }
            Mark::Element(Member::Choices, _) => *choices += 1,
            Mark::Start(..) | Mark::End(..) | Mark::Element(..) => {}
        });
        if *in_usage {
            keep(usage, piece.get(usage_from..).unwrap_or_default());
        }
        if !*skipping {
            out.push(piece.slice(from..));
        }
    }

    /// The engine's usage, once the answer has passed.
    pub(super) fn into_usage(self) -> Option<Bytes> {
        let told = !self.usage.is_empty() && self.usage.as_ref() != b"null";
        told.then(|| self.usage.freeze())
    }
}

// === impl Places ===

impl Places {
    fn find(text: &[u8]) -> Self {
        let mut places = Self::default();
        Scanner::default().feed(text, |mark| match mark {
            Mark::Start(member, at) => *places.of(member) = at..at,
            Mark::End(member, at) => places.of(member).end = at,
            Mark::Element(member, _) => {
                places.count += u64::from(member == Member::Choices);
            }
        });
        places
    }

    fn of(&mut self, member: Member) -> &mut Range<usize> {
        match member {
            Member::Model => &mut self.model,
            Member::Usage => &mut self.usage,
            Member::Choices => &mut self.choices,
            Member::Error => &mut self.error,
            Member::Type => &mut self.kind,
            Member::Response => &mut self.response,
            Member::Message => &mut self.message,
        }
    }
}

// === impl Output ===

impl Output {
    /// Adds a piece.
    pub(super) fn push(&mut self, piece: Bytes) {
        if self.is_empty() {
            self.alone = piece;
        } else {
            self.extend(&piece);
        }
    }

    /// Adds a copy of a piece.
    pub(super) fn extend(&mut self, piece: &[u8]) {
        if !self.alone.is_empty() {
            self.joined
                .extend_from_slice(&std::mem::take(&mut self.alone));
        }
        self.joined.extend_from_slice(piece);
    }

    pub(super) fn len(&self) -> usize {
        self.alone.len() + self.joined.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All that was added since the last time.
    pub(super) fn take(&mut self) -> Bytes {
        if self.joined.is_empty() {
            std::mem::take(&mut self.alone)
        } else {
            self.joined.split().freeze()
        }
    }
}

/// Passes an event on with what is to be changed in its data, which begin at `data`; an empty range is no change.
fn splice(event: Bytes, data: usize, mut edits: [(Range<usize>, &[u8]); 2], out: &mut Output) {
    if edits.iter().all(|(range, _)| range.is_empty()) {
        out.push(event);
        return;
    }
    edits.sort_by_key(|(range, _)| range.start);
    let mut from = 0;
    for (range, with) in edits.iter().filter(|(range, _)| !range.is_empty()) {
        out.extend(event.get(from..data + range.start).unwrap_or_default());
        out.extend(with);
        from = data + range.end;
    }
    out.extend(event.get(from..).unwrap_or_default());
}

fn quoted(model: &str) -> Bytes {
    // A name that was resolved has no character that JSON escapes.
    Bytes::from(format!("\"{model}\""))
}

/// Whether the member is there and not `null`.
fn is_told(text: &[u8], value: &Range<usize>) -> bool {
    let value = text.get(value.clone()).unwrap_or_default();
    !value.is_empty() && value != b"null"
}

fn is_empty_array(value: &[u8]) -> bool {
    let inner = value
        .strip_prefix(b"[")
        .and_then(|inner| inner.strip_suffix(b"]"));
    inner.is_some_and(|inner| inner.trim_ascii().is_empty())
}

/// Whether choices name a role and have no content yet. Engines send such a chunk before the first token.
fn is_opening(choices: &[u8]) -> bool {
    if ROLE.find(choices).is_none() {
        return false;
    }
    let Some(content) = memmem::find(choices, CONTENT) else {
        return true;
    };
    let value = choices.get(content + CONTENT.len()..).unwrap_or_default();
    let value = value.trim_ascii_start();
    let value = value.strip_prefix(b":").unwrap_or(value).trim_ascii_start();
    value.starts_with(b"null") || value.starts_with(b"\"\"")
}

fn keep(usage: &mut BytesMut, piece: &[u8]) {
    if usage.len() + piece.len() <= MAX_USAGE {
        usage.extend_from_slice(piece);
    }
}

/// Made once: it is looked for in every event.
static ROLE: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new(b"\"role\""));
const CONTENT: &[u8] = b"\"content\"";
/// A usage object has some hundred bytes; one that is larger is not read.
const MAX_USAGE: usize = 16 << 10;

#[cfg(test)]
mod tests;
