//! A circuit for each replica: one that fails call after call is left alone for a while, then tried with one call.
//!
//! Only what says that the replica is in trouble counts: it can't be connected to, it went away, it said nothing in
//! time, it answered 500 or more. What it refuses (4xx, 429) says nothing about it.

use std::time::Duration;

/// The circuit of one replica. Times are of one monotonic clock, whichever.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Circuit {
    /// Failures since the last success.
    failures: u32,
    /// Until when no call goes there.
    open_until: Option<Duration>,
    /// When the one call that is to find out was let through.
    trying_since: Option<Duration>,
}

/// Whether a replica may be given a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Standing {
    /// As any other.
    Closed,
    /// It failed, has rested, and may be tried with this one call.
    Probe,
    /// It failed, and is left alone for so long.
    Open(Duration),
}

// === impl Circuit ===

impl Circuit {
    /// Whether a call may go there.
    #[must_use]
    pub fn standing(&self, now: Duration) -> Standing {
        let Some(until) = self.open_until else {
            return Standing::Closed;
        };
        if now < until {
            return Standing::Open(until - now);
        }
        match self.trying_since {
            // Whoever tried has not come back, and may never: another one tries.
            Some(since) if now < since + PROBE => Standing::Open(since + PROBE - now),
            _ => Standing::Probe,
        }
    }

    /// A call goes there.
    pub fn begin(&mut self, now: Duration) {
        if self.standing(now) == Standing::Probe {
            self.trying_since = Some(now);
        }
    }

    /// A call was answered.
    pub fn succeed(&mut self) {
        *self = Self::default();
    }

    /// A call failed in a way that says the replica is in trouble.
    pub fn fail(&mut self, now: Duration) {
        self.failures = self.failures.saturating_add(1);
        self.trying_since = None;
        if self.failures >= FAILURES {
            let doublings = (self.failures - FAILURES).min(8);
            self.open_until = Some(now + (FIRST * 2_u32.pow(doublings)).min(LONGEST));
        }
    }

    /// Failures since the last success.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// Failures in a row that open a circuit.
pub const FAILURES: u32 = 3;

/// For how long it is open the first time; twice as long each time after.
pub const FIRST: Duration = Duration::from_secs(1);

/// It is open no longer than this.
pub const LONGEST: Duration = Duration::from_secs(30);

/// How long the one call that tries may take before another tries too.
const PROBE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn three_failures_in_a_row_open_it_and_one_call_tries_after_a_rest() {
        let mut circuit = Circuit::default();
        for _ in 1..FAILURES {
            circuit.fail(at(0));
            assert_eq!(circuit.standing(at(0)), Standing::Closed);
        }
        circuit.fail(at(0));
        assert_eq!(circuit.standing(at(400)), Standing::Open(at(600)));
        assert_eq!(circuit.standing(at(1_000)), Standing::Probe);
        circuit.begin(at(1_000));
        assert_eq!(circuit.standing(at(1_000)), Standing::Open(PROBE));
        circuit.succeed();
        assert_eq!(circuit, Circuit::default());
    }

    #[test]
    fn a_failed_try_opens_it_for_twice_as_long_up_to_a_limit() {
        let mut circuit = Circuit::default();
        let mut now = at(0);
        let mut rests = Vec::new();
        for _ in 0..12 {
            circuit.fail(now);
            if let Standing::Open(rest) = circuit.standing(now) {
                rests.push(rest.as_secs());
                now += rest;
                circuit.begin(now);
            }
        }
        assert_eq!(rests, [1, 2, 4, 8, 16, 30, 30, 30, 30, 30]);
    }

    #[test]
    fn a_success_between_failures_keeps_it_closed() {
        let mut circuit = Circuit::default();
        for _ in 0..10 {
            circuit.fail(at(0));
            circuit.fail(at(0));
            circuit.succeed();
        }
        assert_eq!(circuit.standing(at(0)), Standing::Closed);
    }

    #[test]
    fn a_try_that_never_comes_back_is_followed_by_another() {
        let mut circuit = Circuit::default();
        for _ in 0..FAILURES {
            circuit.fail(at(0));
        }
        circuit.begin(at(1_000));
        assert_eq!(circuit.standing(at(1_000) + PROBE), Standing::Probe);
    }
}
