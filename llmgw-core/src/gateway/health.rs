//! `GET /healthz` and `GET /readyz`: for load balancers and for people who wait; without a key.

use std::fmt::Write;

use http::{Response, StatusCode};
use serde::Serialize;

use super::{
    refusal::Refusal,
    respond::{AnswerBody, json},
};
use crate::{
    error::Code,
    route::{RouteTable, Waiting},
};

#[derive(Serialize)]
struct Status {
    status: &'static str,
}

/// This process answers.
pub(super) fn health() -> Response<AnswerBody> {
    json(StatusCode::OK, &Status { status: "ok" })
}

/// At least one replica serves, or starts with the first call; or why none does.
///
/// What keeps a model from running may name paths and machines, and is told to key holders only. How far a
/// load is, anyone may know.
pub(super) fn ready(table: &RouteTable) -> Result<Response<AnswerBody>, Refusal> {
    // What a call starts is as good: who is not asked because nothing serves would never serve.
    if table.models().any(|model| model.can_serve()) {
        return Ok(json(StatusCode::OK, &Status { status: "ready" }));
    }
    let mut why = String::new();
    for model in table.models().take(SHOWN) {
        let state = match &model.waiting {
            Waiting::Loading(state) => state,
            Waiting::Unplaceable(_) => "not placed",
            Waiting::Parked(_) => "parked",
            Waiting::Off(_) => "switched off",
        };
        let separator = if why.is_empty() { "" } else { "; " };
        // Writing to a text does not fail.
        write!(why, "{separator}{}: {state}", model.name).unwrap_or_default();
    }
    if why.is_empty() {
        why.push_str("there is no model yet");
    }
    let message = format!("no replica serves: {why}");
    Err(Refusal::new(Code::Unavailable, message))
}

/// More models than this are not listed in a refusal.
const SHOWN: usize = 8;
