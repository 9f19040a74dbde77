//! Budgets: how much may be spent within a period.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::Period;
use crate::units::Micros;

/// How much may be spent within a period.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// How much, in millionths of the cluster's currency.
    pub amount_micros: Micros,
    /// Within which period.
    pub period: Period,
    /// What becomes of calls while nobody can tell how much is spent.
    #[serde(default)]
    pub kind: BudgetKind,
}

/// What becomes of calls when the store is away, so that nobody can tell how much of a budget is spent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetKind {
    /// They are refused, once the gateway has spent what it holds.
    #[default]
    Hard,
    /// They are served, and what they spend beyond the budget is written down.
    Soft,
}

/// Says why a text is no budget.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{text:?} is no budget; write an amount and a period, such as 25/month, 1.50/day or 100/total/soft"
)]
pub struct ParseBudgetError {
    text: String,
}

// === impl Budget ===

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            amount_micros,
            period,
            kind,
        } = self;
        let amount = amount_micros.shortest();
        match kind {
            BudgetKind::Hard => write!(f, "{amount}/{period}"),
            BudgetKind::Soft => write!(f, "{amount}/{period}/soft"),
        }
    }
}

impl FromStr for Budget {
    type Err = ParseBudgetError;

    fn from_str(text: &str) -> Result<Self, ParseBudgetError> {
        let error = || ParseBudgetError {
            text: text.chars().take(64).collect(),
        };
        let mut parts = text.split('/');
        let amount = parts.next().and_then(|amount| amount.parse().ok());
        let period = match parts.next() {
            Some("hour") => Period::Hour,
            Some("day") => Period::Day,
            Some("month") => Period::Month,
            Some("total") => Period::Total,
            _ => return Err(error()),
        };
        let kind = match parts.next() {
            None | Some("hard") => BudgetKind::Hard,
            Some("soft") => BudgetKind::Soft,
            Some(_) => return Err(error()),
        };
        if parts.next().is_some() {
            return Err(error());
        }
        Ok(Self {
            amount_micros: amount.ok_or_else(error)?,
            period,
            kind,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_an_amount_and_a_period() {
        for (text, micros) in [
            ("25/month", 25_000_000),
            ("1.5/day", 1_500_000),
            ("100/total/soft", 100_000_000),
            ("0.000001/hour", 1),
        ] {
            let budget: Budget = text.parse().unwrap();
            assert_eq!(budget.amount_micros, Micros(micros));
            assert_eq!(budget.to_string(), text);
        }
        for bad in [
            "",
            "25",
            "25/minute",
            "25/month/",
            "x/day",
            "25/month/soft/x",
            "1.0000001/day",
        ] {
            assert!(bad.parse::<Budget>().is_err(), "{bad:?}");
        }
    }
}
