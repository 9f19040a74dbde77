//! Stage 2, inspect: reads the body, within its limit, and finds what the gateway must know of it.
//!
//! The body is checked to be JSON and is then left as it is: `model` and `stream_options` are edited by their
//! place in the text, nothing is written anew. One of these members standing twice is refused, because engines
//! differ in which one counts, and then the accounts would name another model than the one that answered. So are
//! `stream_options` of which nobody can say whether they ask for usage: the accounts go by it.

mod body;
mod form;

use std::{fmt, hash::RandomState, ops::Range};

use bytes::Bytes;
use http::HeaderValue;
use serde::{
    Deserialize,
    de::{self, IgnoredAny},
};
use serde_json::value::RawValue;

pub(super) use self::body::{BodyBounds, discard, read};
use crate::{
    error::Code,
    gateway::{
        dialect::{Dialect, EMBEDDINGS, ErrorShape, Stream, Yields},
        prompt::Prompt,
        refusal::Refusal,
        splice::{Edit, Spliced},
        translate::{Reply, Translated},
    },
    id::ModelName,
};

/// A checked request.
#[derive(Debug)]
pub(super) struct Inspected {
    text: Bytes,
    /// The API that the engine is spoken to in.
    pub(super) dialect: &'static Dialect,
    /// The form of the client's errors.
    pub(super) errors: ErrorShape,
    /// How answers are put back, when the client speaks another API.
    pub(super) reply: Option<Reply>,
    /// The body is a form of this kind, and no JSON.
    pub(super) form: Option<HeaderValue>,
    /// The model as the client calls it.
    pub(super) model: String,
    model_at: Range<usize>,
    /// Answers that the client wants for each prompt.
    pub(super) n: u64,
    /// The most tokens that each of them may have, when the client says so.
    pub(super) max_tokens: Option<u64>,
    /// Whether the answer is to come in events.
    pub(super) stream: bool,
    /// Whether the client wants vectors as base64 of their numbers.
    pub(super) base64: bool,
    /// Whether the client asked for the usage of a stream.
    pub(super) asked_usage: bool,
    /// Makes the engine tell the usage.
    ask_usage: Option<Edit>,
    /// Where the prompt stands, in the order in which chat templates put its parts.
    prompt_at: Vec<Range<usize>>,
    /// What the guard takes out of it.
    taken_out: Vec<Edit>,
}

// === impl Inspected ===

impl Inspected {
    /// Checks a body, of which the client says that it is of this kind.
    pub(super) fn new(
        text: Bytes,
        dialect: &'static Dialect,
        kind: Option<&HeaderValue>,
    ) -> Result<Self, Refusal> {
        match kind.filter(|kind| dialect.forms && form::is_form(kind)) {
            Some(kind) => Self::of_form(text, dialect, kind),
            None => Self::of_json(text, dialect),
        }
    }

    /// Checks a call that was translated.
    pub(super) fn of_translated(translated: Translated) -> Result<Self, Refusal> {
        let Translated {
            text,
            dialect,
            reply,
        } = translated;
        Ok(Self {
            errors: reply.errors,
            reply: Some(reply),
            // What is put back may need all that the engine says.
            asked_usage: true,
            ..Self::new(text, dialect, None)?
        })
    }

    fn of_form(
        text: Bytes,
        dialect: &'static Dialect,
        kind: &HeaderValue,
    ) -> Result<Self, Refusal> {
        let fields = form::read(&text, kind)?;
        let value = |at: &Range<usize>| text.get(at.clone()).unwrap_or_default();
        let Some(model_at) = fields.model else {
            return Err(
                Refusal::new(Code::MissingField, "the form has no \"model\"").with_param("model"),
            );
        };
        let model = String::from_utf8(value(&model_at).to_vec()).map_err(|_| {
            Refusal::new(Code::InvalidRequest, "\"model\" is not UTF-8").with_param("model")
        })?;
        let stream = fields.stream.is_some_and(|at| value(&at) == b"true");
        Ok(Self {
            dialect,
            errors: dialect.errors,
            reply: None,
            form: Some(kind.clone()),
            model,
            model_at,
            n: 1,
            max_tokens: Some(0),
            stream,
            base64: false,
            asked_usage: true,
            ask_usage: None,
            prompt_at: Vec::new(),
            taken_out: Vec::new(),
            text,
        })
    }

    fn of_json(text: Bytes, dialect: &'static Dialect) -> Result<Self, Refusal> {
        let json = str::from_utf8(&text).map_err(|error| {
            let at = error.valid_up_to();
            Refusal::new(
                Code::InvalidJson,
                format!("the body is not UTF-8 at byte {at}"),
            )
        })?;
        let members: Members<'_> = serde_json::from_str(json).map_err(|error| not_json(&error))?;
        if let Some(name) = members.twice {
            return Err(Refusal::new(
                Code::InvalidRequest,
                format!("{name:?} stands twice in the body"),
            )
            .with_param(name));
        }
        let Some(model) = members.model else {
            return Err(
                Refusal::new(Code::MissingField, "the body has no \"model\"").with_param("model"),
            );
        };
        let model_at = place(json, model);
        let model: String = serde_json::from_str(model.get()).map_err(|_| {
            Refusal::new(Code::InvalidRequest, "\"model\" must be a text").with_param("model")
        })?;
        let yields = dialect.yields;
        let stream = yields.may_stream() && members.stream.is_some_and(|raw| raw.get() == "true");
        let (asked_usage, ask_usage) = match dialect.stream {
            Stream::Chunks if stream => usage_edit(json, members.stream_options, model_at.end)?,
            // Usage is not told beside an answer's end, but in it.
            Stream::Typed(_) => (true, None),
            Stream::Chunks => (false, None),
        };
        let base64 = members
            .encoding_format
            .is_some_and(|raw| raw.get() == "\"base64\"");
        Ok(Self {
            dialect,
            errors: dialect.errors,
            reply: None,
            form: None,
            model,
            model_at,
            n: members
                .n
                .and_then(|raw| raw.get().parse().ok())
                .unwrap_or(1),
            max_tokens: match yields {
                Yields::Text => members.max_tokens.and_then(|raw| raw.get().parse().ok()),
                Yields::Numbers | Yields::Count | Yields::Media => Some(0),
            },
            stream,
            base64: base64 && dialect.path == EMBEDDINGS,
            asked_usage,
            ask_usage,
            prompt_at: [
                members.tools,
                members.system,
                members.turns,
                members.documents,
            ]
            .into_iter()
            .filter(|_| yields != Yields::Count)
            .flatten()
            .map(|part| place(json, part))
            .collect(),
            taken_out: Vec::new(),
            text,
        })
    }

    /// The body as it came, when it is JSON.
    pub(super) fn json(&self) -> Option<&[u8]> {
        self.form.is_none().then_some(&self.text)
    }

    /// Changes parts of the prompt; no two overlap.
    pub(super) fn take_out(&mut self, parts: Vec<Edit>) {
        self.taken_out = parts;
    }

    /// The body as it goes on in another API: as it came, without what the guard takes out.
    pub(super) fn text(&self) -> Bytes {
        let mut edits = self.taken_out.clone();
        edits.sort_by_key(|edit| edit.range.start);
        Spliced::new(&self.text, &edits).into_whole()
    }

    /// About how many tokens the prompt has.
    pub(super) fn prompt_tokens(&self) -> u64 {
        let bytes = self.prompt_at.iter().map(|at| at.len() as u64).sum();
        Prompt::tokens_of(bytes)
    }

    /// The prompt for this model, as the balance between replicas sees it.
    pub(super) fn prompt(&self, key: &RandomState, model: &ModelName) -> Prompt {
        // Without the bracket at their end, the turns of a conversation begin with all turns before.
        let parts = self.prompt_at.iter().filter_map(|at| {
            let part = self.text.get(at.clone())?;
            Some(part.strip_suffix(b"]").unwrap_or(part))
        });
        Prompt::read(key, model, parts)
    }

    /// The body as the engine gets it, which knows the model as `name`.
    pub(super) fn for_engine(&self, name: &ModelName) -> Spliced {
        let mut edits = Vec::with_capacity(2);
        if !self.names(name) {
            edits.push(Edit {
                range: self.model_at.clone(),
                with: Bytes::from(match self.form {
                    None => format!("\"{name}\""),
                    Some(_) => name.to_string(),
                }),
            });
        }
        edits.extend(self.ask_usage.clone());
        edits.extend(self.taken_out.iter().cloned());
        edits.sort_by_key(|edit| edit.range.start);
        Spliced::new(&self.text, &edits)
    }

    /// Whether the body names this model, and writes it as it is.
    fn names(&self, name: &ModelName) -> bool {
        let written = self.text.get(self.model_at.clone()).unwrap_or_default();
        if self.form.is_some() {
            return written == name.as_str().as_bytes();
        }
        written
            .strip_prefix(b"\"")
            .and_then(|written| written.strip_suffix(b"\""))
            == Some(name.as_str().as_bytes())
    }
}

/// Whether the client asked for usage, and the edit that asks for it when it did not.
fn usage_edit(
    json: &str,
    options: Option<&RawValue>,
    after_model: usize,
) -> Result<(bool, Option<Edit>), Refusal> {
    let ask = |range: Range<usize>, with: &'static str| {
        let with = Bytes::from_static(with.as_bytes());
        Ok((false, Some(Edit { range, with })))
    };
    let Some(options) = options else {
        let with = ",\"stream_options\":{\"include_usage\":true}";
        return ask(after_model..after_model, with);
    };
    if options.get() == "null" {
        return ask(place(json, options), "{\"include_usage\":true}");
    }
    let read: Options<'_> = serde_json::from_str(options.get()).map_err(|_| {
        let message = if options.get().starts_with('{') {
            "\"stream_options\" has a key that is not Unicode"
        } else {
            "\"stream_options\" must be an object"
        };
        Refusal::new(Code::InvalidRequest, message).with_param("stream_options")
    })?;
    if read.twice {
        let message = "\"include_usage\" stands twice in \"stream_options\"";
        return Err(Refusal::new(Code::InvalidRequest, message).with_param(INCLUDE_USAGE));
    }
    match read.include_usage {
        Some(raw) if raw.get() == "true" => Ok((true, None)),
        Some(raw) if matches!(raw.get(), "false" | "null") => ask(place(json, raw), "true"),
        Some(_) => {
            let message = "\"stream_options.include_usage\" must be true or false";
            Err(Refusal::new(Code::InvalidRequest, message).with_param(INCLUDE_USAGE))
        }
        None => {
            let at = place(json, options).start + 1;
            let with = if read.is_empty {
                "\"include_usage\":true"
            } else {
                "\"include_usage\":true,"
            };
            ask(at..at, with)
        }
    }
}

/// Where a value that was borrowed from `json` stands in it.
fn place(json: &str, value: &RawValue) -> Range<usize> {
    let start = value.get().as_ptr().addr() - json.as_ptr().addr();
    start..start + value.get().len()
}

pub(super) fn not_json(error: &serde_json::Error) -> Refusal {
    let (line, column) = (error.line(), error.column());
    let what = match error.classify() {
        serde_json::error::Category::Data => "the body must be a JSON object".to_owned(),
        // The parser's own words quote nothing of the text; its position is cut off, ours is said once.
        _ => {
            let words = error.to_string();
            let words = words.split(" at line ").next().unwrap_or_default();
            format!("the body is not JSON at line {line}, column {column}: {words}")
        }
    };
    Refusal::new(Code::InvalidJson, what)
}

/// The members of the outermost object that matter, unread.
#[derive(Default)]
struct Members<'a> {
    model: Option<&'a RawValue>,
    stream: Option<&'a RawValue>,
    stream_options: Option<&'a RawValue>,
    n: Option<&'a RawValue>,
    max_tokens: Option<&'a RawValue>,
    tools: Option<&'a RawValue>,
    /// The system prompt, where it stands apart from the turns.
    system: Option<&'a RawValue>,
    /// Messages, a prompt, an input, a query.
    turns: Option<&'a RawValue>,
    /// What a query is compared with.
    documents: Option<&'a RawValue>,
    encoding_format: Option<&'a RawValue>,
    /// One of them that stands twice.
    twice: Option<&'static str>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Name {
    Model,
    Stream,
    StreamOptions,
    N,
    MaxTokens,
    MaxCompletionTokens,
    MaxOutputTokens,
    Tools,
    System,
    Instructions,
    Messages,
    Prompt,
    Input,
    Query,
    Documents,
    EncodingFormat,
    #[serde(other)]
    Other,
}

/// What `stream_options` say of usage.
struct Options<'a> {
    include_usage: Option<&'a RawValue>,
    /// It stands there twice.
    twice: bool,
    /// Nothing stands there at all.
    is_empty: bool,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum OptionName {
    IncludeUsage,
    #[serde(other)]
    Other,
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Members::default();
                while let Some(name) = map.next_key()? {
                    let (slot, name) = match name {
                        Name::Model => (&mut members.model, "model"),
                        Name::Stream => (&mut members.stream, "stream"),
                        Name::StreamOptions => (&mut members.stream_options, "stream_options"),
                        Name::N => (&mut members.n, "n"),
                        // These are only guessed by; which of two counts is for the engine to say.
                        Name::MaxTokens | Name::MaxCompletionTokens | Name::MaxOutputTokens => {
                            members.max_tokens = Some(map.next_value()?);
                            continue;
                        }
                        Name::Tools => {
                            members.tools = Some(map.next_value()?);
                            continue;
                        }
                        Name::System | Name::Instructions => {
                            members.system = Some(map.next_value()?);
                            continue;
                        }
                        Name::Messages | Name::Prompt | Name::Input | Name::Query => {
                            members.turns = Some(map.next_value()?);
                            continue;
                        }
                        Name::Documents => {
                            members.documents = Some(map.next_value()?);
                            continue;
                        }
                        Name::EncodingFormat => {
                            members.encoding_format = Some(map.next_value()?);
                            continue;
                        }
                        Name::Other => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    if slot.replace(map.next_value()?).is_some() {
                        members.twice = Some(name);
                    }
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(Visitor)
    }
}

impl<'de> Deserialize<'de> for Options<'de> {
    /// Reads an object alone: what is derived would take an array for one.
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Options<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut options = Options {
                    include_usage: None,
                    twice: false,
                    is_empty: true,
                };
                while let Some(name) = map.next_key()? {
                    options.is_empty = false;
                    match name {
                        OptionName::IncludeUsage => {
                            let value = map.next_value()?;
                            options.twice |= options.include_usage.replace(value).is_some();
                        }
                        OptionName::Other => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(options)
            }
        }

        deserializer.deserialize_map(Visitor)
    }
}

const INCLUDE_USAGE: &str = "stream_options.include_usage";

#[cfg(test)]
mod tests;
