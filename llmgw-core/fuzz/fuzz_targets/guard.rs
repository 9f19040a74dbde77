//! Any bytes as a policy of the guard, and as a text that comes in pieces: nobody may panic, and however a text is cut, the
//! same is found in it and the same passes.
//!
//! The first byte says how the text is cut; a policy ends at the first zero byte. `{"rules": []}` and those of
//! `cluster/guard/tests.rs` are good starts. Built as `events.rs` says.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use llmgw_core::{
    cluster::{
        guard::{Policy, PolicyDefinition, Stage},
        tenancy::LevelPath,
    },
    guard::{Body, RuleSet, Rules, StreamCheck},
};

fuzz_target!(|bytes: &[u8]| {
    let Some((&cut, rest)) = bytes.split_first() else {
        return;
    };
    let mut parts = rest.splitn(2, |byte| *byte == 0);
    let policy = parts.next().unwrap_or_default();
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let Some(rules) = ready(policy) else {
        return;
    };
    let set = rules.at(&LevelPath::CLUSTER);
    let verdict = set.check_body(Stage::Input, text.as_bytes(), Body::Request);
    let mut end = 0;
    for change in &verdict.changes {
        assert!(change.range.start >= end && change.range.end <= text.len());
        end = change.range.end;
    }
    let whole = passed(set, &[text.as_str()]);
    let step = usize::from(cut).max(1);
    let mut pieces = Vec::new();
    let mut left = text.as_str();
    while !left.is_empty() {
        let (piece, rest) = left.split_at(left.ceil_char_boundary(step.min(left.len())));
        pieces.push(piece);
        left = rest;
    }
    assert_eq!(passed(set, &pieces), whole);
});

fn ready(policy: &[u8]) -> Option<Rules> {
    let definition: PolicyDefinition = serde_json::from_slice(policy).ok()?;
    Rules::ready(Policy::checked(definition, "guard").ok()?).ok()
}

/// The text as it passes, and how often rules matched.
fn passed(set: &Arc<RuleSet>, pieces: &[&str]) -> (String, usize) {
    let Some(mut check) = StreamCheck::new(Arc::clone(set)) else {
        return (pieces.concat(), 0);
    };
    let mut events = Vec::new();
    for piece in pieces {
        let json = serde_json::json!({"choices": [{"index": 0, "delta": {"content": piece}}]});
        let event = format!("data: {json}\n\n");
        let end = event.len() - 2;
        check.push(event.into(), 6..end);
        events.extend(std::iter::from_fn(|| check.next_event()));
    }
    check.finish();
    events.extend(std::iter::from_fn(|| check.next_event()));
    let text = events.iter().map(|event| {
        let json: serde_json::Value = serde_json::from_slice(&event[6..]).unwrap();
        json["choices"][0]["delta"]["content"].as_str().unwrap().to_owned()
    });
    (text.collect(), check.found())
}
