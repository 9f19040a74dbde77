//! A call of the Responses API as a chat.

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
struct Call {
    model: Option<String>,
    input: Option<Input>,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<Value>,
    max_output_tokens: Option<Value>,
    temperature: Option<Value>,
    top_p: Option<Value>,
    stream: Option<Value>,
    parallel_tool_calls: Option<Value>,
    text: Option<Text>,
    reasoning: Option<Reasoning>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Items(Vec<Item>),
}

/// What a conversation has; an item without a type is a message.
#[derive(Deserialize)]
struct Item {
    #[serde(rename = "type")]
    kind: Option<String>,
    role: Option<String>,
    content: Option<Content>,
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<String>,
    output: Option<Content>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    text: Option<String>,
    image_url: Option<String>,
}

#[derive(Deserialize)]
struct Tool {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    description: Option<Value>,
    parameters: Option<Value>,
    strict: Option<Value>,
}

#[derive(Deserialize)]
struct Text {
    format: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct Reasoning {
    effort: Option<Value>,
}

/// The same call as a chat.
pub(in crate::gateway::translate) fn request(text: &[u8]) -> Result<Made, Refusal> {
    let Call {
        model,
        input,
        instructions,
        previous_response_id,
        tools,
        tool_choice,
        max_output_tokens,
        temperature,
        top_p,
        stream,
        parallel_tool_calls,
        text,
        reasoning,
    } = read(text)?;
    let model = model.ok_or_else(|| missing("model"))?;
    let input = input.ok_or_else(|| missing("input"))?;
    if previous_response_id.is_some() {
        let message =
            "the engine of this model keeps no responses: send the whole conversation as \"input\"";
        let refusal = Refusal::new(Code::InvalidRequest, message);
        return Err(refusal.with_param("previous_response_id"));
    }
    let mut turns = Vec::new();
    if let Some(instructions) = instructions {
        turns.push(json!({"role": "system", "content": instructions}));
    }
    match input {
        Input::Text(text) => turns.push(json!({"role": "user", "content": text})),
        Input::Items(items) => {
            for item in items {
                turn(item, &mut turns);
            }
        }
    }
    let mut body = Map::new();
    body.insert("model".into(), model.as_str().into());
    body.insert("messages".into(), turns.into());
    for (name, value) in [
        ("max_tokens", max_output_tokens),
        ("temperature", temperature),
        ("top_p", top_p),
        ("stream", stream),
        (
            "reasoning_effort",
            reasoning.and_then(|reasoning| reasoning.effort),
        ),
        (
            "response_format",
            text.and_then(|text| text.format).and_then(format),
        ),
    ] {
        if let Some(value) = value.filter(|value| !value.is_null()) {
            body.insert(name.into(), value);
        }
    }
    let tools = tools.unwrap_or_default();
    let functions = tools
        .into_iter()
        .map(function)
        .collect::<Result<Vec<_>, _>>()?;
    if !functions.is_empty() {
        body.insert("tools".into(), functions.into());
        if let Some(choice) = tool_choice {
            body.insert("tool_choice".into(), chosen(choice));
        }
        if let Some(parallel) = parallel_tool_calls {
            body.insert("parallel_tool_calls".into(), parallel);
        }
    }
    Ok((model, "/v1/chat/completions", body.into()))
}

fn turn(item: Item, turns: &mut Vec<Value>) {
    let Item {
        kind,
        role,
        content,
        call_id,
        name,
        arguments,
        output,
    } = item;
    match kind.as_deref() {
        None | Some("message") => {
            let role = match role.as_deref() {
                Some("developer") | None => "system",
                Some(role) => role,
            };
            let content = content.map_or_else(|| json!(""), Content::into_value);
            turns.push(json!({"role": role, "content": content}));
        }
        Some("function_call") => {
            let function = json!({"name": name, "arguments": arguments.unwrap_or_default()});
            let call = json!({"id": call_id, "type": "function", "function": function});
            // Calls that were made together are of one turn.
            match turns.last_mut() {
                Some(last) if last.get("tool_calls").is_some() => {
                    if let Some(calls) = last.get_mut("tool_calls").and_then(Value::as_array_mut) {
                        calls.push(call);
                    }
                }
                _ => turns.push(json!({"role": "assistant", "content": "", "tool_calls": [call]})),
            }
        }
        Some("function_call_output") => {
            let content = output.map_or_else(|| json!(""), Content::into_value);
            turns.push(json!({"role": "tool", "tool_call_id": call_id, "content": content}));
        }
        // What a chat has no place for, such as the thoughts of another model.
        Some(_) => {}
    }
}

fn function(tool: Tool) -> Result<Value, Refusal> {
    let Tool {
        kind,
        name,
        description,
        parameters,
        strict,
    } = tool;
    if kind != "function" {
        let message = format!("the engine of this model has no tool {kind:?}, only functions");
        return Err(Refusal::new(Code::InvalidRequest, message).with_param("tools"));
    }
    let mut function = json!({"name": name});
    for (name, value) in [
        ("description", description),
        ("parameters", parameters),
        ("strict", strict),
    ] {
        if let Some(value) = value.filter(|value| !value.is_null()) {
            function[name] = value;
        }
    }
    Ok(json!({"type": "function", "function": function}))
}

fn chosen(choice: Value) -> Value {
    match choice.get("name") {
        Some(name) => json!({"type": "function", "function": {"name": name}}),
        None => choice,
    }
}

/// The form of an answer: flat here, and nested in a chat.
fn format(mut format: Map<String, Value>) -> Option<Value> {
    let kind = format.remove("type")?;
    match kind.as_str()? {
        "json_schema" => Some(json!({"type": kind, "json_schema": format})),
        "json_object" => Some(json!({"type": kind})),
        _ => None,
    }
}

// === impl Content ===

impl Content {
    fn into_value(self) -> Value {
        let parts = match self {
            Self::Text(text) => return text.into(),
            Self::Parts(parts) => parts,
        };
        // Many templates take nothing but a text; so what is only text is one.
        if parts.iter().all(|part| part.image_url.is_none()) {
            let texts = parts.into_iter().filter_map(|part| part.text);
            return texts.collect::<Vec<String>>().join("\n").into();
        }
        let parts =
            parts
                .into_iter()
                .filter_map(|Part { text, image_url }| match (text, image_url) {
                    (_, Some(url)) => Some(json!({"type": "image_url", "image_url": {"url": url}})),
                    (Some(text), None) => Some(json!({"type": "text", "text": text})),
                    (None, None) => None,
                });
        parts.collect()
    }
}
