//! Time as an argument: the [`Clock`] trait and its implementations.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// A point in time, in milliseconds since the Unix epoch (UTC, without leap seconds).
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

/// Tells the time.
///
/// # Contract
/// * `now` is the wall clock: it may jump, in both directions. Use it for what people read and for what is
///   stored.
/// * `monotonic` never goes backwards within one clock. Use it for durations and deadlines.
/// * Both are cheap and never block.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The wall clock's time.
    fn now(&self) -> Timestamp;

    /// The time that has passed since some fixed point in the life of this clock.
    fn monotonic(&self) -> Duration;
}

/// The operating system's clock.
#[derive(Clone, Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

/// The async runtime's clock: follows `tokio::time::pause` and `advance` in tests.
#[cfg(feature = "runtime")]
#[derive(Clone, Debug)]
pub struct RuntimeClock {
    wall: Timestamp,
    start: tokio::time::Instant,
}

/// A clock that stands still until it is moved; for tests of pure code.
#[derive(Debug, Default)]
pub struct ManualClock {
    millis: std::sync::atomic::AtomicI64,
}

// === impl Timestamp ===

impl Timestamp {
    /// The time from `earlier` to `self`; nothing when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// This time and `span` later.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        let millis = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(millis))
    }
}

// === impl SystemClock ===

impl SystemClock {
    /// A clock whose monotonic time starts now.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that asks the system"
    )]
    pub fn new() -> Self {
        Self {
            start: std::time::Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that asks the system"
    )]
    fn now(&self) -> Timestamp {
        let now = std::time::SystemTime::now();
        let since = now
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

// === impl RuntimeClock ===

#[cfg(feature = "runtime")]
impl RuntimeClock {
    /// A clock that shows `wall` now and runs with the runtime from here.
    #[must_use]
    pub fn starting_at(wall: Timestamp) -> Self {
        Self {
            wall,
            start: tokio::time::Instant::now(),
        }
    }
}

#[cfg(feature = "runtime")]
impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        self.wall.plus(self.start.elapsed())
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

// === impl ManualClock ===

impl ManualClock {
    /// Moves the clock forward.
    pub fn advance(&self, span: Duration) {
        let millis = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        self.millis
            .fetch_add(millis, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.millis.load(std::sync::atomic::Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        self.now().since(Timestamp(0))
    }
}
