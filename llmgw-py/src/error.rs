//! Which Python exception an error becomes. The classes are Python's own: `llmgw/exceptions.py`.

use llmgw_core::{
    control::ControlError,
    error::{Chain, Code, Coded, Retry},
};
use pyo3::prelude::*;

mod classes {
    //! Imported when one is raised for the first time.

    pyo3::import_exception!(llmgw.exceptions, AccessError);
    pyo3::import_exception!(llmgw.exceptions, ConfigError);
    pyo3::import_exception!(llmgw.exceptions, ConflictError);
    pyo3::import_exception!(llmgw.exceptions, ForkError);
    pyo3::import_exception!(llmgw.exceptions, InternalError);
    pyo3::import_exception!(llmgw.exceptions, NotFoundError);
    pyo3::import_exception!(llmgw.exceptions, OverloadedError);
    pyo3::import_exception!(llmgw.exceptions, UnavailableError);
    pyo3::import_exception!(llmgw.exceptions, UpstreamError);
    pyo3::import_exception!(llmgw.exceptions, VerifyError);
}

/// An error on its way to Python. Becomes an exception only when it is raised, so that a runtime thread that
/// makes one needs no interpreter.
#[derive(Debug)]
pub(crate) enum Error {
    /// What a control plane or our own checks answered.
    Coded {
        code: Code,
        message: String,
        retryable: bool,
        hint: Option<String>,
    },
    /// This process is a fork of the one that the runtime belongs to.
    Forked,
    /// What Python said, unchanged.
    Python(PyErr),
}

// === impl Error ===

impl Error {
    /// An error of our own making, with what its code implies.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        ControlError::new(code, message).into()
    }

    /// Data that can't be right, at `field`.
    pub(crate) fn invalid(field: &str, problem: &str) -> Self {
        Self::new(Code::InvalidRequest, format!("{field}: {problem}"))
    }

    /// The interpreter is on its way out.
    pub(crate) fn closed() -> Self {
        Self::new(
            Code::ShuttingDown,
            "llmgw can't be used any more: the interpreter is shutting down",
        )
    }

    fn coded(error: &impl Coded) -> Self {
        Self::Coded {
            code: error.code(),
            message: Chain(error).to_string(),
            retryable: error.retry() != Retry::Never,
            hint: error.hint(),
        }
    }
}

impl From<ControlError> for Error {
    fn from(error: ControlError) -> Self {
        Self::coded(&error)
    }
}

impl From<PyErr> for Error {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        match error {
            Error::Python(error) => error,
            Error::Forked => classes::ForkError::new_err((
                "llmgw was used before this process was forked, and its threads stayed behind",
                "forked",
                false,
                "fork first and use llmgw afterwards, or start processes by spawn",
            )),
            Error::Coded {
                code,
                message,
                retryable,
                hint,
            } => exception(code)((message, code.as_str(), retryable, hint)),
        }
    }
}

/// What an exception of ours is made from.
type Arguments = (String, &'static str, bool, Option<String>);

fn exception(code: Code) -> fn(Arguments) -> PyErr {
    match code {
        Code::InvalidRequest | Code::InvalidJson | Code::MissingField | Code::RequestTooLarge => {
            classes::ConfigError::new_err
        }
        Code::InvalidApiKey | Code::PermissionDenied | Code::ModelNotAllowed => {
            classes::AccessError::new_err
        }
        Code::ModelNotFound | Code::NotFound | Code::UnknownUrl | Code::MethodNotAllowed => {
            classes::NotFoundError::new_err
        }
        Code::Conflict | Code::Fenced => classes::ConflictError::new_err,
        Code::QueueFull | Code::RateLimitExceeded | Code::BudgetExceeded => {
            classes::OverloadedError::new_err
        }
        Code::ModelUnplaceable
        | Code::ModelParked
        | Code::ModelLoading
        | Code::ModelOff
        | Code::ActivationTimeout
        | Code::ShuttingDown
        | Code::Unavailable => classes::UnavailableError::new_err,
        Code::UpstreamError | Code::UpstreamDisconnected | Code::UpstreamTimeout => {
            classes::UpstreamError::new_err
        }
        Code::VerificationFailed => classes::VerifyError::new_err,
        // `Code` may grow; a code without a row of its own is our mistake.
        _ => classes::InternalError::new_err,
    }
}
