use proptest::prelude::*;
use serde_json::json;

use super::*;

fn texts(json: &serde_json::Value, body: Body) -> Vec<String> {
    let json = json.to_string();
    let found = find(json.as_bytes(), body);
    found
        .iter()
        .map(|found| decode(&json.as_bytes()[found.range.clone()]).into_owned())
        .collect()
}

#[test]
fn the_texts_of_every_kind_of_request_are_found() {
    let chat = json!({
        "model": "no", "user": "no",
        "messages": [
            {"role": "no", "content": "a"},
            {"role": "no", "content": [
                {"type": "no", "text": "b"},
                {"type": "no", "image_url": {"url": "data:image/png;base64,no", "detail": "no"}},
                {"type": "no", "image_url": {"url": "https://c"}},
                {"type": "no", "input_audio": {"data": "no", "format": "no"}},
            ]},
            {"role": "no", "tool_calls": [{"id": "no", "type": "no",
                "function": {"name": "f", "arguments": "{\"id\":\"d\"}"}}]},
            {"role": "no", "tool_call_id": "no", "content": "e"},
        ],
        "tools": [{"type": "no", "function": {"name": "no", "description": "g",
            "parameters": {"type": "no", "properties": {"x": {"type": "no", "description": "h"}}}}}],
    });
    let mut found = texts(&chat, Body::Request);
    found.sort();
    assert_eq!(
        found,
        ["a", "b", "e", "f", "g", "h", "https://c", "{\"id\":\"d\"}"]
    );
    let completion = json!({"prompt": ["a", "b"], "suffix": "c", "stop": ["no"]});
    assert_eq!(texts(&completion, Body::Request), ["a", "b", "c"]);
    let messages = json!({
        "system": [{"type": "text", "text": "a"}],
        "messages": [{"role": "no", "content": [
            {"type": "tool_use", "id": "no", "name": "b", "input": {"id": "c", "data": ["d"]}},
            {"type": "tool_result", "tool_use_id": "no", "content": "e"},
        ]}],
    });
    let mut found = texts(&messages, Body::Request);
    found.sort();
    assert_eq!(found, ["a", "b", "c", "d", "e"]);
    let responses = json!({"instructions": "a", "input": [{"role": "no", "content": [
        {"type": "input_text", "text": "b"}]}]});
    let mut found = texts(&responses, Body::Request);
    found.sort();
    assert_eq!(found, ["a", "b"]);
    let rerank = json!({"query": "a", "documents": ["b", {"text": "c"}]});
    assert_eq!(texts(&rerank, Body::Request).len(), 3);
}

#[test]
fn the_texts_of_every_kind_of_answer_are_found() {
    let chat = json!({"id": "no", "model": "no", "choices": [{"index": 0, "finish_reason": null,
        "message": {"role": "no", "content": "a", "reasoning_content": "b",
            "tool_calls": [{"id": "no", "function": {"arguments": "c"}}]}}],
        "usage": {"x": "no"}});
    assert_eq!(texts(&chat, Body::Answer), ["a", "b", "c"]);
    let message = json!({"type": "no", "content": [{"type": "no", "text": "a"},
        {"type": "no", "id": "no", "input": {"type": "b"}}], "stop_reason": null});
    let mut found = texts(&message, Body::Answer);
    found.sort();
    assert_eq!(found, ["a", "b"]);
    let response = json!({"instructions": "no", "metadata": {"a": "no"}, "output": [
        {"type": "no", "content": [{"type": "no", "text": "a"}]},
        {"type": "no", "arguments": "b"}]});
    let mut found = texts(&response, Body::Answer);
    found.sort();
    assert_eq!(found, ["a", "b"]);
    let vectors = json!({"data": [{"embedding": [0.25, 1e-3, [2]], "object": "no"}]});
    assert!(texts(&vectors, Body::Answer).is_empty());
}

#[test]
fn pieces_of_one_text_are_told_from_those_of_others() {
    let chat = |choice: u64, delta: serde_json::Value| {
        json!({"choices": [{"index": choice, "delta": delta, "finish_reason": null}]}).to_string()
    };
    let place = |json: &str| {
        let found = find(json.as_bytes(), Body::Event);
        assert_eq!(found.len(), 1, "{json}");
        assert_eq!(found[0].kind, Kind::Delta);
        (found[0].choice, found[0].channel)
    };
    let tool =
        |index: u64| json!({"tool_calls": [{"index": index, "function": {"arguments": "x"}}]});
    let content = place(&chat(0, json!({"content": "x"})));
    assert_eq!(place(&chat(0, json!({"content": "yy"}))), content);
    let other = place(&chat(1, json!({"content": "x"})));
    assert_eq!((other.0, other.1), (1, content.1));
    let reasoning = place(&chat(0, json!({"reasoning_content": "x"})));
    let tools = [place(&chat(0, tool(0))), place(&chat(0, tool(1)))];
    let mut channels = vec![content.1, reasoning.1, tools[0].1, tools[1].1];
    channels.sort();
    channels.dedup();
    assert_eq!(channels.len(), 4);
    // The index may stand on either side of the text.
    let before =
        r#"{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"x"}}"#;
    let after = r#"{"delta":{"text":"x","type":"text_delta"},"index":3}"#;
    assert_eq!(place(before), place(after));
    assert_ne!(place(before), place(&before.replace('3', "4")));
    let part =
        r#"{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"x"}"#;
    assert_ne!(
        place(part),
        place(&part.replace("\"output_index\":1", "\"output_index\":2"))
    );
    assert_eq!(place(r#"{"choices":[{"text":"x","index":0}]}"#).0, 0);
}

#[test]
fn the_end_of_a_choice_and_what_tells_its_text_again_are_found() {
    let json = r#"{"choices":[{"logprobs":{"content":[{"token":"a"}]},"delta":{"content":"a"},"finish_reason":"stop","index":2}]}"#;
    let found = find(json.as_bytes(), Body::Event);
    let kinds: Vec<Kind> = found.iter().map(|found| found.kind).collect();
    assert_eq!(kinds, [Kind::Logprobs, Kind::Delta, Kind::End]);
    assert!(found.iter().all(|found| found.choice == 2));
    assert_eq!(
        json.get(found[0].range.clone()).unwrap(),
        r#"{"content":[{"token":"a"}]}"#
    );
}

proptest! {
    #[test]
    fn any_bytes_are_walked_through(
        json in prop::collection::vec(prop::sample::select(
            b"{}[]\",:\\ x1\"choices\"\"text\"\"index\"".to_vec()), 0..80)
    ) {
        for body in [Body::Request, Body::Answer, Body::Event] {
            for found in find(&json, body) {
                prop_assert!(found.range.start <= found.range.end && found.range.end <= json.len());
            }
        }
    }

    #[test]
    fn broken_json_is_read_up_to_where_it_breaks(cut in 0_usize..200) {
        let json = br#"{"messages":[{"role":"user","content":"a\"b"},{"content":[{"text":"c"},{"data":[[1,"x"],{}]}]}]}"#;
        let whole = find(json, Body::Request);
        let part = find(&json[..cut.min(json.len())], Body::Request);
        prop_assert!(whole.starts_with(&part));
    }
}

#[test]
fn what_is_deeper_than_json_may_be_ends_the_walk() {
    let json = format!("{{\"messages\":{}\"x\"", "[".repeat(100_000));
    assert!(find(json.as_bytes(), Body::Request).is_empty());
}
