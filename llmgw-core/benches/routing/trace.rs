//! Reading a trace.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader},
    path::Path,
};

use serde::Deserialize;

/// Tokens of a block.
pub(crate) const BLOCK: u64 = 512;

/// A prompt that comes.
#[derive(Debug, Deserialize)]
pub(crate) struct Request {
    /// Milliseconds since the trace began.
    #[serde(rename = "timestamp")]
    pub(crate) at: u64,
    /// Tokens of the prompt.
    #[serde(rename = "input_length")]
    pub(crate) tokens: u64,
    /// Its blocks.
    #[serde(rename = "hash_ids")]
    pub(crate) blocks: Vec<u64>,
}

pub(crate) fn read(path: &Path) -> io::Result<Vec<Request>> {
    let about = |what: String| io::Error::other(format!("{}: {what}", path.display()));
    let file = File::open(path).map_err(|error| about(error.to_string()))?;
    let mut requests: Vec<Request> = Vec::new();
    for (number, line) in (1_u32..).zip(BufReader::new(file).lines()) {
        let request: Request = serde_json::from_str(&line?)
            .map_err(|error| about(format!("line {number}: {error}")))?;
        if requests.last().is_some_and(|last| last.at > request.at) {
            return Err(about(format!(
                "line {number}: earlier than the line before it"
            )));
        }
        requests.push(request);
    }
    if requests.is_empty() {
        return Err(about("there is no request in it".to_owned()));
    }
    Ok(requests)
}
