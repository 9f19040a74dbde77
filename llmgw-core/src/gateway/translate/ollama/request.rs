//! Ollama's calls as engines understand them.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    error::Code,
    gateway::{
        refusal::Refusal,
        translate::{Made, missing, read},
    },
};

#[derive(Deserialize)]
struct Chat {
    model: Option<String>,
    messages: Option<Vec<Message>>,
    tools: Option<Value>,
    #[serde(flatten)]
    more: More,
}

#[derive(Deserialize)]
struct Generate {
    model: Option<String>,
    prompt: Option<String>,
    suffix: Option<String>,
    system: Option<String>,
    images: Option<Vec<String>>,
    #[serde(default)]
    raw: bool,
    #[serde(flatten)]
    more: More,
}

/// What both have.
#[derive(Deserialize)]
struct More {
    format: Option<Value>,
    options: Option<Map<String, Value>>,
    stream: Option<bool>,
    think: Option<Value>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Option<String>,
    thinking: Option<String>,
    images: Option<Vec<String>>,
    tool_calls: Option<Vec<ToolCall>>,
    tool_name: Option<String>,
}

#[derive(Deserialize)]
struct ToolCall {
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    arguments: Value,
}

#[derive(Deserialize)]
struct Embed {
    model: Option<String>,
    input: Option<Value>,
    prompt: Option<Value>,
    dimensions: Option<Value>,
}

/// `/api/chat`
pub(super) fn chat(text: &[u8]) -> Result<Made, Refusal> {
    let Chat {
        model,
        messages,
        tools,
        more,
    } = read(text)?;
    let model = model.ok_or_else(|| missing("model"))?;
    let messages = messages.filter(|all| !all.is_empty());
    let messages = turns(messages.ok_or_else(|| missing("messages"))?);
    let mut body = more.body(&model)?;
    body.insert("messages".into(), messages.into());
    if let Some(tools) = tools.filter(|tools| tools.as_array().is_some_and(|all| !all.is_empty())) {
        body.insert("tools".into(), tools);
    }
    Ok((model, CHAT, body.into()))
}

/// `/api/generate`
pub(super) fn generate(text: &[u8]) -> Result<Made, Refusal> {
    let Generate {
        model,
        prompt,
        suffix,
        system,
        images,
        raw,
        more,
    } = read(text)?;
    let model = model.ok_or_else(|| missing("model"))?;
    // Without a prompt, Ollama only loads the model; here, that is done by the calls that have one.
    let prompt = prompt.filter(|prompt| !prompt.is_empty());
    let prompt = prompt.ok_or_else(|| missing("prompt"))?;
    let mut body = more.body(&model)?;
    if raw || suffix.is_some() {
        body.insert("prompt".into(), prompt.into());
        if let Some(suffix) = suffix {
            body.insert("suffix".into(), suffix.into());
        }
        return Ok((model, COMPLETIONS, body.into()));
    }
    let mut messages = Vec::new();
    if let Some(system) = system.filter(|system| !system.is_empty()) {
        messages.push(json!({"role": "system", "content": system}));
    }
    messages.push(json!({"role": "user", "content": content(prompt, images)}));
    body.insert("messages".into(), messages.into());
    Ok((model, CHAT, body.into()))
}

/// `/api/embed`
pub(super) fn embed(text: &[u8]) -> Result<Made, Refusal> {
    let Embed {
        model,
        input,
        dimensions,
        prompt: _,
    } = read(text)?;
    let model = model.ok_or_else(|| missing("model"))?;
    let input = input.ok_or_else(|| missing("input"))?;
    let mut body = json!({"model": model, "input": input, "encoding_format": "float"});
    if let (Some(dimensions), Some(body)) = (dimensions, body.as_object_mut()) {
        body.insert("dimensions".into(), dimensions);
    }
    Ok((model, EMBEDDINGS, body))
}

/// `/api/embeddings`
pub(super) fn embeddings(text: &[u8]) -> Result<Made, Refusal> {
    let Embed { model, prompt, .. } = read(text)?;
    let model = model.ok_or_else(|| missing("model"))?;
    let prompt = prompt.ok_or_else(|| missing("prompt"))?;
    let body = json!({"model": model, "input": prompt, "encoding_format": "float"});
    Ok((model, EMBEDDINGS, body))
}

// === impl More ===

impl More {
    /// The beginning of a body.
    fn body(self, model: &str) -> Result<Map<String, Value>, Refusal> {
        let Self {
            format,
            options,
            stream,
            think,
        } = self;
        let mut body = Map::new();
        body.insert("model".into(), model.into());
        body.insert("stream".into(), stream.unwrap_or(true).into());
        for (name, value) in options.unwrap_or_default() {
            option(&name, value, &mut body);
        }
        match format {
            None | Some(Value::Null) => {}
            Some(Value::String(format)) if format.is_empty() => {}
            Some(Value::String(format)) if format == "json" => {
                body.insert("response_format".into(), json!({"type": "json_object"}));
            }
            Some(Value::Object(schema)) => {
                let schema = json!({"name": "format", "strict": true, "schema": schema});
                let format = json!({"type": "json_schema", "json_schema": schema});
                body.insert("response_format".into(), format);
            }
            Some(_) => {
                let message = "\"format\" must be \"json\" or a JSON schema";
                return Err(Refusal::new(Code::InvalidRequest, message).with_param("format"));
            }
        }
        match think {
            Some(Value::Bool(think)) => {
                let template = json!({"enable_thinking": think});
                body.insert("chat_template_kwargs".into(), template);
            }
            Some(Value::String(effort)) => {
                body.insert("reasoning_effort".into(), effort.into());
            }
            _ => {}
        }
        Ok(body)
    }
}

/// Puts one of Ollama's options where engines read it. What says how a model is loaded (`num_ctx`, `num_gpu`, …) is for the
/// model's profile to say, and is left out.
fn option(name: &str, value: Value, body: &mut Map<String, Value>) {
    let names: &[&str] = match name {
        // Negative: as many as there are.
        "num_predict" if value.as_i64().is_some_and(|most| most < 0) => &[],
        "num_predict" => &["max_tokens"],
        "repeat_penalty" => &["repeat_penalty", "repetition_penalty"],
        "temperature" => &["temperature"],
        "top_p" => &["top_p"],
        "top_k" => &["top_k"],
        "min_p" => &["min_p"],
        "typical_p" => &["typical_p"],
        "seed" => &["seed"],
        "stop" => &["stop"],
        "presence_penalty" => &["presence_penalty"],
        "frequency_penalty" => &["frequency_penalty"],
        "repeat_last_n" => &["repeat_last_n"],
        _ => &[],
    };
    for name in names {
        body.insert((*name).into(), value.clone());
    }
}

/// The turns of a conversation. Ollama's calls of tools have no ids: a tool's answer belongs to the first call of its name
/// that has none yet, and else to the first of all.
fn turns(messages: Vec<Message>) -> Vec<Value> {
    let mut open: Vec<(String, String)> = Vec::new();
    let mut turns = Vec::with_capacity(messages.len());
    let mut calls = 0_u32;
    for message in messages {
        let Message {
            role,
            content: text,
            thinking,
            images,
            tool_calls,
            tool_name,
        } = message;
        let mut turn = json!({"role": role, "content": content(text.unwrap_or_default(), images)});
        if let Some(thinking) = thinking {
            turn["reasoning_content"] = thinking.into();
        }
        if role == "tool" {
            let named = tool_name.and_then(|name| open.iter().position(|(_, open)| *open == name));
            let at = named.unwrap_or(0);
            if at < open.len() {
                turn["tool_call_id"] = open.remove(at).0.into();
            }
        }
        if let Some(tool_calls) = tool_calls.filter(|calls| !calls.is_empty()) {
            open.clear();
            let made = tool_calls.into_iter().map(|ToolCall { function }| {
                calls += 1;
                let id = format!("call_{calls}");
                open.push((id.clone(), function.name.clone()));
                let arguments = function.arguments.to_string();
                json!({"id": id, "type": "function", "function": {"name": function.name, "arguments": arguments}})
            });
            turn["tool_calls"] = made.collect();
        }
        turns.push(turn);
    }
    turns
}

/// A text with the pictures beside it.
fn content(text: String, images: Option<Vec<String>>) -> Value {
    let images = images.unwrap_or_default();
    if images.is_empty() {
        return text.into();
    }
    let mut parts = vec![json!({"type": "text", "text": text})];
    parts.extend(images.into_iter().map(|image| {
        let url = format!("data:{};base64,{image}", kind(&image));
        json!({"type": "image_url", "image_url": {"url": url}})
    }));
    parts.into()
}

/// The kind of a picture, by how its base64 begins.
fn kind(image: &str) -> &'static str {
    match image.as_bytes() {
        [b'i', b'V', b'B', b'O', ..] => "image/png",
        [b'R', b'0', b'l', b'G', ..] => "image/gif",
        [b'U', b'k', b'l', b'G', ..] => "image/webp",
        _ => "image/jpeg",
    }
}

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const EMBEDDINGS: &str = "/v1/embeddings";
