use crate::{
    error::{Code, Coded},
    fetch::FetchError,
    units::Bytes,
};

/// Why a hub does not say what weights are.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// It can't be asked.
    #[error(transparent)]
    Fetch(FetchError),
    /// It does not let us have the repository; it answers the same when there is none.
    #[error("{repo} is gated, private, or not there: the hub answered {status}")]
    Gated {
        /// The repository.
        repo: String,
        /// The HTTP status.
        status: u16,
        /// Whether it was asked with a token.
        token: bool,
    },
    /// The repository has no such file.
    #[error("{repo} has no file {path} at {commit}")]
    Missing {
        /// The repository.
        repo: String,
        /// The commit that was looked at.
        commit: String,
        /// The file.
        path: String,
    },
    /// The file has another size than it must have.
    #[error("{path} has {} bytes on the hub, and not {}", found.0, expected.0)]
    Size {
        /// The file.
        path: String,
        /// What it must be.
        expected: Bytes,
        /// What the hub says.
        found: Bytes,
    },
    /// The answer can't be right.
    #[error("what the hub says of {what} can't be right: {problem}")]
    Answer {
        /// Of what.
        what: String,
        /// What is wrong.
        problem: String,
    },
}

impl Coded for HubError {
    fn code(&self) -> Code {
        match self {
            Self::Fetch(error) => error.code(),
            Self::Gated { .. } => Code::PermissionDenied,
            Self::Missing { .. } => Code::NotFound,
            Self::Size { .. } => Code::VerificationFailed,
            Self::Answer { .. } => Code::UpstreamError,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Fetch(error) => error.hint(),
            Self::Gated {
                repo, token: false, ..
            } => Some(format!(
                "accept the terms of {repo} on the hub, and give the control plane a token: weights: {{hub_token_file: FILE}}"
            )),
            Self::Gated {
                repo, token: true, ..
            } => Some(format!(
                "check the spelling, accept the terms of {repo} with the account of the token, and see that the token may read it"
            )),
            Self::Missing { .. } => {
                Some("check the spelling of the file and its revision".to_owned())
            }
            Self::Size { .. } => Some("check the size of the model, or leave it out".to_owned()),
            Self::Answer { .. } => None,
        }
    }
}
