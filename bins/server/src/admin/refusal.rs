//! What is not done: one shape for every refusal, and one table from code to status.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{
    HeaderValue, Method, StatusCode, Uri,
    header::{RETRY_AFTER, WWW_AUTHENTICATE},
};
use llmgw_core::{
    api::admin::ErrorBody,
    control::ControlError,
    error::{Code, Retry},
};

/// An answer that says why not.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    error: ControlError,
}

// === impl Refusal ===

impl Refusal {
    /// A refusal whose status says more than its code does.
    pub(super) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }
}

impl From<ControlError> for Refusal {
    fn from(error: ControlError) -> Self {
        Self {
            status: status(error.code),
            error,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self { status, error } = self;
        let ControlError {
            code,
            message,
            hint,
        } = error;
        let body = ErrorBody {
            error: message,
            code: code.to_string(),
            hint,
        };
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Retry::After(wait) = code.retry() {
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        }
        response
    }
}

/// Where there is nothing.
pub(super) async fn unknown_path(uri: Uri) -> Refusal {
    ControlError::new(Code::UnknownUrl, format!("there is no {}", uri.path()))
        .with_hint("the admin API is under /api/v1: summary, nodes, models, replicas, usage")
        .into()
}

/// Where there is something, for another method; axum adds `allow`.
pub(super) async fn wrong_method(method: Method, uri: Uri) -> Refusal {
    ControlError::new(
        Code::MethodNotAllowed,
        format!("{method} is not for {}", uri.path()),
    )
    .with_hint("the header `allow` lists the methods that are")
    .into()
}

/// The one table.
fn status(code: Code) -> StatusCode {
    match code {
        Code::InvalidRequest | Code::InvalidJson | Code::MissingField => StatusCode::BAD_REQUEST,
        Code::InvalidApiKey => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied | Code::ModelNotAllowed => StatusCode::FORBIDDEN,
        Code::NotFound | Code::ModelNotFound | Code::UnknownUrl => StatusCode::NOT_FOUND,
        Code::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        Code::Conflict => StatusCode::CONFLICT,
        Code::RateLimitExceeded | Code::BudgetExceeded => StatusCode::TOO_MANY_REQUESTS,
        Code::RequestTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::ModelUnplaceable
        | Code::ModelParked
        | Code::ModelLoading
        | Code::ModelOff
        | Code::QueueFull
        | Code::ShuttingDown
        | Code::Unavailable
        | Code::BudgetUnavailable
        | Code::Fenced => StatusCode::SERVICE_UNAVAILABLE,
        Code::NoStore => StatusCode::NOT_IMPLEMENTED,
        Code::UpstreamError | Code::UpstreamDisconnected | Code::VerificationFailed => {
            StatusCode::BAD_GATEWAY
        }
        Code::UpstreamTimeout | Code::ActivationTimeout => StatusCode::GATEWAY_TIMEOUT,
        // `Code` may grow; what has no status of its own is our own mistake.
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
