//! Why a call is not answered as asked: the one way from a [`Code`] to what a client reads.
//!
//! | status | code | retry headers |
//! |---|---|---|
//! | 400 | `invalid_request` `invalid_json` `missing_field` `content_policy_violation` | - |
//! | 401 | `invalid_api_key` | - |
//! | 403 | `permission_denied` `model_not_allowed` | - |
//! | 404 | `model_not_found` `unknown_url` | - |
//! | 405 | `method_not_allowed` | `Allow` |
//! | 408 | `invalid_request`: it did not come in time | - |
//! | 413, 414, 431 | `request_too_large`: the body, the path, the headers | - |
//! | 429 | `rate_limit_exceeded` | `Retry-After`, `x-ratelimit-…` |
//! | 429 | `budget_exceeded` | `Retry-After`, `x-should-retry: false` |
//! | 502 | `upstream_disconnected` `upstream_error` | - |
//! | 503 | `model_parked` `model_unplaceable` `model_off` | `x-should-retry: false` |
//! | 503 | `model_loading` `queue_full` `unavailable` `budget_unavailable` `shutting_down` | `Retry-After` |
//! | 504 | `upstream_timeout` `activation_timeout` | - |
//! | 505 | `invalid_request`: another version of HTTP | - |
//!
//! An engine's own error keeps its status, message and `Retry-After`, and gets this shape.

mod engine;
mod places;
mod shape;

use std::{borrow::Cow, fmt::Write, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

pub(super) use self::{engine::EngineError, places::without_paths};
use crate::{
    api::openai::ErrorObject,
    error::{Code, Retry},
    gateway::dialect::ErrorShape,
    id::ModelName,
    route::{NoRoute, Waiting},
};

/// A refusal, ready to be written as an answer or as a last event.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    kind: Cow<'static, str>,
    code: Cow<'static, str>,
    message: Box<str>,
    param: Option<&'static str>,
    retry_after: Option<u32>,
    /// Tells SDKs not to try again what would fail again.
    never_again: bool,
    /// The methods that the path has.
    allow: Option<&'static str>,
}

// === impl Refusal ===

impl Refusal {
    /// What `code` implies, with a sentence for people.
    pub(super) fn new(code: Code, message: impl Into<Box<str>>) -> Self {
        let (status, kind) = shape(code);
        let server_side = status.is_server_error();
        Self {
            status,
            kind: Cow::Borrowed(kind),
            code: Cow::Borrowed(code.as_str()),
            message: message.into(),
            param: None,
            retry_after: match code.retry() {
                Retry::After(span) => Some(whole_seconds(span)),
                Retry::Now | Retry::Never => None,
            },
            // SDKs don't repeat a 4xx of ours anyway, but for 429.
            never_again: (server_side || status == StatusCode::TOO_MANY_REQUESTS)
                && code.retry() == Retry::Never,
            allow: None,
        }
    }

    /// What a call gets that is still under way when the process must end.
    pub(super) fn shutting_down() -> Self {
        Self::new(Code::ShuttingDown, "this gateway is stopping; ask again")
    }

    /// The same for the field that is wrong.
    #[must_use]
    pub(super) fn with_param(self, param: &'static str) -> Self {
        let param = Some(param);
        Self { param, ..self }
    }

    /// The same with a more exact status.
    #[must_use]
    pub(super) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// The same, where asking again can help, when that is so after this time.
    #[must_use]
    pub(super) fn with_eta(self, eta: Option<Duration>) -> Self {
        let known = eta.map(whole_seconds);
        let retry_after = self.retry_after.map(|guess| known.unwrap_or(guess));
        Self {
            retry_after,
            ..self
        }
    }

    /// The same, which helps after this time: as it is, however long.
    #[must_use]
    pub(super) fn with_reset(self, left: Duration) -> Self {
        let seconds = left.as_millis().div_ceil(1000).max(1);
        let retry_after = Some(u32::try_from(seconds).unwrap_or(u32::MAX));
        Self {
            retry_after,
            ..self
        }
    }

    /// The same for a path that has only these methods.
    #[must_use]
    pub(super) fn with_allow(self, methods: &'static str) -> Self {
        let allow = Some(methods);
        Self { allow, ..self }
    }

    /// Whether another model may answer instead: this one has said nothing, and can't now.
    pub(super) fn lets_fall_back(&self) -> bool {
        const CODES: [Code; 7] = [
            Code::ModelParked,
            Code::ModelUnplaceable,
            Code::ModelOff,
            Code::ModelLoading,
            Code::ActivationTimeout,
            Code::QueueFull,
            Code::UpstreamDisconnected,
        ];
        CODES.iter().any(|code| code.as_str() == self.code)
    }

    /// The same with what else was tried.
    #[must_use]
    pub(super) fn and_fallbacks(self, tried: &[ModelName]) -> Self {
        if tried.is_empty() {
            return self;
        }
        let names: Vec<&str> = tried.iter().map(ModelName::as_str).collect();
        let message = format!(
            "{}; nor could what it falls back to: {}",
            self.message,
            names.join(", ")
        );
        Self {
            message: message.into(),
            ..self
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// The error as clients read it.
    pub(super) fn object(&self) -> ErrorObject {
        ErrorObject {
            message: self.message.to_string(),
            kind: self.kind.to_string(),
            param: self.param.map(str::to_owned),
            code: Some(self.code.to_string()),
        }
    }

    /// The error as the last event of a stream, behind so many events.
    pub(super) fn event(&self, shape: ErrorShape, passed: u64) -> Bytes {
        shape::event(self, shape, passed)
    }

    /// The error as an answer.
    pub(super) fn response(&self, shape: ErrorShape) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(shape::body(self, shape)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(methods) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(methods));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.never_again {
            headers.insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response
    }

    /// The error as an answer goes over the wire, the last of its connection: for where hyper does not write.
    pub(super) fn last_words(&self) -> Bytes {
        let response = self.response(ErrorShape::OpenAi);
        let mut text = format!("HTTP/1.1 {}\r\n", response.status());
        for (name, value) in response.headers() {
            // Headers of ours are plain text; writing to a text does not fail.
            let value = value.to_str().unwrap_or_default();
            write!(text, "{name}: {value}\r\n").unwrap_or_default();
        }
        let length = response.body().len();
        write!(
            text,
            "content-length: {length}\r\nconnection: close\r\n\r\n"
        )
        .unwrap_or_default();
        let mut text = text.into_bytes();
        text.extend_from_slice(response.body());
        Bytes::from(text)
    }
}

impl From<NoRoute> for Refusal {
    fn from(reason: NoRoute) -> Self {
        match reason {
            NoRoute::UnknownModel(_) => {
                Self::new(Code::ModelNotFound, reason.to_string()).with_param("model")
            }
            NoRoute::NoEndpoint(model, Waiting::Loading(state)) => Self::new(
                Code::ModelLoading,
                format!("{model} is not ready yet: {}", without_paths(&state)),
            ),
            NoRoute::NoEndpoint(_, Waiting::Unplaceable(why)) => {
                Self::new(Code::ModelUnplaceable, without_paths(&why))
            }
            NoRoute::NoEndpoint(_, Waiting::Parked(why)) => {
                Self::new(Code::ModelParked, without_paths(&why))
            }
            NoRoute::NoEndpoint(_, Waiting::Off(why)) => Self::new(Code::ModelOff, why),
        }
    }
}

/// The one table from codes to what OpenAI clients expect.
fn shape(code: Code) -> (StatusCode, &'static str) {
    const INVALID: &str = "invalid_request_error";
    const PERMISSION: &str = "permission_error";
    const SERVER: &str = "server_error";
    match code {
        Code::InvalidRequest
        | Code::InvalidJson
        | Code::MissingField
        | Code::ContentPolicyViolation => (StatusCode::BAD_REQUEST, INVALID),
        Code::RequestTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, INVALID),
        Code::InvalidApiKey => (StatusCode::UNAUTHORIZED, INVALID),
        Code::PermissionDenied | Code::ModelNotAllowed => (StatusCode::FORBIDDEN, PERMISSION),
        Code::ModelNotFound | Code::UnknownUrl | Code::NotFound => (StatusCode::NOT_FOUND, INVALID),
        Code::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, INVALID),
        Code::Conflict => (StatusCode::CONFLICT, INVALID),
        Code::RateLimitExceeded => (StatusCode::TOO_MANY_REQUESTS, "rate_limit_error"),
        Code::BudgetExceeded => (StatusCode::TOO_MANY_REQUESTS, "insufficient_quota"),
        Code::UpstreamError | Code::UpstreamDisconnected => (StatusCode::BAD_GATEWAY, SERVER),
        Code::UpstreamTimeout | Code::ActivationTimeout => (StatusCode::GATEWAY_TIMEOUT, SERVER),
        Code::ModelUnplaceable
        | Code::ModelParked
        | Code::ModelLoading
        | Code::ModelOff
        | Code::QueueFull
        | Code::ShuttingDown
        | Code::BudgetUnavailable
        | Code::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, SERVER),
        Code::Fenced | Code::VerificationFailed | Code::NoStore | Code::Internal => {
            (StatusCode::INTERNAL_SERVER_ERROR, SERVER)
        }
    }
}

/// Rounded up: a client that comes back too early is refused again. At least a second, so that nobody comes back at
/// once; at most 120 s, above which openai-python does not come back at all.
fn whole_seconds(span: Duration) -> u32 {
    let seconds = span
        .as_millis()
        .div_ceil(1000)
        .clamp(1, LONGEST_WAIT.into());
    u32::try_from(seconds).unwrap_or(LONGEST_WAIT)
}

const LONGEST_WAIT: u32 = 120;

#[cfg(test)]
mod tests {
    use super::*;

    fn header(refusal: &Refusal, name: &str) -> Option<String> {
        let response = refusal.response(ErrorShape::OpenAi);
        Some(response.headers().get(name)?.to_str().unwrap().to_owned())
    }

    #[test]
    fn the_body_has_the_shape_that_sdks_read() {
        let refusal = Refusal::from(NoRoute::UnknownModel("x".into()));
        let body: serde_json::Value =
            serde_json::from_slice(refusal.response(ErrorShape::OpenAi).body()).unwrap();
        let expected = serde_json::json!({"error": {
            "message": "the model \"x\" does not exist",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }});
        assert_eq!(body, expected);
        assert_eq!(refusal.status(), 404);
        let body = refusal.response(ErrorShape::OpenAi).into_body();
        let text = str::from_utf8(&body).unwrap();
        assert_eq!(
            refusal.event(ErrorShape::OpenAi, 3),
            format!("data: {text}\n\n")
        );
    }

    #[test]
    fn what_can_pass_says_when_to_come_back_and_what_can_not_says_so() {
        let model: ModelName = "m".parse().unwrap();
        let refusal = |waiting| Refusal::from(NoRoute::NoEndpoint(model.clone(), waiting));
        let loading = refusal(Waiting::Loading("fetching weights (43 %)".into()));
        assert_eq!(header(&loading, "retry-after").as_deref(), Some("2"));
        assert_eq!(header(&loading, "x-should-retry"), None);
        assert!(loading.object().message.contains("fetching weights (43 %)"));
        for waiting in [
            Waiting::Parked("SIGILL".into()),
            Waiting::Off("no replicas".into()),
            Waiting::Unplaceable("short by 3 GiB".into()),
        ] {
            let refusal = refusal(waiting);
            assert_eq!(refusal.status(), 503);
            assert_eq!(header(&refusal, "x-should-retry").as_deref(), Some("false"));
            assert_eq!(header(&refusal, "retry-after"), None);
        }
        let after = |refusal: &Refusal, millis| {
            let eta = Some(Duration::from_millis(millis));
            header(&refusal.clone().with_eta(eta), "retry-after")
        };
        for (millis, seconds) in [(0, "1"), (1001, "2"), (43_000, "43"), (999_000, "120")] {
            assert_eq!(after(&loading, millis).as_deref(), Some(seconds));
        }
        let unknown = header(&loading.with_eta(None), "retry-after");
        assert_eq!(unknown.as_deref(), Some("2"), "a guess");
        let parked = refusal(Waiting::Parked("SIGILL".into()));
        assert_eq!(after(&parked, 1000), None);
    }
}
