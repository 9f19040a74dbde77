//! What of the calls' time is the gateway's own.

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, HistogramVec, Registry};

use super::registered;

/// What the gateway does with a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage {
    /// Reads it, finds its key and its model. A client that is slow to send is in here.
    Receive,
    /// Waits until its model is there.
    Queue,
    /// Chooses a replica.
    Pick,
    /// Connects to the replica and sends it the request.
    Send,
    /// Edits the answer and hands it on. A client that is slow to read is in here.
    Respond,
}

/// What one call spent in each stage; nothing in those where it never was.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OverheadTimes([Option<Duration>; Stage::ALL.len()]);

/// The histograms.
#[derive(Debug)]
pub(super) struct OverheadMeters {
    whole: Histogram,
    stages: [Histogram; Stage::ALL.len()],
}

// === impl Stage ===

impl Stage {
    /// All, in the order in which a call passes them.
    pub const ALL: [Self; 5] = [
        Self::Receive,
        Self::Queue,
        Self::Pick,
        Self::Send,
        Self::Respond,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Queue => "queue",
            Self::Pick => "pick",
            Self::Send => "send",
            Self::Respond => "respond",
        }
    }
}

// === impl OverheadTimes ===

impl OverheadTimes {
    /// Adds time that was spent in a stage.
    pub fn add(&mut self, stage: Stage, time: Duration) {
        let Self(times) = self;
        let spent = &mut times[stage as usize];
        *spent = Some(spent.unwrap_or_default().saturating_add(time));
    }

    /// What was spent in a stage; `None` when the call never was there.
    #[must_use]
    pub fn of(&self, stage: Stage) -> Option<Duration> {
        let Self(times) = self;
        times[stage as usize]
    }

    /// What was spent in all.
    #[must_use]
    pub fn sum(&self) -> Duration {
        let Self(times) = self;
        times.iter().flatten().sum()
    }
}

// === impl OverheadMeters ===

impl OverheadMeters {
    pub(super) fn new(registry: &Registry) -> Self {
        let whole = HistogramOpts::new(
            "llmgw_gateway_overhead_call_seconds",
            "A call's whole time but the waiting for the engine.",
        );
        let by_stage = HistogramOpts::new(
            "llmgw_gateway_overhead_seconds",
            "The same by what the gateway does with the call.",
        );
        let whole = whole.buckets(OVERHEADS.to_vec());
        let by_stage = by_stage.buckets(OVERHEADS.to_vec());
        let stages = registered(registry, HistogramVec::new(by_stage, &["stage"]));
        Self {
            whole: registered(registry, Histogram::with_opts(whole)),
            stages: Stage::ALL.map(|stage| stages.with_label_values(&[stage.as_str()])),
        }
    }

    pub(super) fn observe(&self, times: &OverheadTimes) {
        let OverheadTimes(spent) = times;
        for (histogram, time) in self.stages.iter().zip(spent) {
            if let Some(time) = time {
                histogram.observe(time.as_secs_f64());
            }
        }
        self.whole.observe(times.sum().as_secs_f64());
    }
}

/// Seconds; from what a call takes at best to a cold start.
const OVERHEADS: [f64; 16] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025,
    0.1, 0.5, 5.0, 60.0, 300.0,
];
