use std::{io, path::PathBuf, time::Duration};

use llmgw_core::{
    error::{Code, Coded},
    fetch::FetchError,
    releases::ReleaseError,
};

use crate::{process::ProcessError, session::fence::FenceError};

/// Says why an agent can't start, or did not end as it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// Its directory, or a file in it, can't be used.
    #[error("{} can't be used", path.display())]
    Directory {
        /// The directory or the file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Another agent has the directory.
    #[error("another agent runs in {}", dir.display())]
    Busy {
        /// The directory.
        dir: PathBuf,
    },
    /// What was followed before can't be told.
    #[error(transparent)]
    Fence(#[from] FenceError),
    /// Processes can't be run.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The downloader can't be set up.
    #[error("setting up the downloader")]
    Fetch(#[from] FetchError),
    /// The list of releases can't be asked.
    #[error(transparent)]
    Releases(#[from] ReleaseError),
    /// Engines did not end in time.
    #[error("engines did not end within {} s", after.as_secs())]
    Unfinished {
        /// How long was waited.
        after: Duration,
    },
}

impl Coded for AgentError {
    fn code(&self) -> Code {
        match self {
            Self::Directory { .. } | Self::Unfinished { .. } => Code::Unavailable,
            Self::Busy { .. } => Code::Conflict,
            Self::Fence(error) => error.code(),
            Self::Process(error) => error.code(),
            Self::Fetch(error) => error.code(),
            Self::Releases(error) => error.code(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Directory { path, source }
                if matches!(
                    source.kind(),
                    io::ErrorKind::InvalidData | io::ErrorKind::FileTooLarge
                ) =>
            {
                Some(format!(
                    "put back what the agent had written to {}; without it, the node is another one",
                    path.display()
                ))
            }
            Self::Directory { .. } => {
                Some("make it writable for this user, or name another data directory".to_owned())
            }
            Self::Busy { .. } => {
                Some("stop the other one, or give this one another data directory".to_owned())
            }
            Self::Fence(error) => error.hint(),
            Self::Process(error) => error.hint(),
            Self::Fetch(error) => error.hint(),
            Self::Releases(error) => error.hint(),
            Self::Unfinished { .. } => {
                Some("the next start of the agent ends what is left of them".to_owned())
            }
        }
    }
}
