//! A chat's answer in the form of the Messages API.

use serde_json::{Value, json};

use crate::{
    gateway::{
        rewrite::Output,
        translate::{
            Interpreter,
            chat::{Choice, Chunk, Delta, FunctionDelta, ToolCalls, ToolDelta, Usage},
        },
    },
    id::RequestId,
};

/// Puts one answer back.
#[derive(Debug)]
pub(in crate::gateway::translate) struct Answer {
    id: String,
    model: String,
    begun: bool,
    /// The block that is open, and how many there were before.
    open: Option<Open>,
    blocks: u64,
    finish: Option<String>,
    usage: Usage,
}

/// What is said in a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Open {
    Thinking,
    Text,
    /// The call of a tool with this place among them.
    Tool(usize),
}

// === impl Answer ===

impl Answer {
    pub(in crate::gateway::translate) fn new(model: String) -> Self {
        Self {
            id: format!("msg_{}", RequestId::generate().as_uuid().simple()),
            model,
            begun: false,
            open: None,
            blocks: 0,
            finish: None,
            usage: Usage::default(),
        }
    }

    fn message(&self, content: &[Value], is_over: bool) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": is_over.then(|| self.stop_reason()),
            "stop_sequence": null,
            "usage": self.usage(),
        })
    }

    fn stop_reason(&self) -> &'static str {
        match self.finish.as_deref() {
            Some("length") => "max_tokens",
            Some("tool_calls" | "function_call") => "tool_use",
            Some("content_filter") => "refusal",
            _ => "end_turn",
        }
    }

    /// What was cached is counted apart in this API.
    fn usage(&self) -> Value {
        let Usage {
            prompt_tokens,
            completion_tokens,
            ..
        } = self.usage;
        let cached = self.usage.cached();
        json!({
            "input_tokens": prompt_tokens.0.saturating_sub(cached),
            "cache_read_input_tokens": cached,
            "output_tokens": completion_tokens.0,
        })
    }

    fn begin(&mut self, out: &mut Output) {
        if !self.begun {
            self.begun = true;
            let message = self.message(&[], false);
            send(&json!({"type": "message_start", "message": message}), out);
        }
    }

    /// Says a piece of a block, which is begun where another one is open.
    fn say(&mut self, what: Open, block: &Value, delta: &Value, out: &mut Output) {
        if self.open != Some(what) {
            self.close(out);
            self.open = Some(what);
            let index = self.blocks;
            send(
                &json!({"type": "content_block_start", "index": index, "content_block": block}),
                out,
            );
        }
        if !delta.is_null() {
            let index = self.blocks;
            send(
                &json!({"type": "content_block_delta", "index": index, "delta": delta}),
                out,
            );
        }
    }

    fn close(&mut self, out: &mut Output) {
        if self.open.take().is_some() {
            send(
                &json!({"type": "content_block_stop", "index": self.blocks}),
                out,
            );
            self.blocks += 1;
        }
    }

    fn tool(&mut self, place: usize, piece: ToolDelta, out: &mut Output) {
        let ToolDelta {
            index,
            id,
            function: FunctionDelta { name, arguments },
        } = piece;
        let what = Open::Tool(index.unwrap_or(place));
        let block = json!({
            "type": "tool_use", "input": {},
            "id": id.unwrap_or_else(|| format!("toolu_{}", self.blocks)),
            "name": name.unwrap_or_default(),
        });
        let arguments = arguments.filter(|text| !text.is_empty());
        let delta = arguments.map(|text| json!({"type": "input_json_delta", "partial_json": text}));
        self.say(what, &block, &delta.unwrap_or_default(), out);
    }
}

impl Interpreter for Answer {
    fn chunk(&mut self, chunk: &[u8], out: &mut Output) -> serde_json::Result<()> {
        let mut chunk: Chunk = serde_json::from_slice(chunk)?;
        if let Some(usage) = chunk.usage {
            self.usage = usage;
        }
        let Some(Choice {
            delta,
            finish_reason,
            ..
        }) = chunk.first()
        else {
            return Ok(());
        };
        self.begin(out);
        self.finish = finish_reason.or_else(|| self.finish.take());
        let Delta {
            content,
            reasoning_content,
            tool_calls,
        } = delta.unwrap_or_default();
        if let Some(thinking) = reasoning_content.filter(|text| !text.is_empty()) {
            let block = json!({"type": "thinking", "thinking": "", "signature": ""});
            let delta = json!({"type": "thinking_delta", "thinking": thinking});
            self.say(Open::Thinking, &block, &delta, out);
        }
        if let Some(text) = content.filter(|text| !text.is_empty()) {
            let block = json!({"type": "text", "text": ""});
            let delta = json!({"type": "text_delta", "text": text});
            self.say(Open::Text, &block, &delta, out);
        }
        for (place, piece) in tool_calls.into_iter().flatten().enumerate() {
            self.tool(place, piece, out);
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Output) {
        self.begin(out);
        self.close(out);
        let delta = json!({"stop_reason": self.stop_reason(), "stop_sequence": null});
        send(
            &json!({"type": "message_delta", "delta": delta, "usage": self.usage()}),
            out,
        );
        send(&json!({"type": "message_stop"}), out);
    }

    fn whole(&mut self, answer: &[u8]) -> serde_json::Result<String> {
        let mut answer: Chunk = serde_json::from_slice(answer)?;
        self.usage = answer.usage.unwrap_or_default();
        let choice = answer.first().unwrap_or_default();
        self.finish = choice.finish_reason;
        let Delta {
            content,
            reasoning_content,
            tool_calls,
        } = choice.delta.unwrap_or_default();
        let mut blocks = Vec::new();
        if let Some(thinking) = reasoning_content.filter(|text| !text.is_empty()) {
            blocks.push(json!({"type": "thinking", "thinking": thinking, "signature": ""}));
        }
        if let Some(text) = content.filter(|text| !text.is_empty()) {
            blocks.push(json!({"type": "text", "text": text}));
        }
        let mut calls = ToolCalls::default();
        calls.add(tool_calls.unwrap_or_default());
        for call in calls.take() {
            let input = serde_json::from_str::<Value>(&call.arguments)
                .ok()
                .filter(Value::is_object);
            let input = input.unwrap_or_else(|| json!({}));
            blocks.push(
                json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}),
            );
        }
        Ok(self.message(&blocks, true).to_string())
    }
}

fn send(data: &Value, out: &mut Output) {
    let name = data["type"].as_str().unwrap_or_default();
    out.push(format!("event: {name}\ndata: {data}\n\n").into());
}
