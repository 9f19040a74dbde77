use serde_json::{Value, json};

use super::{Answer, request};
use crate::gateway::{rewrite::Output, translate::Interpreter};

fn chat(call: &Value) -> Value {
    let (model, path, body) = request(call.to_string().as_bytes()).unwrap();
    assert_eq!(
        (path, &body["model"]),
        ("/v1/chat/completions", &json!(model))
    );
    body
}

#[test]
fn what_both_apis_have_goes_to_its_place() {
    let body = chat(&json!({
        "model": "m", "max_tokens": 7, "temperature": 0.5, "top_k": 3, "stop_sequences": ["x"], "stream": true,
        "system": [{"type": "text", "text": "be", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "kind"}],
        "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "text", "text": "yes"}]}],
        "metadata": {"user_id": "u"}, "thinking": {"type": "enabled", "budget_tokens": 9},
    }));
    let expected = json!({
        "model": "m", "max_tokens": 7, "temperature": 0.5, "top_k": 3, "stop": ["x"], "stream": true,
        "messages": [
            {"role": "system", "content": "be\nkind"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "yes"},
        ],
        "chat_template_kwargs": {"enable_thinking": true},
    });
    assert_eq!(body, expected);
}

#[test]
fn tools_their_calls_and_their_answers_have_other_forms() {
    let schema = json!({"type": "object"});
    let body = chat(&json!({
        "model": "m", "max_tokens": 1,
        "tools": [{"name": "w", "description": "d", "input_schema": schema}, {"type": "web_search_1", "name": "web"}],
        "tool_choice": {"type": "tool", "name": "w", "disable_parallel_tool_use": true},
        "messages": [
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "t", "name": "w", "input": {"city": "Bern"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "sunny"}]},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
                {"type": "text", "text": "and?"},
                {"type": "document", "source": {}},
            ]},
        ],
    }));
    let tools = json!([{"type": "function", "function": {"name": "w", "description": "d", "parameters": schema}}]);
    assert_eq!(body["tools"], tools);
    assert_eq!(
        body["tool_choice"],
        json!({"type": "function", "function": {"name": "w"}})
    );
    assert_eq!(body["parallel_tool_calls"], false);
    let call = json!({"id": "t", "type": "function", "function": {"name": "w", "arguments": "{\"city\":\"Bern\"}"}});
    let turns = json!([
        {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "t", "content": "sunny"},
        {"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
            {"type": "text", "text": "and?"},
        ]},
    ]);
    assert_eq!(body["messages"], turns);
    for (choice, expected) in [("any", "required"), ("auto", "auto"), ("none", "none")] {
        let call = json!({"model": "m", "messages": [], "tools": [{"name": "w", "input_schema": {}}], "tool_choice": {"type": choice}});
        assert_eq!(chat(&call)["tool_choice"], expected);
    }
    assert!(request(br#"{"model":"m"}"#).is_err() && request(br#"{"messages":[]}"#).is_err());
}

fn events(chunks: &[Value]) -> Vec<Value> {
    let (mut answer, mut out) = (Answer::new("asked".to_owned()), Output::default());
    for chunk in chunks {
        answer
            .chunk(chunk.to_string().as_bytes(), &mut out)
            .unwrap();
    }
    answer.end(&mut out);
    let text = String::from_utf8(out.take().to_vec()).unwrap();
    let events = text.split_terminator("\n\n").map(|event| {
        let (name, data) = event.split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        data
    });
    events.collect()
}

fn delta(delta: Value, finish: Option<&str>) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

#[test]
fn a_stream_has_the_events_of_the_api_in_their_order() {
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}});
    let events = events(&[
        delta(json!({"role": "assistant", "content": ""}), None),
        delta(json!({"reasoning_content": "hm"}), None),
        delta(json!({"content": "a"}), None),
        delta(json!({"content": "b"}), None),
        delta(
            json!({"tool_calls": [{"index": 0, "id": "t", "function": {"name": "w", "arguments": ""}}]}),
            None,
        ),
        delta(
            json!({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}),
            None,
        ),
        delta(
            json!({"tool_calls": [{"index": 1, "id": "u", "function": {"name": "v", "arguments": "{}"}}]}),
            None,
        ),
        delta(json!({}), Some("tool_calls")),
        json!({"choices": [], "usage": usage}),
    ]);
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    let (start, delta, stop) = (
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
    );
    assert_eq!(
        kinds,
        [
            "message_start",
            start,
            delta,
            stop,
            start,
            delta,
            delta,
            stop,
            start,
            delta,
            stop,
            start,
            delta,
            stop,
            "message_delta",
            "message_stop",
        ]
    );
    assert_eq!(events[0]["message"]["model"], "asked");
    assert_eq!(
        events[2]["delta"],
        json!({"type": "thinking_delta", "thinking": "hm"})
    );
    assert_eq!(
        (&events[6]["index"], &events[6]["delta"]),
        (&json!(1), &json!({"type": "text_delta", "text": "b"}))
    );
    assert_eq!(
        events[8]["content_block"],
        json!({"type": "tool_use", "id": "t", "name": "w", "input": {}})
    );
    assert_eq!(
        events[9]["delta"],
        json!({"type": "input_json_delta", "partial_json": "{}"})
    );
    assert_eq!(
        (&events[11]["index"], &events[11]["content_block"]["name"]),
        (&json!(3), &json!("v"))
    );
    let last = &events[14];
    assert_eq!(last["delta"]["stop_reason"], "tool_use");
    assert_eq!(
        last["usage"],
        json!({"input_tokens": 6, "cache_read_input_tokens": 3, "output_tokens": 4})
    );
}

#[test]
fn an_answer_in_one_piece_has_its_blocks() {
    let call =
        json!({"id": "t", "type": "function", "function": {"name": "w", "arguments": "{\"a\":1}"}});
    let message = json!({"role": "assistant", "content": "hi", "tool_calls": [call]});
    let chat = json!({"choices": [{"index": 0, "message": message, "finish_reason": "length"}], "usage": {"prompt_tokens": 2, "completion_tokens": 1}});
    let mut answer = Answer::new("asked".to_owned());
    let put: Value =
        serde_json::from_str(&answer.whole(chat.to_string().as_bytes()).unwrap()).unwrap();
    assert_eq!(
        (&put["type"], &put["model"], &put["stop_reason"]),
        (&json!("message"), &json!("asked"), &json!("max_tokens"))
    );
    let blocks = json!([{"type": "text", "text": "hi"}, {"type": "tool_use", "id": "t", "name": "w", "input": {"a": 1}}]);
    assert_eq!(put["content"], blocks);
    assert!(put["id"].as_str().unwrap().starts_with("msg_"));
    let empty = events(&[]);
    assert_eq!(empty.len(), 3, "{empty:?}");
}
