//! The guard, as it is asked for and tried.

use serde::{Deserialize, Serialize};

use crate::{
    cluster::{
        guard::{Action, RuleDefinition, Stage},
        tenancy::LevelPath,
    },
    id::RuleName,
};

/// `GET guard?level=`: the rules that hold for a level.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct GuardView {
    /// For whom.
    pub level: LevelPath,
    /// Whether it is the policy that stands when none was given.
    pub baseline: bool,
    /// The rules, in their order.
    pub rules: Vec<HeldRule>,
}

/// A rule that holds.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct HeldRule {
    /// Who made it.
    pub by: LevelPath,
    /// The rule.
    pub rule: RuleDefinition,
}

/// `POST guard/try`: what would be found in a text.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GuardTry {
    /// The text. It is kept nowhere.
    pub text: String,
    /// By the rules of this level; of the cluster when absent.
    #[serde(default)]
    pub level: LevelPath,
    /// In which stage; `input` when absent.
    #[serde(default = "input")]
    pub stage: Stage,
}

/// What was found in a text that was tried.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct GuardTrial {
    /// What would be done: the strongest of it; absent when nothing was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// The rules that matched.
    pub matched: Vec<MatchedRule>,
    /// The text as it would go on, when parts of it are replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Rules whose models were not asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_asked: Vec<RuleName>,
}

/// A rule that matched.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct MatchedRule {
    /// The rule.
    pub rule: RuleName,
    /// Who made it.
    pub by: LevelPath,
    /// What it does.
    pub action: Action,
    /// How often it matched.
    pub count: u32,
}

fn input() -> Stage {
    Stage::Input
}
