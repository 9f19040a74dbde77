//! What the engines of replicas wrote, as they write it.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;

use super::ControlError;
use crate::{
    api::log::{LogFrom, LogPart},
    error::Code,
    id::ReplicaId,
};

/// What the engines of replicas wrote, as they write it.
///
/// # Contract
/// * A part begins where [`LogFrom`] says and has no more than 256 KiB of the log; [`LogPart::cursor`] is where the next
///   one begins, so that parts read one after the other have every line once, but for what
///   [`LogPart::skipped`] counts.
/// * `read_log` answers at once when there is something to tell. Else it waits for something, for `wait` or
///   [`LONGEST_WAIT`], whichever is shorter, and MUST NOT answer with nothing before.
/// * [`LogPart::end`] stands in the last part alone, and in every part that is asked for after it.
/// * Dropping the future costs nothing but the answer.
#[async_trait]
pub trait Logs: fmt::Debug + Send + Sync + 'static {
    /// A part of what a replica's engine wrote. A replica that has no engine yet has written nothing.
    ///
    /// MUST refuse a replica that nobody knows, or whose log is gone ([`Code::NotFound`]). MUST say so when the log can't
    /// be asked for now, because its node is not heard or its agent too old ([`Code::Unavailable`]).
    async fn read_log(
        &self,
        replica: ReplicaId,
        from: LogFrom,
        wait: Duration,
    ) -> Result<LogPart, ControlError>;
}

/// Reads a log part after part.
#[derive(Clone, Debug)]
pub struct LogReader {
    logs: Arc<dyn Logs>,
    replica: ReplicaId,
    from: LogFrom,
}

/// The longest that one question waits for an engine to say something.
pub const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// No replica of this id has a log.
#[must_use]
pub fn unknown_log(replica: ReplicaId) -> ControlError {
    ControlError::new(Code::NotFound, format!("there is no log of {replica}"))
        .with_hint("`llmgw ctl replicas` lists the replicas there are")
}

// === impl LogReader ===

impl LogReader {
    /// A reader that begins there.
    #[must_use]
    pub fn new(logs: Arc<dyn Logs>, replica: ReplicaId, from: LogFrom) -> Self {
        Self {
            logs,
            replica,
            from,
        }
    }

    /// Whose log it reads.
    #[must_use]
    pub fn replica(&self) -> ReplicaId {
        self.replica
    }

    /// The next part, empty when there is nothing: for the first look.
    ///
    /// # Errors
    /// As [`Logs::read_log`]; the next call asks for the same again.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing.
    pub async fn now(&mut self) -> Result<LogPart, ControlError> {
        self.read(Duration::ZERO).await
    }

    /// The next part that tells something; waits for it.
    ///
    /// # Errors
    /// As [`Logs::read_log`]; the next call asks for the same again.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<LogPart, ControlError> {
        loop {
            let part = self.read(LONGEST_WAIT).await?;
            if !part.is_empty() {
                return Ok(part);
            }
        }
    }

    async fn read(&mut self, wait: Duration) -> Result<LogPart, ControlError> {
        let part = self.logs.read_log(self.replica, self.from, wait).await?;
        self.from = LogFrom::After(part.cursor);
        Ok(part)
    }
}
