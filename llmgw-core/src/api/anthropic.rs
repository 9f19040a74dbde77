//! The few parts of Anthropic's API that the gateway itself writes; all else passes untouched.

use serde::{Deserialize, Serialize};

/// The body of every refusal: `{"type": "error", "error": {...}}`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ErrorBody {
    /// Always `error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The error.
    pub error: ErrorObject,
}

/// An error as Anthropic's SDKs read it; what is not theirs stands beside it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ErrorObject {
    /// A broad class, such as `not_found_error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The sentence for people.
    pub message: String,
    /// The field that is wrong, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
    /// A stable slug, the same as in OpenAI's form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}
