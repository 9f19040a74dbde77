//! What time it is at the control plane.

use std::time::Duration;

use llmgw_core::{
    clock::{Clock, Timestamp},
    cluster::node::ClockOffset,
};

/// What the control plane's clock said, and when that was by ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ServerTime {
    /// What it said.
    pub theirs: Timestamp,
    /// By our monotonic clock: before it can have been said, for nothing had been asked.
    pub asked: Duration,
    /// By our monotonic clock: when it was heard.
    pub heard: Duration,
}

impl ServerTime {
    /// How far our clock is from the control plane's now, a clock of ours that was set in the meantime included.
    #[must_use]
    pub fn offset(self, clock: &dyn Clock) -> ClockOffset {
        let Self {
            theirs,
            asked,
            heard,
        } = self;
        let half = heard.saturating_sub(asked) / 2;
        let since = clock.monotonic().saturating_sub(heard);
        let there = theirs.plus(half + since);
        ClockOffset {
            ahead_ms: clock.now().0.saturating_sub(there.0),
            // Both sides cut their times to whole milliseconds.
            within_ms: u64::try_from(half.as_millis())
                .unwrap_or(u64::MAX)
                .saturating_add(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wall clock that is set while the monotonic one goes on.
    #[derive(Debug)]
    struct Two {
        wall: i64,
        monotonic: u64,
    }

    impl Clock for Two {
        fn now(&self) -> Timestamp {
            Timestamp(self.wall)
        }

        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.monotonic)
        }
    }

    #[test]
    fn an_offset_follows_a_clock_that_is_set() {
        // Asked at 100, heard at 140: it was said at 120, when it was 50,000 there.
        let time = ServerTime {
            theirs: Timestamp(50_000),
            asked: Duration::from_millis(100),
            heard: Duration::from_millis(140),
        };
        let right = Two {
            wall: 50_020,
            monotonic: 140,
        };
        assert_eq!(
            time.offset(&right),
            ClockOffset {
                ahead_ms: 0,
                within_ms: 21
            }
        );
        // A minute later someone sets it two seconds back.
        let set = Two {
            wall: 50_020 + 60_000 - 2_000,
            monotonic: 60_140,
        };
        assert_eq!(time.offset(&set).ahead_ms, -2_000);
    }
}
