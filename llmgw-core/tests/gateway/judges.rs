//! Models that judge.

use llmgw_core::{
    route::RouteTable,
    testing::engine::{Script, ScriptedEngine},
};
use serde_json::{Value, json};

use crate::{
    guard::{answer, policy, says, stream, streamed_text},
    rig::{Rig, chunk, model, streamed},
};

/// A rule with a judge; `more` is of the judge.
fn rules(stages: &str, action: &str, more: Value) -> Value {
    let mut judge = json!({"model": "judge", "prompt": "Is it about money?"});
    judge
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({"rules": [{"name": "money", "judge": judge, "stages": stages, "action": action}]})
}

struct Court {
    rig: Rig,
    engine: ScriptedEngine,
    judge: ScriptedEngine,
}

async fn court(rules: &Value) -> Court {
    let engine = ScriptedEngine::start().await.unwrap();
    let judge = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let routes = [
        model("org/served", &["asked"], vec![engine.endpoint()]),
        model("judge", &[], vec![judge.endpoint()]),
    ];
    rig.routes
        .send_replace(std::sync::Arc::new(RouteTable::new(routes)));
    rig.guard.replace_policy(policy(rules)).unwrap();
    Court { rig, engine, judge }
}

#[tokio::test]
async fn a_judge_reads_what_a_client_sends_and_is_not_judged() {
    let Court { rig, engine, judge } =
        court(&rules("both", "block", json!({"threshold": 0.7}))).await;
    engine.always(answer("hi"));
    judge.next(answer("0.9"));
    let reply = rig.chat(&says("about money")).await;
    assert_eq!(reply.error().0, "content_policy_violation");
    assert!(engine.seen().is_empty());
    let asked: Value = serde_json::from_slice(&judge.seen()[0].body).unwrap();
    let system = asked["messages"][0]["content"].as_str().unwrap();
    assert!(system.starts_with("Is it about money?"), "{system}");
    assert_eq!(asked["messages"][1]["content"], "about money\n");
    judge.next(answer("0.6"));
    judge.next(answer("0"));
    assert_eq!(rig.chat(&says("about cats")).await.head.status, 200);
    assert_eq!(
        judge.seen().len(),
        3,
        "once for what came, once for the answer"
    );
    let asked: Value = serde_json::from_slice(&judge.seen()[2].body).unwrap();
    assert_eq!(asked["messages"][1]["content"], "hi\n");
    // Its calls are in the accounts, and not the client's.
    let judged = async {
        loop {
            let totals = rig
                .store
                .usage_totals(llmgw_core::clock::Timestamp(0), None)
                .await
                .unwrap();
            let of = |name: &str| {
                totals
                    .iter()
                    .find(|total| total.model.as_str() == name)
                    .cloned()
            };
            if let (Some(judged), Some(asked)) = (of("judge"), of("org/served"))
                && judged.requests + asked.requests == 5
            {
                return (judged, asked);
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let (judged, asked) = crate::client::within(judged).await;
    assert_eq!((judged.requests, asked.requests), (3, 2));
    assert!(judged.key.is_imagined() && !asked.key.is_imagined());
    assert!(judged.level.is_cluster());
}

#[tokio::test]
async fn a_judge_that_fails_does_what_its_rule_says() {
    for (on_error, status, header) in [
        ("allow", 200, None),
        ("flag", 200, Some("flagged=money")),
        ("block", 400, Some("blocked=money")),
    ] {
        let Court { rig, engine, judge } =
            court(&rules("input", "block", json!({"on_error": on_error}))).await;
        engine.always(answer("hi"));
        for failing in [
            answer("I can't say"),
            Script::json(500, "{}"),
            Script::new(),
        ] {
            judge.always(failing);
            let reply = rig.chat(&says("x")).await;
            assert_eq!(reply.head.status, status, "{on_error}");
            assert_eq!(reply.head.get("x-llmgw-guard"), header, "{on_error}");
        }
        let numbers = rig.numbers.text();
        let counted = "llmgw_guard_judge_failures_total{rule=\"money\"} 3";
        assert!(numbers.contains(counted), "{numbers}");
    }
}

#[tokio::test]
async fn a_judge_that_takes_too_long_or_is_not_there_fails() {
    let Court { rig, engine, judge } =
        court(&rules("input", "flag", json!({"timeout": "100ms"}))).await;
    engine.always(answer("hi"));
    judge.always(Script::new().wait());
    let reply = rig.chat(&says("x")).await;
    assert_eq!(reply.head.status, 400);
    let message = "the rule money of this cluster could not judge this request, and blocks it then";
    assert_eq!(reply.json()["error"]["message"], message);
    rig.publish(vec![engine.endpoint()]);
    assert_eq!(rig.chat(&says("x")).await.head.status, 400);
    assert!(engine.seen().is_empty());
}

#[tokio::test]
async fn a_stream_waits_for_its_judge() {
    let Court { rig, engine, judge } = court(&rules("output", "block", json!({}))).await;
    let long = "word ".repeat(500);
    engine.next(stream([long.as_str(), "money"]));
    judge.next(answer("0.1"));
    judge.next(answer("1"));
    let reply = rig.chat(&streamed()).await;
    let (text, ended) = streamed_text(&reply);
    assert_eq!(
        text, long,
        "what was judged has passed, and the rest has not"
    );
    assert_eq!(ended.as_deref(), Some("content_policy_violation"));
    let asked: Value = serde_json::from_slice(&judge.seen()[1].body).unwrap();
    let words = asked["messages"][1]["content"].as_str().unwrap();
    assert!(words.ends_with("word money"), "{words}");
    engine.next(stream(["all", " well"]));
    judge.next(answer("0"));
    let reply = rig.chat(&streamed()).await;
    assert_eq!(streamed_text(&reply), ("all well".to_owned(), None));
    // Also where the engine ends without a last word, and where the judge fails.
    engine.next(Script::events().event(&chunk("a")).bytes("data: [DONE]"));
    judge.next(answer("0"));
    assert_eq!(
        streamed_text(&rig.chat(&streamed()).await),
        ("a".to_owned(), None)
    );
    engine.next(stream(["a"]));
    judge.next(Script::new());
    let reply = rig.chat(&streamed()).await;
    assert_eq!(reply.error().0, "content_policy_violation");
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_judge_along() {
    let Court { rig, judge, .. } = court(&rules("input", "block", json!({}))).await;
    judge.always(Script::new().wait());
    let client = rig.open(&says("x")).await;
    judge.until(|seen| !seen.is_empty()).await;
    drop(client);
    judge.until(|seen| seen[0].was_abandoned()).await;
    rig.until_idle().await;
}
