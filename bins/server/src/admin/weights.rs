//! `weights/orphans`, `weights/collect`: weights on disks that no model refers to, and their removal.

use axum::{Json, extract::State};
use llmgw_core::{
    api::admin::{CollectRequest, OrphanView},
    control::Control,
};

use super::{body::JsonBody, refusal::Refusal};

pub(super) async fn orphans(
    State(control): State<Control>,
) -> Result<Json<Vec<OrphanView>>, Refusal> {
    Ok(Json(control.storage.orphans().await?))
}

/// Orders what was listed to be removed; what has to stay is answered with why.
pub(super) async fn collect(
    State(control): State<Control>,
    JsonBody(CollectRequest { digests }): JsonBody<CollectRequest>,
) -> Result<Json<Vec<OrphanView>>, Refusal> {
    Ok(Json(control.storage.collect(&digests).await?))
}
