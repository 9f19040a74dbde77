//! The admin API, `/api/v1`: HTTP over the control roles.
//!
//! It knows no more than a [`Control`]: what it answers is what the roles say, and a standby's console or a test
//! can put it before any implementation of them. [`serve`] gives it to a listener, with limits; [`router`] is the
//! service alone.

mod body;
mod caller;
mod decisions;
mod events;
mod fleet;
mod guard;
mod listener;
mod logs;
mod metrics;
mod models;
mod openapi;
mod orders;
mod refusal;
mod routes;
mod seats;
mod settings;
mod tenancy;
mod token;
mod watch;
mod weights;

use std::sync::Arc;

use axum::{Extension, Router, middleware};
use llmgw_core::{control::Control, gateway::Numbers};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::{caller::Door, events::Streaming, openapi::Described};
pub use self::{caller::RoleTokens, listener::AdminConfig, routes::Operation, token::AdminToken};

/// What the admin API needs.
#[derive(Clone, Debug)]
pub struct AdminDeps {
    /// Who answers.
    pub control: Control,
    /// Who may ask all.
    pub token: AdminToken,
    /// Who else may ask what; nobody when absent.
    pub roles: Option<RoleTokens>,
    /// How it treats those who connect.
    pub config: AdminConfig,
    /// The gateway whose numbers `/metrics` tells along; none where there is no gateway in this process.
    pub gateway: Option<Numbers>,
}

// === impl AdminDeps ===

impl AdminDeps {
    /// The API over `control`, for the holders of `token`, with the default limits.
    #[must_use]
    pub fn new(control: Control, token: &str) -> Self {
        Self {
            control,
            token: AdminToken::new(token),
            roles: None,
            config: AdminConfig::default(),
            gateway: None,
        }
    }
}

/// Serves the admin API on `listener` until `stop` is cancelled, then lets running requests end.
///
/// Returns when the last connection is closed: at most [`AdminConfig::drain_timeout`] after `stop`. Dropping the
/// future cuts all connections off.
pub async fn serve(listener: TcpListener, deps: AdminDeps, stop: CancellationToken) {
    let config = deps.config.clone();
    let router = streaming(deps, stop.clone());
    listener::serve(listener, router, config, stop).await;
}

/// The admin API as a service. Every path needs a token; every answer but that of `/metrics` is JSON, or a stream of
/// events, and each has an `x-request-id`.
pub fn router(deps: AdminDeps) -> Router {
    streaming(deps, CancellationToken::new())
}

/// All that can be asked, in the order of the table.
#[must_use]
pub fn operations() -> Vec<Operation> {
    routes::table().into_parts().1
}

/// The service; what it streams ends with `stop`.
fn streaming(deps: AdminDeps, stop: CancellationToken) -> Router {
    let AdminDeps {
        control,
        token,
        roles,
        gateway,
        config: _,
    } = deps;
    let door = Door {
        control,
        token,
        roles,
    };
    let (router, operations) = routes::table().into_parts();
    let described = Described(Arc::new(openapi::describe(&operations)));
    router
        .fallback(refusal::unknown_path)
        .method_not_allowed_fallback(refusal::wrong_method)
        .layer(Extension(metrics::Gateway(gateway)))
        .layer(Extension(described))
        .layer(Extension(Streaming::new(stop)))
        .layer(middleware::from_fn_with_state(door, caller::check))
        .layer(middleware::from_fn(watch::observe))
}
