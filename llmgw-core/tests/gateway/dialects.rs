//! The APIs besides chat: each in its own form, under the name that was asked for, and in the accounts.

use llmgw_core::testing::engine::{Script, ScriptedEngine};
use serde_json::{Value, json};

use crate::{
    client::{Client, Reply},
    rig::{Rig, request, streamed},
};

const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

/// Calls as Anthropic's clients do.
pub(crate) async fn message(rig: &Rig, body: &Value) -> Reply {
    let mut client = Client::connect(rig.address).await;
    let headers = [
        ("x-api-key", "sk-llmgw-test"),
        ("anthropic-version", "2023-06-01"),
    ];
    client
        .send("POST", MESSAGES, &headers, body.to_string().as_bytes())
        .await;
    client.reply().await
}

fn event(data: &Value) -> String {
    let name = data["type"].as_str().unwrap();
    format!("event: {name}\ndata: {data}\n\n")
}

/// A stream of the Messages API as llama.cpp sends it.
fn message_events() -> [Value; 5] {
    let usage = json!({"cache_read_input_tokens": 30, "input_tokens": 1, "output_tokens": 0});
    [
        json!({"type": "message_start", "message": {"id": "c", "model": "org/served", "content": [], "usage": usage}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}}),
        json!({"type": "message_stop"}),
    ]
}

fn response_events() -> [Value; 4] {
    let usage = json!({"input_tokens": 31, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 30}});
    let response = |status: &str, usage: Value| json!({"id": "r", "model": "org/served", "status": status, "usage": usage});
    [
        json!({"type": "response.created", "response": response("in_progress", Value::Null)}),
        json!({"type": "response.output_text.delta", "delta": "hi"}),
        json!({"type": "response.output_text.done", "text": "hi"}),
        json!({"type": "response.completed", "response": response("completed", usage)}),
    ]
}

fn script(events: &[Value]) -> Script {
    let events = events.iter().map(event);
    events.fold(Script::events(), |script, event| script.bytes(event))
}

fn renamed(events: &[Value]) -> String {
    let events: String = events.iter().map(event).collect();
    events.replace("org/served", "asked")
}

#[tokio::test]
async fn each_api_goes_to_the_engine_under_its_own_path_and_comes_back_under_the_asked_name() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    for path in [
        "/v1/embeddings",
        "/v1/rerank",
        RESPONSES,
        MESSAGES,
        "/v1/audio/speech",
        "/v1/images/generations",
    ] {
        let answer = r#"{ "model":"org/served", "x":[1.0e0], "usage":{"total_tokens":1} }"#;
        engine.next(Script::json(200, answer));
        let body = r#"{"x":1.50, "model":"asked","input":"hi"}"#;
        let reply = rig.call("POST", path, body).await;
        assert_eq!(reply.head.status, 200, "{path}");
        assert_eq!(
            reply.text(),
            answer.replace("org/served", "asked"),
            "{path}"
        );
        let seen = engine.seen().pop().unwrap();
        assert_eq!(seen.path, path);
        assert_eq!(seen.body, body.replace("asked", "org/served"));
        assert_eq!(rig.call("GET", path, "").await.head.status, 405, "{path}");
    }
}

#[tokio::test]
async fn a_stream_of_messages_passes_under_the_asked_name_and_its_parts_of_usage_add_up() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    engine.next(script(&message_events()));
    let reply = message(&rig, &streamed()).await;
    assert_eq!(reply.head.get("content-type"), Some("text/event-stream"));
    assert_eq!(reply.text(), renamed(&message_events()));
    let usage = rig.usage(1).await;
    assert_eq!(
        (
            usage.prompt_tokens.0,
            usage.cached_tokens.0,
            usage.completion_tokens.0
        ),
        (31, 30, 4)
    );
    assert_eq!(usage.errors, 0);
    let seen = engine.seen().pop().unwrap();
    assert_eq!(seen.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(seen.header("x-api-key"), None);
}

#[tokio::test]
async fn a_stream_of_a_response_ends_without_done_and_is_in_the_accounts() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    engine.next(script(&response_events()).done());
    let reply = rig.call("POST", RESPONSES, &streamed().to_string()).await;
    assert_eq!(reply.text(), renamed(&response_events()));
    let usage = rig.usage(1).await;
    assert_eq!(
        (
            usage.prompt_tokens.0,
            usage.cached_tokens.0,
            usage.completion_tokens.0
        ),
        (31, 30, 4)
    );
    assert_eq!(usage.errors, 0);
}

#[tokio::test]
async fn a_last_event_without_its_empty_line_is_an_end() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let events = message_events();
    let last = event(&events[4]);
    engine.next(script(&events[..4]).bytes(last.trim_end().to_owned()));
    let reply = message(&rig, &streamed()).await;
    assert_eq!(reply.text(), renamed(&events));
    assert_eq!(rig.usage(1).await.errors, 0);
}

#[tokio::test]
async fn a_stream_that_breaks_ends_with_the_error_event_of_its_api() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let ended = |text: &str| {
        let (_, last) = text.trim_end().rsplit_once("\n\n").unwrap();
        let (name, data) = last.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        (name.to_owned(), data)
    };
    engine.next(script(&message_events()[..3]));
    let reply = message(&rig, &streamed()).await;
    let (name, data) = ended(reply.text());
    assert_eq!(name, "event: error");
    assert_eq!(data["type"], "error");
    assert_eq!(
        (&data["error"]["type"], &data["error"]["code"]),
        (&json!("api_error"), &json!("upstream_disconnected"))
    );

    engine.next(script(&response_events()[..2]).abort());
    let reply = rig.call("POST", RESPONSES, &streamed().to_string()).await;
    let (name, data) = ended(reply.text());
    assert_eq!(name, "event: error");
    assert_eq!(
        (&data["type"], &data["code"], &data["sequence_number"]),
        (&json!("error"), &json!("upstream_disconnected"), &json!(2))
    );
    // What was delivered is billed: the prompt as it was told, and a token for each piece.
    let usage = rig.usage(2).await;
    assert_eq!(usage.errors, 2);
    assert_eq!((usage.prompt_tokens.0, usage.completion_tokens.0), (31, 2));
}

#[tokio::test]
async fn a_response_that_the_engine_gave_up_is_passed_on_and_counts_as_an_error() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let failed = json!({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "m"}}});
    engine.next(script(std::slice::from_ref(&failed)));
    let reply = rig.call("POST", RESPONSES, &streamed().to_string()).await;
    assert_eq!(reply.text(), event(&failed));
    assert_eq!(rig.usage(1).await.errors, 1);
}

#[tokio::test]
async fn anthropics_clients_get_refusals_in_their_own_form() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let mut unknown = request();
    unknown["model"] = json!("nobody");
    let reply = message(&rig, &unknown).await;
    assert_eq!(reply.head.status, 404);
    assert_eq!(reply.json()["type"], "error");
    assert_eq!(reply.json()["error"]["type"], "not_found_error");
    assert_eq!(reply.json()["error"]["code"], "model_not_found");
    assert_eq!(reply.head.get("request-id"), reply.head.get("x-request-id"));

    engine.next(Script::json(
        400,
        r#"{"error":{"code":400,"message":"too long","type":"exceed_context_size_error"}}"#,
    ));
    let reply = message(&rig, &request()).await;
    assert_eq!(
        (reply.head.status, &reply.json()["error"]["type"]),
        (400, &json!("invalid_request_error"))
    );
    assert_eq!(reply.json()["error"]["message"], "too long");

    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy", "code": 529}});
    engine.next(script(&[error]));
    let reply = message(&rig, &streamed()).await;
    assert_eq!(
        reply.head.status, 529,
        "an error before all else becomes the status"
    );
    assert_eq!(reply.json()["error"]["message"], "busy");

    let reply = rig.call("POST", "/v1/messages/nothing", "{}").await;
    assert_eq!(
        (reply.head.status, &reply.json()["type"]),
        (404, &json!("error"))
    );
}

#[tokio::test]
async fn counting_tokens_uses_none() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    engine.next(Script::json(200, r#"{"input_tokens":31}"#));
    let reply = rig
        .call("POST", "/v1/messages/count_tokens", &request().to_string())
        .await;
    assert_eq!(reply.text(), r#"{"input_tokens":31}"#);
    let usage = rig.usage(1).await;
    assert_eq!((usage.prompt_tokens.0, usage.completion_tokens.0), (0, 0));
}

#[tokio::test]
async fn vectors_are_put_into_base64_for_clients_that_ask_for_it() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let answer = r#"{"model":"org/served","usage":{"prompt_tokens":2,"total_tokens":2},"data":[{"embedding":[1.0, -2.5],"index":0}]}"#;
    engine.always(Script::json(200, answer));
    let ask = |format: &str| {
        json!({"model": "asked", "input": "hi", "encoding_format": format}).to_string()
    };
    let reply = rig.call("POST", "/v1/embeddings", &ask("base64")).await;
    let expected = answer
        .replace("[1.0, -2.5]", "\"AACAPwAAIMA=\"")
        .replace("org/served", "asked");
    assert_eq!(reply.text(), expected);
    let reply = rig.call("POST", "/v1/embeddings", &ask("float")).await;
    assert_eq!(reply.text(), answer.replace("org/served", "asked"));
    // An engine that does as it is asked is passed on.
    let encoded = answer.replace("[1.0, -2.5]", "\"AACAPwAAIMA=\"");
    engine.always(Script::json(200, encoded));
    let reply = rig.call("POST", "/v1/embeddings", &ask("base64")).await;
    assert_eq!(reply.text(), expected);
    let usage = rig.usage(3).await;
    assert_eq!((usage.prompt_tokens.0, usage.completion_tokens.0), (6, 0));
}

#[tokio::test]
async fn what_an_engine_embeds_and_does_not_count_is_counted_roughly() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    engine.next(Script::json(200, r#"{"results":[]}"#));
    let body = json!({"model": "asked", "query": "q", "documents": ["d".repeat(400)]});
    rig.call("POST", "/v1/rerank", &body.to_string()).await;
    let usage = rig.usage(1).await;
    assert!((100..110).contains(&usage.prompt_tokens.0), "{usage:?}");
}

#[tokio::test]
async fn sound_is_passed_both_ways_byte_for_byte() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let form = |model: &str| {
        let head =
            "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n";
        let field = "\r\n--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\n";
        [
            head.as_bytes(),
            &[0xff, 0, b'{', 0x80],
            field.as_bytes(),
            model.as_bytes(),
            b"\r\n--b--\r\n",
        ]
        .concat()
    };
    let kind = "multipart/form-data; boundary=b";
    engine.next(Script::json(
        200,
        r#"{"text":"hi","usage":{"type":"tokens","input_tokens":3,"output_tokens":2}}"#,
    ));
    let mut client = Client::connect(rig.address).await;
    let headers = [crate::rig::AUTHORIZATION, ("content-type", kind)];
    client
        .send("POST", "/v1/audio/transcriptions", &headers, &form("asked"))
        .await;
    let reply = client.reply().await;
    assert_eq!(reply.json()["text"], "hi");
    let seen = engine.seen().pop().unwrap();
    assert_eq!(seen.body, form("org/served"));
    assert_eq!(seen.header("content-type"), Some(kind));
    let usage = rig.usage(1).await;
    assert_eq!((usage.prompt_tokens.0, usage.completion_tokens.0), (3, 2));

    // Sound that begins as JSON would is sound all the same, and is heard as it comes.
    let sound = b"{\"model\":\"org/served\"";
    engine.next(
        Script::new()
            .head(200)
            .header("content-type", "audio/mpeg")
            .bytes(&sound[..])
            .wait()
            .bytes("!"),
    );
    let body = json!({"model": "asked", "input": "hi", "voice": "x"}).to_string();
    client
        .send(
            "POST",
            "/v1/audio/speech",
            &[crate::rig::AUTHORIZATION],
            body.as_bytes(),
        )
        .await;
    let head = client.head().await;
    assert_eq!(head.get("content-type"), Some("audio/mpeg"));
    assert_eq!(client.chunk().await.unwrap(), sound);
    engine.go(1);
    assert_eq!(client.reply_body().await, "!");
    assert_eq!(rig.usage(2).await.requests, 2);
}

#[tokio::test]
async fn an_engine_that_lacks_an_api_is_named_as_the_one_that_does() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let missing = r#"{"error":{"message":"File Not Found","type":"not_found_error","code":404}}"#;
    engine.next(Script::json(404, missing));
    let reply = rig
        .call("POST", "/v1/images/generations", &request().to_string())
        .await;
    assert_eq!(
        (reply.head.status, reply.error().0.as_str()),
        (404, "unknown_url")
    );
    assert!(reply.error().1.contains("/v1/images/generations"));
    let unsupported = r#"{"error":{"code":501,"message":"This server does not support embeddings.","type":"not_supported_error"}}"#;
    engine.next(Script::json(501, unsupported));
    let reply = rig
        .call("POST", "/v1/embeddings", &request().to_string())
        .await;
    assert_eq!(
        (reply.head.status, reply.error().0.as_str()),
        (501, "not_supported")
    );
    assert_eq!(rig.usage(2).await.errors, 2);
}

#[tokio::test]
async fn messages_become_a_chat_where_the_engine_lacks_them_and_that_is_remembered() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let missing = || Script::json(404, r#"{"detail":"Not Found"}"#);
    engine.next(missing());
    let reply = message(&rig, &request()).await;
    assert_eq!(reply.head.status, 200, "{}", reply.text());
    let answer = reply.json();
    assert_eq!(
        (&answer["type"], &answer["model"]),
        (&json!("message"), &json!("asked"))
    );
    assert_eq!(answer["content"], json!([{"type": "text", "text": "hi"}]));
    assert_eq!(answer["usage"]["input_tokens"], 5);
    // Also in a stream, and at once.
    engine.next(
        Script::events()
            .event(&crate::rig::chunk("a"))
            .event(&crate::rig::usage_chunk())
            .done(),
    );
    let reply = message(&rig, &streamed()).await;
    assert_eq!(reply.head.get("content-type"), Some("text/event-stream"));
    assert!(
        reply.text().starts_with("event: message_start\n"),
        "{}",
        reply.text()
    );
    assert!(
        reply
            .text()
            .trim_end()
            .ends_with(r#"data: {"type":"message_stop"}"#)
    );
    let paths: Vec<String> = engine.seen().into_iter().map(|call| call.path).collect();
    let chat = "/v1/chat/completions";
    assert_eq!(paths, [MESSAGES, chat, chat]);
    // A break is told in the client's own form.
    engine.next(Script::events().event(&crate::rig::chunk("a")));
    let reply = message(&rig, &streamed()).await;
    assert!(
        reply
            .text()
            .contains("event: error\ndata: {\"type\":\"error\"")
    );
    let usage = rig.usage(3).await;
    assert_eq!((usage.prompt_tokens.0, usage.errors), (14, 1));
}

#[tokio::test]
async fn an_engine_that_lacks_the_model_is_not_asked_in_another_api() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let error = r#"{"error":{"message":"The model `m` does not exist.","type":"NotFoundError","code":404}}"#;
    engine.next(Script::json(404, error));
    let reply = message(&rig, &request()).await;
    assert_eq!(reply.head.status, 404);
    assert_eq!(engine.seen().len(), 1);
}

#[tokio::test]
async fn responses_become_a_chat_where_the_engine_lacks_them() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    engine.next(Script::json(404, r#"{"detail":"Not Found"}"#));
    let body = json!({"model": "asked", "input": "hi"});
    let reply = rig.call("POST", RESPONSES, &body.to_string()).await;
    let answer = reply.json();
    assert_eq!(
        (&answer["object"], &answer["model"]),
        (&json!("response"), &json!("asked"))
    );
    assert_eq!(answer["output"][0]["content"][0]["text"], "hi");
    engine.next(Script::events().event(&crate::rig::chunk("a")).abort());
    let body = json!({"model": "asked", "input": "hi", "stream": true});
    let reply = rig.call("POST", RESPONSES, &body.to_string()).await;
    assert!(
        reply.text().starts_with("event: response.created\n"),
        "{}",
        reply.text()
    );
    assert!(
        reply
            .text()
            .contains("event: error\ndata: {\"type\":\"error\"")
    );
    let paths: Vec<String> = engine.seen().into_iter().map(|call| call.path).collect();
    let chat = "/v1/chat/completions";
    assert_eq!(paths, [RESPONSES, chat, chat]);
    assert_eq!(rig.usage(2).await.errors, 1);
}
