//! Answers in one piece.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header, response};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::{AnswerBody, body::Broken, edited::Edited};
use crate::{
    error::{Chain, Code},
    gateway::{
        account::Account,
        dialect::Yields,
        idle::Idle,
        inspect::Inspected,
        refusal::{EngineError, Refusal},
        respond,
        rewrite::Output,
        translate::unreadable,
        wire::Exchange,
    },
    metrics::Stage,
};

/// What bounds the answer.
#[derive(Clone, Copy, Debug)]
pub(in crate::gateway) struct UnaryBounds {
    /// Answers of up to so many bytes are held until they are whole, so that one that breaks off is refused
    /// instead; longer ones pass as they come.
    pub(in crate::gateway) hold: usize,
    /// The longest time without a byte.
    pub(in crate::gateway) idle: Duration,
}

/// The part of a long answer that was not passed on yet.
pub(in crate::gateway) struct Rest {
    exchange: Exchange,
    rewriter: Option<Edited>,
    /// Choices that are in the account.
    counted: u64,
    out: Output,
    account: Option<Account>,
    idle: Idle,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// An engine's answer as the client gets it: under the name it asked for.
pub(in crate::gateway) async fn unary(
    head: response::Parts,
    mut exchange: Exchange,
    asked: &Inspected,
    account: &mut Option<Account>,
    bounds: UnaryBounds,
    cut: WaitForCancellationFutureOwned,
) -> Result<Response<AnswerBody>, Refusal> {
    let mut idle = Idle::new(bounds.idle);
    if !head.status.is_success() {
        let path = asked.dialect.path;
        return Err(engine_error(&head, path, &mut exchange, &mut idle, account.as_mut()).await);
    }
    if let Some(reply) = &asked.reply {
        let answer = whole(&head, &mut exchange, asked, account, &mut idle).await?;
        let put = reply.interpreter().whole(&answer);
        let body = put.map_err(|error| unreadable(&error))?;
        return Ok(respond::json_text(head.status, body));
    }
    let yields = asked.dialect.yields;
    let mut rewriter = Edited::new(asked, &head);
    // What is heard or seen as it comes is not held.
    let hold = if rewriter.is_json() { bounds.hold } else { 0 };
    let mut out = Output::default();
    let mut whole = false;
    while !whole && out.len() <= hold {
        match poll_fn(|cx| poll_piece(&mut exchange, &mut idle, account.as_mut(), cx)).await? {
            Some(piece) => rewriter.feed(piece, &mut out),
            None => whole = true,
        }
    }
    let counted = match yields.is_text() {
        true => rewriter.choices().max(1),
        false => 0,
    };
    if let Some(account) = account {
        account.content(counted);
        if yields == Yields::Numbers {
            account.guess_prompt(asked.prompt_tokens());
        }
    }
    let body = if whole {
        if let (Some(account), Some(usage)) = (account, rewriter.into_usage()) {
            account.usage(usage);
        }
        AnswerBody::whole(out.take())
    } else {
        AnswerBody::Rest(Box::new(Rest {
            exchange,
            rewriter: Some(rewriter),
            counted,
            out,
            account: account.take(),
            idle,
            cut: Box::pin(cut),
        }))
    };
    let mut response = Response::new(body);
    response.headers_mut().reserve(HEADERS);
    *response.status_mut() = head.status;
    let json = HeaderValue::from_static("application/json");
    let kind = head.headers.get(header::CONTENT_TYPE).cloned();
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, kind.unwrap_or(json));
    Ok(response)
}

/// Reads an answer that is put into another API.
async fn whole(
    head: &response::Parts,
    exchange: &mut Exchange,
    asked: &Inspected,
    account: &mut Option<Account>,
    idle: &mut Idle,
) -> Result<Bytes, Refusal> {
    let mut rewriter = Edited::new(asked, head);
    let mut out = Output::default();
    while let Some(piece) = poll_fn(|cx| poll_piece(exchange, idle, account.as_mut(), cx)).await? {
        rewriter.feed(piece, &mut out);
        if out.len() > TRANSLATED {
            let message = format!("the engine's answer is larger than {TRANSLATED} bytes");
            return Err(Refusal::new(Code::UpstreamError, message));
        }
    }
    if let Some(account) = account {
        account.content(match asked.dialect.yields.is_text() {
            true => rewriter.choices().max(1),
            false => 0,
        });
        if asked.dialect.yields == Yields::Numbers {
            account.guess_prompt(asked.prompt_tokens());
        }
        if let Some(usage) = rewriter.into_usage() {
            account.usage(usage);
        }
    }
    Ok(out.take())
}

/// Reads an engine's error and puts it into the shape that clients read.
async fn engine_error(
    head: &response::Parts,
    path: &'static str,
    exchange: &mut Exchange,
    idle: &mut Idle,
    account: Option<&mut Account>,
) -> Refusal {
    EngineError {
        status: Some(head.status),
        headers: Some(&head.headers),
        body: &error_body(exchange, idle, account).await,
    }
    .for_path(path)
}

/// The body of an engine's error, a bounded part of it.
pub(in crate::gateway) async fn error_body(
    exchange: &mut Exchange,
    idle: &mut Idle,
    mut account: Option<&mut Account>,
) -> Bytes {
    let mut body = Output::default();
    while body.len() < ERROR_BODY {
        // An error that breaks off is an error still.
        match poll_fn(|cx| poll_piece(exchange, idle, account.as_deref_mut(), cx)).await {
            Ok(Some(piece)) => body.push(piece),
            Ok(None) | Err(_) => break,
        }
    }
    body.take()
}

fn poll_piece(
    exchange: &mut Exchange,
    idle: &mut Idle,
    account: Option<&mut Account>,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<Bytes>, Refusal>> {
    let polled = exchange.poll_chunk(cx);
    if let Some(account) = account {
        match polled {
            Poll::Ready(_) => account.overhead.enter(Stage::Respond),
            Poll::Pending => account.overhead.wait_for_engine(),
        }
    }
    match polled {
        Poll::Ready(piece) => {
            idle.touch();
            Poll::Ready(piece.transpose().map_err(|error| {
                let how = format!("the engine broke off: {}", Chain(&error));
                Refusal::new(Code::UpstreamDisconnected, how)
            }))
        }
        Poll::Pending => {
            ready!(idle.poll(cx));
            let message = "the engine fell silent in its answer";
            Poll::Ready(Err(Refusal::new(Code::UpstreamTimeout, message)))
        }
    }
}

// === impl Rest ===

impl Rest {
    pub(super) fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Broken>>> {
        loop {
            if !self.out.is_empty() {
                return Poll::Ready(Some(Ok(self.out.take())));
            }
            let Some(rewriter) = &mut self.rewriter else {
                return Poll::Ready(None);
            };
            let cut = self.cut.as_mut().poll(cx).is_ready();
            let piece = if cut {
                Err(Refusal::shutting_down())
            } else {
                let account = self.account.as_mut();
                ready!(poll_piece(&mut self.exchange, &mut self.idle, account, cx))
            };
            match piece {
                Ok(Some(piece)) => {
                    rewriter.feed(piece, &mut self.out);
                    let more = match self.counted {
                        // An answer in no tokens.
                        0 => 0,
                        counted => rewriter.choices().saturating_sub(counted),
                    };
                    self.counted += more;
                    if let Some(account) = &mut self.account {
                        account.content(more);
                    }
                }
                Ok(None) => {
                    let usage = self.rewriter.take().and_then(Edited::into_usage);
                    self.close(usage, StatusCode::OK);
                }
                Err(refusal) => {
                    self.rewriter = None;
                    self.close(None, refusal.status());
                    return Poll::Ready(Some(Err(Broken)));
                }
            }
        }
    }

    fn close(&mut self, usage: Option<Bytes>, status: StatusCode) {
        if let Some(mut account) = self.account.take() {
            account.ended(status);
            if let Some(usage) = usage {
                account.usage(usage);
            }
        }
    }
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rest")
            .field("exchange", &self.exchange)
            .finish_non_exhaustive()
    }
}

/// Of an answer, with those that stand in every one.
const HEADERS: usize = 8;
/// The most of an answer that is read whole.
const TRANSLATED: usize = 64 << 20;
/// No message that a client reads is longer.
const ERROR_BODY: usize = 64 << 10;
