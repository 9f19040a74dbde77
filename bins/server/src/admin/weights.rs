//! `weights/orphans`, `weights/collect`: weights on disks that no model refers to, and their removal.

use axum::Json;
use llmgw_core::api::admin::{CollectRequest, OrphanView};

use super::{body::SmallBody, caller::Asked, refusal::Refusal};

pub(super) async fn orphans(Asked(control): Asked) -> Result<Json<Vec<OrphanView>>, Refusal> {
    Ok(Json(control.storage.orphans().await?))
}

/// Orders what was listed to be removed; what has to stay is answered with why.
pub(super) async fn collect(
    Asked(control): Asked,
    SmallBody(CollectRequest { digests }): SmallBody<CollectRequest>,
) -> Result<Json<Vec<OrphanView>>, Refusal> {
    Ok(Json(control.storage.collect(&digests).await?))
}
