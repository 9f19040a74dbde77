//! The promises of usage and of prices.

use std::{collections::BTreeSet, time::Duration};

use super::{
    Fixture, Violation, promises,
    verdict::{done, equal, holds, refused},
};
use crate::{
    api::usage::{PriceRequest, UsageBy, UsageOf},
    control::Control,
    error::Code,
    units::Micros,
};

pub(super) async fn usage_is_summed_up_as_asked(control: &Control) -> Result<(), Violation> {
    let usage = done("usage", control.accounts.usage(UsageBy::BOTH, LONG).await)?;
    let lines: BTreeSet<_> = usage.iter().map(|used| (&used.model, &used.key)).collect();
    holds(
        "usage has one line for a model and a key",
        lines.len() == usage.len(),
        &usage,
    )?;
    holds(
        "no more calls failed than were made",
        usage.iter().all(|used| used.errors <= used.requests),
        &usage,
    )?;
    let all: u64 = usage.iter().map(|used| used.requests).sum();
    let cost: i64 = usage.iter().map(|used| used.cost_micros.0).sum();
    for text in [
        "model",
        "key",
        "level",
        "organisation,day",
        "team,key,month",
        "model,hour",
    ] {
        let by: UsageBy = text.parse().map_err(|error| Violation {
            promise: "what usage is summed up by",
            found: format!("{error}"),
        })?;
        let sums = done("usage", control.accounts.usage(by, LONG).await)?;
        let places: Vec<_> = sums
            .iter()
            .map(|used| (used.at, &used.level, &used.model, &used.key))
            .collect();
        holds(
            "a sum has one line for what it is summed up by, in order",
            places.is_sorted_by(|a, b| a < b),
            &sums,
        )?;
        holds(
            "a sum names what it is summed up by, and nothing else",
            sums.iter().all(|used| {
                used.model.is_some() == by.model
                    && used.key.is_some() == by.key
                    && used.level.is_some() == by.level.is_some()
                    && used.at.is_some() == by.time.is_some()
            }),
            &sums,
        )?;
        holds(
            "a line of a level or a key says whose it is",
            sums.iter().all(|used| match (&used.key, &used.level) {
                (Some(key), _) => {
                    used.of.scope.as_deref() == Some("key") && used.of.id.as_ref() == Some(key)
                }
                (None, Some(level)) => {
                    used.of.scope.as_deref() == Some(level.kind())
                        && used.of.id == Some(level.to_string())
                }
                (None, None) => used.of == UsageOf::default(),
            }),
            &sums,
        )?;
        let summed: u64 = sums.iter().map(|used| used.requests).sum();
        equal("sums lose no call", &all, &summed)?;
        let summed: i64 = sums.iter().map(|used| used.cost_micros.0).sum();
        equal("and no money", &cost, &summed)?;
    }
    Ok(())
}

pub(super) async fn a_price_is_kept_with_its_history(fixture: &Fixture) -> Result<(), Violation> {
    let Fixture {
        control,
        declared,
        alias,
        ..
    } = fixture;
    let accounts = &control.accounts;
    let before = done("prices", accounts.prices().await)?;
    let request = |prompt: i64, cached: Option<i64>| PriceRequest {
        model: alias.clone(),
        prompt: Micros(prompt),
        cached: cached.map(Micros),
        completion: Micros(1_500_000),
    };
    let price = done("a price", accounts.set_price(request(500_000, None)).await)?;
    equal("a price is of the model's own name", declared, &price.model)?;
    equal(
        "what is cached costs as all else",
        Micros(500_000),
        price.cached,
    )?;
    let next = accounts.set_price(request(400_000, Some(0))).await;
    let next = done("another price", next)?;
    let after = done("prices", accounts.prices().await)?;
    holds(
        "prices come by model, then by time",
        after.is_sorted_by(|a, b| (&a.model, a.valid_from) < (&b.model, b.valid_from)),
        &after,
    )?;
    let at_once = price.valid_from == next.valid_from;
    holds(
        "the new price is listed, and so is the one before",
        after.contains(&next) && (at_once || after.contains(&price)),
        &after,
    )?;
    holds(
        "prices that were are kept",
        before
            .iter()
            .all(|old| after.contains(old) || old.valid_from == next.valid_from),
        &after,
    )?;
    for wrong in [-1, i64::MAX] {
        refused(
            "a price is an amount",
            Code::InvalidRequest,
            accounts.set_price(request(wrong, Some(0))).await,
        )?;
    }
    let unknown = PriceRequest {
        model: promises::name("conformance/unknown")?,
        ..request(1, None)
    };
    refused(
        "a price is of a model that there is",
        Code::NotFound,
        accounts.set_price(unknown).await,
    )?;
    Ok(())
}

const LONG: Duration = Duration::from_secs(365 * 86_400);
