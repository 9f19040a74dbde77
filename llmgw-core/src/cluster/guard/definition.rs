//! A policy as it is written into settings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Action, OnError, PiiKind};
use crate::{cluster::tenancy::LevelPath, units::Span};

/// A policy as it is written; [`Policy::checked`](super::Policy::checked) reads it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyDefinition {
    /// What holds for everybody, in its order.
    #[serde(default)]
    pub rules: Vec<RuleDefinition>,
    /// What levels change of it, by their paths.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub levels: BTreeMap<LevelPath, LevelDefinition>,
}

/// What a level changes.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LevelDefinition {
    /// Rules from above that don't hold here, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub off: Vec<String>,
    /// Rules that hold here too; one with the name of a rule from above takes its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleDefinition>,
}

/// A rule. It has exactly one of `keywords`, `regex`, `pii` and `judge`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RuleDefinition {
    /// Its name: letters, digits, `.`, `-` and `_`.
    pub name: String,
    /// Words or phrases that are found whole, in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keywords: Option<Vec<String>>,
    /// A regular expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// Kinds of personal data and secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pii: Option<Vec<PiiKind>>,
    /// A model that is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judge: Option<JudgeDefinition>,
    /// Where it looks; in what clients send, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<StageNames>,
    /// What is done about what is found.
    pub action: Action,
    /// What a blocked client is told besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether levels beneath can neither replace it nor switch it off.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub locked: bool,
}

/// A model that is asked about texts.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct JudgeDefinition {
    /// The model, by name or alias: one that this cluster serves.
    pub model: String,
    /// What it is asked: what makes a text one that matches.
    pub prompt: String,
    /// From which score on a text matches, from 0 to 1; 0.5 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// The longest that it may take; 10 seconds when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// What becomes of a text when the model gives no score; it is blocked, when absent.
    #[serde(default)]
    pub on_error: OnError,
}

/// Where a rule looks.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StageNames {
    /// In what clients send.
    Input,
    /// In what models answer.
    Output,
    /// In both.
    Both,
}

/// A threshold that is no number is refused, in YAML too: see [`Policy::checked`](super::Policy::checked).
impl Eq for JudgeDefinition {}
