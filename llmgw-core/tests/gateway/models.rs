//! The list of models, and health.

use std::sync::Arc;

use llmgw_core::{
    route::{RouteTable, Waiting},
    testing::engine::ScriptedEngine,
};
use serde_json::json;

use crate::{
    client::{Client, Reply},
    rig::{Rig, model},
};

async fn without_key(rig: &Rig, method: &str, path: &str) -> Reply {
    let mut client = Client::connect(rig.address).await;
    client.send(method, path, &[], b"").await;
    client.reply().await
}

#[tokio::test]
async fn models_are_listed_by_name_for_those_with_a_key() {
    let rig = Rig::start(&[]).await;
    let models = [
        model("b", &[], Vec::new()),
        model("a/b:7b", &["x"], Vec::new()),
    ];
    rig.routes.send_replace(Arc::new(RouteTable::new(models)));
    let reply = rig.call("GET", "/v1/models", "").await;
    let object = |id: &str| json!({"id": id, "object": "model", "created": 1_700_000_000, "owned_by": "llmgw"});
    assert_eq!(
        reply.json(),
        json!({"object": "list", "data": [object("a/b:7b"), object("b")]})
    );
    for (path, id) in [("a/b:7b", "a/b:7b"), ("a%2Fb%3A7b", "a/b:7b"), ("x", "x")] {
        let reply = rig.call("GET", &format!("/v1/models/{path}"), "").await;
        assert_eq!(reply.json(), object(id));
    }
    let reply = rig.call("GET", "/v1/models/a/c", "").await;
    assert_eq!(
        (reply.head.status, reply.error().0.as_str()),
        (404, "model_not_found")
    );
    for path in ["/v1/models", "/v1/models/b"] {
        assert_eq!(without_key(&rig, "GET", path).await.head.status, 401);
    }
}

#[tokio::test]
async fn health_and_readiness_need_no_key() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[]).await;
    assert_eq!(without_key(&rig, "GET", "/healthz").await.head.status, 200);
    let reply = without_key(&rig, "GET", "/readyz").await;
    assert_eq!(
        (reply.head.status, reply.error().0.as_str()),
        (503, "unavailable")
    );
    assert!(
        reply
            .error()
            .1
            .contains("org/served: fetching weights (43 %)")
    );
    assert_eq!(reply.head.get("retry-after"), Some("1"));

    let mut secret = model("m", &[], Vec::new());
    secret.waiting = Waiting::Parked("/home/operator: SIGILL".into());
    rig.routes.send_replace(Arc::new(RouteTable::new([secret])));
    let said = without_key(&rig, "GET", "/readyz").await.error().1;
    assert_eq!(said, "no replica serves: m: parked");

    rig.publish(vec![engine.endpoint()]);
    let reply = without_key(&rig, "GET", "/readyz").await;
    assert_eq!(
        (reply.head.status, reply.text()),
        (200, "{\"status\":\"ready\"}")
    );
    let mut client = Client::connect(rig.address).await;
    client.send("HEAD", "/readyz", &[], b"").await;
    assert_eq!(client.head().await.status, 200);
}

#[tokio::test]
async fn the_last_table_stays_good_when_nobody_publishes_any_more() {
    let engine = ScriptedEngine::start().await.unwrap();
    let mut rig = Rig::start(&[&engine]).await;
    rig.routes = tokio::sync::watch::channel(Arc::default()).0;
    assert_eq!(rig.chat(&crate::rig::request()).await.head.status, 200);
}
