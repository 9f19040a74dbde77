use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    cluster::{
        guard::{Policy, PolicyDefinition},
        tenancy::LevelPath,
    },
    guard::Rules,
};

fn rules(json: &str) -> Arc<RuleSet> {
    let definition: PolicyDefinition = serde_json::from_str(json).unwrap();
    let rules = Rules::ready(Policy::checked(definition, "guard").unwrap()).unwrap();
    Arc::clone(rules.at(&LevelPath::CLUSTER))
}

const POLICY: &str = r#"{"rules": [
    {"name": "mail", "pii": ["email", "card"], "stages": "output", "action": "redact"},
    {"name": "words", "keywords": ["blue harvest", "blue"], "stages": "output", "action": "redact"},
    {"name": "runs", "regex": "q+u?", "stages": "output", "action": "redact"},
    {"name": "lines", "regex": "(?m)^x$", "stages": "output", "action": "flag"}
]}"#;

fn event(choice: u64, text: &str) -> (Bytes, Range<usize>) {
    let json = json!({"choices": [{"delta": {"content": text}, "index": choice}]}).to_string();
    let event = format!("data: {json}\n\n");
    let end = event.len() - 2;
    (Bytes::from(event), 6..end)
}

fn content(event: &Bytes) -> (u64, String) {
    let json: serde_json::Value = serde_json::from_slice(&event[6..]).unwrap();
    let choice = &json["choices"][0];
    let text = choice["delta"]["content"].as_str().unwrap();
    (choice["index"].as_u64().unwrap(), text.to_owned())
}

/// The text as it passes, the decisions, and the most bytes that waited.
fn pass(rules: &Arc<RuleSet>, pieces: &[&str]) -> (String, Vec<(String, u32)>, usize) {
    let mut check = StreamCheck::new(Arc::clone(rules)).unwrap();
    let (mut passed, mut came, mut left, mut most) = (String::new(), 0, 0, 0);
    let mut take = |check: &mut StreamCheck, left: &mut usize| {
        while let Some(event) = check.next_event() {
            passed.push_str(&content(&event).1);
            *left += 1;
        }
    };
    let mut starts = Vec::new();
    for piece in pieces {
        let (event, data) = event(0, piece);
        starts.push(came);
        came += piece.len();
        check.push(event, data);
        take(&mut check, &mut left);
        most = most.max(starts.get(left).map_or(0, |start| came - start));
    }
    check.finish();
    take(&mut check, &mut left);
    assert_eq!(left, pieces.len(), "all events pass in the end");
    let decisions = check.verdict().decisions;
    let counts = decisions
        .iter()
        .map(|one| (one.rule.to_string(), one.count));
    (passed, counts.collect(), most)
}

fn cut<'t>(text: &'t str, cuts: &[usize]) -> Vec<&'t str> {
    let mut cuts: Vec<usize> = cuts
        .iter()
        .map(|cut| text.floor_char_boundary(cut % (text.len() + 1)))
        .collect();
    cuts.extend([0, text.len()]);
    cuts.sort_unstable();
    cuts.windows(2)
        .map(|pair| text.get(pair[0]..pair[1]).unwrap())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn however_a_text_is_cut_the_same_is_found_and_taken_out(
        parts in prop::collection::vec(prop::sample::select(vec![
            "a@b.cd", "4111 1111 1111 1111", "4111", " ", "blue", "Blue\nharvest", "harvest", "qqqqqqqqqqqqqqqqqqqq",
            "qqu", "x", "\n", "ä", "😀", "\"", "\\", "word ", "1", "12 ", "@",
        ]), 0..60),
        cuts in prop::collection::vec(0_usize..2_000, 0..40),
    ) {
        let text = parts.concat();
        let rules = rules(POLICY);
        let whole = pass(&rules, &[&text]);
        let pieces = cut(&text, &cuts);
        let found = pass(&rules, &pieces);
        prop_assert_eq!(&found.0, &whole.0);
        prop_assert_eq!(&found.1, &whole.1);
        let each: Vec<String> = text.chars().map(String::from).collect();
        let each: Vec<&str> = each.iter().map(String::as_str).collect();
        let each = pass(&rules, &each);
        prop_assert_eq!((&each.0, &each.1), (&whole.0, &whole.1));
        let reach = rules.side(Stage::Output).reach;
        prop_assert!(each.2 <= reach.held() + 4, "{} bytes waited", each.2);
    }

    #[test]
    fn a_text_that_comes_in_pieces_is_found_in_as_one_that_comes_whole(
        parts in prop::collection::vec(prop::sample::select(vec![
            "a@b.cd", "x.y@z.org", "4111 1111 1111 1111", "blue", "Blue harvest", " ", ", ", "ä ", "text ", "12 ",
        ]), 0..60),
        cuts in prop::collection::vec(0_usize..2_000, 0..40),
    ) {
        let text = parts.concat();
        let rules = rules(POLICY);
        let mut tally = Tally::default();
        let mut expected = text.clone();
        for cut in rules.cuts(Stage::Output, &text, &mut tally).iter().rev() {
            expected.replace_range(cut.range.clone(), &cut.with);
        }
        prop_assert_eq!(pass(&rules, &cut(&text, &cuts)).0, expected);
    }
}

#[test]
fn what_is_not_changed_is_passed_byte_for_byte_and_in_order() {
    let mut check = StreamCheck::new(rules(POLICY)).unwrap();
    let opening =
        Bytes::from_static(b"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n");
    check.push(opening.clone(), 6..opening.len() - 2);
    assert_eq!(
        check.next_event(),
        Some(opening),
        "what has no text does not wait"
    );
    let events: Vec<(Bytes, Range<usize>)> = (0..100).map(|_| event(0, "word ")).collect();
    let comment = Bytes::from_static(b": x\n\n");
    let mut passed = Vec::new();
    for (event, data) in &events {
        check.push(event.clone(), data.clone());
        check.push(comment.clone(), 0..0);
        passed.extend(std::iter::from_fn(|| check.next_event()));
    }
    assert!(passed.len() > 50, "{}", passed.len());
    check.finish();
    passed.extend(std::iter::from_fn(|| check.next_event()));
    let sent = events
        .iter()
        .flat_map(|(event, _)| [event.clone(), comment.clone()]);
    assert!(passed.iter().eq(sent.collect::<Vec<_>>().iter()));
    assert!(
        passed[0].as_ptr() == events[0].0.as_ptr(),
        "nothing was copied"
    );
}

#[test]
fn the_end_of_a_choice_and_the_next_thing_that_it_says_let_the_text_before_pass() {
    let mut check = StreamCheck::new(rules(POLICY)).unwrap();
    let push = |check: &mut StreamCheck, json: serde_json::Value| {
        let event = format!("data: {json}\n\n");
        let end = event.len() - 2;
        check.push(Bytes::from(event), 6..end);
        std::iter::from_fn(|| check.next_event()).count()
    };
    let delta = |choice: u64, key: &str, text: &str| json!({"choices": [{"index": choice, "delta": {key: text}}]});
    assert_eq!(push(&mut check, delta(0, "reasoning_content", "hm")), 0);
    assert_eq!(push(&mut check, delta(1, "content", "b")), 0);
    // The other choice's text waits still.
    assert_eq!(push(&mut check, delta(0, "content", "a")), 1);
    let end =
        |choice: u64| json!({"choices": [{"index": choice, "delta": {}, "finish_reason": "stop"}]});
    assert_eq!(push(&mut check, end(1)), 1);
    assert_eq!(push(&mut check, end(0)), 3);
}

#[test]
fn arguments_of_tools_and_texts_told_whole_are_checked_too() {
    let mut check = StreamCheck::new(rules(POLICY)).unwrap();
    let mut pass = |json: serde_json::Value| {
        let event = format!("event: x\ndata: {json}\n\n");
        let end = event.len() - 2;
        check.push(Bytes::from(event), 15..end);
    };
    for piece in ["{\"to\":\"a@", "b.cd\"}"] {
        pass(
            json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}}]}),
        );
    }
    pass(json!({"type": "response.output_text.done", "output_index": 0, "text": "to a@b.cd"}));
    check.finish();
    let passed: Vec<Bytes> = std::iter::from_fn(|| check.next_event()).collect();
    let text = String::from_utf8(passed.concat()).unwrap();
    assert!(text.contains(r#""{\"to\":\"[redacted:mail]""#), "{text}");
    assert!(text.contains(r#""arguments":"\"}""#), "{text}");
    assert!(text.contains(r#""to [redacted:mail]""#), "{text}");
}

#[test]
fn a_block_is_known_before_a_byte_of_it_could_pass() {
    let rules = rules(
        r#"{"rules": [{"name": "b", "keywords": ["blue harvest"], "stages": "output", "action": "block"}]}"#,
    );
    let mut check = StreamCheck::new(rules).unwrap();
    let text = format!("{}blue harvest and more", "x ".repeat(100));
    let mut passed = String::new();
    for char in text.chars() {
        let (event, data) = event(0, &char.to_string());
        check.push(event, data);
        if check.verdict().blocked.is_some() {
            break;
        }
        passed.extend(std::iter::from_fn(|| check.next_event()).map(|event| content(&event).1));
    }
    check.finish();
    assert_eq!(check.verdict().blocked.unwrap().rule.as_str(), "b");
    assert!(
        text.starts_with(&passed) && !passed.contains('b'),
        "{passed}"
    );
}

#[test]
fn rules_that_only_flag_hold_nothing_back() {
    let rules = rules(
        r#"{"rules": [{"name": "f", "keywords": ["blue"], "stages": "output", "action": "flag"}]}"#,
    );
    let mut check = StreamCheck::new(rules).unwrap();
    for piece in ["bl", "ue", " sky"] {
        let (event, data) = event(0, piece);
        check.push(event.clone(), data);
        assert_eq!(check.next_event(), Some(event));
    }
    check.finish();
    assert_eq!(check.verdict().decisions[0].count, 1);
}

#[test]
fn what_waits_is_bounded_however_many_events_come() {
    let mut check = StreamCheck::new(rules(POLICY)).unwrap();
    let (first, data) = event(1, "waits");
    check.push(first, data);
    let mut passed = 0;
    for _ in 0..3 * MOST_HELD {
        let (event, data) = event(0, "");
        check.push(event, data);
        passed += std::iter::from_fn(|| check.next_event()).count();
        assert!(check.held.len() <= MOST_HELD + 1);
    }
    assert!(passed > MOST_HELD);
    let (next, data) = event(0, "waits");
    check.push(next, data);
    let pad = format!("{{\"pad\":\"{}\"}}", "x".repeat(MOST_HELD_BYTES));
    check.push(Bytes::from(pad), 0..MOST_HELD_BYTES + 10);
    passed += std::iter::from_fn(|| check.next_event()).count();
    assert_eq!((passed, check.held.len()), (3 * MOST_HELD + 3, 0));
}

#[test]
fn text_waits_for_its_judge() {
    let rules = rules(
        r#"{"rules": [{"name": "j", "judge": {"model": "m", "prompt": "p"}, "stages": "output", "action": "block"}]}"#,
    );
    let mut check = StreamCheck::new(rules).unwrap();
    let (one, data) = event(0, "hello");
    check.push(one, data);
    assert_eq!(
        (check.next_event(), check.to_judge(100)),
        (None, None),
        "there is too little to ask"
    );
    let (two, data) = event(0, &"x".repeat(JUDGED_AT_ONCE));
    check.push(two, data);
    assert_eq!(check.to_judge(100).unwrap().len(), 100);
    assert_eq!(
        (check.next_event(), check.to_judge(100)),
        (None, None),
        "one asks at a time"
    );
    let (three, data) = event(0, "end");
    check.push(three, data);
    check.judged();
    assert_eq!(std::iter::from_fn(|| check.next_event()).count(), 2);
    check.finish();
    assert!(check.to_judge(5).unwrap().ends_with("xxend"));
    assert_eq!(check.next_event(), None);
    check.judged();
    assert!(check.next_event().is_some());
}
