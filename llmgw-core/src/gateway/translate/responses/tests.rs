use serde_json::{Value, json};

use super::{Answer, request};
use crate::{
    clock::Timestamp,
    gateway::{rewrite::Output, translate::Interpreter},
};

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
        "model": "m", "instructions": "be kind", "input": "hi", "max_output_tokens": 7, "temperature": null,
        "stream": true, "reasoning": {"effort": "low"}, "store": false, "tools": [],
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": true}},
    }));
    let expected = json!({
        "model": "m", "max_tokens": 7, "stream": true, "reasoning_effort": "low",
        "messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": true}},
    });
    assert_eq!(body, expected);
}

#[test]
fn items_are_turns() {
    let call =
        |id: &str| json!({"type": "function_call", "call_id": id, "name": "w", "arguments": "{}"});
    let body = chat(&json!({
        "model": "m", "parallel_tool_calls": false,
        "tools": [{"type": "function", "name": "w", "parameters": {}, "strict": null}],
        "tool_choice": {"type": "function", "name": "w"},
        "input": [
            {"role": "developer", "content": "be kind"},
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:x"}]},
            {"type": "reasoning", "summary": []},
            call("c1"), call("c2"),
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
        ],
    }));
    let called = |id: &str| json!({"id": id, "type": "function", "function": {"name": "w", "arguments": "{}"}});
    let turns = json!([
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:x"}}]},
        {"role": "assistant", "content": "", "tool_calls": [called("c1"), called("c2")]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "assistant", "content": "b"},
    ]);
    assert_eq!(body["messages"], turns);
    assert_eq!(
        body["tools"],
        json!([{"type": "function", "function": {"name": "w", "parameters": {}}}])
    );
    assert_eq!(
        body["tool_choice"],
        json!({"type": "function", "function": {"name": "w"}})
    );
    assert_eq!(body["parallel_tool_calls"], false);
}

#[test]
fn what_a_chat_can_not_do_is_refused_with_the_reason() {
    let refused = |call: Value| {
        let refusal = request(call.to_string().as_bytes()).unwrap_err().object();
        (refusal.param.unwrap(), refusal.message)
    };
    let (param, message) =
        refused(json!({"model": "m", "input": "hi", "previous_response_id": "r"}));
    assert_eq!(param, "previous_response_id");
    assert!(message.contains("whole conversation"));
    let (param, message) =
        refused(json!({"model": "m", "input": "hi", "tools": [{"type": "web_search"}]}));
    assert_eq!(param, "tools");
    assert!(message.contains("\"web_search\""));
    assert_eq!(refused(json!({"model": "m"})).0, "input");
}

fn events(chunks: &[Value]) -> Vec<Value> {
    let (mut answer, mut out) = (
        Answer::new("asked".to_owned(), Timestamp(5_000)),
        Output::default(),
    );
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
        delta(json!({}), Some("tool_calls")),
        json!({"choices": [], "usage": usage}),
    ]);
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], at);
    }
    assert_eq!(events[6]["text"], "ab");
    assert_eq!(events[4]["item_id"], events[2]["item"]["id"]);
    let response = &events[13]["response"];
    assert_eq!(
        (&response["model"], &response["created_at"]),
        (&json!("asked"), &json!(5))
    );
    assert_eq!(response["output"][0]["content"][0]["text"], "ab");
    let call = &response["output"][1];
    assert_eq!(
        (&call["call_id"], &call["name"], &call["arguments"]),
        (&json!("t"), &json!("w"), &json!("{}"))
    );
    let expected = json!({
        "input_tokens": 9, "input_tokens_details": {"cached_tokens": 3}, "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 13,
    });
    assert_eq!(response["usage"], expected);
}

#[test]
fn an_answer_in_one_piece_has_its_items_and_says_when_it_was_cut() {
    let message = json!({"role": "assistant", "content": "hi", "reasoning_content": "hm"});
    let chat = json!({"choices": [{"index": 0, "message": message, "finish_reason": "length"}]});
    let mut answer = Answer::new("asked".to_owned(), Timestamp(0));
    let put: Value =
        serde_json::from_str(&answer.whole(chat.to_string().as_bytes()).unwrap()).unwrap();
    assert_eq!(
        (&put["object"], &put["status"]),
        (&json!("response"), &json!("incomplete"))
    );
    assert_eq!(put["incomplete_details"]["reason"], "max_output_tokens");
    let kinds: Vec<&Value> = put["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["type"])
        .collect();
    assert_eq!(kinds, ["reasoning", "message"]);
    assert_eq!(put["output"][1]["content"][0]["text"], "hi");
}
