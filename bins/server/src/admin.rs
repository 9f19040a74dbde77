//! The admin API, `/api/v1`: HTTP over the control roles.
//!
//! It knows no more than a [`Control`]: what it answers is what the roles say, and a standby's console or a test
//! can put it before any implementation of them. [`serve`] gives it to a listener, with limits; [`router`] is the
//! service alone.

mod body;
mod decisions;
mod fleet;
mod listener;
mod models;
mod refusal;
mod tenancy;
mod token;
mod watch;
mod weights;

use axum::{
    Router, middleware,
    routing::{delete, get, post},
};
use llmgw_core::control::Control;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use self::{listener::AdminConfig, token::AdminToken};

/// What the admin API needs.
#[derive(Clone, Debug)]
pub struct AdminDeps {
    /// Who answers.
    pub control: Control,
    /// Who may ask.
    pub token: AdminToken,
    /// How it treats those who connect.
    pub config: AdminConfig,
}

// === impl AdminDeps ===

impl AdminDeps {
    /// The API over `control`, for the holders of `token`, with the default limits.
    #[must_use]
    pub fn new(control: Control, token: &str) -> Self {
        Self {
            control,
            token: AdminToken::new(token),
            config: AdminConfig::default(),
        }
    }
}

/// Serves the admin API on `listener` until `stop` is cancelled, then lets running requests end.
///
/// Returns when the last connection is closed: at most [`AdminConfig::drain_timeout`] after `stop`. Dropping the
/// future cuts all connections off.
pub async fn serve(listener: TcpListener, deps: AdminDeps, stop: CancellationToken) {
    let config = deps.config.clone();
    listener::serve(listener, router(deps), config, stop).await;
}

/// The admin API as a service. Every path needs the token; every answer is JSON and has an `x-request-id`.
pub fn router(deps: AdminDeps) -> Router {
    let AdminDeps { control, token, .. } = deps;
    Router::new()
        .route("/api/v1/summary", get(fleet::summary))
        .route("/api/v1/nodes", get(fleet::nodes))
        .route("/api/v1/engines", get(fleet::engines))
        .route("/api/v1/replicas", get(fleet::replicas))
        .route("/api/v1/usage", get(fleet::usage))
        .route("/api/v1/keys", get(tenancy::keys).post(tenancy::create_key))
        .route("/api/v1/keys/{id}", delete(tenancy::revoke_key))
        .route("/api/v1/settings", get(tenancy::settings))
        .route("/api/v1/jobs", get(tenancy::jobs))
        .route("/api/v1/audit", get(tenancy::audit))
        .route("/api/v1/weights/orphans", get(weights::orphans))
        .route("/api/v1/weights/collect", post(weights::collect))
        .route("/api/v1/plan", post(fleet::plan))
        .route("/api/v1/snapshot", get(fleet::snapshot))
        .route("/api/v1/explain-placement", get(models::explain))
        .route("/api/v1/decisions", get(decisions::decisions))
        .route("/api/v1/models", get(models::list).post(models::add))
        // Names may contain `/`, so that they may take several segments.
        .route(
            "/api/v1/models/{*name}",
            delete(models::remove).post(models::act),
        )
        .with_state(control)
        .fallback(refusal::unknown_path)
        .method_not_allowed_fallback(refusal::wrong_method)
        .layer(middleware::from_fn_with_state(token, token::check))
        .layer(middleware::from_fn(watch::observe))
}
