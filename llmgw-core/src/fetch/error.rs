use std::{error::Error, io, time::Duration};

use crate::{
    cluster::weights::Sha256Digest,
    error::{Code, Coded},
    units::Bytes,
};

/// Why an address could not be read. Addresses are shown without query and without secrets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The fetcher itself could not be made.
    #[error("setting up the downloader")]
    Setup {
        /// What the library said.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The text is no address.
    #[error("the address can't be read")]
    Address {
        /// What is wrong with it.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The address is neither `https://` nor `http://`.
    #[error("{url} is not an address that can be fetched")]
    Scheme {
        /// The address.
        url: String,
    },
    /// The secret can't stand in a header.
    #[error("the secret for {url} has characters that can't be sent")]
    Secret {
        /// The address.
        url: String,
    },
    /// No connection came about: no such host, nobody listens, no TLS, or no answer in time.
    #[error("{host} could not be reached{}", in_seconds(*after))]
    Unreachable {
        /// Which host.
        host: String,
        /// How long it was waited for, when that is why.
        after: Option<Duration>,
        /// What the connection said.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The server answered with another status than 200.
    #[error("{url} answered {status}")]
    Status {
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// A redirect leads from `https://` to `http://`.
    #[error("{from} redirects to {to}, which is not protected by TLS")]
    Downgrade {
        /// The address that redirects.
        from: String,
        /// Where to.
        to: String,
    },
    /// Redirects lead nowhere.
    #[error("{url} is the end of more than {limit} redirects")]
    Redirects {
        /// The last address.
        url: String,
        /// How many are followed.
        limit: usize,
    },
    /// The body is larger than allowed.
    #[error("{url} is larger than {limit}")]
    TooLarge {
        /// The address.
        url: String,
        /// The most that is read.
        limit: Bytes,
    },
    /// The body has, or announces, another size than it must have.
    #[error("{url} gives {} bytes and not {}", got.0, expected.0)]
    Length {
        /// The address.
        url: String,
        /// What it must be.
        expected: Bytes,
        /// What came, or what was announced.
        got: Bytes,
    },
    /// The body is encoded, though the file's own bytes were asked for.
    #[error("{url} answers with {encoding}, and not with the bytes of the file")]
    Encoded {
        /// The address.
        url: String,
        /// How it is encoded.
        encoding: String,
    },
    /// The body is not what it must be.
    #[error("{url} gives other bytes: sha256 {actual}, not the expected {expected}")]
    Digest {
        /// The address.
        url: String,
        /// What it must be.
        expected: Sha256Digest,
        /// What it is.
        actual: Sha256Digest,
    },
    /// Nothing came for too long.
    #[error("{url} sent nothing for {after:?}, after {got}")]
    Stalled {
        /// The address.
        url: String,
        /// What had come before.
        got: Bytes,
        /// How long it was waited for.
        after: Duration,
    },
    /// The connection broke.
    #[error("{url} broke off after {got}")]
    Broken {
        /// The address.
        url: String,
        /// What had come before.
        got: Bytes,
        /// What the connection said.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// What came could not be written.
    #[error("writing {to}")]
    Write {
        /// The file, or what stands for it.
        to: String,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
}

impl Coded for FetchError {
    fn code(&self) -> Code {
        match self {
            Self::Address { .. } | Self::Scheme { .. } | Self::Secret { .. } => {
                Code::InvalidRequest
            }
            Self::Unreachable { .. } => Code::Unavailable,
            Self::Status { status, .. } => match status {
                404 | 410 => Code::NotFound,
                401 | 403 => Code::PermissionDenied,
                429 | 500..=599 => Code::Unavailable,
                _ => Code::UpstreamError,
            },
            Self::Redirects { .. } => Code::UpstreamError,
            Self::Downgrade { .. }
            | Self::TooLarge { .. }
            | Self::Length { .. }
            | Self::Encoded { .. }
            | Self::Digest { .. } => Code::VerificationFailed,
            Self::Stalled { .. } => Code::UpstreamTimeout,
            Self::Broken { .. } => Code::UpstreamDisconnected,
            Self::Setup { .. } | Self::Write { .. } => Code::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Unreachable { .. } => "check the network, DNS and HTTPS_PROXY of this machine",
            Self::Status {
                status: 401 | 403, ..
            } => "the file is private or gated; name a source that needs no token",
            Self::Status { status: 404, .. } => {
                "check the spelling of the address and its revision"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

fn in_seconds(after: Option<Duration>) -> String {
    after.map_or_else(String::new, |after| {
        format!(" ({:.1} s)", after.as_secs_f64())
    })
}
