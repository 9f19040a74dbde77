//! Why a command failed: one line, a hint, an exit code.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use llmgw_core::{
    control::ControlError,
    error::{Chain, Code},
    terminal::one_line,
};
use llmgw_server::fault::Fault;

/// A failure as it is told.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) cause: Cause,
    pub(crate) message: String,
    hint: Option<String>,
}

/// What kind of failure: each has its exit code.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cause {
    /// The control plane refused or failed, or this machine did.
    Refused,
    /// The token is wrong or missing.
    Token,
    /// What was asked can't be right.
    Usage,
    /// There is no such thing.
    NotFound,
    /// Nobody answers, or cannot now.
    Unavailable,
}

// === impl Failure ===

impl Failure {
    pub(crate) fn new(cause: Cause, message: impl Into<String>) -> Self {
        Self {
            cause,
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    pub(crate) fn with_message(self, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..self
        }
    }

    pub(crate) fn with_cause(self, cause: Cause) -> Self {
        Self { cause, ..self }
    }

    /// `error: …` and `hint: …` on standard error, one line each.
    pub(crate) fn report(&self) -> ExitCode {
        let mut text = format!("error: {}\n", one_line(&self.message));
        if let Some(hint) = &self.hint {
            text.push_str(&format!("hint: {}\n", one_line(hint)));
        }
        // With standard error closed there is nobody left to tell; the exit code still says it.
        drop(io::stderr().lock().write_all(text.as_bytes()));
        match self.cause {
            Cause::Refused | Cause::Token => ExitCode::from(1),
            Cause::Usage => ExitCode::from(2),
            Cause::NotFound => ExitCode::from(3),
            Cause::Unavailable => ExitCode::from(4),
        }
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        let cause = match error.code {
            Code::InvalidRequest
            | Code::InvalidJson
            | Code::MissingField
            | Code::RequestTooLarge => Cause::Usage,
            Code::InvalidApiKey => Cause::Token,
            Code::NotFound | Code::ModelNotFound => Cause::NotFound,
            Code::Unavailable | Code::ShuttingDown | Code::UpstreamTimeout => Cause::Unavailable,
            _ => Cause::Refused,
        };
        Self {
            cause,
            message: error.message,
            hint: error.hint,
        }
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        let cause = if fault.is_usage() {
            Cause::Usage
        } else {
            Cause::Refused
        };
        Self {
            cause,
            message: Chain(&fault).to_string(),
            hint: fault.hint(),
        }
    }
}
