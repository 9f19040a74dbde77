//! Requests that hide another one: each is refused in JSON, its connection is closed, and no engine sees what was
//! hidden. What comes before it on the connection is answered first.

use llmgw_core::testing::engine::{Script, ScriptedEngine};

use crate::{
    client::{Client, within},
    rig::{CHAT, KEY, Rig, request},
};

const BODY: &str = "{\"model\":\"asked\"}";

fn head(headers: &str) -> String {
    format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n{headers}")
}

/// A whole request that an engine would answer.
fn whole(mark: &str) -> String {
    let body = format!("{{\"model\":\"asked\",\"user\":\"{mark}\"}}");
    let length = body.len();
    format!(
        "{}\r\n{body}",
        head(&format!("content-length: {length}\r\n"))
    )
}

/// What was wrong with it, and the request up to where another one begins.
fn sly() -> Vec<(&'static str, u16, String)> {
    let length = BODY.len();
    let with = |headers: &str, body: &str| format!("{}\r\n{body}", head(headers));
    let chunked = |body: &str| with("transfer-encoding: chunked\r\n", body);
    let chunk = format!("{length:x}\r\n{BODY}\r\n0\r\n\r\n");
    let lengths = |more: &str| format!("content-length: {length}\r\n{more}");
    vec![
        // A length and chunks, in both orders.
        (
            "in chunks",
            400,
            with(&lengths("transfer-encoding: chunked\r\n"), &chunk),
        ),
        (
            "in chunks",
            400,
            with(
                "transfer-encoding: chunked\r\ncontent-length: 4\r\n",
                &chunk,
            ),
        ),
        // Two lengths, also when they agree.
        (
            "two lengths",
            400,
            with(&lengths("content-length: 0\r\n"), BODY),
        ),
        (
            "two lengths",
            400,
            with(&lengths(&format!("Content-Length: {length}\r\n")), BODY),
        ),
        ("not a number", 400, with("content-length: +17\r\n", BODY)),
        (
            "not a number",
            400,
            with("content-length: 17, 17\r\n", BODY),
        ),
        ("not a number", 400, with("content-length: -1\r\n", BODY)),
        // Encodings that one reader knows and another does not.
        (
            "no other",
            400,
            with("transfer-encoding: chunked, gzip\r\n", &chunk),
        ),
        (
            "no other",
            400,
            with("transfer-encoding: gzip, identity\r\n", BODY),
        ),
        (
            "no other",
            400,
            with("transfer-encoding: xchunked\r\n", &chunk),
        ),
        (
            "control",
            400,
            with("transfer-encoding: \x0bchunked\r\n", &chunk),
        ),
        (
            "the name",
            400,
            with("transfer-encoding : chunked\r\n", &chunk),
        ),
        (
            "HTTP/1.0",
            400,
            chunked(&chunk).replacen("HTTP/1.1", "HTTP/1.0", 1),
        ),
        // Chunks of which the size is read in two ways.
        ("hexadecimal", 400, chunked(&format!("+{chunk}"))),
        ("hexadecimal", 400, chunked(&format!("0x{chunk}"))),
        ("hexadecimal", 400, chunked(&format!(" {chunk}"))),
        (
            "hexadecimal",
            400,
            chunked(&format!("{length:x}\n{BODY}\r\n0\r\n\r\n")),
        ),
        (
            "control",
            400,
            chunked(&format!("{length:x};a\nb\r\n{BODY}\r\n0\r\n\r\n")),
        ),
        (
            "not as long",
            400,
            chunked(&format!("{length:x}\r\n{BODY}0\r\n\r\n")),
        ),
        (
            "larger than anything",
            400,
            chunked(&format!(
                "ffffffffffffffff{length:x}\r\n{BODY}\r\n0\r\n\r\n"
            )),
        ),
        // Lines that one reader joins and another does not.
        (
            "folded",
            400,
            with("x: y\r\n transfer-encoding: chunked\r\n", ""),
        ),
        ("folded", 400, with(&lengths("x: y\r\n\tz\r\n"), BODY)),
        (
            "carriage return",
            400,
            with("content-length: 17\nx: y\r\n", BODY),
        ),
        (
            "carriage return",
            400,
            head("content-length: 17\r\n\n") + BODY,
        ),
        ("control", 400, with("x: y\rcontent-length: 17\r\n", BODY)),
        ("control", 400, with(&lengths("x: a\0b\r\n"), BODY)),
        ("the name", 400, with(&lengths("x\0y: a\r\n"), BODY)),
        ("two hosts", 400, with(&lengths("host: y\r\n"), BODY)),
        (
            "first line",
            400,
            format!("GET  {CHAT} HTTP/1.1\r\nhost: x\r\n\r\n"),
        ),
        (
            "the path",
            400,
            "GET /\x7f HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
        ),
        // What is not HTTP/1.1 at all.
        (
            "another version",
            505,
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(),
        ),
        ("no HTTP request", 400, "\x16\x03\x01\x02".into()),
        (
            "beyond all limits",
            413,
            with("content-length: 99999999999999999999\r\n", BODY),
        ),
    ]
}

#[tokio::test]
async fn a_request_that_hides_another_one_is_refused_and_the_other_reaches_no_engine() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    for (wrong, status, text) in sly() {
        let mut client = Client::connect(rig.address).await;
        let hidden = whole("hidden");
        client.raw(format!("{text}{hidden}").as_bytes()).await;
        let reply = client.reply().await;
        let (code, message) = reply.error();
        assert_eq!(reply.head.status, status, "{text:?}: {message}");
        let expected = if status == 413 {
            "request_too_large"
        } else {
            "invalid_request"
        };
        assert_eq!(code, expected, "{text:?}");
        assert!(message.contains(wrong), "{text:?}: {message}");
        assert_eq!(reply.head.get("connection"), Some("close"), "{text:?}");
        assert!(reply.head.get("x-request-id").is_some(), "{text:?}");
        assert!(client.is_closed().await, "{text:?}");
    }
    rig.until_idle().await;
    assert!(engine.seen().is_empty(), "{:?}", engine.seen());
}

#[tokio::test]
async fn it_is_refused_however_its_bytes_come() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    for (_, status, text) in sly() {
        let mut client = Client::connect(rig.address).await;
        let text = format!("{text}{}", whole("hidden"));
        let (reads, writes) = client.stream.get_mut().split();
        // The answer may come, and the connection end, before all is sent.
        for piece in text.as_bytes().chunks(7) {
            if writes.writable().await.is_err() || writes.try_write(piece).is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let _ = reads;
        let reply = client.reply().await;
        assert_eq!(reply.head.status, status, "{text:?}");
        assert!(!reply.error().0.is_empty());
    }
    rig.until_idle().await;
    assert!(engine.seen().is_empty(), "{:?}", engine.seen());
}

#[tokio::test]
async fn what_came_before_it_is_answered_first() {
    let engine = ScriptedEngine::start().await.unwrap();
    engine.always(
        Script::new()
            .wait()
            .head(200)
            .header("content-type", "application/json")
            .bytes("{\"n\":1}"),
    );
    let rig = Rig::start(&[&engine]).await;
    for (_, status, text) in sly() {
        let before = engine.seen().len();
        let mut client = Client::connect(rig.address).await;
        let all = format!("{}{text}{}", whole("first"), whole("hidden"));
        client.raw(all.as_bytes()).await;
        within(engine.until(|seen| seen.len() == before + 1)).await;
        engine.go(1);
        assert_eq!(client.reply().await.json()["n"], 1, "{text:?}");
        let reply = client.reply().await;
        assert_eq!(reply.head.status, status, "{text:?}");
        assert!(!reply.error().0.is_empty());
        assert!(client.is_closed().await, "{text:?}");
        let seen = engine.seen();
        assert_eq!(seen.len(), before + 1, "{text:?}");
        assert!(!seen.iter().any(|call| call.body.ends_with(b"hidden\"}")));
    }
}

#[tokio::test]
async fn a_client_that_sends_on_after_it_was_refused_still_reads_why() {
    let rig = Rig::start(&[]).await;
    let mut client = Client::connect(rig.address).await;
    let text = head("content-length: 1\r\ncontent-length: 2\r\n\r\n");
    client.raw(text.as_bytes()).await;
    client.raw(&vec![b'x'; 1 << 20]).await;
    let reply = client.reply().await;
    assert_eq!(
        (reply.head.status, reply.error().0.as_str()),
        (400, "invalid_request")
    );
}

#[tokio::test]
async fn what_is_written_as_it_should_be_passes() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let body = request().to_string();
    let (first, second) = body.split_at(7);
    let chunks = format!(
        "{:X};a=\"b c\"\r\n{first}\r\n0{:x}\r\n{second}\r\n0\r\nx-trailer: y\r\n\r\n",
        first.len(),
        second.len()
    );
    let length = body.len();
    for text in [
        format!(
            "\r\n{}\r\n{chunks}",
            head("Transfer-Encoding: \t Chunked \r\n")
        ),
        format!(
            "{}\r\n{body}\r\n",
            head(&format!("CONTENT-LENGTH:{length}\r\nx:\t\r\ny:\r\n"))
        ),
        format!(
            "{}\r\n{body}",
            head(&format!("content-length: 000{length}\r\nx: é\r\n"))
        ),
    ] {
        let mut client = Client::connect(rig.address).await;
        // Twice, to see that both agree on where it ends.
        client.raw(format!("{text}{text}").as_bytes()).await;
        for _ in 0..2 {
            assert_eq!(client.reply().await.head.status, 200, "{text:?}");
        }
    }
    assert_eq!(engine.seen().len(), 6);
}
