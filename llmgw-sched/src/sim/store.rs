//! What outlives control planes: models, orders, and the lease that says whose writes count.

use std::{collections::BTreeMap, time::Duration};

use llmgw_core::{
    cluster::order::{StoredOrder, Subject},
    id::ModelName,
};

use crate::conductor::snapshot::Entry;

/// A store with a clock of its own. While it is away, nothing is read or written.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    pub(super) models: BTreeMap<ModelName, Entry>,
    pub(super) orders: BTreeMap<Subject, StoredOrder>,
    pub(super) away: bool,
    epoch: u64,
    lease: Option<Lease>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    holder: usize,
    until: Duration,
}

/// What came of a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Answer {
    Acquired(u64),
    Renewed,
    Held,
    Fenced,
    Failed,
}

impl Store {
    pub(super) fn acquire(&mut self, holder: usize, ttl: Duration, now: Duration) -> Answer {
        if self.away {
            return Answer::Failed;
        }
        if self
            .lease
            .is_some_and(|lease| lease.holder != holder && lease.until > now)
        {
            return Answer::Held;
        }
        self.epoch += 1;
        self.lease = Some(Lease {
            holder,
            until: now + ttl,
        });
        Answer::Acquired(self.epoch)
    }

    pub(super) fn renew(&mut self, epoch: u64, ttl: Duration, now: Duration) -> Answer {
        if self.away {
            return Answer::Failed;
        }
        match &mut self.lease {
            Some(lease) if self.epoch == epoch => {
                lease.until = now + ttl;
                Answer::Renewed
            }
            _ => Answer::Fenced,
        }
    }

    /// Whether a write of this epoch counts now.
    pub(super) fn takes(&self, epoch: u64) -> bool {
        !self.away && self.epoch == epoch
    }
}
