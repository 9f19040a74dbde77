use http_body_util::BodyExt;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

async fn edited(text: &str, name: &str) -> String {
    let inspected = Inspected::new(Bytes::copy_from_slice(text.as_bytes())).unwrap();
    let spliced = inspected.for_engine(&name.parse().unwrap());
    let sent = spliced.collect().await.unwrap().to_bytes();
    String::from_utf8(sent.to_vec()).unwrap()
}

fn refused(text: &[u8]) -> (String, String) {
    let refusal = Inspected::new(Bytes::copy_from_slice(text)).unwrap_err();
    let object = refusal.object();
    (object.code.unwrap(), object.message)
}

#[tokio::test]
async fn only_the_model_is_replaced_in_a_plain_request() {
    let text =
        "{ \"x\" : [1.0e0, {\"model\":\"inner\"}],\n\t\"model\" : \"alias\", \"stream\":false }";
    let expected = text.replace("\"alias\"", "\"org/real\"");
    assert_eq!(edited(text, "org/real").await, expected);
}

#[tokio::test]
async fn a_stream_asks_for_usage_whatever_stood_there() {
    for (options, expected) in [
        ("", r#","stream_options":{"include_usage":true}"#),
        (
            r#","stream_options":null"#,
            r#","stream_options":{"include_usage":true}"#,
        ),
        (
            r#","stream_options":{}"#,
            r#","stream_options":{"include_usage":true}"#,
        ),
        (
            r#","stream_options":{ }"#,
            r#","stream_options":{"include_usage":true }"#,
        ),
        (
            r#","stream_options":{"include_usage":false,"y":1}"#,
            r#","stream_options":{"include_usage":true,"y":1}"#,
        ),
        (
            r#","stream_options":{"include_usage":null}"#,
            r#","stream_options":{"include_usage":true}"#,
        ),
        (
            r#","stream_options":{"y":1}"#,
            r#","stream_options":{"include_usage":true,"y":1}"#,
        ),
        (r#","stream_options":7"#, r#","stream_options":7"#),
    ] {
        let text = format!("{{\"model\":\"a\"{options},\"stream\":true}}");
        assert_eq!(
            edited(&text, "a").await,
            format!("{{\"model\":\"a\"{expected},\"stream\":true}}")
        );
        let inspected = Inspected::new(text.into()).unwrap();
        assert!(!inspected.asked_usage);
    }
}

#[tokio::test]
async fn a_stream_that_asked_for_usage_is_left_alone() {
    let text = r#"{"stream_options":{"include_usage":true},"stream":true,"model":"a"}"#;
    assert_eq!(edited(text, "a").await, text);
    assert!(Inspected::new(text.into()).unwrap().asked_usage);
}

#[tokio::test]
async fn a_key_with_escapes_is_the_same_key() {
    let text = r#"{"mod\u0065l":"a"}"#;
    assert_eq!(edited(text, "b").await, r#"{"mod\u0065l":"b"}"#);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let (code, message) = refused(b"{\"model\": \"a\",\n x}");
    assert_eq!(code, "invalid_json");
    assert!(message.contains("line 2, column 2"), "{message}");
    assert_eq!(refused(b"").0, "invalid_json");
    assert_eq!(refused(b"{\"model\":\"a\"} x").0, "invalid_json");
    let (code, message) = refused(b"[\"model\"]");
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("invalid_json", "the body must be a JSON object")
    );
    let (code, message) = refused(b"{\"model\":\"a\xff\"}");
    assert_eq!(code, "invalid_json");
    assert!(message.contains("byte 11"), "{message}");
    assert_eq!(refused(b"{}").0, "missing_field");
    assert_eq!(refused(b"{\"model\":7}").0, "invalid_request");
}

#[test]
fn a_member_that_counts_stands_once() {
    for text in [
        r#"{"model":"a","model":"b"}"#,
        r#"{"model":"a","mod\u0065l":"b"}"#,
        r#"{"model":"a","stream":true,"stream":false}"#,
    ] {
        let (code, message) = refused(text.as_bytes());
        assert_eq!(code, "invalid_request");
        assert!(message.contains("stands twice"), "{message}");
    }
    assert!(Inspected::new(r#"{"model":"a","x":1,"x":2}"#.into()).is_ok());
}

proptest! {
    #[test]
    fn the_edited_body_means_the_same_but_for_the_edits(
        extra in prop::collection::btree_map("[a-z_]{1,6}", r#"[\\"{}\[\],: é]{0,8}"#, 0..6),
        options in prop_oneof![
            Just(None),
            Just(Some(json!(null))),
            Just(Some(json!({}))),
            Just(Some(json!({"include_usage": false}))),
            Just(Some(json!({"include_usage": true, "other": [1, {"include_usage": 0}]}))),
        ],
        pretty in any::<bool>(),
    ) {
        let mut body = json!({"model": "asked", "stream": true});
        for (key, value) in &extra {
            if key != "model" && !key.starts_with("stream") {
                body[key] = json!(value);
            }
        }
        if let Some(options) = &options {
            body["stream_options"] = options.clone();
        }
        let text = if pretty {
            serde_json::to_string_pretty(&body).unwrap()
        } else {
            body.to_string()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let sent: Value = serde_json::from_str(&runtime.block_on(edited(&text, "served"))).unwrap();
        let mut expected = body;
        expected["model"] = json!("served");
        if !expected["stream_options"].is_object() {
            expected["stream_options"] = json!({});
        }
        expected["stream_options"]["include_usage"] = json!(true);
        prop_assert_eq!(sent, expected);
    }

    #[test]
    fn any_bytes_are_refused_or_accepted_without_a_panic(text in any::<Vec<u8>>()) {
        let _either = Inspected::new(text.into());
    }
}
