//! Clients that stream all the time, and what came of each call.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::chance::Chance;

/// All clients.
#[derive(Debug)]
pub(crate) struct Crowd {
    calls: Arc<Mutex<Vec<Call>>>,
    clients: JoinSet<()>,
}

/// A call that is over.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// As the gateway named it; absent where it did not answer.
    pub(crate) id: Option<String>,
    /// Tokens of the prompt, and those that were asked for.
    pub(crate) prompt: u64,
    pub(crate) asked: u64,
    pub(crate) outcome: Outcome,
}

/// What came of a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// It ended in `[DONE]`, or was whole; with so many tokens.
    Whole(u64),
    /// It ended in an error event with this code, after so many tokens.
    Broken(u64, String),
    /// The client left after so many tokens.
    Left(u64),
    /// It was answered with an error.
    Refused(u16, String),
    /// It ended as nothing may.
    Wrong(String),
}

/// One client.
struct Client {
    address: String,
    key: String,
    chance: Chance,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Crowd {
    pub(crate) fn start(
        clients: usize,
        address: &str,
        keys: &[String],
        seed: u64,
        ends: &Arc<AtomicBool>,
    ) -> Self {
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let mut set = JoinSet::new();
        for number in 0..clients {
            let mut client = Client {
                address: address.to_owned(),
                key: keys
                    .get(number % keys.len().max(1))
                    .cloned()
                    .unwrap_or_default(),
                chance: Chance::new(seed ^ (number as u64 + 1).wrapping_mul(0x1234_5678_9abc)),
                connection: None,
            };
            let (calls, ends) = (Arc::clone(&calls), Arc::clone(ends));
            set.spawn(async move {
                while !ends.load(Ordering::Relaxed) {
                    let call = client.call().await;
                    let refused = matches!(call.outcome, Outcome::Refused(..));
                    lock(&calls).push(call);
                    if refused {
                        sleep(Duration::from_millis(500)).await;
                    }
                }
            });
        }
        Self {
            calls,
            clients: set,
        }
    }

    /// How many calls are over.
    pub(crate) fn over(&self) -> usize {
        lock(&self.calls).len()
    }

    /// All calls, when every client has ended its last.
    pub(crate) async fn end(mut self) -> anyhow::Result<Vec<Call>> {
        while let Some(ended) = self.clients.join_next().await {
            ended.context("a client panicked")?;
        }
        Ok(std::mem::take(&mut *lock(&self.calls)))
    }
}

impl Client {
    async fn call(&mut self) -> Call {
        let prompt = 1 + self.chance.below(200);
        let asked = 10 + self.chance.below(90);
        let is_stream = self.chance.below(20) > 0;
        let leaves_after =
            (is_stream && self.chance.below(30) == 0).then(|| self.chance.below(asked));
        let mut body = json!({
            "model": "soak",
            "messages": [{"role": "user", "content": "word ".repeat(usize::try_from(prompt).unwrap_or(1))}],
            "max_tokens": asked,
            "stream": is_stream,
            "user": if self.chance.below(2) == 0 { "running" } else { "end" },
        });
        if is_stream && self.chance.below(2) == 0 {
            body["stream_options"] = json!({"include_usage": true});
        }
        let mut id = None;
        let done = timeout(LIMIT, self.ask(&body, leaves_after, &mut id)).await;
        let outcome = match done {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => Outcome::Wrong(format!("{error:#}")),
            Err(_) => Outcome::Wrong(format!("no end after {} s", LIMIT.as_secs())),
        };
        if !matches!(outcome, Outcome::Whole(_)) {
            // What comes next must not be read as the end of this.
            self.connection = None;
        }
        Call {
            id,
            prompt,
            asked,
            outcome,
        }
    }

    async fn ask(
        &mut self,
        body: &Value,
        leaves_after: Option<u64>,
        id: &mut Option<String>,
    ) -> anyhow::Result<Outcome> {
        let request = Request::post("/v1/chat/completions")
            .header(header::HOST, &self.address)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.key))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string())))?;
        let mut connection = match self.connection.take().filter(|one| !one.is_closed()) {
            Some(connection) => connection,
            None => connect(&self.address).await?,
        };
        connection.ready().await.context("the connection")?;
        let response = connection
            .send_request(request)
            .await
            .context("no answer")?;
        let (head, mut answer) = response.into_parts();
        let given = head.headers.get("x-request-id");
        *id = given.and_then(|id| id.to_str().ok()).map(ToOwned::to_owned);
        let outcome = if head.status != 200 {
            let body = answer
                .collect()
                .await
                .context("an error's body")?
                .to_bytes();
            let body: Value = serde_json::from_slice(&body).context("an error's body")?;
            let code = body["error"]["code"]
                .as_str()
                .context("an error has no code")?;
            Outcome::Refused(head.status.as_u16(), code.to_owned())
        } else if body["stream"] == true {
            stream(&mut answer, leaves_after).await?
        } else {
            let body = answer
                .collect()
                .await
                .context("an answer's body")?
                .to_bytes();
            let body: Value = serde_json::from_slice(&body).context("an answer's body")?;
            let tokens = body["usage"]["completion_tokens"].as_u64();
            Outcome::Whole(tokens.context("an answer has no usage")?)
        };
        if matches!(outcome, Outcome::Whole(_)) {
            self.connection = Some(connection);
        }
        Ok(outcome)
    }
}

async fn connect(address: &str) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(address).await.context("connecting")?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    // It ends with its sender.
    tokio::spawn(connection);
    Ok(sender)
}

/// Reads a stream to its end, or leaves after so many tokens.
async fn stream(answer: &mut Incoming, leaves_after: Option<u64>) -> anyhow::Result<Outcome> {
    let mut text = Vec::new();
    let mut tokens = 0;
    let mut end = None;
    while let Some(frame) = answer.frame().await {
        let frame = frame.context("the stream is torn")?;
        text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        while let Some(at) = memchr::memmem::find(&text, b"\n\n") {
            let event: Vec<u8> = text.drain(..at + 2).collect();
            let event = String::from_utf8(event)?;
            let Some(data) = event.trim_end().strip_prefix("data: ") else {
                continue;
            };
            if end.is_some() {
                bail!("something comes after the end");
            }
            if data == "[DONE]" {
                end = Some(Outcome::Whole(tokens));
                continue;
            }
            let chunk: Value = serde_json::from_str(data).context("an event")?;
            if let Some(code) = chunk["error"]["code"].as_str() {
                end = Some(Outcome::Broken(tokens, code.to_owned()));
            } else if chunk["choices"][0]["delta"]["content"].is_string() {
                tokens += 1;
                let expected = format!("word{tokens} ");
                if chunk["choices"][0]["delta"]["content"] != expected {
                    bail!("token {tokens} is another");
                }
            }
            if leaves_after.is_some_and(|most| tokens > most) && end.is_none() {
                return Ok(Outcome::Left(tokens));
            }
        }
    }
    end.context("the stream ends without [DONE] and without an error event")
}

fn lock(calls: &Mutex<Vec<Call>>) -> std::sync::MutexGuard<'_, Vec<Call>> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A hundred tokens take ten seconds; waiting for an engine takes more.
const LIMIT: Duration = Duration::from_secs(120);
