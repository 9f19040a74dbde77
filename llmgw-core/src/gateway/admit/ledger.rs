//! What this gateway holds of all quotas, and what its calls have reserved of it.
//!
//! Every change is made under one lock that is never held across a wait. Who lacks something says so and waits for a
//! round: the task in [`leasing`](super::leasing) asks the store for all that is needed at once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{Notify, watch};

use super::share::Local;
use crate::{
    clock::{Clock, Timestamp},
    cluster::tenancy::quota::{Measure, Quota, Share, ShareAsk},
};

/// What this gateway holds.
#[derive(Debug)]
pub(super) struct Ledger {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Somebody lacks something.
    pub(super) lacking: Notify,
    /// The last round that is over.
    rounds: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    shares: HashMap<Quota, Local>,
    /// The last round that was begun.
    begun: u64,
    /// Whether the last round brought no answer.
    is_away: bool,
}

/// What a call needs of a quota.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Need {
    pub(super) quota: Quota,
    pub(super) limit: u64,
    /// What it should reserve.
    pub(super) amount: u64,
    /// What it must be able to reserve at least.
    pub(super) least: u64,
    pub(super) alone: Alone,
}

/// What may be used of a quota when the store is away, and nothing is held of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Alone {
    /// This gateway's part of the whole.
    Part,
    /// Nothing.
    Nothing,
    /// Whatever is needed.
    All,
}

/// What a call has reserved of a quota.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Reserved {
    pub(super) quota: Quota,
    pub(super) amount: u64,
}

/// Why a call can't reserve what it needs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Lack {
    /// Which of its needs is not met, by its place.
    pub(super) place: usize,
    /// Whether it is of no use to ask the store: it has said just now that there is no more.
    pub(super) is_known: bool,
    /// Whether the store stands behind that.
    pub(super) is_live: bool,
    /// What is left, as far as is known.
    pub(super) remaining: u64,
}

/// Calls that wait for a round; they wait no more when this is dropped.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    ledger: &'a Ledger,
    needs: &'a [Need],
    round: u64,
}

/// What a round asks for.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) number: u64,
    pub(super) asks: Vec<ShareAsk>,
    /// On the monotonic clock.
    begun_at: Duration,
}

// === impl Ledger ===

impl Ledger {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
            lacking: Notify::new(),
            rounds: watch::Sender::new(0),
        }
    }

    /// The wall clock, which windows go by.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Reserves all that is needed, or nothing. Calls and those at the same time are reserved as one; of what is counted in
    /// many, what there is.
    pub(super) fn reserve(&self, needs: &[Need]) -> Result<Vec<Reserved>, Lack> {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        let is_away = state.is_away;
        let mut amounts = Vec::with_capacity(needs.len());
        for (place, need) in needs.iter().enumerate() {
            let local = state.shares.entry(need.quota.clone()).or_default();
            local.limit = need.limit;
            let room = match need.alone {
                Alone::Part if is_away => local.room(now).max(local.room_alone()),
                Alone::All if is_away => u64::MAX,
                Alone::Part | Alone::Nothing | Alone::All => local.room(now),
            };
            if room < need.least {
                return Err(Lack {
                    place,
                    is_known: is_away || local.is_known_to_be_short(now),
                    is_live: local.is_live(now) && !is_away,
                    remaining: local.remaining(),
                });
            }
            amounts.push(need.amount.min(room));
        }
        let mut reserved = Vec::with_capacity(needs.len());
        let mut runs_low = false;
        for (need, amount) in needs.iter().zip(amounts) {
            if let Some(local) = state.shares.get_mut(&need.quota) {
                local.reserve(amount, now);
                runs_low |= local.runs_low(now);
            }
            let quota = need.quota.clone();
            reserved.push(Reserved { quota, amount });
        }
        drop(state);
        if runs_low {
            // Ahead of the next call, which then need not wait.
            self.lacking.notify_one();
        }
        Ok(reserved)
    }

    /// A call is over, or what it reserved is spent: so much of it.
    pub(super) fn settle(&self, reserved: &Reserved, spent: u64) {
        let now = self.clock.monotonic();
        if let Some(local) = self.lock().shares.get_mut(&reserved.quota) {
            local.settle(reserved.amount, spent, now);
        }
    }

    /// What is left of a quota, as far as is known.
    pub(super) fn remaining(&self, quota: &Quota, limit: u64) -> u64 {
        let state = self.lock();
        state.shares.get(quota).map_or(limit, Local::remaining)
    }

    /// Says what is needed, and waits for the round after that.
    pub(super) fn wait_for<'a>(&'a self, needs: &'a [Need]) -> Waiting<'a> {
        let mut state = self.lock();
        for need in needs {
            let local = state.shares.entry(need.quota.clone()).or_default();
            // `reserve` stops at the first need that is not met: of those after it, no limit may be known yet, and asked with
            // a limit of nothing, the store says that there is no more.
            local.limit = need.limit;
            local.waiting = local.waiting.saturating_add(need.amount);
        }
        let round = state.begun + 1;
        drop(state);
        self.lacking.notify_one();
        Waiting {
            ledger: self,
            needs,
            round,
        }
    }

    /// Begins a round; the last one gives back what is held.
    pub(super) fn begin(&self, is_last: bool) -> Round {
        let begun_at = self.clock.monotonic();
        let mut state = self.lock();
        state.begun += 1;
        let number = state.begun;
        let mut asks = Vec::new();
        for (quota, local) in &mut state.shares {
            if asks.len() >= MOST_ASKS {
                break;
            }
            if let Some((spent, wanted)) = local.ask(begun_at, is_last) {
                asks.push(ShareAsk {
                    quota: quota.clone(),
                    limit: local.limit,
                    spent,
                    wanted,
                });
            }
        }
        drop(state);
        Round {
            number,
            asks,
            begun_at,
        }
    }

    /// Ends a round, with the answers in the order of its asks, or with none.
    pub(super) fn end(&self, round: &Round, shares: Option<Vec<Share>>, ttl: Duration) {
        let (now, at) = (self.clock.monotonic(), self.clock.now());
        let until = round.begun_at.saturating_add(ttl);
        let mut state = self.lock();
        if !round.asks.is_empty() {
            state.is_away = shares.is_none();
        }
        let mut shares = shares.unwrap_or_default().into_iter();
        for ask in &round.asks {
            let Some(local) = state.shares.get_mut(&ask.quota) else {
                continue;
            };
            match shares.next() {
                Some(share) => local.answer(share, now, until),
                None => local.unanswered(),
            }
        }
        state
            .shares
            .retain(|quota, local| !(local.is_idle() && is_forgettable(quota, local, at)));
        drop(state);
        self.rounds.send_replace(round.number);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is whole before anything could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Waiting ===

impl Waiting<'_> {
    /// Waits until what was needed has been asked for.
    pub(super) async fn asked(&self) {
        let mut rounds = self.ledger.rounds.subscribe();
        // The ledger, and with it the sender, outlives this.
        rounds.wait_for(|round| *round >= self.round).await.ok();
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.ledger.lock();
        for need in self.needs {
            if let Some(local) = state.shares.get_mut(&need.quota) {
                local.waiting = local.waiting.saturating_sub(need.amount);
            }
        }
    }
}

/// What was spent in a window that is over is of no use any more; of a measure that is never spent, nothing is lost.
fn is_forgettable(quota: &Quota, local: &Local, now: Timestamp) -> bool {
    let is_over = quota.window.ends().is_some_and(|ends| ends < now);
    is_over || (quota.measure == Measure::Concurrent && local.holds_nothing())
}

/// More than a gateway serves parties at once; the rest is asked for in the next round.
const MOST_ASKS: usize = 2_000;
