//! Places for connections, and who gives way when none is left: whoever has waited longest without a request under way.
//!
//! Whoever connects and says nothing, or does not end a head, can so keep nobody out, though they come without a token.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use axum::body::{Body, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// All places.
#[derive(Debug)]
pub(super) struct Seats {
    free: Arc<Semaphore>,
    shared: Arc<Shared>,
    /// How many were taken so far.
    count: u64,
}

#[derive(Debug, Default)]
struct Shared {
    /// By when they were taken. Held for a look or a change only.
    taken: Mutex<BTreeMap<u64, Arc<Use>>>,
    /// One of them has no request under way any more.
    idle: Notify,
}

/// What is done with a place.
#[derive(Debug, Default)]
struct Use {
    /// Requests under way, and the rest of an answer that is closed on.
    asked: AtomicUsize,
    /// Another needs the place.
    leave: CancellationToken,
}

/// A place that is taken; free again when this is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    number: u64,
    shared: Arc<Shared>,
    used: Arc<Use>,
    _held: Option<OwnedSemaphorePermit>,
}

/// Keeps a place from being asked for.
#[derive(Debug)]
pub(super) struct Busy {
    shared: Arc<Shared>,
    used: Arc<Use>,
}

/// An answer, whose place is busy until it is over.
#[derive(Debug)]
pub(super) struct Answer {
    body: Body,
    _busy: Busy,
}

// === impl Seats ===

impl Seats {
    pub(super) fn new(most: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(most)),
            shared: Arc::default(),
            count: 0,
        }
    }

    /// Takes a place; when none is free, whoever has waited longest without a request gives way. Waits while there are
    /// requests under way on all. Dropping the future takes nothing.
    pub(super) async fn take(&mut self) -> Seat {
        let held = match Arc::clone(&self.free).try_acquire_owned() {
            Ok(held) => Some(held),
            Err(_) => self.made_free().await,
        };
        self.count += 1;
        let used = Arc::<Use>::default();
        self.shared.lock().insert(self.count, Arc::clone(&used));
        Seat {
            number: self.count,
            shared: Arc::clone(&self.shared),
            used,
            _held: held,
        }
    }

    async fn made_free(&self) -> Option<OwnedSemaphorePermit> {
        let mut free = std::pin::pin!(Arc::clone(&self.free).acquire_owned());
        loop {
            let idle = self.shared.idle.notified();
            let longest = {
                let taken = self.shared.lock();
                let mut waiting = taken.values().filter(|one| one.is_idle());
                waiting.next().map(|one| one.leave.clone())
            };
            if let Some(leave) = longest {
                leave.cancel();
                return free.await.ok();
            }
            tokio::select! {
                held = &mut free => return held.ok(),
                () = idle => {}
            }
        }
    }
}

// === impl Shared ===

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Use>>> {
        // The places are right after any panic.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Use ===

impl Use {
    fn is_idle(&self) -> bool {
        self.asked.load(Ordering::Acquire) == 0 && !self.leave.is_cancelled()
    }
}

// === impl Seat ===

impl Seat {
    /// Ends when another needs the place.
    pub(super) fn leave(&self) -> CancellationToken {
        self.used.leave.clone()
    }

    /// What marks the place as busy, for whoever serves it.
    pub(super) fn marker(&self) -> impl Fn() -> Busy + use<> {
        let (shared, used) = (Arc::clone(&self.shared), Arc::clone(&self.used));
        move || {
            used.asked.fetch_add(1, Ordering::AcqRel);
            Busy {
                shared: Arc::clone(&shared),
                used: Arc::clone(&used),
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.lock().remove(&self.number);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.used.asked.fetch_sub(1, Ordering::AcqRel);
        self.shared.idle.notify_one();
    }
}

// === impl Answer ===

impl Answer {
    pub(super) fn new(body: Body, busy: Busy) -> Self {
        Self { body, _busy: busy }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
