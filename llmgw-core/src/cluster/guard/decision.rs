//! What a rule did to a call, without a word of what the call said.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{Action, ParseWordError, word};
use crate::{
    clock::Timestamp,
    cluster::{account::UsageRecord, tenancy::LevelPath},
    id::{KeyId, ModelName, RequestId, RuleName},
};

/// Which way a text went.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "GuardStage"))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// From a client to a model.
    Input,
    /// From a model to a client.
    Output,
}

/// That a rule matched. It tells what was done, and nothing of the text.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "GuardDecision"))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Decision {
    /// The rule.
    pub rule: RuleName,
    /// Who made the rule.
    #[serde(default)]
    pub by: LevelPath,
    /// Where it matched.
    pub stage: Stage,
    /// What was done.
    pub action: Action,
    /// How often it matched, as far as was counted.
    pub count: u32,
    /// Whether nothing was found and the rule's judge gave no score.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

/// A call that rules matched, and what they did.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct GuardedCall {
    /// When it came in.
    pub at: Timestamp,
    /// The call.
    pub request: RequestId,
    /// Whose key.
    pub key: KeyId,
    /// The level that the key belonged to then.
    pub level: LevelPath,
    /// The model that was asked.
    pub model: ModelName,
    /// The HTTP status that the client got.
    pub status: u16,
    /// What was done, by rule.
    pub decisions: Vec<Decision>,
}

// === impl GuardedCall ===

impl GuardedCall {
    /// Of a call that is over; `None` when no rule matched it.
    #[must_use]
    pub fn of(record: &UsageRecord) -> Option<Self> {
        (!record.guard.is_empty()).then(|| Self {
            at: record.started_at,
            request: record.request,
            key: record.key,
            level: record.level.clone(),
            model: record.model.clone(),
            status: record.status,
            decisions: record.guard.clone(),
        })
    }
}

// === impl Stage ===

impl Stage {
    /// The stage as it stands in settings and numbers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Stage {
    type Err = ParseWordError;

    fn from_str(text: &str) -> Result<Self, ParseWordError> {
        let all = [Self::Input, Self::Output];
        word(&all, Self::as_str, text, "stage", "input and output")
    }
}
