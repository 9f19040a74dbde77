//! What a control plane was told, as it is shown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    cluster::{catalog::ModelDefinition, engine::WantedEngine},
    units::Span,
};

/// `GET settings`
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
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
