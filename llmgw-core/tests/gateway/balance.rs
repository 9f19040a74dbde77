//! Which replica a call goes to.

use llmgw_core::{
    route::circuit::FAILURES,
    testing::engine::{Script, ScriptedEngine},
};
use serde_json::{Value, json};

use crate::rig::{Rig, chunk, request, streamed};

/// Two engines; of two that cost the same, the first is chosen.
async fn two() -> [ScriptedEngine; 2] {
    [
        ScriptedEngine::start().await.unwrap(),
        ScriptedEngine::start().await.unwrap(),
    ]
}

/// A conversation with so many turns of 2 KiB.
fn conversation(turns: usize) -> Value {
    let turn = |number: usize| json!({"role": "user", "content": number.to_string().repeat(2_048)});
    let messages: Vec<Value> = (0..turns).map(turn).collect();
    json!({"model": "asked", "messages": messages})
}

fn calls(engines: &[ScriptedEngine; 2]) -> [usize; 2] {
    [engines[0].seen().len(), engines[1].seen().len()]
}

#[tokio::test]
async fn a_conversation_goes_back_to_the_replica_that_has_seen_it() {
    let engines = two().await;
    let rig = Rig::start(&[&engines[0], &engines[1]]).await;
    // The first is busy while the conversation begins.
    engines[0].next(Script::events().event(&chunk("a")).wait().done());
    let mut busy = rig.open(&streamed()).await;
    engines[0].until(|seen| seen.len() == 1).await;
    assert_eq!(rig.chat(&conversation(1)).await.head.status, 200);
    assert_eq!(calls(&engines), [1, 1]);
    engines[0].go(1);
    assert!(busy.reply().await.text().ends_with("data: [DONE]\n\n"));
    rig.until_idle().await;
    for turns in 2..5 {
        assert_eq!(rig.chat(&conversation(turns)).await.head.status, 200);
        assert_eq!(calls(&engines), [1, turns]);
    }
    // Another conversation has no such tie.
    assert_eq!(rig.chat(&request()).await.head.status, 200);
    assert_eq!(calls(&engines), [2, 4]);
}

#[tokio::test]
async fn a_full_replica_is_given_nothing_while_another_has_a_slot() {
    let engines = two().await;
    let mut endpoints: Vec<_> = engines.iter().map(ScriptedEngine::endpoint).collect();
    endpoints[0].slots = Some(1);
    let rig = Rig::start(&[]).await;
    rig.publish(endpoints);
    assert_eq!(rig.chat(&conversation(1)).await.head.status, 200);
    engines[0].next(Script::events().event(&chunk("a")).wait().done());
    let mut stream = conversation(1);
    stream["stream"] = json!(true);
    let mut busy = rig.open(&stream).await;
    engines[0].until(|seen| seen.len() == 2).await;
    assert_eq!(rig.chat(&conversation(2)).await.head.status, 200);
    assert_eq!(calls(&engines), [2, 1]);
    engines[0].go(1);
    busy.reply().await;
}

#[tokio::test]
async fn a_replica_that_fails_call_after_call_is_left_alone() {
    let engines = two().await;
    let rig = Rig::start(&[&engines[0], &engines[1]]).await;
    engines[0].always(Script::json(500, r#"{"error":{"message":"broken"}}"#));
    let failures = usize::try_from(FAILURES).unwrap();
    for _ in 0..failures {
        assert_eq!(rig.chat(&request()).await.head.status, 500);
    }
    for calls_after in 1..4 {
        assert_eq!(rig.chat(&request()).await.head.status, 200);
        assert_eq!(calls(&engines), [failures, calls_after]);
    }
}

#[tokio::test]
async fn what_a_replica_refuses_says_nothing_of_it() {
    let engines = two().await;
    let rig = Rig::start(&[&engines[0], &engines[1]]).await;
    for status in [400, 404, 422, 429] {
        engines[0].always(Script::json(status, r#"{"error":{"message":"no"}}"#));
        for _ in 0..3 {
            rig.chat(&request()).await;
        }
    }
    assert_eq!(calls(&engines), [12, 0]);
}

#[tokio::test]
async fn when_all_fail_calls_go_on_to_be_tried() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    engine.always(Script::json(500, r#"{"error":{"message":"broken"}}"#));
    for _ in 0..6 {
        assert_eq!(rig.chat(&request()).await.head.status, 500);
    }
    engine.always(Script::json(200, "{}"));
    assert_eq!(rig.chat(&request()).await.head.status, 200);
}
