//! What the gateway knows of each API that clients speak: one value per path, read by the stages.
//!
//! A call passes as it is, whatever its API: only where its model, its usage, its end and its errors stand differs, and
//! that is written here and nowhere else.

use super::{
    json::Member,
    translate::{Ollama, Translation},
};

/// One route of one API.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Dialect {
    /// Where clients send such calls, and where engines take them.
    pub(super) path: &'static str,
    /// The form of its errors.
    pub(super) errors: ErrorShape,
    /// The form of its streams.
    pub(super) stream: Stream,
    /// What its answers are.
    pub(super) yields: Yields,
    /// Whether a body may be a form instead of JSON.
    pub(super) forms: bool,
    /// How it is put into another API, because engines don't speak this one.
    pub(super) translation: Option<Translation>,
    /// The same for engines that have not this API, where most have.
    pub(super) otherwise: Option<Translation>,
}

/// The form in which clients of an API read errors.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ErrorShape {
    /// `{"error": {"message", "type", "param", "code"}}`, in a stream too.
    OpenAi,
    /// The same; in a stream, an event `error` of the Responses API.
    Responses,
    /// `{"type": "error", "error": {"type", "message"}}`
    Anthropic,
    /// `{"error": message}`; in a stream, a line of that.
    Ollama,
}

/// The form of a stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stream {
    /// Chunks with `choices` until `[DONE]`; usage is told when it is asked for.
    Chunks,
    /// Events whose data say their type.
    Typed(&'static Typed),
}

/// The types of events in a stream.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Typed {
    /// The member of some events that is the answer as far as it is known: it has the model and the usage.
    pub(super) holder: Option<Member>,
    /// Events with a piece of content end so.
    pub(super) deltas: &'static [&'static str],
    /// The last event of a stream that is whole.
    pub(super) ends: &'static [&'static str],
    /// The last event of a stream that the engine gave up.
    pub(super) fails: &'static [&'static str],
    /// Whether `[DONE]` may be the end as well; else it is none of the API's, and is left out.
    pub(super) done: bool,
}

/// What an answer is, and so what it costs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Yields {
    /// Text, token by token.
    Text,
    /// Numbers for each input: only the prompt has tokens.
    Numbers,
    /// A count of tokens, which uses none.
    Count,
    /// Sound, pictures, or what was said: counted in calls, and in tokens where the engine says some.
    Media,
}

// === impl Dialect ===

impl Dialect {
    /// The API that is spoken on a path.
    pub(super) fn of(path: &str) -> Option<&'static Self> {
        DIALECTS.iter().find(|dialect| dialect.path == path)
    }

    const fn chunks(path: &'static str) -> Self {
        Self {
            path,
            errors: ErrorShape::OpenAi,
            stream: Stream::Chunks,
            yields: Yields::Text,
            forms: false,
            translation: None,
            otherwise: None,
        }
    }

    const fn numbers(path: &'static str) -> Self {
        Self {
            yields: Yields::Numbers,
            ..Self::chunks(path)
        }
    }

    const fn ollama(path: &'static str, route: Ollama) -> Self {
        Self {
            errors: ErrorShape::Ollama,
            translation: Some(Translation::Ollama(route)),
            ..Self::chunks(path)
        }
    }

    const fn media(path: &'static str) -> Self {
        Self {
            stream: Stream::Typed(&MEDIA),
            yields: Yields::Media,
            forms: true,
            ..Self::chunks(path)
        }
    }
}

// === impl ErrorShape ===

impl ErrorShape {
    /// The form for a call to this path, also where there is nothing.
    pub(super) fn of(path: &str) -> Self {
        match path {
            "/v1/responses" => Self::Responses,
            _ if path.starts_with("/v1/messages") => Self::Anthropic,
            _ if path.starts_with("/api/") => Self::Ollama,
            _ => Self::OpenAi,
        }
    }
}

// === impl Yields ===

impl Yields {
    /// Whether answers have tokens, each of which is made.
    pub(super) fn is_text(self) -> bool {
        self == Self::Text
    }

    /// Whether an answer may come in events.
    pub(super) fn may_stream(self) -> bool {
        matches!(self, Self::Text | Self::Media)
    }
}

static DIALECTS: [Dialect; 17] = [
    Dialect::chunks("/v1/chat/completions"),
    Dialect::chunks("/v1/completions"),
    Dialect::numbers(EMBEDDINGS),
    Dialect::numbers("/v1/rerank"),
    Dialect {
        errors: ErrorShape::Responses,
        stream: Stream::Typed(&RESPONSES),
        otherwise: Some(Translation::Responses),
        ..Dialect::chunks("/v1/responses")
    },
    Dialect {
        errors: ErrorShape::Anthropic,
        stream: Stream::Typed(&MESSAGES),
        otherwise: Some(Translation::Messages),
        ..Dialect::chunks("/v1/messages")
    },
    Dialect {
        errors: ErrorShape::Anthropic,
        yields: Yields::Count,
        ..Dialect::chunks("/v1/messages/count_tokens")
    },
    Dialect::ollama("/api/chat", Ollama::Chat),
    Dialect::ollama("/api/generate", Ollama::Generate),
    Dialect::ollama("/api/embed", Ollama::Embed),
    Dialect::ollama("/api/embeddings", Ollama::Embeddings),
    Dialect::media("/v1/audio/transcriptions"),
    Dialect::media("/v1/audio/translations"),
    Dialect::media("/v1/audio/speech"),
    Dialect::media("/v1/images/generations"),
    Dialect::media("/v1/images/edits"),
    Dialect::media("/v1/images/variations"),
];

static RESPONSES: Typed = Typed {
    holder: Some(Member::Response),
    deltas: &[".delta"],
    ends: &["response.completed", "response.incomplete"],
    fails: &["response.failed", "response.cancelled"],
    done: false,
};

static MESSAGES: Typed = Typed {
    holder: Some(Member::Message),
    deltas: &["content_block_delta"],
    ends: &["message_stop"],
    fails: &[],
    done: false,
};

static MEDIA: Typed = Typed {
    holder: None,
    deltas: &[".delta", ".partial_image"],
    ends: &[
        "transcript.text.done",
        "speech.audio.done",
        "image_generation.completed",
        "image_edit.completed",
    ],
    fails: &[],
    done: true,
};

/// The one API whose answers may have to be put into another form.
pub(super) const EMBEDDINGS: &str = "/v1/embeddings";
