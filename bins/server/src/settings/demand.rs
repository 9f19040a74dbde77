//! What the settings say of demand: how fast replicas follow it, and how much of it waits.
//!
//! ```yaml
//! scaling:
//!   min_residency: 30s       # a model on demand that has loaded keeps its room for so long
//!   max_wait: 30s            # calls wait so long for room that another model's work has
//!   evict_idle_after: 5s     # and so long for room that another model does not use
//!   scale_up_after: 10s      # more load than slots for so long adds a replica
//! queue:
//!   max_per_model: 256       # calls that wait for one model on demand
//!   max_total: 1024          # and for all of them
//!   activation_timeout: 5m   # how long each waits
//! ```

use std::{ops::RangeInclusive, time::Duration};

use llmgw_core::{
    api::settings::QueueSettings, cluster::catalog::DefinitionError, gateway::GatewayConfig,
    units::Span,
};
use llmgw_sched::reconcile::Pacing;
use serde::Deserialize;

/// `scaling`, as it is written.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct ScalingFile {
    min_residency: Option<Span>,
    max_wait: Option<Span>,
    evict_idle_after: Option<Span>,
    scale_up_after: Option<Span>,
}

/// `queue`, as it is written.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct QueueFile {
    max_per_model: Option<usize>,
    max_total: Option<usize>,
    activation_timeout: Option<Span>,
}

/// How many calls wait for models on demand, and how long.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QueueBounds {
    /// The most for one model.
    pub max_per_model: usize,
    /// The most in all.
    pub max_total: usize,
    /// The longest that each waits.
    pub activation_timeout: Duration,
}

// === impl ScalingFile ===

impl ScalingFile {
    /// This, with what `over` says in the place of what is said here.
    pub(super) fn under(self, over: Self) -> Self {
        Self {
            min_residency: over.min_residency.or(self.min_residency),
            max_wait: over.max_wait.or(self.max_wait),
            evict_idle_after: over.evict_idle_after.or(self.evict_idle_after),
            scale_up_after: over.scale_up_after.or(self.scale_up_after),
        }
    }

    /// Checks it, with what is usual in place of what is not said.
    pub(super) fn checked(self) -> Result<Pacing, DefinitionError> {
        let Self {
            min_residency,
            max_wait,
            evict_idle_after,
            scale_up_after,
        } = self;
        let usual = Pacing::default();
        let none = Duration::ZERO..=DAY;
        Ok(Pacing {
            min_residency: span(
                "scaling.min_residency",
                min_residency,
                usual.min_residency,
                &none,
            )?,
            max_wait: span(
                "scaling.max_wait",
                max_wait,
                usual.max_wait,
                &(SECOND..=DAY),
            )?,
            evict_idle_after: span(
                "scaling.evict_idle_after",
                evict_idle_after,
                usual.evict_idle_after,
                &none,
            )?,
            scale_up_after: span(
                "scaling.scale_up_after",
                scale_up_after,
                usual.scale_up_after,
                &none,
            )?,
        })
    }
}

// === impl QueueFile ===

impl QueueFile {
    /// This, with what `over` says in the place of what is said here.
    pub(super) fn under(self, over: Self) -> Self {
        Self {
            max_per_model: over.max_per_model.or(self.max_per_model),
            max_total: over.max_total.or(self.max_total),
            activation_timeout: over.activation_timeout.or(self.activation_timeout),
        }
    }

    /// Checks it, with what is usual in place of what is not said.
    pub(super) fn checked(self) -> Result<QueueBounds, DefinitionError> {
        let Self {
            max_per_model,
            max_total,
            activation_timeout,
        } = self;
        let usual = QueueBounds::default();
        let total = count("queue.max_total", max_total, usual.max_total)?;
        // Who bounds the whole below what is usual for a model bounds each model too.
        let per_model = usual.max_per_model.min(total);
        let bounds = QueueBounds {
            max_per_model: count("queue.max_per_model", max_per_model, per_model)?,
            max_total: total,
            activation_timeout: span(
                "queue.activation_timeout",
                activation_timeout,
                usual.activation_timeout,
                &(SECOND..=DAY),
            )?,
        };
        if bounds.max_per_model > total {
            return Err(wrong(
                "queue.max_per_model",
                format!("it is more than max_total, which is {total}"),
                "raise max_total, or lower this",
            ));
        }
        Ok(bounds)
    }
}

// === impl QueueBounds ===

impl From<QueueBounds> for QueueSettings {
    fn from(bounds: QueueBounds) -> Self {
        let QueueBounds {
            max_per_model,
            max_total,
            activation_timeout,
        } = bounds;
        Self {
            max_per_model,
            max_total,
            activation_timeout: Span(activation_timeout),
        }
    }
}

impl QueueBounds {
    /// The same gateway with these bounds.
    pub(crate) fn bound(self, config: &mut GatewayConfig) {
        let Self {
            max_per_model,
            max_total,
            activation_timeout,
        } = self;
        config.waiting_per_model = max_per_model;
        config.waiting = max_total;
        config.activation_deadline = activation_timeout;
    }
}

impl Default for QueueBounds {
    fn default() -> Self {
        let usual = GatewayConfig::default();
        Self {
            max_per_model: usual.waiting_per_model,
            max_total: usual.waiting,
            activation_timeout: usual.activation_deadline,
        }
    }
}

fn span(
    field: &str,
    said: Option<Span>,
    usual: Duration,
    allowed: &RangeInclusive<Duration>,
) -> Result<Duration, DefinitionError> {
    let span = said.map_or(usual, Duration::from);
    if allowed.contains(&span) {
        return Ok(span);
    }
    let (least, most) = (Span(*allowed.start()), Span(*allowed.end()));
    Err(wrong(
        field,
        format!("{} is not between {least} and {most}", Span(span)),
        "write for example 30s",
    ))
}

fn count(field: &str, said: Option<usize>, usual: usize) -> Result<usize, DefinitionError> {
    let count = said.unwrap_or(usual);
    if (1..=MOST_WAITING).contains(&count) {
        return Ok(count);
    }
    let problem = format!("{count} is not between 1 and {MOST_WAITING}");
    Err(wrong(field, problem, "write for example 256"))
}

fn wrong(field: &str, problem: String, hint: &str) -> DefinitionError {
    DefinitionError {
        field: field.to_owned(),
        problem,
        hint: Some(hint.to_owned()),
    }
}

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);
/// Each that waits holds a connection: more than a process may have files open.
const MOST_WAITING: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn scaling(yaml: &str) -> Result<Pacing, DefinitionError> {
        serde_saphyr::from_str::<ScalingFile>(yaml)
            .unwrap()
            .checked()
    }

    fn queue(yaml: &str) -> Result<QueueBounds, DefinitionError> {
        serde_saphyr::from_str::<QueueFile>(yaml).unwrap().checked()
    }

    #[test]
    fn what_is_not_said_is_as_usual() {
        assert_eq!(scaling("{}").unwrap(), Pacing::default());
        let slow = scaling("{min_residency: 10m, max_wait: 2m, scale_up_after: 0s}").unwrap();
        assert_eq!(slow.min_residency, Duration::from_secs(600));
        assert_eq!(slow.max_wait, Duration::from_secs(120));
        assert_eq!(slow.scale_up_after, Duration::ZERO);
        assert_eq!(slow.evict_idle_after, Pacing::default().evict_idle_after);

        let usual = queue("{}").unwrap();
        assert_eq!((usual.max_per_model, usual.max_total), (256, 1_024));
        assert_eq!(usual.activation_timeout, Duration::from_secs(300));
        let small = queue("{max_total: 8, activation_timeout: 20s}").unwrap();
        assert_eq!((small.max_per_model, small.max_total), (8, 8));
        let mut config = GatewayConfig::default();
        small.bound(&mut config);
        assert_eq!((config.waiting_per_model, config.waiting), (8, 8));
        assert_eq!(config.activation_deadline, Duration::from_secs(20));
    }

    #[test]
    fn what_can_not_be_right_is_refused_by_its_key() {
        for (yaml, says) in [
            (
                "{max_wait: 0s}",
                "scaling.max_wait: 0s is not between 1s and 1day",
            ),
            ("{min_residency: 2days}", "scaling.min_residency: "),
            ("{evict_idle_after: 2days}", "scaling.evict_idle_after: "),
            ("{scale_up_after: 2days}", "scaling.scale_up_after: "),
        ] {
            let error = scaling(yaml).unwrap_err().to_string();
            assert!(error.starts_with(says), "{error}");
        }
        for (yaml, says) in [
            (
                "{max_total: 0}",
                "queue.max_total: 0 is not between 1 and 1000000",
            ),
            (
                "{max_per_model: 2, max_total: 1}",
                "queue.max_per_model: it is more than max_total, which is 1",
            ),
            ("{max_per_model: 2000000}", "queue.max_per_model: "),
            ("{activation_timeout: 0s}", "queue.activation_timeout: "),
        ] {
            let error = queue(yaml).unwrap_err().to_string();
            assert!(error.starts_with(says), "{error}");
        }
    }
}
