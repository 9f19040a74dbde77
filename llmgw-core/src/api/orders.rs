//! The admin API, `/api/v1`: what is ordered, and what answers it.

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    cluster::{
        account::Role, capacity::Measurement, engine::WantedEngine, node::NodeState,
        order::HoldScope, scaling::Scaling,
    },
    id::{EngineName, HoldName, ModelName, NodeId, ReplicaId, TokenId},
    units::Span,
};

/// The header in which an operator says who they are; it is written down beside the name of the token's holder.
pub const ACTOR_HEADER: &str = "x-llmgw-actor";

/// `POST models/{name}/scale`
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleRequest {
    /// The fewest replicas; with 0, a request starts the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    /// The most; follows `min` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// How long a replica beyond the fewest may go without a request; stays as it is when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Span>,
}

/// `POST models/{name}/scale` answers this: what is in force.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Scaled {
    /// The model, by its own name.
    pub model: ModelName,
    /// The fewest replicas.
    pub min: u32,
    /// The most.
    pub max: u32,
    /// How long a replica beyond the fewest may go without a request, in nanoseconds.
    pub idle_timeout: u64,
    /// The same for people.
    pub idle_timeout_text: String,
    /// Whether nothing runs until somebody asks for the model.
    pub on_demand: bool,
}

/// `POST models/{name}/roll` answers this.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Rolled {
    /// The model, by its own name.
    pub rolling: ModelName,
    /// How many rolls of this model were ordered, this one too.
    pub number: u64,
    /// Replicas whose definition has changed since they were started.
    pub stale: usize,
    /// Whether it is forced: an old replica stops before its successor serves, where there is no room for both.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// `POST models/{name}/roll`; no body at all is the same as an empty object.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RollRequest {
    /// Stop an old replica before its successor serves, where there is no room for both.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// `POST nodes/{id}/state`
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NodeStateRequest {
    /// What it is to be used for.
    pub state: NodeUse,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Of a node that drains: stop what it has and what has no room elsewhere, instead of waiting for that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// What a node is to be used for.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeUse {
    /// All.
    #[serde(alias = "uncordon")]
    Ready,
    /// What it has; nothing new is placed on it.
    #[serde(alias = "cordon")]
    Cordoned,
    /// What it has, until that runs elsewhere.
    #[serde(alias = "drain")]
    Draining,
}

/// `POST nodes/{id}/state` and `POST nodes/{id}/approve` answer this.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NodeStateView {
    /// The node.
    pub id: NodeId,
    /// What it is used for now.
    pub state: NodeState,
}

/// `POST engines`
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EngineRequest {
    /// Which engine.
    pub name: EngineName,
    /// Which version, such as `b10991`; as in the settings when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Where builds come from: `auto`, `github`, `wheel`, or `path:`, `lock:` and a path on the nodes; as in the
    /// settings when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Which form, such as `cpu` or `cuda-13`; as in the settings when absent, and the one that fits each node when
    /// these name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// `POST engines` answers this.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct EngineChosen {
    /// What every node should have from now on.
    pub chosen: WantedEngine,
}

/// `DELETE engines/{name}` answers this.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct EngineLifted {
    /// The engine that is no longer chosen.
    pub lifted: EngineName,
    /// What the settings say of it, which is in force again; absent when they don't name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<WantedEngine>,
}

/// `POST holds`
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HoldRequest {
    /// What it is lifted by. One of that name is replaced.
    pub name: HoldName,
    /// Where nothing is placed or moved.
    pub scope: HoldScope,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// How long; until it is lifted when absent.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "for")]
    pub lasts: Option<Span>,
}

/// `GET holds`, one of.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct HoldView {
    /// What it is lifted by.
    pub name: HoldName,
    /// Where nothing is placed or moved.
    pub scope: HoldScope,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// When it ends by itself, in milliseconds since the Unix epoch; absent when it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Who ordered it.
    pub by: String,
    /// When, in milliseconds since the Unix epoch.
    pub since: Timestamp,
}

/// `DELETE holds/{name}` answers this.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct HoldLifted {
    /// The hold that is no more.
    pub lifted: HoldName,
}

/// `PUT models/{name}/capacity`. What the path and the caller say already may stand here, and is not looked at.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct CapacityRequest {
    /// What was measured.
    #[serde(flatten)]
    pub measurement: Measurement,
}

/// `POST tokens`
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// What people call its holder; stands in the audit log.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
}

/// `GET tokens`, one of.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct TokenView {
    /// The token's id; may be logged.
    pub id: TokenId,
    /// What people call its holder.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_at: Timestamp,
}

/// `POST tokens` answers this, once.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
pub struct CreatedToken {
    /// The token.
    #[serde(flatten)]
    pub token: TokenView,
    /// What its holder presents. Shown here and never again.
    pub secret: String,
}

/// `DELETE tokens/{id}` answers this.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct TokenRevoked {
    /// The token that was revoked.
    pub revoked: TokenId,
}

/// `GET logs`, one of: the last lines that an engine wrote.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LogView {
    /// The model, by its own name.
    pub model: ModelName,
    /// Whose lines these are.
    pub of: LogOf,
    /// The replica; absent when it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<ReplicaId>,
    /// What people call its node; absent when it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Why it failed, in one line; absent when it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The lines, the last one last.
    pub lines: Vec<String>,
}

/// Whose lines a [`LogView`] has.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogOf {
    /// The first of the failures in a row: those that parked the model, or after which it is tried again.
    FirstFailure,
    /// A replica that is there.
    Replica,
    /// Something that a newer release tells of.
    #[serde(other)]
    Unknown,
}

// === impl ScaleRequest ===

impl From<(ModelName, Scaling)> for Scaled {
    fn from((model, scaling): (ModelName, Scaling)) -> Self {
        let idle = Span(scaling.idle_timeout());
        Self {
            model,
            min: scaling.min(),
            max: scaling.max(),
            idle_timeout: idle.nanoseconds(),
            idle_timeout_text: idle.to_string(),
            on_demand: scaling.is_on_demand(),
        }
    }
}

// === impl NodeStateRequest ===

impl From<NodeUse> for NodeStateRequest {
    /// Without a reason, and not forced.
    fn from(state: NodeUse) -> Self {
        Self {
            state,
            reason: String::new(),
            force: false,
        }
    }
}

// === impl NodeUse ===

impl NodeUse {
    /// The use as it stands in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
        }
    }
}

// === impl CreatedToken ===

impl std::fmt::Debug for CreatedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedToken")
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
