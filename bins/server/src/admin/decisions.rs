//! `decisions`: what was decided, with the reasons.

use axum::{
    Json,
    extract::{Query, rejection::QueryRejection},
};
use llmgw_core::{api::decision::Decision, control::ControlError, error::Code};
use serde::Deserialize;

use super::{body::model_name, caller::Asked, refusal::Refusal};

/// `?model=&after=&limit=`; all may be absent, nothing else may be asked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    model: Option<String>,
    #[serde(default)]
    after: u64,
    limit: Option<u32>,
}

pub(super) async fn decisions(
    Asked(control): Asked,
    asked: Result<Query<Page>, QueryRejection>,
) -> Result<Json<Vec<Decision>>, Refusal> {
    let Query(Page {
        model,
        after,
        limit,
    }) = asked.map_err(|error| {
        ControlError::new(Code::InvalidRequest, error.body_text())
            .with_hint("ask for decisions?model=NAME&after=NUMBER&limit=NUMBER")
    })?;
    let model = model.map(|text| model_name("model", &text)).transpose()?;
    let limit = limit.unwrap_or(MAX_PAGE).min(MAX_PAGE);
    let catalog = &control.catalog;
    Ok(Json(catalog.decisions(model.as_ref(), after, limit).await?))
}

const MAX_PAGE: u32 = 1_000;
