//! Events as they come: server-sent events, line by line, each bounded.

use async_trait::async_trait;
use reqwest::{Response, Url};

use super::answer;
use crate::{
    api::event::Event,
    control::{ControlError, Following},
    error::Code,
};

/// Reads the events of one answer.
#[derive(Debug)]
pub(super) struct Reader {
    base: Url,
    response: Response,
    /// What has come of a line.
    line: Vec<u8>,
    /// Whole lines that were not looked at yet.
    rest: Vec<u8>,
}

// === impl Reader ===

impl Reader {
    pub(super) fn of(base: Url, response: Response) -> Self {
        Self {
            base,
            response,
            line: Vec::new(),
            rest: Vec::new(),
        }
    }

    /// The next whole line of what has come; `None` when more has to come first.
    fn next_line(&mut self) -> Option<Vec<u8>> {
        let end = self.rest.iter().position(|byte| *byte == b'\n');
        let (taken, found) = match end {
            Some(end) => (end + 1, true),
            None => (self.rest.len(), false),
        };
        self.line.extend(self.rest.drain(..taken));
        found.then(|| std::mem::take(&mut self.line))
    }
}

#[async_trait]
impl Following for Reader {
    async fn next(&mut self) -> Option<Result<Event, ControlError>> {
        loop {
            while let Some(line) = self.next_line() {
                let Some(data) = line.strip_prefix(b"data:") else {
                    continue;
                };
                let read = serde_json::from_slice(data);
                return Some(read.map_err(|error| {
                    let message = format!("an event was not understood: {error}");
                    ControlError::new(Code::UpstreamError, message)
                }));
            }
            if self.line.len() > MAX_LINE {
                let message = "an event is larger than 1 MiB";
                return Some(Err(ControlError::new(Code::UpstreamError, message)));
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.rest.extend_from_slice(&chunk),
                Ok(None) => return None,
                Err(error) => return Some(Err(answer::unreachable(&self.base, &error))),
            }
        }
    }
}

const MAX_LINE: usize = 1 << 20;
