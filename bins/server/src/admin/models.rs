//! `models`, `explain-placement`: what should run, and why it does not.

use axum::{
    Json,
    extract::{FromRequest as _, Request},
    response::{IntoResponse as _, Response},
};
use http::Uri;
use llmgw_core::{
    api::{
        admin::{Added, Explanation, ModelView, Removed, Retried},
        orders::{CapacityRequest, RollRequest},
    },
    cluster::catalog::ModelDefinition,
    control::ControlError,
    error::Code,
};

use super::{
    body::{JsonBody, MaybeBody, ModelPath, ModelQuery, NoBody, SmallBody, model_name},
    caller::Asked,
    refusal::{Refusal, unknown_path},
};

pub(super) async fn list(Asked(control): Asked) -> Result<Json<Vec<ModelView>>, Refusal> {
    Ok(Json(control.catalog.models().await?))
}

pub(super) async fn add(
    Asked(control): Asked,
    JsonBody(definition): JsonBody<ModelDefinition>,
) -> Result<Json<Added>, Refusal> {
    let added = control.catalog.add(definition).await?;
    Ok(Json(Added { added }))
}

pub(super) async fn remove(
    Asked(control): Asked,
    ModelPath(path): ModelPath,
    NoBody: NoBody,
) -> Result<Json<Removed>, Refusal> {
    let removed = model_name("name", &path)?;
    control.catalog.remove(&removed).await?;
    Ok(Json(Removed { removed }))
}

/// `POST models/{name}/ACTION`: the last segment is the action, all before it are the name.
pub(super) async fn act(
    Asked(control): Asked,
    uri: Uri,
    ModelPath(path): ModelPath,
    request: Request,
) -> Result<Response, Refusal> {
    let Some((name, action)) = parted(&path, &uri) else {
        return Err(unknown_path(uri).await);
    };
    let name = || model_name("name", name);
    match action {
        "retry" => {
            NoBody::from_request(request, &()).await?;
            let retried = name()?;
            control.catalog.retry(&retried).await?;
            Ok(Json(Retried { retried }).into_response())
        }
        "roll" => {
            let MaybeBody(roll): MaybeBody<RollRequest> =
                MaybeBody::from_request(request, &()).await?;
            Ok(Json(control.catalog.roll(&name()?, roll).await?).into_response())
        }
        "scale" => {
            let SmallBody(scale) = SmallBody::from_request(request, &()).await?;
            Ok(Json(control.catalog.scale(&name()?, scale).await?).into_response())
        }
        _ => Err(unknown_path(uri).await),
    }
}

/// `PUT models/{name}`, and `PUT models/{name}/capacity`.
pub(super) async fn put(
    Asked(control): Asked,
    uri: Uri,
    ModelPath(path): ModelPath,
    request: Request,
) -> Result<Response, Refusal> {
    if let Some((name, "capacity")) = parted(&path, &uri) {
        let JsonBody(CapacityRequest { measurement }) =
            JsonBody::from_request(request, &()).await?;
        let name = model_name("name", name)?;
        let kept = control.capacities.record(&name, measurement).await?;
        return Ok(Json(kept).into_response());
    }
    let JsonBody(definition) = JsonBody::<ModelDefinition>::from_request(request, &()).await?;
    let name = model_name("name", &path)?;
    let replaced = control.catalog.replace(&name, definition).await?;
    Ok(Json(replaced).into_response())
}

/// A name and what stands behind it. The path as it was sent decides: in `a%2Fretry` the slash belongs to a name.
fn parted<'p>(path: &'p str, uri: &Uri) -> Option<(&'p str, &'p str)> {
    let (name, action) = path.rsplit_once('/')?;
    let sent = uri.path().rsplit_once('/')?.1;
    (sent == action).then_some((name, action))
}

pub(super) async fn explain(
    Asked(control): Asked,
    ModelQuery(model): ModelQuery,
) -> Result<Json<Explanation>, Refusal> {
    let model = model.ok_or_else(|| {
        ControlError::new(Code::MissingField, "model: missing from the query")
            .with_hint("ask for explain-placement?model=NAME")
    })?;
    Ok(Json(control.catalog.explain(&model).await?))
}
