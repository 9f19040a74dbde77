//! The audit log: who did what, and when; each entry bound to the one before it.
//!
//! # The chain
//! Entries are numbered 1, 2, 3 and so on without gaps, and each holds the hash of the one before it. So an entry
//! that was changed, removed or moved shows, to whoever walks the chain (`verify_chain`).
//!
//! ```text
//! hash = SHA-256(previous || field(seq) || field(at) || field(actor) || field(action) || field(subject))
//! field(bytes) = length of bytes as 8 bytes, big-endian || bytes
//! ```
//!
//! Numbers are 8 bytes, big-endian (`at` in two's complement); texts are UTF-8. Each field carries its length, so
//! that no two entries have the same bytes. Before the first entry stand 32 zero bytes. The form never changes:
//! logs that are there already are checked with it.
//!
//! # What it does not show
//! Entries that are missing at the end, and a chain that somebody who may write everything has computed anew.
//! Whoever must exclude that keeps a [`ChainHead`] elsewhere from time to time, and walks the chain from there.

#[cfg(any(feature = "fetch", feature = "keys", feature = "store"))]
mod chain;

use std::fmt;

use serde::{Deserialize, Serialize};

#[cfg(any(feature = "fetch", feature = "keys", feature = "store"))]
pub use self::chain::verify_chain;
use crate::{clock::Timestamp, cluster::weights::Sha256Digest};

/// Something that was done, before it has its place in the log.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NewAuditEntry {
    /// When.
    pub at: Timestamp,
    /// Who did it.
    pub actor: String,
    /// What was done, such as `model.add`.
    pub action: String,
    /// To what it was done, such as a model's name.
    pub subject: String,
}

/// An entry of the log.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct AuditEntry {
    /// Its number: 1, 2, 3 and so on, without gaps.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// Who did it.
    pub actor: String,
    /// What was done, such as `model.add`.
    pub action: String,
    /// To what it was done, such as a model's name.
    pub subject: String,
    /// The hash of the entry before it; 32 zero bytes before the first.
    pub previous: Sha256Digest,
    /// Its own hash.
    pub hash: Sha256Digest,
}

/// The end of a chain, to which the next entry is bound.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ChainHead {
    /// The last entry's number; 0 when there is none.
    pub seq: u64,
    /// The last entry's hash.
    pub hash: Sha256Digest,
}

/// Where a chain is broken, and how.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("audit entry {seq} {problem}")]
pub struct ChainBreak {
    /// The number at which the chain is broken.
    pub seq: u64,
    /// How.
    pub problem: ChainProblem,
}

/// How a chain is broken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ChainProblem {
    /// Another entry stands in its place: it was removed, or moved.
    Displaced {
        /// That entry's number.
        by: u64,
    },
    /// It is not bound to the entry before it: one of the two is not the one that was written.
    Detached,
    /// Its hash is not that of its fields: it was changed.
    Changed,
}

impl ChainHead {
    /// The end of a chain without entries.
    pub const EMPTY: Self = Self {
        seq: 0,
        hash: Sha256Digest([0; 32]),
    };
}

impl AuditEntry {
    /// The end of a chain whose last entry is this one.
    #[must_use]
    pub fn head(&self) -> ChainHead {
        ChainHead {
            seq: self.seq,
            hash: self.hash,
        }
    }
}

impl fmt::Display for ChainProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Displaced { by } => write!(f, "is missing: entry {by} stands in its place"),
            Self::Detached => f.write_str("does not follow from the entry before it"),
            Self::Changed => f.write_str("was changed: its hash is not that of its fields"),
        }
    }
}
