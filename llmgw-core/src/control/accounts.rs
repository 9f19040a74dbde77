//! Usage, and what models cost.

use std::{fmt, time::Duration};

use async_trait::async_trait;

use super::ControlError;
use crate::{
    api::usage::{PriceRequest, UsageBy, UsageView},
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
