//! `summary`, `nodes`, `replicas`, `usage`, `logs`: what is; `plan`: what would be; `snapshot`: what that is planned
//! from.

use std::time::Duration;

use axum::{
    Json,
    extract::{Query, rejection::QueryRejection},
};
use llmgw_core::{
    api::{
        admin::{NodeView, ReplicaView, Summary},
        frozen::Thawed,
        orders::LogView,
        usage::{UsageBy, UsageView},
        whatif::{Outcome, Snapshot, WhatIf},
    },
    control::ControlError,
    error::Code,
    units::Span,
};
use serde::Deserialize;

use super::{
    body::{JsonBody, ModelQuery, NoBody},
    caller::Asked,
    refusal::Refusal,
};

pub(super) async fn summary(Asked(control): Asked) -> Result<Json<Summary>, Refusal> {
    Ok(Json(control.fleet.summary().await?))
}

pub(super) async fn nodes(Asked(control): Asked) -> Result<Json<Vec<NodeView>>, Refusal> {
    Ok(Json(control.fleet.nodes().await?))
}

pub(super) async fn replicas(
    Asked(control): Asked,
    ModelQuery(model): ModelQuery,
) -> Result<Json<Vec<ReplicaView>>, Refusal> {
    Ok(Json(control.fleet.replicas(model.as_ref()).await?))
}

/// Goes on without the nodes that fell silent at once.
pub(super) async fn thaw(Asked(control): Asked, NoBody: NoBody) -> Result<Json<Thawed>, Refusal> {
    Ok(Json(control.fleet.thaw().await?))
}

/// `?by=&since=`; both may be absent, nothing else may be asked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskedUsage {
    by: Option<String>,
    since: Option<String>,
}

pub(super) async fn usage(
    Asked(control): Asked,
    asked: Result<Query<AskedUsage>, QueryRejection>,
) -> Result<Json<Vec<UsageView>>, Refusal> {
    let Query(AskedUsage { by, since }) = asked.map_err(|error| {
        ControlError::new(Code::InvalidRequest, error.body_text())
            .with_hint("ask for usage?by=key&since=24h")
    })?;
    let by: UsageBy = match by {
        None => UsageBy::TEAM,
        Some(text) => text.parse().map_err(|error| {
            ControlError::new(Code::InvalidRequest, format!("by: {error}"))
                .with_hint("several go with commas between them, such as level,model,day")
        })?,
    };
    let since = since_of(since.as_deref())?;
    Ok(Json(control.accounts.usage(by, since).await?))
}

/// A length of time that is asked about; a day when none is named.
pub(super) fn since_of(since: Option<&str>) -> Result<Duration, ControlError> {
    let Some(text) = since else {
        return Ok(DAY);
    };
    let wrong = |problem: String| {
        ControlError::new(Code::InvalidRequest, format!("since: {problem}"))
            .with_hint("write for example 24h")
    };
    let span: Span = text.parse().map_err(|error| wrong(format!("{error}")))?;
    if span.0.is_zero() {
        return Err(wrong("it is no length of time".to_owned()));
    }
    Ok(span.0)
}

/// The last lines of the engines of one model.
pub(super) async fn logs(
    Asked(control): Asked,
    ModelQuery(model): ModelQuery,
) -> Result<Json<Vec<LogView>>, Refusal> {
    let model = model.ok_or_else(|| {
        ControlError::new(Code::MissingField, "model: missing from the query")
            .with_hint("ask for logs?model=NAME")
    })?;
    Ok(Json(control.fleet.logs(&model).await?))
}

pub(super) async fn snapshot(Asked(control): Asked) -> Result<Json<Snapshot>, Refusal> {
    Ok(Json(control.fleet.snapshot().await?))
}

/// Asks, and changes nothing.
pub(super) async fn plan(
    Asked(control): Asked,
    JsonBody(WhatIf { changes }): JsonBody<WhatIf>,
) -> Result<Json<Outcome>, Refusal> {
    Ok(Json(control.fleet.plan(&changes).await?))
}

/// What is summed up when nobody says since when.
const DAY: Duration = Duration::from_secs(86_400);
