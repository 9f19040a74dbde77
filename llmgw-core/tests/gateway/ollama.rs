//! Ollama's API, put into what engines speak.

use llmgw_core::testing::engine::{Script, ScriptedEngine};
use serde_json::{Value, json};

use crate::{
    client::Reply,
    rig::{Rig, chunk, usage_chunk},
};

fn lines(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.head.get("content-type"), Some("application/x-ndjson"));
    reply
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn chat() -> Value {
    json!({"model": "asked", "messages": [{"role": "user", "content": "hi"}], "options": {"num_predict": 5}})
}

#[tokio::test]
async fn a_chat_is_streamed_in_lines_and_is_in_the_accounts() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    engine.next(
        Script::events()
            .bytes(": x\n\n")
            .event(&chunk("a"))
            .event(&chunk("b"))
            .event(&usage_chunk())
            .done(),
    );
    let reply = rig.call("POST", "/api/chat", &chat().to_string()).await;
    let lines = lines(&reply);
    let said: Vec<&str> = lines
        .iter()
        .map(|line| line["message"]["content"].as_str().unwrap())
        .collect();
    assert_eq!(said, ["a", "b", ""]);
    assert!(lines.iter().all(|line| line["model"] == "asked"));
    let last = &lines[2];
    assert_eq!(
        (&last["done"], &last["done_reason"]),
        (&json!(true), &json!("stop"))
    );
    assert_eq!(
        (&last["prompt_eval_count"], &last["eval_count"]),
        (&json!(9), &json!(4))
    );
    let seen = engine.seen().pop().unwrap();
    assert_eq!(seen.path, "/v1/chat/completions");
    let sent: Value = serde_json::from_slice(&seen.body).unwrap();
    let expected = json!({
        "model": "org/served", "stream": true, "max_tokens": 5, "messages": chat()["messages"],
        "stream_options": {"include_usage": true},
    });
    assert_eq!(sent, expected);
    let usage = rig.usage(1).await;
    assert_eq!(
        (
            usage.prompt_tokens.0,
            usage.completion_tokens.0,
            usage.errors
        ),
        (9, 4, 0)
    );
}

#[tokio::test]
async fn a_chat_that_wants_no_stream_gets_one_object() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let mut body = chat();
    body["stream"] = json!(false);
    let reply = rig.call("POST", "/api/chat", &body.to_string()).await;
    assert_eq!(reply.head.get("content-type"), Some("application/json"));
    let answer = reply.json();
    assert_eq!(
        answer["message"],
        json!({"role": "assistant", "content": "hi"})
    );
    assert_eq!(
        (&answer["done"], &answer["eval_count"]),
        (&json!(true), &json!(2))
    );
    let usage = rig.usage(1).await;
    assert_eq!((usage.prompt_tokens.0, usage.completion_tokens.0), (5, 2));
}

#[tokio::test]
async fn a_stream_that_breaks_ends_in_a_line_with_the_error() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    engine.next(Script::events().event(&chunk("a")));
    let reply = rig
        .call(
            "POST",
            "/api/generate",
            &json!({"model": "asked", "prompt": "hi"}).to_string(),
        )
        .await;
    let broken = lines(&reply);
    assert_eq!(broken.len(), 2);
    assert_eq!(
        (&broken[0]["response"], &broken[0]["done"]),
        (&json!("a"), &json!(false))
    );
    assert_eq!(broken[1]["code"], "upstream_disconnected");
    assert!(broken[1]["error"].is_string() && broken[1].get("done").is_none());
    engine.next(
        Script::events()
            .event(&chunk("a"))
            .event("{\"choices\":3}")
            .done(),
    );
    let reply = rig.call("POST", "/api/chat", &chat().to_string()).await;
    assert_eq!(lines(&reply)[1]["code"], "upstream_error");
    assert_eq!(rig.usage(2).await.errors, 2);
}

#[tokio::test]
async fn refusals_are_a_text_under_error() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let unknown = json!({"model": "nobody", "messages": [{"role": "user"}]});
    let reply = rig.call("POST", "/api/chat", &unknown.to_string()).await;
    assert_eq!(
        (reply.head.status, &reply.json()["code"]),
        (404, &json!("model_not_found"))
    );
    assert!(reply.json()["error"].as_str().unwrap().contains("nobody"));
    let reply = rig.call("POST", "/api/chat", "{}").await;
    assert_eq!(
        (reply.head.status, &reply.json()["code"]),
        (400, &json!("missing_field"))
    );
    engine.next(Script::json(
        400,
        r#"{"error":{"code":400,"message":"too long","type":"exceed_context_size_error"}}"#,
    ));
    let reply = rig.call("POST", "/api/chat", &chat().to_string()).await;
    assert_eq!(
        (reply.head.status, &reply.json()["error"]),
        (400, &json!("too long"))
    );
    let reply = rig.call("POST", "/api/pull", "{}").await;
    assert_eq!(
        (reply.head.status, &reply.json()["code"]),
        (404, &json!("unknown_url"))
    );
    engine.next(Script::json(200, "<html>"));
    let whole = json!({"model": "asked", "prompt": "hi", "stream": false});
    let reply = rig.call("POST", "/api/generate", &whole.to_string()).await;
    assert_eq!(
        (reply.head.status, &reply.json()["code"]),
        (502, &json!("upstream_error"))
    );
}

#[tokio::test]
async fn vectors_come_in_ollamas_form() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    engine.always(Script::json(
        200,
        r#"{"data":[{"index":0,"embedding":[1.0,2.5]}],"usage":{"prompt_tokens":3}}"#,
    ));
    let reply = rig
        .call("POST", "/api/embed", r#"{"model":"asked","input":["hi"]}"#)
        .await;
    let answer = reply.json();
    assert_eq!(
        (&answer["model"], &answer["embeddings"]),
        (&json!("asked"), &json!([[1.0, 2.5]]))
    );
    assert_eq!(answer["prompt_eval_count"], 3);
    assert_eq!(engine.seen()[0].path, "/v1/embeddings");
    let reply = rig
        .call(
            "POST",
            "/api/embeddings",
            r#"{"model":"asked","prompt":"hi"}"#,
        )
        .await;
    assert_eq!(reply.text(), r#"{"embedding":[1.0,2.5]}"#);
    let usage = rig.usage(2).await;
    assert_eq!((usage.prompt_tokens.0, usage.completion_tokens.0), (6, 0));
}

#[tokio::test]
async fn the_models_are_those_that_the_key_may_use() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let model = json!({"name": "org/served", "model": "org/served", "modified_at": "2023-11-14T22:13:20.123Z"});
    for path in ["/api/tags", "/api/ps"] {
        assert_eq!(
            rig.call("GET", path, "").await.json(),
            json!({"models": [model]}),
            "{path}"
        );
    }
    assert_eq!(
        rig.call("POST", "/api/show", r#"{"model":"asked"}"#)
            .await
            .head
            .status,
        200
    );
    assert_eq!(
        rig.call("POST", "/api/show", r#"{"model":"x"}"#)
            .await
            .head
            .status,
        404
    );
    assert!(rig.call("GET", "/api/version", "").await.json()["version"].is_string());
    assert_eq!(rig.call("POST", "/api/tags", "{}").await.head.status, 405);
    rig.publish(Vec::new());
    crate::client::within(async {
        while rig.call("GET", "/api/ps", "").await.json() != json!({"models": []}) {}
    })
    .await;
    let mut client = crate::client::Client::connect(rig.address).await;
    client.send("GET", "/api/tags", &[], b"").await;
    assert_eq!(client.reply().await.head.status, 401);
}
