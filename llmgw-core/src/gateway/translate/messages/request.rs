//! A call of the Messages API as a chat.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::gateway::{
    refusal::Refusal,
    translate::{Made, missing, read},
};

#[derive(Deserialize)]
struct Call {
    model: Option<String>,
    messages: Option<Vec<Message>>,
    system: Option<Content>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<ToolChoice>,
    max_tokens: Option<Value>,
    temperature: Option<Value>,
    top_p: Option<Value>,
    top_k: Option<Value>,
    stop_sequences: Option<Value>,
    stream: Option<Value>,
    thinking: Option<Typed>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Content,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Blocks(Vec<Block>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        text: String,
    },
    Image {
        source: Source,
    },
    ToolUse {
        id: String,
        name: String,
        #[serde(default)]
        input: Value,
    },
    ToolResult {
        tool_use_id: String,
        content: Option<Content>,
    },
    Thinking {
        thinking: String,
    },
    /// What a chat has no place for.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Source {
    Base64 { media_type: String, data: String },
    Url { url: String },
}

#[derive(Deserialize)]
struct Tool {
    name: String,
    description: Option<Value>,
    /// Absent of the tools that Anthropic's own servers run.
    input_schema: Option<Value>,
}

#[derive(Deserialize)]
struct ToolChoice {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    #[serde(default)]
    disable_parallel_tool_use: bool,
}

#[derive(Deserialize)]
struct Typed {
    #[serde(rename = "type")]
    kind: String,
}

/// The same call as a chat.
pub(in crate::gateway::translate) fn request(text: &[u8]) -> Result<Made, Refusal> {
    let Call {
        model,
        messages,
        system,
        tools,
        tool_choice,
        max_tokens,
        temperature,
        top_p,
        top_k,
        stop_sequences,
        stream,
        thinking,
    } = read(text)?;
    let model = model.ok_or_else(|| missing("model"))?;
    let messages = messages.ok_or_else(|| missing("messages"))?;
    let mut turns = Vec::with_capacity(messages.len() + 1);
    if let Some(system) = system {
        turns.push(json!({"role": "system", "content": system.into_text()}));
    }
    for Message { role, content } in messages {
        turn(role, content, &mut turns);
    }
    let mut body = Map::new();
    body.insert("model".into(), model.as_str().into());
    body.insert("messages".into(), turns.into());
    for (name, value) in [
        ("max_tokens", max_tokens),
        ("temperature", temperature),
        ("top_p", top_p),
        ("top_k", top_k),
        ("stop", stop_sequences),
        ("stream", stream),
    ] {
        if let Some(value) = value {
            body.insert(name.into(), value);
        }
    }
    if let Some(thinking) = thinking {
        let thinks = json!({"enable_thinking": thinking.kind != "disabled"});
        body.insert("chat_template_kwargs".into(), thinks);
    }
    let tools: Vec<Value> = tools.into_iter().flatten().filter_map(function).collect();
    if !tools.is_empty() {
        body.insert("tools".into(), tools.into());
        if let Some(choice) = tool_choice {
            if choice.disable_parallel_tool_use {
                body.insert("parallel_tool_calls".into(), false.into());
            }
            body.insert("tool_choice".into(), chosen(choice));
        }
    }
    Ok((model, "/v1/chat/completions", body.into()))
}

/// One turn as the turns that a chat has for it: an answer of a tool is one of its own there.
fn turn(role: String, content: Content, turns: &mut Vec<Value>) {
    let blocks = match content {
        Content::Text(text) => {
            turns.push(json!({"role": role, "content": text}));
            return;
        }
        Content::Blocks(blocks) => blocks,
    };
    let (mut parts, mut calls, mut thoughts) = (Vec::new(), Vec::new(), String::new());
    for block in blocks {
        match block {
            Block::Text { text } => parts.push(json!({"type": "text", "text": text})),
            Block::Image { source } => {
                let url = match source {
                    Source::Base64 { media_type, data } => {
                        format!("data:{media_type};base64,{data}")
                    }
                    Source::Url { url } => url,
                };
                parts.push(json!({"type": "image_url", "image_url": {"url": url}}));
            }
            Block::ToolUse { id, name, input } => {
                let function = json!({"name": name, "arguments": input.to_string()});
                calls.push(json!({"id": id, "type": "function", "function": function}));
            }
            Block::ToolResult {
                tool_use_id,
                content,
            } => {
                let content = content.map(Content::into_text).unwrap_or_default();
                turns
                    .push(json!({"role": "tool", "tool_call_id": tool_use_id, "content": content}));
            }
            Block::Thinking { thinking } => thoughts.push_str(&thinking),
            Block::Other => {}
        }
    }
    if parts.is_empty() && calls.is_empty() && thoughts.is_empty() {
        return;
    }
    // Many templates take nothing but a text; so what is only text is one.
    let is_text = parts.iter().all(|part| part["type"] == "text");
    let content: Value = match is_text {
        true => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect::<Vec<_>>()
            .join("\n")
            .into(),
        false => parts.into(),
    };
    let mut turn = json!({"role": role, "content": content});
    if !calls.is_empty() {
        turn["tool_calls"] = calls.into();
    }
    if !thoughts.is_empty() {
        turn["reasoning_content"] = thoughts.into();
    }
    turns.push(turn);
}

fn function(tool: Tool) -> Option<Value> {
    let Tool {
        name,
        description,
        input_schema,
    } = tool;
    let mut function = json!({"name": name, "parameters": input_schema?});
    if let Some(description) = description {
        function["description"] = description;
    }
    Some(json!({"type": "function", "function": function}))
}

fn chosen(choice: ToolChoice) -> Value {
    let ToolChoice { kind, name, .. } = choice;
    match (kind.as_str(), name) {
        ("any", _) => "required".into(),
        ("none", _) => "none".into(),
        ("tool", Some(name)) => json!({"type": "function", "function": {"name": name}}),
        _ => "auto".into(),
    }
}

// === impl Content ===

impl Content {
    /// Its texts.
    fn into_text(self) -> String {
        let blocks = match self {
            Self::Text(text) => return text,
            Self::Blocks(blocks) => blocks,
        };
        let texts = blocks.into_iter().filter_map(|block| match block {
            Block::Text { text } => Some(text),
            _ => None,
        });
        texts.collect::<Vec<String>>().join("\n")
    }
}
