//! `settings`: what is in force, the cluster's document, its versions.

use axum::{
    Json,
    extract::{Query, rejection::QueryRejection},
};
use llmgw_core::{
    api::settings::{
        RollbackRequest, SettingsDocument, SettingsKept, SettingsRequest, SettingsTrial,
        SettingsVersion, SettingsView, TryRequest,
    },
    cluster::settings::SETTINGS_PAGE,
    control::ControlError,
    error::Code,
};
use serde::Deserialize;

use super::{
    body::{JsonBody, Named, SmallBody},
    caller::Asked,
    refusal::Refusal,
};

/// `?before=&limit=`; both may be absent, nothing else may be asked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    before: Option<u64>,
    limit: Option<u32>,
}

pub(super) async fn settings(Asked(control): Asked) -> Result<Json<SettingsView>, Refusal> {
    Ok(Json(control.settings.settings().await?))
}

pub(super) async fn put(
    Asked(control): Asked,
    JsonBody(request): JsonBody<SettingsRequest>,
) -> Result<Json<SettingsKept>, Refusal> {
    let SettingsRequest { document, base } = request;
    Ok(Json(control.settings.put(document, base).await?))
}

pub(super) async fn document(Asked(control): Asked) -> Result<Json<SettingsDocument>, Refusal> {
    Ok(Json(control.settings.document(None).await?))
}

pub(super) async fn history(
    Asked(control): Asked,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<Vec<SettingsVersion>>, Refusal> {
    let Query(Page { before, limit }) = page.map_err(|error| {
        ControlError::new(Code::InvalidRequest, error.body_text())
            .with_hint("ask for settings/history?before=VERSION&limit=NUMBER")
    })?;
    let limit = limit.unwrap_or(SETTINGS_PAGE);
    Ok(Json(control.settings.history(before, limit).await?))
}

pub(super) async fn version(
    Asked(control): Asked,
    Named(version): Named,
) -> Result<Json<SettingsDocument>, Refusal> {
    let version: u64 = version.parse().map_err(|_| {
        ControlError::new(
            Code::InvalidRequest,
            format!("version: {version:?} is no number"),
        )
        .with_hint("`llmgw ctl settings history` lists the versions")
    })?;
    Ok(Json(control.settings.document(Some(version)).await?))
}

pub(super) async fn roll_back(
    Asked(control): Asked,
    SmallBody(request): SmallBody<RollbackRequest>,
) -> Result<Json<SettingsKept>, Refusal> {
    Ok(Json(control.settings.roll_back(request.version).await?))
}

pub(super) async fn try_out(
    Asked(control): Asked,
    JsonBody(request): JsonBody<TryRequest>,
) -> Result<Json<SettingsTrial>, Refusal> {
    Ok(Json(control.settings.try_out(request.document).await?))
}
