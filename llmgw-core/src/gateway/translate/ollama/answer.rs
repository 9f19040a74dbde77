//! Answers of Ollama: one JSON object a line, the last of which is `done`.

use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    clock::Timestamp,
    gateway::{
        rewrite::Output,
        translate::{
            Interpreter,
            chat::{Choice, Chunk, Delta, Timings, ToolCall, ToolCalls, Usage},
        },
    },
};

/// Which of both answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    Chat,
    Generate,
}

/// Puts chat completions into lines.
#[derive(Debug)]
pub(super) struct Answer {
    form: Form,
    model: String,
    at: Timestamp,
    since: Instant,
    /// When the first piece came.
    first: Option<Instant>,
    finish: Option<String>,
    usage: Option<Usage>,
    timings: Option<Timings>,
    tools: ToolCalls,
}

#[derive(Serialize)]
struct Line<'a> {
    model: &'a str,
    created_at: String,
    #[serde(flatten)]
    said: Said,
    done: bool,
    #[serde(flatten)]
    last: Option<Last>,
}

/// What a line says.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Said {
    Message(Message),
    #[serde(untagged)]
    Response {
        response: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        thinking: Option<String>,
    },
}

#[derive(Serialize)]
struct Message {
    role: &'static str,
    content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Value>,
}

/// What the last line has.
#[derive(Serialize)]
struct Last {
    done_reason: String,
    /// In nanoseconds, as all durations of this API.
    total_duration: u64,
    #[serde(flatten)]
    counts: Option<Counts>,
}

#[derive(Serialize)]
struct Counts {
    prompt_eval_count: u64,
    prompt_eval_duration: u64,
    eval_count: u64,
    eval_duration: u64,
}

// === impl Answer ===

impl Answer {
    pub(super) fn new(form: Form, model: String, at: Timestamp, since: Instant) -> Self {
        Self {
            form,
            model,
            at,
            since,
            first: None,
            finish: None,
            usage: None,
            timings: None,
            tools: ToolCalls::default(),
        }
    }

    /// Takes what a chunk says, and gives what of it is said at once.
    fn take(&mut self, chunk: &[u8]) -> serde_json::Result<(String, Option<String>)> {
        let mut chunk: Chunk = serde_json::from_slice(chunk)?;
        self.usage = chunk.usage.or(self.usage);
        self.timings = chunk.timings.or(self.timings);
        let Some(choice) = chunk.first() else {
            return Ok((String::new(), None));
        };
        self.first.get_or_insert_with(Instant::now);
        let Choice {
            delta,
            text,
            finish_reason,
            index: _,
        } = choice;
        self.finish = finish_reason.or_else(|| self.finish.take());
        let Delta {
            content,
            reasoning_content,
            tool_calls,
        } = delta.unwrap_or_default();
        self.tools.add(tool_calls.unwrap_or_default());
        let thinking = reasoning_content.filter(|text| !text.is_empty());
        Ok((content.or(text).unwrap_or_default(), thinking))
    }

    fn line(
        &self,
        content: String,
        thinking: Option<String>,
        tools: Vec<ToolCall>,
        last: Option<Last>,
    ) -> String {
        let said = match self.form {
            Form::Chat => Said::Message(Message {
                role: "assistant",
                content,
                thinking,
                tool_calls: tools.into_iter().map(tool_call).collect(),
            }),
            Form::Generate => Said::Response {
                response: content,
                thinking,
            },
        };
        let line = Line {
            model: &self.model,
            created_at: self.now(),
            said,
            done: last.is_some(),
            last,
        };
        // Structs of texts and numbers have a JSON form.
        serde_json::to_string(&line).unwrap_or_default()
    }

    fn now(&self) -> String {
        let at = u64::try_from(self.at.0).unwrap_or(0);
        let at = UNIX_EPOCH + Duration::from_millis(at) + self.since.elapsed();
        humantime::format_rfc3339_micros(at).to_string()
    }

    fn last(&self) -> Last {
        let finish = self.finish.as_deref().unwrap_or("stop");
        let total = self.since.elapsed();
        // What the engine does not say of time is what was seen of it.
        let first = self
            .first
            .map_or(total, |first| first.duration_since(self.since));
        let (prompt, answer) = match self.timings {
            Some(timings) => (millis(timings.prompt_ms), millis(timings.predicted_ms)),
            None => (first, total.saturating_sub(first)),
        };
        Last {
            done_reason: if finish == "length" { "length" } else { "stop" }.to_owned(),
            total_duration: nanos(total),
            counts: self.usage.map(|usage| Counts {
                prompt_eval_count: usage.prompt_tokens.0,
                prompt_eval_duration: nanos(prompt),
                eval_count: usage.completion_tokens.0,
                eval_duration: nanos(answer),
            }),
        }
    }
}

impl Interpreter for Answer {
    fn chunk(&mut self, chunk: &[u8], out: &mut Output) -> serde_json::Result<()> {
        let (content, thinking) = self.take(chunk)?;
        if !content.is_empty() || thinking.is_some() {
            let mut line = self.line(content, thinking, Vec::new(), None);
            line.push('\n');
            out.push(line.into());
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Output) {
        let tools = self.tools.take();
        if !tools.is_empty() {
            let mut line = self.line(String::new(), None, tools, None);
            line.push('\n');
            out.push(line.into());
        }
        let mut line = self.line(String::new(), None, Vec::new(), Some(self.last()));
        line.push('\n');
        out.push(line.into());
    }

    fn whole(&mut self, answer: &[u8]) -> serde_json::Result<String> {
        let (content, thinking) = self.take(answer)?;
        let tools = self.tools.take();
        Ok(self.line(content, thinking, tools, Some(self.last())))
    }
}

/// A call of a tool as Ollama writes it: arguments as they are, and not as a text.
fn tool_call(call: ToolCall) -> Value {
    let ToolCall {
        id: _,
        name,
        arguments,
    } = call;
    let arguments = serde_json::from_str::<Value>(&arguments)
        .ok()
        .filter(Value::is_object);
    json!({"function": {"name": name, "arguments": arguments.unwrap_or_else(|| json!({}))}})
}

fn millis(millis: f64) -> Duration {
    Duration::try_from_secs_f64(millis / 1000.0).unwrap_or_default()
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
