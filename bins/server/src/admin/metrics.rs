//! `GET /metrics`: what Prometheus reads.

use std::time::Duration;

use axum::{
    Extension,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use llmgw_core::{
    gateway::Numbers,
    metrics::{self, cluster::Reading},
};

use tokio::time::timeout;

use super::{caller::Asked, refusal::Refusal};

/// The gateway whose numbers are told along; none where the API is served without one.
#[derive(Clone, Debug)]
pub(super) struct Gateway(pub(super) Option<Numbers>);

pub(super) async fn metrics(
    Asked(control): Asked,
    Extension(Gateway(gateway)): Extension<Gateway>,
) -> Result<Response, Refusal> {
    // A store that is away, or slow, takes nothing but its own numbers from a scrape.
    let levels = timeout(PATIENCE, control.tenancy.levels()).await;
    let levels = levels.ok().and_then(Result::ok);
    let reading = Reading {
        summary: control.fleet.summary().await?,
        models: control.catalog.models().await?,
        replicas: control.fleet.replicas(None).await?,
        nodes: control.fleet.nodes().await?,
        levels,
    };
    let mut text = metrics::cluster::text_of(&reading);
    if let Some(gateway) = gateway {
        text.push_str(&gateway.text());
    }
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}

/// Prometheus waits for ten seconds, by default.
const PATIENCE: Duration = Duration::from_secs(1);
