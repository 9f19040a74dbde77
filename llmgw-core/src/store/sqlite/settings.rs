//! The versions of the settings.

use super::SqliteStore;
use crate::{
    cluster::settings::{AboutSettings, SETTINGS_PAGE, StoredSettings},
    store::{
        StoreError,
        rows::{self, AboutRow, SettingsRow},
    },
};

impl SqliteStore {
    pub(super) async fn read_settings(
        &self,
        version: Option<u64>,
    ) -> Result<Option<StoredSettings>, StoreError> {
        let found: Option<SettingsRow> = match version {
            Some(version) => sqlx::query_as(VERSION).bind(rows::seq(version)),
            None => sqlx::query_as(NEWEST),
        }
        .fetch_optional(&self.readers)
        .await
        .map_err(self.failed("reading the settings"))?;
        Ok(found.map(rows::settings))
    }

    pub(super) async fn list_settings(
        &self,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<(u64, AboutSettings)>, StoreError> {
        let found: Vec<AboutRow> = sqlx::query_as(HISTORY)
            .bind(before.map_or(i64::MAX, rows::seq))
            .bind(i64::from(limit.min(SETTINGS_PAGE)))
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("reading the history of the settings"))?;
        Ok(found.into_iter().map(rows::about_settings).collect())
    }
}

const VERSION: &str = "
    SELECT version, written_by, written_at, brings_back, document
    FROM settings WHERE version = ?1";

const NEWEST: &str = "
    SELECT version, written_by, written_at, brings_back, document
    FROM settings ORDER BY version DESC LIMIT 1";

const HISTORY: &str = "
    SELECT version, written_by, written_at, brings_back
    FROM settings WHERE version < ?1 ORDER BY version DESC LIMIT ?2";
