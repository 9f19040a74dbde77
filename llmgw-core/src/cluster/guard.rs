//! The guard's policy: what is looked for in prompts and answers, and what is done when it is found.
//!
//! A policy is a list of rules, in their order, and what levels change of it. A level adds rules, replaces those of the
//! same name and switches rules off; what holds for a key is the policy as the levels of its path have changed it, the
//! organisation first. A rule that is *locked* stays as it is for all levels beneath the one that made it.
//!
//! ```
//! use llmgw_core::cluster::guard::{Policy, PolicyDefinition};
//!
//! let definition: PolicyDefinition = serde_json::from_str(
//!     r#"{
//!         "rules": [
//!             {"name": "secrets", "pii": ["secret"], "action": "redact", "locked": true},
//!             {"name": "projects", "keywords": ["Blue Harvest"], "stages": "both", "action": "block"}
//!         ],
//!         "levels": {"acme/search": {"off": ["projects"]}}
//!     }"#,
//! )?;
//! let policy = Policy::checked(definition, "guard")?;
//! let names: Vec<_> = policy.of(&"acme/search".parse()?).map(|held| held.rule.name.clone()).collect();
//! assert_eq!(names, ["secrets".parse()?]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod baseline;
mod check;
mod decision;
mod definition;

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

pub use self::{
    decision::{Decision, GuardedCall, Stage},
    definition::{JudgeDefinition, LevelDefinition, PolicyDefinition, RuleDefinition, StageNames},
};
use crate::{
    cluster::tenancy::LevelPath,
    id::{ModelName, RuleName},
};

/// A policy that was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    rules: Vec<Rule>,
    levels: BTreeMap<LevelPath, Changes>,
    definition: PolicyDefinition,
    is_baseline: bool,
}

/// What is looked for, where, and what is done about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its name, unique within what holds for a key.
    pub name: RuleName,
    /// What is looked for.
    pub kind: RuleKind,
    /// Where.
    pub stages: Stages,
    /// What is done.
    pub action: Action,
    /// What a client whose call is blocked is told, besides the rule and who made it.
    pub message: Option<String>,
    /// Whether levels beneath can neither replace it nor switch it off.
    pub locked: bool,
    /// As it was written.
    pub definition: Box<RuleDefinition>,
}

/// What a rule looks for.
#[derive(Clone, Debug, PartialEq)]
pub enum RuleKind {
    /// Any of these words or phrases, whole, in any case.
    Keywords(Vec<String>),
    /// A regular expression, in the syntax of Rust's `regex`: it takes time linear in the text.
    Regex(String),
    /// Data about persons, and secrets.
    Pii(Vec<PiiKind>),
    /// Whatever a model says.
    Judge(Judge),
}

/// A kind of data that is known by its form.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PiiKind {
    /// An e-mail address.
    Email,
    /// A phone number: international with its `+`, or North American with its three groups.
    Phone,
    /// A payment card's number: 13 to 19 digits of a known issuer's range that pass the Luhn check.
    Card,
    /// An international bank account number whose length is its country's and that passes the check of mod 97.
    Iban,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// A social security number of the United States, with its dashes.
    Ssn,
    /// A secret by its form: API keys and tokens of known issuers, JSON web tokens, private keys in PEM.
    Secret,
}

/// A model that is asked about texts.
#[derive(Clone, Debug, PartialEq)]
pub struct Judge {
    /// The model, by name or alias: one that this cluster serves.
    pub model: ModelName,
    /// What it is asked.
    pub prompt: String,
    /// A text matches when the model's score, from 0 to 1, is at least this.
    pub threshold: f64,
    /// The longest that it may take, waiting for its turn included.
    pub timeout: Duration,
    /// What becomes of a text when the model gives no score.
    pub on_error: OnError,
}

/// What becomes of a text when its judge fails.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// It passes.
    Allow,
    /// It is blocked, as if it matched a rule that blocks.
    #[default]
    Block,
    /// It passes, and is flagged.
    Flag,
}

/// Where a rule looks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stages {
    /// In what clients send.
    pub input: bool,
    /// In what models answer.
    pub output: bool,
}

/// What is done about what is found; each is stronger than those before it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "GuardAction"))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The call is served, marked and written down.
    Flag,
    /// What was found is replaced by `[redacted:RULE]`.
    Redact,
    /// The call is refused, or its answer ended.
    Block,
}

/// A rule as it holds for somebody.
#[derive(Clone, Debug, PartialEq)]
pub struct Held<'p> {
    /// The rule.
    pub rule: &'p Rule,
    /// Who made it: the cluster, or a level.
    pub by: LevelPath,
}

/// What a level changes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Changes {
    off: Vec<RuleName>,
    rules: Vec<Rule>,
}

/// Says that a text is not one of a few words.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is no {kind}; there are {known}")]
pub struct ParseWordError {
    kind: &'static str,
    known: &'static str,
    text: String,
}

// === impl Policy ===

impl Policy {
    /// The policy that stands when none was given. It blocks nothing and changes nothing: it flags secrets, card
    /// numbers, bank accounts and social security numbers in what clients send.
    #[must_use]
    pub fn baseline() -> Self {
        baseline::policy()
    }

    /// Whether it is the one that stands when none was given.
    #[must_use]
    pub fn is_baseline(&self) -> bool {
        self.is_baseline
    }

    /// What it was made of, as it can be written into settings again.
    #[must_use]
    pub fn definition(&self) -> &PolicyDefinition {
        &self.definition
    }

    /// The levels that change it.
    pub fn levels(&self) -> impl Iterator<Item = &LevelPath> {
        self.levels.keys()
    }

    /// The level whose changes hold at `level`: itself, or the nearest above it that changes anything.
    #[must_use]
    pub fn nearest(&self, level: &LevelPath) -> LevelPath {
        let changed = |path: &LevelPath| self.levels.contains_key(path);
        level.upwards().find(changed).unwrap_or_default()
    }

    /// The rules that hold at a level, in the order in which they were made.
    pub fn of(&self, level: &LevelPath) -> impl Iterator<Item = Held<'_>> + use<'_> {
        let mut held: Vec<Held<'_>> = by(&self.rules, &LevelPath::CLUSTER).collect();
        let mut down: Vec<LevelPath> = level.upwards().collect();
        down.reverse();
        for path in down {
            if let Some(changes) = self.levels.get(&path) {
                changes.change(&mut held, &path);
            }
        }
        held.into_iter()
    }
}

// === impl Changes ===

impl Changes {
    fn change<'p>(&'p self, held: &mut Vec<Held<'p>>, path: &LevelPath) {
        held.retain(|one| one.rule.locked || !self.off.contains(&one.rule.name));
        for rule in by(&self.rules, path) {
            match held.iter_mut().find(|one| one.rule.name == rule.rule.name) {
                Some(old) if old.rule.locked => {}
                Some(old) => *old = rule,
                None => held.push(rule),
            }
        }
    }
}

fn by<'p>(rules: &'p [Rule], path: &LevelPath) -> impl Iterator<Item = Held<'p>> {
    rules.iter().map(|rule| Held {
        rule,
        by: path.clone(),
    })
}

// === impl Stages ===

impl Stages {
    /// What clients send.
    pub const INPUT: Self = Self {
        input: true,
        output: false,
    };

    /// Whether it is one of them.
    #[must_use]
    pub fn has(self, stage: Stage) -> bool {
        match stage {
            Stage::Input => self.input,
            Stage::Output => self.output,
        }
    }
}

// === impl Action ===

impl Action {
    /// The action as it stands in settings, headers and numbers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Redact => "redact",
            Self::Block => "block",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Action {
    type Err = ParseWordError;

    fn from_str(text: &str) -> Result<Self, ParseWordError> {
        let all = [Self::Flag, Self::Redact, Self::Block];
        word(&all, Self::as_str, text, "action", "flag, redact and block")
    }
}

// === impl PiiKind ===

impl PiiKind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Email,
        Self::Phone,
        Self::Card,
        Self::Iban,
        Self::Ipv4,
        Self::Ipv6,
        Self::Ssn,
        Self::Secret,
    ];
}

fn word<T: Copy>(
    all: &[T],
    name: impl Fn(T) -> &'static str,
    text: &str,
    kind: &'static str,
    known: &'static str,
) -> Result<T, ParseWordError> {
    let found = all.iter().copied().find(|one| name(*one) == text);
    found.ok_or_else(|| ParseWordError {
        kind,
        known,
        text: text.chars().take(64).collect(),
    })
}

#[cfg(test)]
mod tests;
