//! A model that can't serve, and those that its clients are served by instead.

use std::{sync::Arc, time::Duration};

use llmgw_core::{
    gateway::GatewayConfig,
    id::ReplicaId,
    route::{Endpoint, ModelRoute, RouteTable, Waiting},
    testing::engine::{Script, ScriptedEngine},
};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::{
    client::Reply,
    rig::{Answer, Rig, chunk, config, loading, model, request, streamed},
};

/// A gateway whose `org/served`, alias `asked`, falls back to `one` and then to `two`, which these endpoints serve.
async fn rig(
    config: GatewayConfig,
    first: impl FnOnce(&mut ModelRoute),
    one: Vec<Endpoint>,
    two: Vec<Endpoint>,
) -> Rig {
    let rig = Rig::with(config, Vec::new()).await;
    let mut asked = model("org/served", &["asked"], Vec::new());
    asked.fallbacks = ["one", "two"].map(|name| name.parse().unwrap()).to_vec();
    first(&mut asked);
    let models = [asked, model("one", &[], one), model("two", &[], two)];
    rig.routes.send_replace(Arc::new(RouteTable::new(models)));
    rig
}

fn fell_back_to(reply: &Reply, to: &str) {
    assert_eq!(reply.head.status, 200, "{}", reply.text());
    assert_eq!(reply.head.get("x-llmgw-model"), Some(to));
    let expected = format!("org/served->{to}");
    let fallback = reply.head.get("x-llmgw-fallback");
    assert_eq!(fallback, Some(expected.as_str()));
}

/// A replica that nobody can connect to.
async fn dead() -> Endpoint {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    Endpoint {
        replica: ReplicaId::generate(),
        address: listener.local_addr().unwrap(),
        slots: None,
    }
}

async fn engine() -> ScriptedEngine {
    ScriptedEngine::start().await.unwrap()
}

#[tokio::test]
async fn a_call_for_a_model_that_can_not_serve_goes_to_the_first_that_it_falls_back_to() {
    let (one, two) = (engine().await, engine().await);
    for waiting in [
        Waiting::Parked("SIGILL".into()),
        Waiting::Off("no replicas".into()),
        Waiting::Unplaceable("short by 3 GiB".into()),
        loading(),
    ] {
        let before = one.seen().len();
        one.next(Script::json(
            200,
            r#"{"model":"one","usage":{"prompt_tokens":1,"completion_tokens":3}}"#,
        ));
        let (first, second) = (vec![one.endpoint()], vec![two.endpoint()]);
        let rig = rig(
            config(),
            |asked| asked.waiting = waiting.clone(),
            first,
            second,
        )
        .await;
        *rig.activation.answers.lock().unwrap() = vec![Answer::Waiting(waiting)];
        let reply = rig.chat(&request()).await;
        fell_back_to(&reply, "one");
        assert_eq!(reply.json()["model"], "asked");
        let sent: Value = serde_json::from_slice(&one.seen()[before].body).unwrap();
        assert_eq!(sent["model"], "one");
        let usage = rig.usage(1).await;
        assert_eq!(
            (usage.model.as_str(), usage.completion_tokens.0),
            ("one", 3)
        );
    }
    assert!(two.seen().is_empty());
}

#[tokio::test]
async fn a_model_on_demand_is_waited_for_before_another_answers() {
    let one = engine().await;
    one.always(Script::events().event(&chunk("a")).done());
    let config = GatewayConfig {
        activation_deadline: Duration::from_millis(300),
        ..config()
    };
    let rig = rig(
        config,
        |asked| asked.on_demand = true,
        vec![one.endpoint()],
        Vec::new(),
    )
    .await;
    let mut client = rig.open(&streamed()).await;
    rig.until_waiting(1).await;
    assert!(one.seen().is_empty());
    let reply = client.reply().await;
    fell_back_to(&reply, "one");
    assert!(reply.text().ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn when_all_replicas_fail_before_they_say_anything_another_model_answers() {
    let (own, two) = (engine().await, engine().await);
    own.always(Script::events().bytes(": soon\n\n").abort());
    two.always(Script::events().event(&chunk("a")).done());
    let endpoints = vec![own.endpoint()];
    // Of `one` no replica can be reached either.
    let one = vec![dead().await];
    let rig = rig(
        config(),
        |asked| asked.endpoints = endpoints,
        one,
        vec![two.endpoint()],
    )
    .await;
    let reply = rig.chat(&streamed()).await;
    fell_back_to(&reply, "two");
    assert_eq!(reply.head.get("x-llmgw-attempts"), Some("3"));
    assert_eq!((own.seen().len(), two.seen().len()), (1, 1));
}

#[tokio::test]
async fn when_none_can_serve_the_call_is_refused_for_what_is_wrong_with_its_own_model() {
    let parked = |asked: &mut ModelRoute| asked.waiting = Waiting::Parked("SIGILL".into());
    let rig = rig(config(), parked, vec![dead().await], Vec::new()).await;
    let reply = rig.chat(&request()).await;
    let (code, message) = reply.error();
    assert_eq!((reply.head.status, code.as_str()), (503, "model_parked"));
    assert!(
        message.contains("SIGILL") && message.ends_with(": one"),
        "{message}"
    );
    assert_eq!(reply.head.get("x-llmgw-model"), Some("org/served"));
    assert_eq!(reply.head.get("x-llmgw-fallback"), None);
    assert_eq!(rig.usage(1).await.model.as_str(), "org/served");
}

#[tokio::test]
async fn models_that_fall_back_to_each_other_are_each_asked_once() {
    let rig = Rig::with(config(), Vec::new()).await;
    let dead = [dead().await, dead().await];
    let models = ["a", "b"].map(|name| {
        let mut model = model(name, &[], vec![dead[usize::from(name == "b")]]);
        model.fallbacks = ["a", "b"].map(|name| name.parse().unwrap()).to_vec();
        model
    });
    rig.routes.send_replace(Arc::new(RouteTable::new(models)));
    let reply = rig.chat(&serde_json::json!({"model": "a"})).await;
    assert_eq!(reply.error().0, "upstream_disconnected");
    assert_eq!(reply.head.get("x-llmgw-attempts"), Some("2"));
}

#[tokio::test]
async fn an_engine_that_has_answered_is_not_replaced_by_another_model() {
    let (own, one) = (engine().await, engine().await);
    let endpoints = vec![own.endpoint()];
    let rig = rig(
        config(),
        |asked| asked.endpoints = endpoints,
        vec![one.endpoint()],
        Vec::new(),
    )
    .await;
    for status in [400, 429, 500] {
        own.next(Script::json(status, "{}"));
        assert_eq!(rig.chat(&request()).await.head.status, status);
    }
    own.next(Script::events().event(&chunk("a")).abort());
    let reply = rig.chat(&streamed()).await;
    assert!(reply.text().contains("upstream_disconnected"));
    assert!(one.seen().is_empty());
}
