//! One question over HTTP to an engine on the loopback, bounded in time and in size.

use std::{fmt, io, net::Ipv4Addr, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use llmgw_core::error::Chain;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::process::exhausted;

/// Why a question has no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// It could not be asked, for want of this machine's own means: says nothing of the engine.
    Unasked(io::Error),
    /// In a few words.
    Engine(String),
}

/// What an engine answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// Asks `GET path`.
///
/// # Errors
/// A few words on why there is no answer.
pub(crate) async fn get(port: u16, path: &str, within: Duration) -> Result<Answer, Unanswered> {
    within_time(within, ask(port, Method::GET, path, Bytes::new())).await
}

/// Asks `POST path` with a JSON body.
///
/// # Errors
/// A few words on why there is no answer.
pub(crate) async fn post(
    port: u16,
    path: &str,
    body: &Value,
    within: Duration,
) -> Result<Answer, Unanswered> {
    let body = Bytes::from(body.to_string());
    within_time(within, ask(port, Method::POST, path, body)).await
}

async fn within_time<F>(within: Duration, answer: F) -> Result<Answer, Unanswered>
where
    F: Future<Output = Result<Answer, Unanswered>>,
{
    let late = || format!("no answer within {} s", within.as_secs_f32());
    tokio::time::timeout(within, answer)
        .await
        .unwrap_or_else(|_| Err(Unanswered::Engine(late())))
}

async fn ask(port: u16, method: Method, path: &str, body: Bytes) -> Result<Answer, Unanswered> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .await
        .map_err(|error| {
            if exhausted(&error) {
                Unanswered::Unasked(error)
            } else {
                Unanswered::Engine("it does not listen yet".to_owned())
            }
        })?;
    exchange(stream, port, method, path, body)
        .await
        .map_err(Unanswered::Engine)
}

async fn exchange(
    stream: TcpStream,
    port: u16,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<Answer, String> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| Chain(&error).to_string())?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, format!("127.0.0.1:{port}"))
        .header(header::CONNECTION, "close")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .map_err(|error| Chain(&error).to_string())?;
    let exchange = async move {
        let answer = sender
            .send_request(request)
            .await
            .map_err(|error| Chain(&error).to_string())?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), BODY_LIMIT)
            .collect()
            .await
            .map_err(|error| Chain(error.as_ref()).to_string())?
            .to_bytes();
        Ok(Answer { status, body })
    };
    // The connection is driven beside the exchange and ends with it; its own error is the exchange's too.
    let (answer, _) = futures_util::future::join(exchange, connection).await;
    answer
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unasked(error) => write!(f, "it can't be asked: {error}"),
            Self::Engine(problem) => f.write_str(problem),
        }
    }
}

/// A list of models has a few KiB, one token a few hundred bytes.
const BODY_LIMIT: usize = 1 << 20;
