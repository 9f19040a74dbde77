//! What every error answers: which [`Code`] it has, whose [`Fault`] it is, whether to [`Retry`].
//!
//! An error's `Display` says its own level only; [`Chain`] prints it with all its causes. Secrets and prompts
//! stand in neither.

use std::{error::Error, fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// A stable name for a kind of failure, as programs compare it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Code {
    /// The request can't be right, whoever sends it.
    InvalidRequest,
    /// The body is not JSON.
    InvalidJson,
    /// A field that must be there is missing.
    MissingField,
    /// The body is larger than the limit.
    RequestTooLarge,
    /// No key, or one that is not known.
    InvalidApiKey,
    /// The key or token does not allow this.
    PermissionDenied,
    /// The key does not allow this model.
    ModelNotAllowed,
    /// A rule of the guard forbids what the call or its answer says.
    ContentPolicyViolation,
    /// No model of that name or alias.
    ModelNotFound,
    /// No such path.
    UnknownUrl,
    /// The path exists, for another method.
    MethodNotAllowed,
    /// No such object.
    NotFound,
    /// The object exists already, or the state does not allow the change.
    Conflict,
    /// So much can't be asked for at once.
    RateLimitExceeded,
    /// A budget is spent.
    BudgetExceeded,
    /// Whether a budget is spent can't be told now.
    BudgetUnavailable,
    /// The model is not placed because it fits nowhere.
    ModelUnplaceable,
    /// The model failed to start too often and is not tried again by itself.
    ModelParked,
    /// The model is being fetched or started.
    ModelLoading,
    /// The model is switched off: it is to have no replicas.
    ModelOff,
    /// A call has waited for its model for as long as one may.
    ActivationTimeout,
    /// A bounded queue is full.
    QueueFull,
    /// The engine answered with an error.
    UpstreamError,
    /// The engine's answer broke off.
    UpstreamDisconnected,
    /// The engine did not answer in time.
    UpstreamTimeout,
    /// This process is stopping.
    ShuttingDown,
    /// What is needed can't be reached now.
    Unavailable,
    /// Another holder has taken over; the write was not made.
    Fenced,
    /// There is no store that would keep what was written over a restart.
    NoStore,
    /// Bytes are not what they should be.
    VerificationFailed,
    /// Our own mistake.
    Internal,
}

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The caller asked for something that can't be.
    Caller,
    /// Something that we depend on failed.
    Upstream,
    /// We failed.
    Internal,
}

/// Whether asking again can help.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Retry {
    /// The same request will fail again.
    Never,
    /// The same request may succeed, at the caller's own pace.
    Now,
    /// The same request may succeed after this time.
    After(Duration),
}

/// An error that can say what it is to a program.
pub trait Coded: Error {
    /// The stable name of this kind of failure.
    fn code(&self) -> Code;

    /// Whose fault it is; by default what the code implies.
    fn fault(&self) -> Fault {
        self.code().fault()
    }

    /// Whether to ask again; by default what the code implies.
    fn retry(&self) -> Retry {
        self.code().retry()
    }

    /// What would help, in a short sentence without a period.
    fn hint(&self) -> Option<String> {
        None
    }
}

/// Shows an error and all its causes on one line: `reading a.json: permission denied`.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a>(pub &'a dyn Error);

// === impl Code ===

impl Code {
    /// The code as it stands in bodies and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::InvalidJson => "invalid_json",
            Self::MissingField => "missing_field",
            Self::RequestTooLarge => "request_too_large",
            Self::InvalidApiKey => "invalid_api_key",
            Self::PermissionDenied => "permission_denied",
            Self::ModelNotAllowed => "model_not_allowed",
            Self::ContentPolicyViolation => "content_policy_violation",
            Self::ModelNotFound => "model_not_found",
            Self::UnknownUrl => "unknown_url",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::RateLimitExceeded => "rate_limit_exceeded",
            Self::BudgetExceeded => "budget_exceeded",
            Self::BudgetUnavailable => "budget_unavailable",
            Self::ModelUnplaceable => "model_unplaceable",
            Self::ModelParked => "model_parked",
            Self::ModelLoading => "model_loading",
            Self::ModelOff => "model_off",
            Self::ActivationTimeout => "activation_timeout",
            Self::QueueFull => "queue_full",
            Self::UpstreamError => "upstream_error",
            Self::UpstreamDisconnected => "upstream_disconnected",
            Self::UpstreamTimeout => "upstream_timeout",
            Self::ShuttingDown => "shutting_down",
            Self::Unavailable => "unavailable",
            Self::Fenced => "fenced",
            Self::NoStore => "no_store",
            Self::VerificationFailed => "verification_failed",
            Self::Internal => "internal",
        }
    }

    /// Whose fault such a failure is.
    #[must_use]
    pub fn fault(self) -> Fault {
        match self {
            Self::InvalidRequest
            | Self::InvalidJson
            | Self::MissingField
            | Self::RequestTooLarge
            | Self::InvalidApiKey
            | Self::PermissionDenied
            | Self::ModelNotAllowed
            | Self::ContentPolicyViolation
            | Self::ModelNotFound
            | Self::UnknownUrl
            | Self::MethodNotAllowed
            | Self::NotFound
            | Self::Conflict
            | Self::RateLimitExceeded
            | Self::BudgetExceeded
            | Self::NoStore => Fault::Caller,
            Self::UpstreamError
            | Self::UpstreamDisconnected
            | Self::UpstreamTimeout
            | Self::Unavailable
            | Self::BudgetUnavailable
            | Self::VerificationFailed => Fault::Upstream,
            Self::ModelUnplaceable
            | Self::ModelParked
            | Self::ModelLoading
            | Self::ModelOff
            | Self::ActivationTimeout
            | Self::QueueFull
            | Self::ShuttingDown
            | Self::Fenced
            | Self::Internal => Fault::Internal,
        }
    }

    /// Whether asking again can help with such a failure.
    #[must_use]
    pub fn retry(self) -> Retry {
        match self {
            Self::ModelLoading => Retry::After(Duration::from_secs(2)),
            Self::QueueFull
            | Self::ShuttingDown
            | Self::Unavailable
            | Self::RateLimitExceeded
            | Self::BudgetUnavailable => Retry::After(Duration::from_secs(1)),
            Self::UpstreamError
            | Self::UpstreamDisconnected
            | Self::UpstreamTimeout
            | Self::ActivationTimeout
            | Self::Fenced
            | Self::Internal => Retry::Now,
            Self::InvalidRequest
            | Self::InvalidJson
            | Self::MissingField
            | Self::RequestTooLarge
            | Self::InvalidApiKey
            | Self::PermissionDenied
            | Self::ModelNotAllowed
            | Self::ContentPolicyViolation
            | Self::ModelNotFound
            | Self::UnknownUrl
            | Self::MethodNotAllowed
            | Self::NoStore
            | Self::NotFound
            | Self::Conflict
            | Self::BudgetExceeded
            | Self::ModelUnplaceable
            | Self::ModelParked
            | Self::ModelOff
            | Self::VerificationFailed => Retry::Never,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Chain ===

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(cause) = next {
            write!(f, ": {cause}")?;
            next = cause.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("reading the key")]
    struct Outer(#[source] fmt::Error);

    #[test]
    fn a_chain_says_each_level_once() {
        let error = Outer(fmt::Error);
        let inner = fmt::Error.to_string();
        assert_eq!(
            Chain(&error).to_string(),
            format!("reading the key: {inner}")
        );
    }

    #[test]
    fn a_code_reads_the_same_in_json_and_in_text() {
        for code in [
            Code::InvalidJson,
            Code::ModelNotFound,
            Code::UnknownUrl,
            Code::Internal,
        ] {
            let json = serde_json::to_value(code).unwrap();
            assert_eq!(json, code.as_str());
        }
    }
}
