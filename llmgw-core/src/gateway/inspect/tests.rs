use http_body_util::BodyExt;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn inspect(text: Bytes) -> Result<Inspected, Refusal> {
    inspect_for("/v1/chat/completions", text)
}

fn inspect_for(path: &str, text: Bytes) -> Result<Inspected, Refusal> {
    Inspected::new(text, Dialect::of(path).unwrap(), None)
}

async fn edited(text: &str, name: &str) -> String {
    let inspected = inspect(Bytes::copy_from_slice(text.as_bytes())).unwrap();
    let spliced = inspected.for_engine(&name.parse().unwrap());
    let sent = spliced.collect().await.unwrap().to_bytes();
    String::from_utf8(sent.to_vec()).unwrap()
}

fn refused(text: &[u8]) -> (String, String) {
    let refusal = inspect(Bytes::copy_from_slice(text)).unwrap_err();
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
    ] {
        let text = format!("{{\"model\":\"a\"{options},\"stream\":true}}");
        assert_eq!(
            edited(&text, "a").await,
            format!("{{\"model\":\"a\"{expected},\"stream\":true}}")
        );
        let inspected = inspect(text.into()).unwrap();
        assert!(!inspected.asked_usage);
    }
}

#[tokio::test]
async fn a_stream_that_asked_for_usage_is_left_alone() {
    let text = r#"{"stream_options":{"include_usage":true},"stream":true,"model":"a"}"#;
    assert_eq!(edited(text, "a").await, text);
    assert!(inspect(text.into()).unwrap().asked_usage);
}

#[test]
fn stream_options_of_which_nobody_can_say_what_they_ask_for_are_refused() {
    let whole = "stream_options";
    let member = "stream_options.include_usage";
    for (options, param, says) in [
        (r#""stream_options":"x""#, whole, "must be an object"),
        (r#""stream_options":1"#, whole, "must be an object"),
        (r#""stream_options":false"#, whole, "must be an object"),
        (r#""stream_options":[]"#, whole, "must be an object"),
        (r#""stream_options":[1]"#, whole, "must be an object"),
        (r#""stream_options":[true]"#, whole, "must be an object"),
        (r#""stream_options":{"\ud800":1}"#, whole, "not Unicode"),
        (
            r#""stream_options":{},"stream_options":null"#,
            whole,
            "stands twice",
        ),
        (
            r#""stream_options":{"include_usage":1}"#,
            member,
            "must be true or false",
        ),
        (
            r#""stream_options":{"include_usage":"true"}"#,
            member,
            "must be true or false",
        ),
        (
            r#""stream_options":{"include_usage":{}}"#,
            member,
            "must be true or false",
        ),
        (
            r#""stream_options":{"include_usage":true,"include_usage":false}"#,
            member,
            "stands twice",
        ),
        (
            r#""stream_options":{"include_usage":false,"x":1,"include_us\u0061ge":true}"#,
            member,
            "stands twice",
        ),
    ] {
        let text = format!("{{\"model\":\"a\",\"stream\":true,{options}}}");
        let refusal = inspect(text.into()).unwrap_err();
        let object = refusal.object();
        assert_eq!(refusal.status(), 400, "{options}");
        assert_eq!(object.kind, "invalid_request_error", "{options}");
        assert_eq!(object.param.as_deref(), Some(param), "{options}");
        assert!(
            object.message.contains(says),
            "{options}: {}",
            object.message
        );
    }
}

#[tokio::test]
async fn without_a_stream_its_options_are_left_to_the_engine() {
    let text = r#"{"model":"a","stream_options":[]}"#;
    assert_eq!(edited(text, "a").await, text);
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
    assert!(inspect(r#"{"model":"a","x":1,"x":2}"#.into()).is_ok());
}

/// The members of an object in any order: most often a stream with options, once or twice, of any kind.
fn members() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let stream = prop::sample::select(vec!["true", "true", "true", "false", "null"]);
    let stream = stream.prop_map(|value| ("stream", value.to_owned()));
    let key = prop::sample::select(vec!["stream_options", "stream_\\u006fptions"]);
    let options = prop::collection::vec((key, a_value()), 0..=2);
    let other = prop::sample::select(vec!["other", "include_usage", "streams"]);
    let others = prop::collection::vec((other, a_value()), 0..3);
    (stream, options, others).prop_flat_map(|(stream, options, others)| {
        let all: Vec<_> = options.into_iter().chain([stream]).chain(others).collect();
        Just(all).prop_shuffle()
    })
}

/// Any JSON value, as text.
fn a_value() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "null",
        "true",
        "true",
        "false",
        "0",
        "-1.5e3",
        "\"\"",
        "\"}{\\\"\"",
        "[]",
        "[ ]",
        "{}",
        "{ }",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(3, 12, 4, |inner| {
        let member = (an_option(), inner.clone());
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|all| format!("[{}]", all.join(", "))),
            prop::collection::vec(member, 0..4).prop_map(|all| {
                let all: Vec<String> = all
                    .iter()
                    .map(|(key, value)| format!("\"{key}\": {value}"))
                    .collect();
                format!("{{\n{}}}", all.join(","))
            }),
        ]
    })
}

fn an_option() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "include_usage",
        "include\\u005fusage",
        "x",
        "model",
        "y",
    ])
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
    fn any_object_is_refused_or_stays_valid_and_differs_only_where_it_is_edited(
        members in members(),
    ) {
        let mut written: Vec<String> = members
            .iter()
            .map(|(key, value)| format!("\"{key}\" :{value}"))
            .collect();
        written.insert(members.len() / 2, "\"model\" : \"asked\"".to_owned());
        let text = format!("{{ {} }}", written.join(" ,\n"));
        // Only what stands twice or is of the wrong kind is refused.
        if let Ok(inspected) = inspect(text.clone().into()) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let sent = runtime.block_on(edited(&text, "served"));
            let sent: Value = serde_json::from_str(&sent).unwrap();
            let mut expected: Value = serde_json::from_str(&text).unwrap();
            expected["model"] = json!("served");
            if expected["stream"] == json!(true) {
                let asked = &expected["stream_options"]["include_usage"];
                prop_assert_eq!(inspected.asked_usage, asked == &json!(true));
                expected["stream_options"]["include_usage"] = json!(true);
            }
            prop_assert_eq!(sent, expected);
        }
    }

    #[test]
    fn any_bytes_are_refused_or_accepted_without_a_panic(text in any::<Vec<u8>>()) {
        let _either = inspect(text.into());
    }
}

#[tokio::test]
async fn the_apis_that_tell_usage_by_themselves_are_not_asked_for_it() {
    let text = r#"{"model":"a","stream":true,"input":"b","max_output_tokens":7}"#;
    for path in ["/v1/responses", "/v1/messages"] {
        let inspected = inspect_for(path, text.into()).unwrap();
        assert!(inspected.stream && inspected.asked_usage, "{path}");
        let sent = inspected.for_engine(&"a".parse().unwrap());
        assert_eq!(sent.collect().await.unwrap().to_bytes(), text);
        assert_eq!(inspected.max_tokens, Some(7));
    }
    let vectors = inspect_for("/v1/embeddings", text.into()).unwrap();
    assert!(
        !vectors.stream && vectors.max_tokens == Some(0),
        "it makes no tokens"
    );
}

#[test]
fn only_embeddings_come_in_base64_and_only_when_asked_so() {
    let base64 = |path: &str, text: &str| inspect_for(path, text.to_owned().into()).unwrap().base64;
    let asked = r#"{"model":"a","encoding_format":"base64","input":["b"]}"#;
    assert!(base64("/v1/embeddings", asked));
    assert!(!base64("/v1/rerank", asked));
    assert!(!base64(
        "/v1/embeddings",
        r#"{"model":"a","encoding_format":"float"}"#
    ));
    assert!(!base64("/v1/embeddings", r#"{"model":"a"}"#));
}

#[test]
fn the_documents_of_a_query_are_part_of_the_prompt_and_nothing_is_of_a_count() {
    let text = format!(
        r#"{{"model":"a","query":"q","documents":["{}"]}}"#,
        "d".repeat(400)
    );
    let tokens = |path: &str| {
        inspect_for(path, text.clone().into())
            .unwrap()
            .prompt_tokens()
    };
    assert!(tokens("/v1/rerank") >= 100);
    assert_eq!(tokens("/v1/messages/count_tokens"), 0);
}

#[tokio::test]
async fn the_model_of_a_form_is_replaced_where_it_stands() {
    let kind = HeaderValue::from_static("multipart/form-data; boundary=b");
    let form = |model: &str| {
        format!(
            "--b\r\ncontent-disposition: form-data; name=\"file\"\r\n\r\n\u{0}name=\"model\"\r\n--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n--b--\r\n"
        )
    };
    let dialect = Dialect::of("/v1/audio/transcriptions").unwrap();
    let read = |text: String| Inspected::new(text.into(), dialect, Some(&kind));
    let inspected = read(form("alias")).unwrap();
    assert_eq!(
        (inspected.model.as_str(), inspected.stream),
        ("alias", false)
    );
    let sent = inspected.for_engine(&"org/real".parse().unwrap());
    assert_eq!(sent.collect().await.unwrap().to_bytes(), form("org/real"));
    let none = read("--b--".into()).unwrap_err().object();
    assert_eq!(none.code.as_deref(), Some("missing_field"));
    // An API that takes no forms reads JSON, whatever the client calls it.
    let chat = Dialect::of("/v1/chat/completions").unwrap();
    let refusal = Inspected::new(form("a").into(), chat, Some(&kind)).unwrap_err();
    assert_eq!(refusal.object().code.as_deref(), Some("invalid_json"));
}
