//! Stage 5, admit: whether the call is within what its key, and the levels that it is in, may use.
//!
//! What is needed is reserved here, before anything is sent, and settled when the call's account is closed: however the
//! call ends. A gateway admits from the shares that it holds; a call whose gateway holds too little waits until the store
//! has been asked, for a moment.

mod learned;
mod leasing;
mod ledger;
mod needs;
mod rates;
mod refused;
mod share;
#[cfg(test)]
mod tests;
mod usage;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(super) use self::rates::Rates;
use self::{
    learned::Learned,
    leasing::{keep_shares, obtain},
    ledger::{Ledger, Reserved},
    refused::refused,
};
use super::{identify::Caller, inspect::Inspected, refusal::Refusal};
use crate::{
    clock::Clock,
    cluster::{
        account::UsageRecord,
        tenancy::{PriceList, quota::Measure},
    },
    id::ModelName,
    store::Store,
};

/// What calls are admitted by.
#[derive(Debug)]
pub(super) struct Admission {
    ledger: Ledger,
    prices: watch::Receiver<Arc<PriceList>>,
    learned: Mutex<Learned>,
}

/// A call that was admitted. What it reserved is given back when this is dropped, but for what it was told to have used.
#[derive(Debug, Default)]
pub(super) struct Admitted {
    admission: Option<Arc<Admission>>,
    /// What is spent as soon as the call goes to an engine, whatever becomes of it.
    at_once: Vec<Reserved>,
    reserved: Vec<Reserved>,
    tokens: u64,
    cost: u64,
}

// === impl Admission ===

impl Admission {
    pub(super) fn new(clock: Arc<dyn Clock>, prices: watch::Receiver<Arc<PriceList>>) -> Self {
        Self {
            ledger: Ledger::new(clock),
            prices,
            learned: Mutex::default(),
        }
    }

    /// Keeps the shares that calls are admitted from, until `stop`.
    pub(super) async fn keep(&self, store: &dyn Store, stop: &CancellationToken) {
        keep_shares(&self.ledger, store, stop).await;
    }

    /// Admits a call of this model, and says what is left then.
    ///
    /// # Cancellation
    /// Dropping the future reserves nothing.
    pub(super) async fn admit(
        self: &Arc<Self>,
        caller: &Caller,
        model: &ModelName,
        asked: &Inspected,
    ) -> Result<(Admitted, Rates), (Refusal, Rates)> {
        let needs = match self.needs(caller, model, asked) {
            Ok(needs) => needs,
            Err(refusal) => return Err((refusal, Rates::default())),
        };
        if needs.is_empty() {
            return Ok((Admitted::default(), Rates::default()));
        }
        let lack = match obtain(&self.ledger, &needs).await {
            Ok(reserved) => {
                let admitted = self.admitted(reserved);
                return Ok((admitted, Rates::of(&self.ledger, &needs)));
            }
            Err(lack) => lack,
        };
        let rates = Rates::of(&self.ledger, &needs);
        Err((refused(&lack, &needs, self.ledger.now()), rates))
    }

    fn admitted(self: &Arc<Self>, reserved: Vec<Reserved>) -> Admitted {
        let (at_once, later): (Vec<_>, Vec<_>) = reserved
            .into_iter()
            .partition(|one| one.quota.measure == Measure::Requests);
        Admitted {
            admission: Some(Arc::clone(self)),
            at_once,
            reserved: later,
            ..Admitted::default()
        }
    }

    fn learned(&self) -> MutexGuard<'_, Learned> {
        // What is noted is whole before anything could panic.
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Admitted ===

impl Admitted {
    /// The call goes to an engine: it is spent itself. What never does gives that back too.
    pub(super) fn goes(&mut self) {
        if let Some(admission) = &self.admission {
            for one in self.at_once.drain(..) {
                admission.ledger.settle(&one, one.amount);
            }
        }
    }

    /// What the call has used.
    pub(super) fn used(&mut self, record: &UsageRecord) {
        let UsageRecord {
            model,
            prompt_tokens,
            completion_tokens,
            cost,
            ..
        } = record;
        self.tokens = prompt_tokens.0.saturating_add(completion_tokens.0);
        self.cost = u64::try_from(cost.0).unwrap_or(0);
        if let Some(admission) = &self.admission
            && completion_tokens.0 > 0
        {
            admission.learned().note(model, completion_tokens.0);
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let Some(admission) = &self.admission else {
            return;
        };
        for one in self.at_once.iter().chain(&self.reserved) {
            let spent = match one.quota.measure {
                Measure::Tokens => self.tokens,
                Measure::Cost => self.cost,
                Measure::Concurrent | Measure::Requests => 0,
            };
            admission.ledger.settle(one, spent);
        }
    }
}
