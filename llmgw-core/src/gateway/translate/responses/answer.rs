//! A chat's answer in the form of the Responses API.

use serde_json::{Value, json};

use crate::{
    clock::Timestamp,
    gateway::{
        rewrite::Output,
        translate::{
            Interpreter,
            chat::{Choice, Chunk, Delta, FunctionDelta, ToolCall, ToolCalls, ToolDelta, Usage},
        },
    },
    id::RequestId,
};

/// Puts one answer back.
#[derive(Debug)]
pub(in crate::gateway::translate) struct Answer {
    id: String,
    model: String,
    at: Timestamp,
    /// Events that were sent.
    sent: u64,
    open: Option<Open>,
    /// Items that are whole.
    output: Vec<Value>,
    finish: Option<String>,
    usage: Option<Usage>,
}

/// The item that is open.
#[derive(Debug)]
enum Open {
    Thinking {
        id: String,
        text: String,
    },
    Text {
        id: String,
        text: String,
    },
    Tool {
        id: String,
        place: usize,
        call: ToolCall,
    },
}

// === impl Answer ===

impl Answer {
    pub(in crate::gateway::translate) fn new(model: String, at: Timestamp) -> Self {
        Self {
            id: new_id("resp"),
            model,
            at,
            sent: 0,
            open: None,
            output: Vec::new(),
            finish: None,
            usage: None,
        }
    }

    /// The response as far as it is.
    fn response(&self, status: &str) -> Value {
        let cut = (status == "incomplete").then(|| json!({"reason": "max_output_tokens"}));
        json!({
            "id": self.id,
            "object": "response",
            "created_at": self.at.0 / 1000,
            "status": status,
            "error": null,
            "incomplete_details": cut,
            "instructions": null,
            "metadata": {},
            "model": self.model,
            "output": self.output,
            "parallel_tool_calls": true,
            "tool_choice": "auto",
            "tools": [],
            "usage": self.usage.map(usage),
        })
    }

    fn status(&self) -> &'static str {
        match self.finish.as_deref() {
            Some("length") => "incomplete",
            _ => "completed",
        }
    }

    fn send(&mut self, kind: &str, mut data: Value, out: &mut Output) {
        data["type"] = kind.into();
        data["sequence_number"] = self.sent.into();
        self.sent += 1;
        out.push(format!("event: {kind}\ndata: {data}\n\n").into());
    }

    fn begin(&mut self, out: &mut Output) {
        if self.sent == 0 {
            let response = self.response("in_progress");
            self.send("response.created", json!({"response": response}), out);
            self.send("response.in_progress", json!({"response": response}), out);
        }
    }

    fn add(&mut self, open: Open, out: &mut Output) {
        self.close(out);
        let at = self.output.len();
        let item = open.item("in_progress");
        self.send(
            "response.output_item.added",
            json!({"output_index": at, "item": item}),
            out,
        );
        if let Open::Text { id, .. } = &open {
            let part =
                json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []});
            let data = json!({"item_id": id, "output_index": at, "content_index": 0, "part": part});
            self.send("response.content_part.added", data, out);
        }
        self.open = Some(open);
    }

    fn close(&mut self, out: &mut Output) {
        let Some(open) = self.open.take() else {
            return;
        };
        let at = self.output.len();
        let item = open.item("completed");
        match &open {
            Open::Thinking { id, text } => {
                let data =
                    json!({"item_id": id, "output_index": at, "content_index": 0, "text": text});
                self.send("response.reasoning_text.done", data, out);
            }
            Open::Text { id, text } => {
                let place = json!({"item_id": id, "output_index": at, "content_index": 0});
                let mut data = place.clone();
                data["text"] = text.as_str().into();
                data["logprobs"] = json!([]);
                self.send("response.output_text.done", data, out);
                let mut data = place;
                data["part"] = item["content"][0].clone();
                self.send("response.content_part.done", data, out);
            }
            Open::Tool { id, call, .. } => {
                let data = json!({"item_id": id, "output_index": at, "name": call.name, "arguments": call.arguments});
                self.send("response.function_call_arguments.done", data, out);
            }
        }
        self.send(
            "response.output_item.done",
            json!({"output_index": at, "item": item}),
            out,
        );
        self.output.push(item);
    }

    fn think(&mut self, piece: &str, out: &mut Output) {
        if !matches!(self.open, Some(Open::Thinking { .. })) {
            let (id, text) = (new_id("rs"), String::new());
            self.add(Open::Thinking { id, text }, out);
        }
        if let Some(Open::Thinking { id, text }) = &mut self.open {
            text.push_str(piece);
            let data = json!({"item_id": id, "output_index": self.output.len(), "content_index": 0, "delta": piece});
            self.send("response.reasoning_text.delta", data, out);
        }
    }

    fn say(&mut self, piece: &str, out: &mut Output) {
        if !matches!(self.open, Some(Open::Text { .. })) {
            let (id, text) = (new_id("msg"), String::new());
            self.add(Open::Text { id, text }, out);
        }
        if let Some(Open::Text { id, text }) = &mut self.open {
            text.push_str(piece);
            let data = json!({
                "item_id": id, "output_index": self.output.len(), "content_index": 0, "delta": piece, "logprobs": [],
            });
            self.send("response.output_text.delta", data, out);
        }
    }

    fn tool(&mut self, at: usize, piece: ToolDelta, out: &mut Output) {
        let ToolDelta {
            index,
            id: call_id,
            function: FunctionDelta { name, arguments },
        } = piece;
        let at = index.unwrap_or(at);
        if !matches!(self.open, Some(Open::Tool { place, .. }) if place == at) {
            let call = ToolCall {
                id: call_id.unwrap_or_else(|| new_id("call")),
                name: name.unwrap_or_default(),
                arguments: String::new(),
            };
            let id = new_id("fc");
            self.add(
                Open::Tool {
                    id,
                    place: at,
                    call,
                },
                out,
            );
        }
        if let (Some(Open::Tool { id, call, .. }), Some(piece)) = (&mut self.open, arguments)
            && !piece.is_empty()
        {
            call.arguments.push_str(&piece);
            let data = json!({"item_id": id, "output_index": self.output.len(), "delta": piece});
            self.send("response.function_call_arguments.delta", data, out);
        }
    }
}

impl Interpreter for Answer {
    fn chunk(&mut self, chunk: &[u8], out: &mut Output) -> serde_json::Result<()> {
        let mut chunk: Chunk = serde_json::from_slice(chunk)?;
        self.usage = chunk.usage.or(self.usage);
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
        if let Some(piece) = reasoning_content.filter(|piece| !piece.is_empty()) {
            self.think(&piece, out);
        }
        if let Some(piece) = content.filter(|piece| !piece.is_empty()) {
            self.say(&piece, out);
        }
        for (at, piece) in tool_calls.into_iter().flatten().enumerate() {
            self.tool(at, piece, out);
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Output) {
        self.begin(out);
        self.close(out);
        let status = self.status();
        let response = self.response(status);
        self.send(
            &format!("response.{status}"),
            json!({"response": response}),
            out,
        );
    }

    fn whole(&mut self, answer: &[u8]) -> serde_json::Result<String> {
        let mut answer: Chunk = serde_json::from_slice(answer)?;
        self.usage = answer.usage;
        let choice = answer.first().unwrap_or_default();
        self.finish = choice.finish_reason;
        let Delta {
            content,
            reasoning_content,
            tool_calls,
        } = choice.delta.unwrap_or_default();
        let mut calls = ToolCalls::default();
        calls.add(tool_calls.unwrap_or_default());
        let mut items = Vec::new();
        if let Some(text) = reasoning_content.filter(|text| !text.is_empty()) {
            items.push(Open::Thinking {
                id: new_id("rs"),
                text,
            });
        }
        if let Some(text) = content.filter(|text| !text.is_empty()) {
            items.push(Open::Text {
                id: new_id("msg"),
                text,
            });
        }
        for (place, call) in calls.take().into_iter().enumerate() {
            items.push(Open::Tool {
                id: new_id("fc"),
                place,
                call,
            });
        }
        self.output = items.iter().map(|item| item.item("completed")).collect();
        Ok(self.response(self.status()).to_string())
    }
}

// === impl Open ===

impl Open {
    /// The item as it is so far.
    fn item(&self, status: &str) -> Value {
        match self {
            Self::Thinking { id, text } => json!({
                "id": id, "type": "reasoning", "status": status, "summary": [],
                "content": [{"type": "reasoning_text", "text": text}],
            }),
            Self::Text { id, text } => {
                let part =
                    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
                let content = if status == "completed" {
                    vec![part]
                } else {
                    Vec::new()
                };
                json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content})
            }
            Self::Tool { id, call, .. } => json!({
                "id": id, "type": "function_call", "status": status,
                "call_id": call.id, "name": call.name, "arguments": call.arguments,
            }),
        }
    }
}

fn usage(usage: Usage) -> Value {
    let (prompt, answer) = (usage.prompt_tokens.0, usage.completion_tokens.0);
    json!({
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": usage.cached()},
        "output_tokens": answer,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt.saturating_add(answer),
    })
}

fn new_id(prefix: &str) -> String {
    format!("{prefix}_{}", RequestId::generate().as_uuid().simple())
}
