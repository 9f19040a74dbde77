//! Logs of a control plane in memory, and the promises of those who tell logs.

use std::{pin::pin, time::Duration};

use async_trait::async_trait;

use super::{
    MemoryControl, Violation,
    verdict::{done, equal, holds, refused},
};
use crate::{
    api::log::{LogEnd, LogFrom, LogPart},
    control::{Control, ControlError, LONGEST_WAIT, Logs, unknown_log},
    error::Code,
    id::ReplicaId,
    units::Bytes,
};

/// What an engine wrote.
#[derive(Debug, Default)]
pub(super) struct Written {
    lines: Vec<String>,
    end: Option<LogEnd>,
}

impl MemoryControl {
    /// Writes these lines into the log of a replica.
    pub fn write_log(&self, replica: ReplicaId, lines: &[&str]) {
        let lines = lines.iter().map(|line| (*line).to_owned());
        self.change_log(replica, |log| log.lines.extend(lines));
    }

    /// Ends the log of a replica.
    pub fn end_log(&self, replica: ReplicaId, end: LogEnd) {
        self.change_log(replica, |log| log.end = Some(end));
    }

    fn change_log(&self, replica: ReplicaId, change: impl FnOnce(&mut Written)) {
        change(self.lock().logs.entry(replica).or_default());
        self.written.notify_waiters();
    }

    fn log_part(&self, replica: ReplicaId, from: LogFrom) -> Result<LogPart, ControlError> {
        let state = self.answering()?;
        let known = state.replicas.iter().find(|known| known.id == replica);
        let log = state.logs.get(&replica);
        if known.is_none() && log.is_none() {
            return Err(unknown_log(replica));
        }
        let nothing = Written::default();
        let Written { lines, end } = log.unwrap_or(&nothing);
        let length = |line: &String| u64::try_from(line.len()).unwrap_or(u64::MAX) + 1;
        let mut cursor = 0;
        let mut shown = Vec::new();
        for line in lines {
            let begins_later = match from {
                LogFrom::After(after) => cursor >= after,
                LogFrom::Last(_) => true,
            };
            cursor += length(line);
            if begins_later {
                shown.push(line.clone());
            }
        }
        if let LogFrom::Last(most) = from {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            shown.drain(..shown.len().saturating_sub(most));
        }
        Ok(LogPart {
            replica,
            hostname: known.map_or_else(String::new, |known| known.hostname.clone()),
            cursor,
            lines: shown,
            skipped: Bytes::ZERO,
            end: end.clone(),
        })
    }
}

#[async_trait]
impl Logs for MemoryControl {
    async fn read_log(
        &self,
        replica: ReplicaId,
        from: LogFrom,
        wait: Duration,
    ) -> Result<LogPart, ControlError> {
        let mut late = pin!(tokio::time::sleep(wait.min(LONGEST_WAIT)));
        loop {
            // Before the look, so that nothing is written in between.
            let mut written = pin!(self.written.notified());
            written.as_mut().enable();
            let part = self.log_part(replica, from)?;
            if !part.is_empty() {
                return Ok(part);
            }
            tokio::select! {
                () = &mut written => {}
                () = &mut late => return Ok(part),
            }
        }
    }
}

pub(super) async fn a_log_is_read_part_after_part(control: &Control) -> Result<(), Violation> {
    let logs = &control.logs;
    let nobody = ReplicaId::generate();
    for from in [LogFrom::Last(1), LogFrom::After(0)] {
        refused(
            "a replica that nobody knows has no log",
            Code::NotFound,
            logs.read_log(nobody, from, Duration::ZERO).await,
        )?;
    }
    for view in done("replicas", control.fleet.replicas(None).await)? {
        let last = logs.read_log(view.id, LogFrom::Last(2), Duration::ZERO);
        let last = match last.await {
            // Its node can't be asked, or has removed it.
            Err(error) if matches!(error.code, Code::Unavailable | Code::NotFound) => continue,
            other => done("the last lines of a replica", other)?,
        };
        holds(
            "no more lines come than were asked for",
            last.replica == view.id && last.lines.len() <= 2,
            &last,
        )?;
        let mut whole: Vec<String> = Vec::new();
        let mut cursor = 0;
        while cursor < last.cursor {
            let part = logs.read_log(view.id, LogFrom::After(cursor), Duration::ZERO);
            let part = done("a part of a log", part.await)?;
            holds(
                "a part that has something goes on further",
                part.cursor > cursor,
                &part,
            )?;
            cursor = part.cursor;
            whole.extend(part.lines);
        }
        // An engine may write on while it is read.
        holds(
            "parts have the lines that the last ones have",
            cursor > last.cursor || whole.ends_with(&last.lines),
            &(&whole, &last),
        )?;
        let nothing = logs.read_log(view.id, LogFrom::Last(0), Duration::ZERO);
        let nothing = done("none of the last lines", nothing.await)?;
        holds("none is none", nothing.lines.is_empty(), &nothing)?;
    }
    Ok(())
}

/// Checks that two handles tell the same of the logs of all replicas, and of one that is nobody's.
pub(super) async fn same_answers(left: &Control, right: &Control) -> Result<(), Violation> {
    let listed = left.fleet.replicas(None).await.unwrap_or_default();
    let ids = listed.iter().map(|view| view.id);
    let nobody = ReplicaId::generate();
    for id in ids.chain([nobody]) {
        for from in [LogFrom::Last(1), LogFrom::After(0), LogFrom::After(1)] {
            equal(
                "a part of a log",
                &left.logs.read_log(id, from, Duration::ZERO).await,
                &right.logs.read_log(id, from, Duration::ZERO).await,
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{api::log::LogEnded, control::LogReader};

    #[tokio::test(start_paused = true)]
    async fn a_reader_gets_every_line_once_and_waits_for_the_next() {
        let memory = Arc::new(MemoryControl::default());
        let replica = ReplicaId::generate();
        memory.write_log(replica, &["one", "two", "three"]);
        let logs: Arc<dyn Logs> = Arc::<MemoryControl>::clone(&memory);
        let mut reader = LogReader::new(logs, replica, LogFrom::Last(2));
        assert_eq!(reader.now().await.unwrap().lines, ["two", "three"]);
        assert!(reader.now().await.unwrap().is_empty());
        let writing = async {
            // Longer than one question waits.
            tokio::time::sleep(LONGEST_WAIT * 3).await;
            memory.write_log(replica, &["four"]);
        };
        let (part, ()) = tokio::join!(reader.next(), writing);
        assert_eq!(part.unwrap().lines, ["four"]);
        let end = LogEnd {
            reason: LogEnded::Stopped,
            text: "stopped".to_owned(),
        };
        memory.end_log(replica, end.clone());
        assert_eq!(reader.next().await.unwrap().end, Some(end));
    }
}
