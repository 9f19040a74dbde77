//! `summary`, `nodes`, `engines`, `replicas`, `usage`: what is; `plan`: what would be; `snapshot`: what that is planned
//! from.

use axum::{Json, extract::State};
use llmgw_core::{
    api::{
        admin::{EngineView, NodeView, ReplicaView, Summary, UsageView},
        whatif::{Outcome, Snapshot, WhatIf},
    },
    control::{Control, engines as engines_of},
};

use super::{
    body::{JsonBody, ModelQuery},
    refusal::Refusal,
};

pub(super) async fn summary(State(control): State<Control>) -> Result<Json<Summary>, Refusal> {
    Ok(Json(control.fleet.summary().await?))
}

pub(super) async fn nodes(State(control): State<Control>) -> Result<Json<Vec<NodeView>>, Refusal> {
    Ok(Json(control.fleet.nodes().await?))
}

pub(super) async fn engines(
    State(control): State<Control>,
) -> Result<Json<Vec<EngineView>>, Refusal> {
    let wanted = control.settings.settings().await?.engines;
    let nodes = control.fleet.nodes().await?;
    Ok(Json(engines_of(&wanted, &nodes)))
}

pub(super) async fn replicas(
    State(control): State<Control>,
    ModelQuery(model): ModelQuery,
) -> Result<Json<Vec<ReplicaView>>, Refusal> {
    Ok(Json(control.fleet.replicas(model.as_ref()).await?))
}

pub(super) async fn usage(State(control): State<Control>) -> Result<Json<Vec<UsageView>>, Refusal> {
    Ok(Json(control.accounts.usage().await?))
}

pub(super) async fn snapshot(State(control): State<Control>) -> Result<Json<Snapshot>, Refusal> {
    Ok(Json(control.fleet.snapshot().await?))
}

/// Asks, and changes nothing.
pub(super) async fn plan(
    State(control): State<Control>,
    JsonBody(WhatIf { changes }): JsonBody<WhatIf>,
) -> Result<Json<Outcome>, Refusal> {
    Ok(Json(control.fleet.plan(&changes).await?))
}
