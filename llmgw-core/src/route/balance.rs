//! Which of several replicas a request goes to.
//!
//! A replica costs a request the work that is before it there, and the work that the request itself makes there: the
//! tokens of its prompt that the replica has not seen. The least cost wins. The second part counts
//! [`AFFINITY`] times, because a prompt that is computed on a second replica takes room in a second cache, and what
//! it drives out is computed again as well. So a conversation stays where it was until that replica has several
//! times its prompt more to do than another one.
//!
//! Replicas that have a free slot come before those that have none: behind a full one a request would wait.

use std::time::Duration;

use super::circuit::Standing;
use crate::id::ReplicaId;

/// A replica as a request sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Candidate {
    /// The replica.
    pub replica: ReplicaId,
    /// Tokens of the requests that it was given and has not finished.
    pub outstanding: u64,
    /// Requests that it was given and has not finished.
    pub calls: u64,
    /// Requests that it answers at the same time; absent when nobody has said.
    pub slots: Option<u64>,
    /// Tokens of this request's prompt, from its beginning, that it has likely seen.
    pub cached: u64,
    /// Its part of the load beside others', 100 being a whole one. 0 is given nothing while others are there.
    pub weight: u32,
    /// For how long it has served; absent when that is long enough not to matter.
    pub serving: Option<Duration>,
    /// Whether it has failed lately.
    pub standing: Standing,
}

/// How a replica is chosen.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Balance {
    /// By its work and by what of the prompt it has seen.
    #[default]
    PrefixAffinity,
    /// By its work alone.
    LeastOutstanding,
}

// === impl Balance ===

impl Balance {
    /// The candidate that a request with a prompt of so many tokens goes to; `None` when there is none.
    ///
    /// Ties go to the one that was asked for less, then to the lower id. A replica whose circuit is open is left out,
    /// unless all are: then it is as if none were, since refusing would help nobody.
    #[must_use]
    pub fn choose(self, prompt: u64, candidates: &[Candidate]) -> Option<&Candidate> {
        candidates.iter().min_by_key(|candidate| {
            (
                matches!(candidate.standing, Standing::Open(_)),
                candidate.weight == 0,
                candidate.is_full(),
                self.cost(prompt, candidate),
                candidate.calls,
                candidate.replica,
            )
        })
    }

    /// What this candidate costs, in tokens of work by a whole and warm replica.
    #[must_use]
    pub fn cost(self, prompt: u64, candidate: &Candidate) -> u64 {
        let affinity = match self {
            Self::PrefixAffinity => AFFINITY,
            Self::LeastOutstanding => 0,
        };
        let unseen = prompt.saturating_sub(candidate.cached);
        let work = candidate
            .outstanding
            .saturating_add(unseen.saturating_mul(affinity));
        let share = u128::from(candidate.weight.max(1)) * u128::from(candidate.warmth());
        let cost = u128::from(work) * 100 * u128::from(WARM) / share;
        u64::try_from(cost).unwrap_or(u64::MAX)
    }
}

// === impl Candidate ===

impl Candidate {
    fn is_full(&self) -> bool {
        self.slots.is_some_and(|slots| self.calls >= slots)
    }

    /// How much of its share it takes already, of [`WARM`]: a new replica has cold caches and kernels, and is not
    /// buried under all that is new.
    fn warmth(&self) -> u64 {
        let Some(serving) = self.serving else {
            return WARM;
        };
        let part = serving.as_millis() * u128::from(WARM) / WARM_UP.as_millis();
        u64::try_from(part).unwrap_or(WARM).clamp(COLD, WARM)
    }
}

/// How often the unseen tokens of a prompt count beside the work that waits. Between 2 and 8 it makes little
/// difference on the trace of `cargo xtask bench routing`.
pub const AFFINITY: u64 = 4;

/// A replica has its whole share after this long.
pub const WARM_UP: Duration = Duration::from_secs(20);

const WARM: u64 = 100;
const COLD: u64 = 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidate(number: u64) -> Candidate {
        Candidate {
            replica: ReplicaId::imagined(number),
            outstanding: 0,
            calls: 0,
            slots: None,
            cached: 0,
            weight: 100,
            serving: None,
            standing: Standing::Closed,
        }
    }

    fn chosen(prompt: u64, candidates: &[Candidate]) -> ReplicaId {
        let chosen = Balance::default().choose(prompt, candidates);
        chosen.unwrap().replica
    }

    #[test]
    fn a_conversation_stays_until_its_replica_has_much_more_to_do() {
        let other = candidate(1);
        let mut home = candidate(2);
        home.cached = 900;
        home.outstanding = AFFINITY * 900 - 1;
        assert_eq!(chosen(1_000, &[other, home]), home.replica);
        home.outstanding += 2;
        assert_eq!(chosen(1_000, &[other, home]), other.replica);
    }

    #[test]
    fn a_full_replica_an_open_circuit_and_no_weight_come_after_the_others() {
        let plain = candidate(9);
        let worse: [fn(&mut Candidate); 3] = [
            |candidate| (candidate.calls, candidate.slots) = (4, Some(4)),
            |candidate| candidate.standing = Standing::Open(Duration::from_secs(1)),
            |candidate| candidate.weight = 0,
        ];
        for make in worse {
            let mut other = candidate(1);
            other.cached = 1_000;
            assert_eq!(chosen(1_000, &[plain, other]), other.replica);
            make(&mut other);
            assert_eq!(chosen(1_000, &[plain, other]), plain.replica);
            assert_eq!(chosen(1_000, &[other]), other.replica);
        }
    }

    #[test]
    fn weight_and_warmth_share_the_load_out() {
        let mut half = candidate(1);
        half.weight = 50;
        let mut cold = candidate(2);
        cold.serving = Some(Duration::from_secs(4));
        let mut candidates = [half, cold, candidate(3)];
        let mut given = [0_u64; 3];
        for _ in 0..1_700 {
            let replica = chosen(0, &candidates);
            let at = candidates
                .iter()
                .position(|one| one.replica == replica)
                .unwrap();
            candidates[at].outstanding += 10;
            candidates[at].calls += 1;
            given[at] += 1;
        }
        assert_eq!(given, [500, 200, 1_000]);
    }

    proptest! {
        #[test]
        fn the_chosen_one_costs_least_among_those_that_may_be_given_it(
            loads in prop::collection::vec((0_u64..10_000, 0_u64..6, 0_u64..3_000, any::<bool>()), 1..12),
            prompt in 0_u64..3_000,
        ) {
            let candidates: Vec<Candidate> = (1..).zip(&loads).map(|(number, (outstanding, calls, cached, open))| {
                let standing = if *open { Standing::Open(Duration::from_secs(1)) } else { Standing::Closed };
                Candidate {
                    outstanding: *outstanding,
                    calls: *calls,
                    slots: Some(4),
                    cached: (*cached).min(prompt),
                    standing,
                    ..candidate(number)
                }
            }).collect();
            let balance = Balance::default();
            let chosen = balance.choose(prompt, &candidates).unwrap();
            let is_open = |candidate: &Candidate| candidate.standing != Standing::Closed;
            for other in &candidates {
                if is_open(other) == is_open(chosen) && other.is_full() == chosen.is_full() {
                    prop_assert!(balance.cost(prompt, chosen) <= balance.cost(prompt, other));
                }
                prop_assert!(!is_open(chosen) || is_open(other));
            }
        }
    }
}
