//! What every [`Store`] must do, as checks that anyone can run on theirs.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use llmgw_core::{
//!     clock::SystemClock,
//!     store::{MemoryStore, Store, StoreError},
//!     testing::store::{StoreFixture, conformance},
//! };
//!
//! #[derive(Debug)]
//! struct InMemory(MemoryStore);
//!
//! #[async_trait::async_trait]
//! impl StoreFixture for InMemory {
//!     async fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
//!         Ok(Arc::new(self.0.clone()))
//!     }
//! }
//!
//! # async fn check() -> Result<(), Box<dyn std::error::Error>> {
//! conformance(|| async { InMemory(MemoryStore::new(Arc::new(SystemClock::new()))) }).await?;
//! # Ok(())
//! # }
//! ```

mod audit;
mod fence;
mod intent;
mod lease;
mod orders;
mod sample;
mod settings;
mod shares;
mod usage;

use std::{error::Error, fmt, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::store::{Store, StoreError};

/// A place where a store keeps its data.
///
/// # Contract
/// * `open` opens one more handle on the same data. It is called several times, while other handles are in use
///   and after all were dropped; what was written stays.
/// * Dropping the fixture may delete the data.
#[async_trait]
pub trait StoreFixture: Send + Sync {
    /// Opens a handle.
    async fn open(&self) -> Result<Arc<dyn Store>, StoreError>;
}

/// Checks a store against every sentence of its contract; each check on a fresh, empty one.
///
/// Leases run out in these checks: it takes some seconds. The runtime's time must run as the store's does; it may
/// be paused for a store that follows it.
///
/// # Errors
/// All breaches that were found.
pub async fn conformance<F, Fut, X>(fresh: F) -> Result<(), Nonconforming>
where
    F: Fn() -> Fut,
    Fut: Future<Output = X>,
    X: StoreFixture,
{
    conformance_of(|_| true, fresh).await
}

/// The same with those [`checks`] alone that `which` picks by name.
///
/// # Errors
/// All breaches that were found.
pub async fn conformance_of<F, Fut, X>(
    which: impl Fn(&str) -> bool,
    fresh: F,
) -> Result<(), Nonconforming>
where
    F: Fn() -> Fut,
    Fut: Future<Output = X>,
    X: StoreFixture,
{
    let mut breaches = Vec::new();
    for (check, run) in CHECKS.iter().filter(|(check, _)| which(check)) {
        let fixture = fresh().await;
        let outcome = tokio::time::timeout(CHECK_LIMIT, run(&fixture)).await;
        let outcome = outcome.unwrap_or_else(|elapsed| Err(Failure::from(elapsed)));
        if let Err(Failure { saw, source }) = outcome {
            breaches.push(Breach { check, saw, source });
        }
    }
    if breaches.is_empty() {
        Ok(())
    } else {
        Err(Nonconforming { breaches })
    }
}

/// The names of all checks.
pub fn checks() -> impl Iterator<Item = &'static str> {
    CHECKS.iter().map(|(check, _)| *check)
}

/// A store does not keep its contract.
#[derive(Debug)]
pub struct Nonconforming {
    breaches: Vec<Breach>,
}

/// A check that a store did not pass.
#[derive(Debug)]
pub struct Breach {
    check: &'static str,
    saw: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What a check saw; becomes a [`Breach`] with the check's name.
#[derive(Debug)]
struct Failure {
    saw: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

type Check = for<'a> fn(&'a dyn StoreFixture) -> Pin<Box<dyn Future<Output = Checked> + Send + 'a>>;

type Checked = Result<(), Failure>;

// === impl Nonconforming ===

impl Nonconforming {
    /// What was found, in the order of the checks.
    #[must_use]
    pub fn breaches(&self) -> &[Breach] {
        &self.breaches
    }
}

impl Error for Nonconforming {}

impl fmt::Display for Nonconforming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} checks failed", self.breaches.len())?;
        for breach in &self.breaches {
            write!(f, "\n- {}", crate::error::Chain(breach))?;
        }
        Ok(())
    }
}

// === impl Breach ===

impl Breach {
    /// The check's name: a sentence.
    #[must_use]
    pub fn check(&self) -> &'static str {
        self.check
    }
}

impl Error for Breach {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.source {
            Some(source) => Some(source.as_ref()),
            None => None,
        }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.saw)
    }
}

// === impl Failure ===

impl Failure {
    fn saw(saw: impl Into<String>) -> Self {
        Self {
            saw: saw.into(),
            source: None,
        }
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(source: E) -> Self {
        Self {
            saw: "a call failed".to_owned(),
            source: Some(Box::new(source)),
        }
    }
}

macro_rules! ensure {
    ($holds:expr, $($saw:tt)+) => {
        if !$holds {
            return Err(crate::testing::store::Failure::saw(format!($($saw)+)));
        }
    };
}
use ensure;

macro_rules! checks {
    ($($room:ident: $($check:ident),+;)+) => {
        &[$($((stringify!($check), |fixture| Box::pin($room::$check(fixture)))),+),+]
    };
}

const CHECKS: &[(&str, Check)] = checks! {
    lease:
        a_free_lease_is_taken,
        a_lease_is_refused_to_others_while_it_lasts,
        taking_the_lease_again_makes_a_greater_epoch,
        a_lease_runs_out,
        a_renewal_counts_from_now,
        a_lease_that_ran_out_is_renewed_if_nobody_took_it,
        only_the_last_epoch_renews,
        a_released_lease_is_free_at_once,
        only_the_last_epoch_releases,
        the_epoch_counter_outlives_release_and_reopening,
        of_many_who_ask_at_once_one_gets_the_lease,
        a_raised_epoch_ends_the_turn_and_is_never_lowered,
        a_lease_may_be_of_any_length;
    fence:
        writes_of_another_epoch_fail_and_leave_nothing,
        a_lease_that_ran_out_counts_until_it_is_taken,
        no_write_of_an_old_epoch_appears_after_a_new_one_was_made;
    intent:
        models_come_back_as_they_were_and_in_order,
        keys_come_back_as_they_were_and_in_order,
        what_exists_is_not_replaced,
        deleting_says_whether_it_was_there,
        texts_come_back_as_they_were,
        a_write_is_seen_by_every_handle_at_once,
        what_was_written_outlives_all_handles,
        a_dropped_write_is_whole_or_nothing_and_spoils_no_later_one,
        calls_may_be_made_at_the_same_time;
    orders:
        orders_come_back_as_they_were_and_in_order,
        a_later_order_takes_the_place_of_the_one_on_its_subject,
        tokens_and_measurements_come_back_as_they_were_and_in_order,
        levels_come_back_as_they_were_and_in_order,
        prices_come_back_as_they_were_and_in_order,
        a_commit_is_its_changes_and_its_entry,
        a_commit_that_fails_leaves_nothing,
        a_dropped_commit_is_whole_or_nothing;
    settings:
        every_version_of_the_settings_is_kept,
        a_version_of_the_settings_is_written_once,
        the_history_of_the_settings_is_read_from_its_end;
    usage:
        totals_add_up_by_model_then_key,
        totals_count_from_since_on,
        totals_are_by_time_when_a_step_is_given,
        usage_is_of_the_level_that_it_was_then,
        what_the_guard_did_comes_back_newest_first,
        statuses_of_400_or_more_are_errors,
        a_request_counts_once_however_often_it_is_written,
        batches_that_overlap_may_be_written_at_the_same_time,
        a_dropped_batch_is_whole_or_nothing,
        a_large_batch_is_kept,
        absurd_counts_do_not_spoil_the_totals;
    shares:
        a_share_is_of_what_is_left,
        what_was_spent_counts_once_and_stays,
        a_share_runs_out_and_what_was_spent_does_not,
        what_is_spent_and_held_can_be_looked_at,
        a_turn_that_was_overtaken_changes_nothing,
        quotas_are_told_apart,
        gateways_that_ask_at_the_same_time_hold_no_more_than_the_limit;
    audit:
        entries_are_numbered_and_chained,
        entries_of_another_epoch_fail_and_use_no_number,
        no_entry_of_an_old_epoch_appears_after_a_new_one_was_made,
        entries_appended_at_the_same_time_make_one_chain,
        the_log_outlives_all_handles,
        a_page_begins_after_a_number_and_is_bounded,
        texts_in_the_log_are_as_they_were,
        a_dropped_append_is_whole_or_nothing_and_leaves_no_gap;
};

/// Several times what the slowest check takes on a slow machine; a store that hangs fails, and the suite ends.
const CHECK_LIMIT: Duration = Duration::from_secs(120);
