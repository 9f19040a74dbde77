//! Usage, and what models cost.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use llmgw_core::{
    api::usage::{PriceRequest, UsageBy, UsageOf, UsageView},
    clock::Timestamp,
    cluster::tenancy::{Period, Price, PriceList},
    control::{Accounts, ControlError, Tenancy, check_price, ordered, usage_of},
    store::{StoreError, UsageStep, UsageTotal, Write},
};

use super::{
    ControllerHandle, Shared,
    roles::{from_store, known},
};

#[async_trait]
impl Accounts for ControllerHandle {
    async fn usage(&self, by: UsageBy, since: Duration) -> Result<Vec<UsageView>, ControlError> {
        let span = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        let begin = Timestamp(self.shared.clock.now().0.saturating_sub(span));
        let step = by.time.map(|period| match period {
            Period::Minute | Period::Hour => UsageStep::Hour,
            Period::Day | Period::Month | Period::Total => UsageStep::Day,
        });
        let totals = self.shared.store.usage_totals(begin, step).await;
        let totals = totals.map_err(|error| from_store(&error))?;
        let sums = by.sum(totals.into_iter().map(view).collect());
        if by.level.is_none() && !by.key {
            return Ok(sums);
        }
        let (levels, keys) = (Tenancy::levels(self).await?, Tenancy::keys(self).await?);
        Ok(usage_of(by, sums, &levels, &keys))
    }

    async fn prices(&self) -> Result<Vec<Price>, ControlError> {
        let prices = self.shared.store.prices().await;
        prices.map_err(|error| from_store(&error))
    }

    async fn set_price(&self, request: PriceRequest) -> Result<Price, ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let model = {
                let snapshot = shared.snapshot();
                known(&snapshot, &request.model)?.model.name().clone()
            };
            let price = check_price(request, model, shared.clock.now())?;
            let writes = [Write::PutPrice(Box::new(price.clone()))];
            shared
                .commit(
                    &actor,
                    "price.set",
                    &ordered(price.model.as_str(), &price),
                    &writes,
                )
                .await?;
            let told = shared.reload_prices().await;
            told.map_err(|error| from_store(&error))?;
            Ok(price)
        })
        .await
    }
}

impl Shared {
    /// Tells the gateways what models cost.
    pub(super) async fn reload_prices(&self) -> Result<(), StoreError> {
        let prices = Arc::new(PriceList::new(self.store.prices().await?));
        self.prices.send_if_modified(|known| {
            let changed = *known != prices;
            *known = prices;
            changed
        });
        Ok(())
    }
}

fn view(total: UsageTotal) -> UsageView {
    UsageView {
        at: total.at,
        level: Some(total.level),
        model: Some(total.model),
        key: Some(total.key.to_string()),
        requests: total.requests,
        errors: total.errors,
        prompt_tokens: total.prompt_tokens,
        cached_tokens: total.cached_tokens,
        completion_tokens: total.completion_tokens,
        cost_micros: total.cost,
        last_at: Some(total.last_at),
        of: UsageOf::default(),
    }
}
