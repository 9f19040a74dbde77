use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::{
    clock::Timestamp,
    gateway::{refusal::Refusal, rewrite::Output, translate::Interpreter},
};

fn body(made: Result<(String, &'static str, Value), Refusal>) -> (&'static str, Value) {
    let (model, path, body) = made.unwrap();
    assert_eq!(body["model"], model.as_str());
    (path, body)
}

fn chatted(call: &Value) -> Value {
    let (path, body) = body(chat(call.to_string().as_bytes()));
    assert_eq!(path, "/v1/chat/completions");
    body
}

fn refused(call: &Value) -> String {
    let refusal = chat(call.to_string().as_bytes()).unwrap_err();
    refusal.object().message
}

#[test]
fn a_plain_chat_is_a_stream_unless_it_says_otherwise() {
    let turns = json!([{"role": "user", "content": "hi"}]);
    let body = chatted(&json!({"model": "m", "messages": turns}));
    assert_eq!(
        body,
        json!({"model": "m", "stream": true, "messages": turns})
    );
    let body = chatted(
        &json!({"model": "m", "messages": turns, "stream": false, "keep_alive": "5m", "tools": []}),
    );
    assert_eq!(
        body,
        json!({"model": "m", "stream": false, "messages": turns})
    );
}

#[test]
fn options_go_where_engines_read_them_and_those_of_loading_nowhere() {
    let options = json!({
        "num_predict": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": 1,
        "stop": ["x"], "repeat_penalty": 1.1, "num_ctx": 8192, "num_gpu": 1, "mirostat": 2,
    });
    let call = |options: Value| json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "options": options});
    let mut body = chatted(&call(options));
    let body = body.as_object_mut().unwrap();
    body.remove("messages");
    let expected = json!({
        "model": "m", "stream": true, "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 40,
        "min_p": 0.1, "seed": 1, "stop": ["x"], "repeat_penalty": 1.1, "repetition_penalty": 1.1,
    });
    assert_eq!(Value::Object(body.clone()), expected);
    let all = chatted(&call(json!({"num_predict": -1})));
    assert_eq!(all.get("max_tokens"), None);
}

#[test]
fn formats_are_response_formats() {
    let call =
        |format: Value| json!({"model": "m", "messages": [{"role": "user"}], "format": format});
    assert_eq!(
        chatted(&call(json!("json")))["response_format"],
        json!({"type": "json_object"})
    );
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let format = &chatted(&call(schema.clone()))["response_format"];
    assert_eq!(format["type"], "json_schema");
    assert_eq!(
        (
            &format["json_schema"]["schema"],
            &format["json_schema"]["strict"]
        ),
        (&schema, &json!(true))
    );
    assert_eq!(chatted(&call(json!(""))).get("response_format"), None);
    assert!(refused(&call(json!("xml"))).contains("\"format\""));
}

#[test]
fn answers_of_tools_find_the_calls_that_they_answer() {
    let call = |name: &str| json!({"function": {"name": name, "arguments": {"x": 1}}});
    let body = chatted(
        &json!({"model": "m", "tools": [{"type": "function"}], "messages": [
            {"role": "assistant", "content": "", "tool_calls": [call("a"), call("b")]},
            {"role": "tool", "content": "of b", "tool_name": "b"},
            {"role": "tool", "content": "of a"},
            {"role": "assistant", "tool_calls": [call("a")]},
            {"role": "tool", "content": "again", "tool_name": "a"},
        ]}),
    );
    assert_eq!(body["tools"], json!([{"type": "function"}]));
    let turns = &body["messages"];
    let ids: Vec<&Value> = [1, 2, 4]
        .iter()
        .map(|at| &turns[*at]["tool_call_id"])
        .collect();
    assert_eq!(ids, ["call_2", "call_1", "call_3"]);
    let first = &turns[0]["tool_calls"][0];
    assert_eq!(first["id"], "call_1");
    assert_eq!(
        first["function"],
        json!({"name": "a", "arguments": "{\"x\":1}"})
    );
}

#[test]
fn pictures_stand_beside_the_text() {
    let message = json!({"role": "user", "content": "what?", "images": ["iVBORw0", "/9j/4AA"]});
    let body = chatted(&json!({"model": "m", "messages": [message]}));
    assert_eq!(
        body["messages"][0]["content"],
        json!([
            {"type": "text", "text": "what?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0"}},
            {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9j/4AA"}},
        ])
    );
}

#[test]
fn a_prompt_is_a_turn_or_goes_raw() {
    let made = |call: Value| body(generate(call.to_string().as_bytes()));
    let (path, body) =
        made(json!({"model": "m", "prompt": "hi", "system": "be kind", "stream": false}));
    assert_eq!(path, "/v1/chat/completions");
    let turns =
        json!([{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}]);
    assert_eq!(body["messages"], turns);
    let (path, body) = made(json!({"model": "m", "prompt": "hi", "raw": true}));
    assert_eq!((path, &body["prompt"]), ("/v1/completions", &json!("hi")));
    let (path, body) = made(json!({"model": "m", "prompt": "a", "suffix": "b"}));
    assert_eq!((path, &body["suffix"]), ("/v1/completions", &json!("b")));
    assert!(generate(br#"{"model":"m","prompt":""}"#).is_err());
}

#[test]
fn what_is_missing_or_no_json_is_named() {
    assert!(refused(&json!({"messages": [{"role": "user"}]})).contains("\"model\""));
    assert!(refused(&json!({"model": "m", "messages": []})).contains("\"messages\""));
    assert!(refused(&json!({"model": 1})).contains("not right"));
    assert!(
        chat(b"{")
            .unwrap_err()
            .object()
            .message
            .contains("not JSON")
    );
    assert!(embed(br#"{"model":"m"}"#).is_err() && embeddings(br#"{"model":"m"}"#).is_err());
}

fn answer(form: Form) -> Answer {
    Answer::new(
        form,
        "asked".to_owned(),
        Timestamp(1_700_000_000_000),
        Instant::now(),
    )
}

fn lines(form: Form, chunks: &[Value]) -> Vec<Value> {
    let (mut answer, mut out) = (answer(form), Output::default());
    for chunk in chunks {
        answer
            .chunk(chunk.to_string().as_bytes(), &mut out)
            .unwrap();
    }
    answer.end(&mut out);
    let text = String::from_utf8(out.take().to_vec()).unwrap();
    assert!(text.ends_with('\n'));
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn delta(delta: Value, finish: Option<&str>) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

#[tokio::test(start_paused = true)]
async fn chunks_become_lines_and_the_last_has_counts_and_times() {
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 4});
    let timings = json!({"prompt_ms": 1.5, "predicted_ms": 2.0});
    let lines = lines(
        Form::Chat,
        &[
            delta(json!({"role": "assistant", "content": null}), None),
            delta(json!({"reasoning_content": "hm"}), None),
            delta(json!({"content": "hi"}), None),
            delta(json!({}), Some("length")),
            json!({"choices": [], "usage": usage, "timings": timings}),
        ],
    );
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(
        lines[0]["message"],
        json!({"role": "assistant", "content": "", "thinking": "hm"})
    );
    let created = "2023-11-14T22:13:20.000000Z";
    assert_eq!(
        lines[1],
        json!({"model": "asked", "created_at": created, "message": {"role": "assistant", "content": "hi"}, "done": false})
    );
    assert_eq!(
        lines[2],
        json!({
            "model": "asked", "created_at": created, "message": {"role": "assistant", "content": ""}, "done": true,
            "done_reason": "length", "total_duration": 0, "prompt_eval_count": 9, "prompt_eval_duration": 1_500_000,
            "eval_count": 4, "eval_duration": 2_000_000,
        })
    );
}

#[tokio::test(start_paused = true)]
async fn calls_of_tools_come_whole_with_their_arguments_read() {
    let piece = |call: Value| delta(json!({"tool_calls": [call]}), None);
    let lines = lines(
        Form::Chat,
        &[
            piece(json!({"index": 0, "id": "x", "function": {"name": "w", "arguments": ""}})),
            piece(json!({"index": 0, "function": {"arguments": "{\"city\":"}})),
            piece(json!({"index": 0, "function": {"arguments": "\"Bern\"}"}})),
            piece(json!({"index": 1, "function": {"name": "v", "arguments": "not JSON"}})),
            delta(json!({}), Some("tool_calls")),
        ],
    );
    assert_eq!(lines.len(), 2);
    let calls = json!([
        {"function": {"name": "w", "arguments": {"city": "Bern"}}},
        {"function": {"name": "v", "arguments": {}}},
    ]);
    assert_eq!(lines[0]["message"]["tool_calls"], calls);
    assert_eq!(
        (&lines[1]["done_reason"], &lines[1]["eval_count"]),
        (&json!("stop"), &Value::Null)
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_one_piece_is_one_object() {
    let whole = json!({
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    });
    let put: Value = serde_json::from_str(
        &answer(Form::Generate)
            .whole(whole.to_string().as_bytes())
            .unwrap(),
    )
    .unwrap();
    assert_eq!(
        (&put["response"], &put["done"], &put["eval_count"]),
        (&json!("hi"), &json!(true), &json!(2))
    );
    let raw = json!({"choices": [{"index": 0, "text": "raw", "finish_reason": "length"}]});
    let put: Value = serde_json::from_str(
        &answer(Form::Generate)
            .whole(raw.to_string().as_bytes())
            .unwrap(),
    )
    .unwrap();
    assert_eq!(
        (&put["response"], &put["done_reason"]),
        (&json!("raw"), &json!("length"))
    );
    assert!(answer(Form::Chat).whole(b"<html>").is_err());
}

#[tokio::test(start_paused = true)]
async fn vectors_stay_as_they_are_written_and_in_their_order() {
    let answer = br#"{"data":[{"index":1,"embedding":[2.50]},{"index":0,"embedding":[1e0, 3]}],"usage":{"prompt_tokens":5}}"#;
    let put = Vectors::new("asked".to_owned(), Instant::now())
        .whole(answer)
        .unwrap();
    let expected = r#"{"model":"asked","embeddings":[[1e0, 3],[2.50]],"total_duration":0,"prompt_eval_count":5}"#;
    assert_eq!(put, expected);
    assert_eq!(
        Vectors::old().whole(answer).unwrap(),
        r#"{"embedding":[1e0, 3]}"#
    );
}
