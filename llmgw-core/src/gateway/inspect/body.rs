//! The bounded read of a request body.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body::Body;
use http_body_util::BodyExt;

use crate::{
    error::{Chain, Code},
    gateway::refusal::Refusal,
    units,
};

/// What bounds the read.
#[derive(Clone, Copy, Debug)]
pub(in crate::gateway) struct BodyBounds {
    /// The most bytes.
    pub(in crate::gateway) limit: units::Bytes,
    /// The longest time without a byte.
    pub(in crate::gateway) timeout: Duration,
}

/// Reads a body whole, if it is within the bounds.
pub(in crate::gateway) async fn read<B>(
    headers: &HeaderMap,
    body: B,
    bounds: BodyBounds,
) -> Result<Bytes, Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: std::error::Error + 'static,
{
    let limit = usize::try_from(bounds.limit.0).unwrap_or(usize::MAX);
    let mut body = pin!(body);
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|announced| announced > bounds.limit.0) {
        return Err(too_large(bounds.limit));
    }
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    loop {
        // Most often it is there, and no time need be taken.
        let frame = match poll_fn(|cx| Poll::Ready(body.as_mut().poll_frame(cx))).await {
            Poll::Ready(frame) => frame,
            Poll::Pending => tokio::time::timeout(bounds.timeout, body.frame())
                .await
                .map_err(|_| too_slow(bounds.timeout))?,
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| broken(&error))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if first.len() + joined.len() + data.len() > limit {
            return Err(too_large(bounds.limit));
        }
        // Most bodies come in one piece, which is then never copied.
        if first.is_empty() && joined.is_empty() {
            first = data;
        } else {
            if joined.is_empty() {
                // What was announced is trusted for a megabyte at once: memory follows the bytes that came.
                let ahead = announced.unwrap_or(0).min(1 << 20);
                joined.reserve(
                    usize::try_from(ahead)
                        .unwrap_or(0)
                        .max(first.len() + data.len()),
                );
                joined.extend_from_slice(&std::mem::take(&mut first));
            }
            joined.extend_from_slice(&data);
        }
    }
    Ok(if joined.is_empty() {
        first
    } else {
        joined.freeze()
    })
}

/// Reads and forgets what a refused client still sends, for a while.
///
/// A client that writes its whole body before it reads would see a reset connection instead of the refusal.
pub(in crate::gateway) async fn discard<B: Body<Data = Bytes>>(headers: &HeaderMap, body: B) {
    if headers.contains_key(header::EXPECT) {
        // It waits for leave to send, and gets the refusal instead.
        return;
    }
    let mut body = pin!(body);
    let reading = async {
        let mut discarded = 0;
        while let Some(Ok(frame)) = body.frame().await {
            discarded += frame.data_ref().map_or(0, Bytes::len);
            if discarded > DISCARDED {
                break;
            }
        }
    };
    // Too slow is the same as too much: the connection is closed on the rest.
    let _elapsed = tokio::time::timeout(DISCARD_TIME, reading).await;
}

fn too_large(limit: units::Bytes) -> Refusal {
    let message = format!("the body is larger than the limit of {limit}");
    Refusal::new(Code::RequestTooLarge, message)
}

fn too_slow(timeout: Duration) -> Refusal {
    let message = format!("no byte of the body came for {} s", timeout.as_secs_f32());
    Refusal::new(Code::InvalidRequest, message).with_status(http::StatusCode::REQUEST_TIMEOUT)
}

fn broken(error: &dyn std::error::Error) -> Refusal {
    let message = format!("the body broke off: {}", Chain(error));
    Refusal::new(Code::InvalidRequest, message)
}

/// Enough for a client that missed the limit by its largest body, and over in a second on a local network.
const DISCARDED: usize = 256 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(2);
