//! What must survive a restart: models that were added, orders, keys, usage, the audit log, and who leads.
//!
//! # What we store, and what we do not
//! *Intent* is stored: models, orders, levels, keys, admin tokens, settings. *Accounts* are stored: usage, and who did what; so is what
//! was measured. *Facts* are not: nodes,
//! replicas and what they do are told by agents, and are known again a heartbeat after a restart. Secrets are not
//! stored; a key is kept as its keyed hash.

#[cfg(feature = "testing")]
mod faulty;
mod memory;
mod open;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod rows;
#[cfg(feature = "sqlite")]
mod sqlite;
mod write;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;

#[cfg(feature = "testing")]
pub use self::faulty::{Call, Fault, Faults, FaultyStore};
#[cfg(feature = "postgres")]
pub use self::postgres::PostgresStore;
#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteStore;
pub use self::{memory::MemoryStore, open::open, write::Write};
use crate::{
    clock::Timestamp,
    cluster::{
        account::{ApiKey, OperatorToken, UsageRecord},
        audit::{AuditEntry, NewAuditEntry},
        capacity::Capacity,
        catalog::Model,
        guard::GuardedCall,
        order::StoredOrder,
        settings::{AboutSettings, StoredSettings},
        tenancy::{
            Level, LevelPath, Price,
            quota::{Quota, Share, ShareAsk, Standing},
        },
    },
    error::{Code, Coded},
    id::{GatewayId, KeyId, ModelName},
    units::{Micros, Tokens},
};

/// Keeps what must survive a restart.
///
/// # Contract
/// * **Durable.** When a write's future has returned `Ok`, the write survives a crash of this process; with a
///   server behind it, a crash of the server too.
/// * **Linearizable.** A read that begins after a write has returned shows that write, from any handle on the
///   same store.
/// * **All or nothing.** A write that fails, or whose future is dropped before it returns, has either its whole
///   effect or none. It may have it a moment later, when what ends it is under way already; that it has not come,
///   one can tell by writing the same again, or by reading after a new epoch was made.
/// * **Fenced.** A write that takes an [`Epoch`] MUST fail with [`StoreError::Fenced`] when another epoch holds
///   the lease, or none does, and MUST NOT become visible then, even if the lease is lost while the write is
///   under way: the lease row is locked or the write transaction is begun before it is checked. A lease that ran
///   out and that nobody took since is still its last epoch's.
/// * **The store's clock.** Leases are timed by the clock of the store (the database), never by a caller's.
/// * **Texts** come back as they were. Only a NUL character MAY be refused, with [`StoreError::Refused`].
/// * **Cancellation.** Every future may be dropped at any time.
/// * **Concurrency.** All methods may be called at the same time from any number of tasks and handles.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Says in a few words what and where this store is, without a password: for people.
    fn describe(&self) -> String;

    /// Whether what is written outlives this process. One that does not is for trying things out: the control plane
    /// takes no order then that a restart would undo.
    fn is_lasting(&self) -> bool;

    /// Takes the lease for `holder`, or fails with [`StoreError::Held`] while another's has not run out.
    ///
    /// Every success makes a new epoch, greater than all before it: also when the same holder takes it again.
    async fn acquire_lease(&self, holder: &str, ttl: Duration) -> Result<Lease, StoreError>;

    /// Keeps the lease for another `ttl` from now; [`StoreError::Fenced`] when it is no longer `epoch`'s.
    ///
    /// A lease that ran out and that nobody took since is still its last epoch's, and is renewed.
    async fn renew_lease(&self, epoch: Epoch, ttl: Duration) -> Result<(), StoreError>;

    /// Gives the lease up, so that the next may take it at once. Does nothing when it is no longer `epoch`'s.
    /// The epoch counter is kept.
    async fn release_lease(&self, epoch: Epoch) -> Result<(), StoreError>;

    /// Makes every later epoch greater than `above`, and so ends the turn of a lower one: whoever led takes the
    /// lease again. Does nothing when the last epoch is not lower.
    ///
    /// For a store that was lost, or brought back from an older copy: agents refuse epochs that they have passed.
    /// More than [`Epoch::MAX`] is [`StoreError::Refused`].
    async fn raise_epoch(&self, above: Epoch) -> Result<(), StoreError>;

    /// All models, by name (in the order of its bytes).
    async fn models(&self) -> Result<Vec<StoredModel>, StoreError>;

    /// Adds a model. Fenced. Fails with [`StoreError::Exists`] when one of that name is there.
    async fn insert_model(&self, epoch: Epoch, model: &StoredModel) -> Result<(), StoreError>;

    /// Removes a model. Fenced. Says whether it was there.
    async fn delete_model(&self, epoch: Epoch, name: &ModelName) -> Result<bool, StoreError>;

    /// All keys, by id.
    async fn keys(&self) -> Result<Vec<ApiKey>, StoreError>;

    /// Adds a key. Fenced. Fails with [`StoreError::Exists`] when the id is there.
    async fn insert_key(&self, epoch: Epoch, key: &ApiKey) -> Result<(), StoreError>;

    /// Removes a key. Fenced. Says whether it was there.
    async fn delete_key(&self, epoch: Epoch, id: KeyId) -> Result<bool, StoreError>;

    /// All levels that were made or limited, by path (in the order of their bytes).
    ///
    /// Whoever wants to know what holds for keys reads the keys first: a level is made before its keys, and goes after
    /// them.
    async fn levels(&self) -> Result<Vec<Level>, StoreError>;

    /// All prices, those that were too, by model, then by time (the models in the order of their bytes).
    async fn prices(&self) -> Result<Vec<Price>, StoreError>;

    /// The orders that stand, by kind, then by name within it (in the order of their bytes). Those of a kind that
    /// this release does not know, for a newer one has written them, are passed over and kept.
    async fn orders(&self) -> Result<Vec<StoredOrder>, StoreError>;

    /// All admin tokens, by id. Those with a role that this release does not know are passed over: they open nothing.
    async fn tokens(&self) -> Result<Vec<OperatorToken>, StoreError>;

    /// What was measured, by model, then by profile (in the order of their bytes). What this release can't read is
    /// passed over: it is measured again.
    async fn capacities(&self) -> Result<Vec<Capacity>, StoreError>;

    /// The newest version of the settings, or this one; `None` when there is none.
    async fn settings(&self, version: Option<u64>) -> Result<Option<StoredSettings>, StoreError>;

    /// What is known of versions of the settings below `before`, or of all, the newest first: `limit` of them, and MUST NOT
    /// be more than [`SETTINGS_PAGE`](crate::cluster::settings::SETTINGS_PAGE).
    async fn settings_history(
        &self,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<(u64, AboutSettings)>, StoreError>;

    /// Makes these changes, in this order, and appends the entry of the audit log that tells of them: all of it, or
    /// nothing. Fenced. The entry is appended as by [`append_audit`](Self::append_audit), and is returned as it stands
    /// there.
    ///
    /// Fails with [`StoreError::Exists`] when a change adds what is there already.
    async fn commit(
        &self,
        epoch: Epoch,
        writes: &[Write],
        entry: &NewAuditEntry,
    ) -> Result<AuditEntry, StoreError>;

    /// Appends usage, all or nothing. Not fenced: every gateway writes its own. A request that is there already
    /// is passed over, so that a batch may be written again after a failure. A count of tokens beyond 2^63 - 1,
    /// which no engine can mean, is kept as that.
    async fn append_usage(&self, records: &[UsageRecord]) -> Result<(), StoreError>;

    /// What was used by calls that came in at `since` or later: by time, when a step is given, then by model, key and
    /// level; ordered so. A sum beyond 2^64 - 1 is shown as that.
    async fn usage_totals(
        &self,
        since: Timestamp,
        step: Option<UsageStep>,
    ) -> Result<Vec<UsageTotal>, StoreError>;

    /// The last calls that came in at `since` or later and that rules of the guard matched, the newest first: the first
    /// `limit` of them, and MUST NOT be more than [`GUARD_PAGE`]. Of calls that came in at the same time, the one with the
    /// greater id is the newer. What this release can't read of what was done is passed over.
    async fn guarded(&self, since: Timestamp, limit: u32) -> Result<Vec<GuardedCall>, StoreError>;

    /// What all gateways have spent and hold of these quotas, in their order.
    async fn quota_uses(&self, quotas: &[Quota]) -> Result<Vec<Standing>, StoreError>;

    /// Tells what a gateway has spent of quotas, and asks for a share of what is left of each, in the place of what it
    /// held: answers in the order of the asks, each of which MUST be as
    /// [`Standing::grant`](crate::cluster::tenancy::quota::Standing::grant) says. Not fenced: every gateway asks for
    /// itself.
    ///
    /// A share is held for `ttl`, from some moment between the call and its answer; then it counts for nothing, and what
    /// was spent still counts. Of all that gateways spend and hold of a quota at a moment, no call sees more granted than
    /// the limit: whoever asks at the same time, through whichever handles, MUST be served one after the other.
    ///
    /// `turn` rises with every call of a gateway: a call that comes late, because its future was dropped, changes nothing
    /// that a later one said. No quota stands twice among the asks.
    async fn share_quotas(
        &self,
        gateway: GatewayId,
        turn: u64,
        asks: &[ShareAsk],
        ttl: Duration,
    ) -> Result<Vec<Share>, StoreError>;

    /// Appends an entry to the audit log, and returns it as it stands there. Fenced.
    ///
    /// The store numbers the entry (from 1, without gaps) and binds it to the one before it, as [`AuditEntry`]
    /// says, within the write: entries that are appended at the same time, through whichever handles, MUST make
    /// one chain. A write that fails or is dropped without effect uses no number up.
    ///
    /// The same entry may be appended again, and is then there twice: whoever does not know whether an append
    /// had its effect looks into the log. Nothing here changes an entry, or removes one.
    async fn append_audit(
        &self,
        epoch: Epoch,
        entry: &NewAuditEntry,
    ) -> Result<AuditEntry, StoreError>;

    /// The entries of the audit log whose numbers are greater than `after`, by number: the first `limit` of them,
    /// and MUST NOT be more than [`AUDIT_PAGE`]. An entry is never shown before all those that precede it, so that
    /// whoever reads page by page misses none. They come as they are kept: that they are unbroken is for the
    /// reader to [check](crate::cluster::audit::verify_chain).
    async fn audit(&self, after: u64, limit: u32) -> Result<Vec<AuditEntry>, StoreError>;
}

/// The most calls that the guard's rules matched that are read at once.
pub const GUARD_PAGE: u32 = 1_000;

/// The most entries of the audit log that are read at once.
pub const AUDIT_PAGE: u32 = 1_000;

/// A turn of holding the lease: greater than every turn before it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Epoch(pub u64);

impl Epoch {
    /// More turns than there will be: one every microsecond takes 285 years.
    pub const MAX: Self = Self(1 << 53);

    /// This epoch, when there may be one after it.
    ///
    /// # Errors
    /// [`StoreError::Refused`] for more than [`MAX`](Self::MAX).
    pub(crate) fn raisable(self) -> Result<Self, StoreError> {
        if self <= Self::MAX {
            return Ok(self);
        }
        Err(StoreError::Refused {
            doing: "raising the epoch",
            source: format!("{} is beyond {}", self.0, Self::MAX.0).into(),
        })
    }
}

/// A lease that was taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lease {
    /// Goes with every fenced write.
    pub epoch: Epoch,
}

/// A model as it is stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredModel {
    /// The model.
    pub model: Model,
    /// When it was added.
    pub added_at: Timestamp,
}

/// A length of time that usage is summed up over, from one full hour or one midnight (UTC) to the next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UsageStep {
    /// An hour.
    Hour,
    /// A day.
    Day,
}

/// What was used of a model with a key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UsageTotal {
    /// When the hour or the day began; absent when no step was asked for.
    pub at: Option<Timestamp>,
    /// The model.
    pub model: ModelName,
    /// The key.
    pub key: KeyId,
    /// The level that the key belonged to.
    pub level: LevelPath,
    /// Calls.
    pub requests: u64,
    /// Calls that ended with a status of 400 or more.
    pub errors: u64,
    /// Tokens of all prompts.
    pub prompt_tokens: Tokens,
    /// Tokens of prompts that the engines had in their caches.
    pub cached_tokens: Tokens,
    /// Tokens of all answers.
    pub completion_tokens: Tokens,
    /// What all of them cost.
    pub cost: Micros,
    /// When the last of them came in.
    pub last_at: Timestamp,
}

// === impl UsageStep ===

impl UsageStep {
    /// How long it is, in milliseconds.
    #[must_use]
    pub const fn millis(self) -> i64 {
        match self {
            Self::Hour => 3_600_000,
            Self::Day => 86_400_000,
        }
    }
}

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another holder has the lease.
    #[error("{holder} holds the lease for another {} ms", remaining.as_millis())]
    Held {
        /// Who.
        holder: String,
        /// For how long, if it is not renewed.
        remaining: Duration,
    },
    /// The epoch no longer holds the lease; nothing was written.
    #[error("epoch {} no longer holds the lease", epoch.0)]
    Fenced {
        /// The epoch that was presented.
        epoch: Epoch,
    },
    /// An object of that name is there.
    #[error("{what} is there already")]
    Exists {
        /// Which.
        what: String,
    },
    /// The text that says where the store is makes no sense.
    #[error("{url:?} is not a store: {problem}")]
    Url {
        /// The text, without a password.
        url: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The store was written by a newer release; it is left as it is.
    #[error("the store has schema version {found}, and this release knows versions up to {known}")]
    Newer {
        /// The version that was found.
        found: i64,
        /// The newest that this release knows.
        known: i64,
    },
    /// The store can't hold a value; asking again won't help.
    #[error("{doing}: the store can't hold this value")]
    Refused {
        /// What we were doing.
        doing: &'static str,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A row can't be read: made by a newer release, or damaged.
    #[error("reading {what} from the store")]
    Unreadable {
        /// Which.
        what: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store does not answer, or failed.
    #[error("{doing}")]
    Unavailable {
        /// What we were doing.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Coded for StoreError {
    fn code(&self) -> Code {
        match self {
            Self::Held { .. } | Self::Exists { .. } | Self::Newer { .. } => Code::Conflict,
            Self::Fenced { .. } => Code::Fenced,
            Self::Unreadable { .. } => Code::Internal,
            Self::Url { .. } | Self::Refused { .. } => Code::InvalidRequest,
            Self::Unavailable { .. } => Code::Unavailable,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Url { .. } => Some(
                "use memory:, sqlite:/path/to/file.db or postgres://user:password@host/database"
                    .to_owned(),
            ),
            Self::Newer { .. } => Some(
                "run the newer release, or restore a backup from before the upgrade".to_owned(),
            ),
            _ => None,
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: Store + ?Sized> Store for Arc<S> {
    fn describe(&self) -> String {
        (**self).describe()
    }

    fn is_lasting(&self) -> bool {
        (**self).is_lasting()
    }

    async fn acquire_lease(&self, holder: &str, ttl: Duration) -> Result<Lease, StoreError> {
        (**self).acquire_lease(holder, ttl).await
    }

    async fn renew_lease(&self, epoch: Epoch, ttl: Duration) -> Result<(), StoreError> {
        (**self).renew_lease(epoch, ttl).await
    }

    async fn release_lease(&self, epoch: Epoch) -> Result<(), StoreError> {
        (**self).release_lease(epoch).await
    }

    async fn raise_epoch(&self, above: Epoch) -> Result<(), StoreError> {
        (**self).raise_epoch(above).await
    }

    async fn models(&self) -> Result<Vec<StoredModel>, StoreError> {
        (**self).models().await
    }

    async fn insert_model(&self, epoch: Epoch, model: &StoredModel) -> Result<(), StoreError> {
        (**self).insert_model(epoch, model).await
    }

    async fn delete_model(&self, epoch: Epoch, name: &ModelName) -> Result<bool, StoreError> {
        (**self).delete_model(epoch, name).await
    }

    async fn keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        (**self).keys().await
    }

    async fn insert_key(&self, epoch: Epoch, key: &ApiKey) -> Result<(), StoreError> {
        (**self).insert_key(epoch, key).await
    }

    async fn delete_key(&self, epoch: Epoch, id: KeyId) -> Result<bool, StoreError> {
        (**self).delete_key(epoch, id).await
    }

    async fn levels(&self) -> Result<Vec<Level>, StoreError> {
        (**self).levels().await
    }

    async fn orders(&self) -> Result<Vec<StoredOrder>, StoreError> {
        (**self).orders().await
    }

    async fn tokens(&self) -> Result<Vec<OperatorToken>, StoreError> {
        (**self).tokens().await
    }

    async fn capacities(&self) -> Result<Vec<Capacity>, StoreError> {
        (**self).capacities().await
    }

    async fn commit(
        &self,
        epoch: Epoch,
        writes: &[Write],
        entry: &NewAuditEntry,
    ) -> Result<AuditEntry, StoreError> {
        (**self).commit(epoch, writes, entry).await
    }

    async fn append_usage(&self, records: &[UsageRecord]) -> Result<(), StoreError> {
        (**self).append_usage(records).await
    }

    async fn usage_totals(
        &self,
        since: Timestamp,
        step: Option<UsageStep>,
    ) -> Result<Vec<UsageTotal>, StoreError> {
        (**self).usage_totals(since, step).await
    }

    async fn guarded(&self, since: Timestamp, limit: u32) -> Result<Vec<GuardedCall>, StoreError> {
        (**self).guarded(since, limit).await
    }

    async fn prices(&self) -> Result<Vec<Price>, StoreError> {
        (**self).prices().await
    }

    async fn settings(&self, version: Option<u64>) -> Result<Option<StoredSettings>, StoreError> {
        (**self).settings(version).await
    }

    async fn settings_history(
        &self,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<(u64, AboutSettings)>, StoreError> {
        (**self).settings_history(before, limit).await
    }

    async fn quota_uses(&self, quotas: &[Quota]) -> Result<Vec<Standing>, StoreError> {
        (**self).quota_uses(quotas).await
    }

    async fn share_quotas(
        &self,
        gateway: GatewayId,
        turn: u64,
        asks: &[ShareAsk],
        ttl: Duration,
    ) -> Result<Vec<Share>, StoreError> {
        (**self).share_quotas(gateway, turn, asks, ttl).await
    }

    async fn append_audit(
        &self,
        epoch: Epoch,
        entry: &NewAuditEntry,
    ) -> Result<AuditEntry, StoreError> {
        (**self).append_audit(epoch, entry).await
    }

    async fn audit(&self, after: u64, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
        (**self).audit(after, limit).await
    }
}
