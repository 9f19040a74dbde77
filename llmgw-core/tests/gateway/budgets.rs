//! What may be spent: by two gateways on one store, and while the store is away.

use std::{sync::Arc, time::Duration};

use llmgw_core::{
    clock::{Clock, Timestamp},
    cluster::{
        account::ApiKey,
        tenancy::{
            Level, LevelPath, Limits, Party, Period, Price, PriceList, Window,
            quota::{Measure, Quota},
        },
    },
    keys::KeyRing,
    route::RouteTable,
    store::{MemoryStore, Store},
    testing::engine::{Script, ScriptedEngine},
    units::Micros,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    client::{Client, within},
    rig::{AUTHORIZATION, CHAT, Rig, config, key, model, request, table},
};

/// A key of `acme/search`; the organisation has this budget.
fn budgeted(budget: &str) -> KeyRing {
    let level = |path: &str, limits: Limits| Level {
        path: path.parse().unwrap(),
        limits,
        created_at: Timestamp(0),
    };
    let limits = Limits {
        budgets: vec![budget.parse().unwrap()],
        ..Limits::default()
    };
    let levels = [
        level("acme", limits),
        level("acme/search", Limits::default()),
    ];
    let key = ApiKey {
        level: "acme/search".parse().unwrap(),
        ..key()
    };
    KeyRing::with_levels([key], levels)
}

/// A millionth for each token.
fn price(model: &str) -> Price {
    Price {
        model: model.parse().unwrap(),
        valid_from: Timestamp(0),
        prompt: Micros(1_000_000),
        cached: Micros(1_000_000),
        completion: Micros(1_000_000),
    }
}

fn set(rig: &Rig, budget: &str) {
    rig.keys.send_replace(Arc::new(budgeted(budget)));
    let prices = PriceList::new([price("org/served")]);
    rig.prices.send_replace(Arc::new(prices));
}

/// A call that reserves 10: 8 for its prompt, and 2 for its answer. The engine counts 7.
fn small() -> Value {
    let mut body = request();
    body["max_tokens"] = json!(2);
    body
}

async fn acmes(store: &dyn Store, period: Period) -> (u64, u64) {
    let quota = Quota {
        party: Party::Level("acme".parse::<LevelPath>().unwrap()),
        measure: Measure::Cost,
        // The rigs' clocks begin a second after the epoch.
        window: Window::of(period, Timestamp(1_000)),
    };
    let uses = store.quota_uses(&[quota]).await.unwrap();
    (uses[0].spent_by_others, uses[0].held_by_others)
}

/// Fifty calls at the same time on two gateways that share nothing but the store.
async fn fifty_calls_on_two_gateways(stores: [Arc<dyn Store>; 2]) {
    let engine = ScriptedEngine::start().await.unwrap();
    let usage = json!({"prompt_tokens": 5, "completion_tokens": 2});
    let answer = json!({"model": "org/served", "choices": [], "usage": usage}).to_string();
    let waits = Script::new()
        .wait()
        .head(200)
        .header("content-type", "application/json");
    engine.always(waits.bytes(answer));
    let mut rigs = Vec::new();
    for store in &stores {
        let clock: Arc<dyn Clock> = crate::rig::clock();
        let endpoints = vec![engine.endpoint()];
        let rig = Rig::beside(Arc::clone(store), clock, config(), endpoints).await;
        set(&rig, "0.0001/month");
        rigs.push(rig);
    }
    let mut calls = JoinSet::new();
    for index in 0..50 {
        let address = rigs[index % 2].address;
        calls.spawn(async move {
            let mut client = Client::connect(address).await;
            let body = small().to_string();
            client
                .send("POST", CHAT, &[AUTHORIZATION], body.as_bytes())
                .await;
            client.reply().await
        });
    }
    // Those that were admitted wait for the engine; all others are refused while they do.
    let mut refused = 0;
    while refused < 40 {
        let reply = within(calls.join_next()).await.unwrap().unwrap();
        assert_eq!(reply.head.status, 429);
        assert_eq!(reply.head.get("x-should-retry"), Some("false"));
        let error = &reply.json()["error"];
        assert_eq!(error["type"], "insufficient_quota");
        assert_eq!(error["code"], "budget_exceeded");
        let message = error["message"].as_str().unwrap();
        let begins = "the organisation acme has a budget of 0.0001 per month, of which ";
        assert!(message.starts_with(begins), "{message}");
        assert!(message.contains("; it resets in "), "{message}");
        refused += 1;
    }
    let admitted = engine.seen().len();
    assert!(
        admitted <= 10,
        "{admitted} calls of 10 each were admitted to 100"
    );
    engine.go(50);
    let mut answered = 0;
    while let Some(reply) = within(calls.join_next()).await {
        answered += u64::from(reply.unwrap().head.status == 200);
    }
    // What was reserved and not spent is there again: calls go until less is left than one needs.
    engine.always(Script::json(
        200,
        json!({"model": "org/served", "choices": [], "usage": usage}).to_string(),
    ));
    within(async {
        while answered < 13 {
            for rig in &rigs {
                answered += u64::from(rig.chat(&small()).await.head.status == 200);
            }
        }
    })
    .await;
    assert_eq!(answered, 13, "13 calls of 7 are 91 of 100");
    for rig in &rigs {
        assert_eq!(rig.chat(&small()).await.head.status, 429);
        rig.shutdown.cancel();
    }
    for rig in rigs {
        within(rig.served).await.unwrap();
    }
    assert_eq!(acmes(&*stores[0], Period::Month).await, (91, 0));
    let totals = stores[0].usage_totals(Timestamp(0), None).await.unwrap();
    let sums: (u64, i64) = totals.iter().fold((0, 0), |(calls, cost), total| {
        (calls + total.requests, cost + total.cost.0)
    });
    assert_eq!(sums, (13, 91), "usage and budget agree");
    assert!(
        totals
            .iter()
            .all(|total| total.level.to_string() == "acme/search")
    );
}

#[tokio::test]
async fn fifty_calls_on_two_gateways_spend_no_more_than_the_budget_in_memory() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(crate::rig::clock()));
    fifty_calls_on_two_gateways([Arc::clone(&store), store]).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_calls_on_two_gateways_spend_no_more_than_the_budget_in_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.db");
    let mut stores: Vec<Arc<dyn Store>> = Vec::new();
    for _ in 0..2 {
        let store = llmgw_core::store::SqliteStore::open(&path).await.unwrap();
        stores.push(Arc::new(store));
    }
    let [one, other] = <[Arc<dyn Store>; 2]>::try_from(stores).unwrap();
    fifty_calls_on_two_gateways([one, other]).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_calls_on_two_gateways_spend_no_more_than_the_budget_in_postgres() {
    use llmgw_core::testing::postgres::{PostgresError, PostgresServer};

    let server = match PostgresServer::start() {
        Err(PostgresError::NotInstalled) if may_be_left_out() => return,
        started => started.unwrap(),
    };
    let url = server.database().await.unwrap();
    let mut stores: Vec<Arc<dyn Store>> = Vec::new();
    for _ in 0..2 {
        let store = llmgw_core::store::PostgresStore::connect(&url)
            .await
            .unwrap();
        stores.push(Arc::new(store));
    }
    let [one, other] = <[Arc<dyn Store>; 2]>::try_from(stores).unwrap();
    fifty_calls_on_two_gateways([one, other]).await;
}

#[cfg(feature = "postgres")]
#[expect(clippy::disallowed_methods, reason = "tests have no flags")]
fn may_be_left_out() -> bool {
    std::env::var("LLMGW_TEST_NO_POSTGRES").is_ok_and(|value| value == "1")
}

#[tokio::test]
async fn with_the_store_away_a_hard_budget_refuses_and_a_soft_one_serves_and_counts() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    set(&rig, "0.0001/day");
    rig.faults.fail_all(true);
    let reply = rig.chat(&small()).await;
    let (code, message) = reply.error();
    assert_eq!(
        (reply.head.status, code.as_str()),
        (503, "budget_unavailable")
    );
    assert!(
        message.starts_with("the organisation acme has a budget, "),
        "{message}"
    );
    assert!(reply.head.get("retry-after").is_some());
    assert_eq!(reply.head.get("x-should-retry"), None);
    set(&rig, "0.00001/day/soft");
    for _ in 0..4 {
        assert_eq!(rig.chat(&small()).await.head.status, 200);
    }
    // What was spent beyond the budget is told as soon as the store is there again.
    rig.faults.fail_all(false);
    within(async {
        while acmes(&*rig.store, Period::Day).await.0 != 28 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let reply = rig.chat(&small()).await;
    assert_eq!(
        (reply.head.status, reply.error().0.as_str()),
        (429, "budget_exceeded")
    );
}

#[tokio::test]
async fn a_hard_budget_spends_what_the_gateway_holds_when_the_store_goes() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    set(&rig, "1/total");
    // Enough is held ahead of need, once some was used.
    for _ in 0..3 {
        assert_eq!(rig.chat(&small()).await.head.status, 200);
    }
    within(async {
        while acmes(&*rig.store, Period::Total).await.1 < 20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    rig.faults.fail_all(true);
    assert_eq!(rig.chat(&small()).await.head.status, 200);
    let refused = within(async {
        loop {
            let reply = rig.chat(&small()).await;
            if reply.head.status != 200 {
                return reply;
            }
        }
    })
    .await;
    assert_eq!(
        (refused.head.status, refused.error().0.as_str()),
        (503, "budget_unavailable")
    );
}

#[tokio::test]
async fn a_model_without_a_price_is_refused_to_whoever_has_a_budget_and_free_to_others() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    rig.keys.send_replace(Arc::new(budgeted("1/month")));
    let reply = rig.chat(&request()).await;
    let (code, message) = reply.error();
    assert_eq!(
        (reply.head.status, code.as_str()),
        (403, "model_not_allowed")
    );
    assert!(message.contains("org/served has no price"), "{message}");
    // Nor does a call fall back to one.
    let mut first = model("first", &[], Vec::new());
    first.fallbacks = vec!["org/served".parse().unwrap()];
    let models = [first, model("org/served", &[], vec![engine.endpoint()])];
    rig.routes.send_replace(Arc::new(RouteTable::new(models)));
    rig.prices
        .send_replace(Arc::new(PriceList::new([price("first")])));
    let reply = rig.chat(&json!({"model": "first", "messages": []})).await;
    assert_eq!(reply.head.status, 503);
    rig.keys.send_replace(Arc::new(KeyRing::new([key()])));
    rig.routes
        .send_replace(Arc::new(table(vec![engine.endpoint()])));
    assert_eq!(rig.chat(&request()).await.head.status, 200);
    assert_eq!(rig.usage(1).await.cost, Micros(0));
}
