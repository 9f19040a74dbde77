//! A store that fails when it is told to: for tests of what stands on a store.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;

use super::{Epoch, Lease, Store, StoreError, StoredModel, UsageStep, UsageTotal, Write};
use crate::{
    clock::Timestamp,
    cluster::{
        account::{ApiKey, OperatorToken, UsageRecord},
        audit::{AuditEntry, NewAuditEntry},
        capacity::Capacity,
        guard::GuardedCall,
        order::StoredOrder,
        settings::{AboutSettings, StoredSettings},
        tenancy::{
            Level, Price,
            quota::{Quota, Share, ShareAsk, Standing},
        },
    },
    id::{GatewayId, KeyId, ModelName},
};

/// Wraps a store and fails, or delays, the calls that its [`Faults`] name. Without any it changes nothing.
#[derive(Clone, Debug)]
pub struct FaultyStore<S> {
    inner: S,
    faults: Faults,
}

/// What goes wrong next; shared between a [`FaultyStore`] and the test that steers it.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    script: Arc<Mutex<Script>>,
}

/// How a call goes wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// It fails, and has no effect.
    Fail,
    /// It has its effect, and then fails: the connection broke before the answer came.
    LoseAnswer,
    /// It takes this much longer, on the runtime's clock, before it is begun.
    Delay(Duration),
    /// It never returns, and has no effect.
    Hang,
}

/// A method of [`Store`].
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Call {
    /// [`Store::acquire_lease`].
    AcquireLease,
    /// [`Store::renew_lease`].
    RenewLease,
    /// [`Store::release_lease`].
    ReleaseLease,
    /// [`Store::raise_epoch`].
    RaiseEpoch,
    /// [`Store::models`].
    Models,
    /// [`Store::insert_model`].
    InsertModel,
    /// [`Store::delete_model`].
    DeleteModel,
    /// [`Store::keys`].
    Keys,
    /// [`Store::insert_key`].
    InsertKey,
    /// [`Store::delete_key`].
    DeleteKey,
    /// [`Store::levels`].
    Levels,
    /// [`Store::prices`].
    Prices,
    /// [`Store::orders`].
    Orders,
    /// [`Store::tokens`].
    Tokens,
    /// [`Store::capacities`].
    Capacities,
    /// [`Store::settings`].
    Settings,
    /// [`Store::settings_history`].
    SettingsHistory,
    /// [`Store::commit`].
    Commit,
    /// [`Store::append_usage`].
    AppendUsage,
    /// [`Store::usage_totals`].
    UsageTotals,
    /// [`Store::guarded`].
    Guarded,
    /// [`Store::quota_uses`].
    QuotaUses,
    /// [`Store::share_quotas`].
    ShareQuotas,
    /// [`Store::append_audit`].
    AppendAudit,
    /// [`Store::audit`].
    Audit,
}

#[derive(Debug, Default)]
struct Script {
    fail_all: bool,
    /// In the order in which they were added; no call means the next, whichever it is.
    next: VecDeque<(Option<Call>, Fault)>,
    made: BTreeMap<Call, u64>,
}

#[derive(Debug, thiserror::Error)]
#[error("a fault that a test asked for")]
struct Scripted;

// === impl FaultyStore ===

impl<S: Store> FaultyStore<S> {
    /// Wraps `inner`; nothing goes wrong yet.
    #[must_use]
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            faults: Faults::default(),
        }
    }

    /// What steers it; a clone steers it too.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    async fn pass<T>(
        &self,
        call: Call,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match self.faults.meet(call) {
            None => work.await,
            Some(Fault::Fail) => Err(scripted()),
            Some(Fault::LoseAnswer) => {
                work.await?;
                Err(scripted())
            }
            Some(Fault::Delay(span)) => {
                tokio::time::sleep(span).await;
                work.await
            }
            Some(Fault::Hang) => std::future::pending().await,
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for FaultyStore<S> {
    fn describe(&self) -> String {
        format!("{} with faults", self.inner.describe())
    }

    fn is_lasting(&self) -> bool {
        self.inner.is_lasting()
    }

    async fn acquire_lease(&self, holder: &str, ttl: Duration) -> Result<Lease, StoreError> {
        let work = self.inner.acquire_lease(holder, ttl);
        self.pass(Call::AcquireLease, work).await
    }

    async fn renew_lease(&self, epoch: Epoch, ttl: Duration) -> Result<(), StoreError> {
        let work = self.inner.renew_lease(epoch, ttl);
        self.pass(Call::RenewLease, work).await
    }

    async fn release_lease(&self, epoch: Epoch) -> Result<(), StoreError> {
        let work = self.inner.release_lease(epoch);
        self.pass(Call::ReleaseLease, work).await
    }

    async fn raise_epoch(&self, above: Epoch) -> Result<(), StoreError> {
        let work = self.inner.raise_epoch(above);
        self.pass(Call::RaiseEpoch, work).await
    }

    async fn models(&self) -> Result<Vec<StoredModel>, StoreError> {
        self.pass(Call::Models, self.inner.models()).await
    }

    async fn insert_model(&self, epoch: Epoch, model: &StoredModel) -> Result<(), StoreError> {
        let work = self.inner.insert_model(epoch, model);
        self.pass(Call::InsertModel, work).await
    }

    async fn delete_model(&self, epoch: Epoch, name: &ModelName) -> Result<bool, StoreError> {
        let work = self.inner.delete_model(epoch, name);
        self.pass(Call::DeleteModel, work).await
    }

    async fn keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        self.pass(Call::Keys, self.inner.keys()).await
    }

    async fn insert_key(&self, epoch: Epoch, key: &ApiKey) -> Result<(), StoreError> {
        let work = self.inner.insert_key(epoch, key);
        self.pass(Call::InsertKey, work).await
    }

    async fn delete_key(&self, epoch: Epoch, id: KeyId) -> Result<bool, StoreError> {
        let work = self.inner.delete_key(epoch, id);
        self.pass(Call::DeleteKey, work).await
    }

    async fn levels(&self) -> Result<Vec<Level>, StoreError> {
        self.pass(Call::Levels, self.inner.levels()).await
    }

    async fn orders(&self) -> Result<Vec<StoredOrder>, StoreError> {
        self.pass(Call::Orders, self.inner.orders()).await
    }

    async fn tokens(&self) -> Result<Vec<OperatorToken>, StoreError> {
        self.pass(Call::Tokens, self.inner.tokens()).await
    }

    async fn capacities(&self) -> Result<Vec<Capacity>, StoreError> {
        self.pass(Call::Capacities, self.inner.capacities()).await
    }

    async fn settings(&self, version: Option<u64>) -> Result<Option<StoredSettings>, StoreError> {
        let work = self.inner.settings(version);
        self.pass(Call::Settings, work).await
    }

    async fn settings_history(
        &self,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<(u64, AboutSettings)>, StoreError> {
        let work = self.inner.settings_history(before, limit);
        self.pass(Call::SettingsHistory, work).await
    }

    async fn commit(
        &self,
        epoch: Epoch,
        writes: &[Write],
        entry: &NewAuditEntry,
    ) -> Result<AuditEntry, StoreError> {
        let work = self.inner.commit(epoch, writes, entry);
        self.pass(Call::Commit, work).await
    }

    async fn append_usage(&self, records: &[UsageRecord]) -> Result<(), StoreError> {
        let work = self.inner.append_usage(records);
        self.pass(Call::AppendUsage, work).await
    }

    async fn usage_totals(
        &self,
        since: Timestamp,
        step: Option<UsageStep>,
    ) -> Result<Vec<UsageTotal>, StoreError> {
        let work = self.inner.usage_totals(since, step);
        self.pass(Call::UsageTotals, work).await
    }

    async fn guarded(&self, since: Timestamp, limit: u32) -> Result<Vec<GuardedCall>, StoreError> {
        let work = self.inner.guarded(since, limit);
        self.pass(Call::Guarded, work).await
    }

    async fn prices(&self) -> Result<Vec<Price>, StoreError> {
        self.pass(Call::Prices, self.inner.prices()).await
    }

    async fn quota_uses(&self, quotas: &[Quota]) -> Result<Vec<Standing>, StoreError> {
        let work = self.inner.quota_uses(quotas);
        self.pass(Call::QuotaUses, work).await
    }

    async fn share_quotas(
        &self,
        gateway: GatewayId,
        turn: u64,
        asks: &[ShareAsk],
        ttl: Duration,
    ) -> Result<Vec<Share>, StoreError> {
        let work = self.inner.share_quotas(gateway, turn, asks, ttl);
        self.pass(Call::ShareQuotas, work).await
    }

    async fn append_audit(
        &self,
        epoch: Epoch,
        entry: &NewAuditEntry,
    ) -> Result<AuditEntry, StoreError> {
        let work = self.inner.append_audit(epoch, entry);
        self.pass(Call::AppendAudit, work).await
    }

    async fn audit(&self, after: u64, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
        let work = self.inner.audit(after, limit);
        self.pass(Call::Audit, work).await
    }
}

// === impl Faults ===

impl Faults {
    /// Lets the next `count` calls fail, whichever they are.
    pub fn fail_next(&self, count: usize) {
        let faults = std::iter::repeat_n((None, Fault::Fail), count);
        self.script().next.extend(faults);
    }

    /// Lets the next call of this method go wrong in this way. Faults are met in the order of their adding.
    pub fn add(&self, call: Call, fault: Fault) {
        self.script().next.push_back((Some(call), fault));
    }

    /// Lets every call fail, until it is told otherwise; what was added for single calls goes first.
    pub fn fail_all(&self, fail: bool) {
        self.script().fail_all = fail;
    }

    /// How often this method was called, whether the call went wrong or not.
    #[must_use]
    pub fn made(&self, call: Call) -> u64 {
        self.script().made.get(&call).copied().unwrap_or(0)
    }

    fn meet(&self, call: Call) -> Option<Fault> {
        let mut script = self.script();
        *script.made.entry(call).or_default() += 1;
        let next = script
            .next
            .iter()
            .position(|(which, _)| which.is_none_or(|which| which == call));
        match next.and_then(|index| script.next.remove(index)) {
            Some((_, fault)) => Some(fault),
            None => script.fail_all.then_some(Fault::Fail),
        }
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

fn scripted() -> StoreError {
    StoreError::Unavailable {
        doing: "asking a store with faults",
        source: Box::new(Scripted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::SystemClock, store::MemoryStore};

    const TTL: Duration = Duration::from_secs(60);

    fn store() -> FaultyStore<MemoryStore> {
        FaultyStore::new(MemoryStore::new(Arc::new(SystemClock::new())))
    }

    #[tokio::test]
    async fn the_next_calls_fail_and_then_no_more() {
        let store = store();
        store.faults().fail_next(2);
        assert!(store.models().await.is_err());
        assert!(store.keys().await.is_err());
        assert!(store.models().await.is_ok());
        assert_eq!(store.faults().made(Call::Models), 2);
    }

    #[tokio::test]
    async fn a_fault_waits_for_its_call() {
        let store = store();
        store.faults().add(Call::Keys, Fault::Fail);
        assert!(store.models().await.is_ok());
        assert!(store.keys().await.is_err());
        assert!(store.keys().await.is_ok());
    }

    #[tokio::test]
    async fn a_failed_call_has_no_effect_and_one_whose_answer_is_lost_has() {
        let store = store();
        store.faults().add(Call::AcquireLease, Fault::Fail);
        assert!(store.acquire_lease("a", TTL).await.is_err());
        assert!(store.acquire_lease("b", TTL).await.is_ok());
        let lease = store.acquire_lease("b", TTL).await.unwrap();
        store.faults().add(Call::ReleaseLease, Fault::LoseAnswer);
        assert!(store.release_lease(lease.epoch).await.is_err());
        assert!(store.acquire_lease("c", TTL).await.is_ok());
    }

    #[tokio::test]
    async fn all_calls_fail_until_told_otherwise() {
        let store = store();
        store.faults().fail_all(true);
        for _ in 0..3 {
            assert!(store.models().await.is_err());
        }
        store.faults().fail_all(false);
        assert!(store.models().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_late_or_never_return() {
        let store = store();
        store.faults().add(Call::Models, Fault::Delay(TTL));
        store.faults().add(Call::Models, Fault::Hang);
        let begun = tokio::time::Instant::now();
        assert!(store.models().await.is_ok());
        assert_eq!(begun.elapsed(), TTL);
        assert!(tokio::time::timeout(TTL, store.models()).await.is_err());
    }
}
