//! What a key may use, and until when.

use std::sync::Arc;

use llmgw_core::{
    clock::Timestamp,
    cluster::{
        account::ApiKey,
        tenancy::{Level, Limits},
    },
    id::ModelName,
    keys::KeyRing,
    route::RouteTable,
    testing::engine::ScriptedEngine,
};
use serde_json::json;

use crate::rig::{Rig, key, model, request};

fn only(models: &[&str]) -> Limits {
    let names = models.iter().map(|name| name.parse().unwrap());
    Limits {
        models: Some(names.collect::<Vec<ModelName>>()),
        ..Limits::default()
    }
}

fn level(path: &str, limits: Limits) -> Level {
    Level {
        path: path.parse().unwrap(),
        limits,
        created_at: Timestamp(0),
    }
}

fn key_of(level: &str, limits: Limits) -> ApiKey {
    ApiKey {
        level: level.parse().unwrap(),
        limits,
        ..key()
    }
}

async fn listed(rig: &Rig) -> Vec<String> {
    let list = rig.call("GET", "/v1/models", "").await.json();
    let models = list["data"].as_array().unwrap().iter();
    models
        .map(|model| model["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_key_uses_and_sees_what_all_its_levels_allow() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let models = ["org/served", "b", "c"].map(|name| model(name, &[], vec![engine.endpoint()]));
    rig.routes.send_replace(Arc::new(RouteTable::new(models)));
    let levels = [
        level("acme", only(&["org/served", "b"])),
        level("acme/search", Limits::default()),
    ];
    let key = key_of("acme/search", only(&["b", "c"]));
    let ring = KeyRing::with_levels([key.clone()], levels.clone());
    rig.keys.send_replace(Arc::new(ring));
    assert_eq!(listed(&rig).await, ["b"]);
    for (name, status, by) in [
        ("b", 200, ""),
        ("c", 403, "the organisation acme may not use the model c"),
        (
            "org/served",
            403,
            "this key may not use the model org/served",
        ),
    ] {
        let mut body = request();
        body["model"] = json!(name);
        let reply = rig.chat(&body).await;
        assert_eq!(reply.head.status, status, "{name}");
        if status == 403 {
            assert_eq!(
                reply.error(),
                ("model_not_allowed".to_owned(), by.to_owned())
            );
            assert_eq!(reply.json()["error"]["type"], "permission_error");
            let one = rig.call("GET", &format!("/v1/models/{name}"), "").await;
            assert_eq!(one.head.status, 404);
        }
    }
    // What is allowed changes with the next call.
    let key = ApiKey {
        limits: Limits::default(),
        ..key
    };
    rig.keys
        .send_replace(Arc::new(KeyRing::with_levels([key], levels)));
    assert_eq!(listed(&rig).await, ["b", "org/served"]);
}

#[tokio::test]
async fn an_alias_in_the_list_stands_for_its_model() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    rig.keys
        .send_replace(Arc::new(KeyRing::new([key_of("/", only(&["asked"]))])));
    assert_eq!(rig.chat(&request()).await.head.status, 200);
    assert_eq!(listed(&rig).await, ["org/served"]);
}

#[tokio::test]
async fn a_call_falls_back_to_what_its_key_may_use_alone() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let mut first = model("first", &[], Vec::new());
    first.fallbacks = ["secret", "open"].map(|name| name.parse().unwrap()).into();
    let models = [
        first,
        model("secret", &[], vec![engine.endpoint()]),
        model("open", &[], vec![engine.endpoint()]),
    ];
    rig.routes.send_replace(Arc::new(RouteTable::new(models)));
    let limits = only(&["first", "open"]);
    rig.keys
        .send_replace(Arc::new(KeyRing::new([key_of("/", limits)])));
    let reply = rig.chat(&json!({"model": "first", "messages": []})).await;
    assert_eq!(reply.head.status, 200);
    assert_eq!(reply.head.get("x-llmgw-model"), Some("open"));
}

#[tokio::test]
async fn a_key_that_has_expired_or_was_revoked_opens_nothing() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let ends = |at: i64| ApiKey {
        expires_at: Some(Timestamp(at)),
        ..key()
    };
    // The rig's clock began at 1,000.
    let over = ends(1_000);
    let id = over.id;
    rig.keys.send_replace(Arc::new(KeyRing::new([over])));
    let reply = rig.chat(&request()).await;
    assert_eq!(reply.head.status, 401);
    let (code, message) = reply.error();
    assert_eq!(code, "invalid_api_key");
    assert_eq!(message, format!("the API key {id} has expired"));
    rig.keys
        .send_replace(Arc::new(KeyRing::new([ends(1_000_000)])));
    assert_eq!(rig.chat(&request()).await.head.status, 200);
    rig.keys.send_replace(Arc::default());
    let reply = rig.call("GET", "/v1/models", "").await;
    assert_eq!(
        (reply.head.status, reply.error().0.as_str()),
        (401, "invalid_api_key")
    );
    // A level that is not there is no way around its limits.
    let lost = key_of("acme", Limits::default());
    rig.keys.send_replace(Arc::new(KeyRing::new([lost])));
    assert_eq!(rig.chat(&request()).await.head.status, 401);
}
