//! What holds for the whole, over HTTP.

use async_trait::async_trait;
use reqwest::Method;

use super::{AdminClient, body};
use crate::{
    api::settings::{
        RollbackRequest, SettingsDocument, SettingsKept, SettingsRequest, SettingsTrial,
        SettingsVersion, SettingsView, TryRequest,
    },
    control::{ControlError, Settings},
};

#[async_trait]
impl Settings for AdminClient {
    async fn settings(&self) -> Result<SettingsView, ControlError> {
        self.read("settings", None).await
    }

    async fn document(&self, version: Option<u64>) -> Result<SettingsDocument, ControlError> {
        let url = match version {
            None => self.route(&["settings", "document"]),
            Some(version) => self.route(&["settings", "history", &version.to_string()]),
        };
        self.ask(Method::GET, url, None).await
    }

    async fn history(
        &self,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<SettingsVersion>, ControlError> {
        let mut url = self.route(&["settings", "history"]);
        let limit = limit.to_string();
        url.query_pairs_mut().append_pair("limit", &limit);
        if let Some(before) = before {
            let before = before.to_string();
            url.query_pairs_mut().append_pair("before", &before);
        }
        self.ask(Method::GET, url, None).await
    }

    async fn put(&self, document: String, base: Option<u64>) -> Result<SettingsKept, ControlError> {
        let json = body("the settings", &SettingsRequest { document, base })?;
        self.ask(Method::PUT, self.route(&["settings"]), Some(json))
            .await
    }

    async fn roll_back(&self, version: u64) -> Result<SettingsKept, ControlError> {
        let json = body("the version", &RollbackRequest { version })?;
        let url = self.route(&["settings", "rollback"]);
        self.ask(Method::POST, url, Some(json)).await
    }

    async fn try_out(&self, document: String) -> Result<SettingsTrial, ControlError> {
        let json = body("the settings", &TryRequest { document })?;
        self.ask(Method::POST, self.route(&["settings", "try"]), Some(json))
            .await
    }
}
