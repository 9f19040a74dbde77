//! `models`, `explain-placement`: what should run, and why it does not.

use axum::{Json, extract::State};
use http::Uri;
use llmgw_core::{
    api::admin::{Added, Explanation, ModelView, Removed, Retried},
    cluster::catalog::ModelDefinition,
    control::{Control, ControlError},
    error::Code,
};

use super::{
    body::{JsonBody, ModelPath, ModelQuery, NoBody, model_name},
    refusal::{Refusal, unknown_path},
};

pub(super) async fn list(State(control): State<Control>) -> Result<Json<Vec<ModelView>>, Refusal> {
    Ok(Json(control.catalog.models().await?))
}

pub(super) async fn add(
    State(control): State<Control>,
    JsonBody(definition): JsonBody<ModelDefinition>,
) -> Result<Json<Added>, Refusal> {
    let added = control.catalog.add(definition).await?;
    Ok(Json(Added { added }))
}

pub(super) async fn remove(
    State(control): State<Control>,
    ModelPath(path): ModelPath,
    NoBody: NoBody,
) -> Result<Json<Removed>, Refusal> {
    let removed = model_name("name", &path)?;
    control.catalog.remove(&removed).await?;
    Ok(Json(Removed { removed }))
}

/// `POST models/{name}/ACTION`: the last segment is the action, all before it are the name.
pub(super) async fn act(
    State(control): State<Control>,
    uri: Uri,
    ModelPath(path): ModelPath,
    NoBody: NoBody,
) -> Result<Json<Retried>, Refusal> {
    // The path as it was sent decides: in `a%2Fretry` the slash belongs to a name.
    let name = path
        .strip_suffix("/retry")
        .filter(|_| uri.path().ends_with("/retry"));
    let Some(name) = name else {
        return Err(unknown_path(uri).await);
    };
    let retried = model_name("name", name)?;
    control.catalog.retry(&retried).await?;
    Ok(Json(Retried { retried }))
}

pub(super) async fn explain(
    State(control): State<Control>,
    ModelQuery(model): ModelQuery,
) -> Result<Json<Explanation>, Refusal> {
    let model = model.ok_or_else(|| {
        ControlError::new(Code::MissingField, "model: missing from the query")
            .with_hint("ask for explain-placement?model=NAME")
    })?;
    Ok(Json(control.catalog.explain(&model).await?))
}
