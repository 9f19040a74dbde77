//! Streams of events.

use std::time::Duration;

use llmgw_core::{
    gateway::GatewayConfig,
    testing::engine::{Script, ScriptedEngine},
    units::Bytes,
};
use serde_json::{Value, json};

use crate::rig::{Rig, chunk, config, request, streamed, usage_chunk};

/// The data of a stream's events.
fn events(text: &str) -> Vec<String> {
    let events = text.split_terminator("\n\n");
    events
        .map(|event| event.strip_prefix("data: ").unwrap().to_owned())
        .collect()
}

fn renamed(json: &str) -> String {
    json.replace("org/served", "asked")
}

fn error_code(event: &str) -> String {
    let event: Value = serde_json::from_str(event).unwrap();
    event["error"]["code"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn events_pass_as_they_come() {
    let engine = ScriptedEngine::start().await.unwrap();
    let script = Script::events()
        .event(&chunk("a"))
        .wait()
        .event(&chunk("b"))
        .wait()
        .done();
    engine.always(script);
    let rig = Rig::start(&[&engine]).await;
    let mut client = rig.open(&streamed()).await;
    let head = client.head().await;
    assert_eq!(head.status, 200);
    assert_eq!(head.get("content-type"), Some("text/event-stream"));
    assert_eq!(head.get("cache-control"), Some("no-cache"));
    assert_eq!(head.get("x-accel-buffering"), Some("no"));
    assert_eq!(head.get("x-llmgw-attempts"), Some("1"));
    // The engine does not go on before the client has what came.
    let first = client.chunks_until("\n\n").await;
    assert_eq!(first, format!("data: {}\n\n", renamed(&chunk("a"))));
    engine.go(1);
    let second = client.chunks_until("\n\n").await;
    assert_eq!(second, format!("data: {}\n\n", renamed(&chunk("b"))));
    engine.go(1);
    assert_eq!(client.chunks_until("\n\n").await, "data: [DONE]\n\n");
    assert_eq!(client.chunk().await.unwrap(), b"", "and ends");
}

#[tokio::test]
async fn usage_is_asked_for_and_stripped_when_the_client_did_not_ask() {
    let engine = ScriptedEngine::start().await.unwrap();
    let script = Script::events()
        .event(&chunk("a"))
        .event(&usage_chunk())
        .done();
    engine.always(script);
    let rig = Rig::start(&[&engine]).await;
    let reply = rig.chat(&streamed()).await;
    assert_eq!(
        events(reply.text()),
        [renamed(&chunk("a")), "[DONE]".into()]
    );
    let seen: Value = serde_json::from_slice(&engine.seen()[0].body).unwrap();
    assert_eq!(seen["stream_options"], json!({"include_usage": true}));

    let mut body = streamed();
    body["stream_options"] = json!({"include_usage": true});
    let reply = rig.chat(&body).await;
    let expected = [
        renamed(&chunk("a")),
        renamed(&usage_chunk()),
        "[DONE]".into(),
    ];
    assert_eq!(events(reply.text()), expected);
    let usage = rig.usage(2).await;
    assert_eq!((usage.prompt_tokens.0, usage.completion_tokens.0), (18, 8));
}

#[tokio::test]
async fn usage_in_a_chunk_with_content_is_cut_out_of_it() {
    let engine = ScriptedEngine::start().await.unwrap();
    let last = r#"{"choices":[{"text":"b"}],"model":"org/served","usage":{"prompt_tokens":1,"completion_tokens":2},"timings":{}}"#;
    engine.always(Script::events().event(last).done());
    let rig = Rig::start(&[&engine]).await;
    let reply = rig
        .call("POST", "/v1/completions", &streamed().to_string())
        .await;
    let expected = r#"{"choices":[{"text":"b"}],"model":"asked","timings":{}}"#;
    assert_eq!(events(reply.text()), [expected, "[DONE]"]);
    assert_eq!(rig.usage(1).await.completion_tokens.0, 2);
}

#[tokio::test]
async fn every_cut_of_the_bytes_gives_the_same_stream() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let text = format!(
        ": hello\r\n\r\ndata: {}\r\n\r\ndata:{}\n\ndata: {}\n\ndata: [DONE]\n\n",
        chunk("ä\\n"),
        chunk("b"),
        usage_chunk(),
    );
    let mut expected = None;
    for size in [text.len(), 1, 2, 3, 7, 64] {
        let mut script = Script::events();
        for piece in text.as_bytes().chunks(size) {
            script = script.bytes(piece.to_vec());
        }
        engine.next(script);
        let reply = rig.chat(&streamed()).await;
        let text = reply.text().to_owned();
        let expected = expected.get_or_insert_with(|| text.clone());
        assert_eq!(&text, expected, "in pieces of {size}");
    }
    let expected = expected.unwrap();
    assert!(expected.starts_with(": hello\r\n\r\ndata: {"), "{expected}");
    assert!(expected.ends_with("\n\ndata: [DONE]\n\n") && !expected.contains("usage"));
}

#[tokio::test]
async fn a_stream_without_its_end_ends_with_an_error_and_no_done() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::with(
        GatewayConfig {
            idle_timeout: Duration::from_millis(200),
            ..config()
        },
        vec![engine.endpoint()],
    )
    .await;
    engine.go(100);
    let begun = || Script::events().event(&chunk("a")).bytes("data: {\"half");
    for (script, how) in [
        (begun(), "without [DONE]"),
        (begun().abort(), "broke off"),
        (begun().hang(), "fell silent"),
    ] {
        engine.next(script);
        let reply = rig.chat(&streamed()).await;
        assert!(!reply.broken, "the answer itself ends as it should");
        let events = events(reply.text());
        assert_eq!(events.len(), 2, "{events:?}");
        assert_eq!(events[0], renamed(&chunk("a")));
        assert_eq!(error_code(&events[1]), "upstream_disconnected");
        assert!(events[1].contains(how), "{}", events[1]);
    }
    let usage = rig.usage(3).await;
    assert_eq!(
        (usage.errors, usage.completion_tokens.0),
        (3, 3),
        "what was delivered counts"
    );
}

#[tokio::test]
async fn an_idle_stream_may_be_slower_than_the_timeout_as_long_as_bytes_come() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::with(
        GatewayConfig {
            idle_timeout: Duration::from_millis(400),
            ..config()
        },
        vec![engine.endpoint()],
    )
    .await;
    let mut script = Script::events();
    for _ in 0..8 {
        script = script.event(&chunk("a")).pause(Duration::from_millis(100));
    }
    engine.always(script.done());
    let reply = rig.chat(&streamed()).await;
    assert_eq!(events(reply.text()).len(), 9, "{}", reply.text());
}

#[tokio::test]
async fn an_error_as_first_event_becomes_the_status() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let error = r#"{"error":{"code":400,"message":"too long","type":"exceed_context_size_error"}}"#;
    engine.next(Script::events().bytes(": wait\n\n").event(error));
    let reply = rig.chat(&streamed()).await;
    assert_eq!(reply.head.status, 400);
    let (code, message) = reply.error();
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("context_length_exceeded", "too long")
    );
    assert_eq!(reply.head.get("content-type"), Some("application/json"));

    engine.next(Script::json(400, error));
    assert_eq!(
        rig.chat(&streamed()).await.error().0,
        "context_length_exceeded"
    );
}

#[tokio::test]
async fn a_later_error_becomes_the_last_event_in_our_shape() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let error = r#"{"error":{"code":500,"message":"boom","type":"server_error"}}"#;
    engine.next(Script::events().event(&chunk("a")).event(error).done());
    let reply = rig.chat(&streamed()).await;
    let events = events(reply.text());
    assert_eq!(events.len(), 2, "{events:?}");
    let event: Value = serde_json::from_str(&events[1]).unwrap();
    let expected =
        json!({"message": "boom", "type": "server_error", "param": null, "code": "server"});
    assert_eq!(event["error"], expected);
}

#[tokio::test]
async fn an_event_beyond_the_limit_ends_the_stream() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::with(
        GatewayConfig {
            event_limit: Bytes(1000),
            ..config()
        },
        vec![engine.endpoint()],
    )
    .await;
    let large = chunk(&"x".repeat(2000));
    engine.next(Script::events().event(&chunk("a")).event(&large).done());
    let reply = rig.chat(&streamed()).await;
    let events = events(reply.text());
    assert_eq!(events.len(), 2);
    assert_eq!(error_code(&events[1]), "upstream_error");
}

#[tokio::test]
async fn a_done_without_its_empty_line_and_an_answer_that_stays_open_are_ends() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    engine.next(Script::events().event(&chunk("a")).bytes("data: [DONE]\n"));
    let reply = rig.chat(&streamed()).await;
    assert_eq!(
        events(reply.text()),
        [renamed(&chunk("a")), "[DONE]".into()]
    );
    engine.next(Script::events().event(&chunk("a")).done().hang());
    let reply = rig.chat(&streamed()).await;
    assert_eq!(
        events(reply.text()),
        [renamed(&chunk("a")), "[DONE]".into()]
    );
    assert_eq!(rig.usage(2).await.errors, 0);
}

#[tokio::test]
async fn the_connection_is_kept_after_a_whole_stream() {
    let engine = ScriptedEngine::start().await.unwrap();
    engine.always(Script::events().event(&chunk("a")).done());
    let rig = Rig::start(&[&engine]).await;
    for _ in 0..3 {
        rig.chat(&streamed()).await;
    }
    let connections: Vec<usize> = engine.seen().iter().map(|call| call.connection).collect();
    assert_eq!(connections, [0; 3]);
}

#[tokio::test]
async fn an_engine_that_streams_unasked_is_passed_on() {
    let engine = ScriptedEngine::start().await.unwrap();
    engine.always(Script::events().event(&chunk("a")).done());
    let rig = Rig::start(&[&engine]).await;
    let reply = rig.chat(&request()).await;
    assert_eq!(
        events(reply.text()),
        [renamed(&chunk("a")), "[DONE]".into()]
    );
}
