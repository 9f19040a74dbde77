//! How much of a quota is used within a second: what the size of the next share goes by.

use std::time::Duration;

/// What was used in this second, and in the one before.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Usage {
    /// When this second began.
    since: Duration,
    this: Second,
    before: Second,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Second {
    /// What was spent within it.
    spent: u64,
    /// The most that was reserved at the same time.
    reserved: u64,
}

// === impl Usage ===

impl Usage {
    /// So much was spent, and so much is reserved now.
    pub(super) fn note(&mut self, spent: u64, reserved: u64, now: Duration) {
        *self = self.at(now);
        self.this.spent = self.this.spent.saturating_add(spent);
        self.this.reserved = self.this.reserved.max(reserved);
    }

    /// What is spent within a second, as it goes now. Of a second that has just begun, what was spent is taken to go on: a
    /// load that begins is not known by anything else.
    pub(super) fn in_a_second(&self, now: Duration) -> u64 {
        let Self {
            since,
            this,
            before,
        } = self.at(now);
        let millis = now.saturating_sub(since).max(SHORTEST).as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        let goes_on = this.spent.saturating_mul(1_000) / millis;
        goes_on.max(before.spent)
    }

    /// The most that was reserved at the same time lately.
    pub(super) fn most_reserved(&self, now: Duration) -> u64 {
        let Self { this, before, .. } = self.at(now);
        this.reserved.max(before.reserved)
    }

    /// The same, with the seconds as they are now.
    fn at(self, now: Duration) -> Self {
        let passed = now.saturating_sub(self.since);
        if passed < SECOND {
            return self;
        }
        if passed < SECOND * 2 {
            return Self {
                since: self.since.saturating_add(SECOND),
                this: Second::default(),
                before: self.this,
            };
        }
        Self {
            since: now,
            ..Self::default()
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);
/// What is used within less says little of what is used within a second.
const SHORTEST: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(100_000 + millis)
    }

    #[test]
    fn use_goes_by_the_last_seconds_and_is_forgotten() {
        let mut usage = Usage::default();
        usage.note(10, 5, at(0));
        // It might go on so.
        assert_eq!(usage.in_a_second(at(0)), 100);
        usage.note(40, 3, at(500));
        assert_eq!(usage.in_a_second(at(500)), 100);
        assert_eq!(usage.in_a_second(at(999)), 50);
        // The next second has no use yet, which does not mean that there is none.
        assert_eq!(usage.in_a_second(at(1_000)), 50);
        usage.note(1, 1, at(1_500));
        assert_eq!(
            (usage.in_a_second(at(1_600)), usage.most_reserved(at(1_600))),
            (50, 5)
        );
        assert_eq!(
            (usage.in_a_second(at(2_500)), usage.most_reserved(at(2_500))),
            (1, 1)
        );
        assert_eq!(
            (usage.in_a_second(at(4_000)), usage.most_reserved(at(4_000))),
            (0, 0)
        );
    }
}
