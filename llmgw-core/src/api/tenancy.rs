//! The admin API, `/api/v1`: API keys, and the levels that they belong to.

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    cluster::tenancy::{LevelPath, Limits, Period},
    id::KeyId,
    units::{Micros, Span},
};

/// `GET keys`, one of.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct KeyView {
    /// The key's id; may be logged.
    pub id: KeyId,
    /// What people call it.
    pub name: String,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_at: Timestamp,
    /// Whose it is.
    #[serde(default)]
    pub level: LevelPath,
    /// From when on it opens nothing, in milliseconds since the Unix epoch; absent when it never ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// What holds for it alone, besides what holds for its level.
    #[serde(default, skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// What is spent of each of its own budgets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spending: Vec<SpendingView>,
}

/// What is spent of a budget in the period that it is now.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SpendingView {
    /// The budget's period.
    pub period: Period,
    /// The budget.
    pub amount_micros: Micros,
    /// What calls that are over have cost.
    pub spent_micros: Micros,
    /// What gateways hold for calls that are under way, and for those that may come next.
    pub reserved_micros: Micros,
    /// When the period is over and nothing is spent again, in milliseconds since the Unix epoch; absent when it never is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<Timestamp>,
}

/// `POST keys`
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRequest {
    /// What people call it.
    pub name: String,
    /// Whose it is; the cluster's own when absent.
    #[serde(default, skip_serializing_if = "LevelPath::is_cluster")]
    pub level: LevelPath,
    /// How long it opens anything; until it is revoked when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<Span>,
    /// What holds for it alone, besides what holds for its level.
    #[serde(default, skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
}

/// `POST keys` answers this, once.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
pub struct CreatedKey {
    /// The key.
    #[serde(flatten)]
    pub key: KeyView,
    /// What clients present. Shown here and never again.
    pub secret: String,
}

/// `PUT keys/{id}`
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct KeyLimits {
    /// What holds for the key alone, whole: what is absent is not limited for it.
    pub limits: Limits,
}

/// `DELETE keys/{id}` answers this.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Revoked {
    /// The key that was revoked.
    pub revoked: KeyId,
}

/// `GET tenants`, one of; `POST tenants` and `PUT tenants` answer this.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LevelView {
    /// Where it is: `/` for the cluster itself.
    pub path: LevelPath,
    /// What such a level is called: `cluster`, `organisation`, `team` or `project`.
    pub kind: String,
    /// What holds for all keys beneath it.
    pub limits: Limits,
    /// What is spent of each of its budgets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spending: Vec<SpendingView>,
    /// Keys that belong to it, those of the levels in it not counted.
    pub keys: usize,
    /// When it was made, in milliseconds since the Unix epoch; absent for a cluster that was never limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
}

/// `POST tenants` and `PUT tenants`
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LevelRequest {
    /// Where it is, such as `acme/search`.
    pub path: LevelPath,
    /// What holds for all keys beneath it, whole: what is absent is not limited there.
    #[serde(default)]
    pub limits: Limits,
}

/// `DELETE tenants/{path}` answers this.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LevelRemoved {
    /// The level that was removed.
    pub removed: LevelPath,
}

// === impl KeyRequest ===

impl KeyRequest {
    /// A key of the cluster itself, without limits and without an end.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }
}

// === impl CreatedKey ===

impl std::fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedKey")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}
