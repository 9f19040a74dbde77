//! Who leads: the elector, without I/O.
//!
//! [`Elector::next`] says what to do now, [`Elector::on`] takes in what came of it. The caller owns the store and
//! the timer. Time is monotonic and the caller's own: a lease is counted from *before* the call that took or kept
//! it, so that this process stops leading before the store lets another lead.

use std::time::Duration;

/// Takes and keeps the lease.
#[derive(Clone, Debug)]
pub struct Elector {
    ttl: Duration,
    state: State,
}

/// What to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// Try to take the lease.
    Acquire,
    /// Keep the lease of this epoch.
    Renew(u64),
    /// Nothing before this time.
    Wait(Duration),
}

/// What came of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// The lease was taken.
    Acquired {
        /// Its epoch.
        epoch: u64,
        /// When the call began.
        called_at: Duration,
    },
    /// The lease was kept.
    Renewed {
        /// When the call began.
        called_at: Duration,
    },
    /// Another has it.
    Held,
    /// It is no longer ours.
    Fenced,
    /// The store did not answer.
    Failed,
    /// Our epoch is too low to be followed; the store has raised it.
    Outranked,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Standing {
        try_at: Duration,
    },
    Leading {
        epoch: u64,
        renew_at: Duration,
        until: Duration,
    },
}

impl Elector {
    /// An elector that tries at once. `ttl` is how long a lease lasts; it is renewed after a third of that.
    #[must_use]
    pub fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            state: State::Standing {
                try_at: Duration::ZERO,
            },
        }
    }

    /// What to do at `now`.
    #[must_use]
    pub fn next(&self, now: Duration) -> Next {
        match self.state {
            State::Standing { try_at } if now >= try_at => Next::Acquire,
            State::Standing { try_at } => Next::Wait(try_at),
            State::Leading { until, .. } if now >= until => Next::Acquire,
            State::Leading {
                epoch, renew_at, ..
            } if now >= renew_at => Next::Renew(epoch),
            State::Leading { renew_at, .. } => Next::Wait(renew_at),
        }
    }

    /// The epoch that this process leads with at `now`; `None` when it does not lead.
    #[must_use]
    pub fn leading(&self, now: Duration) -> Option<u64> {
        match self.state {
            State::Leading { epoch, until, .. } if now < until => Some(epoch),
            State::Leading { .. } | State::Standing { .. } => None,
        }
    }

    /// Takes in what came of the last [`Next`].
    pub fn on(&mut self, event: Event, now: Duration) {
        self.state = match (event, self.state) {
            (Event::Acquired { epoch, called_at }, _) => self.led(epoch, called_at),
            (Event::Renewed { called_at }, State::Leading { epoch, .. }) => {
                self.led(epoch, called_at)
            }
            (Event::Failed, State::Leading { epoch, until, .. }) if now < until => {
                // Still ours until it runs out: losing sight of the store is no reason to stop.
                State::Leading {
                    epoch,
                    renew_at: now + self.ttl / RETRIES,
                    until,
                }
            }
            (Event::Outranked, _) => State::Standing { try_at: now },
            (Event::Held | Event::Fenced | Event::Failed | Event::Renewed { .. }, _) => {
                State::Standing {
                    try_at: now + self.ttl / RETRIES,
                }
            }
        };
    }

    fn led(&self, epoch: u64, called_at: Duration) -> State {
        State::Leading {
            epoch,
            renew_at: called_at + self.ttl / RENEWALS,
            until: called_at + self.ttl,
        }
    }
}

/// Renewals within the life of a lease: two may fail before it runs out.
const RENEWALS: u32 = 3;
/// Attempts within the life of a lease while another has it or the store is away.
const RETRIES: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(9);

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn a_lease_is_taken_at_once_and_kept_before_it_runs_out() {
        let mut elector = Elector::new(TTL);
        assert_eq!(elector.next(seconds(0)), Next::Acquire);
        elector.on(
            Event::Acquired {
                epoch: 7,
                called_at: seconds(0),
            },
            seconds(1),
        );
        assert_eq!(elector.leading(seconds(8)), Some(7));
        assert_eq!(elector.next(seconds(1)), Next::Wait(seconds(3)));
        assert_eq!(elector.next(seconds(3)), Next::Renew(7));
        elector.on(
            Event::Renewed {
                called_at: seconds(3),
            },
            seconds(4),
        );
        assert_eq!(elector.leading(seconds(11)), Some(7));
    }

    #[test]
    fn a_slow_call_counts_from_before_it_began() {
        let mut elector = Elector::new(TTL);
        elector.on(
            Event::Acquired {
                epoch: 1,
                called_at: seconds(0),
            },
            seconds(10),
        );
        assert_eq!(elector.leading(seconds(10)), None);
        assert_eq!(elector.next(seconds(10)), Next::Acquire);
    }

    #[test]
    fn a_store_that_is_away_ends_leading_only_when_the_lease_runs_out() {
        let mut elector = Elector::new(TTL);
        elector.on(
            Event::Acquired {
                epoch: 1,
                called_at: seconds(0),
            },
            seconds(0),
        );
        elector.on(Event::Failed, seconds(3));
        assert_eq!(elector.leading(seconds(8)), Some(1));
        assert_eq!(elector.leading(seconds(9)), None);
    }

    #[test]
    fn a_store_that_stays_away_is_not_asked_without_a_pause() {
        let mut elector = Elector::new(TTL);
        let called_at = seconds(0);
        elector.on(
            Event::Acquired {
                epoch: 1,
                called_at,
            },
            seconds(0),
        );
        for now in [3, 9, 10] {
            elector.on(Event::Failed, seconds(now));
            assert!(matches!(elector.next(seconds(now)), Next::Wait(_)), "{now}");
        }
    }

    #[test]
    fn an_outranked_leader_takes_the_lease_again_at_once() {
        let mut elector = Elector::new(TTL);
        let called_at = seconds(0);
        elector.on(
            Event::Acquired {
                epoch: 1,
                called_at,
            },
            seconds(0),
        );
        elector.on(Event::Outranked, seconds(1));
        assert_eq!(elector.leading(seconds(1)), None);
        assert_eq!(elector.next(seconds(1)), Next::Acquire);
    }

    #[test]
    fn a_fenced_leader_stands_down_at_once() {
        let mut elector = Elector::new(TTL);
        elector.on(
            Event::Acquired {
                epoch: 1,
                called_at: seconds(0),
            },
            seconds(0),
        );
        elector.on(Event::Fenced, seconds(3));
        assert_eq!(elector.leading(seconds(3)), None);
        assert!(matches!(elector.next(seconds(3)), Next::Wait(_)));
    }
}
