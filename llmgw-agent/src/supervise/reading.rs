//! What engines wrote, for those who ask while they write on.

use std::{io, time::Duration};

use async_trait::async_trait;
use llmgw_core::{
    api::log::{LogAnswer, LogAsk, LogEnd, LogEnded, LogFrom, LogProblem},
    cluster::replica::ReplicaState,
    error::Chain,
    id::ReplicaId,
};
use tokio::time::Instant;

use super::{Shared, Supervisor, blocking};
use crate::{
    process::log::part::{Part, Wanted},
    session::EngineLogs,
};

#[async_trait]
impl EngineLogs for Supervisor {
    /// Looks a few times a second, for as long as the question says: an engine tells nobody when it writes.
    async fn read(&self, ask: &LogAsk) -> LogAnswer {
        let shared = &self.shared;
        let wait = Duration::from_millis(ask.wait_ms).min(LONGEST_WAIT);
        let deadline = Instant::now() + wait;
        loop {
            // Before the look: what was written before the end is read then.
            let end = shared.log_end(ask.replica);
            let part = match shared.log_part(ask, end.is_some()).await {
                Ok(part) => part,
                Err(error) => {
                    tracing::warn!(replica = %ask.replica, error = %Chain(&error), "an engine's log can't be read");
                    return LogAnswer::without_lines(ask, LogProblem::Unreadable);
                }
            };
            let Some(part) = part else {
                return LogAnswer::without_lines(ask, LogProblem::NoLog);
            };
            let tells = !part.lines.is_empty() || part.skipped > 0;
            let left = deadline.saturating_duration_since(Instant::now());
            if tells || end.is_some() || left.is_zero() {
                return answer(ask, part, end);
            }
            tokio::time::sleep(LOOK_EVERY.min(left)).await;
        }
    }
}

fn answer(ask: &LogAsk, part: Part, end: Option<LogEnd>) -> LogAnswer {
    let Part {
        cursor,
        lines,
        skipped,
        has_more,
    } = part;
    LogAnswer {
        ask: ask.ask,
        replica: ask.replica,
        cursor,
        lines,
        skipped,
        end: end.filter(|_| !has_more),
        problem: None,
    }
}

impl Shared {
    /// Why a replica's engine writes no more; `None` while it may.
    fn log_end(&self, replica: ReplicaId) -> Option<LogEnd> {
        let statuses = self.statuses.borrow();
        let stopped = || LogEnd {
            reason: LogEnded::Stopped,
            text: "stopped".to_owned(),
        };
        let Some(status) = statuses.get(&replica) else {
            return Some(stopped());
        };
        match status.state {
            ReplicaState::Stopped => Some(stopped()),
            ReplicaState::Failed => Some(LogEnd {
                reason: LogEnded::Failed,
                text: status
                    .error
                    .as_deref()
                    .map_or_else(|| "failed".to_owned(), |error| format!("failed: {error}")),
            }),
            _ => None,
        }
    }

    /// A part of a log, empty before there is one; `None` when there is none and will be none.
    async fn log_part(&self, ask: &LogAsk, is_over: bool) -> io::Result<Option<Part>> {
        let known = self.statuses.borrow().contains_key(&ask.replica);
        let wanted = Wanted {
            from: ask.from(),
            most: ask.most.clamp(LEAST, MOST),
            is_over,
        };
        let (logs, replica) = (self.logs.clone(), ask.replica);
        blocking(move || {
            let read = match logs.of(replica)? {
                Some(log) => logs.part(&log, wanted).map(Some),
                None => Ok(None),
            };
            match read {
                // Removed since it was listed.
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                Ok(Some(part)) => Ok(Some(part)),
                Ok(None) | Err(_) => Ok(known.then(|| Part {
                    cursor: match wanted.from {
                        LogFrom::After(cursor) => cursor,
                        LogFrom::Last(_) => 0,
                    },
                    ..Part::default()
                })),
            }
        })
        .await
    }
}

/// Soon enough for whoever watches, and cheap: a look asks the kernel for the names and sizes of a few files.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A question that waits for longer holds a place for nothing.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A part has a line of usual length at least, and never more than a frame carries, whatever is in it.
const LEAST: u64 = 1 << 10;
const MOST: u64 = 256 << 10;
