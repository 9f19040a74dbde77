use proptest::prelude::*;

use super::*;

fn rewritten(strip: bool, event: &str) -> (String, Seen) {
    let mut out = Output::default();
    let rewriter = EventRewriter::new("asked", strip);
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
    EventRewriter::new("asked", true).event(event.clone(), &mut out);
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
