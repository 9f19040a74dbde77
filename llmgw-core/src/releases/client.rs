use std::{fmt, time::Duration};

use reqwest::{
    Response, StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH},
};
use tokio::time::{Instant, timeout};

use super::{MAX_ANSWER, ReleaseError, parse, parse_list};
use crate::{
    clock::Timestamp,
    cluster::{release::Release, variant::build_number},
    fetch::{FetchError, FetchTimes, Fetcher},
    units::Bytes,
};

/// Asks a list of releases.
#[derive(Clone)]
pub struct ReleaseClient {
    fetcher: Fetcher,
    base: Url,
    token: Option<String>,
    times: FetchTimes,
}

/// What came of asking for a release.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// It is this, in the state of this entity tag.
    Release {
        /// The release.
        release: Release,
        /// Send it along the next time: an unchanged answer costs nothing of the rate limit.
        etag: Option<String>,
    },
    /// It is as it was in the state of the tag that was sent along.
    Unchanged,
}

impl ReleaseClient {
    /// A client of the list at `base`, such as [`LLMGW's default`](super::LLAMACPP_RELEASES).
    ///
    /// # Errors
    /// When `base` is no address, or the TLS library refuses its own defaults.
    pub fn new(base: &str, times: FetchTimes) -> Result<Self, ReleaseError> {
        let base = crate::fetch::parse(base.trim_end_matches('/'))?;
        Ok(Self {
            fetcher: Fetcher::new(times)?,
            base,
            token: None,
            times,
        })
    }

    /// The same client with a token, which is sent to the host of the list alone.
    #[must_use]
    pub fn with_token(self, token: Option<String>) -> Self {
        Self { token, ..self }
    }

    /// The release of this tag. `etag` is that of an earlier answer.
    ///
    /// Cancel-safe: dropping the future closes the connection.
    ///
    /// # Errors
    /// When there is none, when the API can't be reached or wants to be left alone, and when what it says can't
    /// be right.
    pub async fn by_tag(
        &self,
        tag: &str,
        etag: Option<&str>,
        now: Timestamp,
    ) -> Result<Answer, ReleaseError> {
        let url = self.address(&format!("tags/{}", encoded(tag)))?;
        let (head, body) = match self.ask(&url, etag, now).await? {
            Reply::Found(head, body) => (head, body),
            Reply::Unchanged => return Ok(Answer::Unchanged),
            Reply::Missing => {
                return Err(ReleaseError::NoSuchRelease {
                    tag: tag.to_owned(),
                    url: shown(&self.base),
                });
            }
        };
        let release = parse(&body).map_err(|source| ReleaseError::Malformed {
            url: shown(&url),
            source,
        })?;
        if release.tag != tag {
            return Err(ReleaseError::OtherRelease {
                tag: tag.to_owned(),
                got: release.tag,
                url: shown(&url),
            });
        }
        let etag = head
            .get(ETAG)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        Ok(Answer::Release { release, etag })
    }

    /// The newest of the last releases that carries builds, by number.
    ///
    /// # Errors
    /// As [`Self::by_tag`].
    pub async fn newest(&self, now: Timestamp) -> Result<Release, ReleaseError> {
        let mut url = self.base.clone();
        url.set_query(Some("per_page=20"));
        let missing = || ReleaseError::NoBuilds {
            url: shown(&self.base),
        };
        let Reply::Found(_, body) = self.ask(&url, None, now).await? else {
            return Err(missing());
        };
        let releases = parse_list(&body).map_err(|source| ReleaseError::Malformed {
            url: shown(&url),
            source,
        })?;
        releases
            .into_iter()
            .filter(|release| !release.assets.is_empty())
            .max_by_key(|release| build_number(&release.tag))
            .ok_or_else(missing)
    }

    fn address(&self, rest: &str) -> Result<Url, ReleaseError> {
        Ok(crate::fetch::parse(&format!("{}/{rest}", self.base))?)
    }

    async fn ask(
        &self,
        url: &Url,
        etag: Option<&str>,
        now: Timestamp,
    ) -> Result<Reply, ReleaseError> {
        match timeout(WHOLE, self.follow(url, etag, now)).await {
            Ok(reply) => reply,
            // Byte by byte it would never stall.
            Err(_) => Err(ReleaseError::Fetch(FetchError::Stalled {
                url: shown(url),
                got: Bytes::ZERO,
                after: WHOLE,
            })),
        }
    }

    async fn follow(
        &self,
        url: &Url,
        etag: Option<&str>,
        now: Timestamp,
    ) -> Result<Reply, ReleaseError> {
        let mut at = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send(&at, etag).await?;
            let location = response.headers().get(reqwest::header::LOCATION);
            if let Some(next) = crate::fetch::redirect(&at, response.status(), location)? {
                at = next;
                continue;
            }
            return self.read(response, &at, now).await;
        }
        Err(FetchError::Redirects {
            url: shown(&at),
            limit: MAX_REDIRECTS,
        }
        .into())
    }

    async fn send(&self, url: &Url, etag: Option<&str>) -> Result<Response, ReleaseError> {
        let mut ask = self
            .fetcher
            .client()
            .get(url.clone())
            .header(
                ACCEPT,
                HeaderValue::from_static("application/vnd.github+json"),
            )
            .header(
                HeaderName::from_static("x-github-api-version"),
                HeaderValue::from_static("2022-11-28"),
            );
        if let Some(etag) = etag.and_then(|etag| HeaderValue::try_from(etag).ok()) {
            ask = ask.header(IF_NONE_MATCH, etag);
        }
        let same_host = url.origin() == self.base.origin();
        if let Some(token) = self.token.as_deref().filter(|_| same_host) {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| FetchError::Secret { url: shown(url) })?;
            value.set_sensitive(true);
            ask = ask.header(AUTHORIZATION, value);
        }
        let began = Instant::now();
        let limit = self.times.connect.saturating_add(self.times.stall);
        match timeout(limit, ask.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(source)) if source.is_connect() => Err(FetchError::Unreachable {
                host: url.host_str().unwrap_or_default().to_owned(),
                after: source.is_timeout().then(|| began.elapsed()),
                source: Box::new(source.without_url()),
            }
            .into()),
            Ok(Err(source)) => Err(FetchError::Broken {
                url: shown(url),
                got: Bytes::ZERO,
                source: Box::new(source.without_url()),
            }
            .into()),
            Err(_) => Err(self.stalled(url, Bytes::ZERO).into()),
        }
    }

    async fn read(
        &self,
        mut response: Response,
        url: &Url,
        now: Timestamp,
    ) -> Result<Reply, ReleaseError> {
        let status = response.status();
        match status {
            StatusCode::OK => {}
            StatusCode::NOT_MODIFIED => return Ok(Reply::Unchanged),
            StatusCode::NOT_FOUND => return Ok(Reply::Missing),
            _ => {
                let status = status.as_u16();
                return Err(match limited(status, response.headers(), now) {
                    Some(wait) => ReleaseError::Limited {
                        url: shown(url),
                        status,
                        wait,
                    },
                    None => FetchError::Status {
                        url: shown(url),
                        status,
                    }
                    .into(),
                });
            }
        }
        let head = response.headers().clone();
        let mut body = Vec::new();
        loop {
            let got = Bytes(u64::try_from(body.len()).unwrap_or(u64::MAX));
            match timeout(self.times.stall, response.chunk()).await {
                Err(_) => return Err(self.stalled(url, got).into()),
                Ok(Err(source)) => {
                    return Err(FetchError::Broken {
                        url: shown(url),
                        got,
                        source: Box::new(source.without_url()),
                    }
                    .into());
                }
                Ok(Ok(None)) => return Ok(Reply::Found(head, body)),
                Ok(Ok(Some(chunk))) => {
                    let more = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
                    if got.0.saturating_add(more) > MAX_ANSWER.0 {
                        return Err(FetchError::TooLarge {
                            url: shown(url),
                            limit: MAX_ANSWER,
                        }
                        .into());
                    }
                    body.extend_from_slice(&chunk);
                }
            }
        }
    }

    fn stalled(&self, url: &Url, got: Bytes) -> FetchError {
        FetchError::Stalled {
            url: shown(url),
            got,
            after: self.times.stall,
        }
    }
}

enum Reply {
    Found(HeaderMap, Vec<u8>),
    Unchanged,
    Missing,
}

impl fmt::Debug for ReleaseClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            fetcher: _,
            base,
            token,
            times,
        } = self;
        f.debug_struct("ReleaseClient")
            .field("base", &shown(base))
            .field("token", &token.as_ref().map(|_| "…"))
            .field("times", times)
            .finish()
    }
}

/// How long to wait before the next question, when a refusal is about how often was asked.
///
/// By GitHub's documentation of its REST API ("Best practices", "Handle rate limit errors appropriately"):
/// `retry-after` in seconds comes first; then `x-ratelimit-reset`, in seconds since 1970, when
/// `x-ratelimit-remaining` is 0; else a minute. A 403 without any of these is a refusal of another kind.
fn limited(status: u16, headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    if !matches!(status, 403 | 429) {
        return None;
    }
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    let used_up = number("x-ratelimit-remaining") == Some(0);
    let wait = match number("retry-after") {
        Some(seconds) => Duration::from_secs(seconds),
        None if used_up => {
            let reset = number("x-ratelimit-reset")?.saturating_mul(1_000);
            Timestamp(i64::try_from(reset).unwrap_or(i64::MAX)).since(now)
        }
        None if status == 429 => Duration::from_secs(60),
        None => return None,
    };
    Some(wait.clamp(Duration::from_secs(1), MAX_WAIT))
}

fn shown(url: &Url) -> String {
    crate::fetch::shown(url)
}

/// Percent-encodes all but the unreserved characters of RFC 3986 (section 2.3).
fn encoded(tag: &str) -> String {
    let mut text = String::with_capacity(tag.len());
    for byte in tag.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// A renamed repository answers with one redirect.
const MAX_REDIRECTS: usize = 3;
/// For a whole answer: a list has some hundred kilobytes.
const WHOLE: Duration = Duration::from_secs(60);
/// The API's window is an hour; a longer wait is a clock that is wrong.
const MAX_WAIT: Duration = Duration::from_secs(3_600);
