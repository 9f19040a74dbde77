//! The admin API, `/api/v1`: what it answers.
//!
//! Times are ages in seconds where they are for people; lists are bare arrays.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    cluster::{
        catalog::ModelDefinition,
        engine::{Provision, WantedEngine},
        node::{Fabric, NodeState, Os, Warning},
        replica::ReplicaState,
        weights::{FetchProgress, Sha256Digest},
    },
    id::{EngineName, KeyId, ModelName, NodeId, ProfileName, ReplicaId},
    reason::Report,
    units::{Bytes, Tokens},
};

/// `GET summary`
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Summary {
    /// The release of the control plane.
    pub version: String,
    /// What it is: alone, leading.
    pub leading: bool,
    /// The lease epoch; 0 without a lease.
    pub epoch: u64,
    /// Whether the store answers.
    pub store: String,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// Nodes that are heard.
    pub nodes_ready: usize,
    /// All nodes that are known.
    pub nodes_total: usize,
    /// Models that have all the replicas they should have.
    pub models_satisfied: usize,
    /// All models.
    pub models_total: usize,
    /// Replicas that serve.
    pub replicas_ready: usize,
    /// All replicas.
    pub replicas_total: usize,
    /// Calls that were answered since the start.
    pub requests: u64,
    /// What an operator should look at, a sentence each.
    pub attention: Vec<String>,
}

/// `GET nodes`, one of.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NodeView {
    /// The node.
    pub id: NodeId,
    /// What people call it.
    pub hostname: String,
    /// What it may be used for.
    pub state: NodeState,
    /// Whether its agent has looked at it.
    pub probed: bool,
    /// The operator's own marks.
    pub labels: BTreeMap<String, String>,
    /// The operating system; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<Os>,
    /// The processor architecture.
    pub arch: String,
    /// Cores; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<u32>,
    /// Vector extensions; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_features: Option<Vec<String>>,
    /// The address from which its agent speaks with the control plane; absent when that can't be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mgmt_addr: Option<String>,
    /// GPUs; absent when the agent could not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_total: Option<usize>,
    /// GPUs that work, are held by no replica and used by no other program; absent when the agent could not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_free: Option<usize>,
    /// The classes of its GPUs, each once, sorted; absent when the agent could not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_classes: Option<Vec<String>>,
    /// GPUs that nothing is placed on; absent when the agent could not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy_gpus: Option<Vec<UnhealthyGpu>>,
    /// Its ports on networks that shards may span; absent when the agent could not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabrics: Option<Vec<Fabric>>,
    /// All main memory; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_total: Option<Bytes>,
    /// The same in whole GiB, rounded down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_gb: Option<u64>,
    /// What engines may use in all; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_allocatable: Option<Bytes>,
    /// What replicas have reserved.
    pub memory_reserved: Bytes,
    /// What may still be written to the disk of the weights; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_free: Option<Bytes>,
    /// The same in whole GiB, rounded down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_free_gb: Option<u64>,
    /// The size of that disk; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_total: Option<Bytes>,
    /// The same in whole GiB, rounded down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_total_gb: Option<u64>,
    /// How far the node is with each wanted engine.
    pub provision: Vec<Provision>,
    /// What makes it slow or unusable.
    pub warnings: Vec<Warning>,
    /// Seconds since it was heard.
    pub last_seen_ago: u64,
    /// The release of its agent.
    pub agent_version: String,
    /// Replicas that it has.
    pub replicas: usize,
    /// Models whose weights lie on its disk, whole and checked; absent when its agent does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models_on_disk: Option<Vec<ModelName>>,
}

/// A GPU of a [`NodeView`] that nothing is placed on.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct UnhealthyGpu {
    /// Its number on its node.
    pub index: u32,
    /// Its class; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// What is wrong with it.
    pub fault: String,
}

/// `GET models`, one of.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ModelView {
    /// What clients call it.
    pub name: ModelName,
    /// For people.
    pub description: String,
    /// Other names that clients may use.
    pub aliases: Vec<ModelName>,
    /// Models that clients are to be served by when this one can't, in the order of preference.
    #[serde(default)]
    pub fallbacks: Vec<ModelName>,
    /// Where its weights come from.
    pub source: Vec<String>,
    /// Where it was said: `declared` in the settings or `added` by the API.
    pub origin: Origin,
    /// How many replicas should run.
    pub desired: u32,
    /// How many serve.
    pub ready_replicas: usize,
    /// How many there are, in any state.
    pub total_replicas: usize,
    /// Ways to run it.
    pub profiles: Vec<ProfileView>,
    /// Not tried again by itself after too many failures.
    pub parked: bool,
    /// Failures in a row.
    pub failures: u32,
    /// The last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Why a wanted replica is not placed, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unplaceable: Option<String>,
}

/// Where a model was said.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// On the command line or in the settings of the control plane; can't be removed by the API.
    Declared,
    /// By the API.
    Added,
}

/// A profile in a [`ModelView`].
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ProfileView {
    /// Its name.
    pub name: ProfileName,
    /// Its engine.
    pub engine: String,
    /// Main memory for one replica; absent while what its definition does not say is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Whether that was estimated from what the weights say of themselves, and not declared.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub memory_estimated: bool,
    /// Context for each request.
    pub context: Tokens,
    /// Requests at the same time.
    pub parallel: u32,
}

/// `GET replicas`, one of.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ReplicaView {
    /// The replica.
    pub id: ReplicaId,
    /// What it serves.
    pub model: ModelName,
    /// How it runs.
    pub profile: ProfileName,
    /// Whether its definition has changed since it was started.
    pub stale: bool,
    /// How far it is.
    pub state: ReplicaState,
    /// Where it runs.
    pub node: NodeId,
    /// What people call that node.
    pub hostname: String,
    /// Where it listens on that node; absent until it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Seconds since it was placed or adopted.
    pub age_seconds: u64,
    /// Calls that it is answering now.
    pub in_flight: u64,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The last lines of its log, when it failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log_tail: Vec<String>,
    /// How far the fetch of its weights is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch: Option<FetchProgress>,
}

/// `GET explain-placement?model=`
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Explanation {
    /// The model, by its own name.
    pub model: ModelName,
    /// Whether it has all the replicas it should have.
    pub placed: bool,
    /// Its replicas.
    pub replicas: Vec<ReplicaId>,
    /// A fresh trial to place one more.
    pub report: Report,
    /// The same for people, in one line.
    pub headline: String,
}

/// `POST models` answers this.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Added {
    /// The model that was added.
    pub added: ModelName,
}

/// `DELETE models/{name}` answers this.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Removed {
    /// The model that was removed.
    pub removed: ModelName,
}

/// `POST models/{name}/retry` answers this.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Retried {
    /// The model that may be tried again, as it was named.
    pub retried: ModelName,
}

/// `GET usage`, one of: what was used of a model with a key.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct UsageView {
    /// The model.
    pub model: ModelName,
    /// The key's id.
    pub key: String,
    /// Calls.
    pub requests: u64,
    /// Calls that ended with a status of 400 or more.
    pub errors: u64,
    /// Tokens of all prompts.
    pub prompt_tokens: Tokens,
    /// Tokens of all answers.
    pub completion_tokens: Tokens,
}

/// `GET keys`, one of.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct KeyView {
    /// The key's id; may be logged.
    pub id: KeyId,
    /// What people call it.
    pub name: String,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_at: Timestamp,
}

/// `POST keys`
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRequest {
    /// What people call it.
    pub name: String,
}

/// `POST keys` answers this, once.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
pub struct CreatedKey {
    /// The key.
    #[serde(flatten)]
    pub key: KeyView,
    /// What clients present. Shown here and never again.
    pub secret: String,
}

/// `DELETE keys/{id}` answers this.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Revoked {
    /// The key that was revoked.
    pub revoked: KeyId,
}

/// `GET settings`
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SettingsView {
    /// Models that are declared.
    pub models: Vec<ModelDefinition>,
    /// Engines that every node should have.
    pub engines: Vec<WantedEngine>,
    /// Which policy places, such as `scarcity` or `spread`.
    #[serde(default)]
    pub placement_policy: String,
    /// Whether weights that were used longest ago may be removed when there is no room for others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evict_weights: bool,
    /// The address that `mirror:` sources are fetched beneath; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<String>,
    /// How long the lease lasts, in seconds.
    pub lease_ttl_seconds: u64,
    /// How long agents are listened for before anything is placed, in seconds.
    pub settle_seconds: u64,
}

/// `GET weights/orphans`, one of: weights on a node's disk that no model refers to.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct OrphanView {
    /// What they are.
    pub sha256: Sha256Digest,
    /// Where they lie.
    pub node: NodeId,
    /// What people call that node.
    pub hostname: String,
    /// What the file is called.
    pub name: String,
    /// How much they take.
    pub size: Bytes,
    /// When a replica was last started on them, by the node's clock; absent when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Timestamp>,
    /// Whether their removal was ordered, and the node has not said yet that they are gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub collecting: bool,
    /// Why they would not be removed now; absent when they would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

/// `POST weights/collect`
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CollectRequest {
    /// Which of the weights that `GET weights/orphans` has listed; they are removed from every node that lists them.
    pub digests: Vec<Sha256Digest>,
}

/// `GET engines`, one of.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct EngineView {
    /// The engine's name.
    pub name: EngineName,
    /// What nodes should have; absent for one that is not wanted any more and that a node still tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<WantedEngine>,
    /// How far each node is that has told of it.
    pub nodes: Vec<NodeEngine>,
}

/// How far a node is with an engine.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NodeEngine {
    /// The node.
    pub node: NodeId,
    /// What people call it.
    pub hostname: String,
    /// How far it is, what was chosen and why, and what was passed over.
    #[serde(flatten)]
    pub provision: Provision,
}

/// `GET jobs`, one of.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct JobView {
    /// What is done.
    pub kind: JobKind,
    /// To what: an engine or a model.
    pub subject: String,
    /// Where.
    pub node: NodeId,
    /// What people call that node.
    pub hostname: String,
    /// How far it is, in the node's own words.
    pub detail: String,
    /// How much is done; absent when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
}

/// A kind of long work.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// An engine is being installed.
    InstallEngine,
    /// Weights are being fetched.
    FetchWeights,
    /// Work of a newer release.
    #[serde(other)]
    Unknown,
}

/// The body of every error.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ErrorBody {
    /// What happened, to what.
    pub error: String,
    /// The stable name of the failure.
    pub code: String,
    /// What would help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

// === impl CreatedKey ===

impl std::fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedKey")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

// === impl JobKind ===

impl JobKind {
    /// The kind as it stands in tables and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InstallEngine => "install_engine",
            Self::FetchWeights => "fetch_weights",
            Self::Unknown => "unknown",
        }
    }
}
