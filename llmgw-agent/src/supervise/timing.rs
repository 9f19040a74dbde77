//! How long things may take.

use std::time::Duration;

/// How long the steps in a replica's life may take.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// What every engine gets to become ready.
    pub start_base: Duration,
    /// What it gets in addition for each [`START_STEP`](Self::START_STEP) of weights.
    pub start_per_step: Duration,
    /// Between two questions to an engine that is starting.
    pub start_poll: Duration,
    /// Between two questions to an engine that is ready.
    pub check_every: Duration,
    /// How long one answer may take.
    pub answer_within: Duration,
    /// How long an engine that answers nobody is believed to be busy while it computes.
    pub busy_patience: Duration,
    /// How long requests in flight may go on after the order to stop.
    pub drain: Duration,
    /// How long processes may take to end when they are asked, before they are made to.
    pub grace: Duration,
    /// How long the memory of a GPU may take to come back before that is a problem.
    pub gpu_back: Duration,
}

impl Timing {
    /// The amount of weights, in bytes, that [`start_per_step`](Self::start_per_step) is for.
    pub const START_STEP: u64 = 50 << 20;

    /// How long an engine with so many bytes of weights may take to become ready. It grows with them, because
    /// a slow disk is no failure.
    #[must_use]
    pub fn patience(&self, weights: u64) -> Duration {
        let steps = u32::try_from(weights / Self::START_STEP).unwrap_or(u32::MAX);
        self.start_base
            .saturating_add(self.start_per_step.saturating_mul(steps))
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            start_base: Duration::from_secs(60),
            start_per_step: Duration::from_secs(1),
            start_poll: Duration::from_millis(100),
            check_every: Duration::from_secs(5),
            answer_within: Duration::from_secs(5),
            busy_patience: Duration::from_secs(300),
            drain: Duration::from_secs(10),
            grace: Duration::from_secs(5),
            gpu_back: Duration::from_secs(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_grows_with_the_weights() {
        let timing = Timing::default();
        assert_eq!(timing.patience(0), Duration::from_secs(60));
        assert_eq!(timing.patience(100 << 20), Duration::from_secs(62));
        assert_eq!(timing.patience(70 << 30), Duration::from_secs(60 + 1433));
    }
}
