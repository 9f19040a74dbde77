//! One downloader: it reads an address once, hashes while it reads, and stops at limits.
//!
//! A server is not trusted: its body is counted against what it announced and against what the caller allows,
//! a redirect may not leave TLS and takes no `Authorization` to another host, and each wait has an end. What
//! the bytes must be is for the caller to compare; the digest comes with them.
//!
//! [`Fetcher::open`] reads an address once, [`Fetcher::to_partial`] as often as it takes, going on where an earlier
//! life has left it, and [`Fetcher::header`] reads no more than a file's beginning. [`hub`] asks a hub which files
//! there are.
//!
//! Proxies come from the environment (`HTTPS_PROXY`, `NO_PROXY` and their like), certificates from the
//! operating system. There is one TLS provider, ring.
//!
//! ```no_run
//! use llmgw_core::fetch::{FetchRequest, Fetcher, FetchTimes};
//!
//! # async fn example() -> Result<(), llmgw_core::fetch::FetchError> {
//! let fetcher = Fetcher::new(FetchTimes::default())?;
//! let download = fetcher.open(&FetchRequest::new("https://example.com/model.gguf")).await?;
//! let fetched = download.to_file("model.gguf.partial".as_ref(), &|_| ()).await?;
//! println!("{} of sha256 {}", fetched.bytes, fetched.sha256);
//! # Ok(())
//! # }
//! ```

use std::{fmt, sync::Arc, time::Duration};

use reqwest::{
    Client, RequestBuilder, Response, StatusCode, Url,
    header::{
        ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderValue, IF_RANGE, LOCATION, RANGE,
    },
    redirect::Policy,
};
use rustls::{ClientConfig, RootCertStore};
use tokio::time::{Instant, timeout};

pub use self::{
    download::{Download, Fetched},
    error::FetchError,
    resume::{ASK_ROOM_EVERY, Watch},
};
use crate::{cluster::weights::Sha256Digest, units::Bytes};

pub mod beginning;
mod download;
mod error;
pub mod hub;
mod note;
mod partial;
mod range;
mod resume;

/// Reads addresses. Cheap to clone; connections are shared between clones.
#[derive(Clone, Debug)]
pub struct Fetcher {
    client: Client,
    times: FetchTimes,
}

/// How long a fetch waits for what.
#[derive(Clone, Copy, Debug)]
pub struct FetchTimes {
    /// For a connection: finding the address, TCP and TLS together.
    pub connect: Duration,
    /// For the next bytes, and for the answer's head once a connection stands.
    pub stall: Duration,
    /// Before a connection that broke off is made again.
    pub pause: Duration,
}

/// What is to be read.
#[derive(Clone)]
#[non_exhaustive]
pub struct FetchRequest {
    /// The address, `https://` or `http://`.
    pub url: String,
    /// Sent as `Authorization: Bearer`, to the host of `url` alone.
    pub bearer: Option<String>,
    /// The size that the body must have, where it is known.
    pub size: Option<Bytes>,
    /// The digest that the body must have, where it is known. [`Fetcher::to_partial`] compares it; for all else that is
    /// the caller's.
    pub sha256: Option<Sha256Digest>,
    /// The most bytes that are read.
    pub max: Bytes,
}

// === impl Fetcher ===

impl Fetcher {
    /// A fetcher with the operating system's certificates and the environment's proxies.
    ///
    /// # Errors
    /// When the TLS library refuses its own defaults.
    pub fn new(times: FetchTimes) -> Result<Self, FetchError> {
        let mut roots = RootCertStore::empty();
        // A machine may hold certificates that can't be read; the others serve. With none at all, `https://`
        // fails at the handshake and says so, and `http://` still works.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|source| FetchError::Setup {
                source: Box::new(source),
            })?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .connect_timeout(times.connect)
            .redirect(Policy::none())
            .user_agent(concat!("llmgw/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|source| FetchError::Setup {
                source: Box::new(source),
            })?;
        Ok(Self { client, times })
    }

    /// The connections, for those who read an answer's head too.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Asks for `request`, follows redirects, and returns when the head of the answer is there.
    ///
    /// Cancel-safe: dropping the future closes the connection.
    ///
    /// # Errors
    /// When the host can't be reached, when it refuses, or when what it announces is not what was asked for.
    pub async fn open(&self, request: &FetchRequest) -> Result<Download, FetchError> {
        let (response, url) = self.follow(request, None).await?;
        Download::check(response, &url, request.size, request.max, self.times.stall)
    }

    /// Posts a JSON text and reads the answer, of at most `max` bytes. No redirect is followed.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`Download::write_to`].
    pub async fn post(&self, request: &FetchRequest, json: String) -> Result<Vec<u8>, FetchError> {
        let url = parse(&request.url)?;
        let ask = self
            .client
            .post(url.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(json);
        let response = self.send(ask, &url, request.bearer.as_deref()).await?;
        Download::check(response, &url, None, request.max, self.times.stall)?
            .read()
            .await
    }

    /// Asks, and follows redirects: the answer that is none, and the address that gave it.
    async fn follow(
        &self,
        request: &FetchRequest,
        from: Option<&resume::Start>,
    ) -> Result<(Response, Url), FetchError> {
        let mut url = parse(&request.url)?;
        let origin = url.origin();
        for _ in 0..=MAX_REDIRECTS {
            let bearer = request.bearer.as_deref().filter(|_| url.origin() == origin);
            let mut ask = self.client.get(url.clone());
            if let Some(resume::Start { at, to, version }) = from {
                let to = to.map_or_else(String::new, |to| to.0.to_string());
                ask = ask.header(RANGE, format!("bytes={}-{to}", at.0));
                if let Some(version) = version {
                    ask = ask.header(IF_RANGE, version.text());
                }
            }
            let response = self.send(ask, &url, bearer).await?;
            let location = response.headers().get(LOCATION);
            if let Some(next) = redirect(&url, response.status(), location)? {
                url = next;
                continue;
            }
            return Ok((response, url));
        }
        Err(FetchError::Redirects {
            url: shown(&url),
            limit: MAX_REDIRECTS,
        })
    }

    async fn send(
        &self,
        ask: RequestBuilder,
        url: &Url,
        bearer: Option<&str>,
    ) -> Result<Response, FetchError> {
        // The bytes that are hashed are the file's own.
        let mut ask = ask.header(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(secret) = bearer {
            let mut value = HeaderValue::try_from(format!("Bearer {secret}"))
                .map_err(|_| FetchError::Secret { url: shown(url) })?;
            value.set_sensitive(true);
            ask = ask.header(AUTHORIZATION, value);
        }
        let began = Instant::now();
        let limit = self.times.connect.saturating_add(self.times.stall);
        match timeout(limit, ask.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(source)) if source.is_connect() => Err(FetchError::Unreachable {
                host: host(url),
                after: source.is_timeout().then(|| began.elapsed()),
                source: Box::new(source.without_url()),
            }),
            Ok(Err(source)) => Err(FetchError::Broken {
                url: shown(url),
                got: Bytes::ZERO,
                source: Box::new(source.without_url()),
            }),
            Err(_) => Err(FetchError::Stalled {
                url: shown(url),
                got: Bytes::ZERO,
                after: self.times.stall,
            }),
        }
    }
}

// === impl FetchTimes ===

impl Default for FetchTimes {
    /// 2.5 s for a connection, so that an unreachable host costs less than three; 30 s for the next bytes; 2 s before
    /// a broken connection is made again.
    fn default() -> Self {
        Self {
            connect: Duration::from_millis(2_500),
            stall: Duration::from_secs(30),
            pause: Duration::from_secs(2),
        }
    }
}

// === impl FetchRequest ===

impl FetchRequest {
    /// A request for `url` without a secret, of any size up to 2 TiB.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            bearer: None,
            size: None,
            sha256: None,
            max: MAX_BODY,
        }
    }

    /// The same request, refusing a body of another size.
    #[must_use]
    pub fn with_size(self, size: Option<Bytes>) -> Self {
        Self { size, ..self }
    }

    /// The same request, for a body of this digest.
    #[must_use]
    pub fn with_sha256(self, sha256: Option<Sha256Digest>) -> Self {
        Self { sha256, ..self }
    }

    /// The same request, reading no more than `max`.
    #[must_use]
    pub fn with_max(self, max: Bytes) -> Self {
        Self { max, ..self }
    }

    /// The same request with a secret for the host of the address.
    #[must_use]
    pub fn with_bearer(self, bearer: Option<String>) -> Self {
        Self { bearer, ..self }
    }

    /// The address as it may stand in logs.
    fn shown(&self) -> String {
        Url::parse(&self.url)
            .map_or_else(|_| "an address that is none".to_owned(), |url| shown(&url))
    }
}

impl fmt::Debug for FetchRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            url,
            bearer,
            size,
            sha256,
            max,
        } = self;
        f.debug_struct("FetchRequest")
            .field("url", &Url::parse(url).as_ref().map(shown))
            .field("bearer", &bearer.as_ref().map(|_| "…"))
            .field("size", size)
            .field("sha256", sha256)
            .field("max", max)
            .finish()
    }
}

pub(crate) fn parse(text: &str) -> Result<Url, FetchError> {
    let url = Url::parse(text).map_err(|source| FetchError::Address {
        source: Box::new(source),
    })?;
    if matches!(url.scheme(), "http" | "https") {
        Ok(url)
    } else {
        Err(FetchError::Scheme { url: shown(&url) })
    }
}

/// Where an answer sends us on to, if it does.
pub(crate) fn redirect(
    from: &Url,
    status: StatusCode,
    location: Option<&HeaderValue>,
) -> Result<Option<Url>, FetchError> {
    let status = status.as_u16();
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let to = location
        .and_then(|value| value.to_str().ok())
        .and_then(|location| from.join(location).ok())
        .ok_or_else(|| FetchError::Status {
            url: shown(from),
            status,
        })?;
    match (from.scheme(), to.scheme()) {
        (_, "https") | ("http", "http") => Ok(Some(to)),
        (_, "http") => Err(FetchError::Downgrade {
            from: shown(from),
            to: shown(&to),
        }),
        _ => Err(FetchError::Scheme { url: shown(&to) }),
    }
}

/// An address as it may stand in logs: signed addresses carry secrets in the query, others before the host.
pub(crate) fn shown(url: &Url) -> String {
    format!("{}://{}{}", url.scheme(), host(url), url.path())
}

fn host(url: &Url) -> String {
    let name = url.host_str().unwrap_or_default();
    url.port()
        .map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"))
}

/// Hubs send a download through two or three hosts; more than ten is a loop.
const MAX_REDIRECTS: usize = 10;
/// Larger than any published file of weights: a server without an end is stopped somewhere.
const MAX_BODY: Bytes = Bytes::gib(2_048);

#[cfg(test)]
mod tests;
