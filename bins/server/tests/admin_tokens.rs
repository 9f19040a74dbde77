//! Tokens with roles, and who stands in the audit log, on a real controller.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::{sync::Arc, time::Duration};

use llmgw_core::{
    admin_client::AdminClient,
    api::{
        orders::{EngineRequest, HoldRequest},
        tenancy::KeyRequest,
    },
    clock::SystemClock,
    cluster::{account::Role, order::HoldScope},
    control::{Actor, Control},
    error::Code,
    keys::HashingKey,
    store::MemoryStore,
};
use llmgw_sched::controller::{ControllerConfig, ControllerDeps, ControllerHandle, Terms};
use llmgw_server::admin::{AdminDeps, Operation, RoleTokens, operations, router, serve};
use tokio::net::TcpListener;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};
use tower::ServiceExt as _;

const TOKEN: &str = "0123456789abcdef";

struct Serving {
    handle: ControllerHandle,
    base: String,
    key: HashingKey,
    _stop: DropGuard,
}

async fn serving(store: MemoryStore) -> Serving {
    let key = HashingKey::from_bytes([1; 32]);
    let config = ControllerConfig {
        holder: "test".into(),
        version: "0".into(),
        lease_ttl: Duration::from_secs(9),
        settle: Duration::ZERO,
        terms: Terms::default(),
        version_of_terms: 0,
    };
    let deps = ControllerDeps {
        store: Arc::new(store),
        clock: Arc::new(SystemClock::new()),
        hashing_key: key.clone(),
        weights_reader: None,
        terms_reader: None,
    };
    let controller = config.build(deps).await.unwrap();
    let handle = controller.handle();
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    tasks.spawn(controller.run(stop.clone()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let mut deps = AdminDeps::new(handle.control(), TOKEN);
    deps.roles = Some(RoleTokens {
        hashing_key: key.clone(),
        ring: handle.tokens(),
    });
    tasks.spawn(serve(listener, deps, stop.clone()));
    Serving {
        handle,
        base,
        key,
        _stop: stop.drop_guard(),
    }
}

fn store() -> MemoryStore {
    MemoryStore::new(Arc::new(SystemClock::new()))
}

impl Serving {
    fn with(&self, token: &str) -> Control {
        AdminClient::new(&self.base, token).unwrap().control()
    }
}

fn hold() -> HoldRequest {
    HoldRequest {
        name: "north".parse().unwrap(),
        scope: HoldScope::Facility("north".into()),
        reason: String::new(),
        lasts: None,
    }
}

#[tokio::test]
async fn each_role_may_do_its_own_and_what_those_before_it_may() {
    let serving = serving(store()).await;
    let admin = serving.with(TOKEN);
    let mut made = Vec::new();
    for role in [Role::Viewer, Role::Operator, Role::Admin] {
        let token = admin.operators.create_token("ops", role).await.unwrap();
        made.push(token);
    }
    let [viewer, operator, second] = [0, 1, 2].map(|i| serving.with(&made[i].secret));

    viewer.fleet.summary().await.unwrap();
    let refused = viewer.holds.hold(hold()).await.unwrap_err();
    assert_eq!(refused.code, Code::PermissionDenied);
    assert_eq!(
        refused.message,
        "this needs the role operator, and ops has the role viewer"
    );
    assert!(viewer.operators.tokens().await.is_err());

    operator.holds.hold(hold()).await.unwrap();
    let refused = operator
        .tenancy
        .create_key(KeyRequest::named("x"))
        .await
        .unwrap_err();
    assert_eq!(refused.code, Code::PermissionDenied);

    second
        .tenancy
        .create_key(KeyRequest::named("x"))
        .await
        .unwrap();
    assert_eq!(second.operators.tokens().await.unwrap().len(), 3);

    // Revoked, it opens nothing from the next request on.
    admin
        .operators
        .revoke_token(made[0].token.id)
        .await
        .unwrap();
    let refused = viewer.fleet.summary().await.unwrap_err();
    assert_eq!(refused.code, Code::InvalidApiKey);
}

#[tokio::test]
async fn the_table_says_who_may_do_what_and_every_route_is_in_it() {
    let serving = serving(store()).await;
    let token = serving.with(TOKEN);
    let viewer = token
        .operators
        .create_token("v", Role::Viewer)
        .await
        .unwrap();
    let mut deps = AdminDeps::new(serving.handle.control(), TOKEN);
    deps.roles = Some(RoleTokens {
        hashing_key: serving.key.clone(),
        ring: serving.handle.tokens(),
    });
    let service = router(deps);
    let all = operations();
    assert!(all.len() > 35, "{}", all.len());
    for Operation {
        method, path, role, ..
    } in all
    {
        let path = path
            .replace("{*name}", "a/b")
            .replace("{name}", "nobody")
            .replace("{id}", "nobody");
        let status = |secret: String| {
            let request = http::Request::builder()
                .method(method)
                .uri(&path)
                .header("authorization", format!("Bearer {secret}"))
                .header("content-type", "application/json")
                .body(axum::body::Body::from("{}"))
                .unwrap();
            let service = service.clone();
            async move { service.oneshot(request).await.unwrap() }
        };
        let answer = status(viewer.secret.clone()).await.status();
        assert_eq!(
            answer == 403,
            role > Role::Viewer,
            "{method} {path}: {answer}"
        );
        let answer = status(TOKEN.to_owned()).await.status();
        assert!(answer != 405 && answer != 403, "{method} {path}: {answer}");
    }
}

#[tokio::test]
async fn who_orders_stands_in_the_log_with_who_they_say_they_are() {
    let serving = serving(store()).await;
    let admin = serving.with(TOKEN);
    let token = admin
        .operators
        .create_token("ops", Role::Operator)
        .await
        .unwrap();
    let ops = serving.with(&token.secret);
    ops.holds.hold(hold()).await.unwrap();
    let alice = ops.acting.acting_as(&Actor::named("alice").unwrap());
    alice.holds.lift(&hold().name).await.unwrap();
    let log = admin.audit.audit(0, 100).await.unwrap();
    let told: Vec<(&str, &str)> = log
        .iter()
        .map(|entry| (entry.actor.as_str(), entry.action.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("admin", "token.create"),
            ("ops", "hold.set"),
            ("alice (ops)", "hold.lift")
        ]
    );
}

#[tokio::test]
async fn what_was_ordered_is_in_force_after_a_restart() {
    let kept = store();
    let first = serving(kept.clone()).await;
    let admin = first.with(TOKEN);
    let token = admin
        .operators
        .create_token("ops", Role::Viewer)
        .await
        .unwrap();
    admin.holds.hold(hold()).await.unwrap();
    let request = EngineRequest {
        name: "llamacpp".parse().unwrap(),
        version: Some("b11000".into()),
        source: None,
        variant: None,
    };
    admin.engines.choose(request).await.unwrap();
    drop(first);
    let second = serving(kept).await;
    let viewer = second.with(&token.secret);
    let holds = viewer.holds.holds().await.unwrap();
    assert_eq!(holds.len(), 1, "{holds:?}");
    assert_eq!(holds[0].by, "admin");
    let engines = viewer.engines.engines().await.unwrap();
    let wanted = engines[0].wanted.as_ref().unwrap();
    assert_eq!(wanted.version(), "b11000");
}

#[tokio::test]
async fn a_store_that_forgets_takes_no_orders() {
    let serving = serving(store().forgetting()).await;
    let admin = serving.with(TOKEN);
    let refused = admin.holds.hold(hold()).await.unwrap_err();
    assert_eq!(refused.code, Code::NoStore);
    assert!(refused.hint.is_some());
    assert!(admin.holds.holds().await.unwrap().is_empty());
    assert!(admin.audit.audit(0, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn events_tell_what_happens_and_a_slow_reader_what_it_missed() {
    let serving = serving(store()).await;
    let admin = serving.with(TOKEN);
    let mut following = admin.events.follow().await.unwrap();
    let definition = serde_json::json!({
        "name": "m", "source": "file:/nonexistent/m.gguf", "profiles": [{"memory": "1GiB"}]
    });
    let definition = serde_json::from_value(definition).unwrap();
    admin.catalog.add(definition).await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let event = following.next().await.unwrap().unwrap();
            if event.kind() == "decision" {
                return event.describe();
            }
        }
    });
    let told = told.await.unwrap();
    assert!(told.starts_with("m: not placed: "), "{told}");
}
