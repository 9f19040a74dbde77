//! What the planner was given in a step.

use llmgw_core::{cluster::catalog::Model, fingerprint::Fingerprint};
use serde::Serialize;

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
