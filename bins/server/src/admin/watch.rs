//! Around every request: its id, its end in time, a line in the log for what changes something.

use std::time::Duration;

use axum::{
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{
    HeaderValue, Method,
    header::{CACHE_CONTROL, HeaderName},
};
use llmgw_core::{control::ControlError, error::Code, id::RequestId};
use tokio::time::timeout;
use tracing::{info, warn};

use super::refusal::Refusal;

pub(super) async fn observe(request: Request, next: Next) -> Response {
    let id = request_id(&request);
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    // Dropping a role's future leaves its whole effect or none, so it may be left at any time.
    let mut response = timeout(ANSWER_TIMEOUT, next.run(request))
        .await
        .unwrap_or_else(|_| {
            let message = format!("no answer within {} s", ANSWER_TIMEOUT.as_secs());
            Refusal::from(ControlError::new(Code::Unavailable, message)).into_response()
        });
    let status = response.status();
    if status.is_server_error() {
        warn!(request = ?id, %method, path, status = status.as_u16(), "admin request failed");
    } else if !matches!(method, Method::GET | Method::HEAD) {
        info!(request = ?id, %method, path, status = status.as_u16(), "admin request");
    }
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The caller's own id, when it is a plain one; else a new one.
fn request_id(request: &Request) -> HeaderValue {
    let plain = |value: &&HeaderValue| {
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-:".contains(byte);
        (1..=MAX_REQUEST_ID).contains(&value.len()) && value.as_bytes().iter().all(allowed)
    };
    let minted = || {
        HeaderValue::try_from(RequestId::generate().to_string())
            .unwrap_or_else(|_| HeaderValue::from_static("unknown"))
    };
    request
        .headers()
        .get(REQUEST_ID)
        .filter(plain)
        .cloned()
        .unwrap_or_else(minted)
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const MAX_REQUEST_ID: usize = 128;
/// Of all that the roles do, a trial of a placement takes longest: milliseconds for a fleet. What takes this
/// long waits for something that is away.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
