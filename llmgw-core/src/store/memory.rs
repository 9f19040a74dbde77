//! A store that forgets: for tests, and as the shortest statement of the contract.
//!
//! # What is kept
//! Everything, in ordered maps behind one lock, until the last handle is dropped. The lock is held for a decision
//! and never across an await, so that every call is atomic and no future can be dropped half-way through.

mod kept;
mod shares;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;

use self::{kept::Kept, shares::Shares};
use super::{
    AUDIT_PAGE, Epoch, GUARD_PAGE, Lease, Store, StoreError, StoredModel, UsageStep, UsageTotal,
    Write,
};
use crate::{
    clock::{Clock, Timestamp},
    cluster::{
        account::{ApiKey, OperatorToken, UsageRecord},
        audit::{AuditEntry, ChainHead, NewAuditEntry},
        capacity::Capacity,
        guard::GuardedCall,
        order::StoredOrder,
        settings::{AboutSettings, SETTINGS_PAGE, StoredSettings},
        tenancy::{
            Level, LevelPath, Price,
            quota::{Quota, Share, ShareAsk, Standing},
        },
    },
    id::{GatewayId, KeyId, ModelName, RequestId},
    units::{Micros, Tokens},
};

/// Keeps everything in memory. A clone is another handle on the same data.
#[derive(Clone)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
    forgets: bool,
}

#[derive(Default)]
struct State {
    epoch: u64,
    held: Option<Held>,
    kept: Kept,
    usage: BTreeMap<RequestId, UsageRecord>,
    shares: Shares,
    /// The entry with number n is at n - 1.
    audit: Vec<AuditEntry>,
}

struct Held {
    holder: String,
    /// On the clock's monotonic time.
    until: Duration,
}

// === impl MemoryStore ===

impl MemoryStore {
    /// An empty store whose leases run on `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Arc::default(),
            forgets: false,
        }
    }

    /// The same, which says of itself that it forgets with this process. One that does not say so stands in for a store
    /// that lasts, in tests.
    #[must_use]
    pub fn forgetting(self) -> Self {
        Self {
            forgets: true,
            ..self
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing below panics between two writes, so that a poisoned state is still a whole one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fenced(&self, epoch: Epoch) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.state();
        if state.is_led_by(epoch) {
            Ok(state)
        } else {
            Err(StoreError::Fenced { epoch })
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for MemoryStore {
    fn describe(&self) -> String {
        "memory".to_owned()
    }

    fn is_lasting(&self) -> bool {
        !self.forgets
    }

    async fn acquire_lease(&self, holder: &str, ttl: Duration) -> Result<Lease, StoreError> {
        let now = self.clock.monotonic();
        let mut state = self.state();
        match &state.held {
            Some(held) if held.holder != holder && held.until > now => {
                return Err(StoreError::Held {
                    holder: held.holder.clone(),
                    remaining: held.until.saturating_sub(now),
                });
            }
            _ => {}
        }
        state.epoch += 1;
        state.held = Some(Held {
            holder: holder.to_owned(),
            until: now.saturating_add(ttl),
        });
        Ok(Lease {
            epoch: Epoch(state.epoch),
        })
    }

    async fn renew_lease(&self, epoch: Epoch, ttl: Duration) -> Result<(), StoreError> {
        let now = self.clock.monotonic();
        let mut state = self.fenced(epoch)?;
        if let Some(held) = &mut state.held {
            held.until = now.saturating_add(ttl);
        }
        Ok(())
    }

    async fn release_lease(&self, epoch: Epoch) -> Result<(), StoreError> {
        let mut state = self.state();
        if state.is_led_by(epoch) {
            state.held = None;
        }
        Ok(())
    }

    async fn raise_epoch(&self, above: Epoch) -> Result<(), StoreError> {
        let above = above.raisable()?;
        let mut state = self.state();
        if state.epoch < above.0 {
            state.epoch = above.0;
            state.held = None;
        }
        Ok(())
    }

    async fn models(&self) -> Result<Vec<StoredModel>, StoreError> {
        Ok(self.state().kept.models.values().cloned().collect())
    }

    async fn insert_model(&self, epoch: Epoch, model: &StoredModel) -> Result<(), StoreError> {
        let write = Write::AddModel(Box::new(model.clone()));
        self.fenced(epoch)?.kept.apply(&write).map(drop)
    }

    async fn delete_model(&self, epoch: Epoch, name: &ModelName) -> Result<bool, StoreError> {
        let write = Write::RemoveModel(name.clone());
        self.fenced(epoch)?.kept.apply(&write)
    }

    async fn keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        Ok(self.state().kept.keys.values().cloned().collect())
    }

    async fn insert_key(&self, epoch: Epoch, key: &ApiKey) -> Result<(), StoreError> {
        let write = Write::AddKey(Box::new(key.clone()));
        self.fenced(epoch)?.kept.apply(&write).map(drop)
    }

    async fn delete_key(&self, epoch: Epoch, id: KeyId) -> Result<bool, StoreError> {
        self.fenced(epoch)?.kept.apply(&Write::RemoveKey(id))
    }

    async fn levels(&self) -> Result<Vec<Level>, StoreError> {
        Ok(self.state().kept.levels.values().cloned().collect())
    }

    async fn orders(&self) -> Result<Vec<StoredOrder>, StoreError> {
        Ok(self.state().kept.orders.values().cloned().collect())
    }

    async fn tokens(&self) -> Result<Vec<OperatorToken>, StoreError> {
        Ok(self.state().kept.tokens.values().cloned().collect())
    }

    async fn capacities(&self) -> Result<Vec<Capacity>, StoreError> {
        Ok(self.state().kept.capacities.values().cloned().collect())
    }

    async fn settings(&self, version: Option<u64>) -> Result<Option<StoredSettings>, StoreError> {
        let state = self.state();
        let kept = &state.kept.settings;
        let found = match version {
            Some(version) => kept.get(&version),
            None => kept.values().next_back(),
        };
        Ok(found.cloned())
    }

    async fn settings_history(
        &self,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<(u64, AboutSettings)>, StoreError> {
        let limit = usize::try_from(limit.min(SETTINGS_PAGE)).unwrap_or(usize::MAX);
        let state = self.state();
        let below = state.kept.settings.range(..before.unwrap_or(u64::MAX));
        let newest = below.rev().take(limit);
        Ok(newest
            .map(|(version, one)| (*version, one.about.clone()))
            .collect())
    }

    async fn commit(
        &self,
        epoch: Epoch,
        writes: &[Write],
        entry: &NewAuditEntry,
    ) -> Result<AuditEntry, StoreError> {
        let mut state = self.fenced(epoch)?;
        let mut kept = state.kept.clone();
        for write in writes {
            kept.apply(write)?;
        }
        state.kept = kept;
        Ok(state.append(entry))
    }

    async fn append_usage(&self, records: &[UsageRecord]) -> Result<(), StoreError> {
        let mut state = self.state();
        for record in records {
            state
                .usage
                .entry(record.request)
                .or_insert_with(|| record.clone());
        }
        Ok(())
    }

    async fn usage_totals(
        &self,
        since: Timestamp,
        step: Option<UsageStep>,
    ) -> Result<Vec<UsageTotal>, StoreError> {
        type Place = (Option<Timestamp>, ModelName, KeyId, LevelPath);
        let mut totals: BTreeMap<Place, UsageTotal> = BTreeMap::new();
        let state = self.state();
        for record in state.usage.values().filter(|r| r.started_at >= since) {
            let begin = |step: UsageStep| {
                let millis = step.millis();
                Timestamp(
                    record
                        .started_at
                        .0
                        .div_euclid(millis)
                        .saturating_mul(millis),
                )
            };
            let at = step.map(begin);
            let (model, level) = (record.model.clone(), record.level.clone());
            totals
                .entry((at, model.clone(), record.key, level.clone()))
                .or_insert_with(|| UsageTotal {
                    at,
                    model,
                    key: record.key,
                    level,
                    requests: 0,
                    errors: 0,
                    prompt_tokens: Tokens(0),
                    cached_tokens: Tokens(0),
                    completion_tokens: Tokens(0),
                    cost: Micros(0),
                    last_at: record.started_at,
                })
                .count(record);
        }
        Ok(totals.into_values().collect())
    }

    async fn guarded(&self, since: Timestamp, limit: u32) -> Result<Vec<GuardedCall>, StoreError> {
        let state = self.state();
        let came = state.usage.values().filter(|r| r.started_at >= since);
        let mut found: Vec<GuardedCall> = came.filter_map(GuardedCall::of).collect();
        found.sort_by_key(|call| std::cmp::Reverse((call.at, call.request)));
        found.truncate(usize::try_from(limit.min(GUARD_PAGE)).unwrap_or(usize::MAX));
        Ok(found)
    }

    async fn prices(&self) -> Result<Vec<Price>, StoreError> {
        Ok(self.state().kept.prices.values().cloned().collect())
    }

    async fn quota_uses(&self, quotas: &[Quota]) -> Result<Vec<Standing>, StoreError> {
        let now = self.clock.monotonic();
        let state = self.state();
        let uses = quotas
            .iter()
            .map(|quota| state.shares.standing(quota, None, now));
        Ok(uses.collect())
    }

    async fn share_quotas(
        &self,
        gateway: GatewayId,
        turn: u64,
        asks: &[ShareAsk],
        ttl: Duration,
    ) -> Result<Vec<Share>, StoreError> {
        let now = self.clock.monotonic();
        let until = now.saturating_add(ttl);
        let mut state = self.state();
        let shares = asks
            .iter()
            .map(|ask| state.shares.grant(gateway, turn, ask, (now, until)));
        Ok(shares.collect())
    }

    async fn append_audit(
        &self,
        epoch: Epoch,
        entry: &NewAuditEntry,
    ) -> Result<AuditEntry, StoreError> {
        Ok(self.fenced(epoch)?.append(entry))
    }

    async fn audit(&self, after: u64, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
        let state = self.state();
        let later = usize::try_from(after)
            .ok()
            .and_then(|after| state.audit.get(after..))
            .unwrap_or_default();
        let limit = usize::try_from(limit.min(AUDIT_PAGE)).unwrap_or(usize::MAX);
        Ok(later.iter().take(limit).cloned().collect())
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

// === impl State ===

impl State {
    /// Whether `epoch` was the last to take the lease and did not give it up; it may have run out.
    fn is_led_by(&self, epoch: Epoch) -> bool {
        self.held.is_some() && self.epoch == epoch.0
    }

    fn append(&mut self, entry: &NewAuditEntry) -> AuditEntry {
        let head = self.audit.last().map_or(ChainHead::EMPTY, AuditEntry::head);
        let entry = AuditEntry::chained(head, entry);
        self.audit.push(entry.clone());
        entry
    }
}

// === impl UsageTotal ===

impl UsageTotal {
    fn count(&mut self, record: &UsageRecord) {
        self.requests += 1;
        self.errors += u64::from(record.status >= 400);
        for (sum, tokens) in [
            (&mut self.prompt_tokens, record.prompt_tokens),
            (&mut self.cached_tokens, record.cached_tokens),
            (&mut self.completion_tokens, record.completion_tokens),
        ] {
            sum.0 = sum.0.saturating_add(tokens.0.min(MAX_COUNT));
        }
        self.cost.0 = self.cost.0.saturating_add(record.cost.0.max(0));
        self.last_at = self.last_at.max(record.started_at);
    }
}

/// The largest count that the SQL stores can keep.
const MAX_COUNT: u64 = i64::MAX.unsigned_abs();
