//! Each test is one way for a server to lie or to fail, told by a socket that says exactly that.

use std::net::SocketAddr;

use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use super::*;
use crate::{
    cluster::weights::Sha256Digest,
    error::{Code, Coded},
};

mod beginning;
mod lying;
mod resume;

const BODY: &[u8] = b"sixteen bytes ok";

/// Answers each connection with the next of `answers`, then closes it; the last one again and again.
/// Gives what was asked, up to the empty line.
async fn server(answers: Vec<String>) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, questions) = mpsc::unbounded_channel();
    serve(listener, answers, asked);
    (address, questions)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the server ends with the test's own runtime"
)]
fn serve(listener: TcpListener, answers: Vec<String>, asked: mpsc::UnboundedSender<String>) {
    tokio::spawn(async move {
        let mut next = 0;
        while let Ok((mut stream, _)) = listener.accept().await {
            drop(asked.send(head(&mut stream).await));
            let answer = &answers[next.min(answers.len() - 1)];
            next += 1;
            drop(stream.write_all(answer.as_bytes()).await);
            drop(stream.shutdown().await);
        }
    });
}

/// What a client asks, up to the empty line.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

fn ok(length: usize, body: &[u8]) -> String {
    let body = std::str::from_utf8(body).unwrap();
    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

fn to(status: u16, location: &str) -> String {
    format!(
        "HTTP/1.1 {status} Moved\r\nlocation: {location}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    )
}

fn fetcher() -> Fetcher {
    Fetcher::new(FetchTimes::default()).unwrap()
}

fn request(address: SocketAddr) -> FetchRequest {
    FetchRequest::new(format!(
        "http://user:secret@{address}/a/b.gguf?signature=secret"
    ))
}

async fn read(request: &FetchRequest) -> Result<(Fetched, Vec<u8>), FetchError> {
    let mut body = Vec::new();
    let download = fetcher().open(request).await?;
    let fetched = download.write_to(&mut body, &|_| ()).await?;
    Ok((fetched, body))
}

async fn refused(answers: Vec<String>) -> FetchError {
    let (address, _questions) = server(answers).await;
    let error = read(&request(address)).await.unwrap_err();
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(!text.contains("secret"), "{text}");
    }
    error
}

#[tokio::test]
async fn a_body_arrives_with_its_size_and_digest() {
    let (address, mut questions) = server(vec![ok(16, BODY)]).await;
    let (fetched, body) = read(&request(address)).await.unwrap();
    assert_eq!(body, BODY);
    assert_eq!(fetched.bytes, Bytes(16));
    assert_eq!(fetched.sha256, Sha256Digest(Sha256::digest(BODY).into()));
    let asked = questions.recv().await.unwrap().to_ascii_lowercase();
    assert!(asked.starts_with("get /a/b.gguf?signature=secret http/1.1\r\n"));
    assert!(asked.contains("accept-encoding: identity\r\n"), "{asked}");
}

#[tokio::test]
async fn a_body_of_unknown_length_is_read_to_its_end() {
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n\
                  3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let (address, _questions) = server(vec![answer.to_owned()]).await;
    let download = fetcher().open(&request(address)).await.unwrap();
    assert_eq!(download.length(), None);
    let mut body = Vec::new();
    let seen = std::sync::Mutex::new(Vec::new());
    let fetched = download
        .write_to(&mut body, &|bytes| seen.lock().unwrap().push(bytes))
        .await
        .unwrap();
    assert_eq!((body.as_slice(), fetched.bytes), (&b"abcde"[..], Bytes(5)));
    assert_eq!(seen.lock().unwrap().last(), Some(&Bytes(5)));
}

#[tokio::test]
async fn a_file_is_written_once_and_never_over_another() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b.gguf.partial");
    let (address, _questions) = server(vec![ok(16, BODY)]).await;
    let download = fetcher().open(&request(address)).await.unwrap();
    assert_eq!(download.length(), Some(Bytes(16)));
    assert_eq!(download.url(), format!("http://{address}/a/b.gguf"));
    download.to_file(&path, &|_| ()).await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), BODY);
    let again = fetcher().open(&request(address)).await.unwrap();
    let error = again.to_file(&path, &|_| ()).await.unwrap_err();
    assert!(matches!(error, FetchError::Write { .. }), "{error}");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error() {
    let error = refused(vec![ok(16, &BODY[..7])]).await;
    assert!(
        matches!(error, FetchError::Broken { got: Bytes(7), .. }),
        "{error:?}"
    );
    assert_eq!(error.code(), Code::UpstreamDisconnected);
}

#[tokio::test]
async fn a_chunked_body_that_breaks_off_is_an_error() {
    let answer =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n3\r\nabc\r\n";
    let error = refused(vec![answer.to_owned()]).await;
    assert!(matches!(error, FetchError::Broken { .. }), "{error:?}");
}

#[tokio::test]
async fn another_length_than_asked_for_is_refused_before_the_body() {
    let (address, _questions) = server(vec![ok(16, BODY)]).await;
    let request = request(address).with_size(Some(Bytes(17)));
    let error = fetcher().open(&request).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("http://{address}/a/b.gguf gives 16 bytes and not 17")
    );
    assert_eq!(error.code(), Code::VerificationFailed);
}

#[tokio::test]
async fn an_unannounced_length_is_counted_against_what_was_asked_for() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n\
                   3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    for (size, got) in [(4, 5), (6, 5)] {
        let (address, _questions) = server(vec![chunked.to_owned()]).await;
        let request = request(address).with_size(Some(Bytes(size)));
        let error = read(&request).await.unwrap_err();
        let FetchError::Length { got: seen, .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!(seen, Bytes(got), "asked for {size}");
    }
}

#[tokio::test]
async fn a_body_above_the_limit_is_refused() {
    let (address, _questions) = server(vec![ok(16, BODY)]).await;
    let announced = request(address).with_max(Bytes(15));
    let error = fetcher().open(&announced).await.unwrap_err();
    assert!(matches!(error, FetchError::TooLarge { .. }), "{error:?}");
    let endless = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nabcdefgh";
    let (address, _questions) = server(vec![endless.to_owned()]).await;
    let error = read(&request(address).with_max(Bytes(7)))
        .await
        .unwrap_err();
    assert!(matches!(error, FetchError::TooLarge { .. }), "{error:?}");
}

#[tokio::test]
async fn each_status_has_its_code() {
    for (status, code) in [
        (404, Code::NotFound),
        (403, Code::PermissionDenied),
        (500, Code::Unavailable),
        (204, Code::UpstreamError),
        (206, Code::UpstreamError),
        (302, Code::UpstreamError),
    ] {
        let answer = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n\r\n");
        let error = refused(vec![answer]).await;
        assert!(
            matches!(error, FetchError::Status { status: seen, .. } if seen == status),
            "{error:?}"
        );
        assert_eq!(error.code(), code, "{status}");
    }
}

#[tokio::test]
async fn redirects_are_followed_and_loops_are_not() {
    let (address, mut questions) = server(vec![to(302, "/c?x=1"), ok(16, BODY)]).await;
    read(&request(address)).await.unwrap();
    questions.recv().await.unwrap();
    let second = questions.recv().await.unwrap();
    assert!(second.starts_with("GET /c?x=1 "), "{second}");
    let error = refused(vec![to(307, "/again")]).await;
    assert!(matches!(error, FetchError::Redirects { .. }), "{error:?}");
}

#[tokio::test]
async fn a_secret_goes_to_its_own_host_alone() {
    let (elsewhere, mut other) = server(vec![ok(16, BODY)]).await;
    let onward = to(302, &format!("http://{elsewhere}/b"));
    let (address, mut own) = server(vec![to(302, "/again"), onward]).await;
    let request = FetchRequest::new(format!("http://{address}/")).with_bearer(Some("tok".into()));
    assert!(!format!("{request:?}").contains("tok"));
    read(&request).await.unwrap();
    for _ in 0..2 {
        let asked = own.recv().await.unwrap().to_ascii_lowercase();
        assert!(asked.contains("authorization: bearer tok\r\n"), "{asked}");
    }
    let asked = other.recv().await.unwrap().to_ascii_lowercase();
    assert!(!asked.contains("authorization"), "{asked}");
}

#[test]
fn a_redirect_never_leaves_tls() {
    let from = Url::parse("https://user:secret@host/x?signature=secret").unwrap();
    let onward = |location: &'static str| {
        let location = HeaderValue::from_static(location);
        redirect(&from, StatusCode::FOUND, Some(&location))
    };
    let error = onward("http://other/y?signature=secret").unwrap_err();
    assert_eq!(
        error.to_string(),
        "https://host/x redirects to http://other/y, which is not protected by TLS"
    );
    let next = onward("https://other/y").unwrap();
    assert_eq!(next.unwrap().host_str(), Some("other"));
    let error = onward("file:///etc/passwd").unwrap_err();
    assert!(matches!(error, FetchError::Scheme { .. }), "{error:?}");
}

#[tokio::test]
async fn addresses_that_are_none_are_refused() {
    for url in ["", "no address", "ftp://host/x", "file:///etc/passwd"] {
        let error = fetcher().open(&FetchRequest::new(url)).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest, "{url}");
    }
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = fetcher().open(&request(address)).await.unwrap_err();
    assert_eq!(error.to_string(), format!("{address} could not be reached"));
    assert_eq!(error.code(), Code::Unavailable);
}

/// A socket that takes connections and never says a word.
async fn black_hole() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[tokio::test(start_paused = true)]
async fn a_host_that_never_finishes_tls_costs_less_than_three_seconds() {
    let (_listener, address) = black_hole().await;
    let began = Instant::now();
    let request = FetchRequest::new(format!("https://{address}/x"));
    let error = fetcher().open(&request).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{address} could not be reached (2.5 s)")
    );
    assert!(began.elapsed() < Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up() {
    let (_listener, address) = black_hole().await;
    let error = fetcher().open(&request(address)).await.unwrap_err();
    assert!(matches!(error, FetchError::Stalled { .. }), "{error:?}");
    assert_eq!(error.code(), Code::UpstreamTimeout);
}

#[tokio::test]
async fn a_body_that_stops_coming_is_given_up() {
    let (listener, address) = black_hole().await;
    let times = FetchTimes {
        stall: Duration::from_millis(50),
        ..FetchTimes::default()
    };
    let silent = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\nsix by";
        stream.write_all(answer.as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    };
    let fetch = async {
        let download = Fetcher::new(times).unwrap().open(&request(address)).await;
        let download = download.unwrap();
        let mut body = Vec::new();
        download.write_to(&mut body, &|_| ()).await.unwrap_err()
    };
    let error = tokio::select! {
        () = silent => unreachable!("the server waits for ever"),
        error = fetch => error,
    };
    assert!(
        matches!(error, FetchError::Stalled { got: Bytes(6), .. }),
        "{error:?}"
    );
}
