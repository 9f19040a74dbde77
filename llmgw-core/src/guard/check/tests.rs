use super::*;
use crate::{
    cluster::guard::{Policy, PolicyDefinition},
    guard::Rules,
};

fn rules(json: &str) -> Rules {
    let definition: PolicyDefinition = serde_json::from_str(json).unwrap();
    Rules::ready(Policy::checked(definition, "guard").unwrap()).unwrap()
}

fn check(json: &str, body: &str) -> (Verdict, String) {
    let rules = rules(json);
    let set = rules.at(&LevelPath::CLUSTER);
    let verdict = set.check_body(Stage::Input, body.as_bytes(), Body::Request);
    let mut changed = String::new();
    let mut from = 0;
    for change in &verdict.changes {
        changed.push_str(body.get(from..change.range.start).unwrap());
        changed.push_str(&change.with);
        from = change.range.end;
    }
    changed.push_str(body.get(from..).unwrap());
    (verdict, changed)
}

#[test]
fn a_body_is_changed_in_place_and_stays_as_it_is_written() {
    let policy = r#"{"rules": [
        {"name": "mail", "pii": ["email"], "action": "redact"},
        {"name": "names", "keywords": ["ärger"], "action": "redact"}
    ]}"#;
    let body = r#"{ "model":"m" , "messages":[{"role":"user","content":"to \"a@b.cd\"\n\u00c4RGER \u0061@b.cd"}], "x": 1.0e2 }"#;
    let (verdict, changed) = check(policy, body);
    assert_eq!(
        changed,
        r#"{ "model":"m" , "messages":[{"role":"user","content":"to \"[redacted:mail]\"\n[redacted:names] [redacted:mail]"}], "x": 1.0e2 }"#
    );
    let counts: Vec<(&str, u32)> = verdict
        .decisions
        .iter()
        .map(|decision| (decision.rule.as_str(), decision.count))
        .collect();
    assert_eq!(counts, [("mail", 2), ("names", 1)]);
    assert_eq!(verdict.blocked, None);
}

#[test]
fn what_overlaps_is_taken_out_in_one() {
    let policy = r#"{"rules": [
        {"name": "b", "regex": "bcd", "action": "redact"},
        {"name": "a", "regex": "abc", "action": "redact"}
    ]}"#;
    let (verdict, changed) = check(policy, r#"{"prompt":"xabcdx bcd"}"#);
    assert_eq!(changed, r#"{"prompt":"x[redacted:a]x [redacted:b]"}"#);
    assert_eq!(verdict.decisions.len(), 2);
}

#[test]
fn the_first_rule_that_blocks_is_named_and_others_are_told_too() {
    let policy = r#"{"rules": [
        {"name": "cards", "pii": ["card"], "action": "flag"},
        {"name": "first", "keywords": ["x"], "action": "block", "message": "ask the help desk"},
        {"name": "second", "keywords": ["y"], "action": "block"}
    ]}"#;
    let (verdict, _) = check(policy, r#"{"prompt":"y x x 4111111111111111"}"#);
    let blocked = verdict.blocked.unwrap();
    assert_eq!(blocked.rule.as_str(), "first");
    assert_eq!(blocked.message.as_deref(), Some("ask the help desk"));
    let names: Vec<&str> = verdict
        .decisions
        .iter()
        .map(|one| one.rule.as_str())
        .collect();
    assert_eq!(names, ["cards", "first", "second"]);
    let (verdict, _) = check(policy, r#"{"prompt":"z","model":"x"}"#);
    assert!(verdict.is_clear(), "a name of a model is no text");
}

#[test]
fn what_was_taken_out_is_not_told_by_log_probabilities() {
    let rules = rules(
        r#"{"rules": [{"name": "a", "regex": "abc", "stages": "output", "action": "redact"}]}"#,
    );
    let set = rules.at(&LevelPath::CLUSTER);
    let body =
        br#"{"choices":[{"message":{"content":"abc"},"logprobs":{"content":[{"token":"abc"}]}}]}"#;
    let verdict = set.check_body(Stage::Output, body, Body::Answer);
    let with: Vec<&str> = verdict
        .changes
        .iter()
        .map(|change| change.with.as_str())
        .collect();
    assert_eq!(with, ["[redacted:a]", "null"]);
    let clear =
        br#"{"choices":[{"message":{"content":"ab"},"logprobs":{"content":[{"token":"ab"}]}}]}"#;
    assert!(
        set.check_body(Stage::Output, clear, Body::Answer)
            .changes
            .is_empty()
    );
    assert!(set.check_body(Stage::Input, body, Body::Answer).is_clear());
}

#[test]
fn the_words_that_a_judge_reads_are_the_last_ones() {
    let body = r#"{"messages":[{"role":"user","content":"ä\nb"},{"role":"user","content":"c"}]}"#;
    assert_eq!(
        RuleSet::words(body.as_bytes(), Body::Request, 100),
        "ä\nb\nc\n"
    );
    assert_eq!(
        RuleSet::words(body.as_bytes(), Body::Request, 6),
        "\nb\nc\n"
    );
}
