//! What was used is in the store, soon, and no client waits for that.

use llmgw_core::{
    store::{Call, Fault},
    testing::engine::{Script, ScriptedEngine},
};

use crate::{
    client::within,
    rig::{Rig, chunk, request, streamed, usage_chunk},
};

#[tokio::test]
async fn each_call_counts_what_its_engine_told() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    assert_eq!(rig.chat(&request()).await.head.status, 200);
    let usage = rig.usage(1).await;
    assert_eq!(usage.model.as_str(), "org/served");
    assert_eq!((usage.prompt_tokens.0, usage.completion_tokens.0), (5, 2));
    engine.next(
        Script::events()
            .event(&chunk("a"))
            .event(&usage_chunk())
            .done(),
    );
    rig.chat(&streamed()).await;
    engine.next(Script::json(400, "{}"));
    rig.chat(&request()).await;
    let usage = rig.usage(3).await;
    assert_eq!((usage.requests, usage.errors), (3, 1));
    assert_eq!((usage.prompt_tokens.0, usage.completion_tokens.0), (14, 6));
}

/// A chunk with a piece of each of these choices.
fn pieces(indices: &[u32]) -> String {
    let choice = |index: &u32| serde_json::json!({"index": index, "delta": {"content": "a"}});
    let choices: Vec<serde_json::Value> = indices.iter().map(choice).collect();
    serde_json::json!({"model": "org/served", "choices": choices}).to_string()
}

#[tokio::test]
async fn what_no_engine_told_is_estimated_for_each_choice() {
    let engine = ScriptedEngine::start().await.unwrap();
    engine.next(
        Script::events()
            .event(&pieces(&[0, 1]))
            .event(&pieces(&[1]))
            .event(&pieces(&[0, 1, 2]))
            .done(),
    );
    let rig = Rig::start(&[&engine]).await;
    rig.chat(&streamed()).await;
    assert_eq!(rig.usage(1).await.completion_tokens.0, 6);
    engine.next(Script::json(200, pieces(&[0, 1, 2, 3])));
    rig.chat(&request()).await;
    assert_eq!(rig.usage(2).await.completion_tokens.0, 10);
}

#[tokio::test]
async fn usage_that_is_told_with_each_choice_is_added_up() {
    let engine = ScriptedEngine::start().await.unwrap();
    let last = |index: u32, prompt: u32, completion: u32| {
        let usage = serde_json::json!({"prompt_tokens": prompt, "completion_tokens": completion});
        serde_json::json!({
            "model": "org/served", "usage": usage,
            "choices": [{"index": index, "text": "", "finish_reason": "stop"}],
        })
        .to_string()
    };
    let rig = Rig::start(&[&engine]).await;
    for n in [1, 2] {
        engine.next(
            Script::events()
                .event(&last(0, 5, 3))
                .event(&last(1, 5, 4))
                .done(),
        );
        let mut body = streamed();
        body["n"] = n.into();
        let reply = rig.call("POST", "/v1/completions", &body.to_string()).await;
        assert_eq!(reply.head.status, 200);
    }
    // Two prompts have ten tokens; two choices of one prompt have five.
    let usage = rig.usage(2).await;
    assert_eq!((usage.prompt_tokens.0, usage.completion_tokens.0), (15, 14));
    // Cut short, the second choice was told nothing of.
    let cut = Script::events().event(&last(0, 5, 3)).event(&pieces(&[1]));
    engine.next(cut.event(&pieces(&[1])).event(&pieces(&[1])).abort());
    rig.chat(&streamed()).await;
    let usage = rig.usage(3).await;
    assert_eq!((usage.errors, usage.completion_tokens.0), (1, 18));
}

#[tokio::test]
async fn calls_that_reach_no_model_are_not_in_the_accounts() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    rig.call("POST", crate::rig::CHAT, "{").await;
    rig.chat(&serde_json::json!({"model": "other"})).await;
    rig.call("GET", "/v1/models", "").await;
    rig.chat(&request()).await;
    assert_eq!(rig.usage(1).await.requests, 1);
}

#[tokio::test]
async fn a_store_that_hangs_or_fails_stops_nobody() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    rig.faults.add(Call::AppendUsage, Fault::Hang);
    for _ in 0..3 {
        assert_eq!(rig.chat(&request()).await.head.status, 200);
    }
    let rig = Rig::start(&[&engine]).await;
    rig.faults.fail_all(true);
    for _ in 0..3 {
        assert_eq!(rig.chat(&request()).await.head.status, 200);
    }
    rig.faults.fail_all(false);
    assert_eq!(rig.usage(3).await.requests, 3);
}

#[tokio::test]
async fn usage_is_written_before_serving_ends() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    rig.chat(&request()).await;
    rig.shutdown.cancel();
    let drained = within(rig.served).await.unwrap();
    assert_eq!((drained.connections_cut, drained.usage_lost), (0, 0));
    let totals =
        llmgw_core::store::Store::usage_totals(&rig.store, llmgw_core::clock::Timestamp(0), None);
    assert_eq!(totals.await.unwrap()[0].requests, 1);
}
