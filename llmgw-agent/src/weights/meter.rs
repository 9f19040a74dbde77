//! How fast a fetch is, from what it has told.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use llmgw_core::{
    clock::{Clock, Timestamp},
    cluster::weights::{FetchProgress, Source},
    units::Bytes,
};

use crate::flight::Progress;

/// Tells those who wait for a fetch how far it is, not more often than they can make use of, and how fast.
#[derive(Debug)]
pub(super) struct Teller {
    told: Progress<FetchProgress>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    progress: Option<FetchProgress>,
    /// Why the source before this one was given up.
    passed_over: Option<String>,
    meter: Meter,
    told_at: Option<Duration>,
}

/// The last seconds of a fetch. Times are of a clock that only goes forward.
#[derive(Debug, Default)]
struct Meter {
    /// When how much was there, the oldest first.
    samples: VecDeque<(Duration, Bytes)>,
    /// When the last byte came, by both clocks.
    gained: Option<(Duration, Timestamp)>,
}

// === impl Teller ===

impl Teller {
    pub(super) fn new(told: Progress<FetchProgress>, clock: Arc<dyn Clock>) -> Self {
        Self {
            told,
            clock,
            state: Mutex::default(),
        }
    }

    /// So much is there now.
    pub(super) fn tell(&self, source: &Source, done: Bytes, total: Option<Bytes>) {
        let now = self.clock.monotonic();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let known = state.progress.as_ref();
        let is_new =
            known.is_none_or(|known| known.source != *source || known.bytes_total != total);
        state.meter.take(now, self.clock.now(), done);
        if is_new {
            state.progress = Some(FetchProgress {
                passed_over: state.passed_over.clone(),
                ..FetchProgress::new(source.clone(), done, total)
            });
        } else if let Some(progress) = &mut state.progress {
            progress.bytes_done = done;
        }
        let is_due = state
            .told_at
            .is_none_or(|told_at| now.saturating_sub(told_at) >= TELL_EVERY);
        if is_new || is_due || total == Some(done) {
            self.say(&mut state, now);
        }
    }

    /// The next source is tried because of this.
    pub(super) fn passed_over(&self, why: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.passed_over = Some(why.to_owned());
        state.progress = None;
    }

    /// Looks at the clock: a fetch that stalls says nothing by itself. Never ends.
    pub(super) async fn keep_looking(&self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.clock.monotonic();
            self.say(&mut state, now);
        }
    }

    fn say(&self, state: &mut State, now: Duration) {
        let State {
            progress: Some(progress),
            passed_over: _,
            meter,
            told_at,
        } = state
        else {
            return;
        };
        let rate = meter.rate(now);
        progress.bytes_per_second = rate;
        progress.stalled_since = meter.stalled_since(now);
        progress.eta_seconds = match (rate, progress.bytes_total) {
            (Some(rate), Some(total)) if rate > Bytes::ZERO => {
                Some(total.saturating_sub(progress.bytes_done).0.div_ceil(rate.0))
            }
            _ => None,
        };
        *told_at = Some(now);
        self.told.tell(progress.clone());
    }
}

// === impl Meter ===

impl Meter {
    fn take(&mut self, now: Duration, wall: Timestamp, done: Bytes) {
        match self.samples.back() {
            // Another source, or the same one anew.
            Some((_, before)) if done < *before => {
                *self = Self::default();
                self.gained = Some((now, wall));
            }
            Some((_, before)) if done == *before => {}
            _ => self.gained = Some((now, wall)),
        }
        let is_due = self
            .samples
            .back()
            .is_none_or(|(at, _)| now.saturating_sub(*at) >= SAMPLE_EVERY);
        if is_due {
            self.samples.push_back((now, done));
        } else if self.samples.len() > 1
            && let Some((_, last)) = self.samples.back_mut()
        {
            // The last one is as of its own time; a little more makes no difference to a rate over seconds.
            *last = done;
        }
        while self
            .samples
            .front()
            .is_some_and(|(at, _)| now.saturating_sub(*at) > WINDOW && self.samples.len() > 2)
        {
            self.samples.pop_front();
        }
    }

    /// Bytes in a second; absent until there is a second to tell it from. A fetch that stalls slows down, and has no
    /// rate once it has stalled.
    fn rate(&self, now: Duration) -> Option<Bytes> {
        let (from, first) = *self.samples.front()?;
        let (_, last) = *self.samples.back()?;
        let span = now.saturating_sub(from);
        if span < ENOUGH || self.stalled_since(now).is_some() {
            return None;
        }
        let bytes = u128::from(last.saturating_sub(first).0);
        let rate = bytes * 1_000 / span.as_millis().max(1);
        Some(Bytes(u64::try_from(rate).unwrap_or(u64::MAX)))
    }

    fn stalled_since(&self, now: Duration) -> Option<Timestamp> {
        let (at, wall) = self.gained?;
        (now.saturating_sub(at) >= STALLED_AFTER).then_some(wall)
    }
}

const TELL_EVERY: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_secs(1);
const SAMPLE_EVERY: Duration = Duration::from_millis(500);
/// Long enough to be steady, short enough to follow.
const WINDOW: Duration = Duration::from_secs(10);
const ENOUGH: Duration = Duration::from_secs(1);
/// A third of what a connection may be silent for.
const STALLED_AFTER: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tenths: u64) -> Duration {
        Duration::from_millis(tenths * 100)
    }

    fn wall(tenths: u64) -> Timestamp {
        Timestamp(i64::try_from(tenths * 100).unwrap() + 1_000_000)
    }

    fn fed(meter: &mut Meter, tenths: std::ops::Range<u64>, per_tenth: u64) {
        for tenth in tenths {
            meter.take(at(tenth), wall(tenth), Bytes(tenth * per_tenth));
        }
    }

    #[test]
    fn a_rate_is_told_once_there_is_something_to_tell_it_from() {
        let mut meter = Meter::default();
        fed(&mut meter, 0..5, 100);
        assert_eq!(meter.rate(at(5)), None);
        fed(&mut meter, 5..400, 100);
        let rate = meter.rate(at(399)).unwrap().0;
        assert!((950..=1_050).contains(&rate), "{rate}");
        assert!(meter.samples.len() < 30, "{}", meter.samples.len());
    }

    #[test]
    fn a_fetch_without_bytes_has_stalled_since_the_last() {
        let mut meter = Meter::default();
        fed(&mut meter, 0..50, 100);
        assert_eq!(meter.stalled_since(at(100)), None);
        assert_eq!(meter.stalled_since(at(149)), Some(wall(49)));
        assert_eq!(meter.rate(at(149)), None);
        meter.take(at(150), wall(150), Bytes(6_000));
        assert_eq!(meter.stalled_since(at(150)), None);
    }

    #[test]
    fn what_was_there_already_does_not_count_as_fast() {
        let mut meter = Meter::default();
        // A gigabyte of an earlier life, and then a kilobyte in a second.
        for tenth in 0..30 {
            meter.take(at(tenth), wall(tenth), Bytes(1_000_000_000 + tenth * 100));
        }
        let rate = meter.rate(at(29)).unwrap().0;
        assert!((800..=1_100).contains(&rate), "{rate}");
        // And another source begins with nothing.
        meter.take(at(31), wall(31), Bytes(5));
        assert_eq!(meter.rate(at(31)), None);
    }
}
