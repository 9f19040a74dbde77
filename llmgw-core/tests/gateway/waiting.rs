//! A model that nothing serves.

use std::{sync::Arc, time::Duration};

use llmgw_core::{
    gateway::GatewayConfig,
    route::{Progress, RouteTable, Waiting},
    testing::engine::ScriptedEngine,
};

use crate::{
    client::within,
    rig::{Answer, Rig, config, loading, model, request},
};

async fn answered(waiting: Waiting) -> (u16, String, String, Option<String>, Option<String>) {
    let rig = Rig::start(&[]).await;
    *rig.activation.answers.lock().unwrap() = vec![Answer::Waiting(waiting)];
    let reply = rig.chat(&request()).await;
    let header = |name: &str| reply.head.get(name).map(str::to_owned);
    assert_eq!(header("x-llmgw-model").as_deref(), Some("org/served"));
    let (code, message) = reply.error();
    let usage = rig.usage(1).await;
    assert_eq!((usage.errors, usage.completion_tokens.0), (1, 0));
    (
        reply.head.status,
        code,
        message,
        header("retry-after"),
        header("x-should-retry"),
    )
}

#[tokio::test]
async fn the_client_is_told_what_it_waits_for() {
    let (status, code, message, after, retry) = answered(loading()).await;
    assert_eq!((status, code.as_str()), (503, "model_loading"));
    assert_eq!((after.as_deref(), retry), (Some("2"), None));
    assert!(message.contains("fetching weights (43 %)"), "{message}");

    let waiting = Waiting::Unplaceable("gpu-1 is short of 12.7 GiB".into());
    let (status, code, message, after, retry) = answered(waiting).await;
    assert_eq!((status, code.as_str()), (503, "model_unplaceable"));
    assert_eq!((after, retry.as_deref()), (None, Some("false")));
    assert!(message.contains("gpu-1 is short of 12.7 GiB"), "{message}");

    let (status, code, message, _, retry) = answered(Waiting::Parked("SIGILL".into())).await;
    assert_eq!(
        (status, code.as_str(), retry.as_deref()),
        (503, "model_parked", Some("false"))
    );
    assert!(message.contains("SIGILL"), "{message}");
}

#[tokio::test]
async fn a_parked_model_is_not_asked_for() {
    let rig = Rig::start(&[]).await;
    let mut parked = model("org/served", &["asked"], Vec::new());
    parked.waiting = Waiting::Parked("SIGILL".into());
    rig.routes.send_replace(Arc::new(RouteTable::new([parked])));
    assert_eq!(rig.chat(&request()).await.error().0, "model_parked");
    assert_eq!(*rig.activation.asked.borrow(), 0);
}

#[tokio::test]
async fn a_model_that_is_served_by_then_answers_once_the_table_says_so() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[]).await;
    *rig.activation.answers.lock().unwrap() = vec![Answer::Served];
    let mut client = rig.open(&request()).await;
    let mut asked = rig.activation.asked.subscribe();
    within(asked.wait_for(|asked| *asked == 1)).await.unwrap();
    rig.publish(vec![engine.endpoint()]);
    assert_eq!(client.reply().await.head.status, 200);
}

#[tokio::test]
async fn an_activation_that_does_not_answer_is_not_waited_for() {
    let config = GatewayConfig {
        activation_patience: Duration::from_millis(100),
        ..config()
    };
    let rig = Rig::with(config, Vec::new()).await;
    for answer in [Answer::Never, Answer::Served] {
        *rig.activation.answers.lock().unwrap() = vec![answer];
        let reply = rig.chat(&request()).await;
        assert_eq!(
            (reply.head.status, reply.error().0.as_str()),
            (503, "model_loading")
        );
    }
}

#[tokio::test]
async fn a_model_that_is_removed_meanwhile_does_not_exist() {
    let rig = Rig::start(&[]).await;
    *rig.activation.answers.lock().unwrap() = vec![Answer::Served];
    let mut client = rig.open(&request()).await;
    let mut asked = rig.activation.asked.subscribe();
    within(asked.wait_for(|asked| *asked == 1)).await.unwrap();
    rig.routes.send_replace(Arc::default());
    let reply = client.reply().await;
    assert_eq!(
        (reply.head.status, reply.error().0.as_str()),
        (404, "model_not_found")
    );
}

/// A gateway whose only model starts with the first call.
async fn on_demand(config: GatewayConfig) -> Rig {
    let rig = Rig::with(config, Vec::new()).await;
    rig.publish_on_demand(|_| {});
    rig
}

#[tokio::test]
async fn calls_for_a_model_on_demand_wait_until_it_is_served() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = on_demand(config()).await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(rig.open(&request()).await);
    }
    rig.until_waiting(8).await;
    rig.publish_on_demand(|route| route.endpoints = vec![engine.endpoint()]);
    for mut client in clients {
        assert_eq!(client.reply().await.head.status, 200);
    }
    rig.until_waiting(0).await;
}

#[tokio::test]
async fn a_call_that_has_waited_for_long_enough_is_told_what_it_waited_for() {
    let config = GatewayConfig {
        activation_deadline: Duration::from_millis(300),
        ..config()
    };
    let rig = on_demand(config).await;
    let reply = rig.chat(&request()).await;
    let (code, message) = reply.error();
    assert_eq!(
        (reply.head.status, code.as_str()),
        (504, "activation_timeout")
    );
    assert!(message.contains("fetching weights (43 %)"), "{message}");
    assert_eq!(rig.load.waiting_for(&"org/served".parse().unwrap()), 0);
}

#[tokio::test]
async fn what_can_not_come_is_not_waited_for() {
    for (waiting, code) in [
        (Waiting::Parked("SIGILL".into()), "model_parked"),
        (
            Waiting::Unplaceable("short by 3 GiB".into()),
            "model_unplaceable",
        ),
        (Waiting::Off("no replicas".into()), "model_off"),
    ] {
        // Said at once by the attempt, or later by the table.
        let rig = on_demand(config()).await;
        *rig.activation.answers.lock().unwrap() = vec![Answer::Waiting(waiting.clone())];
        assert_eq!(rig.chat(&request()).await.error().0, code);
        *rig.activation.answers.lock().unwrap() = vec![Answer::Waiting(loading())];
        let mut client = rig.open(&request()).await;
        rig.until_waiting(1).await;
        rig.publish_on_demand(|route| route.waiting = waiting);
        let reply = client.reply().await;
        assert_eq!((reply.head.status, reply.error().0.as_str()), (503, code));
    }
}

#[tokio::test]
async fn a_full_queue_turns_calls_away_and_a_client_that_leaves_gives_its_place_up() {
    let config = GatewayConfig {
        waiting_per_model: 2,
        ..config()
    };
    let rig = on_demand(config).await;
    let one = rig.open(&request()).await;
    let _two = rig.open(&request()).await;
    rig.until_waiting(2).await;
    let reply = rig.chat(&request()).await;
    assert_eq!(
        (reply.head.status, reply.error().0.as_str()),
        (503, "queue_full")
    );
    assert!(reply.head.get("retry-after").is_some());
    drop(one);
    rig.until_waiting(1).await;
}

#[tokio::test]
async fn a_client_is_told_to_come_back_when_its_model_is_expected() {
    let config = GatewayConfig {
        waiting_per_model: 1,
        ..config()
    };
    let rig = Rig::with(config, Vec::new()).await;
    for (eta, seconds) in [
        (Some(Duration::from_millis(42_100)), "43"),
        (Some(Duration::ZERO), "1"),
        (Some(Duration::from_secs(4_000)), "120"),
        (None, "2"),
    ] {
        let progress = Progress {
            eta,
            ..Progress::default()
        };
        let mut route = model("org/served", &["asked"], Vec::new());
        route.progress = progress.clone();
        rig.routes.send_replace(Arc::new(RouteTable::new([route])));
        let reply = rig.chat(&request()).await;
        assert_eq!(reply.error().0, "model_loading");
        assert_eq!(reply.head.get("retry-after"), Some(seconds));
        if eta.is_none() {
            continue;
        }
        rig.publish_on_demand(|route| route.progress = progress);
        let first = rig.open(&request()).await;
        rig.until_waiting(1).await;
        let reply = rig.chat(&request()).await;
        assert_eq!(reply.error().0, "queue_full");
        assert_eq!(reply.head.get("retry-after"), Some(seconds));
        drop(first);
        rig.until_waiting(0).await;
    }
}
