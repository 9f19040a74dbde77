//! The beginning of a file, as far as its header goes.

use reqwest::{
    StatusCode,
    header::{CONTENT_RANGE, HeaderMap},
};
use tokio::time::timeout;

use super::{
    FetchError, FetchRequest, Fetcher,
    note::Version,
    range::ContentRange,
    resume::{Start, encoding},
    shown,
};
use crate::{
    header::{Progress, ReadError},
    units::Bytes,
};

impl Fetcher {
    /// Reads the beginning of `request`, until `parse` is done, and no more than a connection has under way; `parse`
    /// bounds how much that can be. Gives what was parsed and the size of the whole file, where the server says it.
    ///
    /// Asks by ranges of 4 MiB; a server that answers with the whole is left after the header.
    ///
    /// # Errors
    /// When the bytes can't be had, end before the header does, or are refused by `parse`.
    pub async fn header<T, E>(
        &self,
        request: &FetchRequest,
        mut parse: impl FnMut(&[u8]) -> Result<Progress<T>, E>,
    ) -> Result<(T, Option<Bytes>), ReadError<HeaderError<E>>> {
        let fetch = |error| ReadError::Broken(HeaderError::Fetch(error));
        let mut bytes: Vec<u8> = Vec::new();
        let mut wanted: u64 = 1;
        let mut version: Option<Version> = None;
        let mut size = None;
        loop {
            let have = length(&bytes);
            let from = Start {
                at: Bytes(have),
                to: Some(Bytes(have.saturating_add(STEP - 1))),
                version: version.clone(),
            };
            let (mut response, url) = self.follow(request, Some(&from)).await.map_err(fetch)?;
            let url = shown(&url);
            if let Some(encoding) = encoding(&response) {
                return Err(fetch(FetchError::Encoded { url, encoding }));
            }
            match response.status() {
                StatusCode::OK => {
                    bytes.clear();
                    size = response.content_length().map(Bytes);
                }
                StatusCode::PARTIAL_CONTENT => match span(response.headers()) {
                    Some((first, total)) if first.0 == have => size = total.or(size),
                    _ => {
                        let expected = Bytes(have);
                        let got = span(response.headers()).map_or(Bytes::ZERO, |(first, _)| first);
                        return Err(fetch(FetchError::Length { url, expected, got }));
                    }
                },
                StatusCode::RANGE_NOT_SATISFIABLE => {
                    return Err(ReadError::Truncated { have, need: wanted });
                }
                status => {
                    let status = status.as_u16();
                    return Err(fetch(FetchError::Status { url, status }));
                }
            }
            version = Version::of(response.headers());
            let begun = length(&bytes);
            loop {
                if length(&bytes) >= wanted {
                    match parse(&bytes)
                        .map_err(|error| ReadError::Broken(HeaderError::Parse(error)))?
                    {
                        Progress::Done(done) => return Ok((done, size)),
                        // The buffer at least doubles, so that all parsing costs no more than about twice the last.
                        Progress::NeedMore { bytes: need } => {
                            wanted = need.max(length(&bytes).saturating_mul(2));
                        }
                    }
                }
                let chunk = timeout(self.times.stall, response.chunk()).await;
                match chunk {
                    Ok(Ok(Some(chunk))) => bytes.extend_from_slice(&chunk),
                    Ok(Ok(None)) => break,
                    Ok(Err(source)) => {
                        return Err(fetch(FetchError::Broken {
                            url,
                            got: Bytes(length(&bytes)),
                            source: Box::new(source.without_url()),
                        }));
                    }
                    Err(_) => {
                        return Err(fetch(FetchError::Stalled {
                            url,
                            got: Bytes(length(&bytes)),
                            after: self.times.stall,
                        }));
                    }
                }
            }
            // The end of this part. What there is may do, though less than was hoped for.
            let have = length(&bytes);
            match parse(&bytes).map_err(|error| ReadError::Broken(HeaderError::Parse(error)))? {
                Progress::Done(done) => return Ok((done, size)),
                Progress::NeedMore { bytes: need } => {
                    let is_all = size.is_some_and(|size| have >= size.0) || have == begun;
                    if is_all || response.status() == StatusCode::OK {
                        return Err(ReadError::Truncated { have, need });
                    }
                    wanted = need;
                }
            }
        }
    }
}

/// Why a header could not be had.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError<E> {
    /// The bytes could not be had.
    #[error(transparent)]
    Fetch(FetchError),
    /// They are no header.
    #[error(transparent)]
    Parse(E),
}

/// Most headers fit in; those with a large vocabulary take two or three.
const STEP: u64 = 4 << 20;

fn span(headers: &HeaderMap) -> Option<(Bytes, Option<Bytes>)> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    let range = ContentRange::parse(text)?;
    Some((range.span?.0, range.total))
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
