//! What is limited, at a level or for a key.

use serde::{Deserialize, Serialize};

use super::{Budget, Period, quota::Measure};
use crate::{cluster::catalog::DefinitionError, id::ModelName, units::Micros};

/// What is limited; what is absent is not.
///
/// An unknown field is refused, also from a store: a limit of a newer release that is not kept must not be taken for
/// none.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// The models that may be used, by name or alias; all of them when absent, and none when it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<ModelName>>,
    /// Calls within a minute, from one full minute to the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u64>,
    /// Tokens of prompts and answers within a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<u64>,
    /// Calls at the same time, those that wait for their model too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<u64>,
    /// What may be spent, within one period or several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<Budget>,
}

// === impl Limits ===

impl Limits {
    /// Whether nothing is limited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a model that has these names may be used.
    pub fn allow<'n>(&self, mut names: impl Iterator<Item = &'n ModelName>) -> bool {
        match &self.models {
            None => true,
            Some(allowed) => names.any(|name| allowed.contains(name)),
        }
    }

    /// What is limited of calls and their tokens, and how far; money is in the budgets.
    pub fn counted(&self) -> impl Iterator<Item = (Measure, u64)> {
        let Self {
            models: _,
            requests_per_minute,
            tokens_per_minute,
            concurrent,
            budgets: _,
        } = self;
        let all = [
            (Measure::Concurrent, *concurrent),
            (Measure::Requests, *requests_per_minute),
            (Measure::Tokens, *tokens_per_minute),
        ];
        all.into_iter()
            .filter_map(|(measure, limit)| Some((measure, limit?)))
    }

    /// Refuses what can't be meant.
    ///
    /// # Errors
    /// The first such limit, with its place beneath `field`.
    pub fn check(&self, field: &str) -> Result<(), DefinitionError> {
        let Self {
            models,
            requests_per_minute,
            tokens_per_minute,
            concurrent,
            budgets,
        } = self;
        let wrong = |what: &str, problem: &str, hint: &str| {
            Err(DefinitionError {
                field: format!("{field}.{what}"),
                problem: problem.to_owned(),
                hint: Some(hint.to_owned()),
            })
        };
        if models.as_ref().is_some_and(|all| all.len() > MOST_MODELS) {
            let hint = "name what few may use at a level that they are in";
            return wrong("models", "there are more than 1,000", hint);
        }
        for (what, limit) in [
            ("requests_per_minute", requests_per_minute),
            ("tokens_per_minute", tokens_per_minute),
            ("concurrent", concurrent),
        ] {
            if *limit == Some(0) {
                let hint =
                    "leave it out for no limit; an empty list of models lets nobody do anything";
                return wrong(what, "with 0, nothing could be done", hint);
            }
        }
        for (index, budget) in budgets.iter().enumerate() {
            let what = format!("budgets[{index}]");
            let hint = "write for example 25/month; an hour, a day, a month or the total";
            if budget.period == Period::Minute {
                return wrong(&what, "a minute is no period of a budget", hint);
            }
            if budget.amount_micros.0 <= 0 || budget.amount_micros > MOST_MONEY {
                return wrong(&what, "it is no amount that could be spent", hint);
            }
            let others = budgets.iter().take(index);
            if others.clone().any(|other| other.period == budget.period) {
                return wrong(&what, "there are two for one period", hint);
            }
        }
        Ok(())
    }
}

const MOST_MODELS: usize = 1_000;
/// A thousand million units.
const MOST_MONEY: Micros = Micros(1_000_000_000_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allow_list_holds_for_names_and_aliases() {
        let name = |text: &str| -> ModelName { text.parse().unwrap() };
        let (big, alias) = (name("org/big"), name("big"));
        let limits = |models: &[&str]| Limits {
            models: Some(models.iter().map(|text| name(text)).collect()),
            ..Limits::default()
        };
        assert!(Limits::default().allow([&big].into_iter()));
        assert!(limits(&["org/big"]).allow([&big].into_iter()));
        assert!(limits(&["big"]).allow([&big, &alias].into_iter()));
        assert!(!limits(&["big"]).allow([&big].into_iter()));
        assert!(!limits(&[]).allow([&big, &alias].into_iter()));
    }

    #[test]
    fn what_is_counted_is_said_and_nothing_is_no_limit() {
        let limits: Limits = serde_json::from_str("{\"tokens_per_minute\":5}").unwrap();
        let counted: Vec<(Measure, u64)> = limits.counted().collect();
        assert_eq!(counted, [(Measure::Tokens, 5)]);
        assert!(limits.check("limits").is_ok() && !limits.is_empty());
        let nothing: Limits = serde_json::from_str("{\"concurrent\":0}").unwrap();
        let error = nothing.check("limits").unwrap_err().to_string();
        assert!(error.starts_with("limits.concurrent: "), "{error}");
    }

    #[test]
    fn budgets_are_of_an_amount_and_of_one_for_each_period() {
        let check = |budgets: &[&str]| {
            let limits = Limits {
                budgets: budgets.iter().map(|text| text.parse().unwrap()).collect(),
                ..Limits::default()
            };
            limits.check("limits").map_err(|error| error.field)
        };
        assert_eq!(check(&["1/day", "25/month/soft"]), Ok(()));
        assert_eq!(
            check(&["1/day", "0/month"]),
            Err("limits.budgets[1]".to_owned())
        );
        assert_eq!(
            check(&["1/day", "2/day"]),
            Err("limits.budgets[1]".to_owned())
        );
    }

    #[test]
    fn a_limit_that_is_not_known_is_not_taken_for_none() {
        assert!(serde_json::from_str::<Limits>("{\"requests_per_fortnight\":1}").is_err());
        assert!(serde_json::from_str::<Limits>("{}").unwrap().is_empty());
    }
}
