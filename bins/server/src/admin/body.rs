//! What comes in: bounded bodies, names in paths and in queries.

use std::{error::Error, time::Duration};

use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
};
use http::{HeaderMap, StatusCode, header::CONTENT_TYPE, request::Parts};
use http_body_util::BodyExt;
use llmgw_core::{control::ControlError, error::Code, id::ModelName};
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::Value;
use tokio::time::timeout;

use super::refusal::Refusal;

/// A JSON body of at most 1 MiB, read as `T`; an error names the field.
pub(super) struct JsonBody<T>(pub(super) T);

/// A JSON body of at most 64 KiB, read as `T`; an error names the field.
pub(super) struct SmallBody<T>(pub(super) T);

/// The same, or nothing at all, which is `T::default()`.
pub(super) struct MaybeBody<T>(pub(super) T);

/// The body of a request that needs none: read, bounded to 64 KiB, and not looked at.
pub(super) struct NoBody;

/// `?model=`, which may be absent; nothing else may be asked.
pub(super) struct ModelQuery(pub(super) Option<ModelName>);

/// What stands in a path where a name or an id may: one segment, or all that comes after `models/`; decoded.
pub(super) struct Named(pub(super) String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawQuery {
    model: Option<String>,
}

/// Reads a name; an error says where it stood.
pub(super) fn model_name(field: &str, text: &str) -> Result<ModelName, Refusal> {
    text.parse()
        .map_err(|error| invalid(format!("{field}: {error}")).into())
}

// === impl JsonBody ===

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Refusal> {
        json(request, MAX_DEFINITION).await.map(Self)
    }
}

// === impl SmallBody ===

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for SmallBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Refusal> {
        json(request, MAX_OTHER).await.map(Self)
    }
}

// === impl MaybeBody ===

impl<T: Default + DeserializeOwned, S: Send + Sync> FromRequest<S> for MaybeBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Refusal> {
        let (head, body) = request.into_parts();
        let bytes = read(body, MAX_OTHER).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        check_is_json(&head.headers)?;
        parse(&bytes).map(Self)
    }
}

// === impl NoBody ===

impl<S: Send + Sync> FromRequest<S> for NoBody {
    type Rejection = Refusal;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Refusal> {
        read(request.into_body(), MAX_OTHER).await?;
        Ok(Self)
    }
}

// === impl ModelQuery ===

impl<S: Send + Sync> FromRequestParts<S> for ModelQuery {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Refusal> {
        let Query(RawQuery { model }) = Query::try_from_uri(&parts.uri).map_err(|error| {
            let cause = error
                .source()
                .map_or_else(|| error.to_string(), ToString::to_string);
            invalid(format!("in the query: {cause}"))
        })?;
        let model = model.map(|text| model_name("model", &text)).transpose()?;
        Ok(Self(model))
    }
}

// === impl Named ===

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let Path(named) = Path::from_request_parts(parts, state)
            .await
            .map_err(|error| invalid(format!("in the path: {}", error.body_text())))?;
        Ok(Self(named))
    }
}

async fn json<T: DeserializeOwned>(request: Request, limit: usize) -> Result<T, Refusal> {
    check_is_json(request.headers())?;
    let bytes = read(request.into_body(), limit).await?;
    parse(&bytes)
}

fn check_is_json(headers: &HeaderMap) -> Result<(), Refusal> {
    if is_json(headers) {
        return Ok(());
    }
    let error = invalid("the body is not said to be JSON")
        .with_hint("send it with `content-type: application/json`");
    Err(Refusal::from(error).with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE))
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(Ok(value)) = headers.get(CONTENT_TYPE).map(|value| value.to_str()) else {
        return false;
    };
    let essence = value.split(';').next().unwrap_or(value).trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// Reads a body that may be as large as `limit`.
///
/// A larger one is read on and thrown away, up to a bound, so that the connection can be used again. What comes
/// after that is the listener's.
async fn read(body: Body, limit: usize) -> Result<Vec<u8>, Refusal> {
    let whole = async {
        let mut body = body;
        let mut bytes = Vec::new();
        let mut seen = 0_usize;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| invalid(format!("the body broke off: {error}")))?;
            let Some(data) = frame.data_ref() else {
                continue;
            };
            seen = seen.saturating_add(data.len());
            if seen <= limit {
                bytes.extend_from_slice(data);
            } else if seen > MAX_DISCARDED {
                break;
            }
        }
        if seen > limit {
            let message = format!("the body is larger than {} KiB", limit / 1024);
            return Err(ControlError::new(Code::RequestTooLarge, message).into());
        }
        Ok(bytes)
    };
    timeout(BODY_TIMEOUT, whole).await.unwrap_or_else(|_| {
        let message = format!("the body did not come within {} s", BODY_TIMEOUT.as_secs());
        Err(Refusal::from(invalid(message)).with_status(StatusCode::REQUEST_TIMEOUT))
    })
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        if !error.is_data() && serde_json::from_slice::<IgnoredAny>(bytes).is_err() {
            return not_json(&error);
        }
        if let Err(misplaced) = refuse_lists_for_objects(bytes) {
            return misplaced;
        }
        // A field that is missing or unknown is named in the error, and has no path but its parent's.
        if path == "." {
            invalid(error.to_string())
        } else {
            invalid(format!("{path}: {error}"))
        }
    })?;
    json.end().map_err(|error| not_json(&error))?;
    refuse_lists_for_objects(bytes)?;
    Ok(parsed)
}

/// Refuses a list where an object should be. serde takes one for a struct, field after field, and whoever sends
/// it means something else.
///
/// No body that is taken here is a list, or has a list of lists; and of the fields in [`OBJECTS`] none is one.
fn refuse_lists_for_objects(bytes: &[u8]) -> Result<(), ControlError> {
    // What is no JSON to its end is for whoever reads it.
    let body: Value = serde_json::from_slice(bytes).unwrap_or_default();
    if body.is_array() {
        return Err(invalid("the body is a list, and should be an object"));
    }
    match misplaced_list("", &body) {
        Some(path) => Err(invalid(format!(
            "{path}: a list stands where an object should"
        ))),
        None => Ok(()),
    }
}

/// Where the first list is that stands in another, or for an object.
fn misplaced_list(path: &str, value: &Value) -> Option<String> {
    match value {
        Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
            let path = format!("{path}[{index}]");
            if item.is_array() {
                return Some(path);
            }
            misplaced_list(&path, item)
        }),
        Value::Object(fields) => fields.iter().find_map(|(name, field)| {
            let dot = if path.is_empty() { "" } else { "." };
            let path = format!("{path}{dot}{name}");
            if field.is_array() && OBJECTS.contains(&name.as_str()) {
                return Some(path);
            }
            misplaced_list(&path, field)
        }),
        _ => None,
    }
}

fn not_json(error: &serde_json::Error) -> ControlError {
    ControlError::new(Code::InvalidJson, format!("the body is not JSON: {error}"))
}

fn invalid(message: impl Into<String>) -> ControlError {
    ControlError::new(Code::InvalidRequest, message)
}

/// Changes whose content is an object, and what limits a level or a key.
const OBJECTS: [&str; 5] = ["add", "edit", "scale", "add_nodes", "limits"];
/// Definitions of models and questions, by section 8 of the specification.
const MAX_DEFINITION: usize = 1 << 20;
const MAX_OTHER: usize = 64 << 10;
const MAX_DISCARDED: usize = 4 << 20;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
