//! What a call needs of all that is limited for its caller.

use super::{
    Admission,
    ledger::{Alone, Need},
};
use crate::{
    clock::Timestamp,
    cluster::tenancy::{
        Budget, BudgetKind, Limits, Party, Period, Price, PriceList, Window,
        quota::{Measure, Quota},
    },
    error::Code,
    gateway::{identify::Caller, inspect::Inspected, refusal::Refusal},
    id::ModelName,
    units::Tokens,
};

/// Tokens that a call should reserve, and must be able to reserve at least.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Estimate {
    prompt: u64,
    /// Of all its answers together.
    most: u64,
    mostly: u64,
}

/// Whether a budget counts what a caller spends.
pub(super) fn has_budget(caller: &Caller) -> bool {
    let mut held = caller.pass.held().iter();
    held.any(|one| !one.limits.budgets.is_empty())
}

impl Admission {
    /// What a call needs; nothing when nobody limits its caller.
    ///
    /// A model without a price is free, but for callers with a budget: to them it is refused, for else the budget would
    /// count for nothing.
    pub(super) fn needs(
        &self,
        caller: &Caller,
        model: &ModelName,
        asked: &Inspected,
    ) -> Result<Vec<Need>, Refusal> {
        let held = caller.pass.held();
        if !held.iter().any(|one| is_counted(&one.limits)) {
            return Ok(Vec::new());
        }
        let now = self.ledger.now();
        let prices = self.prices();
        let estimate = self.estimate(model, asked);
        let mut needs = Vec::new();
        for holding in held {
            let party = &holding.party;
            for (measure, limit) in holding.limits.counted() {
                needs.push(counted(party, (measure, limit), estimate, now));
            }
            for budget in &holding.limits.budgets {
                let price = prices.at(model, now);
                let price = price.ok_or_else(|| no_price(model, party))?;
                needs.push(spent(party, *budget, (price, estimate), now));
            }
        }
        Ok(needs)
    }

    /// Whether a call that its model can't serve may go to this one.
    pub(in crate::gateway) fn may_cost(&self, caller: &Caller, model: &ModelName) -> bool {
        !has_budget(caller) || self.prices().at(model, self.ledger.now()).is_some()
    }

    pub(super) fn prices(&self) -> std::sync::Arc<PriceList> {
        std::sync::Arc::clone(&self.prices.borrow())
    }

    /// How many tokens a call uses.
    ///
    /// It reserves what it can use at most, or what nearly all calls of that model have used; and where that is not to be
    /// had, what is there, if it is as much as such calls use mostly. Else a few calls that could be long, and never are,
    /// would keep all others out.
    fn estimate(&self, model: &ModelName, asked: &Inspected) -> Estimate {
        let expected = self.learned().expected(model);
        let worst = asked.max_tokens.unwrap_or(LONG);
        let most = expected.map_or(worst, |expected| worst.min(expected.most));
        let mostly = expected.map_or(SHORT, |expected| expected.median).min(most);
        let choices = asked.n.clamp(1, MOST_CHOICES);
        Estimate {
            prompt: asked.prompt_tokens(),
            most: most.saturating_mul(choices),
            mostly: mostly.saturating_mul(choices),
        }
    }
}

fn counted(
    party: &Party,
    (measure, limit): (Measure, u64),
    estimate: Estimate,
    now: Timestamp,
) -> Need {
    let Estimate {
        prompt,
        most,
        mostly,
    } = estimate;
    let whole = |answer: u64| prompt.saturating_add(answer).max(1);
    let (period, amount, least) = match measure {
        Measure::Concurrent => (Period::Total, 1, 1),
        Measure::Tokens => (Period::Minute, whole(most), whole(mostly)),
        Measure::Requests | Measure::Cost => (Period::Minute, 1, 1),
    };
    Need {
        quota: Quota {
            party: party.clone(),
            measure,
            window: Window::of(period, now),
        },
        limit,
        amount: amount.min(limit),
        // What needs more than there ever is goes when all of it is there.
        least: least.min(limit),
        alone: Alone::Part,
    }
}

fn spent(
    party: &Party,
    budget: Budget,
    (price, estimate): (&Price, Estimate),
    now: Timestamp,
) -> Need {
    let limit = u64::try_from(budget.amount_micros.0).unwrap_or(0);
    let cost = |answer: u64| {
        let cost = price.cost(Tokens(estimate.prompt), Tokens(0), Tokens(answer));
        u64::try_from(cost.0).unwrap_or(0)
    };
    Need {
        quota: Quota {
            party: party.clone(),
            measure: Measure::Cost,
            window: Window::of(budget.period, now),
        },
        limit,
        amount: cost(estimate.most).min(limit),
        // When all is spent, nothing goes: also not what costs nothing.
        least: cost(estimate.mostly).min(limit).max(1),
        alone: match budget.kind {
            BudgetKind::Hard => Alone::Nothing,
            BudgetKind::Soft => Alone::All,
        },
    }
}

fn is_counted(limits: &Limits) -> bool {
    !limits.budgets.is_empty() || limits.counted().next().is_some()
}

fn no_price(model: &ModelName, party: &Party) -> Refusal {
    let message = format!(
        "the model {model} has no price, and what {party} spends counts against a budget; an operator can set one"
    );
    Refusal::new(Code::ModelNotAllowed, message).with_param("model")
}

/// Tokens of an answer of which nobody has said how long it may be, when nothing is known of such.
const LONG: u64 = 4_096;
/// Tokens of most answers, when nothing is known of them.
const SHORT: u64 = 256;
const MOST_CHOICES: u64 = 128;
