//! The last decisions with their reasons, so that each can be explained later.
//!
//! Bounded twice, by number and by the length of the JSON form; the oldest are dropped. Kept in memory only: a restart
//! begins anew, and who ordered what is in the audit log. Pure: the caller says when, and from what.
//!
//! # To make a decision again
//! Every decision has the [fingerprint](crate::reconcile::Inputs::fingerprint) of its inputs: the fleet and the models as
//! the planner saw them. Whoever has kept those, such as from [`reconcile::step`](crate::reconcile::step) in a process of
//! their own, gets the same placements and reports from [`plan_with`](crate::planner::plan_with), with the policy that
//! the decision names and the other options at their defaults:
//!
//! ```
//! use llmgw_sched::{fleet::Fleet, planner::{Options, Wanted, plan_with}, reconcile::Inputs};
//!
//! let fleet: Fleet = serde_json::from_str(r#"{"nodes": [{
//!     "id": "node-0197c2a4f0e17b6c9a3d5e8f10213243", "hostname": "box", "memory_allocatable": "16GiB"
//! }]}"#)?;
//! let wanted: Wanted = serde_json::from_str(r#"{"models": [{
//!     "name": "big", "source": "file:/models/big.gguf", "profiles": [{"memory": "400GB"}]
//! }]}"#)?;
//! let inputs = Inputs { fleet, wanted };
//! // The decision's `inputs`: these are the ones that it was made from.
//! assert_eq!(inputs.fingerprint().to_string(), "cef5b7775322ad18");
//! let (plan, reports) = plan_with(&inputs.fleet, &inputs.wanted, &Options::default());
//! assert!(plan.placements.is_empty());
//! assert_eq!(reports[0].summary[0].nodes, 1);
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::{collections::VecDeque, sync::Arc};

use llmgw_core::{
    api::decision::{Decision, Outcome, RollEnd},
    clock::Timestamp,
    fingerprint::Fingerprint,
    id::ModelName,
    reason::Report,
    units::Bytes,
};

/// The last decisions. Cheap to clone: clones share what is kept.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    bounds: Bounds,
    /// By number, the oldest first.
    kept: VecDeque<Kept>,
    /// The length of all that is kept, as JSON.
    bytes: usize,
    last: u64,
}

/// How much a [`Journal`] keeps.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bounds {
    /// Decisions at most.
    pub decisions: usize,
    /// The length of all of them together, as JSON, at most.
    pub bytes: Bytes,
}

/// When and from what decisions were made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Made {
    /// When.
    pub at: Timestamp,
    /// The epoch of the lease.
    pub epoch: u64,
    /// The fingerprint of the inputs.
    pub inputs: Fingerprint,
    /// The policy that scored nodes.
    pub policy: String,
}

#[derive(Clone, Debug)]
struct Kept {
    decision: Arc<Decision>,
    /// What is counted apart, so that counting copies no report.
    again: u64,
    last_at: Timestamp,
    bytes: usize,
}

// === impl Journal ===

impl Journal {
    /// An empty journal.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            ..Self::default()
        }
    }

    /// Writes a decision down and drops the oldest, as far as there is no room for it.
    ///
    /// Of a report that would not fit at all only the counts are kept; what then does not fit is not kept.
    pub fn note(&mut self, made: &Made, model: ModelName, what: Outcome) {
        self.last += 1;
        let Made {
            at,
            epoch,
            inputs,
            policy,
        } = made;
        // As long as it can get by being counted.
        let mut decision = Decision {
            number: self.last,
            at: *at,
            epoch: *epoch,
            inputs: *inputs,
            policy: policy.clone(),
            model,
            what: bounded(what),
            again: u64::MAX,
            last_at: Timestamp(i64::MIN),
        };
        let room = usize::try_from(self.bounds.bytes.0).unwrap_or(usize::MAX);
        let mut bytes = decision.json_len();
        if bytes > room
            && let Outcome::NotPlaced { report } = &mut decision.what
        {
            report.rejections.clear();
            report.remedies.clear();
            report.nearest = None;
            bytes = decision.json_len();
        }
        if bytes > room || self.bounds.decisions == 0 {
            return;
        }
        while self.kept.len() >= self.bounds.decisions || self.bytes.saturating_add(bytes) > room {
            let Some(oldest) = self.kept.pop_front() else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(oldest.bytes);
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.kept.push_back(Kept {
            decision: Arc::new(decision),
            again: 0,
            last_at: *at,
            bytes,
        });
    }

    /// Counts a failed trial, when the last decision on the model was one of the same epoch with the same summary, and
    /// with something that it waits for or not as well. False: it is news, to be [noted](Self::note).
    pub fn repeat(&mut self, report: &Report, epoch: u64, at: Timestamp) -> bool {
        let mut latest_first = self.kept.iter_mut().rev();
        let last = latest_first.find(|kept| kept.decision.model == report.model);
        let Some(last) = last else { return false };
        let Outcome::NotPlaced { report: known } = &last.decision.what else {
            return false;
        };
        let same = last.decision.epoch == epoch
            && known.nodes == report.nodes
            && known.summary == report.summary
            && known.pending.is_some() == report.pending.is_some();
        if same {
            last.again = last.again.saturating_add(1);
            last.last_at = at;
        }
        same
    }

    /// The decisions after number `after`, on this model or on all, in order, at most `limit`.
    #[must_use]
    pub fn decisions(&self, model: Option<&ModelName>, after: u64, limit: usize) -> Vec<Decision> {
        let asked = |kept: &&Kept| {
            kept.decision.number > after && model.is_none_or(|model| kept.decision.model == *model)
        };
        let found = self.kept.iter().filter(asked).take(limit);
        let whole = |kept: &Kept| Decision {
            again: kept.again,
            last_at: kept.last_at,
            ..(*kept.decision).clone()
        };
        found.map(whole).collect()
    }

    /// The number of the last decision; 0 when there was none.
    #[must_use]
    pub fn last_number(&self) -> u64 {
        self.last
    }

    /// What `found` makes of the last decision that it makes something of.
    pub fn latest<T>(&self, found: impl Fn(&Outcome) -> Option<T>) -> Option<T> {
        let latest_first = self.kept.iter().rev();
        latest_first
            .filter_map(|kept| found(&kept.decision.what))
            .next()
    }

    /// Whether a decision on this model is kept.
    #[must_use]
    pub fn mentions(&self, model: &ModelName) -> bool {
        self.kept.iter().any(|kept| kept.decision.model == *model)
    }
}

// === impl Bounds ===

impl Default for Bounds {
    /// 1,000 decisions, and 4 MiB: a quarter of what the admin API's own client reads of one answer.
    fn default() -> Self {
        Self {
            decisions: 1_000,
            bytes: Bytes::mib(4),
        }
    }
}

/// The same without what grows with the fleet or comes from outside without a bound.
fn bounded(mut what: Outcome) -> Outcome {
    match &mut what {
        Outcome::NotPlaced { report } => report.rejections.truncate(MAX_REJECTIONS),
        Outcome::Failed { error, .. }
        | Outcome::Parked { error, .. }
        | Outcome::RollEnded {
            ended: RollEnd::BackedOut { why: error },
            ..
        } => {
            if let Some((end, _)) = error.char_indices().nth(MAX_ERROR) {
                error.truncate(end);
            }
        }
        _ => {}
    }
    what
}

const MAX_REJECTIONS: usize = 64;
/// Characters of an error.
const MAX_ERROR: usize = 1_000;

#[cfg(test)]
mod tests;
