//! The admin API, `/api/v1`: what it answers.
//!
//! Times are ages in seconds where they are for people; lists are bare arrays.

mod nodes;

use serde::{Deserialize, Serialize};

pub use self::nodes::{ChosenBy, EngineView, InstalledEngine, NodeEngine, NodeView, UnhealthyGpu};

use crate::{
    api::frozen::Frozen,
    clock::Timestamp,
    cluster::{
        replica::{MemoryUse, ReplicaState},
        weights::{FetchProgress, Sha256Digest},
    },
    id::{ModelName, NodeId, ProfileName, ReplicaId},
    reason::{Check, Report},
    units::{Bytes, Tokens},
};

/// `GET summary`
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Nodes that are used: heard, and neither cordoned, draining nor waiting to be let in.
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
    /// That nothing is moved, for too many nodes fell silent at once; absent while that is not so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<Frozen>,
}

/// `GET models`, one of.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// The fewest replicas.
    #[serde(default)]
    pub min_replicas: u32,
    /// The most replicas.
    #[serde(default)]
    pub max_replicas: u32,
    /// How long a replica beyond the fewest may go without a request, in nanoseconds.
    #[serde(default)]
    pub idle_timeout: u64,
    /// The same for people.
    #[serde(default)]
    pub idle_timeout_text: String,
    /// Whether nothing runs until somebody asks for it.
    #[serde(default)]
    pub on_demand: bool,
    /// How many replicas should run now.
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
    /// The check that most nodes fail then, for programs; absent when it is placed or was not tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unplaceable_check: Option<Check>,
}

/// Where a model was said.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// On the command line or in the settings of the control plane; can't be removed by the API.
    Declared,
    /// By the API.
    Added,
}

/// A profile in a [`ModelView`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ReplicaView {
    /// The replica.
    pub id: ReplicaId,
    /// What it serves.
    pub model: ModelName,
    /// How it runs.
    pub profile: ProfileName,
    /// The pool that its profile asks for; absent when that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
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
    /// Main memory that is set aside for it: what its definition says, or an estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// What it was measured to hold, the most since it was ready; absent before, and where its agent can't tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<MemoryUse>,
    /// When it came into this state, by its node's clock, in milliseconds since the Unix epoch; absent until its node
    /// has told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_since: Option<Timestamp>,
    /// Calls that it is answering now.
    pub in_flight: u64,
    /// Whole seconds since it was last at work, loading included; -1 while its node has not told of it.
    #[serde(default = "never_reported")]
    pub idle_seconds: i64,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The last lines of its log, when it failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log_tail: Vec<String>,
    /// How far the fetch of its weights is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch: Option<FetchProgress>,
    /// Its parts, one for each node that it runs on.
    #[serde(default)]
    pub shards: Vec<ShardView>,
}

/// A part of a replica, on one node.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ShardView {
    /// Its number among the parts, from 0.
    pub rank: u32,
    /// The node.
    pub node: NodeId,
    /// What people call that node.
    pub hostname: String,
    /// The numbers of the GPUs that it may use; empty when it runs without, or may use all.
    pub gpus: Vec<u32>,
    /// How far it is.
    pub state: ReplicaState,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How far the fetch of its weights is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch: Option<ShardFetch>,
}

/// How far the fetch of a part's weights is.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ShardFetch {
    /// Where they come from.
    pub source: String,
    /// What is there.
    pub bytes_done: Bytes,
    /// What there will be; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_total: Option<Bytes>,
    /// The same in per cent; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
}

/// `GET explain-placement?model=`
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// What holds up a drain or a roll of its replicas, in one line each, as the [`Summary`] has it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attention: Vec<String>,
    /// The same for people, in one line.
    pub headline: String,
}

/// `PUT models/{name}` answers this.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Replaced {
    /// The model that is defined otherwise now.
    pub replaced: ModelName,
    /// Its replicas that run on as it was defined before, until it is rolled.
    pub stale: usize,
}

/// `POST models` answers this.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Added {
    /// The model that was added.
    pub added: ModelName,
}

/// `DELETE models/{name}` answers this.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Removed {
    /// The model that was removed.
    pub removed: ModelName,
}

/// `POST models/{name}/retry` answers this.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Retried {
    /// The model that may be tried again, as it was named.
    pub retried: ModelName,
}

/// `GET weights/orphans`, one of: weights on a node's disk that no model refers to.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CollectRequest {
    /// Which of the weights that `GET weights/orphans` has listed; they are removed from every node that lists them.
    pub digests: Vec<Sha256Digest>,
}

/// `GET jobs`, one of.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct JobView {
    /// What `jobs/{id}/events` calls it.
    #[serde(default)]
    pub id: String,
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

fn never_reported() -> i64 {
    -1
}

/// The body of every error.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

// === impl ReplicaView ===

impl ReplicaView {
    /// Its only part, when it runs on one node.
    #[must_use]
    pub fn only_shard(&self, gpus: Vec<u32>) -> ShardView {
        let fetch = self.fetch.as_ref().map(|fetch| ShardFetch {
            source: fetch.source.without_secrets().to_string(),
            bytes_done: fetch.bytes_done,
            bytes_total: fetch.bytes_total,
            percent: fetch.percent(),
        });
        ShardView {
            rank: 0,
            node: self.node,
            hostname: self.hostname.clone(),
            gpus,
            state: self.state,
            error: self.error.clone(),
            fetch,
        }
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
