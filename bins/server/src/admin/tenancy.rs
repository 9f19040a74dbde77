//! `keys`, `tenants`, `prices`, `jobs`, `audit`: who may use the models, what is under way, what was ordered.

use axum::{Json, extract::Query};
use llmgw_core::{
    api::{
        admin::JobView,
        tenancy::{
            CreatedKey, KeyLimits, KeyRequest, KeyView, LevelRemoved, LevelRequest, LevelView,
            Revoked,
        },
        usage::PriceRequest,
    },
    cluster::{
        audit::AuditEntry,
        tenancy::{LevelPath, Price},
    },
    control::ControlError,
    error::Code,
    id::KeyId,
};
use serde::Deserialize;

use super::{
    body::{Named, NoBody, SmallBody},
    caller::Asked,
    refusal::Refusal,
};

/// `?after=&limit=`; both may be absent, nothing else may be asked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    #[serde(default)]
    after: u64,
    limit: Option<u32>,
}

pub(super) async fn keys(Asked(control): Asked) -> Result<Json<Vec<KeyView>>, Refusal> {
    Ok(Json(control.tenancy.keys().await?))
}

pub(super) async fn create_key(
    Asked(control): Asked,
    SmallBody(request): SmallBody<KeyRequest>,
) -> Result<Json<CreatedKey>, Refusal> {
    Ok(Json(control.tenancy.create_key(request).await?))
}

pub(super) async fn limit_key(
    Asked(control): Asked,
    Named(id): Named,
    SmallBody(KeyLimits { limits }): SmallBody<KeyLimits>,
) -> Result<Json<KeyView>, Refusal> {
    Ok(Json(control.tenancy.limit_key(key_id(&id)?, limits).await?))
}

pub(super) async fn revoke_key(
    Asked(control): Asked,
    Named(id): Named,
    NoBody: NoBody,
) -> Result<Json<Revoked>, Refusal> {
    let revoked = key_id(&id)?;
    control.tenancy.revoke_key(revoked).await?;
    Ok(Json(Revoked { revoked }))
}

pub(super) async fn levels(Asked(control): Asked) -> Result<Json<Vec<LevelView>>, Refusal> {
    Ok(Json(control.tenancy.levels().await?))
}

pub(super) async fn create_level(
    Asked(control): Asked,
    SmallBody(request): SmallBody<LevelRequest>,
) -> Result<Json<LevelView>, Refusal> {
    Ok(Json(control.tenancy.create_level(request).await?))
}

pub(super) async fn limit_level(
    Asked(control): Asked,
    SmallBody(request): SmallBody<LevelRequest>,
) -> Result<Json<LevelView>, Refusal> {
    Ok(Json(control.tenancy.limit_level(request).await?))
}

pub(super) async fn remove_level(
    Asked(control): Asked,
    Named(path): Named,
    NoBody: NoBody,
) -> Result<Json<LevelRemoved>, Refusal> {
    let removed: LevelPath = path
        .parse()
        .map_err(|error| ControlError::new(Code::InvalidRequest, format!("path: {error}")))?;
    control.tenancy.remove_level(&removed).await?;
    Ok(Json(LevelRemoved { removed }))
}

pub(super) async fn prices(Asked(control): Asked) -> Result<Json<Vec<Price>>, Refusal> {
    Ok(Json(control.accounts.prices().await?))
}

pub(super) async fn set_price(
    Asked(control): Asked,
    SmallBody(request): SmallBody<PriceRequest>,
) -> Result<Json<Price>, Refusal> {
    Ok(Json(control.accounts.set_price(request).await?))
}

pub(super) async fn jobs(Asked(control): Asked) -> Result<Json<Vec<JobView>>, Refusal> {
    Ok(Json(control.jobs.jobs().await?))
}

pub(super) async fn audit(
    Asked(control): Asked,
    page: Result<Query<Page>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Vec<AuditEntry>>, Refusal> {
    let Query(Page { after, limit }) = page.map_err(|error| {
        ControlError::new(Code::InvalidRequest, error.body_text())
            .with_hint("ask for audit?after=NUMBER&limit=NUMBER")
    })?;
    let limit = limit.unwrap_or(MAX_PAGE).min(MAX_PAGE);
    Ok(Json(control.audit.audit(after, limit).await?))
}

fn key_id(text: &str) -> Result<KeyId, ControlError> {
    text.parse()
        .map_err(|error| ControlError::new(Code::InvalidRequest, format!("id: {error}")))
}

const MAX_PAGE: u32 = 1_000;
