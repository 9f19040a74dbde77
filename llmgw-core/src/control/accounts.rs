//! Usage, and what models cost.

use std::{fmt, time::Duration};

use async_trait::async_trait;

use super::ControlError;
use crate::{
    api::{
        tenancy::{KeyView, LevelView, SpendingView},
        usage::{PriceRequest, UsageBy, UsageOf, UsageView},
    },
    clock::Timestamp,
    cluster::tenancy::Price,
    error::Code,
    id::ModelName,
    units::Micros,
};

/// Usage, and what models cost.
#[async_trait]
pub trait Accounts: fmt::Debug + Send + Sync + 'static {
    /// What was used by calls that came in within the last `since`, summed up as asked; ordered by time, level, model and
    /// key. Shows what is in the store: a call shows up within a second.
    async fn usage(&self, by: UsageBy, since: Duration) -> Result<Vec<UsageView>, ControlError>;

    /// All prices, those that were too, by model, then by time.
    async fn prices(&self) -> Result<Vec<Price>, ControlError>;

    /// Has a model cost so much from now on, for calls that come in from now on. Accepts an alias. What calls have cost
    /// stays as it is.
    ///
    /// MUST refuse an unknown model ([`Code::NotFound`]), and an amount that is negative or absurd
    /// ([`Code::InvalidRequest`]).
    async fn set_price(&self, request: PriceRequest) -> Result<Price, ControlError>;
}

/// Lines with whose they are, and how much of their own budgets is spent, as [`Accounts::usage`] answers them.
#[must_use]
pub fn usage_of(
    by: UsageBy,
    mut sums: Vec<UsageView>,
    levels: &[LevelView],
    keys: &[KeyView],
) -> Vec<UsageView> {
    // A part of the calls has no part of a budget.
    let is_whole = !by.model && by.time.is_none();
    for line in &mut sums {
        let (mut of, spending) = match (&line.key, by.level, &line.level) {
            (Some(id), ..) => {
                let key = keys.iter().find(|key| key.id.to_string() == *id);
                let of = UsageOf {
                    scope: Some("key".to_owned()),
                    id: Some(id.clone()),
                    name: key.map(|key| key.name.clone()),
                    keys: Some(usize::from(key.is_some())),
                    ..UsageOf::default()
                };
                (of, key.map(|key| key.spending.as_slice()))
            }
            (None, Some(depth), Some(path)) => {
                let level = levels.iter().find(|level| level.path == *path);
                let shown = path.to_string();
                let name = shown.rsplit('/').find(|part| !part.is_empty());
                let of = UsageOf {
                    scope: Some(path.kind().to_owned()),
                    name: Some(name.unwrap_or(&shown).to_owned()),
                    keys: Some(
                        keys.iter()
                            .filter(|key| depth.of(&key.level) == *path)
                            .count(),
                    ),
                    id: Some(shown),
                    ..UsageOf::default()
                };
                (of, level.map(|level| level.spending.as_slice()))
            }
            _ => continue,
        };
        let spending = spending.filter(|_| is_whole).unwrap_or_default();
        let spent = spending.iter().map(|one| (used_up(one), one));
        if let Some((fraction, budget)) = spent.max_by(|(a, _), (b, _)| a.total_cmp(b)) {
            of.budget_micros = Some(budget.amount_micros);
            of.budget_period = Some(budget.period);
            of.fraction = Some(fraction);
        }
        line.of = of;
    }
    sums
}

/// How much of a budget is spent; of none at all, all of it.
#[expect(
    clippy::cast_precision_loss,
    reason = "money beyond 2^53 millionths is a fraction all the same"
)]
fn used_up(spending: &SpendingView) -> f64 {
    if spending.amount_micros.0 <= 0 {
        return 1.0;
    }
    spending.spent_micros.0 as f64 / spending.amount_micros.0 as f64
}

/// The price of a model of this name, as [`Accounts::set_price`] must check it.
///
/// # Errors
/// What `set_price` must answer.
pub fn check_price(
    request: PriceRequest,
    model: ModelName,
    now: Timestamp,
) -> Result<Price, ControlError> {
    let PriceRequest {
        model: _,
        prompt,
        cached,
        completion,
    } = request;
    let cached = cached.unwrap_or(prompt);
    for (field, amount) in [
        ("prompt", prompt),
        ("cached", cached),
        ("completion", completion),
    ] {
        if amount < Micros(0) || amount > Price::MOST {
            let message = format!("{field}: {} is no price of a million tokens", amount.0);
            return Err(ControlError::new(Code::InvalidRequest, message)
                .with_hint("it is in millionths of the currency: 500000 is 0.50"));
        }
    }
    Ok(Price {
        model,
        valid_from: now,
        prompt,
        cached,
        completion,
    })
}
