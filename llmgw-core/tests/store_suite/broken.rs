//! A store that has, on demand, one of the bugs that people put into stores.

mod audit;
mod orders;
mod settings;
mod shares;
mod usage;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use llmgw_core::{
    clock::Timestamp,
    cluster::{
        account::{ApiKey, OperatorToken, UsageRecord},
        audit::{AuditEntry, NewAuditEntry},
        capacity::Capacity,
        guard::GuardedCall,
        order::StoredOrder,
        settings::{AboutSettings, StoredSettings},
        tenancy::{
            Level, LevelPath, Limits, Price,
            quota::{Quota, Share, ShareAsk, Standing},
        },
    },
    id::{GatewayId, KeyId, ModelName, RequestId, TokenId},
    store::{Epoch, Lease, Store, StoreError, StoredModel, UsageStep, UsageTotal, Write},
    testing::store::StoreFixture,
};
use tokio::time::{Instant, sleep};

macro_rules! bugs {
    ($($bug:ident: $($check:ident)+,)+) => {
        /// What people get wrong in a store.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub(crate) enum Bug { $($bug),+ }

        /// Each with the checks that are there for it. Others may catch it too.
        pub(crate) const BUGS: &[(Bug, &[&str])] = &[$((Bug::$bug, &[$(stringify!($check)),+])),+];
    };
}

bugs! {
    LeaseIsNeverFree: a_free_lease_is_taken,
    LeaseIsForAll: a_lease_is_refused_to_others_while_it_lasts,
    LeaseNeverRunsOut: a_lease_runs_out,
    LongLeaseOverflows: a_lease_may_be_of_any_length,
    WinnerIsDecidedBeforeItIsWritten: of_many_who_ask_at_once_one_gets_the_lease,
    SameHolderKeepsItsEpoch: taking_the_lease_again_makes_a_greater_epoch,
    ReleaseForgetsTheCounter: the_epoch_counter_outlives_release_and_reopening,
    RenewalIsForAll: only_the_last_epoch_renews,
    RenewalDoesNothing: a_renewal_counts_from_now,
    RenewalAddsUp: a_renewal_counts_from_now,
    RenewalFailsLate: a_lease_that_ran_out_is_renewed_if_nobody_took_it,
    ReleaseIsForAll: only_the_last_epoch_releases,
    ReleaseDoesNothing: a_released_lease_is_free_at_once,
    RaisingDoesNothing: a_raised_epoch_ends_the_turn_and_is_never_lowered,
    RaisingLowers: a_raised_epoch_ends_the_turn_and_is_never_lowered,
    RaisingEndsNoTurn: a_raised_epoch_ends_the_turn_and_is_never_lowered,
    RaisingKnowsNoLimit: a_raised_epoch_ends_the_turn_and_is_never_lowered,
    WritesAreNotFenced: writes_of_another_epoch_fail_and_leave_nothing,
    WritesAreFencedByAnyEpochBefore: writes_of_another_epoch_fail_and_leave_nothing,
    FenceIsCheckedAndLeft: no_write_of_an_old_epoch_appears_after_a_new_one_was_made,
    DeletesAreNotFenced: writes_of_another_epoch_fail_and_leave_nothing,
    LateWritesFail: a_lease_that_ran_out_counts_until_it_is_taken,
    ExistsGoesBeforeFenced: writes_of_another_epoch_fail_and_leave_nothing,
    InsertReplaces: what_exists_is_not_replaced,
    DeleteIsAlwaysTrue: deleting_says_whether_it_was_there,
    DeleteDoesNothing: deleting_says_whether_it_was_there,
    ListsAreReversed:
        models_come_back_as_they_were_and_in_order
        keys_come_back_as_they_were_and_in_order
        orders_come_back_as_they_were_and_in_order
        tokens_and_measurements_come_back_as_they_were_and_in_order
        levels_come_back_as_they_were_and_in_order
        prices_come_back_as_they_were_and_in_order,
    ListsIgnoreCase: models_come_back_as_they_were_and_in_order,
    TextsAreTrimmed:
        texts_come_back_as_they_were
        texts_in_the_log_are_as_they_were,
    ReadsAreCached: a_write_is_seen_by_every_handle_at_once,
    HandlesForget:
        what_was_written_outlives_all_handles
        the_log_outlives_all_handles
        what_was_spent_counts_once_and_stays,
    NameIsTakenFirst: a_dropped_write_is_whole_or_nothing_and_spoils_no_later_one,
    DroppedWriteHoldsTheLock: a_dropped_write_is_whole_or_nothing_and_spoils_no_later_one,
    OneCallAtATime: calls_may_be_made_at_the_same_time,
    UsageIsCountedAgain: a_request_counts_once_however_often_it_is_written,
    LastUsageWins: a_request_counts_once_however_often_it_is_written,
    UsageNeedsALease: totals_add_up_by_model_then_key,
    UsageIsInSteps: a_dropped_batch_is_whole_or_nothing,
    UsageIsCapped: a_large_batch_is_kept,
    UsageCollides: batches_that_overlap_may_be_written_at_the_same_time,
    SinceIsExclusive: totals_count_from_since_on,
    ErrorsFrom500: statuses_of_400_or_more_are_errors,
    TotalsAreReversed: totals_add_up_by_model_then_key,
    TotalsWrap: absurd_counts_do_not_spoil_the_totals,
    AuditIsNotFenced: entries_of_another_epoch_fail_and_use_no_number,
    AuditFenceIsCheckedAndLeft: no_entry_of_an_old_epoch_appears_after_a_new_one_was_made,
    FencedEntryUsesANumber: entries_of_another_epoch_fail_and_use_no_number,
    DroppedEntryUsesANumber: a_dropped_append_is_whole_or_nothing_and_leaves_no_gap,
    EntryIsChainedBeforeItIsWritten: entries_appended_at_the_same_time_make_one_chain,
    EntriesAreNotChained: entries_are_numbered_and_chained,
    FirstNumberIsTwo: entries_are_numbered_and_chained,
    SameEntryIsLeftOut: entries_are_numbered_and_chained,
    EntriesAreInOrderOfTime: entries_are_numbered_and_chained,
    EntriesAreReversed: entries_are_numbered_and_chained,
    AfterIsInclusive: a_page_begins_after_a_number_and_is_bounded,
    LimitIsIgnored: a_page_begins_after_a_number_and_is_bounded,
    PagesAreUnbounded: a_page_begins_after_a_number_and_is_bounded,
    LogBeginsAnewWithEachEpoch: the_log_outlives_all_handles,
    FirstOrderStays: a_later_order_takes_the_place_of_the_one_on_its_subject,
    LiftDoesNothing: a_later_order_takes_the_place_of_the_one_on_its_subject,
    CommitIsNotFenced: a_commit_that_fails_leaves_nothing,
    CommitIsInSteps: a_dropped_commit_is_whole_or_nothing,
    CommitLeavesWhatWentBefore: a_commit_that_fails_leaves_nothing,
    CommitForgetsItsEntry: a_commit_is_its_changes_and_its_entry,
    CommitForgetsKeys: a_commit_is_its_changes_and_its_entry,
    FirstLimitsStay: levels_come_back_as_they_were_and_in_order,
    LevelsStay: levels_come_back_as_they_were_and_in_order,
    LimitsOfKeysAreForgotten: keys_come_back_as_they_were_and_in_order,
    LimitsAreOfEachGateway: a_share_is_of_what_is_left,
    SpentIsAddedUp: what_was_spent_counts_once_and_stays,
    SharesLastForEver:
        a_share_runs_out_and_what_was_spent_does_not
        what_is_spent_and_held_can_be_looked_at,
    SpentRunsOut: a_share_runs_out_and_what_was_spent_does_not,
    LateAsksCount: a_turn_that_was_overtaken_changes_nothing,
    MinutesAreOne: quotas_are_told_apart,
    SharesAreDecidedBeforeTheyAreWritten:
        gateways_that_ask_at_the_same_time_hold_no_more_than_the_limit,
    FirstPriceStays: prices_come_back_as_they_were_and_in_order,
    LastIsFirst: totals_are_by_time_when_a_step_is_given,
    StepsRoundTowardsZero: totals_are_by_time_when_a_step_is_given,
    OldestGuardedComeFirst: what_the_guard_did_comes_back_newest_first,
    GuardedAreUnbounded: what_the_guard_did_comes_back_newest_first,
    LevelsOfUsageAreForgotten: usage_is_of_the_level_that_it_was_then,
    SettingsAreReplaced: a_version_of_the_settings_is_written_once,
    OldestSettingsAreNewest: every_version_of_the_settings_is_kept,
    HistoryIsForward: the_history_of_the_settings_is_read_from_its_end,
    HistoryBeginsWithBefore: the_history_of_the_settings_is_read_from_its_end,
    FirstMeasurementStays: tokens_and_measurements_come_back_as_they_were_and_in_order,
}

/// Where such a store keeps its data.
pub(crate) struct BrokenFixture {
    bug: Option<Bug>,
    data: Arc<Mutex<Data>>,
}

#[derive(Debug)]
struct BrokenStore {
    bug: Option<Bug>,
    data: Arc<Mutex<Data>>,
    cached: Mutex<Option<Vec<StoredModel>>>,
}

#[derive(Debug, Default)]
struct Data {
    epoch: u64,
    held: Option<(String, Option<Instant>)>,
    models: BTreeMap<String, Option<StoredModel>>,
    keys: BTreeMap<KeyId, ApiKey>,
    levels: BTreeMap<LevelPath, Level>,
    prices: BTreeMap<(ModelName, Timestamp), Price>,
    orders: BTreeMap<(String, String), StoredOrder>,
    tokens: BTreeMap<TokenId, OperatorToken>,
    capacities: BTreeMap<(String, String), Capacity>,
    settings: BTreeMap<u64, StoredSettings>,
    usage: BTreeMap<RequestId, UsageRecord>,
    shares: shares::Shares,
    extra: Vec<UsageRecord>,
    busy: bool,
    under_way: BTreeSet<RequestId>,
    audit: Vec<AuditEntry>,
    /// Numbers that were given and not written.
    skipped: u64,
    /// The epoch that wrote the last entry.
    log_epoch: u64,
}

impl BrokenFixture {
    pub(crate) fn new(bug: Option<Bug>) -> Self {
        let data = Arc::default();
        Self { bug, data }
    }
}

#[async_trait]
impl StoreFixture for BrokenFixture {
    async fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        if self.bug == Some(Bug::HandlesForget) && Arc::strong_count(&self.data) == 1 {
            *self.data.lock().expect("no panic") = Data::default();
        }
        Ok(Arc::new(BrokenStore {
            bug: self.bug,
            data: Arc::clone(&self.data),
            cached: Mutex::default(),
        }))
    }
}

impl BrokenStore {
    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn data(&self) -> MutexGuard<'_, Data> {
        self.data.lock().expect("no panic")
    }

    fn check(&self, epoch: Epoch) -> Result<(), StoreError> {
        let data = self.data();
        let ran_out = matches!(&data.held, Some((_, Some(until))) if *until <= Instant::now());
        let led = data.held.is_some() && data.epoch == epoch.0;
        if self.has(Bug::WritesAreNotFenced)
            || (self.has(Bug::WritesAreFencedByAnyEpochBefore) && epoch.0 <= data.epoch)
            || (led && !(ran_out && self.has(Bug::LateWritesFail)))
        {
            Ok(())
        } else {
            Err(StoreError::Fenced { epoch })
        }
    }

    /// Begins a write: what may go wrong between the check and the effect.
    async fn begin(&self) -> Result<(), StoreError> {
        if self.has(Bug::FenceIsCheckedAndLeft) {
            sleep(STEP).await;
        }
        if self.has(Bug::OneCallAtATime) || self.has(Bug::DroppedWriteHoldsTheLock) {
            while self.data().busy {
                if self.has(Bug::OneCallAtATime) {
                    return Err(unavailable("busy"));
                }
                sleep(STEP).await;
            }
            self.data().busy = true;
            sleep(STEP).await;
            self.data().busy = false;
        }
        Ok(())
    }

    fn until(&self, ttl: Duration) -> Option<Instant> {
        if self.has(Bug::LeaseNeverRunsOut) {
            return None;
        }
        match Instant::now().checked_add(ttl) {
            None if self.has(Bug::LongLeaseOverflows) => Some(Instant::now()),
            until => until,
        }
    }
}

#[async_trait]
impl Store for BrokenStore {
    fn describe(&self) -> String {
        format!("a store with {:?}", self.bug)
    }

    fn is_lasting(&self) -> bool {
        true
    }

    async fn acquire_lease(&self, holder: &str, ttl: Duration) -> Result<Lease, StoreError> {
        if self.has(Bug::LeaseIsNeverFree) {
            return Err(held("nobody", None));
        }
        let now_held = self.data().held.clone();
        if let Some((other, until)) = now_held {
            let free = until.is_some_and(|until| until <= Instant::now());
            if other != holder && !free && !self.has(Bug::LeaseIsForAll) {
                return Err(held(&other, until));
            }
            if other == holder && self.has(Bug::SameHolderKeepsItsEpoch) {
                let epoch = Epoch(self.data().epoch);
                return Ok(Lease { epoch });
            }
        }
        if self.has(Bug::WinnerIsDecidedBeforeItIsWritten) {
            sleep(STEP).await;
        }
        let mut data = self.data();
        data.epoch += 1;
        data.held = Some((holder.to_owned(), self.until(ttl)));
        Ok(Lease {
            epoch: Epoch(data.epoch),
        })
    }

    async fn renew_lease(&self, epoch: Epoch, ttl: Duration) -> Result<(), StoreError> {
        let mut data = self.data();
        let current = data.epoch == epoch.0 || self.has(Bug::RenewalIsForAll);
        let doubled = self.has(Bug::RenewalAddsUp);
        match &mut data.held {
            Some((_, until)) if current => {
                let before = *until;
                if self.has(Bug::RenewalFailsLate) && before.is_some_and(|b| b <= Instant::now()) {
                    return Err(StoreError::Fenced { epoch });
                }
                *until = match (self.has(Bug::RenewalDoesNothing), doubled) {
                    (true, _) => before,
                    (_, true) => before.and_then(|before| before.checked_add(ttl)),
                    _ => self.until(ttl),
                };
                Ok(())
            }
            _ => Err(StoreError::Fenced { epoch }),
        }
    }

    async fn release_lease(&self, epoch: Epoch) -> Result<(), StoreError> {
        let mut data = self.data();
        if self.has(Bug::ReleaseDoesNothing) {
            return Ok(());
        }
        if data.epoch == epoch.0 || self.has(Bug::ReleaseIsForAll) {
            data.held = None;
            if self.has(Bug::ReleaseForgetsTheCounter) {
                data.epoch = 0;
            }
        }
        Ok(())
    }

    async fn raise_epoch(&self, above: Epoch) -> Result<(), StoreError> {
        if above > Epoch::MAX && !self.has(Bug::RaisingKnowsNoLimit) {
            return Err(StoreError::Refused {
                doing: "raising the epoch",
                source: "too much".into(),
            });
        }
        let mut data = self.data();
        let lower = data.epoch < above.0 || self.has(Bug::RaisingLowers);
        if lower && !self.has(Bug::RaisingDoesNothing) {
            data.epoch = above.0;
            if !self.has(Bug::RaisingEndsNoTurn) {
                data.held = None;
            }
        }
        Ok(())
    }

    async fn models(&self) -> Result<Vec<StoredModel>, StoreError> {
        if self.has(Bug::ReadsAreCached)
            && let Some(cached) = &*self.cached.lock().expect("no panic")
        {
            return Ok(cached.clone());
        }
        let mut models: Vec<StoredModel> = self.data().models.values().flatten().cloned().collect();
        if self.has(Bug::ListsAreReversed) {
            models.reverse();
        }
        if self.has(Bug::ListsIgnoreCase) {
            models.sort_by_key(|m| m.model.name().as_str().to_lowercase());
        }
        *self.cached.lock().expect("no panic") = Some(models.clone());
        Ok(models)
    }

    async fn insert_model(&self, epoch: Epoch, model: &StoredModel) -> Result<(), StoreError> {
        let name = model.model.name().to_string();
        let exists = StoreError::Exists {
            what: format!("model {name}"),
        };
        if self.has(Bug::ExistsGoesBeforeFenced) && self.data().models.contains_key(&name) {
            return Err(exists);
        }
        self.check(epoch)?;
        self.begin().await?;
        if !self.has(Bug::FenceIsCheckedAndLeft) {
            self.check(epoch)?;
        }
        if self.data().models.contains_key(&name) && !self.has(Bug::InsertReplaces) {
            return Err(exists);
        }
        if self.has(Bug::NameIsTakenFirst) {
            self.data().models.insert(name.clone(), None);
            sleep(STEP).await;
        }
        self.data().models.insert(name, Some(model.clone()));
        Ok(())
    }

    async fn delete_model(&self, epoch: Epoch, name: &ModelName) -> Result<bool, StoreError> {
        if !self.has(Bug::DeletesAreNotFenced) {
            self.check(epoch)?;
        }
        let mut data = self.data();
        if self.has(Bug::DeleteDoesNothing) {
            return Ok(data.models.contains_key(name.as_str()));
        }
        Ok(data.models.remove(name.as_str()).is_some() || self.has(Bug::DeleteIsAlwaysTrue))
    }

    async fn keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        let mut keys: Vec<ApiKey> = self.data().keys.values().cloned().collect();
        if self.has(Bug::ListsAreReversed) {
            keys.reverse();
        }
        if self.has(Bug::LimitsOfKeysAreForgotten) {
            for key in &mut keys {
                key.limits = Limits::default();
            }
        }
        Ok(keys)
    }

    async fn insert_key(&self, epoch: Epoch, key: &ApiKey) -> Result<(), StoreError> {
        self.check(epoch)?;
        self.begin().await?;
        self.check(epoch)?;
        let mut data = self.data();
        if data.keys.contains_key(&key.id) && !self.has(Bug::InsertReplaces) {
            return Err(StoreError::Exists {
                what: key.id.to_string(),
            });
        }
        let mut key = key.clone();
        if self.has(Bug::TextsAreTrimmed) {
            key.name = key.name.trim().to_owned();
        }
        data.keys.insert(key.id, key);
        Ok(())
    }

    async fn delete_key(&self, epoch: Epoch, id: KeyId) -> Result<bool, StoreError> {
        if !self.has(Bug::DeletesAreNotFenced) {
            self.check(epoch)?;
        }
        Ok(self.data().keys.remove(&id).is_some() || self.has(Bug::DeleteIsAlwaysTrue))
    }

    async fn levels(&self) -> Result<Vec<Level>, StoreError> {
        let levels = self.data().levels.values().cloned().collect();
        Ok(self.listed(levels))
    }

    async fn orders(&self) -> Result<Vec<StoredOrder>, StoreError> {
        let orders = self.data().orders.values().cloned().collect();
        Ok(self.listed(orders))
    }

    async fn tokens(&self) -> Result<Vec<OperatorToken>, StoreError> {
        let tokens = self.data().tokens.values().cloned().collect();
        Ok(self.listed(tokens))
    }

    async fn capacities(&self) -> Result<Vec<Capacity>, StoreError> {
        let capacities = self.data().capacities.values().cloned().collect();
        Ok(self.listed(capacities))
    }

    async fn settings(&self, version: Option<u64>) -> Result<Option<StoredSettings>, StoreError> {
        Ok(self.settings_of(version))
    }

    async fn settings_history(
        &self,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<(u64, AboutSettings)>, StoreError> {
        Ok(self.history(before, limit))
    }

    async fn commit(
        &self,
        epoch: Epoch,
        writes: &[Write],
        entry: &NewAuditEntry,
    ) -> Result<AuditEntry, StoreError> {
        self.commit_all(epoch, writes, entry).await
    }

    async fn append_usage(&self, records: &[UsageRecord]) -> Result<(), StoreError> {
        if self.has(Bug::UsageNeedsALease) && self.data().held.is_none() {
            return Err(unavailable("nobody leads"));
        }
        if self.has(Bug::UsageCollides) {
            let requests: BTreeSet<RequestId> = records.iter().map(|r| r.request).collect();
            if !self.data().under_way.is_disjoint(&requests) {
                return Err(unavailable("deadlock detected"));
            }
            self.data().under_way.extend(requests.iter().copied());
            sleep(STEP).await;
            self.data()
                .under_way
                .retain(|request| !requests.contains(request));
        }
        let kept = if self.has(Bug::UsageIsCapped) {
            records.get(..1_000).unwrap_or(records)
        } else {
            records
        };
        for (index, record) in kept.iter().enumerate() {
            if self.has(Bug::UsageIsInSteps) && index == records.len() / 2 {
                sleep(STEP).await;
            }
            let mut data = self.data();
            if data.usage.contains_key(&record.request) {
                if self.has(Bug::UsageIsCountedAgain) {
                    data.extra.push(record.clone());
                }
                if !self.has(Bug::LastUsageWins) {
                    continue;
                }
            }
            data.usage.insert(record.request, record.clone());
        }
        Ok(())
    }

    async fn usage_totals(
        &self,
        since: Timestamp,
        step: Option<UsageStep>,
    ) -> Result<Vec<UsageTotal>, StoreError> {
        Ok(self.totals(since, step))
    }

    async fn guarded(&self, since: Timestamp, limit: u32) -> Result<Vec<GuardedCall>, StoreError> {
        Ok(self.guarded_calls(since, limit))
    }

    async fn prices(&self) -> Result<Vec<Price>, StoreError> {
        let prices = self.data().prices.values().cloned().collect();
        Ok(self.listed(prices))
    }

    async fn quota_uses(&self, quotas: &[Quota]) -> Result<Vec<Standing>, StoreError> {
        let nobody = GatewayId::from_uuid(uuid::Uuid::nil());
        let uses = quotas.iter().map(|quota| self.standing(quota, nobody));
        Ok(uses.collect())
    }

    async fn share_quotas(
        &self,
        gateway: GatewayId,
        turn: u64,
        asks: &[ShareAsk],
        ttl: Duration,
    ) -> Result<Vec<Share>, StoreError> {
        Ok(self.share_all(gateway, turn, asks, ttl).await)
    }

    async fn append_audit(
        &self,
        epoch: Epoch,
        entry: &NewAuditEntry,
    ) -> Result<AuditEntry, StoreError> {
        self.append_entry(epoch, entry).await
    }

    async fn audit(&self, after: u64, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
        Ok(self.entries(after, limit))
    }
}

fn held(holder: &str, until: Option<Instant>) -> StoreError {
    let now = Instant::now();
    StoreError::Held {
        holder: holder.to_owned(),
        remaining: until.map_or(Duration::MAX, |until| until.saturating_duration_since(now)),
    }
}

fn unavailable(why: &'static str) -> StoreError {
    StoreError::Unavailable {
        doing: "using a broken store",
        source: why.into(),
    }
}

/// Longer than a poll.
const STEP: Duration = Duration::from_millis(1);
