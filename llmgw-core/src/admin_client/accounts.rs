//! Usage and prices over HTTP.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::Method;

use super::{AdminClient, body};
use crate::{
    api::usage::{PriceRequest, UsageBy, UsageView},
    cluster::tenancy::Price,
    control::{Accounts, ControlError},
    units::Span,
};

#[async_trait]
impl Accounts for AdminClient {
    async fn usage(&self, by: UsageBy, since: Duration) -> Result<Vec<UsageView>, ControlError> {
        let mut url = self.route(&["usage"]);
        url.query_pairs_mut().append_pair("by", &by.to_string());
        url.query_pairs_mut()
            .append_pair("since", &Span(since).to_string());
        self.ask(Method::GET, url, None).await
    }

    async fn prices(&self) -> Result<Vec<Price>, ControlError> {
        self.read("prices", None).await
    }

    async fn set_price(&self, request: PriceRequest) -> Result<Price, ControlError> {
        let json = body("the price", &request)?;
        self.ask(Method::POST, self.route(&["prices"]), Some(json))
            .await
    }
}
