//! An engine's own error, put into the shape that clients read.

use std::borrow::Cow;

use http::{HeaderMap, StatusCode, header};
use serde_json::Value;

use super::{LONGEST_WAIT, Refusal, shape};
use crate::error::Code;

/// What an engine said instead of an answer.
#[derive(Debug)]
pub(in crate::gateway) struct EngineError<'a> {
    /// The answer's status; absent when the error came as an event.
    pub(in crate::gateway) status: Option<StatusCode>,
    /// The answer's headers, where there are any.
    pub(in crate::gateway) headers: Option<&'a HeaderMap>,
    /// The body, or an event's data.
    pub(in crate::gateway) body: &'a [u8],
}

/// The parts of an error that engines write, in any of their ways.
#[derive(Default)]
struct Parts {
    message: Option<String>,
    kind: Option<String>,
    code: Option<String>,
    /// An integer code, which engines use for the status.
    number: Option<u64>,
}

impl From<EngineError<'_>> for Refusal {
    fn from(error: EngineError<'_>) -> Self {
        let EngineError {
            status,
            headers,
            body,
        } = error;
        let parts = Parts::read(body);
        let status = status
            .or_else(|| StatusCode::from_u16(u16::try_from(parts.number?).ok()?).ok())
            .filter(|status| status.is_client_error() || status.is_server_error())
            .unwrap_or(StatusCode::BAD_GATEWAY);
        let kind = parts.kind.unwrap_or_default();
        let (kind, code) = match kind.as_str() {
            // llama.cpp's name for what OpenAI calls context_length_exceeded.
            "exceed_context_size_error" => (
                Cow::Borrowed("invalid_request_error"),
                Cow::Borrowed("context_length_exceeded"),
            ),
            // llama.cpp is up and has not loaded its model yet: the same as if it were not up.
            "unavailable_error" if status == StatusCode::SERVICE_UNAVAILABLE => (
                Cow::Borrowed(shape(Code::ModelLoading).1),
                Cow::Borrowed(Code::ModelLoading.as_str()),
            ),
            "" => {
                let code = if status.is_client_error() {
                    Code::InvalidRequest
                } else {
                    Code::UpstreamError
                };
                (Cow::Borrowed(shape(code).1), Cow::Borrowed(code.as_str()))
            }
            _ => {
                let code = slug(&kind);
                (Cow::Owned(kind), Cow::Owned(code))
            }
        };
        let retry_after = headers
            .and_then(|headers| headers.get(header::RETRY_AFTER))
            .and_then(|value| value.to_str().ok()?.trim().parse::<u32>().ok())
            .map(|seconds| seconds.min(LONGEST_WAIT))
            .or_else(|| (code == Code::ModelLoading.as_str()).then_some(LOADING_PAUSE));
        let message = parts
            .message
            .unwrap_or_else(|| format!("the engine answered with status {}", status.as_u16()));
        Self {
            status,
            kind,
            code: parts.code.map_or(code, Cow::Owned),
            message: message.into(),
            param: None,
            retry_after,
            never_again: false,
            allow: None,
        }
    }
}

// === impl EngineError ===

impl EngineError<'_> {
    /// The same as an answer to a call to this path, which the engine may not have.
    pub(in crate::gateway) fn for_path(self, path: &'static str) -> Refusal {
        if !self.lacks_path() {
            return self.into();
        }
        let message = format!("the engine of this model has no {path}");
        Refusal::new(Code::UnknownUrl, message)
    }

    /// Whether the engine doesn't know the path, as each engine says so.
    pub(in crate::gateway) fn lacks_path(&self) -> bool {
        match self.status {
            Some(StatusCode::METHOD_NOT_ALLOWED) => return true,
            Some(StatusCode::NOT_FOUND) => {}
            _ => return false,
        }
        Parts::read(self.body).message.is_none_or(|message| {
            let message = message.to_lowercase();
            let is_short = message.len() <= NOT_FOUND && !message.contains("model");
            message.starts_with('<') || (is_short && message.contains("not found"))
        })
    }
}

// === impl Parts ===

impl Parts {
    fn read(body: &[u8]) -> Self {
        let Ok(value) = serde_json::from_slice::<Value>(body) else {
            let text = String::from_utf8_lossy(body);
            let text: String = text.trim().chars().take(MESSAGE).collect();
            return Self {
                message: Some(text).filter(|text| !text.is_empty()),
                ..Self::default()
            };
        };
        // OpenAI's way nests the error; vLLM's older way is flat; FastAPI says `detail`.
        let error = value.get("error").unwrap_or(&value);
        let text = |name: &str| Some(error.get(name)?.as_str()?.to_owned());
        Self {
            message: text("message")
                .or_else(|| error.as_str().map(str::to_owned))
                .or_else(|| Some(value.get("detail")?.to_string())),
            kind: text("type").filter(|kind| !kind.is_empty()),
            code: text("code").filter(|code| !code.is_empty()),
            number: error.get("code").and_then(Value::as_u64),
        }
    }
}

/// `BadRequestError` and `invalid_request_error` as codes: `bad_request`, `invalid_request`.
fn slug(kind: &str) -> String {
    let mut slug = String::with_capacity(kind.len() + 4);
    for c in kind.chars().take(64) {
        if c.is_ascii_uppercase() && !slug.is_empty() && !slug.ends_with('_') {
            slug.push('_');
        }
        slug.push(if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '_'
        });
    }
    match slug.strip_suffix("_error") {
        Some(stem) if !stem.is_empty() => stem.to_owned(),
        _ => slug,
    }
}

/// What clients are told to wait for a load whose length nobody knows.
const LOADING_PAUSE: u32 = 2;
/// A message that says no more than that.
const NOT_FOUND: usize = 24;
/// Longer texts are pages, not messages.
const MESSAGE: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::dialect::ErrorShape;

    fn read(status: u16, body: &str) -> (u16, String, String, String) {
        let refusal = Refusal::from(EngineError {
            status: Some(StatusCode::from_u16(status).unwrap()),
            headers: None,
            body: body.as_bytes(),
        });
        let object = refusal.object();
        (
            refusal.status().as_u16(),
            object.kind,
            object.code.unwrap(),
            object.message,
        )
    }

    fn expect(status: u16, kind: &str, code: &str, message: &str) -> (u16, String, String, String) {
        (status, kind.to_owned(), code.to_owned(), message.to_owned())
    }

    #[test]
    fn the_errors_of_each_engine_get_one_shape_with_a_text_as_code() {
        let llamacpp = r#"{"error":{"code":400,"message":"m","type":"invalid_request_error"}}"#;
        let invalid = expect(400, "invalid_request_error", "invalid_request", "m");
        assert_eq!(read(400, llamacpp), invalid);
        let context = r#"{"error":{"code":400,"message":"m","type":"exceed_context_size_error"}}"#;
        let exceeded = expect(400, "invalid_request_error", "context_length_exceeded", "m");
        assert_eq!(read(400, context), exceeded);
        let vllm =
            r#"{"object":"error","message":"m","type":"BadRequestError","param":null,"code":400}"#;
        assert_eq!(
            read(400, vllm),
            expect(400, "BadRequestError", "bad_request", "m")
        );
        let openai = r#"{"error":{"message":"m","type":"t_error","code":"own_slug"}}"#;
        assert_eq!(read(429, openai), expect(429, "t_error", "own_slug", "m"));
        let fastapi = r#"{"detail":"Not Found"}"#;
        let missing = expect(
            404,
            "invalid_request_error",
            "invalid_request",
            "\"Not Found\"",
        );
        assert_eq!(read(404, fastapi), missing);
        let page = expect(500, "server_error", "upstream_error", "<html>");
        assert_eq!(read(500, "<html>"), page);
        assert_eq!(read(503, "").3, "the engine answered with status 503");
    }

    #[test]
    fn an_engine_that_lacks_a_path_is_told_from_one_that_lacks_a_model() {
        let told = |status: u16, body: &str| {
            let error = EngineError {
                status: Some(StatusCode::from_u16(status).unwrap()),
                headers: None,
                body: body.as_bytes(),
            };
            error.for_path("/v1/rerank").object().message
        };
        let lacks = "the engine of this model has no /v1/rerank";
        let llamacpp =
            r#"{"error":{"message":"File Not Found","type":"not_found_error","code":404}}"#;
        for body in [
            llamacpp,
            r#"{"detail":"Not Found"}"#,
            "<html>",
            "",
            "404 page not found",
        ] {
            assert_eq!(told(404, body), lacks, "{body}");
        }
        assert_eq!(told(405, r#"{"detail":"Method Not Allowed"}"#), lacks);
        let model = r#"{"error":{"message":"The model `m` does not exist.","code":404}}"#;
        assert_eq!(told(404, model), "The model `m` does not exist.");
        assert_ne!(told(500, llamacpp), lacks);
    }

    #[test]
    fn an_error_in_an_event_has_the_status_that_it_names() {
        let status = |body: &str| {
            Refusal::from(EngineError {
                status: None,
                headers: None,
                body: body.as_bytes(),
            })
            .status()
            .as_u16()
        };
        assert_eq!(status(r#"{"error":{"code":400,"message":"m"}}"#), 400);
        assert_eq!(status(r#"{"error":{"code":200,"message":"m"}}"#), 502);
        assert_eq!(status(r#"{"error":{"code":"x","message":"m"}}"#), 502);
    }

    #[test]
    fn retry_after_is_passed_and_bounded() {
        let retry = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, value.parse().unwrap());
            let refusal = Refusal::from(EngineError {
                status: Some(StatusCode::TOO_MANY_REQUESTS),
                headers: Some(&headers),
                body: b"",
            });
            let response = refusal.response(ErrorShape::OpenAi);
            Some(
                response
                    .headers()
                    .get("retry-after")?
                    .to_str()
                    .unwrap()
                    .to_owned(),
            )
        };
        assert_eq!(retry("7").as_deref(), Some("7"));
        assert_eq!(retry("7000").as_deref(), Some("120"));
        assert_eq!(retry("Wed, 21 Oct 2026 07:28:00 GMT"), None);
    }
}
