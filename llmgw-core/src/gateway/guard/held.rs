//! The events of a watched answer, held until they may pass.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;

use super::{Watch, refusal};
use crate::{
    cluster::guard::{Decision, Stage},
    gateway::{
        account::Account,
        refusal::Refusal,
        sse::{Payload, payload},
    },
    guard::{StreamCheck, Verdict},
};

/// Events that are being checked.
pub(in crate::gateway) struct HeldEvents {
    watch: Arc<Watch>,
    check: StreamCheck,
    /// Models that are being asked.
    judging: Option<Pin<Box<dyn Future<Output = Verdict> + Send>>>,
    /// What models have said.
    judged: Vec<Decision>,
    /// How much was found when it was written down last.
    noted: usize,
}

// === impl HeldEvents ===

impl HeldEvents {
    /// For an answer that this watch looks at.
    pub(in crate::gateway) fn new(watch: Arc<Watch>) -> Option<Box<Self>> {
        let check = StreamCheck::new(Arc::clone(&watch.rules))?;
        Some(Box::new(Self {
            watch,
            check,
            judging: None,
            judged: Vec::new(),
            noted: 0,
        }))
    }

    /// Takes an event.
    ///
    /// # Errors
    /// When a rule blocks what it says: nothing of what is held may pass then.
    pub(in crate::gateway) fn push(
        &mut self,
        event: Bytes,
        account: &mut Account,
    ) -> Result<(), Refusal> {
        let data = match payload(&event) {
            Payload::Data(range) | Payload::Error(range) => range,
            Payload::Nothing | Payload::Lines => 0..0,
        };
        self.check.push(event, data);
        self.look(account)
    }

    /// No more events will come.
    ///
    /// # Errors
    /// When a rule blocks what was said.
    pub(in crate::gateway) fn finish(&mut self, account: &mut Account) -> Result<(), Refusal> {
        self.check.finish();
        self.look(account)
    }

    /// The next event that may pass.
    pub(in crate::gateway) fn next_event(&mut self) -> Option<Bytes> {
        self.check.next_event()
    }

    /// Whether models are being asked.
    pub(in crate::gateway) fn is_judged(&self) -> bool {
        self.judging.is_some()
    }

    /// Waits until no model is being asked.
    ///
    /// # Errors
    /// When one says that what was said is to be blocked.
    pub(in crate::gateway) fn poll_judged(
        &mut self,
        cx: &mut Context<'_>,
        account: &mut Account,
    ) -> Poll<Result<(), Refusal>> {
        let Some(judging) = &mut self.judging else {
            return Poll::Ready(Ok(()));
        };
        let verdict = ready!(judging.as_mut().poll(cx));
        self.judging = None;
        for decision in verdict.decisions {
            let same = |known: &&mut Decision| {
                known.rule == decision.rule && known.failed == decision.failed
            };
            match self.judged.iter_mut().find(same) {
                Some(known) => known.count = known.count.saturating_add(decision.count),
                None => self.judged.push(decision),
            }
        }
        self.note(account);
        if let Some(blocked) = verdict.blocked {
            return Poll::Ready(Err(refusal(&blocked, Stage::Output)));
        }
        self.check.judged();
        Poll::Ready(self.look(account))
    }

    /// Writes down what was found, and asks models when it is time.
    fn look(&mut self, account: &mut Account) -> Result<(), Refusal> {
        if self.check.found() != self.noted {
            self.note(account);
            if let Some(blocked) = self.check.verdict().blocked {
                return Err(refusal(&blocked, Stage::Output));
            }
        }
        if let Some(words) = self.check.to_judge(JUDGED) {
            let watch = Arc::clone(&self.watch);
            self.judging = Some(Box::pin(
                async move { watch.ask(Stage::Output, words).await },
            ));
        }
        Ok(())
    }

    fn note(&mut self, account: &mut Account) {
        self.noted = self.check.found();
        let mut decisions = self.check.verdict().decisions;
        decisions.extend(self.judged.iter().cloned());
        account.guarded(Stage::Output, decisions);
    }
}

impl fmt::Debug for HeldEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldEvents")
            .field("check", &self.check)
            .finish_non_exhaustive()
    }
}

/// Of what was said before, so many bytes are judged along with what is new.
const JUDGED: usize = 32 << 10;
