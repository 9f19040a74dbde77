//! What the planner was given in a step.

use std::time::Duration;

use llmgw_core::{
    cluster::{catalog::Model, scaling::Scaling},
    fingerprint::Fingerprint,
    id::ModelName,
};
use serde::Serialize;

use super::{Intent, Memory, Observed, fleet, scene::Scene};
use crate::{fleet::Fleet, planner::Wanted};

/// What the planner was given in a step: all that a placement depends on, besides its options.
///
/// Replicas that failed, were let go or stopped in the same step are in it no more. Models that may not be tried now,
/// such as parked ones, are not in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Inputs {
    /// The nodes, with what they have and run.
    pub fleet: Fleet,
    /// What should run.
    pub wanted: Wanted,
}

impl Inputs {
    /// Tells whether two decisions were made from the same: covers everything, and not the order of nodes or models. The
    /// same on every machine; releases differ when the serial form does.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let models: Vec<&Model> = self.wanted.by_name().into_values().collect();
        // The maps of a fleet have texts for keys, so that there always is a JSON form.
        Fingerprint::of(&(self.fleet.in_order(), models)).unwrap_or(Fingerprint(0))
    }
}

/// The fleet, and the models that may be tried now, each with as many replicas as it should have now.
///
/// A model on demand that has all it should have is not among them: nobody asks the planner to keep it, so that its idle
/// replicas may make room for others.
pub(crate) fn inputs(
    intent: &Intent,
    observed: &Observed,
    memory: &Memory,
    now: Duration,
) -> Inputs {
    let scene = Scene {
        intent,
        observed,
        memory,
        now,
    };
    let wanted = |model: &Model| {
        let name = model.name();
        let history = memory.histories.get(name);
        let may_try = history.is_none_or(|history| history.may_try(now));
        // Of a model that is not complete it is still being found out what it is and needs.
        if !model.is_complete() || !may_try || memory.yielded.contains_key(name) {
            return None;
        }
        let wants = scene.wants(model);
        if model.scaling().min() == 0 {
            let places = scene.places(scene.of_model(name));
            if places.kept.len() >= wants {
                return None;
            }
        }
        let wants = u32::try_from(wants).unwrap_or(u32::MAX);
        Some(model.clone().scaled(Scaling::fixed(wants)))
    };
    Inputs {
        fleet: fleet(intent, observed, memory, now),
        wanted: Wanted {
            models: intent.models.values().filter_map(wanted).collect(),
        },
    }
}

/// Whether a model has fewer replicas than it should have, where they may stay: what a report of it tells still holds.
#[must_use]
pub fn lacks(
    intent: &Intent,
    observed: &Observed,
    memory: &Memory,
    model: &ModelName,
    now: Duration,
) -> bool {
    let scene = Scene {
        intent,
        observed,
        memory,
        now,
    };
    intent.models.get(model).is_some_and(|model| {
        let places = scene.places(scene.of_model(model.name()));
        places.kept.len() < scene.wants(model)
    })
}

#[cfg(test)]
mod tests {
    use llmgw_core::{
        id::NodeId,
        units::{Bytes, Cores},
    };

    use super::*;
    use crate::fleet::FleetNode;

    fn node(hostname: &str) -> FleetNode {
        FleetNode {
            memory_allocatable: Some(Bytes::gib(8)),
            ..FleetNode::named(NodeId::generate(), hostname.to_owned())
        }
    }

    fn model(name: &str) -> Model {
        serde_json::from_value(serde_json::json!({
            "name": name, "source": "file:/m.gguf", "profiles": [{"memory": "1GiB"}],
        }))
        .unwrap()
    }

    #[test]
    fn the_fingerprint_covers_what_decides_and_not_the_order() {
        let (one, two) = (node("one"), node("two"));
        let inputs = |nodes: [&FleetNode; 2], models: [&str; 2]| Inputs {
            fleet: Fleet {
                nodes: nodes.map(Clone::clone).to_vec(),
                ..Fleet::default()
            },
            wanted: Wanted {
                models: models.map(model).to_vec(),
            },
        };
        let known = inputs([&one, &two], ["a", "b"]).fingerprint();
        assert_eq!(known, inputs([&two, &one], ["b", "a"]).fingerprint());
        assert_ne!(known, inputs([&one, &two], ["a", "c"]).fingerprint());
        let larger = FleetNode {
            cpu: Some(Cores::whole(1)),
            ..two
        };
        assert_ne!(known, inputs([&one, &larger], ["a", "b"]).fingerprint());
    }
}
