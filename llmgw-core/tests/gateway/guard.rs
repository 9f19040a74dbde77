//! What the guard does to calls and their answers.

use std::sync::Arc;

use llmgw_core::{
    clock::Timestamp,
    cluster::{
        account::ApiKey,
        guard::{Policy, PolicyDefinition},
        tenancy::{
            Level, LevelPath, Limits, Party, Period, Price, PriceList, Window,
            quota::{Measure, Quota},
        },
    },
    keys::KeyRing,
    testing::engine::{Script, ScriptedEngine},
    units::Micros,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    client::{Client, Reply, within},
    dialects::message,
    rig::{AUTHORIZATION, CHAT, Rig, chunk, key, request, streamed, usage_chunk},
};

pub(crate) fn policy(rules: &Value) -> Policy {
    let definition: PolicyDefinition = serde_json::from_value(rules.clone()).unwrap();
    Policy::checked(definition, "guard").unwrap()
}

pub(crate) async fn guarded(engine: &ScriptedEngine, rules: &Value) -> Rig {
    let rig = Rig::start(&[engine]).await;
    rig.guard.replace_policy(policy(rules)).unwrap();
    rig
}

pub(crate) fn says(content: &str) -> Value {
    let mut body = request();
    body["messages"][0]["content"] = json!(content);
    body
}

pub(crate) fn answer(content: &str) -> Script {
    let choice = json!({"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"});
    let usage = json!({"prompt_tokens": 5, "completion_tokens": 2});
    let body = json!({"model": "org/served", "choices": [choice], "usage": usage});
    Script::json(200, body.to_string())
}

/// A streamed answer, a chunk for each piece.
pub(crate) fn stream<'p>(pieces: impl IntoIterator<Item = &'p str>) -> Script {
    let script = pieces.into_iter().fold(Script::events(), |script, piece| {
        script.event(&chunk(piece))
    });
    script.event(&usage_chunk()).done()
}

fn content(reply: &Reply) -> String {
    let content = &reply.json()["choices"][0]["message"]["content"];
    content.as_str().unwrap().to_owned()
}

/// The text of a stream, and the code of the error that it ends in.
pub(crate) fn streamed_text(reply: &Reply) -> (String, Option<String>) {
    let mut text = String::new();
    let mut ended = None;
    for event in reply.text().split_terminator("\n\n") {
        let data = event.strip_prefix("data: ").unwrap();
        if data == "[DONE]" {
            assert_eq!(ended.replace(None), None);
            continue;
        }
        let json: Value = serde_json::from_str(data).unwrap();
        if let Some(code) = json["error"]["code"].as_str() {
            assert_eq!(ended.replace(Some(code.to_owned())), None);
        }
        text.push_str(
            json["choices"][0]["delta"]["content"]
                .as_str()
                .unwrap_or_default(),
        );
    }
    (text, ended.expect("an end"))
}

#[tokio::test]
async fn a_blocked_call_reaches_no_engine_and_is_told_who_forbids_it() {
    let engine = ScriptedEngine::start().await.unwrap();
    engine.always(answer("hi"));
    let rules = json!({"rules": [
        {"name": "projects", "keywords": ["Blue Harvest"], "action": "block", "message": "see the handbook"},
    ]});
    let rig = guarded(&engine, &rules).await;
    let reply = rig.chat(&says("what is\nblue   HARVEST?")).await;
    assert_eq!(reply.head.status, 400);
    let error = &reply.json()["error"];
    assert_eq!(error["code"], "content_policy_violation");
    assert_eq!(error["type"], "invalid_request_error");
    let message = "the rule projects of this cluster blocks this request: see the handbook";
    assert_eq!(error["message"], message);
    assert_eq!(reply.head.get("x-llmgw-guard"), Some("blocked=projects"));
    assert_eq!(reply.head.get("x-llmgw-attempts"), None);
    assert!(engine.seen().is_empty());
    let usage = rig.usage(1).await;
    assert_eq!((usage.errors, usage.prompt_tokens.0), (1, 0));
    assert_eq!(rig.chat(&says("what is blue?")).await.head.status, 200);
    let numbers = rig.numbers.text();
    let counted = "llmgw_guard_decisions_total{action=\"block\",level=\"/\",model=\"org/served\",rule=\"projects\",stage=\"input\"} 1";
    assert!(numbers.contains(counted), "{numbers}");
}

#[tokio::test]
async fn what_is_taken_out_of_a_call_never_reaches_the_engine() {
    let engine = ScriptedEngine::start().await.unwrap();
    engine.always(Script::echo());
    let rules = json!({"rules": [{"name": "mail", "pii": ["email"], "action": "redact"}]});
    let rig = guarded(&engine, &rules).await;
    let body = r#"{"messages":[{"role":"user","content":"to \u0061@b.cd\n"}],  "model":"asked"}"#;
    let reply = rig.call("POST", CHAT, body).await;
    let sent =
        r#"{"messages":[{"role":"user","content":"to [redacted:mail]\n"}],  "model":"asked"}"#;
    // The engine sends back what it got, under the client's name.
    assert_eq!(reply.text(), sent);
    assert_eq!(reply.head.get("x-llmgw-guard"), Some("redacted=mail"));
}

#[tokio::test]
async fn what_is_taken_out_stays_out_when_a_call_is_put_into_another_api() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rules = json!({"rules": [{"name": "mail", "pii": ["email"], "stages": "both", "action": "redact"}]});
    let rig = guarded(&engine, &rules).await;
    engine.next(Script::json(404, r#"{"detail":"Not Found"}"#));
    engine.always(answer("ask c@d.ef"));
    // Once where the engine is asked first, and once where it is known to lack it.
    for _ in 0..2 {
        let reply = message(&rig, &says("to a@b.cd")).await;
        assert_eq!(reply.head.status, 200, "{}", reply.text());
        let text = &reply.json()["content"][0]["text"];
        assert_eq!(text, "ask [redacted:mail]");
    }
    let bodies: Vec<String> = engine
        .seen()
        .into_iter()
        .map(|call| String::from_utf8(call.body.to_vec()).unwrap())
        .collect();
    assert_eq!(bodies.len(), 3);
    for body in bodies {
        assert!(
            body.contains("[redacted:mail]") && !body.contains("a@b.cd"),
            "{body}"
        );
    }
}

#[tokio::test]
async fn the_baseline_only_flags() {
    let engine = ScriptedEngine::start().await.unwrap();
    engine.always(Script::echo());
    let rig = Rig::start(&[&engine]).await;
    let reply = rig
        .chat(&says("4111 1111 1111 1111 and 123-45-6789, a@b.cd"))
        .await;
    assert_eq!(reply.head.status, 200);
    assert_eq!(
        reply.head.get("x-llmgw-guard"),
        Some("flagged=cards,social-security")
    );
    assert!(reply.text().contains("4111 1111 1111 1111"));
    assert_eq!(
        rig.chat(&says("hello")).await.head.get("x-llmgw-guard"),
        None
    );
}

#[tokio::test]
async fn an_answer_is_flagged_changed_or_refused() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rules = json!({"rules": [
        {"name": "cards", "pii": ["card"], "stages": "output", "action": "redact"},
        {"name": "words", "keywords": ["blue"], "stages": "both", "action": "flag"},
        {"name": "never", "regex": "(?i)never +mind", "stages": "output", "action": "block"},
    ]});
    let rig = guarded(&engine, &rules).await;
    engine.next(answer("use 4111111111111111, blue"));
    let reply = rig.chat(&says("blue")).await;
    assert_eq!(content(&reply), "use [redacted:cards], blue");
    assert_eq!(
        reply.head.get("x-llmgw-guard"),
        Some("redacted=cards;flagged=words")
    );
    let length: usize = reply.head.get("content-length").unwrap().parse().unwrap();
    assert_eq!(length, reply.body.len());
    engine.next(answer("Never  mind"));
    let reply = rig.chat(&says("4111111111111111")).await;
    assert_eq!(reply.head.status, 400);
    let message = "the rule never of this cluster blocks this answer";
    assert_eq!(reply.json()["error"]["message"], message);
    // What the engine did is paid for.
    let usage = rig.usage(2).await;
    assert_eq!((usage.errors, usage.completion_tokens.0), (1, 4));
}

#[tokio::test]
async fn a_stream_is_changed_where_a_match_lies_across_its_chunks() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rules = json!({"rules": [{"name": "cards", "pii": ["card"], "stages": "output", "action": "redact"}]});
    let rig = guarded(&engine, &rules).await;
    engine.next(stream(["use 41", "11 1111", " 1111 11", "11 for", " it"]));
    let reply = rig.chat(&streamed()).await;
    assert_eq!(
        streamed_text(&reply),
        ("use [redacted:cards] for it".to_owned(), None)
    );
    let usage = rig.usage(1).await;
    assert_eq!((usage.prompt_tokens.0, usage.completion_tokens.0), (9, 4));
}

#[tokio::test]
async fn a_stream_without_rules_for_answers_passes_as_it_comes() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let script = Script::events()
        .event(&chunk("41"))
        .wait()
        .event(&chunk("11"))
        .done();
    engine.next(script);
    let mut client = rig.open(&streamed()).await;
    client.head().await;
    // Before the engine goes on.
    assert!(client.chunks_until("\n\n").await.contains("\"41\""));
    engine.go(1);
    assert!(client.reply_body().await.ends_with("[DONE]\n\n"));
}

#[tokio::test]
async fn a_blocked_stream_ends_in_an_error_and_nothing_of_what_was_found_has_passed() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rules = json!({"rules": [{"name": "words", "keywords": ["blue harvest"], "stages": "output", "action": "block"}]});
    let rig = guarded(&engine, &rules).await;
    let long = "word ".repeat(40);
    let words = ["word "; 40].into_iter();
    engine.next(stream(words.chain(["bl", "ue har", "vest", " and more"])));
    let reply = rig.chat(&streamed()).await;
    assert_eq!(reply.head.status, 200);
    let (text, ended) = streamed_text(&reply);
    assert_eq!(ended.as_deref(), Some("content_policy_violation"));
    assert!(!text.contains("bl") && long.starts_with(&text), "{text}");
    assert!(!reply.text().contains("[DONE]"));
    // Where nothing has passed, it is refused.
    engine.next(stream(["blue ", "harvest"]));
    let reply = rig.chat(&streamed()).await;
    assert_eq!(reply.head.status, 400);
    assert_eq!(reply.error().0, "content_policy_violation");
    let usage = rig.usage(2).await;
    assert_eq!(usage.errors, 2);
}

#[tokio::test]
async fn what_is_held_of_a_stream_that_breaks_is_said_before_its_error() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rules = json!({"rules": [{"name": "cards", "pii": ["card"], "stages": "output", "action": "redact"}]});
    let rig = guarded(&engine, &rules).await;
    let opening = json!({"choices": [{"index": 0, "delta": {"role": "assistant"}}]}).to_string();
    engine.next(
        Script::events()
            .event(&opening)
            .event(&chunk("hello"))
            .abort(),
    );
    let reply = rig.chat(&streamed()).await;
    let (text, ended) = streamed_text(&reply);
    assert_eq!(
        (text.as_str(), ended.as_deref()),
        ("hello", Some("upstream_disconnected"))
    );
}

fn level(path: &str, limits: Limits) -> Level {
    Level {
        path: path.parse().unwrap(),
        limits,
        created_at: Timestamp(0),
    }
}

#[tokio::test]
async fn levels_have_rules_of_their_own() {
    let engine = ScriptedEngine::start().await.unwrap();
    engine.always(answer("hi"));
    let rules = json!({
        "rules": [
            {"name": "words", "keywords": ["blue"], "action": "block"},
            {"name": "cards", "pii": ["card"], "action": "flag"},
        ],
        "levels": {"acme": {"off": ["words"], "rules": [{"name": "cards", "pii": ["card"], "action": "block"}]}},
    });
    let rig = guarded(&engine, &rules).await;
    let card = says("4111111111111111");
    assert_eq!(rig.chat(&card).await.head.status, 200);
    assert_eq!(rig.chat(&says("blue")).await.head.status, 400);
    let key = ApiKey {
        level: "acme/search".parse().unwrap(),
        ..key()
    };
    let levels = ["acme", "acme/search"].map(|path| level(path, Limits::default()));
    rig.keys
        .send_replace(Arc::new(KeyRing::with_levels([key], levels)));
    assert_eq!(rig.chat(&says("blue")).await.head.status, 200);
    let reply = rig.chat(&card).await;
    let message = "the rule cards of the organisation acme blocks this request";
    assert_eq!(reply.json()["error"]["message"], message);
}

#[tokio::test]
async fn a_blocked_call_gives_its_quota_back() {
    let engine = ScriptedEngine::start().await.unwrap();
    engine.always(answer("hi"));
    let rules = json!({"rules": [{"name": "words", "keywords": ["blue"], "action": "block"}]});
    let rig = guarded(&engine, &rules).await;
    let limits = Limits {
        requests_per_minute: Some(2),
        tokens_per_minute: Some(1_000),
        budgets: vec!["1/total".parse().unwrap()],
        ..Limits::default()
    };
    let key = ApiKey {
        level: "acme".parse().unwrap(),
        ..key()
    };
    rig.keys.send_replace(Arc::new(KeyRing::with_levels(
        [key],
        [level("acme", limits)],
    )));
    let price = Price {
        model: "org/served".parse().unwrap(),
        valid_from: Timestamp(0),
        prompt: Micros(1_000_000),
        cached: Micros(1_000_000),
        completion: Micros(1_000_000),
    };
    rig.prices.send_replace(Arc::new(PriceList::new([price])));
    for _ in 0..5 {
        let reply = rig.chat(&says("blue")).await;
        assert_eq!(reply.head.status, 400, "{}", reply.text());
    }
    for _ in 0..2 {
        assert_eq!(rig.chat(&says("red")).await.head.status, 200);
    }
    assert_eq!(rig.chat(&says("red")).await.head.status, 429);
    rig.usage(7).await;
    rig.shutdown.cancel();
    within(rig.served).await.unwrap();
    let quota = |measure, period| Quota {
        party: Party::Level("acme".parse::<LevelPath>().unwrap()),
        measure,
        window: Window::of(period, Timestamp(1_000)),
    };
    let quotas = [
        quota(Measure::Requests, Period::Minute),
        quota(Measure::Tokens, Period::Minute),
        quota(Measure::Cost, Period::Total),
    ];
    let uses = rig.store.quota_uses(&quotas).await.unwrap();
    let spent: Vec<u64> = uses
        .iter()
        .map(|standing| standing.spent_by_others)
        .collect();
    let held: u64 = uses.iter().map(|standing| standing.held_by_others).sum();
    // Two calls of seven tokens each, and nothing of those that were blocked.
    assert_eq!((spent, held), (vec![2, 14, 14], 0));
}

#[tokio::test]
async fn rules_are_replaced_under_load_and_no_call_is_dropped() {
    let engine = ScriptedEngine::start().await.unwrap();
    engine.always(stream(["4111", "1111", "1111", "1111", " blue"]));
    let redact = json!({"rules": [{"name": "cards", "pii": ["card"], "stages": "output", "action": "redact"}]});
    let flag = json!({"rules": [{"name": "words", "keywords": ["blue"], "stages": "both", "action": "flag"}]});
    let rig = guarded(&engine, &redact).await;
    let address = rig.address;
    let mut calls = JoinSet::new();
    for _ in 0..8 {
        calls.spawn(async move {
            let mut texts = Vec::new();
            for _ in 0..25 {
                let mut client = Client::connect(address).await;
                let body = streamed().to_string();
                client
                    .send("POST", CHAT, &[AUTHORIZATION], body.as_bytes())
                    .await;
                texts.push(streamed_text(&client.reply().await));
            }
            texts
        });
    }
    let mut replaced = 0;
    let mut texts = Vec::new();
    while !calls.is_empty() {
        let rules = if replaced % 2 == 0 { &flag } else { &redact };
        rig.guard.replace_policy(policy(rules)).unwrap();
        replaced += 1;
        tokio::task::yield_now().await;
        while let Some(done) = calls.try_join_next() {
            texts.extend(done.unwrap());
        }
    }
    assert_eq!(texts.len(), 200);
    let (changed, plain) = ("[redacted:cards] blue", "4111111111111111 blue");
    for (text, ended) in &texts {
        // All by one policy or all by the other, and whole.
        assert!(text == changed || text == plain, "{text}");
        assert_eq!(*ended, None);
    }
    assert!(replaced > 10, "{replaced}");
}
