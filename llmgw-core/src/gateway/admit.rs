//! Stage 5, admit: whether the call is within what its key, and the levels that it is in, may use.
//!
//! What is needed is reserved here, before anything is sent, and settled when the call's account is closed: however the
//! call ends. A gateway admits from the shares that it holds; a call whose gateway holds too little waits until the store
//! has been asked, for a moment.

mod learned;
mod leasing;
mod ledger;
mod rates;
mod refused;
mod share;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

pub(super) use self::rates::Rates;
use self::{
    learned::Learned,
    leasing::keep_shares,
    ledger::{Ledger, Need, Reserved},
    refused::refused,
};
use super::{identify::Caller, inspect::Inspected, refusal::Refusal};
use crate::{
    clock::Clock,
    cluster::tenancy::{
        Period, Window,
        quota::{Measure, Quota},
    },
    id::ModelName,
    store::Store,
    units::Tokens,
};

/// What calls are admitted by.
#[derive(Debug)]
pub(super) struct Admission {
    ledger: Ledger,
    learned: Mutex<Learned>,
}

/// A call that was admitted. What it reserved is given back when this is dropped, but for what it was told to have used.
#[derive(Debug, Default)]
pub(super) struct Admitted {
    admission: Option<Arc<Admission>>,
    reserved: Vec<Reserved>,
    used: u64,
}

// === impl Admission ===

impl Admission {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            ledger: Ledger::new(clock),
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
        let needs = self.needs(caller, model, asked);
        if needs.is_empty() {
            return Ok((Admitted::default(), Rates::default()));
        }
        let deadline = Instant::now() + PATIENCE;
        let mut rounds = 0;
        let lack = loop {
            match self.ledger.reserve(&needs) {
                Ok(reserved) => {
                    let admitted = self.admitted(reserved);
                    return Ok((admitted, Rates::of(&self.ledger, &needs)));
                }
                Err(lack) if lack.is_known || rounds == ROUNDS => break lack,
                Err(lack) => {
                    let waiting = self.ledger.wait_for(&needs);
                    rounds += 1;
                    if timeout_at(deadline, waiting.asked()).await.is_err() {
                        break lack;
                    }
                }
            }
        };
        let rates = Rates::of(&self.ledger, &needs);
        Err((refused(&lack, &needs, self.ledger.now()), rates))
    }

    /// A call spends itself at once, whatever becomes of it; the rest is spent when it is over.
    fn admitted(self: &Arc<Self>, reserved: Vec<Reserved>) -> Admitted {
        let (at_once, later): (Vec<_>, Vec<_>) = reserved
            .into_iter()
            .partition(|one| one.quota.measure == Measure::Requests);
        for one in &at_once {
            self.ledger.settle(one, one.amount);
        }
        Admitted {
            admission: Some(Arc::clone(self)),
            reserved: later,
            used: 0,
        }
    }

    /// What a call needs of all that is limited for its caller.
    fn needs(&self, caller: &Caller, model: &ModelName, asked: &Inspected) -> Vec<Need> {
        let held = caller.pass.held();
        if held.iter().all(|one| one.limits.counted().next().is_none()) {
            return Vec::new();
        }
        let now = self.ledger.now();
        let (amount, least) = self.tokens(model, asked);
        let mut needs = Vec::new();
        for holding in held {
            for (measure, limit) in holding.limits.counted() {
                let period = match measure {
                    Measure::Concurrent => Period::Total,
                    Measure::Requests | Measure::Tokens => Period::Minute,
                };
                let (amount, least) = match measure {
                    Measure::Concurrent | Measure::Requests => (1, 1),
                    Measure::Tokens => (amount, least),
                };
                needs.push(Need {
                    quota: Quota {
                        party: holding.party.clone(),
                        measure,
                        window: Window::of(period, now),
                    },
                    limit,
                    amount: amount.min(limit),
                    // What needs more than there ever is goes when all of it is there.
                    least: least.min(limit),
                });
            }
        }
        needs
    }

    /// How many tokens a call should reserve, and how many there must be at least.
    ///
    /// It reserves what it can use at most, or what nearly all calls of that model have used; and where that is not to be
    /// had, what is there, if it is as much as such calls use mostly. Else a few calls that could be long, and never are,
    /// would keep all others out.
    fn tokens(&self, model: &ModelName, asked: &Inspected) -> (u64, u64) {
        let learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        let expected = learned.expected(model);
        drop(learned);
        let worst = asked.max_tokens.unwrap_or(LONG);
        let most = expected.map_or(worst, |expected| worst.min(expected.most));
        let mostly = expected.map_or(SHORT, |expected| expected.median).min(most);
        let prompt = asked.prompt_tokens();
        let choices = asked.n.clamp(1, MOST_CHOICES);
        let whole = |answer: u64| prompt.saturating_add(answer.saturating_mul(choices)).max(1);
        (whole(most), whole(mostly))
    }
}

// === impl Admitted ===

impl Admitted {
    /// The call has used so many tokens of prompt and answers.
    pub(super) fn used(&mut self, model: &ModelName, prompt: Tokens, completion: Tokens) {
        self.used = prompt.0.saturating_add(completion.0);
        if let Some(admission) = &self.admission
            && completion.0 > 0
        {
            let learned = admission.learned.lock();
            let mut learned = learned.unwrap_or_else(PoisonError::into_inner);
            learned.note(model, completion.0);
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let Some(admission) = &self.admission else {
            return;
        };
        for one in &self.reserved {
            let spent = match one.quota.measure {
                Measure::Tokens => self.used,
                Measure::Concurrent | Measure::Requests => 0,
            };
            admission.ledger.settle(one, spent);
        }
    }
}

/// How long a call waits until its gateway holds enough: a store answers within a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the store is asked for one call: another call may take what came with the first answer.
const ROUNDS: u32 = 3;
/// Tokens of an answer of which nobody has said how long it may be, when nothing is known of such.
const LONG: u64 = 4_096;
/// Tokens of most answers, when nothing is known of them.
const SHORT: u64 = 256;
const MOST_CHOICES: u64 = 128;
