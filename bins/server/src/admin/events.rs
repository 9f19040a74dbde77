//! `events`, `jobs/{id}/events`: what happens, as server-sent events.
//!
//! A reader that is slow holds nobody up: what it can't take in is counted, and it is told.

use std::{convert::Infallible, time::Duration};

use axum::{
    extract::{Extension, Path},
    response::sse::{self, KeepAlive, Sse},
};
use futures_util::{Stream, stream};
use llmgw_core::{
    api::event::Event,
    control::{ControlError, Following},
    error::Code,
};
use tokio_util::sync::CancellationToken;

use super::{caller::Asked, refusal::Refusal};

/// Ends what is streamed when the listener is to end.
#[derive(Clone, Debug)]
pub(super) struct Streaming(pub(super) CancellationToken);

/// A reader, and what it reads.
struct Reader {
    following: Box<dyn Following>,
    /// What is told before anything else.
    first: Option<Event>,
    /// The job that it wants to hear of; all when absent.
    job: Option<String>,
    stop: CancellationToken,
    over: bool,
}

pub(super) async fn all(
    Asked(control): Asked,
    Extension(Streaming(stop)): Extension<Streaming>,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, Refusal> {
    let following = control.events.follow().await?;
    Ok(streamed(Reader {
        following,
        first: None,
        job: None,
        stop,
        over: false,
    }))
}

pub(super) async fn job(
    Asked(control): Asked,
    Path(id): Path<String>,
    Extension(Streaming(stop)): Extension<Streaming>,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, Refusal> {
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
        stop,
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
                () = self.stop.cancelled() => return None,
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

/// Shorter than whatever stands between gives up on a silent connection.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
