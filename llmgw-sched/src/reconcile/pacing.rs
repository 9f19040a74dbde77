//! How fast the loop follows what is asked for: bounds against replicas that come and go all the time.

use std::time::Duration;

use llmgw_core::{api::settings::ScalingSettings, units::Span};

/// How fast the loop follows what is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pacing {
    /// How long a replica on demand serves at least before another model may have its room.
    pub min_residency: Duration,
    /// How long calls wait at most for a model whose place another one has that is at work, besides what loading takes.
    pub max_wait: Duration,
    /// How long a replica on demand must be idle before another model may have its room; counted in whole seconds.
    pub evict_idle_after: Duration,
    /// How long there must be more load than slots before a replica is added.
    pub scale_up_after: Duration,
}

impl Default for Pacing {
    fn default() -> Self {
        Self {
            // Loading costs about as much.
            min_residency: Duration::from_secs(30),
            max_wait: Duration::from_secs(30),
            evict_idle_after: Duration::from_secs(5),
            // Longer than most peaks, and short beside the time that an engine takes to load.
            scale_up_after: Duration::from_secs(10),
        }
    }
}

impl From<Pacing> for ScalingSettings {
    fn from(pacing: Pacing) -> Self {
        let Pacing {
            min_residency,
            max_wait,
            evict_idle_after,
            scale_up_after,
        } = pacing;
        Self {
            min_residency: Span(min_residency),
            max_wait: Span(max_wait),
            evict_idle_after: Span(evict_idle_after),
            scale_up_after: Span(scale_up_after),
        }
    }
}
