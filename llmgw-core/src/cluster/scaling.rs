//! Between how many replicas a model runs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::catalog::DefinitionError;
use crate::units::Span;

/// Between how many replicas a model runs, checked.
///
/// `min == max` is a fixed number. With `min` 0 and `max` 1 or more the model runs on demand. With both 0 it is switched
/// off: it keeps its name, and nothing runs.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(try_from = "ScalingDefinition", into = "ScalingDefinition")]
pub struct Scaling {
    min: u32,
    max: u32,
    idle_timeout: Duration,
}

/// Scaling as people write it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ScalingDefinition {
    /// A fixed number; not beside the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// The fewest; with 0, a request starts the first one. 1 when absent, or `max` when that is less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    /// The most; follows `min` when absent, and is then at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// How long a replica beyond `min` may go without a request; 15 minutes when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Span>,
}

// === impl Scaling ===

impl Scaling {
    /// Always so many, whatever the load.
    #[must_use]
    pub const fn fixed(replicas: u32) -> Self {
        Self {
            min: replicas,
            max: replicas,
            idle_timeout: IDLE_TIMEOUT,
        }
    }

    /// The fewest replicas.
    #[must_use]
    pub const fn min(&self) -> u32 {
        self.min
    }

    /// The most replicas; never less than [`min`](Self::min).
    #[must_use]
    pub const fn max(&self) -> u32 {
        self.max
    }

    /// How long a replica beyond the fewest may go without a request before it is stopped.
    #[must_use]
    pub const fn idle_timeout(&self) -> Duration {
        self.idle_timeout
    }

    /// Whether nothing runs until somebody asks for the model.
    #[must_use]
    pub const fn is_on_demand(&self) -> bool {
        self.min == 0 && self.max > 0
    }

    /// Whether nothing ever runs.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        self.max == 0
    }
}

impl Default for Scaling {
    fn default() -> Self {
        Self::fixed(1)
    }
}

// === impl ScalingDefinition ===

impl ScalingDefinition {
    /// Checks it, and fills in what is not said.
    ///
    /// # Errors
    /// When the numbers contradict each other or are absurd; names the field as a model's definition does.
    pub fn checked(self) -> Result<Scaling, DefinitionError> {
        let Self {
            replicas,
            min,
            max,
            idle_timeout,
        } = self;
        let problem = |field: &str, problem: String, hint: Option<&str>| DefinitionError {
            field: field.to_owned(),
            problem,
            hint: hint.map(ToOwned::to_owned),
        };
        let range = (min, max) != (None, None);
        if let (Some(replicas), true) = (replicas, range) {
            return Err(problem(
                "replicas",
                format!("{replicas} is said beside min_replicas or max_replicas"),
                Some("say either replicas, or min_replicas and max_replicas"),
            ));
        }
        if replicas == Some(0) {
            return Err(problem(
                "replicas",
                "0 replicas would never run".to_owned(),
                Some(
                    "use 1 or more, or min_replicas: 0 to start it on demand; remove the model to stop it",
                ),
            ));
        }
        let (min, max) = match (replicas, min, max) {
            (Some(replicas), _, _) => (replicas, replicas),
            (None, None, None) => (1, 1),
            (None, Some(min), None) => (min, min.max(1)),
            (None, None, Some(max)) => (max.min(1), max),
            (None, Some(min), Some(max)) => (min, max),
        };
        if max < min {
            return Err(problem(
                "max_replicas",
                format!("{max} is less than min_replicas, {min}"),
                None,
            ));
        }
        if max > MAX_REPLICAS {
            let field = if replicas.is_some() {
                "replicas"
            } else {
                "max_replicas"
            };
            return Err(problem(field, format!("{max} is more than 1,000"), None));
        }
        let idle_timeout = idle_timeout.map_or(IDLE_TIMEOUT, Duration::from);
        if idle_timeout < SHORTEST_IDLE || idle_timeout > LONGEST_IDLE {
            return Err(problem(
                "idle_timeout",
                format!("{} is not between 1s and 365days", Span(idle_timeout)),
                Some("write for example 15m; a model that should never stop has min_replicas: 1"),
            ));
        }
        Ok(Scaling {
            min,
            max,
            idle_timeout,
        })
    }
}

impl TryFrom<ScalingDefinition> for Scaling {
    type Error = DefinitionError;

    fn try_from(definition: ScalingDefinition) -> Result<Self, DefinitionError> {
        definition.checked()
    }
}

impl From<Scaling> for ScalingDefinition {
    /// The shortest way to write it.
    fn from(scaling: Scaling) -> Self {
        let fixed = scaling.min == scaling.max && scaling.max > 0;
        Self {
            replicas: fixed.then_some(scaling.min),
            min: (!fixed).then_some(scaling.min),
            max: (!fixed).then_some(scaling.max),
            idle_timeout: (scaling.idle_timeout != IDLE_TIMEOUT)
                .then_some(Span(scaling.idle_timeout)),
        }
    }
}

/// Long enough that a coffee break costs no cold start.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15 * 60);
const SHORTEST_IDLE: Duration = Duration::from_secs(1);
const LONGEST_IDLE: Duration = Duration::from_secs(365 * 86_400);
const MAX_REPLICAS: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn scaling(json: serde_json::Value) -> Result<Scaling, String> {
        serde_json::from_value(json).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_said_follows_from_what_is() {
        let of = |json| {
            let scaling = scaling(json).unwrap();
            (scaling.min(), scaling.max())
        };
        assert_eq!(of(serde_json::json!({})), (1, 1));
        assert_eq!(of(serde_json::json!({"replicas": 3})), (3, 3));
        assert_eq!(of(serde_json::json!({"min": 2})), (2, 2));
        assert_eq!(of(serde_json::json!({"min": 0})), (0, 1));
        assert_eq!(of(serde_json::json!({"max": 4})), (1, 4));
        assert_eq!(of(serde_json::json!({"max": 0})), (0, 0));
        assert_eq!(of(serde_json::json!({"min": 0, "max": 0})), (0, 0));
    }

    #[test]
    fn numbers_that_contradict_each_other_are_refused_by_name() {
        let refused = |json| scaling(json).unwrap_err();
        assert!(refused(serde_json::json!({"min": 3, "max": 2})).starts_with("max_replicas: 2"));
        assert!(refused(serde_json::json!({"replicas": 0})).starts_with("replicas: 0"));
        assert!(
            refused(serde_json::json!({"replicas": 1, "max": 2})).starts_with("replicas: 1 is")
        );
        assert!(refused(serde_json::json!({"max": 1_001})).starts_with("max_replicas: 1001"));
        assert!(refused(serde_json::json!({"idle_timeout": "0s"})).starts_with("idle_timeout: "));
        assert!(refused(serde_json::json!({"min": -1})).contains("-1"));
    }

    #[test]
    fn it_survives_its_own_serial_form() {
        for json in [
            serde_json::json!({}),
            serde_json::json!({"replicas": 3}),
            serde_json::json!({"min": 0, "max": 2, "idle_timeout": "90s"}),
            serde_json::json!({"max": 0}),
        ] {
            let known = scaling(json).unwrap();
            let again = serde_json::to_value(known).unwrap();
            assert_eq!(scaling(again).unwrap(), known);
        }
    }
}
