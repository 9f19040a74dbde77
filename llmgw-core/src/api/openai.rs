//! The few parts of the OpenAI API that the gateway itself reads or writes; all else passes untouched.

use serde::{Deserialize, Serialize};

use crate::units::Tokens;

/// The body of every refusal: `{"error": {...}}`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorObject,
}

/// An error as the SDKs read it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ErrorObject {
    /// The sentence for people.
    pub message: String,
    /// A broad class, such as `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The field that is wrong, where there is one.
    pub param: Option<String>,
    /// A stable slug; always a text.
    pub code: Option<String>,
}

/// `GET /v1/models`
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ModelList {
    /// Always `list`.
    pub object: String,
    /// The models.
    pub data: Vec<ModelObject>,
}

/// A model in a [`ModelList`].
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ModelObject {
    /// What clients call it.
    pub id: String,
    /// Always `model`.
    pub object: String,
    /// When it was made known, in seconds since the Unix epoch.
    pub created: i64,
    /// Who serves it.
    pub owned_by: String,
}

/// Token counts as engines say them.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Usage {
    /// Tokens of the prompt.
    #[serde(default)]
    pub prompt_tokens: Tokens,
    /// Tokens of the answer.
    #[serde(default)]
    pub completion_tokens: Tokens,
    /// More about the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens_details: Option<PromptTokensDetails>,
}

/// More about the prompt.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct PromptTokensDetails {
    /// Tokens that the engine had in its cache.
    #[serde(default)]
    pub cached_tokens: Option<Tokens>,
}
