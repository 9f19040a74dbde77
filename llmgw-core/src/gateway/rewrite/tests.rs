use proptest::prelude::*;

use super::*;

fn chat() -> &'static Dialect {
    Dialect::of("/v1/chat/completions").unwrap()
}

fn rewritten(strip: bool, event: &str) -> (String, Seen) {
    let mut out = Output::default();
    let rewriter = EventRewriter::new(chat(), "asked", strip);
    let seen = rewriter.event(Bytes::copy_from_slice(event.as_bytes()), &mut out);
    (String::from_utf8(out.take().to_vec()).unwrap(), seen)
}

#[test]
fn a_chunk_gets_the_asked_name_and_loses_usage_that_nobody_asked_for() {
    let event =
        "data: {\"id\":1,\"model\":\"m\",\"usage\":{\"a\":1},\"choices\":[{\"x\":\"model\"}]}\n\n";
    let (text, seen) = rewritten(true, event);
    assert_eq!(
        text,
        "data: {\"id\":1,\"model\":\"asked\",\"choices\":[{\"x\":\"model\"}]}\n\n"
    );
    let content = Content {
        count: 1,
        choices: Bytes::from_static(b"[{\"x\":\"model\"}]"),
        usage: Some(Bytes::from_static(b"{\"a\":1}")),
    };
    assert_eq!(seen, Seen::Content(content));
    let (text, _) = rewritten(false, event);
    assert_eq!(text, event.replace("\"m\"", "\"asked\""));
}

#[test]
fn usage_before_the_model_and_usage_first_are_cut_too() {
    let (text, _) = rewritten(
        true,
        "data: {\"usage\":null,\"model\":\"m\",\"choices\":[1]}\n\n",
    );
    assert_eq!(text, "data: {\"model\":\"asked\",\"choices\":[1]}\n\n");
}

#[test]
fn the_chunk_of_usage_alone_is_dropped_only_when_nobody_asked() {
    let event = "data: {\"choices\":[ ],\"model\":\"asked\",\"usage\":{\"a\":1}}\n\n";
    let usage = Seen::Usage(Bytes::from_static(b"{\"a\":1}"));
    assert_eq!(rewritten(true, event), (String::new(), usage));
    let (text, seen) = rewritten(false, event);
    assert_eq!(
        (text.as_str(), matches!(seen, Seen::Usage(_))),
        (event, true)
    );
}

#[test]
fn an_event_that_needs_no_edit_is_not_copied() {
    let event = Bytes::from_static(b"data: {\"model\":\"asked\",\"choices\":[1]}\n\n");
    let mut out = Output::default();
    EventRewriter::new(chat(), "asked", true).event(event.clone(), &mut out);
    assert_eq!(out.take().as_ptr(), event.as_ptr());
}

#[test]
fn a_chunk_that_only_names_the_role_is_no_content() {
    let seen = |delta: &str| {
        let event = format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n");
        rewritten(true, &event).1
    };
    for delta in [
        r#"{"role":"assistant","content":null}"#,
        r#"{"role": "assistant", "content": ""}"#,
        r#"{"role":"assistant"}"#,
    ] {
        assert_eq!(seen(delta), Seen::Opening, "{delta}");
    }
    for delta in [r#"{"role":"assistant","content":"a"}"#, r#"{"content":""}"#] {
        assert!(matches!(seen(delta), Seen::Content(_)), "{delta}");
    }
}

#[test]
fn the_end_and_errors_are_told_and_not_passed() {
    assert_eq!(
        rewritten(true, "data: [DONE]\n\n"),
        (String::new(), Seen::Done)
    );
    let (text, seen) = rewritten(true, "data: {\"error\":{\"code\":400}}\n\n");
    assert_eq!((text.as_str(), matches!(seen, Seen::Error(_))), ("", true));
    let (text, seen) = rewritten(true, "error: {\"code\":400}\n\n");
    assert_eq!((text.as_str(), matches!(seen, Seen::Error(_))), ("", true));
    let chunk = "data: {\"error\":null,\"choices\":[1]}\n\n";
    let (text, seen) = rewritten(true, chunk);
    assert_eq!(
        (text.as_str(), matches!(seen, Seen::Content(_))),
        (chunk, true)
    );
    assert_eq!(
        rewritten(true, ": x\n\n"),
        (": x\n\n".to_owned(), Seen::Other)
    );
}

proptest! {
    #[test]
    fn an_answer_is_edited_the_same_for_every_cut(
        cuts in prop::collection::vec(any::<usize>(), 0..10),
        text in r#"[\\"{}é]{0,10}"#,
    ) {
        let answer = |model: &str| serde_json::json!({
            "choices": [{"text": text, "model": "inner"}],
            "model": model,
            "usage": {"prompt_tokens": 7, "text": text},
            "z": {"usage": null, "model": text},
        });
        let sent = answer("served").to_string();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (sent.len() + 1)).collect();
        cuts.push(sent.len());
        cuts.sort_unstable();
        let mut rewriter = AnswerRewriter::new("asked");
        let mut out = Output::default();
        let mut from = 0;
        for cut in cuts {
            rewriter.feed(Bytes::copy_from_slice(&sent.as_bytes()[from..cut]), &mut out);
            from = cut;
        }
        prop_assert_eq!(out.take(), answer("asked").to_string());
        prop_assert_eq!(rewriter.choices(), 1);
        let usage: serde_json::Value =
            serde_json::from_slice(&rewriter.into_usage().unwrap()).unwrap();
        prop_assert_eq!(&usage["prompt_tokens"], 7);
    }
}

fn typed(path: &str, event: &str) -> (String, Seen) {
    let dialect = Dialect::of(path).unwrap();
    let mut out = Output::default();
    let seen = EventRewriter::new(dialect, "asked", true)
        .event(Bytes::copy_from_slice(event.as_bytes()), &mut out);
    (String::from_utf8(out.take().to_vec()).unwrap(), seen)
}

fn part(path: &str, event: &str) -> Part {
    match typed(path, event).1 {
        Seen::Part(part) => part,
        seen => panic!("{event} was {seen:?}"),
    }
}

#[test]
fn the_name_and_the_usage_are_found_within_what_an_event_is_about() {
    let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[],\"model\":\"m\",\"usage\":{\"input_tokens\":1}}}\n\n";
    let (text, seen) = typed("/v1/messages", start);
    assert_eq!(text, start.replace("\"m\"", "\"asked\""));
    let usage = Some(Bytes::from_static(b"{\"input_tokens\":1}"));
    let expected = Part {
        usage,
        ..Part::default()
    };
    assert_eq!(seen, Seen::Part(expected));

    let end = "event: response.completed\ndata: { \"response\" : {\"output\":[{\"model\":\"inner\"}],\"usage\": {\"a\":1} ,\"model\" : \"m\"},\"type\":\"response.completed\"}\n\n";
    let (text, seen) = typed("/v1/responses", end);
    assert_eq!(text, end.replace("\"m\"", "\"asked\""));
    let expected = Part {
        pieces: 0,
        usage: Some(Bytes::from_static(b"{\"a\":1}")),
        end: Some(Ending::Whole),
    };
    assert_eq!(seen, Seen::Part(expected));
}

#[test]
fn a_typed_stream_says_itself_what_is_content_and_what_is_the_end() {
    let event = |kind: &str| format!("event: x\ndata: {{\"type\":\"{kind}\",\"delta\":\"a\"}}\n\n");
    for (path, kind, pieces, end) in [
        ("/v1/responses", "response.created", 0, None),
        ("/v1/responses", "response.output_text.delta", 1, None),
        (
            "/v1/responses",
            "response.function_call_arguments.delta",
            1,
            None,
        ),
        ("/v1/responses", "response.output_text.done", 0, None),
        (
            "/v1/responses",
            "response.incomplete",
            0,
            Some(Ending::Whole),
        ),
        ("/v1/responses", "response.failed", 0, Some(Ending::Failed)),
        ("/v1/messages", "ping", 0, None),
        ("/v1/messages", "content_block_delta", 1, None),
        ("/v1/messages", "message_delta", 0, None),
        ("/v1/messages", "message_stop", 0, Some(Ending::Whole)),
        ("/v1/audio/transcriptions", "transcript.text.delta", 1, None),
        (
            "/v1/audio/speech",
            "speech.audio.done",
            0,
            Some(Ending::Whole),
        ),
        (
            "/v1/images/edits",
            "image_edit.completed",
            0,
            Some(Ending::Whole),
        ),
    ] {
        let (text, _) = typed(path, &event(kind));
        assert_eq!(text, event(kind), "it passes as it is");
        let part = part(path, &event(kind));
        assert_eq!((part.pieces, part.end), (pieces, end), "{kind}");
    }
}

#[test]
fn errors_in_a_typed_stream_are_told_and_not_passed() {
    for error in [
        r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
        r#"{"type":"error","code":"c","message":"m"}"#,
        r#"{"error":{"code":500,"message":"m"}}"#,
    ] {
        let (text, seen) = typed("/v1/messages", &format!("event: error\ndata: {error}\n\n"));
        assert_eq!(
            (text.as_str(), seen),
            ("", Seen::Error(Bytes::copy_from_slice(error.as_bytes())))
        );
    }
    // A response that failed has an error, and is the API's own word for it.
    let failed = r#"{"type":"response.failed","response":{"error":{"message":"m"}}}"#;
    let failed = part("/v1/responses", &format!("data: {failed}\n\n"));
    assert_eq!(failed.end, Some(Ending::Failed));
    let done = "data: [DONE]\n\n";
    assert_eq!(typed("/v1/responses", done), (String::new(), Seen::Other));
    assert_eq!(
        typed("/v1/audio/transcriptions", done),
        (String::new(), Seen::Done)
    );
}
