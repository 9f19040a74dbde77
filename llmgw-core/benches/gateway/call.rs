//! The calls that are made: what is sent, and what the upstream answers.

use std::{fmt, net::SocketAddr};

use clap::ValueEnum;
use serde_json::json;

/// How a call is answered.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, ValueEnum)]
pub(crate) enum Mode {
    /// In one piece.
    Unary,
    /// In 22 events, written one by one without a pause.
    Sse,
    /// In 22 events, one every 10 ms.
    SsePaced,
    /// In one event, behind which the stream stays open.
    #[value(skip)]
    Held,
}

/// The calls of one mode, ready to be written.
#[derive(Clone, Debug)]
pub(crate) struct Calls(Vec<Vec<u8>>);

// === impl Mode ===

impl Mode {
    pub(crate) const ALL: [Self; 3] = [Self::Unary, Self::Sse, Self::SsePaced];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Unary => "unary",
            Self::Sse => "sse",
            Self::SsePaced => "sse-paced",
            Self::Held => "held",
        }
    }

    /// What tells the upstream, in the prompt: some proxies leave fields out.
    fn mark(self) -> &'static str {
        match self {
            Self::Unary | Self::Sse => "",
            Self::SsePaced => PACED,
            Self::Held => HELD,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

// === impl Calls ===

impl Calls {
    /// The calls to whoever listens there. They differ in the last turn of the conversation, and are alike before it.
    pub(crate) fn new(mode: Mode, host: SocketAddr) -> Self {
        let mark = mode.mark();
        let call = |number: usize| {
            let mut body = json!({
                "model": MODEL,
                "messages": [
                    {"role": "system", "content": SYSTEM},
                    {"role": "user", "content": format!("{mark}Question {number}: {QUESTION}")},
                ],
                "temperature": 0.7,
                "max_tokens": 256,
            });
            if mode != Mode::Unary {
                body["stream"] = json!(true);
            }
            let body = body.to_string();
            let length = body.len();
            // The headers of OpenAI's client for Python.
            let head = format!(
                "POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\n\
                 Accept-Encoding: identity\r\nConnection: keep-alive\r\nAccept: application/json\r\n\
                 Content-Type: application/json\r\nUser-Agent: OpenAI/Python 2.8.0\r\n\
                 X-Stainless-Lang: python\r\nX-Stainless-Package-Version: 2.8.0\r\n\
                 X-Stainless-OS: Linux\r\nX-Stainless-Arch: x64\r\nX-Stainless-Runtime: CPython\r\n\
                 X-Stainless-Runtime-Version: 3.12.3\r\nX-Stainless-Async: false\r\n\
                 x-stainless-retry-count: 0\r\nx-stainless-read-timeout: 600\r\n\
                 Authorization: Bearer {KEY}\r\nContent-Length: {length}\r\n\r\n"
            );
            [head.as_bytes(), body.as_bytes()].concat()
        };
        Self((0..DIFFERENT).map(call).collect())
    }

    /// The call of this number; they come again after a while.
    pub(crate) fn get(&self, number: usize) -> &[u8] {
        let Self(calls) = self;
        calls.get(number % calls.len()).map_or(&[], Vec::as_slice)
    }
}

/// What the upstream answers with.
#[derive(Debug)]
pub(crate) struct Answers {
    /// A whole answer.
    pub(crate) unary: Vec<u8>,
    /// The head of a stream.
    pub(crate) head: Vec<u8>,
    /// Its events, each a chunk: with usage where it is asked for, and with one more piece of text where it isn't.
    pub(crate) events: Vec<Vec<u8>>,
    pub(crate) events_with_usage: Vec<Vec<u8>>,
    /// A list of models.
    pub(crate) models: Vec<u8>,
    /// What it says of itself.
    pub(crate) info: Vec<u8>,
}

// === impl Answers ===

impl Answers {
    pub(crate) fn new() -> Self {
        let usage = json!({"prompt_tokens": 230, "completion_tokens": 19, "total_tokens": 249});
        let common = |object: &str| {
            json!({
                "id": "chatcmpl-5a3f0d1c9b7e4f26", "object": object,
                "created": 1_764_500_000, "model": MODEL,
            })
        };
        let mut whole = common("chat.completion");
        whole["choices"] = json!([{
            "index": 0,
            "message": {"role": "assistant", "content": ANSWER},
            "logprobs": null,
            "finish_reason": "stop",
        }]);
        whole["usage"] = usage.clone();
        let event = |choices: serde_json::Value| {
            let mut event = common("chat.completion.chunk");
            event["choices"] = choices;
            event
        };
        let delta = |delta: serde_json::Value, finish: serde_json::Value| json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
        let piece = || event(delta(json!({"content": " token"}), json!(null)));
        let mut told = event(json!([]));
        told["usage"] = usage;
        let stream = |before_the_end: serde_json::Value| -> Vec<Vec<u8>> {
            let role = json!({"role": "assistant", "content": ""});
            let mut events = vec![event(delta(role, json!(null)))];
            events.extend((0..EVENTS - 4).map(|_| piece()));
            if before_the_end["usage"].is_null() {
                events.push(before_the_end);
                events.push(event(delta(json!({}), json!("stop"))));
            } else {
                events.push(event(delta(json!({}), json!("stop"))));
                events.push(before_the_end);
            }
            let events = events.iter().map(|event| format!("data: {event}\n\n"));
            let done = "data: [DONE]\n\n".to_owned();
            let events = events.chain([done]);
            let chunk = |event: String| format!("{:x}\r\n{event}\r\n", event.len()).into_bytes();
            events.map(chunk).collect()
        };
        let json_answer = |body: serde_json::Value| {
            let body = body.to_string();
            let length = body.len();
            format!(
                "HTTP/1.1 200 OK\r\ndate: Tue, 01 Dec 2026 09:00:00 GMT\r\nserver: uvicorn\r\n\
                 content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            )
            .into_bytes()
        };
        Self {
            unary: json_answer(whole),
            head: b"HTTP/1.1 200 OK\r\ndate: Tue, 01 Dec 2026 09:00:00 GMT\r\nserver: uvicorn\r\n\
                content-type: text/event-stream; charset=utf-8\r\n\
                transfer-encoding: chunked\r\n\r\n"
                .to_vec(),
            events: stream(piece()),
            events_with_usage: stream(told),
            models: json_answer(json!({
                "object": "list",
                "data": [{"id": MODEL, "object": "model", "created": 1_764_500_000, "owned_by": "bench"}],
            })),
            info: json_answer(json!({
                "status": "ok", "model_path": MODEL, "served_model_name": MODEL, "tokenizer_path": MODEL,
                "is_generation": true, "tp_size": 1, "dp_size": 1, "version": "0.0.0",
                "max_total_num_tokens": 100_000, "internal_states": [],
            })),
        }
    }
}

/// Events of a stream.
pub(crate) const EVENTS: usize = 22;
pub(crate) const MODEL: &str = "bench";
pub(crate) const KEY: &str =
    "sk-llmgw-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
pub(crate) const PACED: &str = "Take your time. ";
pub(crate) const HELD: &str = "Never end. ";
const DIFFERENT: usize = 16;
const SYSTEM: &str = "You are a careful assistant of a library. Answer in plain words and short sentences. Say \
    what you know and what you do not know; never make up the title of a book, the name of an author or a year. When \
    a question has several answers, give the most likely one first and name the others in one line each. When you \
    are asked for a list, give at most five entries. Do not greet, do not repeat the question, and do not end with \
    an offer of further help. Give years as four digits, and money in the currency of the country that is asked about.";
const QUESTION: &str = "which of the long novels that were published in parts in the nineteenth century was the \
    first that readers could buy bound in one volume, who printed it, and what did it cost at the time?";
const ANSWER: &str = "Most likely The Pickwick Papers, which came out in monthly parts from 1836 and was bound in \
    one volume in 1837 by Chapman and Hall. It cost one guinea.";
