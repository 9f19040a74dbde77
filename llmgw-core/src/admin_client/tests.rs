use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};

use super::*;

const TOKEN: &str = "secret-0123456789";

/// Answers one request with these bytes, and gives back what was asked.
async fn answering(answer: Vec<u8>) -> (AdminClient, String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let serving = async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = Vec::new();
        while !asked.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut asked).await.unwrap(), 0);
        }
        // The client may have heard enough before the end.
        drop(stream.write_all(&answer).await);
        String::from_utf8(asked).unwrap()
    };
    #[expect(clippy::disallowed_methods, reason = "the test waits for it")]
    let served = tokio::spawn(serving);
    (AdminClient::new(&base, TOKEN).unwrap(), base, served)
}

fn http(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

#[tokio::test]
async fn the_token_goes_out_and_a_name_is_one_segment() {
    let (client, _, served) = answering(http("200 OK", r#"{"retried":"a/b:1"}"#)).await;
    client.retry(&"a/b+c:1".parse().unwrap()).await.unwrap();
    let asked = served.await.unwrap();
    assert!(
        asked.starts_with("POST /api/v1/models/a%2Fb+c:1/retry HTTP/1.1\r\n"),
        "{asked}"
    );
    assert!(
        asked.contains(&format!("authorization: Bearer {TOKEN}\r\n")),
        "{asked}"
    );
}

#[tokio::test]
async fn a_name_survives_a_query() {
    let (client, _, served) = answering(http("200 OK", "[]")).await;
    client
        .replicas(Some(&"a/b+c".parse().unwrap()))
        .await
        .unwrap();
    let asked = served.await.unwrap();
    assert!(
        asked.starts_with("GET /api/v1/replicas?model=a%2Fb%2Bc "),
        "{asked}"
    );
}

#[tokio::test]
async fn a_refusal_keeps_its_code_its_message_and_its_hint() {
    let body = r#"{"error":"a is declared","code":"conflict","hint":"take it out"}"#;
    let (client, ..) = answering(http("409 Conflict", body)).await;
    let error = client.remove(&"a".parse().unwrap()).await.unwrap_err();
    let expected = ControlError::new(Code::Conflict, "a is declared").with_hint("take it out");
    assert_eq!(error, expected);
}

#[tokio::test]
async fn a_code_of_a_newer_release_is_read_by_its_status() {
    let body = r#"{"error":"no","code":"brand_new"}"#;
    let (client, ..) = answering(http("404 Not Found", body)).await;
    assert_eq!(client.nodes().await.unwrap_err().code, Code::NotFound);
}

#[tokio::test]
async fn what_is_no_control_plane_is_said_to_be_none() {
    let (client, base, _) = answering(http("502 Bad Gateway", "<html>")).await;
    let error = client.nodes().await.unwrap_err();
    assert_eq!(error.code, Code::UpstreamError);
    assert_eq!(
        error.message,
        format!("{base} answered 502 Bad Gateway, but not as a control plane does")
    );
    let (client, ..) = answering(http("200 OK", "<html>")).await;
    let error = client.nodes().await.unwrap_err();
    assert!(error.message.contains("was not understood"), "{error}");
}

#[tokio::test]
async fn a_redirect_does_not_carry_the_token_away() {
    let answer =
        b"HTTP/1.1 307 Moved\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
    let (client, ..) = answering(answer.to_vec()).await;
    let error = client.nodes().await.unwrap_err();
    assert_eq!(error.code, Code::UpstreamError, "{error}");
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let mut answer = b"HTTP/1.1 200 OK\r\n\r\n[".to_vec();
    answer.resize(17 << 20, b' ');
    let (client, ..) = answering(answer).await;
    let error = client.nodes().await.unwrap_err();
    assert!(error.message.ends_with("is larger than 16 MiB"), "{error}");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_taken_for_whole() {
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n[]";
    let (client, base, _) = answering(answer.to_vec()).await;
    let error = client.nodes().await.unwrap_err();
    assert_eq!(error.code, Code::UpstreamDisconnected);
    assert!(
        error.message.starts_with(&format!("{base} broke off: ")),
        "{error}"
    );
}

#[tokio::test]
async fn nobody_there_says_how_to_start_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = AdminClient::new(&base, TOKEN)
        .unwrap()
        .nodes()
        .await
        .unwrap_err();
    let expected = ControlError::new(
        Code::Unavailable,
        format!("no control plane answers at {base}"),
    )
    .with_hint("start one with `llmgw up`");
    assert_eq!(error, expected);
}

#[tokio::test(start_paused = true)]
async fn silence_ends_after_a_while() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let client = AdminClient::new(&base, TOKEN).unwrap();
    // Whoever listens does not accept; the paused clock moves on as soon as all wait.
    let error = tokio::time::timeout(Duration::from_secs(60), client.nodes())
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    assert!(
        error.message.starts_with("no control plane answers") || error.message.contains("within"),
        "{error}"
    );
}

#[test]
fn the_token_is_never_shown() {
    let client = AdminClient::new("http://127.0.0.1:8082", TOKEN).unwrap();
    let control = client.clone().control();
    for text in [format!("{client:?}"), format!("{control:?}")] {
        assert!(!text.contains(TOKEN), "{text}");
        assert!(text.contains("http://127.0.0.1:8082"), "{text}");
    }
    for bad in ["", "a b", "secret\n", "sécret"] {
        let error = AdminClient::new("http://127.0.0.1:8082", bad).unwrap_err();
        assert!(!format!("{error:?}").contains("cret"), "{error:?}");
    }
}

#[test]
fn addresses_that_cannot_be_used_are_refused_and_not_repeated() {
    for bad in [
        "",
        "127.0.0.1:8082",
        "ftp://127.0.0.1",
        "http://operator:hunter2@127.0.0.1",
        "http://127.0.0.1/?hunter2",
        "http://127.0.0.1:99999/hunter2",
    ] {
        let error = AdminClient::new(bad, TOKEN).unwrap_err();
        assert_eq!(error.code, Code::InvalidRequest, "{bad}");
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }
    AdminClient::new("https://control.example/llmgw/", TOKEN).unwrap();
}
