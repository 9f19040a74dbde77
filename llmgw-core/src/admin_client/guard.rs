//! The guard over HTTP.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::Method;

use super::{AdminClient, body};
use crate::{
    api::guard::{GuardTrial, GuardTry, GuardView},
    cluster::{guard::GuardedCall, tenancy::LevelPath},
    control::{ControlError, Guarding},
    units::Span,
};

#[async_trait]
impl Guarding for AdminClient {
    async fn rules(&self, level: &LevelPath) -> Result<GuardView, ControlError> {
        let mut url = self.route(&["guard"]);
        url.query_pairs_mut()
            .append_pair("level", &level.to_string());
        self.ask(Method::GET, url, None).await
    }

    async fn try_text(&self, request: GuardTry) -> Result<GuardTrial, ControlError> {
        let json = body("the text", &request)?;
        let url = self.route(&["guard", "try"]);
        self.ask(Method::POST, url, Some(json)).await
    }

    async fn guarded(&self, since: Duration, limit: u32) -> Result<Vec<GuardedCall>, ControlError> {
        let mut url = self.route(&["guard", "decisions"]);
        url.query_pairs_mut()
            .append_pair("since", &Span(since).to_string())
            .append_pair("limit", &limit.to_string());
        self.ask(Method::GET, url, None).await
    }
}
