use std::time::Duration;

use super::ParseError;
use crate::{
    error::{Code, Coded, Retry},
    fetch::FetchError,
};

/// Why a release could not be looked up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// There is none of that name.
    #[error("there is no release {tag} at {url}")]
    NoSuchRelease {
        /// The tag.
        tag: String,
        /// The list.
        url: String,
    },
    /// What came is another release.
    #[error("{url} was asked for the release {tag} and describes {got}")]
    OtherRelease {
        /// What was asked for.
        tag: String,
        /// What came.
        got: String,
        /// The address.
        url: String,
    },
    /// None of the last releases carries a build for Linux.
    #[error("none of the last releases at {url} carries a build for Linux")]
    NoBuilds {
        /// The list.
        url: String,
    },
    /// The API wants to be asked less often.
    #[error("{url} answered {status}: its rate limit is used up{}", until(*wait))]
    Limited {
        /// The address.
        url: String,
        /// 403 or 429.
        status: u16,
        /// When it may be asked again.
        wait: Duration,
    },
    /// What came is no release.
    #[error("{url} does not describe a release")]
    Malformed {
        /// The address.
        url: String,
        /// What is wrong with it.
        #[source]
        source: ParseError,
    },
    /// The answer could not be had.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

impl Coded for ReleaseError {
    fn code(&self) -> Code {
        match self {
            Self::NoSuchRelease { .. } | Self::NoBuilds { .. } => Code::NotFound,
            Self::Limited { .. } => Code::Unavailable,
            Self::Malformed { .. } | Self::OtherRelease { .. } => Code::UpstreamError,
            Self::Fetch(error) => error.code(),
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Limited { wait, .. } => Retry::After(*wait),
            _ => self.code().retry(),
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoSuchRelease { .. } => "check the version: it is a tag such as b10991",
            Self::NoBuilds { .. } => "name a version that has builds, or use the source wheel",
            Self::Limited { .. } => {
                "wait, or let the control plane have a token of GitHub: the limit is per address without one"
            }
            Self::Malformed { .. } | Self::OtherRelease { .. } => {
                "a proxy may have answered instead; name a mirror, or use the source wheel"
            }
            Self::Fetch(error) => return error.hint(),
        };
        Some(hint.to_owned())
    }
}

fn until(wait: Duration) -> String {
    match wait.as_secs() {
        seconds @ 0..120 => format!("; again in {seconds} s"),
        seconds => format!("; again in {} min", seconds.div_ceil(60)),
    }
}
