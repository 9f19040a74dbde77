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

#[test]
fn what_is_split_over_the_parts_of_a_message_is_found_and_what_is_in_two_messages_is_not() {
    let policy = r#"{"rules": [
        {"name": "mail", "pii": ["email"], "action": "redact"},
        {"name": "harvest", "keywords": ["blue harvest"], "action": "block"}
    ]}"#;
    let parts = |parts: &[&str]| {
        let parts: Vec<String> = parts
            .iter()
            .map(|part| format!(r#"{{"type":"text","text":"{part}","x":["]",1]}}"#))
            .collect();
        format!(
            r#"{{"messages":[{{"role":"user","content":[{}]}}]}}"#,
            parts.join(",")
        )
    };
    for split in [
        &["so Blue ", "Harvest"][..],
        &["Blue", "Harvest"],
        &["Bl", "ue Har", "vest x"],
        &["a", "blue", " harvest"],
    ] {
        let (verdict, _) = check(policy, &parts(split));
        assert!(verdict.blocked.is_some(), "{split:?}");
        assert_eq!(verdict.decisions[0].count, 1, "{split:?}");
    }
    let (verdict, changed) = check(policy, &parts(&["to bob@exam", "ple.com, a@b.cd"]));
    assert_eq!(
        changed,
        parts(&["to [redacted:mail]", "[redacted:mail], [redacted:mail]"])
    );
    assert_eq!(verdict.decisions[0].count, 2);
    // What is whole in a part is found once.
    let (verdict, _) = check(policy, &parts(&["x ", "a@b.cd", " y"]));
    assert_eq!(verdict.decisions[0].count, 1);
    let message =
        |text: &str| format!(r#"{{"role":"user","content":[{{"type":"text","text":"{text}"}}]}}"#);
    let two = format!(
        r#"{{"messages":[{},{}]}}"#,
        message("Blue"),
        message("Harvest")
    );
    assert!(check(policy, &two).0.is_clear());
    let inputs = r#"{"input":["Blue","Harvest"]}"#;
    assert!(check(policy, inputs).0.is_clear());
}

#[test]
fn json_in_a_string_is_read_as_it_is_meant() {
    let policy = r#"{"rules": [
        {"name": "mail", "pii": ["email"], "action": "redact"},
        {"name": "street", "keywords": ["straße", "blue harvest"], "action": "block"}
    ]}"#;
    let call = |arguments: &str| {
        let arguments = serde_json::to_string(arguments).unwrap();
        format!(
            r#"{{"messages":[{{"tool_calls":[{{"function":{{"name":"f","arguments":{arguments}}}}}]}}]}}"#
        )
    };
    for arguments in [
        r#"{"a":"Stra\u00dfe"}"#,
        r#"{"a":"Bl\u0075e Harvest"}"#,
        r#"{"a":"Blue\nHarvest"}"#,
    ] {
        let arguments = arguments.replace("\\\\", "\\");
        assert!(
            check(policy, &call(&arguments)).0.blocked.is_some(),
            "{arguments}"
        );
    }
    let (verdict, changed) = check(policy, &call("{\"a\":\"to bob\\u0040example.com.\"}"));
    assert_eq!(changed, call("{\"a\":\"to [redacted:mail].\"}"));
    assert_eq!(verdict.decisions[0].count, 1);
    // A text that is no JSON is what it is.
    let prose = r#"{"prompt":"C:\\u0040 a"}"#;
    assert!(check(policy, prose).0.is_clear());
}
