//! An engine that does no more than count.
//!
//! It speaks as engines do: a chunk for each token, at a steady pace, and usage at the end, or along with each chunk as
//! vLLM tells it when it is asked.

use std::{convert::Infallible, io, net::Ipv4Addr, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::sleep};

use crate::counts::{Counts, Line};

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Serves until the directory is gone, with which nobody needs it any more.
pub(crate) async fn serve(port: u16, directory: &Path) -> io::Result<()> {
    let counts = Counts::create(directory)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let mut looks = tokio::time::interval(Duration::from_secs(2));
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted?.0,
            _ = looks.tick() => {
                if directory.exists() {
                    continue;
                }
                return Ok(());
            }
        };
        stream.set_nodelay(true)?;
        let counts = Arc::clone(&counts);
        let service = service_fn(move |request| answer(request, Arc::clone(&counts)));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(
    request: Request<Incoming>,
    counts: Arc<Counts>,
) -> Result<Response<Body>, Infallible> {
    let answered = match *request.method() {
        Method::POST => complete(request, &counts).await,
        _ => Ok(plain(StatusCode::OK, "{}".to_owned())),
    };
    Ok(answered.unwrap_or_else(|error| {
        let body = json!({"error": {"message": error.to_string()}});
        plain(StatusCode::BAD_REQUEST, body.to_string())
    }))
}

async fn complete(
    request: Request<Incoming>,
    counts: &Arc<Counts>,
) -> anyhow::Result<Response<Body>> {
    let call = request.headers().get("x-request-id");
    let call = call
        .and_then(|id| id.to_str().ok())
        .unwrap_or("-")
        .to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let body: Value = serde_json::from_slice(&body)?;
    let prompt = body["messages"][0]["content"].as_str().unwrap_or_default();
    let prompt = prompt.split_whitespace().count() as u64;
    let tokens = body["max_tokens"].as_u64().unwrap_or(1);
    // As the client wants it, so that both are tried.
    let running = body["user"] == "running";
    let line = counts.line(&call, prompt, running)?;
    let usage = |tokens: u64| json!({"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens});
    if body["stream"] != true {
        sleep(PACE * 4).await;
        line.completion(tokens)?;
        let message =
            json!({"role": "assistant", "content": "word ".repeat(usize::try_from(tokens)?)});
        let choices = json!([{"index": 0, "message": message, "finish_reason": "stop"}]);
        let body = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "soak", "choices": choices, "usage": usage(tokens)});
        return Ok(plain(StatusCode::OK, body.to_string()));
    }
    let told = body["stream_options"]["include_usage"] == true;
    let streaming = Streaming {
        line,
        tokens,
        prompt,
        running,
        told,
        next: 1,
    };
    let events = stream::unfold(streaming, |mut streaming| async move {
        let event = streaming.event().await?;
        Some((event.map(|event| Frame::data(event.into())), streaming))
    });
    let response = Response::builder().header(header::CONTENT_TYPE, "text/event-stream");
    Ok(response.body(StreamBody::new(events).boxed_unsync())?)
}

/// An answer as it is streamed.
struct Streaming {
    line: Line,
    tokens: u64,
    prompt: u64,
    running: bool,
    told: bool,
    /// The number of the token that comes next, then the usage, then the end.
    next: u64,
}

impl Streaming {
    async fn event(&mut self) -> Option<io::Result<String>> {
        let Self {
            line,
            tokens,
            prompt,
            running,
            told,
            next,
        } = self;
        let number = *next;
        *next += 1;
        let usage = |count: u64| json!({"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": *prompt + count});
        let mut chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "soak", "choices": []});
        if number <= *tokens {
            sleep(PACE).await;
            if let Err(error) = line.completion(number) {
                return Some(Err(error));
            }
            let reason = (number == *tokens).then_some("stop");
            let delta = json!({"content": format!("word{number} ")});
            chunk["choices"] = json!([{"index": 0, "delta": delta, "finish_reason": reason}]);
            if *running {
                chunk["usage"] = usage(number);
            }
        } else if number == *tokens + 1 && *told {
            chunk["usage"] = usage(*tokens);
        } else if number <= *tokens + 2 {
            *next = *tokens + 3;
            return Some(Ok("data: [DONE]\n\n".to_owned()));
        } else {
            return None;
        }
        Some(Ok(format!("data: {chunk}\n\n")))
    }
}

fn plain(status: StatusCode, body: String) -> Response<Body> {
    let body = Full::new(Bytes::from(body))
        .map_err(|never| match never {})
        .boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

/// Between two tokens.
const PACE: Duration = Duration::from_millis(100);
