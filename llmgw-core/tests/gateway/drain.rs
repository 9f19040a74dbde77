//! The end of serving.

use std::time::Duration;

use llmgw_core::{
    clock::Timestamp,
    gateway::GatewayConfig,
    store::Store as _,
    testing::engine::{Script, ScriptedEngine},
};

use crate::{
    client::{Client, within},
    rig::{AUTHORIZATION, CHAT, Rig, chunk, config, request, streamed},
};

#[tokio::test]
async fn streams_finish_and_idle_connections_close_and_nobody_new_comes_in() {
    let engine = ScriptedEngine::start().await.unwrap();
    engine.always(
        Script::events()
            .event(&chunk("a"))
            .wait()
            .event(&chunk("b"))
            .done(),
    );
    let rig = Rig::start(&[&engine]).await;
    let mut idle = Client::connect(rig.address).await;
    idle.send("GET", "/healthz", &[], b"").await;
    idle.reply().await;
    let mut client = rig.open(&streamed()).await;
    client.head().await;
    client.chunks_until("\n\n").await;
    rig.shutdown.cancel();
    assert!(idle.is_closed().await);
    within(async {
        while tokio::net::TcpStream::connect(rig.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    engine.go(1);
    client.chunks_until("data: [DONE]\n\n").await;
    let drained = within(rig.served).await.unwrap();
    assert_eq!(drained.connections_cut, 0);
    within(engine.until(|seen| seen.iter().all(|call| !call.was_abandoned()))).await;
}

#[tokio::test]
async fn what_is_not_over_at_the_deadline_is_cut_with_an_error() {
    let engine = ScriptedEngine::start().await.unwrap();
    let config = GatewayConfig {
        drain_deadline: Duration::from_millis(200),
        ..config()
    };
    let rig = Rig::with(config, vec![engine.endpoint()]).await;
    engine.next(Script::events().event(&chunk("a")).hang());
    let mut stream = rig.open(&streamed()).await;
    stream.head().await;
    engine.next(Script::new().hang());
    let mut unary = rig.open(&request()).await;
    within(engine.until(|seen| seen.len() == 2)).await;
    rig.shutdown.cancel();
    let rest = stream.reply_body().await;
    assert!(rest.contains("\"code\":\"shutting_down\""), "{rest}");
    assert!(!rest.contains("[DONE]"));
    let reply = unary.reply().await;
    assert_eq!(
        (reply.head.status, reply.error().0.as_str()),
        (503, "shutting_down")
    );
    assert_eq!(reply.head.get("retry-after"), Some("1"));
    let drained = within(rig.served).await.unwrap();
    assert_eq!(drained.connections_cut, 2);
    within(engine.until(|seen| seen.iter().all(|call| call.was_abandoned()))).await;
}

#[tokio::test]
async fn who_insists_does_not_wait_for_the_deadline_and_loses_no_usage() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    engine.next(Script::events().event(&chunk("a")).hang());
    let mut stream = rig.open(&streamed()).await;
    stream.head().await;
    stream.chunks_until("\n\n").await;
    rig.shutdown.cancel();
    rig.cut.cancel();
    let rest = stream.reply_body().await;
    assert!(rest.contains("\"code\":\"shutting_down\""), "{rest}");
    let drained = within(rig.served).await.unwrap();
    assert_eq!((drained.connections_cut, drained.usage_lost), (1, 0));
    let totals = rig.store.usage_totals(Timestamp(0), None).await.unwrap();
    assert_eq!(totals.len(), 1, "{totals:?}");
}

#[tokio::test]
async fn a_client_that_reads_nothing_does_not_hold_up_the_end() {
    let engine = ScriptedEngine::start().await.unwrap();
    let config = GatewayConfig {
        drain_deadline: Duration::from_millis(200),
        ..config()
    };
    let rig = Rig::with(config, vec![engine.endpoint()]).await;
    let mut script = Script::events();
    for _ in 0..1000 {
        script = script.event(&chunk(&"x".repeat(1 << 16)));
    }
    engine.next(script);
    let mut client = rig.open(&streamed()).await;
    client.head().await;
    rig.shutdown.cancel();
    let drained = within(rig.served).await.unwrap();
    assert_eq!(drained.connections_cut, 1);
}

#[tokio::test]
async fn dropping_the_serving_future_closes_everything() {
    let engine = ScriptedEngine::start().await.unwrap();
    engine.always(Script::events().event(&chunk("a")).hang());
    let rig = Rig::start(&[&engine]).await;
    let mut client = Client::connect(rig.address).await;
    client
        .send(
            "POST",
            CHAT,
            &[AUTHORIZATION],
            streamed().to_string().as_bytes(),
        )
        .await;
    client.head().await;
    rig.served.abort();
    within(engine.until(|seen| seen[0].was_abandoned())).await;
}
