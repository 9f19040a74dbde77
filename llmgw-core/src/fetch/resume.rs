//! A fetch that goes on where an earlier one has ended, whatever a server says.

use std::io;

use reqwest::{
    Response, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_RANGE},
};
use tokio::time::{sleep, timeout};

use super::{
    FetchError, FetchRequest, Fetched, Fetcher,
    note::{Note, Version},
    partial::Partial,
    range::ContentRange,
    shown,
};
use crate::{error::Chain, fingerprint::Fingerprint, units::Bytes};

/// What a long fetch asks and tells while it goes on.
pub struct Watch<'a, E> {
    /// Whether there is room for so many more bytes. Asked before the first, and again every [`ASK_ROOM_EVERY`]; an
    /// error ends the fetch, and what is there stays to be continued.
    pub room: &'a (dyn Fn(Bytes) -> Result<(), E> + Send + Sync),
    /// Is told how many bytes are there, and how many there will be where that is known.
    pub progress: &'a (dyn Fn(Bytes, Option<Bytes>) + Send + Sync),
}

impl<E> std::fmt::Debug for Watch<'_, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// From where a range is asked for.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub at: Bytes,
    /// The last byte; all that follow when absent.
    pub to: Option<Bytes>,
    /// Only if it still is this version.
    pub version: Option<Version>,
}

/// What an answer turned out to be.
#[derive(Debug)]
enum Answer {
    /// The bytes that come next.
    Continues(Response, String),
    /// The whole from its beginning.
    Whole(Response, String),
    /// There are no more bytes than those that are there.
    Complete,
    /// It is of no use to what is there; why, for the log.
    Useless(&'static str),
}

/// How an attempt to read what is missing ended.
enum Ended<E> {
    /// All is there.
    Whole,
    /// It broke off; what is there is good as far as it goes.
    Broke(FetchError),
    /// What is there must not be continued.
    Lie(FetchError),
    /// Nothing more is to be tried; what is there is good as far as it goes.
    Refused(E),
}

impl Fetcher {
    /// Reads `request` into the file at `path`, going on where an earlier call has left it, in this process or in one
    /// that was killed. Returns when all of it is on the disk.
    ///
    /// What is there is read and hashed again first, and continued by a range of the same version (`If-Range`). A
    /// server that answers with the whole, with another part, or with another version makes it begin anew; nothing is
    /// ever appended that does not belong there. With a digest ([`FetchRequest::with_sha256`]) the bytes are compared
    /// with it at the end, and a file that turns out to be wrong after it was continued is fetched anew, once. A file
    /// that is whole already is not asked for at all.
    ///
    /// A connection that breaks or stalls is made again, as long as that brings bytes. Beside the file stands a note
    /// (`.json`); both stay when the fetch breaks off. On success the note is gone, and the file is the caller's to
    /// rename; bytes that are not what they must be leave nothing.
    ///
    /// Cancel-safe: what came before is continued by the next call, which waits until the threads of this one have
    /// ended.
    ///
    /// # Errors
    /// When the host can't be reached, refuses, or gives other bytes than were asked for; when the file can't be
    /// written; and what `watch.room` says.
    pub async fn to_partial<E>(
        &self,
        request: &FetchRequest,
        path: &std::path::Path,
        watch: &Watch<'_, E>,
    ) -> Result<Fetched, E>
    where
        E: From<FetchError>,
    {
        let keep = |source: io::Error| FetchError::Write {
            to: path.display().to_string(),
            source,
        };
        let asked = asked_for(request)?;
        let mut partial = Partial::open(path, asked).await.map_err(keep)?;
        let mut continued = partial.have() > Bytes::ZERO;
        let mut patience = Patience::default();
        loop {
            let before = partial.have();
            match self.read_rest(&mut partial, request, watch, &keep).await {
                Ended::Whole => {}
                Ended::Broke(error) => {
                    let gained = partial.have().saturating_sub(before);
                    if patience.is_over(gained) {
                        partial.leave().await.map_err(keep)?;
                        return Err(error.into());
                    }
                    tracing::info!(error = %Chain(&error), %gained, "a fetch broke off and goes on");
                    sleep(self.times.pause).await;
                    continue;
                }
                Ended::Lie(error) => {
                    partial.discard().await.map_err(keep)?;
                    return Err(error.into());
                }
                Ended::Refused(error) => {
                    // That it could not be written is why it ended, or does not matter beside it.
                    drop(partial.leave().await);
                    return Err(error);
                }
            }
            let bytes = partial.have();
            let sha256 = partial.finish().await.map_err(keep)?;
            let expected = request.sha256.unwrap_or(sha256);
            if sha256 == expected {
                Partial::forget(path).await.map_err(keep)?;
                return Ok(Fetched { bytes, sha256 });
            }
            Partial::remove(path).await.map_err(keep)?;
            if !continued {
                return Err(FetchError::Digest {
                    url: request.shown(),
                    expected,
                    actual: sha256,
                }
                .into());
            }
            // The part that was there may be what is wrong: a disk that lost it in a power cut, or another version.
            continued = false;
            partial = Partial::open(path, asked).await.map_err(keep)?;
        }
    }

    /// Reads what is missing.
    async fn read_rest<E>(
        &self,
        partial: &mut Partial,
        request: &FetchRequest,
        watch: &Watch<'_, E>,
        keep: &(dyn Fn(io::Error) -> FetchError + Send + Sync),
    ) -> Ended<E>
    where
        E: From<FetchError>,
    {
        let known = request.size.or_else(|| partial.note()?.total);
        if known.is_some_and(|total| partial.have() > total)
            && let Err(error) = partial.restart().await
        {
            return Ended::Refused(keep(error).into());
        }
        // Without a digest nobody would notice that the end is missing, or of another version.
        if request.sha256.is_some() && known == Some(partial.have()) {
            return Ended::Whole;
        }
        let mut from = resumable(partial, request);
        let (response, url) = loop {
            let answer = match self.answer(request, from.as_ref(), partial).await {
                Ok(answer) => answer,
                Err(error) if is_passing(&error) => return Ended::Broke(error),
                Err(error) => return Ended::Refused(error.into()),
            };
            match answer {
                Answer::Continues(response, url) => break (response, url),
                Answer::Complete => return Ended::Whole,
                Answer::Whole(response, url) => {
                    if partial.have() > Bytes::ZERO
                        && let Err(error) = partial.restart().await
                    {
                        return Ended::Refused(keep(error).into());
                    }
                    break (response, url);
                }
                // It can't be said of the whole, which is asked for next; what is there stays until that comes.
                Answer::Useless(why) => {
                    tracing::info!(url = request.shown(), why, "a fetch can't be continued");
                    from = None;
                }
            }
        };
        self.read_body(response, url, partial, request, watch, keep)
            .await
    }

    /// Asks, and says what the answer is to what is there.
    async fn answer(
        &self,
        request: &FetchRequest,
        from: Option<&Start>,
        partial: &Partial,
    ) -> Result<Answer, FetchError> {
        let (response, url) = self.follow(request, from).await?;
        let url = shown(&url);
        if let Some(encoding) = encoding(&response) {
            return Err(FetchError::Encoded { url, encoding });
        }
        let range = response
            .headers()
            .get(CONTENT_RANGE)
            .and_then(|value| ContentRange::parse(value.to_str().ok()?));
        match (response.status(), from) {
            (StatusCode::OK, _) => Ok(Answer::Whole(response, url)),
            (StatusCode::PARTIAL_CONTENT, Some(from)) => {
                let Some(ContentRange {
                    span: Some((first, last)),
                    total,
                }) = range
                else {
                    return Ok(Answer::Useless("the answer does not say which part it is"));
                };
                if first != from.at {
                    return Ok(Answer::Useless("the answer is another part"));
                }
                let span = Bytes(last.0 - first.0 + 1);
                if response
                    .content_length()
                    .is_some_and(|length| length != span.0)
                {
                    return Ok(Answer::Useless(
                        "the answer has another length than its part",
                    ));
                }
                let known = request.size.or_else(|| partial.note()?.total);
                if total.is_some() && known.is_some() && total != known {
                    return Ok(Answer::Useless("the answer is of a file of another size"));
                }
                let version = Version::of(response.headers());
                if version.is_some() && from.version.is_some() && version != from.version {
                    return Ok(Answer::Useless("the answer is of another version"));
                }
                Ok(Answer::Continues(response, url))
            }
            (StatusCode::RANGE_NOT_SATISFIABLE, Some(from)) => {
                let total = range.and_then(|range| range.total);
                if request.sha256.is_some() && total == Some(from.at) {
                    return Ok(Answer::Complete);
                }
                Ok(Answer::Useless("the server has no such part"))
            }
            (status, _) => Err(FetchError::Status {
                url,
                status: status.as_u16(),
            }),
        }
    }

    async fn read_body<E>(
        &self,
        mut response: Response,
        url: String,
        partial: &mut Partial,
        request: &FetchRequest,
        watch: &Watch<'_, E>,
        keep: &(dyn Fn(io::Error) -> FetchError + Send + Sync),
    ) -> Ended<E>
    where
        E: From<FetchError>,
    {
        let announced = announced(&response, partial.have());
        if let (Some(expected), Some(got)) = (request.size, announced)
            && expected != got
        {
            return Ended::Lie(FetchError::Length { url, expected, got });
        }
        let total = announced.or(request.size);
        if total.is_some_and(|total| total > request.max) {
            let limit = request.max;
            return Ended::Lie(FetchError::TooLarge { url, limit });
        }
        let note = Note {
            asked: partial.asked(),
            version: Version::of(response.headers()).or_else(|| partial.note()?.version.clone()),
            total,
        };
        if let Err(error) = partial.remember(note).await {
            return Ended::Refused(keep(error).into());
        }
        // How much was there when room was asked for last.
        let mut asked_at = None;
        loop {
            let have = partial.have();
            let since = asked_at.map(|asked_at| have.saturating_sub(asked_at));
            if since.is_none_or(|since| since >= ASK_ROOM_EVERY) {
                let missing = total.map_or(ASK_ROOM_EVERY, |total| total.saturating_sub(have));
                if let Err(error) = (watch.room)(missing) {
                    return Ended::Refused(error);
                }
                asked_at = Some(have);
            }
            (watch.progress)(have, total);
            let stall = self.times.stall;
            let chunk = match timeout(stall, response.chunk()).await {
                Err(_) => {
                    return Ended::Broke(FetchError::Stalled {
                        url,
                        got: have,
                        after: stall,
                    });
                }
                Ok(Err(source)) => {
                    return Ended::Broke(FetchError::Broken {
                        url,
                        got: have,
                        source: Box::new(source.without_url()),
                    });
                }
                Ok(Ok(None)) => break,
                Ok(Ok(Some(chunk))) => chunk,
            };
            let got = have + Bytes(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
            if let Some(expected) = total.filter(|total| got > *total) {
                return Ended::Lie(FetchError::Length { url, expected, got });
            }
            if got > request.max {
                let limit = request.max;
                return Ended::Lie(FetchError::TooLarge { url, limit });
            }
            if let Err(error) = partial.push(chunk).await {
                return Ended::Refused(keep(error).into());
            }
        }
        let got = partial.have();
        match total.filter(|total| got < *total) {
            // Such as a part of the part that was asked for: the rest is asked for next.
            Some(expected) => Ended::Broke(FetchError::Length { url, expected, got }),
            None => Ended::Whole,
        }
    }
}

/// How often a connection may bring next to nothing before it is given up.
#[derive(Debug, Default)]
struct Patience {
    begun: bool,
    poor: u32,
}

impl Patience {
    fn is_over(&mut self, gained: Bytes) -> bool {
        if gained >= A_GAIN {
            self.poor = 0;
        } else {
            self.poor += 1;
        }
        // Who has given nothing at all yet is left for the next source at once.
        self.begun |= gained > Bytes::ZERO;
        !self.begun || self.poor > MOST_POOR
    }
}

/// Where to go on from, if it can be done: when it is known which version is there, or a digest will tell.
fn resumable(partial: &Partial, request: &FetchRequest) -> Option<Start> {
    let version = partial.note().and_then(|note| note.version.clone());
    let can = partial.have() > Bytes::ZERO && (version.is_some() || request.sha256.is_some());
    can.then(|| Start {
        at: partial.have(),
        to: None,
        version,
    })
}

/// The size of the whole, as an answer has announced it that begins after `have` bytes.
fn announced(response: &Response, have: Bytes) -> Option<Bytes> {
    let range = response.headers().get(CONTENT_RANGE);
    let range = range.and_then(|value| ContentRange::parse(value.to_str().ok()?));
    if response.status() != StatusCode::PARTIAL_CONTENT {
        return response.content_length().map(Bytes);
    }
    range
        .and_then(|range| range.total)
        .or_else(|| Some(have + Bytes(response.content_length()?)))
}

/// The encoding of a body, unless it is none.
pub(super) fn encoding(response: &Response) -> Option<String> {
    let encoding = response.headers().get(CONTENT_ENCODING)?;
    let text = encoding.to_str().unwrap_or("unreadable").trim();
    let is_none = text.is_empty() || text.eq_ignore_ascii_case("identity");
    (!is_none).then(|| text.chars().take(40).collect())
}

/// What passes when it is tried again.
fn is_passing(error: &FetchError) -> bool {
    matches!(
        error,
        FetchError::Unreachable { .. } | FetchError::Broken { .. } | FetchError::Stalled { .. }
    )
}

/// Tells requests apart: by the address without its query, which is signed anew each time, and by the digest.
fn asked_for(request: &FetchRequest) -> Result<Fingerprint, FetchError> {
    let url = shown(&super::parse(&request.url)?);
    let digest = request.sha256.map(|digest| digest.to_string());
    let text = format!("{url}\n{}", digest.unwrap_or_default());
    Ok(Fingerprint::of_bytes(text.as_bytes()))
}

/// Room is asked for again after so much: others write to the disk too.
pub const ASK_ROOM_EVERY: Bytes = Bytes::mib(64);
/// Less from one connection is next to nothing.
const A_GAIN: Bytes = Bytes::mib(1);
/// A network that is being repaired, or a server that is being restarted, takes some seconds.
const MOST_POOR: u32 = 4;
