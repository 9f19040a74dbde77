//! What a control plane was told, as it is shown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::whatif::Outcome;
use crate::{
    clock::Timestamp,
    cluster::{catalog::ModelDefinition, engine::WantedEngine, guard::PolicyDefinition},
    units::Span,
};

/// `GET settings`
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct SettingsView {
    /// Models that are declared.
    pub models: Vec<ModelDefinition>,
    /// Engines that every node should have, or every node of the pool that stands there.
    pub engines: Vec<WantedEngine>,
    /// Pools by name: the labels that make a node one of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, BTreeMap<String, String>>,
    /// Which policy places, such as `scarcity` or `spread`.
    #[serde(default)]
    pub placement_policy: String,
    /// How fast replicas follow what is asked for; absent from an older release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<ScalingSettings>,
    /// How many requests wait for models on demand, and how long; absent where no gateway was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueSettings>,
    /// Whether weights that were used longest ago may be removed when there is no room for others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evict_weights: bool,
    /// The address that `mirror:` sources are fetched beneath; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<String>,
    /// The address of the hub that `hf:` sources are fetched from; absent for the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub: Option<String>,
    /// What prompts and answers are checked by; the baseline when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<PolicyDefinition>,
    /// The version of the cluster's own document; 0 while there is none.
    #[serde(default)]
    pub version: u64,
    /// Why what was written last is not in force: a file that can't be read, or that contradicts the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// How long the lease lasts, in seconds.
    pub lease_ttl_seconds: u64,
    /// How long agents are listened for before anything is placed, in seconds.
    pub settle_seconds: u64,
}

/// How fast replicas follow what is asked for.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ScalingSettings {
    /// How long a replica on demand serves at least before another model may have its room.
    pub min_residency: Span,
    /// How long requests wait at most for room that another model's work has.
    pub max_wait: Span,
    /// How long a replica on demand is idle before another model may have its room.
    pub evict_idle_after: Span,
    /// How long there must be more load than slots before a replica is added.
    pub scale_up_after: Span,
}

/// How many requests wait for models on demand, and how long.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct QueueSettings {
    /// The most for one model.
    pub max_per_model: usize,
    /// The most in all.
    pub max_total: usize,
    /// The longest that each waits.
    pub activation_timeout: Span,
}

/// `PUT settings`
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SettingsRequest {
    /// The whole document, as a settings file is written: YAML, or JSON.
    pub document: String,
    /// The version that it was made from: it is refused when that is not the newest any more. Absent: whatever that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<u64>,
}

/// `POST settings/try`
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TryRequest {
    /// The whole document.
    pub document: String,
}

/// `POST settings/rollback`
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RollbackRequest {
    /// Whose text to bring back; 0 for a document that says nothing.
    pub version: u64,
}

/// What a new document came to.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SettingsKept {
    /// The version that is in force now; the one before when the document says the same.
    pub version: u64,
    /// Whose text it brought back, when it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brings_back: Option<u64>,
    /// What holds otherwise now.
    pub changes: Vec<SettingChange>,
}

/// What a document would come to.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SettingsTrial {
    /// The version that is in force.
    pub base: u64,
    /// What would hold otherwise.
    pub changes: Vec<SettingChange>,
    /// What the planner would do of it, as for `plan`; a model whose weights are not known yet is not in it.
    pub outcome: Outcome,
}

/// A setting that holds otherwise.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SettingChange {
    /// Which, such as `models.tiny` or `queue.max_total`.
    pub key: String,
    /// What held; absent when nothing did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<serde_json::Value>,
    /// What holds; absent when nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is: Option<serde_json::Value>,
}

/// One entry of `GET settings/history`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SettingsVersion {
    /// Counts from 1.
    pub version: u64,
    /// Who wrote it.
    pub by: String,
    /// When, in milliseconds since 1970.
    pub at: Timestamp,
    /// Whose text it brought back, when it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brings_back: Option<u64>,
}

/// `GET settings/document` and `GET settings/history/{version}`
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SettingsDocument {
    /// Its version; 0 while there is none.
    pub version: u64,
    /// The document, as it was written.
    pub document: String,
    /// Who wrote it; absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Whose text it brought back, when it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brings_back: Option<u64>,
}
