use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, value::RawValue};

use super::*;

/// The values found when the text comes in pieces that end at `cuts`.
fn found(text: &str, cuts: &[usize]) -> Vec<(Member, String)> {
    let text = text.as_bytes();
    let mut scanner = Scanner::default();
    let mut found = Vec::new();
    let mut start = 0;
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
    cuts.push(text.len());
    cuts.sort_unstable();
    let mut from = 0;
    for cut in cuts {
        scanner.feed(&text[from..cut], |mark| match mark {
            Mark::Start(_, at) => start = from + at,
            Mark::End(member, at) => {
                let value = text[start..from + at].to_vec();
                found.push((member, String::from_utf8(value).unwrap()));
            }
            Mark::Element(..) => {}
        });
        from = cut;
    }
    found
}

fn name(member: Member) -> &'static str {
    match member {
        Member::Model => "model",
        Member::Usage => "usage",
        Member::Choices => "choices",
        Member::Error => "error",
        Member::Type => "type",
        Member::Response => "response",
        Member::Message => "message",
    }
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        r#"[\\"{}\[\],:]{0,8}"#.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(key(), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("model".to_owned()),
        Just("response".to_owned()),
        Just("message".to_owned()),
        Just("type".to_owned()),
        Just("usage".to_owned()),
        Just("choices".to_owned()),
        Just("error".to_owned()),
        r#"[a-z\\"{}\[\]:,é]{0,12}"#,
    ]
}

fn object() -> impl Strategy<Value = String> {
    let members = prop::collection::btree_map(key(), json(), 0..8);
    (members, any::<bool>()).prop_map(|(members, pretty)| {
        let value = Value::Object(members.into_iter().collect());
        if pretty {
            serde_json::to_string_pretty(&value).unwrap()
        } else {
            value.to_string()
        }
    })
}

proptest! {
    #[test]
    fn the_same_values_are_found_as_by_a_parser_for_every_cut(
        text in object(), cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let parsed: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&text).unwrap();
        let mut expected: Vec<(&str, &str)> = ["model", "usage", "choices", "error", "type", "response", "message"]
            .into_iter()
            .filter_map(|key| parsed.get(key).map(|raw| (key, raw.get())))
            .collect();
        let found = found(&text, &cuts);
        let mut found: Vec<(&str, &str)> =
            found.iter().map(|(member, text)| (name(*member), text.as_str())).collect();
        expected.sort_unstable();
        found.sort_unstable();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn the_objects_of_an_array_are_counted_for_every_cut(
        choices in prop::collection::vec(json(), 0..5), cuts in prop::collection::vec(any::<usize>(), 0..6),
    ) {
        let expected = choices.iter().filter(|choice| choice.is_object()).count();
        let text = serde_json::json!({"model": [{}], "choices": choices}).to_string();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
        cuts.push(text.len());
        cuts.sort_unstable();
        let (mut scanner, mut from, mut counted) = (Scanner::default(), 0, 0);
        for cut in cuts {
            scanner.feed(&text.as_bytes()[from..cut], |mark| {
                counted += usize::from(matches!(mark, Mark::Element(Member::Choices, _)));
            });
            from = cut;
        }
        prop_assert_eq!(counted, expected);
    }

    #[test]
    fn a_member_that_is_cut_is_all_that_is_gone(text in object()) {
        let mut value = None;
        let mut start = 0;
        Scanner::default().feed(text.as_bytes(), |mark| match mark {
            Mark::Start(Member::Usage, at) => start = at,
            Mark::End(Member::Usage, at) => value = Some(start..at),
            _ => {}
        });
        prop_assume!(value.is_some());
        let range = cut_range(text.as_bytes(), "usage", value.unwrap());
        let mut rest = text.clone();
        rest.replace_range(range, "");
        let mut expected: Value = serde_json::from_str(&text).unwrap();
        expected.as_object_mut().unwrap().remove("usage");
        prop_assert_eq!(serde_json::from_str::<Value>(&rest).unwrap(), expected);
    }

    #[test]
    fn any_bytes_are_survived(pieces in prop::collection::vec(any::<Vec<u8>>(), 0..8)) {
        let mut scanner = Scanner::default();
        for piece in &pieces {
            scanner.feed(piece, |mark| {
                let (Mark::Start(_, at) | Mark::End(_, at) | Mark::Element(_, at)) = mark;
                assert!(at <= piece.len());
            });
        }
    }
}

#[test]
fn what_is_not_an_object_has_no_members() {
    assert!(found(r#"[{"model":"a"}]"#, &[]).is_empty());
    assert!(found(r#""model""#, &[]).is_empty());
}
