//! Keys that clients present, and what was used with them.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    cluster::{
        guard::Decision,
        tenancy::{LevelPath, Limits},
    },
    id::{KeyId, ModelName, ReplicaId, RequestId, TokenId},
    units::{Micros, Tokens},
};

/// A key as it is kept: the secret's keyed hash, never the secret.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ApiKey {
    /// Its id; may be logged.
    pub id: KeyId,
    /// What people call it.
    pub name: String,
    /// HMAC-SHA-256 of the secret under the cluster's hashing key.
    pub hash: KeyHash,
    /// When it was made.
    pub created_at: Timestamp,
    /// Whose it is.
    #[serde(default)]
    pub level: LevelPath,
    /// From when on it opens nothing; absent when it never ends by itself.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    /// What holds for it alone, besides what holds for its level.
    #[serde(default)]
    pub limits: Limits,
}

/// A secret's keyed hash.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct KeyHash(pub [u8; 32]);

/// A token that opens the admin API, as it is kept: the secret's keyed hash, never the secret.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct OperatorToken {
    /// Its id; may be logged.
    pub id: TokenId,
    /// What people call its holder.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// HMAC-SHA-256 of the secret under the cluster's hashing key.
    pub hash: KeyHash,
    /// When it was made.
    pub created_at: Timestamp,
}

/// What the holder of an admin token may do; each may do all that those before it may.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// See.
    Viewer,
    /// Order: models, nodes, engines, holds.
    Operator,
    /// Say who may: keys and tokens.
    Admin,
}

/// Says that a text is no role.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is not a role; there are viewer, operator and admin")]
pub struct ParseRoleError {
    text: String,
}

/// One answered (or refused) client call, for the accounts.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct UsageRecord {
    /// The call; a record is kept once however often it is written.
    pub request: RequestId,
    /// Whose key.
    pub key: KeyId,
    /// The model that was served.
    pub model: ModelName,
    /// The replica that answered; absent when none was reached.
    pub replica: Option<ReplicaId>,
    /// Tokens of the prompt, as the engine counted them.
    pub prompt_tokens: Tokens,
    /// Tokens of the prompt that the engine had in its cache.
    pub cached_tokens: Tokens,
    /// Tokens of the answer, as the engine counted them.
    pub completion_tokens: Tokens,
    /// Whether the engine did not say and the counts are from the events that were seen.
    pub estimated: bool,
    /// The HTTP status that the client got.
    pub status: u16,
    /// When the call came in.
    pub started_at: Timestamp,
    /// From the call to the end of its answer.
    pub duration: Duration,
    /// From the call to the first byte of content; absent when there was none.
    pub time_to_first_token: Option<Duration>,
    /// The level that the key belonged to then.
    #[serde(default)]
    pub level: LevelPath,
    /// What it cost, by the price that was valid when it came in.
    #[serde(default)]
    pub cost: Micros,
    /// What the guard's rules did to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guard: Vec<Decision>,
}

// === impl ApiKey ===

impl ApiKey {
    /// A key of the cluster itself, without limits and without an end.
    pub fn new(id: KeyId, name: impl Into<String>, hash: KeyHash, created_at: Timestamp) -> Self {
        Self {
            id,
            name: name.into(),
            hash,
            created_at,
            level: LevelPath::CLUSTER,
            expires_at: None,
            limits: Limits::default(),
        }
    }

    /// Whether it opens nothing any more at `now`.
    #[must_use]
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

// === impl Role ===

impl Role {
    /// The role as it stands in tables and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Role {
    type Err = ParseRoleError;

    fn from_str(text: &str) -> Result<Self, ParseRoleError> {
        let all = [Self::Viewer, Self::Operator, Self::Admin];
        let found = all.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| ParseRoleError {
            text: text.chars().take(64).collect(),
        })
    }
}

// === impl KeyHash ===

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(…)")
    }
}
