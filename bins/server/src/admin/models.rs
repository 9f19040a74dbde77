//! `models`, `explain-placement`: what should run, and why it does not.

use axum::{
    Json,
    extract::{FromRequest as _, Request},
    response::{IntoResponse as _, Response},
};
use http::{HeaderValue, Method, Uri, header::ALLOW};
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
    body::{JsonBody, MaybeBody, ModelQuery, Named, NoBody, SmallBody, model_name},
    caller::Asked,
    refusal::{Refusal, unknown_path, wrong_method},
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
    uri: Uri,
    Named(path): Named,
    NoBody: NoBody,
) -> Result<Response, Refusal> {
    if let Some(allowed) = methods_of_part(&path, &uri) {
        return Ok(not_for(Method::DELETE, uri, allowed).await);
    }
    let removed = model_name("name", &path)?;
    control.catalog.remove(&removed).await?;
    Ok(Json(Removed { removed }).into_response())
}

/// `POST models/{name}/ACTION`: the last segment is the action, all before it are the name.
pub(super) async fn act(
    Asked(control): Asked,
    uri: Uri,
    Named(path): Named,
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
        "capacity" => Ok(not_for(Method::POST, uri, "PUT").await),
        _ => Err(unknown_path(uri).await),
    }
}

/// `PUT models/{name}`, and `PUT models/{name}/capacity`.
pub(super) async fn put(
    Asked(control): Asked,
    uri: Uri,
    Named(path): Named,
    request: Request,
) -> Result<Response, Refusal> {
    if let Some((name, "capacity")) = parted(&path, &uri) {
        let JsonBody(CapacityRequest { measurement }) =
            JsonBody::from_request(request, &()).await?;
        let name = model_name("name", name)?;
        let kept = control.capacities.record(&name, measurement).await?;
        return Ok(Json(kept).into_response());
    }
    if let Some(allowed) = methods_of_part(&path, &uri) {
        return Ok(not_for(Method::PUT, uri, allowed).await);
    }
    let JsonBody(definition) = JsonBody::<ModelDefinition>::from_request(request, &()).await?;
    let name = model_name("name", &path)?;
    let replaced = control.catalog.replace(&name, definition).await?;
    Ok(Json(replaced).into_response())
}

/// The methods of what stands behind a name, when something of ours does.
fn methods_of_part(path: &str, uri: &Uri) -> Option<&'static str> {
    match parted(path, uri)?.1 {
        "retry" | "roll" | "scale" => Some("POST"),
        "capacity" => Some("PUT"),
        _ => None,
    }
}

/// As the router answers where it tells methods apart itself.
async fn not_for(method: Method, uri: Uri, allowed: &'static str) -> Response {
    let mut response = wrong_method(method, uri).await.into_response();
    let allowed = HeaderValue::from_static(allowed);
    response.headers_mut().insert(ALLOW, allowed);
    response
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
