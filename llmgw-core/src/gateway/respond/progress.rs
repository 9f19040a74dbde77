//! Comments on how far a model is that a streamed call waits for, and then the stream itself.
//!
//! The status is 200 from the first comment on; what would have been a refusal is then one event with the error, and
//! no `[DONE]`.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::Response;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::AnswerBody;
use crate::{
    error::Code,
    gateway::{
        bulletin::Told,
        dialect::ErrorShape,
        refusal::{Refusal, without_paths},
    },
};

/// What is waited for: the answer or its beginning.
pub(in crate::gateway) type Work =
    Pin<Box<dyn Future<Output = Result<Response<AnswerBody>, Refusal>> + Send>>;

/// The comments until the answer begins.
pub(in crate::gateway) struct ProgressStream {
    work: Work,
    told: Told,
    shape: ErrorShape,
    interval: Duration,
    tick: Interval,
    /// The last comment, and when it was made.
    last: String,
    said: Instant,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// What comes next.
#[derive(Debug)]
pub(super) enum Next {
    Comment(Bytes),
    /// The rest of the answer; the work is over.
    Body(AnswerBody),
}

// === impl ProgressStream ===

impl ProgressStream {
    pub(super) fn new(
        work: Work,
        (told, shape): (Told, ErrorShape),
        interval: Duration,
        cut: WaitForCancellationFutureOwned,
    ) -> Self {
        let mut tick = tokio::time::interval(LOOK.min(interval).max(SHORTEST));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            work,
            told,
            shape,
            interval,
            tick,
            last: String::new(),
            said: Instant::now(),
            cut: Box::pin(cut),
        }
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        if let Poll::Ready(answered) = self.work.as_mut().poll(cx) {
            return Poll::Ready(Next::Body(rest(answered, self.shape)));
        }
        if self.cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Next::Body(rest(Err(Refusal::shutting_down()), self.shape)));
        }
        while self.tick.poll_tick(cx).is_ready() {
            if let Some(comment) = self.comment() {
                return Poll::Ready(Next::Comment(comment));
            }
        }
        Poll::Pending
    }

    /// What is to be said now: what is new, or the same again after a while.
    fn comment(&mut self) -> Option<Bytes> {
        let words = self.told.borrow().clone().unwrap_or_default();
        if words == self.last && self.said.elapsed() < self.interval {
            return None;
        }
        self.said = Instant::now();
        // No empty line behind it: for some clients, that ends an event.
        let comment = Bytes::from(format!(": {}\n", without_paths(&words)));
        self.last = words;
        Some(comment)
    }
}

impl fmt::Debug for ProgressStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressStream")
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

/// The rest of a stream that has begun already.
fn rest(answered: Result<Response<AnswerBody>, Refusal>, shape: ErrorShape) -> AnswerBody {
    let refusal = match answered.map(Response::into_body) {
        Ok(body @ (AnswerBody::Events(_) | AnswerBody::Progress(_))) => return body,
        Ok(AnswerBody::Whole(_) | AnswerBody::Rest(_)) => {
            let message = "the engine answered in one piece where a stream was asked for";
            Refusal::new(Code::UpstreamError, message)
        }
        Err(refusal) => refusal,
    };
    AnswerBody::whole(refusal.event(shape, 0))
}

/// How often it is looked whether there is something new.
const LOOK: Duration = Duration::from_secs(1);
const SHORTEST: Duration = Duration::from_millis(10);
