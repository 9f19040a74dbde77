//! Stage 9, respond: the answer as the client gets it.

mod body;
mod edited;
mod progress;
mod unary;
mod vectors;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use self::progress::ProgressStream;
pub(super) use self::{
    body::AnswerBody,
    progress::Work,
    unary::{UnaryBounds, error_body, unary},
};
use super::{
    account::Account, bulletin::Told, dialect::ErrorShape, feed::Feed, idle::Idle, refusal::Refusal,
};

/// A stream that has begun, and its content type.
pub(super) fn stream(
    (feed, kind): (Feed, &'static str),
    account: Option<Account>,
    idle: Idle,
    cut: tokio_util::sync::WaitForCancellationFutureOwned,
) -> Response<AnswerBody> {
    events(AnswerBody::events(feed, account, idle, cut), kind)
}

/// A stream that begins with comments on how far its work is, and goes on with what comes of that.
pub(super) fn progress(
    work: Work,
    (told, shape): (Told, ErrorShape),
    interval: std::time::Duration,
    cut: tokio_util::sync::WaitForCancellationFutureOwned,
) -> Response<AnswerBody> {
    let stream = ProgressStream::new(work, (told, shape), interval, cut);
    events(AnswerBody::Progress(Box::new(stream)), EVENTS)
}

fn events(body: AnswerBody, kind: &'static str) -> Response<AnswerBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Asks nginx and what follows its ways not to hold events back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A small JSON answer of our own.
pub(super) fn json(status: StatusCode, value: &impl serde::Serialize) -> Response<AnswerBody> {
    // What is answered so are structs of texts and numbers, which have a JSON form.
    json_text(status, serde_json::to_vec(value).unwrap_or_default())
}

/// An answer that is JSON already.
pub(super) fn json_text(status: StatusCode, body: impl Into<Bytes>) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::whole(body.into()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// A refusal as an answer of this API.
pub(super) fn refuse(refusal: &Refusal, shape: ErrorShape) -> Response<AnswerBody> {
    refusal.response(shape).map(AnswerBody::whole)
}

/// The content type of events.
pub(super) const EVENTS: &str = "text/event-stream";
