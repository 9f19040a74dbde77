//! How much a model was measured to do on a profile.

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    id::{ModelName, ProfileName},
    units::Tokens,
};

/// What one replica of a model did on a profile, when it was measured last. It outlives the model's definition.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Capacity {
    /// The model, by its own name.
    pub model: ModelName,
    /// What was measured.
    #[serde(flatten)]
    pub measurement: Measurement,
    /// Who measured.
    pub measured_by: String,
    /// When, in milliseconds since the Unix epoch.
    pub measured_at: Timestamp,
}

/// What was measured of one replica.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Measurement {
    /// The profile that it ran on.
    pub profile: ProfileName,
    /// Requests at the same time that it answered within the goal; at least 1.
    pub concurrency: u32,
    /// Tokens of answers in a second, over all those requests.
    pub tokens_per_second: u32,
    /// The time to the first token that 95 of 100 requests stayed below, in milliseconds; absent when not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_to_first_token_ms: Option<u32>,
    /// The time between two tokens that 95 of 100 stayed below, in milliseconds; absent when not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inter_token_ms: Option<u32>,
    /// Tokens of each prompt; absent when they differed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<Tokens>,
    /// Tokens of each answer; absent when they differed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<Tokens>,
    /// The goal that it was held to, for people, such as `first token within 500 ms`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub goal: String,
}
