//! A refusal in the form of each API.

use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;

use super::Refusal;
use crate::{
    api::{
        anthropic,
        openai::{ErrorBody, ErrorObject},
    },
    gateway::dialect::ErrorShape,
};

/// The last event of a stream of the Responses API. Its own form is flat; SDKs raise what stands under `error`, and would
/// take the stream for one that ended well without it.
#[derive(Serialize)]
struct ErrorEvent<'a> {
    #[serde(rename = "type")]
    event: &'static str,
    code: Option<&'a str>,
    message: &'a str,
    param: Option<&'a str>,
    sequence_number: u64,
    error: &'a ErrorObject,
}

/// Ollama's form, with our code beside the message.
#[derive(Serialize)]
struct Plain<'a> {
    error: &'a str,
    code: Option<&'a str>,
}

/// The body of an answer.
pub(super) fn body(refusal: &Refusal, shape: ErrorShape) -> String {
    let error = refusal.object();
    match shape {
        ErrorShape::OpenAi | ErrorShape::Responses => json(&ErrorBody { error }),
        ErrorShape::Anthropic => json(&anthropic(refusal)),
        ErrorShape::Ollama => json(&Plain {
            error: &error.message,
            code: error.code.as_deref(),
        }),
    }
}

/// The last event of a stream.
pub(super) fn event(refusal: &Refusal, shape: ErrorShape, passed: u64) -> Bytes {
    let data = match shape {
        ErrorShape::OpenAi => return format!("data: {}\n\n", body(refusal, shape)).into(),
        ErrorShape::Ollama => return format!("{}\n", body(refusal, shape)).into(),
        ErrorShape::Anthropic => body(refusal, shape),
        ErrorShape::Responses => {
            let error = refusal.object();
            json(&ErrorEvent {
                event: "error",
                code: error.code.as_deref(),
                message: &error.message,
                param: error.param.as_deref(),
                sequence_number: passed,
                error: &error,
            })
        }
    };
    format!("event: error\ndata: {data}\n\n").into()
}

fn anthropic(refusal: &Refusal) -> anthropic::ErrorBody {
    let ErrorObject {
        message,
        kind: _,
        param,
        code,
    } = refusal.object();
    anthropic::ErrorBody {
        kind: "error".into(),
        error: anthropic::ErrorObject {
            kind: kind(refusal.status).into(),
            message,
            param,
            code,
        },
    }
}

/// What Anthropic's API calls an error with this status.
fn kind(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        StatusCode::GATEWAY_TIMEOUT => "timeout_error",
        status if status.is_client_error() => "invalid_request_error",
        _ => "api_error",
    }
}

fn json(value: &impl Serialize) -> String {
    // Structs of texts and numbers have a JSON form.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::error::Code;

    fn refusal() -> Refusal {
        Refusal::new(Code::ModelNotFound, "no \"x\"").with_param("model")
    }

    #[test]
    fn anthropics_clients_read_their_own_types_and_the_code_beside_them() {
        let body: Value =
            serde_json::from_slice(refusal().response(ErrorShape::Anthropic).body()).unwrap();
        let error = json!({
            "type": "not_found_error", "message": "no \"x\"",
            "param": "model", "code": "model_not_found",
        });
        assert_eq!(body, json!({"type": "error", "error": error}));
        for (code, kind) in [
            (Code::InvalidApiKey, "authentication_error"),
            (Code::ModelNotAllowed, "permission_error"),
            (Code::RequestTooLarge, "request_too_large"),
            (Code::BudgetExceeded, "rate_limit_error"),
            (Code::ModelLoading, "overloaded_error"),
            (Code::UpstreamTimeout, "timeout_error"),
            (Code::UpstreamDisconnected, "api_error"),
            (Code::MissingField, "invalid_request_error"),
        ] {
            let refusal = Refusal::new(code, "m");
            assert_eq!(anthropic(&refusal).error.kind, kind, "{code:?}");
        }
    }

    #[test]
    fn ollamas_clients_read_a_text() {
        let body = refusal().response(ErrorShape::Ollama);
        let expected = r#"{"error":"no \"x\"","code":"model_not_found"}"#;
        assert_eq!(body.body(), expected);
        assert_eq!(
            refusal().event(ErrorShape::Ollama, 3),
            format!("{expected}\n")
        );
    }

    #[test]
    fn a_stream_ends_with_an_event_of_its_api() {
        let event = |shape| {
            let event = refusal().event(shape, 7);
            let text = String::from_utf8(event.to_vec()).unwrap();
            let (name, data) = text.split_once("data: ").unwrap();
            let data: Value = serde_json::from_str(data).unwrap();
            (name.to_owned(), data)
        };
        let (name, data) = event(ErrorShape::OpenAi);
        assert_eq!(
            (name.as_str(), &data["error"]["code"]),
            ("", &json!("model_not_found"))
        );
        let (name, data) = event(ErrorShape::Anthropic);
        assert_eq!(
            (name.as_str(), &data["type"]),
            ("event: error\n", &json!("error"))
        );
        let (name, data) = event(ErrorShape::Responses);
        assert_eq!(name, "event: error\n");
        let expected = json!({
            "type": "error", "code": "model_not_found", "message": "no \"x\"", "param": "model",
            "sequence_number": 7,
            "error": {
                "message": "no \"x\"", "type": "invalid_request_error", "param": "model",
                "code": "model_not_found",
            },
        });
        assert_eq!(data, expected);
    }
}
