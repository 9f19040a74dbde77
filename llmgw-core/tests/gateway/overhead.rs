//! What of a call's time is counted as the gateway's own: none of the engine's.
//!
//! By a clock that stands still unless it is moved, what is counted is exact.

use std::{sync::Arc, time::Duration};

use llmgw_core::{
    clock::ManualClock,
    route::Endpoint,
    testing::engine::{Script, ScriptedEngine},
};

use crate::{
    client::{Client, within},
    rig::{AUTHORIZATION, CHAT, Rig, chunk, config, request, streamed},
};

async fn rig(engines: &[&ScriptedEngine]) -> (Rig, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let endpoints: Vec<Endpoint> = engines.iter().map(|engine| engine.endpoint()).collect();
    let rig = Rig::on(Arc::<ManualClock>::clone(&clock), config(), endpoints).await;
    (rig, clock)
}

/// The sum of a family of times, and how many it is of.
fn times(rig: &Rig, family: &str, labels: &str) -> (f64, u64) {
    let text = rig.numbers.text();
    let number = |of: &str| {
        let begin = format!("{family}_{of}{labels} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&begin));
        line.unwrap_or("0").to_owned()
    };
    (
        number("sum").parse().unwrap(),
        number("count").parse().unwrap(),
    )
}

fn overhead(rig: &Rig) -> (f64, u64) {
    times(rig, "llmgw_gateway_overhead_call_seconds", "")
}

fn stage(rig: &Rig, stage: &str) -> (f64, u64) {
    let labels = format!("{{stage=\"{stage}\"}}");
    times(rig, "llmgw_gateway_overhead_seconds", &labels)
}

fn whole(rig: &Rig) -> (f64, u64) {
    let labels = "{model=\"org/served\"}";
    times(rig, "llmgw_request_duration_seconds", labels)
}

#[tokio::test]
async fn waiting_for_the_engine_is_no_overhead() {
    let engine = ScriptedEngine::start().await.unwrap();
    let (rig, clock) = rig(&[&engine]).await;
    let (begin, rest) = (r#"{"model": "org/served", "#, r#""choices": []}"#);
    engine.next(
        Script::new()
            .wait()
            .head(200)
            .header("content-type", "application/json")
            .bytes(begin)
            .wait()
            .bytes(rest),
    );
    let mut client = rig.open(&request()).await;
    engine.until(|seen| seen.len() == 1).await;
    clock.advance(Duration::from_secs(10));
    engine.go(1);
    // It waits for the head still, or for the rest already.
    clock.advance(Duration::from_secs(5));
    engine.go(1);
    assert_eq!(client.reply().await.head.status, 200);
    assert_eq!((whole(&rig), overhead(&rig)), ((15.0, 1), (0.0, 1)));
    for part in ["receive", "pick", "send", "respond"] {
        assert_eq!(stage(&rig, part), (0.0, 1), "{part}");
    }
    assert_eq!(
        stage(&rig, "queue"),
        (0.0, 0),
        "it did not wait for its model"
    );
}

#[tokio::test]
async fn waiting_between_the_events_of_a_stream_is_no_overhead() {
    let engine = ScriptedEngine::start().await.unwrap();
    let (rig, clock) = rig(&[&engine]).await;
    let stream = Script::new().wait().head(200);
    let stream = stream.header("content-type", "text/event-stream").wait();
    engine.next(stream.event(&chunk("a")).wait().event(&chunk("b")).done());
    let mut client = rig.open(&streamed()).await;
    engine.until(|seen| seen.len() == 1).await;
    for _ in ["before the head", "before the first event"] {
        clock.advance(Duration::from_secs(10));
        engine.go(1);
    }
    assert_eq!(client.head().await.status, 200);
    client.chunks_until("\"a\"").await;
    clock.advance(Duration::from_secs(30));
    engine.go(1);
    client.chunks_until("[DONE]").await;
    rig.until_idle().await;
    assert_eq!((whole(&rig), overhead(&rig)), ((50.0, 1), (0.0, 1)));
}

#[tokio::test]
async fn waiting_for_a_model_is_overhead_of_the_queue() {
    let engine = ScriptedEngine::start().await.unwrap();
    let (rig, clock) = rig(&[]).await;
    rig.publish_on_demand(|_| {});
    let mut client = rig.open(&request()).await;
    rig.until_waiting(1).await;
    clock.advance(Duration::from_secs(3));
    rig.publish_on_demand(|route| route.endpoints = vec![engine.endpoint()]);
    assert_eq!(client.reply().await.head.status, 200);
    assert_eq!((overhead(&rig), stage(&rig, "queue")), ((3.0, 1), (3.0, 1)));
    assert_eq!(stage(&rig, "receive"), (0.0, 1));
}

#[tokio::test]
async fn a_client_that_is_slow_to_send_is_overhead_of_receiving() {
    let engine = ScriptedEngine::start().await.unwrap();
    let (rig, clock) = rig(&[&engine]).await;
    let body = request().to_string();
    let (begin, rest) = body.split_at(5);
    let mut client = Client::connect(rig.address).await;
    let (name, key) = AUTHORIZATION;
    let length = body.len();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: gateway\r\n{name}: {key}\r\ncontent-length: {length}\r\n\r\n"
    );
    client.raw(format!("{head}{begin}").as_bytes()).await;
    within(async {
        while rig.load.in_flight() == 0 {
            // There is nothing to subscribe to in a call that is being read.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    clock.advance(Duration::from_secs(2));
    client.raw(rest.as_bytes()).await;
    assert_eq!(client.reply().await.head.status, 200);
    assert_eq!(
        (overhead(&rig), stage(&rig, "receive")),
        ((2.0, 1), (2.0, 1))
    );
}

#[tokio::test]
async fn an_engine_that_takes_its_time_to_fail_is_no_overhead() {
    let engine = ScriptedEngine::start().await.unwrap();
    engine.next(Script::new().wait().abort());
    let (rig, clock) = rig(&[&engine]).await;
    let mut client = rig.open(&request()).await;
    engine.until(|seen| seen.len() == 1).await;
    clock.advance(Duration::from_secs(7));
    engine.go(1);
    assert_eq!(client.reply().await.head.status, 502);
    assert_eq!((whole(&rig), overhead(&rig)), ((7.0, 1), (0.0, 1)));
}
