//! Keys that clients present, and what was used with them.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    id::{KeyId, ModelName, ReplicaId, RequestId},
    units::Tokens,
};

/// A key as it is kept: the secret's keyed hash, never the secret.
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
}

/// A secret's keyed hash.
#[derive(Clone, Copy, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct KeyHash(pub [u8; 32]);

/// One answered (or refused) client call, for the accounts.
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
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(…)")
    }
}
