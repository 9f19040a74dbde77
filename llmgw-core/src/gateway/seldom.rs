//! Says what happens often only once in a while.

use std::time::Duration;

use tokio::time::Instant;

/// Counts what happens, and lets it be said at most once in an interval.
#[derive(Debug)]
pub(super) struct Seldom {
    interval: Duration,
    said: Option<Instant>,
    unsaid: u64,
}

// === impl Seldom ===

impl Seldom {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval,
            said: None,
            unsaid: 0,
        }
    }

    /// It happened again. How often since it was last said, when it should be said now.
    pub(super) fn again(&mut self) -> Option<u64> {
        self.unsaid += 1;
        let now = Instant::now();
        if self.said.is_some_and(|said| now - said < self.interval) {
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_happens_often_is_said_once_in_an_interval_with_its_count() {
        let mut seldom = Seldom::new(Duration::from_secs(10));
        assert_eq!(seldom.again(), Some(1), "the first time at once");
        for _ in 0..5 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(seldom.again(), None);
        }
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(seldom.again(), Some(6));
        assert_eq!(seldom.again(), None);
    }
}
