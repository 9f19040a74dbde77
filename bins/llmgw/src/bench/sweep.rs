//! Which steps are measured, and what they say: no clock, no network.

use std::{fmt, time::Duration};

use llmgw_core::units::Span;
use serde::Serialize;

/// What 95 of 100 calls must keep to.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub(super) struct Goal {
    /// The longest time to the first token.
    pub(super) first_token: Span,
    /// The longest mean time between the tokens of a call.
    pub(super) between_tokens: Span,
}

/// One call that was answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Answered {
    pub(super) first_token: Duration,
    pub(super) duration: Duration,
    pub(super) tokens: u64,
}

/// What was measured with so many calls at the same time. Times are seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Level {
    pub(super) concurrency: u32,
    pub(super) calls: usize,
    pub(super) errors: usize,
    /// What the first call that failed was answered with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first_error: Option<String>,
    #[serde(rename = "first_token_p50_seconds")]
    pub(super) first_token_p50: Option<f64>,
    #[serde(rename = "first_token_p95_seconds")]
    pub(super) first_token_p95: Option<f64>,
    #[serde(rename = "between_tokens_p50_seconds")]
    pub(super) between_tokens_p50: Option<f64>,
    #[serde(rename = "between_tokens_p95_seconds")]
    pub(super) between_tokens_p95: Option<f64>,
    pub(super) tokens_per_second: f64,
    pub(super) calls_per_second: f64,
}

/// A sweep over numbers of calls at the same time: doubles until the goal is missed, then halves the gap.
#[derive(Debug)]
pub(super) struct Sweep {
    most: u32,
    levels: Vec<Level>,
}

// === impl Level ===

impl Level {
    /// What so many calls at the same time came to, within `span`.
    pub(super) fn of(
        concurrency: u32,
        answered: &[Answered],
        failed: &[String],
        span: Duration,
    ) -> Self {
        let first = |call: &Answered| Some(call.first_token.as_secs_f64());
        let between = |call: &Answered| {
            let gaps = u32::try_from(call.tokens).ok()?.checked_sub(1)?;
            let rest = call.duration.checked_sub(call.first_token)?;
            (gaps > 0).then(|| rest.as_secs_f64() / f64::from(gaps))
        };
        let sorted = |of: &dyn Fn(&Answered) -> Option<f64>| {
            let mut values: Vec<f64> = answered.iter().filter_map(of).collect();
            values.sort_unstable_by(f64::total_cmp);
            values
        };
        let (first, between) = (sorted(&first), sorted(&between));
        let tokens: u64 = answered.iter().map(|call| call.tokens).sum();
        let seconds = span.as_secs_f64().max(f64::MIN_POSITIVE);
        Self {
            concurrency,
            calls: answered.len() + failed.len(),
            errors: failed.len(),
            first_error: failed.first().cloned(),
            first_token_p50: percentile(&first, 50),
            first_token_p95: percentile(&first, 95),
            between_tokens_p50: percentile(&between, 50),
            between_tokens_p95: percentile(&between, 95),
            tokens_per_second: as_number(tokens) / seconds,
            calls_per_second: as_number(answered.len() as u64) / seconds,
        }
    }

    /// Whether it keeps to the goal; a call that failed does not.
    pub(super) fn keeps(&self, goal: &Goal) -> bool {
        let within = |measured: Option<f64>, most: Span| {
            measured.is_some_and(|seconds| seconds <= Duration::from(most).as_secs_f64())
        };
        self.errors == 0
            && within(self.first_token_p95, goal.first_token)
            && within(self.between_tokens_p95, goal.between_tokens)
    }

    /// The step in one line, for whoever waits.
    pub(super) fn line(&self, goal: &Goal) -> String {
        let time = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), shown);
        let mut line = format!(
            "{} at once: first token {} (p95), {} between tokens (p95), {:.1} tokens/s",
            self.concurrency,
            time(self.first_token_p95),
            time(self.between_tokens_p95),
            self.tokens_per_second
        );
        if let Some(error) = &self.first_error {
            line.push_str(&format!(
                "; {} of {} failed: {error}",
                self.errors, self.calls
            ));
        } else if !self.keeps(goal) {
            line.push_str("; misses the goal");
        }
        line
    }
}

// === impl Sweep ===

impl Sweep {
    /// A sweep up to `most` calls at the same time.
    pub(super) fn new(most: u32) -> Self {
        Self {
            most,
            levels: Vec::new(),
        }
    }

    /// The next number of calls to measure; `None` when nothing more is to be learnt.
    pub(super) fn next(&self, goal: &Goal) -> Option<u32> {
        let kept = self.capacity(goal).map(|level| level.concurrency);
        let missed = self.levels.iter().filter(|level| !level.keeps(goal));
        let missed = missed.map(|level| level.concurrency).min();
        match (kept, missed) {
            (None, None) => Some(1),
            (None, Some(_)) => None,
            (Some(kept), None) => (kept < self.most).then(|| (kept * 2).min(self.most)),
            // A gap of an eighth says enough: the next run would differ by more.
            (Some(kept), Some(missed)) => {
                let gap = missed.saturating_sub(kept);
                (gap > (kept / 8).max(1)).then(|| kept + gap / 2)
            }
        }
    }

    /// Takes in what was measured.
    pub(super) fn measured(&mut self, level: Level) {
        let place = self
            .levels
            .partition_point(|other| other.concurrency < level.concurrency);
        self.levels.insert(place, level);
    }

    /// The most calls at the same time below the first number that misses the goal.
    pub(super) fn capacity(&self, goal: &Goal) -> Option<&Level> {
        let kept = self.levels.iter().take_while(|level| level.keeps(goal));
        kept.last()
    }

    /// Whether something missed the goal.
    pub(super) fn is_bounded(&self, goal: &Goal) -> bool {
        self.levels.iter().any(|level| !level.keeps(goal))
    }

    pub(super) fn into_levels(self) -> Vec<Level> {
        self.levels
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            first_token,
            between_tokens,
        } = self;
        write!(
            f,
            "p95: first token within {first_token}, {between_tokens} between tokens"
        )
    }
}

/// The value that so many of a hundred do not exceed: the nearest rank.
fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// Seconds as people read them.
pub(super) fn shown(seconds: f64) -> String {
    if seconds < 1.0 {
        format!("{:.1}ms", seconds * 1e3)
    } else {
        format!("{seconds:.2}s")
    }
}

/// Beyond 2^53 the last digits are lost.
fn as_number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal() -> Goal {
        Goal {
            first_token: Span(Duration::from_secs(1)),
            between_tokens: Span(Duration::from_millis(100)),
        }
    }

    /// Runs a sweep against a model that takes so many; gives the steps and what was found.
    fn sweep(takes: u32, most: u32) -> (Vec<u32>, Option<u32>, bool) {
        let mut sweep = Sweep::new(most);
        let mut steps = Vec::new();
        while let Some(concurrency) = sweep.next(&goal()) {
            assert!(steps.len() < 64, "no end: {steps:?}");
            steps.push(concurrency);
            let first_token = Duration::from_millis(if concurrency <= takes { 900 } else { 1_100 });
            let call = Answered {
                first_token,
                duration: first_token + Duration::from_millis(90),
                tokens: 10,
            };
            let level = Level::of(concurrency, &[call], &[], Duration::from_secs(1));
            sweep.measured(level);
        }
        let capacity = sweep.capacity(&goal()).map(|level| level.concurrency);
        (steps, capacity, sweep.is_bounded(&goal()))
    }

    #[test]
    fn the_gap_is_closed_where_the_goal_is_missed() {
        assert_eq!(sweep(6, 64), (vec![1, 2, 4, 8, 6, 7], Some(6), true));
        assert_eq!(sweep(1, 64), (vec![1, 2], Some(1), true));
        let (steps, capacity, bounded) = sweep(45, 64);
        assert_eq!((capacity, bounded), (Some(44), true), "{steps:?}");
    }

    #[test]
    fn what_takes_more_than_is_tried_is_said_to_be_unbounded() {
        assert_eq!(sweep(100, 12), (vec![1, 2, 4, 8, 12], Some(12), false));
    }

    #[test]
    fn what_misses_the_goal_alone_has_no_capacity() {
        assert_eq!(sweep(0, 64), (vec![1], None, true));
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank_and_a_failure_keeps_no_goal() {
        let calls: Vec<Answered> = (1..=100)
            .map(|number| Answered {
                first_token: Duration::from_millis(number),
                duration: Duration::from_millis(number + 90),
                tokens: 10,
            })
            .collect();
        let level = Level::of(4, &calls, &[], Duration::from_secs(10));
        assert_eq!(level.first_token_p50, Some(0.05));
        assert_eq!(level.first_token_p95, Some(0.095));
        assert_eq!(level.between_tokens_p95, Some(0.01));
        assert!((level.tokens_per_second - 100.0).abs() < 1e-9);
        assert!(level.keeps(&goal()));
        let failed = Level::of(4, &calls, &["503".to_owned()], Duration::from_secs(10));
        assert!(!failed.keeps(&goal()));
        assert_eq!((failed.calls, failed.errors), (101, 1));
        let none = Level::of(1, &[], &[], Duration::ZERO);
        assert!(!none.keeps(&goal()));
    }
}
