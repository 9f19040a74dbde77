//! One streamed call, timed; and many of them at the same time.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use llmgw_core::{admin_client, error::Chain, id::ModelName};
use reqwest::{Client, Response, header::AUTHORIZATION};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use super::sweep::{Answered, Level};
use crate::failure::{Cause, Failure};

/// The gateway that is measured.
#[derive(Clone, Debug)]
pub(super) struct Gateway {
    client: Client,
    url: String,
    authorization: Option<String>,
}

/// What each call asks for.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) model: ModelName,
    pub(super) prompt_tokens: u32,
    pub(super) answer_tokens: u32,
}

/// One event of a stream, as far as it is looked at.
#[derive(Debug, Deserialize)]
struct Event {
    #[serde(default)]
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Delta,
}

#[derive(Debug, Default, Deserialize)]
struct Delta {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    reasoning_content: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Usage {
    completion_tokens: u64,
}

/// What a stream has said so far.
#[derive(Debug, Default)]
struct Heard {
    first: Option<Duration>,
    events: u64,
    told: Option<u64>,
    done: bool,
}

// === impl Gateway ===

impl Gateway {
    pub(super) fn new(url: &str, key: Option<&str>) -> Result<Self, Failure> {
        let client = Client::builder()
            .tls_backend_preconfigured(admin_client::tls(url)?)
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(SILENCE)
            .pool_max_idle_per_host(2_048)
            .build()
            .map_err(|error| Failure::new(Cause::Usage, Chain(&error).to_string()))?;
        Ok(Self {
            client,
            url: format!("{}/v1/chat/completions", url.trim_end_matches('/')),
            authorization: key.map(|key| format!("Bearer {key}")),
        })
    }

    /// So many calls at the same time for `span`, and until each caller was answered once.
    pub(super) async fn level(&self, work: &Work, concurrency: u32, span: Duration) -> Level {
        let begun = Instant::now();
        let mut callers = JoinSet::new();
        for _ in 0..concurrency {
            let (gateway, work) = (self.clone(), work.clone());
            callers.spawn(async move {
                let mut outcomes = Vec::new();
                loop {
                    let number = CALLS.fetch_add(1, Ordering::Relaxed);
                    let outcome = gateway.call(&work, number).await;
                    let failed = outcome.is_err();
                    outcomes.push(outcome);
                    if failed || begun.elapsed() >= span {
                        return outcomes;
                    }
                }
            });
        }
        let (mut answered, mut failed) = (Vec::new(), Vec::new());
        while let Some(outcomes) = callers.join_next().await {
            for outcome in outcomes.unwrap_or_default() {
                match outcome {
                    Ok(call) => answered.push(call),
                    Err(problem) => failed.push(problem),
                }
            }
        }
        Level::of(concurrency, &answered, &failed, begun.elapsed())
    }

    /// One call.
    pub(super) async fn call(&self, work: &Work, number: u64) -> Result<Answered, String> {
        let begun = Instant::now();
        let mut request = self.client.post(&self.url).json(&work.body(number));
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let response = request
            .send()
            .await
            .map_err(|error| Chain(&error.without_url()).to_string())?;
        if !response.status().is_success() {
            return Err(refusal(response).await);
        }
        let heard = listen(response, begun).await?;
        let first_token = heard.first.ok_or("the answer had no content")?;
        Ok(Answered {
            first_token,
            duration: begun.elapsed(),
            tokens: heard.told.unwrap_or(heard.events),
        })
    }
}

// === impl Work ===

impl Work {
    fn body(&self, number: u64) -> Value {
        json!({
            "model": self.model,
            "messages": [{"role": "user", "content": prompt(self.prompt_tokens, number)}],
            "max_tokens": self.answer_tokens,
            // llama.cpp, vLLM and SGLang know it: answers of one length can be compared.
            "ignore_eos": true,
            "temperature": 0.0,
            "stream": true,
            "stream_options": {"include_usage": true},
        })
    }
}

/// A text of about so many tokens that begins like no other.
fn prompt(tokens: u32, number: u64) -> String {
    // Common English words are a token each, with the space before them.
    const WORDS: [&str; 8] = [
        "river", "stone", "light", "house", "green", "music", "water", "night",
    ];
    let mut text = format!("Note {number}. Go on with this text:");
    let mut place = usize::try_from(number % 8).unwrap_or(0);
    for step in 0..tokens.saturating_sub(12) {
        place = (place * 5 + usize::try_from(step % 7).unwrap_or(0) + 1) % WORDS.len();
        text.push(' ');
        text.push_str(WORDS.get(place).copied().unwrap_or("river"));
    }
    text
}

async fn refusal(response: Response) -> String {
    let status = response.status();
    let body: Option<Value> = response.json().await.ok();
    let message = body
        .as_ref()
        .and_then(|body| body["error"]["message"].as_str());
    match message {
        Some(message) => format!("{status}: {message}"),
        None => status.to_string(),
    }
}

/// Reads a stream to its end.
async fn listen(mut response: Response, begun: Instant) -> Result<Heard, String> {
    let mut heard = Heard::default();
    let mut line = Vec::new();
    loop {
        let chunk = response.chunk().await;
        let Some(chunk) = chunk.map_err(|error| Chain(&error.without_url()).to_string())? else {
            break;
        };
        for byte in chunk {
            if byte != b'\n' {
                if line.len() >= MAX_LINE {
                    return Err(format!(
                        "a line of the stream is longer than {MAX_LINE} bytes"
                    ));
                }
                line.push(byte);
                continue;
            }
            heard.take_in(&line, begun)?;
            line.clear();
        }
    }
    if heard.done {
        Ok(heard)
    } else {
        Err("the stream broke off".to_owned())
    }
}

// === impl Heard ===

impl Heard {
    fn take_in(&mut self, line: &[u8], begun: Instant) -> Result<(), String> {
        let Some(data) = line.strip_prefix(b"data:") else {
            return Ok(());
        };
        let data = data.trim_ascii();
        if data == b"[DONE]" {
            self.done = true;
            return Ok(());
        }
        let event: Event =
            serde_json::from_slice(data).map_err(|error| format!("an event: {error}"))?;
        if let Some(error) = event.error {
            let message = error["message"].as_str().unwrap_or("without a message");
            return Err(format!("the stream ended in an error: {message}"));
        }
        let has_content = event.choices.iter().any(|choice| {
            let texts = [&choice.delta.content, &choice.delta.reasoning_content];
            texts.into_iter().flatten().any(|text| !text.is_empty())
        });
        if has_content {
            self.events += 1;
            self.first.get_or_insert_with(|| begun.elapsed());
        }
        if let Some(usage) = event.usage {
            self.told = Some(usage.completion_tokens);
        }
        Ok(())
    }
}

/// Numbers calls, so that no two prompts begin alike.
static CALLS: AtomicU64 = AtomicU64::new(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// As long as the gateway itself waits for an engine's first byte.
const SILENCE: Duration = Duration::from_secs(600);
const MAX_LINE: usize = 1 << 20;
