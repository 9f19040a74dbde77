//! `guard`: what prompts and answers are checked by, and what was done.

use axum::{
    Json,
    extract::{Query, rejection::QueryRejection},
};
use llmgw_core::{
    api::guard::{GuardTrial, GuardTry, GuardView},
    cluster::{guard::GuardedCall, tenancy::LevelPath},
    control::ControlError,
    error::Code,
};
use serde::Deserialize;

use super::{body::SmallBody, caller::Asked, fleet::since_of, refusal::Refusal};

/// `?level=`; it may be absent, nothing else may be asked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Of {
    #[serde(default)]
    level: LevelPath,
}

/// `?since=&limit=`; both may be absent, nothing else may be asked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    since: Option<String>,
    limit: Option<u32>,
}

pub(super) async fn rules(
    Asked(control): Asked,
    asked: Result<Query<Of>, QueryRejection>,
) -> Result<Json<GuardView>, Refusal> {
    let Query(Of { level }) = asked.map_err(|error| {
        ControlError::new(Code::InvalidRequest, error.body_text())
            .with_hint("ask for guard?level=LEVEL, such as acme/search")
    })?;
    Ok(Json(control.guard.rules(&level).await?))
}

pub(super) async fn try_text(
    Asked(control): Asked,
    SmallBody(request): SmallBody<GuardTry>,
) -> Result<Json<GuardTrial>, Refusal> {
    Ok(Json(control.guard.try_text(request).await?))
}

pub(super) async fn decisions(
    Asked(control): Asked,
    asked: Result<Query<Page>, QueryRejection>,
) -> Result<Json<Vec<GuardedCall>>, Refusal> {
    let Query(Page { since, limit }) = asked.map_err(|error| {
        ControlError::new(Code::InvalidRequest, error.body_text())
            .with_hint("ask for guard/decisions?since=TIME&limit=NUMBER, such as since=24h")
    })?;
    let since = since_of(since.as_deref())?;
    let limit = limit.unwrap_or(u32::MAX);
    Ok(Json(control.guard.guarded(since, limit).await?))
}
