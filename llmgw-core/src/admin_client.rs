//! The control roles over HTTP: what the CLI, Python and the console of a standby hold.
//!
//! ```no_run
//! use llmgw_core::admin_client::AdminClient;
//!
//! # async fn show() -> Result<(), llmgw_core::control::ControlError> {
//! let control = AdminClient::new("http://127.0.0.1:8082", "the admin token")?.control();
//! for node in control.fleet.nodes().await? {
//!     assert!(!node.hostname.is_empty());
//! }
//! # Ok(())
//! # }
//! ```

mod accounts;
mod answer;
mod guard;
mod logs;
mod ordering;
mod settings;
mod stream;
mod tenancy;
mod transport;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use reqwest::{
    Client, Method, RequestBuilder, Response, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use serde::{Serialize, de::DeserializeOwned};

pub use self::transport::tls;
use crate::{
    api::{
        admin::{
            Added, CollectRequest, Explanation, JobView, ModelView, NodeView, OrphanView, Removed,
            Replaced, ReplicaView, Retried, Summary,
        },
        decision::Decision,
        frozen::Thawed,
        orders::{
            ACTOR_HEADER, LogView, NodeStateRequest, NodeStateView, RollRequest, Rolled,
            ScaleRequest, Scaled,
        },
        whatif::{Change, Outcome, Snapshot, WhatIf},
    },
    cluster::{audit::AuditEntry, catalog::ModelDefinition, weights::Sha256Digest},
    control::{Audit, Catalog, Control, ControlError, Fleet, Jobs, Storage},
    error::Code,
    id::ModelName,
};

/// The control roles of a control plane that is asked over its admin API.
///
/// Answers are bounded in size and in time; no redirect is followed and no proxy is used, so that the token goes
/// to the named address alone. Cheap to clone: clones share their connections.
#[derive(Clone)]
pub struct AdminClient {
    http: Client,
    base: Url,
    token: HeaderValue,
    /// In whose name orders are given, besides that of the token's holder.
    actor: Option<HeaderValue>,
}

// === impl AdminClient ===

impl AdminClient {
    /// A client of the control plane at `url`, such as `http://127.0.0.1:8082`, with the admin token.
    ///
    /// Makes no connection yet.
    ///
    /// # Errors
    /// When the address is not one or can't be used, or when the token can't be one.
    pub fn new(url: &str, token: &str) -> Result<Self, ControlError> {
        let base = transport::address(url)?;
        let mut bearer = HeaderValue::from_str(&format!("Bearer {token}"))
            .ok()
            .filter(|_| !token.is_empty() && token.chars().all(|c| c.is_ascii_graphic()))
            .ok_or_else(|| {
                ControlError::new(Code::InvalidApiKey, "the admin token is not one")
                    .with_hint("a token is one word of printable characters")
            })?;
        bearer.set_sensitive(true);
        Ok(Self {
            http: transport::client(&base)?,
            base,
            token: bearer,
            actor: None,
        })
    }

    /// The roles.
    #[must_use]
    pub fn control(self) -> Control {
        Arc::new(self).roles()
    }

    fn roles(self: Arc<Self>) -> Control {
        let shared = self;
        Control {
            catalog: Arc::<Self>::clone(&shared),
            fleet: Arc::<Self>::clone(&shared),
            tenancy: Arc::<Self>::clone(&shared),
            accounts: Arc::<Self>::clone(&shared),
            settings: Arc::<Self>::clone(&shared),
            jobs: Arc::<Self>::clone(&shared),
            audit: Arc::<Self>::clone(&shared),
            storage: Arc::<Self>::clone(&shared),
            engines: Arc::<Self>::clone(&shared),
            holds: Arc::<Self>::clone(&shared),
            capacities: Arc::<Self>::clone(&shared),
            operators: Arc::<Self>::clone(&shared),
            events: Arc::<Self>::clone(&shared),
            logs: Arc::<Self>::clone(&shared),
            guard: Arc::<Self>::clone(&shared),
            acting: shared,
        }
    }

    async fn read<T: DeserializeOwned>(
        &self,
        path: &str,
        model: Option<&ModelName>,
    ) -> Result<T, ControlError> {
        let mut url = self.route(&[path]);
        if let Some(model) = model {
            url.query_pairs_mut().append_pair("model", model.as_str());
        }
        self.ask(Method::GET, url, None).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        url: Url,
        json: Option<Vec<u8>>,
    ) -> Result<T, ControlError> {
        let mut request = self.request(method, url);
        if let Some(json) = json {
            request = request
                .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
                .body(json);
        }
        let response = request
            .send()
            .await
            .map_err(|error| answer::unreachable(&self.base, &error))?;
        answer::read(&self.base, response).await
    }

    /// Begins an answer that goes on for as long as there is something to say.
    async fn open(&self, url: Url) -> Result<Response, ControlError> {
        let request = self.request(Method::GET, url).timeout(FOREVER);
        let response = request.send().await;
        let response = response.map_err(|error| answer::unreachable(&self.base, &error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(answer::refused(&self.base, response).await)
    }

    fn request(&self, method: Method, url: Url) -> RequestBuilder {
        let request = self
            .http
            .request(method, url)
            .header(AUTHORIZATION, self.token.clone());
        match &self.actor {
            Some(actor) => request.header(ACTOR_HEADER, actor.clone()),
            None => request,
        }
    }

    /// The address of a path under `/api/v1`; each segment is encoded whole, as names may contain `/`.
    fn route(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        // An http address always has a path.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(["api", "v1"]).extend(segments);
        }
        url
    }
}

impl fmt::Debug for AdminClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminClient")
            .field("base", &self.base.as_str())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Catalog for AdminClient {
    async fn models(&self) -> Result<Vec<ModelView>, ControlError> {
        self.read("models", None).await
    }

    async fn add(&self, definition: ModelDefinition) -> Result<ModelName, ControlError> {
        let json = body("the definition", &definition)?;
        let url = self.route(&["models"]);
        let Added { added } = self.ask(Method::POST, url, Some(json)).await?;
        Ok(added)
    }

    async fn replace(
        &self,
        name: &ModelName,
        definition: ModelDefinition,
    ) -> Result<Replaced, ControlError> {
        let json = body("the definition", &definition)?;
        let url = self.route(&["models", name.as_str()]);
        self.ask(Method::PUT, url, Some(json)).await
    }

    async fn remove(&self, name: &ModelName) -> Result<(), ControlError> {
        let url = self.route(&["models", name.as_str()]);
        let _: Removed = self.ask(Method::DELETE, url, None).await?;
        Ok(())
    }

    async fn explain(&self, name: &ModelName) -> Result<Explanation, ControlError> {
        self.read("explain-placement", Some(name)).await
    }

    async fn decisions(
        &self,
        model: Option<&ModelName>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<Decision>, ControlError> {
        let mut url = self.route(&["decisions"]);
        if let Some(model) = model {
            url.query_pairs_mut().append_pair("model", model.as_str());
        }
        url.query_pairs_mut()
            .append_pair("after", &after.to_string())
            .append_pair("limit", &limit.to_string());
        self.ask(Method::GET, url, None).await
    }

    async fn scale(&self, name: &ModelName, scale: ScaleRequest) -> Result<Scaled, ControlError> {
        let json = body("the scale", &scale)?;
        let url = self.route(&["models", name.as_str(), "scale"]);
        self.ask(Method::POST, url, Some(json)).await
    }

    async fn roll(&self, name: &ModelName, roll: RollRequest) -> Result<Rolled, ControlError> {
        // An older control plane takes no body.
        let json = match roll {
            RollRequest { force: false } => None,
            forced @ RollRequest { force: true } => Some(body("the roll", &forced)?),
        };
        let url = self.route(&["models", name.as_str(), "roll"]);
        self.ask(Method::POST, url, json).await
    }

    async fn retry(&self, name: &ModelName) -> Result<(), ControlError> {
        let url = self.route(&["models", name.as_str(), "retry"]);
        let _: Retried = self.ask(Method::POST, url, None).await?;
        Ok(())
    }
}

#[async_trait]
impl Fleet for AdminClient {
    async fn summary(&self) -> Result<Summary, ControlError> {
        self.read("summary", None).await
    }

    async fn nodes(&self) -> Result<Vec<NodeView>, ControlError> {
        self.read("nodes", None).await
    }

    async fn replicas(&self, model: Option<&ModelName>) -> Result<Vec<ReplicaView>, ControlError> {
        self.read("replicas", model).await
    }

    async fn use_node(
        &self,
        node: &str,
        wanted: NodeStateRequest,
    ) -> Result<NodeStateView, ControlError> {
        let json = body("the order", &wanted)?;
        let url = self.route(&["nodes", node, "state"]);
        self.ask(Method::POST, url, Some(json)).await
    }

    async fn thaw(&self) -> Result<Thawed, ControlError> {
        self.ask(Method::POST, self.route(&["thaw"]), None).await
    }

    async fn approve(&self, node: &str) -> Result<NodeStateView, ControlError> {
        let url = self.route(&["nodes", node, "approve"]);
        self.ask(Method::POST, url, None).await
    }

    async fn logs(&self, model: &ModelName) -> Result<Vec<LogView>, ControlError> {
        self.read("logs", Some(model)).await
    }

    async fn snapshot(&self) -> Result<Snapshot, ControlError> {
        self.read("snapshot", None).await
    }

    async fn plan(&self, changes: &[Change]) -> Result<Outcome, ControlError> {
        let changes = changes.to_vec();
        let json = body("the question", &WhatIf { changes })?;
        self.ask(Method::POST, self.route(&["plan"]), Some(json))
            .await
    }
}

#[async_trait]
impl Jobs for AdminClient {
    async fn jobs(&self) -> Result<Vec<JobView>, ControlError> {
        self.read("jobs", None).await
    }
}

#[async_trait]
impl Storage for AdminClient {
    async fn orphans(&self) -> Result<Vec<OrphanView>, ControlError> {
        let url = self.route(&["weights", "orphans"]);
        self.ask(Method::GET, url, None).await
    }

    async fn collect(&self, digests: &[Sha256Digest]) -> Result<Vec<OrphanView>, ControlError> {
        let digests = digests.to_vec();
        let json = body("the list", &CollectRequest { digests })?;
        let url = self.route(&["weights", "collect"]);
        self.ask(Method::POST, url, Some(json)).await
    }
}

#[async_trait]
impl Audit for AdminClient {
    async fn audit(&self, after: u64, limit: u32) -> Result<Vec<AuditEntry>, ControlError> {
        let mut url = self.route(&["audit"]);
        url.query_pairs_mut()
            .append_pair("after", &after.to_string())
            .append_pair("limit", &limit.to_string());
        self.ask(Method::GET, url, None).await
    }
}

/// What is sent, unless it is larger than the admin API takes.
fn body(what: &str, value: &impl Serialize) -> Result<Vec<u8>, ControlError> {
    let json = serde_json::to_vec(value)
        .map_err(|error| ControlError::new(Code::Internal, error.to_string()))?;
    if json.len() > MAX_BODY {
        let message = format!("{what} is larger than 1 MiB");
        return Err(ControlError::new(Code::RequestTooLarge, message));
    }
    Ok(json)
}

/// A year: an answer that is streamed ends with the control plane, or with the reader.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);
/// What the admin API takes: larger bodies need not be sent.
const MAX_BODY: usize = 1 << 20;

#[cfg(test)]
mod tests;
