//! Bytes of others, whatever they are: what the gateway may not do with any.
//!
//! Each function takes bytes, has the parts of the gateway read them that would, and panics when one of them breaks what it
//! promises. A fuzzer calls them with what it makes up, and a test with what is usual, changed at random.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::HeaderValue;
use http_body::Body as _;
use serde_json::Value;

use super::{
    dialect::{Dialect, Stream},
    framing::{Framing, HeadBounds},
    inspect::Inspected,
    rewrite::{AnswerRewriter, EventRewriter, Output, Seen},
    splice::Spliced,
    sse::{Payload, Splitter, payload},
};
use crate::{id::ModelName, units};

/// An engine's stream: the first byte says of which API, the second where it is cut in two.
///
/// # Panics
/// When events depend on the cut, when bytes are lost, or when an event in JSON is passed on as something else.
pub fn events(bytes: &[u8]) {
    let Some((path, cut, text)) = begin(bytes) else {
        return;
    };
    let whole = split(&[text]);
    let (first, second) = text.split_at(cut % (text.len() + 1));
    assert_eq!(split(&[first, second]), whole, "a cut gives other events");
    let (events, is_over) = whole;
    assert!(text.starts_with(&events.concat()), "bytes are lost or made");
    assert!(is_over || events.concat().len() <= text.len());
    for strip in [false, true] {
        let rewriter = EventRewriter::new(path, ASKED, strip);
        for event in &events {
            passed_on(&rewriter, event);
        }
    }
}

/// An engine's whole answer: the second byte says where it is cut in two.
///
/// # Panics
/// When what is passed on, or what is read of it, depends on the cut.
pub fn answer(bytes: &[u8]) {
    let Some((_, cut, text)) = begin(bytes) else {
        return;
    };
    let whole = rewritten(&[text]);
    let (first, second) = text.split_at(cut % (text.len() + 1));
    assert_eq!(
        rewritten(&[first, second]),
        whole,
        "a cut gives another answer"
    );
    if let (Ok(before), Ok(after)) = (json(text), json(&whole.0)) {
        assert_eq!(named(before), after, "more than the model is another");
    }
}

/// A client's body: the first byte says for which API, and whether it is a form.
///
/// # Panics
/// When what the engine would get is not what the client sent, with the model's own name and the question for usage.
pub fn body(bytes: &[u8]) {
    let Some((dialect, _, text)) = begin(bytes) else {
        return;
    };
    let form = HeaderValue::from_static("multipart/form-data; boundary=x");
    let kind = (dialect.forms && form_byte(bytes)).then_some(&form);
    let Ok(inspected) = Inspected::new(Bytes::copy_from_slice(text), dialect, kind) else {
        return;
    };
    let Ok(name) = REAL.parse::<ModelName>() else {
        return;
    };
    let sent = collected(inspected.for_engine(&name));
    if kind.is_some() {
        let end = text.len().saturating_sub(inspected.model.len());
        assert_eq!(
            sent.len(),
            end + REAL.len(),
            "more than the model is another"
        );
        return;
    }
    let (Ok(Value::Object(mut before)), after) = (json(text), json(&sent)) else {
        // A number beyond what numbers are, say: it is passed on as it is.
        return;
    };
    before.insert("model".to_owned(), REAL.into());
    if dialect.stream == Stream::Chunks && inspected.stream {
        let options = before.entry("stream_options").or_insert(Value::Null);
        if options.is_null() {
            *options = Value::Object(serde_json::Map::new());
        }
        if let Value::Object(options) = options {
            options.insert("include_usage".to_owned(), true.into());
        }
    }
    let after = after.unwrap_or_default();
    assert_eq!(
        Value::Object(before),
        after,
        "more than the model and the usage is another"
    );
}

/// A client's connection: the second byte says where its bytes are cut in two.
///
/// # Panics
/// When what passes depends on the cut, is not what came, or goes on behind something that is wrong.
pub fn connection(bytes: &[u8]) {
    let Some((_, cut, text)) = begin(bytes) else {
        return;
    };
    let whole = framed(&[text]);
    let (first, second) = text.split_at(cut % (text.len() + 1));
    assert_eq!(
        framed(&[first, second]),
        whole,
        "a cut lets other bytes pass"
    );
    assert!(text.starts_with(&whole.0), "bytes are lost or made");
}

/// The API and the cut, and what is to be read.
fn begin(bytes: &[u8]) -> Option<(&'static Dialect, usize, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let (cut, text) = rest.split_first()?;
    let path = PATHS.get(usize::from(first & 0x7f) % PATHS.len())?;
    // A cut behind the first 256 bytes too.
    let cut = usize::from(*cut) * (1 + text.len() / 256);
    Some((Dialect::of(path)?, cut, text))
}

fn form_byte(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|byte| byte & 0x80 != 0)
}

/// The events of a stream that comes in these pieces, and whether one was too large.
fn split(pieces: &[&[u8]]) -> (Vec<Bytes>, bool) {
    let mut splitter = Splitter::new(LARGEST);
    let mut events = Vec::new();
    for piece in pieces {
        splitter.push(Bytes::copy_from_slice(piece));
        loop {
            match splitter.next_event() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(_) => return (events, true),
            }
        }
    }
    (events, false)
}

/// An event in JSON is passed on as JSON, under the name that was asked for.
fn passed_on(rewriter: &EventRewriter, event: &Bytes) {
    let mut out = Output::default();
    let seen = rewriter.event(event.clone(), &mut out);
    let out = out.take();
    let data = |event: &[u8]| match payload(event) {
        Payload::Data(at) => event.get(at).and_then(|data| json(data).ok()),
        _ => None,
    };
    if out.is_empty() || matches!(seen, Seen::Done | Seen::Error(_)) {
        return;
    }
    if let Some(before) = data(event) {
        let after = data(&out);
        assert!(after.is_some(), "an event in JSON becomes {out:?}");
        let was_named = before.get("model").is_some_and(Value::is_string);
        if was_named && rewriter.dialect().stream == Stream::Chunks {
            assert_eq!(
                after.and_then(|after| after.get("model").cloned()),
                Some(ASKED.into())
            );
        }
    }
}

/// An answer that comes in these pieces, as it is passed on, and what was read of it.
fn rewritten(pieces: &[&[u8]]) -> (Vec<u8>, u64, Option<Bytes>) {
    let mut rewriter = AnswerRewriter::new(ASKED);
    let mut passed = Vec::new();
    for piece in pieces {
        let mut out = Output::default();
        rewriter.feed(Bytes::copy_from_slice(piece), &mut out);
        passed.extend_from_slice(&out.take());
    }
    (passed, rewriter.choices(), rewriter.into_usage())
}

/// What passes of the bytes that come in these pieces, how many heads, and whether something was wrong.
fn framed(pieces: &[&[u8]]) -> (Vec<u8>, u64, bool) {
    let mut framing = Framing::new(HeadBounds {
        size: units::Bytes(512),
        count: 8,
    });
    let (mut passed, mut waiting) = (Vec::new(), Vec::new());
    for piece in pieces {
        waiting.extend_from_slice(piece);
        let scan = framing.scan(&waiting);
        assert!(scan.passed <= waiting.len(), "more passes than came");
        passed.extend(waiting.drain(..scan.passed));
        if scan.fault.is_some() {
            let again = framing.scan(&waiting);
            assert_eq!(again.passed, 0, "something passes behind what is wrong");
            return (passed, framing.heads(), true);
        }
    }
    (passed, framing.heads(), false)
}

fn collected(mut body: Spliced) -> Vec<u8> {
    let mut context = Context::from_waker(Waker::noop());
    let mut sent = Vec::new();
    // Its parts are there.
    while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut context) {
        sent.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
    }
    sent
}

/// A JSON text in which no member of the outermost object stands twice: which of two counts is nobody's promise.
fn json(text: &[u8]) -> Result<Value, ()> {
    let value: Value = serde_json::from_slice(text).map_err(|_| ())?;
    let twice = match &value {
        Value::Object(members) => {
            let written = serde_json::Deserializer::from_slice(text);
            let mut counted = Counted(0);
            serde::Deserializer::deserialize_map(&mut { written }, &mut counted).map_err(|_| ())?;
            counted.0 != members.len()
        }
        _ => false,
    };
    if twice { Err(()) } else { Ok(value) }
}

/// The same answer under the name that was asked for.
fn named(mut answer: Value) -> Value {
    if let Some(model) = answer.get_mut("model").filter(|model| model.is_string()) {
        *model = ASKED.into();
    }
    answer
}

/// How many members an object is written with.
struct Counted(usize);

impl<'de> serde::de::Visitor<'de> for &mut Counted {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        use serde::de::IgnoredAny;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            self.0 += 1;
        }
        Ok(())
    }
}

const ASKED: &str = "asked";
const REAL: &str = "org/real-one:7b";
const LARGEST: usize = 1 << 10;
const PATHS: [&str; 6] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/audio/transcriptions",
];
