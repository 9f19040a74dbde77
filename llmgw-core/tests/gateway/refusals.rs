//! Every refusal is JSON with a code, and says what is wrong.

use llmgw_core::{gateway::GatewayConfig, testing::engine::ScriptedEngine, units::Bytes};

use crate::{
    client::{Client, Reply},
    rig::{AUTHORIZATION, CHAT, KEY, Rig, config, request},
};

async fn with_headers(rig: &Rig, headers: &[(&str, &str)]) -> Reply {
    let mut client = Client::connect(rig.address).await;
    client
        .send("POST", CHAT, headers, request().to_string().as_bytes())
        .await;
    client.reply().await
}

fn status_and_code(reply: &Reply) -> (u16, String) {
    (reply.head.status, reply.error().0)
}

#[tokio::test]
async fn a_call_needs_a_known_key() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    for headers in [
        [("x", "y")],
        [("authorization", "Bearer sk-llmgw-other")],
        [("authorization", "Bearer ")],
        [("authorization", "Basic sk-llmgw-test")],
        [("authorization", "sk-llmgw-test")],
        [("x-api-key", "nope")],
    ] {
        let reply = with_headers(&rig, &headers).await;
        assert_eq!(
            status_and_code(&reply),
            (401, "invalid_api_key".into()),
            "{headers:?}"
        );
        assert_eq!(reply.head.get("www-authenticate"), Some("Bearer"));
        assert!(reply.head.get("x-request-id").is_some());
        let said = reply.error().1;
        assert!(!said.contains("sk-llmgw"), "{said}");
    }
    assert!(engine.seen().is_empty());
    for headers in [
        vec![AUTHORIZATION],
        vec![("authorization", "bearer sk-llmgw-test")],
        vec![("x-api-key", KEY)],
        vec![("authorization", "Basic abc"), ("x-api-key", KEY)],
    ] {
        let reply = with_headers(&rig, &headers).await;
        assert_eq!(reply.head.status, 200, "{headers:?}");
    }
}

#[tokio::test]
async fn a_body_that_is_wrong_is_refused_with_what_is_wrong() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    for (body, code) in [
        ("", "invalid_json"),
        ("{\"model\":\"asked\"", "invalid_json"),
        ("[]", "invalid_json"),
        ("{}", "missing_field"),
        ("{\"model\":null}", "invalid_request"),
        (
            "{\"model\":\"asked\",\"model\":\"asked\"}",
            "invalid_request",
        ),
    ] {
        let reply = rig.call("POST", CHAT, body).await;
        assert_eq!(status_and_code(&reply), (400, code.into()), "{body}");
    }
    let reply = rig.call("POST", CHAT, "{}").await;
    assert_eq!(reply.json()["error"]["param"], "model");
    assert!(engine.seen().is_empty());
}

#[tokio::test]
async fn a_model_that_does_not_exist_is_refused() {
    let rig = Rig::start(&[]).await;
    for name in ["other", "bad name", "", &"x".repeat(500)] {
        let reply = rig.chat(&serde_json::json!({"model": name})).await;
        assert_eq!(status_and_code(&reply), (404, "model_not_found".into()));
        assert_eq!(reply.json()["error"]["param"], "model");
        assert!(reply.body.len() < 1000);
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_refused() {
    let rig = Rig::start(&[]).await;
    let reply = rig.call("POST", "/v1/nothing", "{}").await;
    assert_eq!(status_and_code(&reply), (404, "unknown_url".into()));
    let reply = rig.call("GET", CHAT, "").await;
    assert_eq!(status_and_code(&reply), (405, "method_not_allowed".into()));
    assert_eq!(reply.head.get("allow"), Some("POST"));
    let reply = rig.call("POST", "/v1/models", "{}").await;
    assert_eq!(reply.head.get("allow"), Some("GET, HEAD"));
}

#[tokio::test]
async fn a_client_that_takes_the_gateway_for_a_proxy_is_told_that_it_is_none() {
    let rig = Rig::start(&[]).await;
    let mut client = Client::connect(rig.address).await;
    client
        .raw(b"CONNECT example.org:443 HTTP/1.1\r\nhost: example.org:443\r\n\r\n")
        .await;
    let reply = client.reply().await;
    let (code, message) = reply.error();
    assert_eq!(
        (reply.head.status, code.as_str()),
        (405, "method_not_allowed")
    );
    assert!(message.contains("not a proxy"), "{message}");
    assert_eq!(reply.head.get("allow"), Some("GET, HEAD, POST"));
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_with_the_limit() {
    let engine = ScriptedEngine::start().await.unwrap();
    let config = GatewayConfig {
        body_limit: Bytes::mib(1),
        ..config()
    };
    let rig = Rig::with(config, vec![engine.endpoint()]).await;
    let body = format!("{{\"model\":\"asked\",\"x\":\"{}\"}}", "x".repeat(8 << 20));
    // By its length: a client that writes all of it first still reads the refusal.
    let reply = rig.call("POST", CHAT, &body).await;
    assert_eq!(status_and_code(&reply), (413, "request_too_large".into()));
    assert!(reply.error().1.contains("1.0 MiB"), "{}", reply.error().1);
    // In chunks, without a length.
    let mut client = Client::connect(rig.address).await;
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    client.raw(head.as_bytes()).await;
    for piece in body.as_bytes().chunks(1 << 16) {
        client
            .raw(format!("{:x}\r\n", piece.len()).as_bytes())
            .await;
        client.raw(piece).await;
        client.raw(b"\r\n").await;
    }
    client.raw(b"0\r\n\r\n").await;
    assert_eq!(
        status_and_code(&client.reply().await),
        (413, "request_too_large".into())
    );
    // A client that asks before it sends is told at once.
    let mut client = Client::connect(rig.address).await;
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\nexpect: 100-continue\r\ncontent-length: 99999999\r\n\r\n"
    );
    client.raw(head.as_bytes()).await;
    assert_eq!(client.reply().await.head.status, 413);
    assert!(engine.seen().is_empty());
}

#[tokio::test]
async fn a_chunked_body_within_the_limit_is_read() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let mut client = Client::connect(rig.address).await;
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    client.raw(head.as_bytes()).await;
    for piece in ["{\"mod", "el\":\"as", "ked\"}"] {
        client
            .raw(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes())
            .await;
    }
    client.raw(b"0\r\n\r\n").await;
    assert_eq!(client.reply().await.head.status, 200);
    assert_eq!(engine.seen()[0].body, "{\"model\":\"org/served\"}");
    assert_eq!(engine.seen()[0].header("transfer-encoding"), None);
}
