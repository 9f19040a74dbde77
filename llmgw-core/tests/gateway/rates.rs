//! How much may be asked for within a minute, and at the same time.

use std::{net::SocketAddr, sync::Arc};

use llmgw_core::{
    clock::{Clock, RuntimeClock, Timestamp},
    cluster::{
        account::ApiKey,
        tenancy::{Level, Limits},
    },
    keys::KeyRing,
    store::{Call, Fault, MemoryStore, Store},
    testing::engine::{Script, ScriptedEngine},
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    client::{Client, Reply, within},
    rig::{AUTHORIZATION, CHAT, Rig, chunk, config, key, request, streamed},
};

/// The key of a team, of which the organisation is limited so.
fn limited(limits: Value) -> KeyRing {
    let level = |path: &str, limits: Limits| Level {
        path: path.parse().unwrap(),
        limits,
        created_at: Timestamp(0),
    };
    let levels = [
        level("acme", serde_json::from_value(limits).unwrap()),
        level("acme/search", Limits::default()),
    ];
    let key = ApiKey {
        level: "acme/search".parse().unwrap(),
        ..key()
    };
    KeyRing::with_levels([key], levels)
}

async fn rig(engine: &ScriptedEngine, limits: Value) -> Rig {
    let rig = Rig::start(&[engine]).await;
    rig.keys.send_replace(Arc::new(limited(limits)));
    rig
}

async fn call(address: SocketAddr) -> Reply {
    let mut client = Client::connect(address).await;
    let body = request().to_string();
    client
        .send("POST", CHAT, &[AUTHORIZATION], body.as_bytes())
        .await;
    client.reply().await
}

fn header(reply: &Reply, name: &str) -> u64 {
    reply.head.get(name).expect(name).parse().unwrap()
}

#[tokio::test]
async fn requests_beyond_the_rate_are_refused_with_the_level_and_when_it_resets() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = rig(&engine, json!({"requests_per_minute": 3})).await;
    for left in [2, 1, 0] {
        let reply = rig.chat(&request()).await;
        assert_eq!(reply.head.status, 200);
        assert_eq!(header(&reply, "x-ratelimit-limit-requests"), 3);
        assert_eq!(header(&reply, "x-ratelimit-remaining-requests"), left);
    }
    let reply = rig.chat(&request()).await;
    assert_eq!(reply.head.status, 429);
    let error = &reply.json()["error"];
    assert_eq!(error["type"], "rate_limit_error");
    assert_eq!(error["code"], "rate_limit_exceeded");
    let message = error["message"].as_str().unwrap();
    let begins =
        "the organisation acme may make 3 requests per minute, and has made them; it resets in ";
    assert!(message.starts_with(begins), "{message}");
    assert!((1..=60).contains(&header(&reply, "retry-after")));
    assert_eq!(header(&reply, "x-ratelimit-remaining-requests"), 0);
    let reset = reply.head.get("x-ratelimit-reset-requests").unwrap();
    assert!(reset.ends_with('s'), "{reset}");
    assert_eq!(reply.head.get("x-should-retry"), None);
    assert_eq!(engine.seen().len(), 3);
    // It is no call that reached a model.
    assert_eq!(rig.usage(3).await.requests, 3);
}

#[tokio::test]
async fn tokens_are_reserved_before_and_settled_with_what_the_engine_counted() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = rig(&engine, json!({"tokens_per_minute": 100})).await;
    let mut body = request();
    body["max_tokens"] = json!(10);
    // The engine counts 5 and 2; before that, the prompt's length and the most that was asked for are reserved.
    let first = rig.chat(&body).await;
    assert_eq!(first.head.status, 200);
    assert_eq!(header(&first, "x-ratelimit-limit-tokens"), 100);
    let reserved = 100 - header(&first, "x-ratelimit-remaining-tokens");
    assert!((10..30).contains(&reserved), "{reserved}");
    rig.usage(1).await;
    rig.until_idle().await;
    let second = rig.chat(&body).await;
    assert_eq!(
        header(&second, "x-ratelimit-remaining-tokens"),
        93 - reserved
    );
    rig.usage(2).await;
    rig.until_idle().await;
    // What may need all of it does not go while some is spent.
    body["max_tokens"] = json!(1_000);
    let reply = rig.chat(&body).await;
    let (code, message) = reply.error();
    assert_eq!(
        (reply.head.status, code.as_str()),
        (429, "rate_limit_exceeded")
    );
    assert!(
        message.contains(
            "may use 100 tokens per minute, and this request needs about 100 where 86 are left"
        ),
        "{message}"
    );
}

#[tokio::test]
async fn calls_at_the_same_time_are_counted_until_they_are_over() {
    let engine = ScriptedEngine::start().await.unwrap();
    engine.always(Script::events().event(&chunk("a")).wait().done());
    let rig = rig(&engine, json!({"concurrent": 2})).await;
    let mut first = rig.open(&streamed()).await;
    let mut second = rig.open(&streamed()).await;
    first.head().await;
    second.head().await;
    let reply = rig.chat(&request()).await;
    let (code, message) = reply.error();
    assert_eq!(
        (reply.head.status, code.as_str()),
        (429, "rate_limit_exceeded")
    );
    let said = "the organisation acme may make 2 requests at the same time, and does";
    assert!(message.starts_with(said), "{message}");
    assert_eq!(reply.head.get("x-ratelimit-limit-requests"), None);
    // A client that leaves makes room, and so does an answer that ends.
    drop(first);
    within(engine.until(|seen| seen.iter().any(|call| call.was_abandoned()))).await;
    let third = until_admitted(&rig).await;
    engine.go(2);
    second.chunks_until("[DONE]").await;
    drop(third);
    rig.until_idle().await;
    until_admitted(&rig).await;
}

/// A gateway believes for a moment that there is no room.
async fn until_admitted(rig: &Rig) -> Client {
    within(async {
        loop {
            let mut client = rig.open(&streamed()).await;
            if client.head().await.status == 200 {
                return client;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_rate_is_not_multiplied_by_the_number_of_gateways() {
    let engine = ScriptedEngine::start().await.unwrap();
    let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::starting_at(Timestamp(1_000)));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::clone(&clock)));
    let ring = Arc::new(limited(json!({"requests_per_minute": 10})));
    let mut rigs = Vec::new();
    for _ in 0..2 {
        let endpoints = vec![engine.endpoint()];
        let rig = Rig::beside(Arc::clone(&store), Arc::clone(&clock), config(), endpoints).await;
        rig.keys.send_replace(Arc::clone(&ring));
        rigs.push(rig);
    }
    let mut calls = JoinSet::new();
    for index in 0..40 {
        calls.spawn(call(rigs[index % 2].address));
    }
    let mut statuses: Vec<u16> = Vec::new();
    while let Some(reply) = calls.join_next().await {
        statuses.push(reply.unwrap().head.status);
    }
    let of = |status: u16| statuses.iter().filter(|one| **one == status).count();
    assert_eq!(of(200) + of(429), 40, "{statuses:?}");
    assert!(of(200) <= 10, "{statuses:?}");
    // What one had held ahead of need is there for the other, soon.
    within(async {
        let mut answered = of(200);
        while answered < 10 {
            for rig in &rigs {
                answered += usize::from(call(rig.address).await.head.status == 200);
            }
        }
        assert_eq!(answered, 10);
    })
    .await;
    assert_eq!(call(rigs[0].address).await.head.status, 429);
    assert_eq!(call(rigs[1].address).await.head.status, 429);
    assert_eq!(engine.seen().len(), 10);
}

#[tokio::test]
async fn a_store_that_is_away_leaves_each_gateway_its_part_of_the_rate() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = rig(&engine, json!({"requests_per_minute": 3, "concurrent": 1})).await;
    rig.faults.fail_all(true);
    for _ in 0..3 {
        assert_eq!(rig.chat(&request()).await.head.status, 200);
    }
    assert_eq!(rig.chat(&request()).await.head.status, 429);
    // One that hangs keeps nobody waiting for long.
    rig.faults.fail_all(false);
    rig.faults.add(Call::ShareQuotas, Fault::Hang);
    rig.keys
        .send_replace(Arc::new(limited(json!({"requests_per_minute": 9}))));
    assert_eq!(rig.chat(&request()).await.head.status, 200);
}

#[tokio::test]
async fn who_is_not_limited_is_told_nothing_and_asks_for_nothing() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = rig(&engine, json!({"models": ["org/served"]})).await;
    let reply = rig.chat(&request()).await;
    assert_eq!(reply.head.status, 200);
    assert!(
        reply
            .head
            .headers
            .iter()
            .all(|(name, _)| !name.contains("ratelimit"))
    );
    assert_eq!(rig.faults.made(Call::ShareQuotas), 0);
}
