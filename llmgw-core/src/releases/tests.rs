//! Answers as GitHub gives them, told by a socket that says exactly that.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use super::*;
use crate::{
    clock::Timestamp,
    error::{Chain, Code, Coded as _, Retry},
    fetch::{FetchError, FetchTimes},
};

const NOW: Timestamp = Timestamp(1_796_067_537_000);

/// Answers each connection with the next of `answers`, then closes it; gives what was asked.
async fn server(answers: Vec<String>) -> (String, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, questions) = mpsc::unbounded_channel();
    serve(listener, answers, asked);
    (format!("http://{address}/repos/o/r/releases"), questions)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the server ends with the test's own runtime"
)]
fn serve(listener: TcpListener, answers: Vec<String>, asked: mpsc::UnboundedSender<String>) {
    tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            drop(asked.send(head(&mut stream).await));
            drop(stream.write_all(answer.as_bytes()).await);
            drop(stream.shutdown().await);
        }
    });
}

async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&head).to_ascii_lowercase()
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

fn release(tag: &str, assets: &[&str]) -> String {
    let assets: Vec<String> = assets
        .iter()
        .map(|name| {
            format!(
                r#"{{"name":"{name}","browser_download_url":"https://x/{name}","size":3,
                     "state":"uploaded","digest":"sha256:{}"}}"#,
                "ab".repeat(32)
            )
        })
        .collect();
    format!(
        r#"{{"tag_name":"{tag}","published_at":"2026-11-30T19:38:57Z","assets":[{}]}}"#,
        assets.join(",")
    )
}

fn client(base: &str) -> ReleaseClient {
    let client = ReleaseClient::new(base, FetchTimes::default()).unwrap();
    client.with_token(Some("secret".to_owned()))
}

const CPU: &str = "llama-b10991-bin-ubuntu-x64.tar.gz";

#[tokio::test]
async fn a_release_is_asked_by_its_tag_and_an_unchanged_one_costs_no_body() {
    let whole = answer("200 OK", "etag: W/\"7\"\r\n", &release("b10991", &[CPU]));
    let same = answer("304 Not Modified", "", "");
    let (base, mut questions) = server(vec![whole, same]).await;
    let first = client(&base).by_tag("b10991", None, NOW).await.unwrap();
    let Answer::Release { release, etag } = first else {
        panic!("{first:?}");
    };
    assert_eq!(release.assets[0].name, CPU);
    let asked = questions.recv().await.unwrap();
    assert!(asked.starts_with("get /repos/o/r/releases/tags/b10991 http/1.1\r\n"));
    assert!(
        asked.contains("authorization: bearer secret\r\n"),
        "{asked}"
    );
    let again = client(&base).by_tag("b10991", etag.as_deref(), NOW).await;
    assert_eq!(again.unwrap(), Answer::Unchanged);
    let asked = questions.recv().await.unwrap();
    assert!(asked.contains("if-none-match: w/\"7\"\r\n"), "{asked}");
}

#[tokio::test]
async fn a_redirect_to_another_host_takes_no_token() {
    let (other, mut others_questions) =
        server(vec![answer("200 OK", "", &release("b10991", &[CPU]))]).await;
    let location = format!("location: {other}/tags/b10991\r\n");
    let (base, _questions) = server(vec![answer("301 Moved Permanently", &location, "")]).await;
    client(&base).by_tag("b10991", None, NOW).await.unwrap();
    let asked = others_questions.recv().await.unwrap();
    assert!(!asked.contains("secret"), "{asked}");
}

#[tokio::test]
async fn redirects_in_a_circle_are_given_up() {
    let around = answer("302 Found", "location: /around\r\n", "");
    let mut answers = vec![around; 8];
    answers.push(answer("200 OK", "", &release("b10991", &[CPU])));
    let (base, _questions) = server(answers).await;
    let error = client(&base).by_tag("b10991", None, NOW).await.unwrap_err();
    assert!(
        matches!(error, ReleaseError::Fetch(FetchError::Redirects { .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_tag_is_one_segment_of_the_address_whatever_is_in_it() {
    let (base, mut questions) = server(vec![answer("404 Not Found", "", "{}")]).await;
    let tag = "../latest?x#y";
    client(&base).by_tag(tag, None, NOW).await.unwrap_err();
    let asked = questions.recv().await.unwrap();
    let path = "get /repos/o/r/releases/tags/..%2flatest%3fx%23y http/1.1\r\n";
    assert!(asked.starts_with(path), "{asked}");
}

#[tokio::test]
async fn a_rate_limit_says_when_to_ask_again() {
    let reset = NOW.0 / 1_000 + 600;
    let used_up = format!("x-ratelimit-remaining: 0\r\nx-ratelimit-reset: {reset}\r\n");
    for (status, headers, seconds) in [
        ("403 Forbidden", used_up.as_str(), 600),
        ("429 Too Many Requests", "retry-after: 90\r\n", 90),
        ("403 Forbidden", "retry-after: 30\r\n", 30),
        ("429 Too Many Requests", "", 60),
        // A clock that is wrong, on either side.
        ("429 Too Many Requests", "retry-after: 999999\r\n", 3_600),
        ("429 Too Many Requests", "retry-after: 0\r\n", 1),
    ] {
        let (base, _questions) = server(vec![answer(status, headers, "{}")]).await;
        let error = client(&base).by_tag("b1", None, NOW).await.unwrap_err();
        let ReleaseError::Limited { wait, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(wait.as_secs(), seconds, "{status} {headers}");
        assert_eq!(error.retry(), Retry::After(Duration::from_secs(seconds)));
        assert!(!Chain(&error).to_string().contains("secret"));
    }
}

#[tokio::test]
async fn a_refusal_that_is_no_rate_limit_is_a_refusal() {
    let left = "x-ratelimit-remaining: 59\r\n";
    let (base, _questions) = server(vec![answer("403 Forbidden", left, "{}")]).await;
    let error = client(&base).by_tag("b1", None, NOW).await.unwrap_err();
    assert!(
        matches!(
            error,
            ReleaseError::Fetch(FetchError::Status { status: 403, .. })
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_release_that_is_not_there_is_named() {
    let (base, _questions) = server(vec![answer("404 Not Found", "", "{}")]).await;
    let error = client(&base).by_tag("b0", None, NOW).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("there is no release b0 at {base}")
    );
    assert_eq!(error.code(), Code::NotFound);
}

#[tokio::test]
async fn the_newest_is_the_one_with_builds_and_the_highest_number() {
    let list = [
        release("v9.9-app", &["app.zip"]),
        release("b9999", &["llama-b9999-bin-ubuntu-x64.tar.gz"]),
        release("b10991", &[CPU]),
        release("b10992", &[]),
    ];
    let list = format!("[{}]", list.join(","));
    let (base, mut questions) = server(vec![answer("200 OK", "", &list)]).await;
    let newest = client(&base).newest(NOW).await.unwrap();
    assert_eq!(newest.tag, "b10991");
    let asked = questions.recv().await.unwrap();
    assert!(asked.contains("?per_page=20 "), "{asked}");
    let empty = format!("[{}]", release("v9.9-app", &["app.zip"]));
    let (base, _questions) = server(vec![answer("200 OK", "", &empty)]).await;
    let error = client(&base).newest(NOW).await.unwrap_err();
    assert!(matches!(error, ReleaseError::NoBuilds { .. }), "{error:?}");
}

#[tokio::test]
async fn an_answer_that_is_too_long_or_not_a_release_is_refused() {
    let page = answer("200 OK", "", "<html>sign in</html>");
    let (base, _questions) = server(vec![page]).await;
    let error = client(&base).by_tag("b1", None, NOW).await.unwrap_err();
    assert!(matches!(error, ReleaseError::Malformed { .. }), "{error:?}");
    let long = " ".repeat(usize::try_from(MAX_ANSWER.0).unwrap() + 1);
    let (base, _questions) = server(vec![answer("200 OK", "", &long)]).await;
    let error = client(&base).by_tag("b1", None, NOW).await.unwrap_err();
    assert!(
        matches!(error, ReleaseError::Fetch(FetchError::TooLarge { .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_api_that_nobody_answers_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = client(&format!("http://{address}/releases"))
        .by_tag("b1", None, NOW)
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
}

#[tokio::test]
async fn another_release_than_the_one_that_was_asked_for_is_not_taken() {
    let other = answer("200 OK", "", &release("b1", &[CPU]));
    let (base, _questions) = server(vec![other]).await;
    let error = client(&base).by_tag("b10991", None, NOW).await.unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("was asked for the release b10991 and describes b1"),
        "{error}"
    );
}
