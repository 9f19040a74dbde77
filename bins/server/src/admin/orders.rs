//! `nodes/{id}/state`, `engines`, `holds`, `capacity`, `tokens`: what is ordered besides models and keys.

use axum::Json;
use llmgw_core::{
    api::{
        admin::EngineView,
        orders::{
            CreatedToken, EngineChosen, EngineLifted, EngineRequest, HoldLifted, HoldRequest,
            HoldView, NodeStateRequest, NodeStateView, TokenRequest, TokenRevoked, TokenView,
        },
    },
    cluster::capacity::Capacity,
    control::ControlError,
    error::Code,
};

use super::{
    body::{Named, NoBody, SmallBody},
    caller::Asked,
    refusal::Refusal,
};

pub(super) async fn use_node(
    Asked(control): Asked,
    Named(node): Named,
    SmallBody(wanted): SmallBody<NodeStateRequest>,
) -> Result<Json<NodeStateView>, Refusal> {
    Ok(Json(control.fleet.use_node(&node, wanted).await?))
}

pub(super) async fn approve(
    Asked(control): Asked,
    Named(node): Named,
    NoBody: NoBody,
) -> Result<Json<NodeStateView>, Refusal> {
    Ok(Json(control.fleet.approve(&node).await?))
}

pub(super) async fn engines(Asked(control): Asked) -> Result<Json<Vec<EngineView>>, Refusal> {
    Ok(Json(control.engines.engines().await?))
}

pub(super) async fn choose(
    Asked(control): Asked,
    SmallBody(request): SmallBody<EngineRequest>,
) -> Result<Json<EngineChosen>, Refusal> {
    let chosen = control.engines.choose(request).await?;
    Ok(Json(EngineChosen { chosen }))
}

pub(super) async fn unchoose(
    Asked(control): Asked,
    Named(name): Named,
    NoBody: NoBody,
) -> Result<Json<EngineLifted>, Refusal> {
    let name = parsed("name", &name)?;
    Ok(Json(control.engines.unchoose(&name).await?))
}

pub(super) async fn holds(Asked(control): Asked) -> Result<Json<Vec<HoldView>>, Refusal> {
    Ok(Json(control.holds.holds().await?))
}

pub(super) async fn hold(
    Asked(control): Asked,
    SmallBody(request): SmallBody<HoldRequest>,
) -> Result<Json<HoldView>, Refusal> {
    Ok(Json(control.holds.hold(request).await?))
}

pub(super) async fn lift(
    Asked(control): Asked,
    Named(name): Named,
    NoBody: NoBody,
) -> Result<Json<HoldLifted>, Refusal> {
    let lifted = parsed("name", &name)?;
    control.holds.lift(&lifted).await?;
    Ok(Json(HoldLifted { lifted }))
}

pub(super) async fn capacities(Asked(control): Asked) -> Result<Json<Vec<Capacity>>, Refusal> {
    Ok(Json(control.capacities.capacities().await?))
}

pub(super) async fn tokens(Asked(control): Asked) -> Result<Json<Vec<TokenView>>, Refusal> {
    Ok(Json(control.operators.tokens().await?))
}

pub(super) async fn create_token(
    Asked(control): Asked,
    SmallBody(TokenRequest { name, role }): SmallBody<TokenRequest>,
) -> Result<Json<CreatedToken>, Refusal> {
    Ok(Json(control.operators.create_token(&name, role).await?))
}

pub(super) async fn revoke_token(
    Asked(control): Asked,
    Named(id): Named,
    NoBody: NoBody,
) -> Result<Json<TokenRevoked>, Refusal> {
    let revoked = parsed("id", &id)?;
    control.operators.revoke_token(revoked).await?;
    Ok(Json(TokenRevoked { revoked }))
}

/// Reads a name or an id in a path; an error says where it stood.
fn parsed<T>(field: &str, text: &str) -> Result<T, ControlError>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text.parse()
        .map_err(|error| ControlError::new(Code::InvalidRequest, format!("{field}: {error}")))
}
