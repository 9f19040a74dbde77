//! The admin API, `/api/v1`: usage, what it cost, and what models cost.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    cluster::tenancy::{LevelPath, Period, Window},
    id::ModelName,
    units::{Micros, Tokens},
};

/// How `GET usage` sums up: a line for each of what is named here. Written with commas: `level,key,model,day`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct UsageBy {
    /// A line for each model.
    pub model: bool,
    /// A line for each key.
    pub key: bool,
    /// A line for each level.
    pub level: Option<LevelsUpTo>,
    /// A line for each hour, day or month.
    pub time: Option<Period>,
}

/// How far down levels are told apart.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LevelsUpTo {
    /// Organisations: what their teams used is theirs.
    Organisation,
    /// Teams: what their projects used is theirs.
    Team,
    /// All.
    Project,
}

/// Says that a text is nothing that usage is summed up by.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{text:?} is nothing that usage is summed up by; there are model, key, level, organisation, team, hour, day and month"
)]
pub struct ParseUsageByError {
    text: String,
}

/// `GET usage`, one of.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct UsageView {
    /// When the hour, the day or the month began (UTC), in milliseconds since the Unix epoch; absent when it is summed up
    /// over the whole time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The level that the key belonged to; absent when it is summed up over all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<LevelPath>,
    /// The model; absent when it is summed up over all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    /// The key's id; absent when it is summed up over all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Calls.
    pub requests: u64,
    /// Calls that ended with a status of 400 or more.
    pub errors: u64,
    /// Tokens of all prompts.
    pub prompt_tokens: Tokens,
    /// Those of them that the engines had in their caches.
    #[serde(default)]
    pub cached_tokens: Tokens,
    /// Tokens of all answers.
    pub completion_tokens: Tokens,
    /// What the calls cost, by the prices that were valid when they came in, in millionths of the cluster's currency.
    #[serde(default)]
    pub cost_micros: Micros,
    /// When the last of the calls came in, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at: Option<Timestamp>,
    /// Whose the line is, when it is of a level or a key.
    #[serde(flatten)]
    pub of: UsageOf,
}

/// Whose usage a line is: of a key where it is of one, else of a level.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct UsageOf {
    /// `key`, or what such a level is called: `cluster`, `organisation`, `team`, `project`; absent when the line is of neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The key's id, or the level's path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What people call it; absent for a key that was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Keys that it has now: those of the levels in it too, as far as they are not lines of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<usize>,
    /// Its own budget, in millionths of the cluster's currency: of several, the one that is used up the most. Absent when it
    /// has none, or the line is of a part of its calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_micros: Option<Micros>,
    /// The budget's period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_period: Option<Period>,
    /// How much of the budget is spent in the period that it is now, whatever time the line is over: 1 is all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
}

/// `POST prices`; what models cost from now on.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PriceRequest {
    /// A model or an alias.
    pub model: ModelName,
    /// Of a million tokens of prompts, in millionths of the cluster's currency.
    pub prompt: Micros,
    /// Of a million tokens of prompts that the engine had in its cache; as of all others when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<Micros>,
    /// Of a million tokens of answers.
    pub completion: Micros,
}

// === impl UsageBy ===

impl UsageBy {
    /// A line for each model and key.
    pub const BOTH: Self = Self {
        model: true,
        key: true,
        level: None,
        time: None,
    };
    /// A line for each team: what is answered when nothing is asked for.
    pub const TEAM: Self = Self {
        model: false,
        key: false,
        level: Some(LevelsUpTo::Team),
        time: None,
    };
    /// A line for each model.
    pub const MODEL: Self = Self {
        key: false,
        ..Self::BOTH
    };
    /// A line for each key.
    pub const KEY: Self = Self {
        model: false,
        ..Self::BOTH
    };

    /// Sums lines up, which are for each model, key and level, and for steps of time that are no longer than asked.
    #[must_use]
    pub fn sum(self, lines: Vec<UsageView>) -> Vec<UsageView> {
        type Place = (
            Option<Timestamp>,
            Option<LevelPath>,
            Option<ModelName>,
            Option<String>,
        );
        let mut sums: BTreeMap<Place, UsageView> = BTreeMap::new();
        for mut line in lines {
            line.at = match (line.at, self.time) {
                (Some(at), Some(period)) => Some(Window::of(period, at).begins),
                _ => None,
            };
            let level = line.level.take();
            line.level = self.level.zip(level).map(|(depth, level)| depth.of(&level));
            line.model = line.model.filter(|_| self.model);
            line.key = line.key.filter(|_| self.key);
            let place = (
                line.at,
                line.level.clone(),
                line.model.clone(),
                line.key.clone(),
            );
            match sums.get_mut(&place) {
                Some(sum) => sum.add(&line),
                None => drop(sums.insert(place, line)),
            }
        }
        sums.into_values().collect()
    }
}

impl Default for UsageBy {
    fn default() -> Self {
        Self::BOTH
    }
}

impl fmt::Display for UsageBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            model,
            key,
            level,
            time,
        } = self;
        let level = level.map(|level| match level {
            LevelsUpTo::Organisation => "organisation",
            LevelsUpTo::Team => "team",
            LevelsUpTo::Project => "level",
        });
        let names = [
            level,
            key.then_some("key"),
            model.then_some("model"),
            time.map(Period::as_str),
        ];
        let names: Vec<&str> = names.into_iter().flatten().collect();
        f.write_str(&names.join(","))
    }
}

impl FromStr for UsageBy {
    type Err = ParseUsageByError;

    fn from_str(text: &str) -> Result<Self, ParseUsageByError> {
        let mut by = Self {
            model: false,
            key: false,
            level: None,
            time: None,
        };
        for name in text.split(',') {
            match name {
                "model" => by.model = true,
                "key" => by.key = true,
                "level" | "project" => by.level = Some(LevelsUpTo::Project),
                "organisation" | "org" => by.level = Some(LevelsUpTo::Organisation),
                "team" => by.level = Some(LevelsUpTo::Team),
                "hour" => by.time = Some(Period::Hour),
                "day" => by.time = Some(Period::Day),
                "month" => by.time = Some(Period::Month),
                other => {
                    let text = other.chars().take(64).collect();
                    return Err(ParseUsageByError { text });
                }
            }
        }
        Ok(by)
    }
}

// === impl LevelsUpTo ===

impl LevelsUpTo {
    /// The line that usage at a level is in.
    #[must_use]
    pub fn of(self, level: &LevelPath) -> LevelPath {
        let depth = match self {
            Self::Organisation => 1,
            Self::Team => 2,
            Self::Project => 3,
        };
        level.cut(depth)
    }
}

// === impl UsageView ===

impl UsageView {
    fn add(&mut self, line: &Self) {
        let Self {
            at: _,
            level: _,
            model: _,
            key: _,
            requests,
            errors,
            prompt_tokens,
            cached_tokens,
            completion_tokens,
            cost_micros,
            last_at,
            of: _,
        } = self;
        *last_at = (*last_at).max(line.last_at);
        *requests = requests.saturating_add(line.requests);
        *errors = errors.saturating_add(line.errors);
        prompt_tokens.0 = prompt_tokens.0.saturating_add(line.prompt_tokens.0);
        cached_tokens.0 = cached_tokens.0.saturating_add(line.cached_tokens.0);
        completion_tokens.0 = completion_tokens.0.saturating_add(line.completion_tokens.0);
        cost_micros.0 = cost_micros.0.saturating_add(line.cost_micros.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at: i64, level: &str, model: &str, key: &str) -> UsageView {
        UsageView {
            at: Some(Timestamp(at)),
            level: level.parse().ok(),
            model: model.parse().ok(),
            key: Some(key.to_owned()),
            requests: 1,
            cost_micros: Micros(5),
            ..UsageView::default()
        }
    }

    #[test]
    fn what_is_summed_up_by_is_its_text() {
        for text in [
            "model",
            "key",
            "key,model",
            "organisation,day",
            "team,key,hour",
            "level,key,model,month",
        ] {
            assert_eq!(text.parse::<UsageBy>().unwrap().to_string(), text);
        }
        for bad in ["", "models", "key,", "minute", "total"] {
            assert!(bad.parse::<UsageBy>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn lines_are_summed_up_by_what_is_asked_and_name_nothing_else() {
        let day = 86_400_000;
        let lines = || {
            vec![
                line(0, "acme/search/x", "m", "a"),
                line(day, "acme/search/y", "m", "b"),
                line(40 * day, "acme", "n", "b"),
                line(40 * day, "/", "n", "c"),
            ]
        };
        let sum = |by: &str| {
            let sums = by.parse::<UsageBy>().unwrap().sum(lines());
            let said = |one: UsageView| {
                let level = one.level.map(|level| level.to_string());
                let model = one.model.map(|model| model.to_string());
                let all = [one.at.map(|at| at.0.to_string()), level, model, one.key];
                let all: Vec<String> = all.into_iter().flatten().collect();
                assert_eq!(one.cost_micros.0, 5 * i64::try_from(one.requests).unwrap());
                format!("{} {}", all.join(" "), one.requests)
            };
            sums.into_iter().map(said).collect::<Vec<_>>()
        };
        assert_eq!(sum("model"), ["m 2", "n 2"]);
        assert_eq!(sum("organisation"), ["/ 1", "acme 3"]);
        assert_eq!(sum("team"), ["/ 1", "acme 1", "acme/search 2"]);
        assert_eq!(sum("month"), ["0 2", "2678400000 2"]);
        assert_eq!(sum("level,key,day").len(), 4);
    }
}
