//! `replicas/{id}/log`: what a replica's engine wrote, once or as it goes on.
//!
//! What is streamed is read only as fast as it is taken: a reader that is slow, or has gone, asks the agent for nothing.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{Extension, Query, rejection::QueryRejection},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::{Stream, stream};
use http::HeaderMap;
use llmgw_core::{
    api::log::{LogEnd, LogEnded, LogFrom, LogPart},
    control::{ControlError, LONGEST_WAIT, LogReader},
    error::Code,
    id::ReplicaId,
    units::Span,
};
use serde::Deserialize;

use super::{
    body::Named,
    caller::Asked,
    events::{KEEP_ALIVE, Place, Streaming},
    refusal::Refusal,
};

/// `?lines=&after=&wait=&follow=`; all may be absent, nothing else may be asked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskedLog {
    lines: Option<u32>,
    after: Option<u64>,
    wait: Option<String>,
    follow: Option<bool>,
}

/// What is streamed to one reader.
struct Told {
    reader: LogReader,
    /// What is told before anything is waited for.
    first: Option<LogPart>,
    /// Why nothing more is told.
    end: Option<LogEnd>,
    over: bool,
    place: Place,
}

pub(super) async fn log(
    Asked(control): Asked,
    Named(id): Named,
    asked: Result<Query<AskedLog>, QueryRejection>,
    Extension(streaming): Extension<Streaming>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let replica: ReplicaId = id
        .parse()
        .map_err(|error| invalid(format!("id: {error}")))?;
    let Query(AskedLog {
        lines,
        after,
        wait,
        follow,
    }) = asked.map_err(|error| {
        invalid(error.body_text())
            .with_hint("ask for log?lines=100, log?after=CURSOR&wait=5s or log?follow=true")
    })?;
    if lines.is_some() && after.is_some() {
        return Err(invalid("lines, after: only one of them says where to begin").into());
    }
    // A reader that lost its connection goes on where it was.
    let after = after.or_else(|| headers.get(LAST_EVENT)?.to_str().ok()?.parse().ok());
    let from = match after {
        Some(cursor) => LogFrom::After(cursor),
        None => LogFrom::Last(lines.unwrap_or(USUAL_LINES)),
    };
    let logs = control.logs;
    if follow != Some(true) {
        let wait = wait.as_deref().map(waiting).transpose()?;
        let wait = wait.unwrap_or_default();
        let part = logs.read_log(replica, from, wait).await?;
        return Ok(Json(part).into_response());
    }
    let place = streaming.place()?;
    let mut reader = LogReader::new(Arc::clone(&logs), replica, from);
    // What can't be read at all is refused before anything is streamed.
    let first = reader.now().await?;
    let told = Told {
        reader,
        first: Some(first),
        end: None,
        over: false,
        place,
    };
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(Sse::new(events(told))
        .keep_alive(keep_alive)
        .into_response())
}

/// `lines` for each part, with its cursor as the event's id, and one `end`.
fn events(told: Told) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(told, |mut told| async move {
        let event = told.next().await?;
        Some((Ok(event), told))
    })
}

impl Told {
    /// The next event; `None` after the end.
    async fn next(&mut self) -> Option<Event> {
        if self.over {
            return None;
        }
        if let Some(end) = self.end.take() {
            return Some(self.last(&end));
        }
        let part = match self.first.take() {
            Some(first) => Ok(first),
            None => tokio::select! {
                part = self.reader.next() => part,
                () = self.place.stop.cancelled() => Err(ControlError::new(
                    Code::ShuttingDown,
                    "this control plane is stopping",
                )),
            },
        };
        let mut part = match part {
            Ok(part) => part,
            Err(error) => {
                let reason = match error.code {
                    // Its node has removed it, so that it has ended.
                    Code::NotFound => LogEnded::Stopped,
                    _ => LogEnded::Unreachable,
                };
                return Some(self.last(&LogEnd {
                    reason,
                    text: error.message,
                }));
            }
        };
        // The end is an event of its own.
        self.end = part.end.take();
        if let Some(end) = self.end.take_if(|_| part.is_empty()) {
            return Some(self.last(&end));
        }
        let framed = Event::default().event("lines").id(part.cursor.to_string());
        // What can't be written is no line of ours: it is left out, and its place stays.
        let framed = framed.json_data(&part);
        Some(framed.unwrap_or_else(|_| Event::default().event("lines")))
    }

    fn last(&mut self, end: &LogEnd) -> Event {
        self.over = true;
        let framed = Event::default().event("end").json_data(end);
        framed.unwrap_or_else(|_| Event::default().event("end"))
    }
}

fn waiting(text: &str) -> Result<Duration, ControlError> {
    let span: Result<Span, _> = text.parse();
    let Span(wait) = span.map_err(|error| invalid(format!("wait: {error}")))?;
    Ok(wait.min(LONGEST_WAIT))
}

fn invalid(message: impl Into<String>) -> ControlError {
    ControlError::new(Code::InvalidRequest, message)
}

/// What is shown when nobody says how much.
const USUAL_LINES: u32 = 100;

/// What a reader of server-sent events says when it comes back (WHATWG HTML, section 9.2.4).
const LAST_EVENT: &str = "last-event-id";
