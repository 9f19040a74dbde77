//! `events`, `jobs/{id}/events`: what happens, as server-sent events.
//!
//! A reader that is slow holds nobody up: what it can't take in is counted, and it is told.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::Extension,
    response::sse::{self, KeepAlive, Sse},
};
use futures_util::{Stream, stream};
use llmgw_core::{
    api::event::Event,
    control::{ControlError, Following},
    error::Code,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::{body::Named, caller::Asked, refusal::Refusal};

/// What all that is streamed has in common: how many there may be, and what ends them.
#[derive(Clone, Debug)]
pub(super) struct Streaming {
    left: Arc<Semaphore>,
    stop: CancellationToken,
}

/// A place among those that are streamed to.
#[derive(Debug)]
pub(super) struct Place {
    _held: OwnedSemaphorePermit,
    /// Ends what is streamed when the listener is to end.
    pub(super) stop: CancellationToken,
}

/// A reader, and what it reads.
struct Reader {
    following: Box<dyn Following>,
    /// What is told before anything else.
    first: Option<Event>,
    /// The job that it wants to hear of; all when absent.
    job: Option<String>,
    place: Place,
    over: bool,
}

pub(super) async fn all(
    Asked(control): Asked,
    Extension(streaming): Extension<Streaming>,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, Refusal> {
    let place = streaming.place()?;
    let following = control.events.follow().await?;
    Ok(streamed(Reader {
        following,
        first: None,
        job: None,
        place,
        over: false,
    }))
}

pub(super) async fn job(
    Asked(control): Asked,
    Named(id): Named,
    Extension(streaming): Extension<Streaming>,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, Refusal> {
    let place = streaming.place()?;
    // Followed first, so that nothing happens in between.
    let following = control.events.follow().await?;
    let jobs = control.jobs.jobs().await?;
    let Some(job) = jobs.into_iter().find(|job| job.id == id) else {
        let short: String = id.chars().take(64).collect();
        let message = format!("no job {short:?} is under way");
        return Err(ControlError::new(Code::NotFound, message)
            .with_hint("`llmgw ctl jobs` lists those there are; how one ended is told by its node or replica")
            .into());
    };
    Ok(streamed(Reader {
        following,
        first: Some(Event::Job { job: Box::new(job) }),
        job: Some(id),
        place,
        over: false,
    }))
}

fn streamed(reader: Reader) -> Sse<impl Stream<Item = Result<sse::Event, Infallible>>> {
    let events = stream::unfold(reader, |mut reader| async move {
        let event = reader.next().await?;
        let kind = event.kind();
        let framed = sse::Event::default().event(kind).json_data(&event);
        // What can't be written is no event of ours: it is left out, and its kind stays.
        let framed = framed.unwrap_or_else(|_| sse::Event::default().event(kind));
        Some((Ok(framed), reader))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

// === impl Streaming ===

impl Streaming {
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self {
            left: Arc::new(Semaphore::new(MOST)),
            stop,
        }
    }

    /// A place for one more reader, held until it is dropped.
    pub(super) fn place(&self) -> Result<Place, Refusal> {
        let held = Arc::clone(&self.left).try_acquire_owned();
        let held = held.map_err(|_| {
            let message = format!("{MOST} readers follow events and logs, and no more can");
            ControlError::new(Code::Unavailable, message)
                .with_hint("end one of them, such as `llmgw ctl events` or `llmgw ctl logs -f`")
        })?;
        Ok(Place {
            _held: held,
            stop: self.stop.clone(),
        })
    }
}

// === impl Reader ===

impl Reader {
    /// The next event that it wants to hear of; `None` at the end.
    async fn next(&mut self) -> Option<Event> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.over {
            return None;
        }
        loop {
            let event = tokio::select! {
                event = self.following.next() => event?.ok()?,
                () = self.place.stop.cancelled() => return None,
            };
            let Some(id) = &self.job else {
                return Some(event);
            };
            match &event {
                Event::Job { job } if job.id == *id => return Some(event),
                Event::JobEnded { id: ended } if ended == id => {
                    self.over = true;
                    return Some(event);
                }
                Event::Missed { .. } => return Some(event),
                _ => {}
            }
        }
    }
}

/// Readers at the same time: so few that the listener has connections left for whoever asks and orders.
pub(super) const MOST: usize = 128;

/// Shorter than whatever stands between gives up on a silent connection.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
