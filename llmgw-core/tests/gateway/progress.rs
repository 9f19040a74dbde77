//! Comments on how far a model is, for streamed calls that wait for it and want to know.

use std::time::Duration;

use llmgw_core::{
    gateway::GatewayConfig,
    route::{Progress, Waiting},
    testing::engine::{Script, ScriptedEngine},
};
use serde_json::Value;

use crate::{
    client::Client,
    rig::{Answer, Rig, chunk, config, request, streamed},
};

const ASKED: (&str, &str) = ("x-llmgw-progress", "1");

fn fetching(percent: u8, seconds: u64) -> Progress {
    Progress {
        doing: Some("fetching weights".into()),
        percent: Some(percent),
        eta: Some(Duration::from_secs(seconds)),
    }
}

/// A gateway whose only model is being fetched for the first call.
async fn waiting(config: GatewayConfig) -> Rig {
    let rig = Rig::with(config, Vec::new()).await;
    rig.publish_on_demand(|route| route.progress = fetching(43, 12));
    rig
}

/// A streamed call that has been told how far its model is.
async fn told(rig: &Rig) -> Client {
    let mut client = rig.open_with(&streamed(), &[ASKED]).await;
    let head = client.head().await;
    assert_eq!(head.status, 200);
    assert_eq!(head.get("content-type"), Some("text/event-stream"));
    assert_eq!(head.get("x-llmgw-model"), Some("org/served"));
    assert!(head.get("x-request-id").is_some());
    assert_eq!(
        client.chunks_until("\n").await,
        ": waiting for org/served: fetching weights, 43 %, ~12 s\n"
    );
    client
}

/// The rest of a stream that ends with an error: its code.
async fn error_at_the_end(client: &mut Client) -> String {
    let rest = client.reply_body().await;
    assert!(!rest.contains("[DONE]"), "{rest}");
    let events: Vec<&str> = rest
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .collect();
    assert_eq!(events.len(), 1, "{rest}");
    let event: Value = serde_json::from_str(events[0]).unwrap();
    event["error"]["code"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_call_that_asks_is_told_how_far_its_model_is_and_then_gets_its_answer() {
    let engine = ScriptedEngine::start().await.unwrap();
    engine.always(Script::events().event(&chunk("a")).done());
    let rig = waiting(config()).await;
    let mut client = told(&rig).await;
    rig.publish_on_demand(|route| route.progress = fetching(80, 4));
    assert_eq!(
        client.chunks_until("\n").await,
        ": waiting for org/served: fetching weights, 80 %, ~4 s\n"
    );
    rig.publish(vec![engine.endpoint()]);
    let rest = client.reply_body().await;
    let events = rest.split_inclusive('\n');
    let rest: String = events.filter(|line| !line.starts_with(": ")).collect();
    let answer = chunk("a").replace("org/served", "asked");
    assert_eq!(rest, format!("data: {answer}\n\ndata: [DONE]\n\n"));
    assert_eq!(rig.usage(1).await.errors, 0);
}

#[tokio::test]
async fn what_does_not_change_is_said_again_after_a_while_and_also_while_the_engine_reads() {
    let engine = ScriptedEngine::start().await.unwrap();
    engine.always(Script::events().wait().event(&chunk("a")).done());
    let config = GatewayConfig {
        progress_interval: Duration::from_millis(50),
        ..config()
    };
    let rig = waiting(config).await;
    let mut client = told(&rig).await;
    for _ in 0..2 {
        let again = client.chunks_until("\n").await;
        assert!(again.ends_with(" 43 %, ~12 s\n"), "{again}");
    }
    rig.publish(vec![engine.endpoint()]);
    client.chunks_until("org/served is ready").await;
    engine.go(1);
    client.chunks_until("data: [DONE]\n\n").await;
}

#[tokio::test]
async fn a_call_that_does_not_ask_hears_nothing_before_its_answer() {
    let engine = ScriptedEngine::start().await.unwrap();
    let always = GatewayConfig {
        progress_comments: true,
        ..config()
    };
    for (config, body, headers) in [
        (config(), streamed(), vec![]),
        (config(), streamed(), vec![("x-llmgw-progress", "0")]),
        (config(), request(), vec![ASKED]),
        (always.clone(), streamed(), vec![("x-llmgw-progress", "0")]),
        (always.clone(), request(), vec![]),
    ] {
        engine.next(Script::events().event(&chunk("a")).done());
        let rig = waiting(config).await;
        let mut client = rig.open_with(&body, &headers).await;
        rig.until_waiting(1).await;
        rig.publish(vec![engine.endpoint()]);
        let reply = client.reply().await;
        assert!(reply.head.get("x-llmgw-replica").is_some());
        assert!(reply.text().starts_with("data: "), "{}", reply.text());
    }
    let rig = waiting(always).await;
    let mut client = rig.open(&streamed()).await;
    client.head().await;
    client.chunks_until("43 %, ~12 s\n").await;
}

#[tokio::test]
async fn what_is_refused_before_the_first_comment_keeps_its_status() {
    let config = GatewayConfig {
        waiting_per_model: 0,
        ..config()
    };
    let rig = waiting(config.clone()).await;
    let mut client = rig.open_with(&streamed(), &[ASKED]).await;
    let reply = client.reply().await;
    assert_eq!(
        (reply.head.status, reply.error().0.as_str()),
        (503, "queue_full")
    );
    let rig = waiting(self::config()).await;
    for waiting in [
        Waiting::Unplaceable("short by 3 GiB".into()),
        Waiting::Parked("SIGILL".into()),
    ] {
        *rig.activation.answers.lock().unwrap() = vec![Answer::Waiting(waiting)];
        let mut client = rig.open_with(&streamed(), &[ASKED]).await;
        let reply = client.reply().await;
        assert_eq!(reply.head.status, 503, "{}", reply.text());
        assert_eq!(reply.head.get("x-should-retry"), Some("false"));
    }
}

#[tokio::test]
async fn what_is_refused_after_a_comment_is_one_event_with_the_error_and_no_done() {
    let rig = waiting(config()).await;
    let mut client = told(&rig).await;
    rig.publish_on_demand(|route| route.waiting = Waiting::Parked("SIGILL".into()));
    assert_eq!(error_at_the_end(&mut client).await, "model_parked");

    let short = GatewayConfig {
        activation_deadline: Duration::from_millis(300),
        ..config()
    };
    let rig_of_short = waiting(short).await;
    let mut client = told(&rig_of_short).await;
    assert_eq!(error_at_the_end(&mut client).await, "activation_timeout");

    let engine = ScriptedEngine::start().await.unwrap();
    let context =
        r#"{"error":{"code":400,"message":"too long","type":"exceed_context_size_error"}}"#;
    for (script, code) in [
        (Script::json(400, context), "context_length_exceeded"),
        (Script::json(200, "{}"), "upstream_error"),
        (Script::new(), "upstream_disconnected"),
    ] {
        engine.next(script);
        let rig = waiting(config()).await;
        let mut client = told(&rig).await;
        rig.publish(vec![engine.endpoint()]);
        assert_eq!(error_at_the_end(&mut client).await, code);
    }
    assert_eq!(rig.usage(1).await.errors, 1);
}

#[tokio::test]
async fn what_waits_at_the_end_of_serving_is_told_so() {
    let rig = waiting(config()).await;
    let mut client = told(&rig).await;
    rig.shutdown.cancel();
    rig.cut.cancel();
    assert_eq!(error_at_the_end(&mut client).await, "shutting_down");
    assert_eq!(rig.load.in_flight(), 0);
}
