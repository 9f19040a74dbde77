//! A client that leaves: the engine's work ends within a second, whatever the call was waiting for.

use std::time::{Duration, Instant};

use llmgw_core::testing::engine::{Script, ScriptedEngine};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::{
    client::within,
    rig::{Answer, Rig, chunk, request, streamed},
};

/// Makes the call, waits until it is where it should be, leaves, and sees the engine notice.
async fn leaves(body: Value, script: Script, ready: impl AsyncFnOnce(&mut crate::client::Client)) {
    let engine = ScriptedEngine::start().await.unwrap();
    engine.always(script);
    let rig = Rig::start(&[&engine]).await;
    let mut client = rig.open(&body).await;
    within(engine.until(|seen| seen.len() == 1)).await;
    ready(&mut client).await;
    assert_eq!(rig.load.in_flight(), 1);
    #[expect(clippy::disallowed_methods, reason = "the promise is about real time")]
    let left = Instant::now();
    drop(client);
    within(engine.until(|seen| seen[0].was_abandoned())).await;
    assert!(
        left.elapsed() < Duration::from_secs(1),
        "{:?}",
        left.elapsed()
    );
    rig.until_idle().await;
    let usage = rig.usage(1).await;
    assert_eq!(
        (usage.requests, usage.errors),
        (1, 1),
        "it is in the accounts, as status 499"
    );
}

#[tokio::test]
async fn a_client_that_leaves_before_the_head_of_a_unary_answer_is_noticed() {
    leaves(request(), Script::new().hang(), async |_| {}).await;
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed_behind_whatever_it_sent_after_its_body() {
    // A stray line end, a whole next request, the beginning of one that hyper takes no part of.
    let next = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n".to_owned();
    let long = format!("{next}{}", "x".repeat(32 << 10));
    for behind in ["\r\n".to_owned(), next, long] {
        for (body, script) in [
            (request(), Script::new().hang()),
            (streamed(), Script::events().hang()),
        ] {
            leaves(body, script, async |client| {
                client.raw(behind.as_bytes()).await;
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_client_that_closes_its_sending_half_has_left() {
    let engine = ScriptedEngine::start().await.unwrap();
    engine.always(Script::new().hang());
    let rig = Rig::start(&[&engine]).await;
    let mut client = rig.open(&request()).await;
    client.raw(b"\r\n").await;
    within(engine.until(|seen| seen.len() == 1)).await;
    client.stream.get_mut().shutdown().await.unwrap();
    within(engine.until(|seen| seen[0].was_abandoned())).await;
    rig.until_idle().await;
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn a_client_that_sends_its_next_request_early_and_stays_gets_both_answers_in_order() {
    let engine = ScriptedEngine::start().await.unwrap();
    let script = Script::new().wait().head(200);
    engine.always(
        script
            .header("content-type", "application/json")
            .bytes("{\"n\":1}"),
    );
    let rig = Rig::start(&[&engine]).await;
    let mut client = rig.open(&request()).await;
    client.send("GET", "/healthz", &[], b"").await;
    within(engine.until(|seen| seen.len() == 1)).await;
    engine.go(1);
    assert_eq!(client.reply().await.json()["n"], 1);
    assert_eq!(client.reply().await.json()["status"], "ok");
}

#[tokio::test]
async fn a_client_that_leaves_before_the_head_of_a_stream_is_noticed() {
    leaves(streamed(), Script::new().hang(), async |_| {}).await;
}

#[tokio::test]
async fn a_client_that_leaves_during_prefill_is_noticed() {
    // The engine has sent its head, and no event yet.
    leaves(streamed(), Script::events().hang(), async |_| {}).await;
    leaves(
        streamed(),
        Script::events().bytes(": soon\n\n").hang(),
        async |_| {},
    )
    .await;
}

#[tokio::test]
async fn a_client_that_leaves_within_a_stream_is_noticed() {
    leaves(
        streamed(),
        Script::events().event(&chunk("a")).hang(),
        async |client| {
            client.head().await;
            client.chunks_until("\n\n").await;
        },
    )
    .await;
}

#[tokio::test]
async fn a_client_that_leaves_within_a_unary_answer_is_noticed() {
    leaves(
        request(),
        Script::json(200, "{\"id\":").hang(),
        async |_| {},
    )
    .await;
}

#[tokio::test]
async fn a_client_that_leaves_a_busy_stream_is_noticed() {
    let mut script = Script::events();
    for _ in 0..10_000 {
        script = script.event(&chunk("a")).pause(Duration::from_millis(1));
    }
    leaves(streamed(), script, async |client| {
        client.head().await;
        client.chunks_until("\n\n").await;
    })
    .await;
}

#[tokio::test]
async fn a_client_that_leaves_while_a_model_is_woken_is_noticed() {
    let rig = Rig::start(&[]).await;
    *rig.activation.answers.lock().unwrap() = vec![Answer::Never];
    let client = rig.open(&streamed()).await;
    let mut asked = rig.activation.asked.subscribe();
    within(asked.wait_for(|asked| *asked == 1)).await.unwrap();
    assert_eq!(rig.load.in_flight(), 1);
    drop(client);
    rig.until_idle().await;
    assert_eq!(rig.usage(1).await.errors, 1);
}

#[tokio::test]
async fn a_client_that_leaves_the_queue_gives_its_place_up_and_its_call_reaches_no_engine() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[]).await;
    rig.publish_on_demand(|_| {});
    let told = ("x-llmgw-progress", "1");
    for (body, headers) in [
        (request(), [("x", "y")]),
        (streamed(), [("x", "y")]),
        (streamed(), [told]),
    ] {
        let mut client = rig.open_with(&body, &headers).await;
        rig.until_waiting(1).await;
        if headers == [told] {
            client.head().await;
        }
        #[expect(clippy::disallowed_methods, reason = "the promise is about real time")]
        let left = Instant::now();
        drop(client);
        rig.until_waiting(0).await;
        rig.until_idle().await;
        assert!(
            left.elapsed() < Duration::from_secs(1),
            "{:?}",
            left.elapsed()
        );
    }
    rig.publish(vec![engine.endpoint()]);
    assert_eq!(rig.chat(&request()).await.head.status, 200);
    assert_eq!(engine.seen().len(), 1);
    let usage = rig.usage(4).await;
    assert_eq!((usage.requests, usage.errors), (4, 3));
}

#[tokio::test]
async fn a_client_that_leaves_after_it_was_told_of_progress_is_noticed_by_the_engine() {
    let engine = ScriptedEngine::start().await.unwrap();
    for script in [
        Script::new().hang(),
        Script::events().hang(),
        Script::events().event(&chunk("a")).hang(),
    ] {
        let before = engine.seen().len();
        engine.always(script);
        let rig = Rig::start(&[]).await;
        rig.publish_on_demand(|_| {});
        let mut client = rig
            .open_with(&streamed(), &[("x-llmgw-progress", "1")])
            .await;
        client.head().await;
        client.chunks_until("\n").await;
        rig.publish(vec![engine.endpoint()]);
        within(engine.until(|seen| seen.len() == before + 1)).await;
        #[expect(clippy::disallowed_methods, reason = "the promise is about real time")]
        let left = Instant::now();
        drop(client);
        within(engine.until(|seen| seen[before].was_abandoned())).await;
        assert!(left.elapsed() < Duration::from_secs(1));
        rig.until_idle().await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_within_its_own_body_reaches_no_engine() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let mut client = crate::client::Client::connect(rig.address).await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-llmgw-test\r\ncontent-length: 100\r\n\r\n{\"model\":";
    client.raw(head.as_bytes()).await;
    within(async {
        while rig.load.in_flight() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(client);
    rig.until_idle().await;
    assert!(engine.seen().is_empty());
}

#[tokio::test]
async fn what_a_stream_delivered_is_counted_by_its_events_when_the_client_leaves() {
    let engine = ScriptedEngine::start().await.unwrap();
    let script = Script::events()
        .event(&chunk("a"))
        .event(&chunk("b"))
        .event(&chunk("c"));
    engine.always(script.hang());
    let rig = Rig::start(&[&engine]).await;
    let mut client = rig.open(&json!({"model": "asked", "stream": true})).await;
    client.head().await;
    client.chunks_until("\"c\"").await;
    drop(client);
    assert_eq!(rig.usage(1).await.completion_tokens.0, 3);
}
