//! The bodies of answers.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::{
    progress::{Next, ProgressStream},
    unary::Rest,
};
use crate::{
    error::Code,
    gateway::{
        account::Account,
        feed::{Feed, State},
        idle::Idle,
        refusal::Refusal,
    },
};

/// The body of any answer.
#[derive(Debug)]
pub(in crate::gateway) enum AnswerBody {
    /// All at once.
    Whole(Bytes),
    /// Events as they come.
    Events(Box<EventStream>),
    /// A long answer as it comes.
    Rest(Box<Rest>),
    /// Comments while the answer is not there yet.
    Progress(Box<ProgressStream>),
}

/// An answer that broke off where nothing can be said any more: the connection is closed on it, so that the
/// client does not take the piece for the whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the answer broke off")]
pub(in crate::gateway) struct Broken;

/// A stream of events with all that ends it.
pub(in crate::gateway) struct EventStream {
    feed: Feed,
    /// Closed as soon as the stream is over, not only when the client has read it.
    account: Option<Account>,
    idle: Idle,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

// === impl AnswerBody ===

impl AnswerBody {
    pub(in crate::gateway) fn whole(bytes: Bytes) -> Self {
        Self::Whole(bytes)
    }

    pub(super) fn events(
        feed: Feed,
        account: Option<Account>,
        mut idle: Idle,
        cut: WaitForCancellationFutureOwned,
    ) -> Self {
        if feed.state() == State::Done {
            idle.restart(LINGER);
        }
        Self::Events(Box::new(EventStream {
            feed,
            account,
            idle,
            cut: Box::pin(cut),
        }))
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let body = self.get_mut();
        let next = loop {
            break match body {
                Self::Whole(bytes) => {
                    let bytes = std::mem::take(bytes);
                    Poll::Ready((!bytes.is_empty()).then_some(Ok(bytes)))
                }
                Self::Events(stream) => stream.poll_bytes(cx).map(|bytes| bytes.map(Ok)),
                Self::Rest(rest) => rest.poll_bytes(cx),
                Self::Progress(progress) => match ready!(progress.poll_next(cx)) {
                    Next::Comment(comment) => Poll::Ready(Some(Ok(comment))),
                    Next::Body(answer) => {
                        *body = answer;
                        continue;
                    }
                },
            };
        };
        next.map(|next| next.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Events(_) | Self::Rest(_) | Self::Progress(_) => SizeHint::default(),
        }
    }
}

// === impl EventStream ===

impl EventStream {
    /// The next events, all that are there, up to a bound.
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(account) = &mut self.account else {
            return Poll::Ready(None);
        };
        loop {
            if self.feed.state() == State::Over {
                self.account = None;
                let last = self.feed.out.take();
                return Poll::Ready((!last.is_empty()).then_some(last));
            }
            let before = self.feed.state();
            if self.feed.out.len() < FRAME {
                match self.feed.poll_more(cx, account) {
                    Poll::Ready(_) => {
                        self.idle.touch();
                        if before != State::Done && self.feed.state() == State::Done {
                            // The client has all; only the end of the engine's answer is missing.
                            self.idle.restart(LINGER);
                        }
                        continue;
                    }
                    Poll::Pending if self.feed.out.is_empty() => {}
                    Poll::Pending => return Poll::Ready(Some(self.feed.out.take())),
                }
            } else {
                return Poll::Ready(Some(self.feed.out.take()));
            }
            if self.cut.as_mut().poll(cx).is_ready() {
                self.feed.fail(&Refusal::shutting_down(), account);
            } else if self.idle.poll(cx).is_ready() {
                let refusal = Refusal::new(Code::UpstreamDisconnected, "the engine fell silent");
                self.feed.fail(&refusal, account);
            } else {
                return Poll::Pending;
            }
        }
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream")
            .field("feed", &self.feed)
            .finish_non_exhaustive()
    }
}

/// Events that came together are written together, up to so many bytes.
const FRAME: usize = 32 << 10;
/// How long an engine may keep an answer open after `[DONE]`.
const LINGER: std::time::Duration = std::time::Duration::from_secs(1);
