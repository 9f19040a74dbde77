//! Answers in one piece.

use llmgw_core::{
    gateway::GatewayConfig,
    testing::engine::{Script, ScriptedEngine},
    units::Bytes,
};
use serde_json::json;

use crate::{
    client::Client,
    rig::{AUTHORIZATION, CHAT, Rig, config, request},
};

#[tokio::test]
async fn the_answer_is_the_engines_under_the_name_that_was_asked_for() {
    let engine = ScriptedEngine::start().await.unwrap();
    let answer = r#"{ "model" : "org/served", "odd" : 1.0e0, "choices":[{"model":"inner"}],"usage":{"prompt_tokens":5,"completion_tokens":2} }"#;
    engine.always(Script::json(200, answer));
    let rig = Rig::start(&[&engine]).await;
    let reply = rig.chat(&request()).await;
    assert_eq!(reply.head.status, 200);
    assert_eq!(reply.text(), answer.replace("org/served", "asked"));
    assert_eq!(reply.head.get("content-type"), Some("application/json"));
    assert_eq!(reply.head.get("x-llmgw-model"), Some("org/served"));
    let replica = engine.endpoint().replica.to_string();
    assert_eq!(reply.head.get("x-llmgw-replica"), Some(replica.as_str()));
    assert_eq!(reply.head.get("x-llmgw-attempts"), Some("1"));
    assert!(reply.head.get("x-request-id").unwrap().starts_with("req-"));
    assert_eq!(
        reply.head.get("server"),
        None,
        "the engine's own headers stay behind"
    );
}

#[tokio::test]
async fn the_engine_gets_the_body_byte_for_byte_but_for_the_model() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let body = "{\n \"x\": [1.50, 1e3, \"\\u00e9\\/\"],  \"model\" : \"asked\",\n\"y\":null }";
    for path in [CHAT, "/v1/completions"] {
        let reply = rig.call("POST", path, body).await;
        assert_eq!(reply.head.status, 200);
        let seen = engine.seen().pop().unwrap();
        assert_eq!(seen.path, path);
        assert_eq!(seen.body, body.replace("\"asked\"", "\"org/served\""));
    }
}

#[tokio::test]
async fn secrets_stay_and_traces_pass() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut client = Client::connect(rig.address).await;
    let headers = [
        AUTHORIZATION,
        ("x-api-key", "secret"),
        ("cookie", "secret"),
        ("connection", "keep-alive, x-secret"),
        ("x-secret", "secret"),
        ("proxy-authorization", "secret"),
        ("te", "trailers"),
        ("accept-encoding", "gzip"),
        ("traceparent", trace),
        ("x-request-id", "my-id.1"),
        ("content-type", "text/plain"),
    ];
    client
        .send("POST", CHAT, &headers, request().to_string().as_bytes())
        .await;
    let reply = client.reply().await;
    assert_eq!(reply.head.get("x-request-id"), Some("my-id.1"));
    let seen = engine.seen().pop().unwrap();
    assert_eq!(seen.header("traceparent"), Some(trace));
    assert_eq!(seen.header("x-request-id"), Some("my-id.1"));
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert_eq!(
        seen.header("host"),
        Some(engine.address().to_string().as_str())
    );
    for (name, value) in &seen.headers {
        let value = value.to_str().unwrap();
        assert!(
            !value.contains("secret") && !value.contains("sk-llmgw"),
            "{name}: {value}"
        );
        assert_ne!(
            name, "accept-encoding",
            "an answer that is packed could not be edited"
        );
        assert_ne!(name, "te");
    }
}

#[tokio::test]
async fn connections_are_kept_on_both_sides() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let mut client = Client::connect(rig.address).await;
    for _ in 0..5 {
        client
            .send(
                "POST",
                CHAT,
                &[AUTHORIZATION],
                request().to_string().as_bytes(),
            )
            .await;
        assert_eq!(client.reply().await.head.status, 200);
    }
    let connections: Vec<usize> = engine.seen().iter().map(|call| call.connection).collect();
    assert_eq!(connections, [0; 5]);
}

#[tokio::test]
async fn a_connection_is_not_used_after_its_replica_left_the_table() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    assert_eq!(rig.chat(&request()).await.head.status, 200);
    rig.publish(Vec::new());
    // Seen by the gateway, once it refuses.
    assert_eq!(rig.chat(&request()).await.head.status, 503);
    rig.until_idle().await;
    crate::client::within(async {
        while !rig.load.replicas().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    rig.publish(vec![engine.endpoint()]);
    assert_eq!(rig.chat(&request()).await.head.status, 200);
    let connections: Vec<usize> = engine.seen().iter().map(|call| call.connection).collect();
    assert_eq!(connections, [0, 1]);
}

#[tokio::test]
async fn an_answer_of_fifty_megabytes_passes() {
    let engine = ScriptedEngine::start().await.unwrap();
    let piece = "x".repeat(1 << 20);
    let mut script = Script::new()
        .head(200)
        .header("content-type", "application/json")
        .bytes("{\"choices\":[{\"text\":\"");
    for _ in 0..50 {
        script = script.bytes(piece.clone());
    }
    let tail =
        "\"}],\"model\":\"org/served\",\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":8}}";
    engine.always(script.bytes(tail));
    let rig = Rig::start(&[&engine]).await;
    let reply = rig.chat(&request()).await;
    assert!(!reply.broken);
    let tail = tail.replace("org/served", "asked");
    assert_eq!(reply.body.len(), 21 + (50 << 20) + tail.len());
    assert!(reply.body.ends_with(tail.as_bytes()));
    let usage = rig.usage(1).await;
    assert_eq!((usage.prompt_tokens.0, usage.completion_tokens.0), (7, 8));
}

#[tokio::test]
async fn a_large_request_passes_whole() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let mut body = request();
    body["messages"][0]["content"] = json!("é".repeat(5 << 20));
    assert_eq!(rig.chat(&body).await.head.status, 200);
    body["model"] = json!("org/served");
    let seen: serde_json::Value = serde_json::from_slice(&engine.seen()[0].body).unwrap();
    assert_eq!(seen, body);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_refused_or_seen_to_be_broken() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::with(
        GatewayConfig {
            answer_hold: Bytes(1000),
            ..config()
        },
        vec![engine.endpoint()],
    )
    .await;
    let broken = |length: usize| Script::new().head(200).bytes(vec![b' '; length]).abort();
    engine.next(broken(100));
    let reply = rig.chat(&request()).await;
    assert_eq!(
        (reply.head.status, reply.error().0.as_str()),
        (502, "upstream_disconnected")
    );
    let long = Script::new().head(200).bytes(vec![b' '; 5000]).wait();
    engine.next(long.abort());
    let mut client = rig.open(&request()).await;
    assert_eq!(client.head().await.status, 200);
    engine.go(1);
    while let Some(chunk) = client.chunk().await {
        assert!(!chunk.is_empty(), "it does not end as if it were whole");
    }
    let usage = rig.usage(2).await;
    assert_eq!(usage.errors, 2);
}

#[tokio::test]
async fn an_engine_that_falls_silent_in_its_answer_times_out() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::with(
        GatewayConfig {
            idle_timeout: std::time::Duration::from_millis(100),
            first_byte_timeout: std::time::Duration::from_millis(100),
            ..config()
        },
        vec![engine.endpoint()],
    )
    .await;
    engine.next(Script::json(200, "{").hang());
    let reply = rig.chat(&request()).await;
    assert_eq!(
        (reply.head.status, reply.error().0.as_str()),
        (504, "upstream_timeout")
    );
    engine.next(Script::new().hang());
    let reply = rig.chat(&request()).await;
    assert_eq!(
        (reply.head.status, reply.error().0.as_str()),
        (504, "upstream_timeout")
    );
    engine
        .until(|seen| seen.iter().all(|call| call.was_abandoned()))
        .await;
}

#[tokio::test]
async fn an_engines_error_keeps_its_status_and_message() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let error = r#"{"error":{"code":400,"message":"Expected 'messages' to be an array","type":"invalid_request_error"}}"#;
    engine.next(Script::json(400, error));
    let reply = rig.chat(&request()).await;
    assert_eq!(reply.head.status, 400);
    assert_eq!(
        reply.json()["error"],
        json!({
            "message": "Expected 'messages' to be an array",
            "type": "invalid_request_error", "param": null, "code": "invalid_request",
        })
    );
    assert_eq!(reply.head.get("x-llmgw-attempts"), Some("1"));
    let busy = Script::new()
        .head(429)
        .header("retry-after", "7")
        .bytes("{}");
    engine.next(busy);
    let reply = rig.chat(&request()).await;
    assert_eq!(
        (reply.head.status, reply.head.get("retry-after")),
        (429, Some("7"))
    );
    engine.next(Script::json(500, "{\"error\":{\"message\":\"m\"}}"));
    let reply = rig.chat(&request()).await;
    assert_eq!(reply.head.status, 500);
    assert_eq!(reply.error(), ("upstream_error".to_owned(), "m".to_owned()));
    assert_eq!(
        engine.seen().len(),
        3,
        "what an engine refuses is not sent again"
    );
}
