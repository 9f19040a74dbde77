//! What of a call's time is the gateway's own, and where it goes: all of it but the waiting for the engine.
//!
//! Each moment of a call belongs to one stage, or to the engine. A call is with the engine from when its request was
//! handed to the system until a piece of the answer is there, and again from when the pieces that came are worked off
//! until the next one is there.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::Clock,
    metrics::{OverheadTimes, Stage},
};

/// Follows one call through its stages.
#[derive(Debug)]
pub(super) struct Overhead {
    clock: Arc<dyn Clock>,
    /// Where the call is; with the engine when absent.
    stage: Option<Stage>,
    since: Duration,
    times: OverheadTimes,
}

// === impl Overhead ===

impl Overhead {
    /// A call that came in at `since` and is being received.
    pub(super) fn begin(clock: Arc<dyn Clock>, since: Duration) -> Self {
        Self {
            clock,
            stage: Some(Stage::Receive),
            since,
            times: OverheadTimes::default(),
        }
    }

    /// The call goes into a stage. Asks the clock only where that is another one.
    pub(super) fn enter(&mut self, stage: Stage) {
        self.go_to(Some(stage));
    }

    /// The call is with the engine.
    pub(super) fn wait_for_engine(&mut self) {
        self.go_to(None);
    }

    /// The call is over: the time, and what was spent until then.
    pub(super) fn end(&mut self) -> (Duration, &OverheadTimes) {
        let now = self.clock.monotonic();
        self.close(now);
        (now, &self.times)
    }

    fn go_to(&mut self, stage: Option<Stage>) {
        if self.stage != stage {
            let now = self.clock.monotonic();
            self.close(now);
            self.stage = stage;
        }
    }

    fn close(&mut self, now: Duration) {
        let spent = now.saturating_sub(self.since);
        if let Some(stage) = self.stage {
            self.times.add(stage, spent);
        }
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn each_moment_counts_once_and_the_engines_not_at_all() {
        let clock = Arc::new(ManualClock::default());
        let mut overhead = Overhead::begin(Arc::<ManualClock>::clone(&clock), Duration::ZERO);
        let pass = |millis| clock.advance(Duration::from_millis(millis));
        pass(1);
        overhead.enter(Stage::Pick);
        pass(2);
        overhead.enter(Stage::Pick);
        pass(3);
        overhead.enter(Stage::Send);
        overhead.wait_for_engine();
        pass(1_000);
        overhead.wait_for_engine();
        pass(1_000);
        overhead.enter(Stage::Respond);
        pass(7);
        overhead.wait_for_engine();
        pass(1_000);
        overhead.enter(Stage::Respond);
        pass(11);
        let (now, times) = overhead.end();
        assert_eq!(now.as_millis(), 3_024);
        let spent = |stage| times.of(stage).map(|time| time.as_millis());
        assert_eq!(spent(Stage::Receive), Some(1));
        assert_eq!(spent(Stage::Queue), None, "it was never there");
        assert_eq!(spent(Stage::Pick), Some(5));
        assert_eq!(spent(Stage::Send), Some(0));
        assert_eq!(spent(Stage::Respond), Some(18));
        assert_eq!(times.sum().as_millis(), 24);
    }
}
