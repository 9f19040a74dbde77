//! What in a snapshot can't be right, each with the path of its field.

use std::collections::{BTreeMap, BTreeSet};

use llmgw_core::units::Bytes;

use super::{Fleet, FleetNode, HoldScope};

/// Says what in a fleet can't be right, and where.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct FleetError {
    /// The path of the field, such as `nodes[0].gpus[1].memory`.
    pub field: String,
    /// What is wrong.
    pub problem: String,
}

impl Fleet {
    /// Everything that can't be right, in the order of the fields; empty when nothing is.
    ///
    /// A node that was promised more than it has is no such thing: machines shrink, and what runs there runs.
    #[must_use]
    pub fn check(&self) -> Vec<FleetError> {
        let mut errors = Vec::new();
        let mut ids = BTreeSet::new();
        let mut parts = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let path = format!("nodes[{index}]");
            if !ids.insert(node.id) {
                errors.push(wrong(
                    format!("{path}.id"),
                    format!("{} is named twice", node.id),
                ));
            }
            errors.extend(problems(&path, node));
            for (at, replica) in node.replicas.iter().enumerate() {
                // The shards of a replica have its id and ranks of their own.
                let known = parts.insert((replica.id, replica.rank), index);
                if known.is_some_and(|other| other != index) {
                    let problem = format!("{} runs on another node already", replica.id);
                    errors.push(wrong(format!("{path}.replicas[{at}].id"), problem));
                }
            }
        }
        for (index, hold) in self.holds.iter().enumerate() {
            if let HoldScope::Pool(pool) = &hold.scope
                && !self.pools.contains_key(pool)
            {
                let field = format!("holds[{index}].scope.pool");
                errors.push(wrong(field, format!("there is no pool {pool}")));
            }
        }
        for (name, labels) in &self.pools {
            if labels.is_empty() {
                let problem = "no label makes a node one of it".to_owned();
                errors.push(wrong(format!("pools.{name}"), problem));
            }
        }
        errors
    }
}

fn problems(path: &str, node: &FleetNode) -> Vec<FleetError> {
    let mut errors = Vec::new();
    let mut gpus = BTreeSet::new();
    for (index, gpu) in node.gpus.iter().flatten().enumerate() {
        let path = format!("{path}.gpus[{index}]");
        if !gpus.insert(gpu.index) {
            let problem = format!("GPU {} is named twice", gpu.index);
            errors.push(wrong(format!("{path}.index"), problem));
        }
        if gpu.memory.is_some_and(|memory| memory > MOST_GPU_MEMORY) {
            let problem = format!("more than {MOST_GPU_MEMORY}, which no GPU has");
            errors.push(wrong(format!("{path}.memory"), problem));
        }
        if gpu.memory == Some(Bytes::ZERO) {
            let problem = "a GPU of 0 B is none; leave memory out when it is not known".to_owned();
            errors.push(wrong(format!("{path}.memory"), problem));
        }
    }
    if gpus.len() > MAX_GPUS {
        errors.push(wrong(
            format!("{path}.gpus"),
            "more than 64 GPUs".to_owned(),
        ));
    }
    let mut replicas = BTreeSet::new();
    for (index, replica) in node.replicas.iter().enumerate() {
        let path = format!("{path}.replicas[{index}]");
        if !replicas.insert(replica.id) {
            let problem = format!("{} is named twice", replica.id);
            errors.push(wrong(format!("{path}.id"), problem));
        }
        let mut held = BTreeSet::new();
        for (at, share) in replica.gpus.iter().enumerate() {
            let field = format!("{path}.gpus[{at}].index");
            if node.gpus.is_some() && !gpus.contains(&share.index) {
                errors.push(wrong(field, format!("the node has no GPU {}", share.index)));
            } else if !held.insert(share.index) {
                errors.push(wrong(field, format!("GPU {} is named twice", share.index)));
            }
        }
    }
    errors
}

fn wrong(field: String, problem: String) -> FleetError {
    FleetError { field, problem }
}

/// One PiB.
const MOST_GPU_MEMORY: Bytes = Bytes(1 << 50);

/// GPUs of a node fit into one machine word; none has more.
pub(crate) const MAX_GPUS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_right_is_said_with_its_path() {
        let node = "node-0197c2a4f0e17b6c9a3d5e8f10213243";
        let replica = "r-0197c2a4f0e17b6c9a3d5e8f10213243";
        let fleet: Fleet = serde_json::from_value(serde_json::json!({
            "nodes": [
                {"id": node, "hostname": "a", "gpus": [{"index": 0, "memory": 0}, {"index": 0}], "replicas": [
                    {"id": replica, "model": "m", "memory": 1, "gpus": [{"index": 7}, {"index": 0}, {"index": 0}]},
                    {"id": replica, "model": "m", "memory": 1},
                ]},
                {"id": node, "hostname": "b"},
            ],
            "pools": {"all": {}},
            "holds": [{"scope": {"pool": "none"}}],
        }))
        .unwrap();
        let said: Vec<String> = fleet.check().iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "nodes[0].gpus[0].memory: a GPU of 0 B is none; leave memory out when it is not known".to_owned(),
                "nodes[0].gpus[1].index: GPU 0 is named twice".to_owned(),
                "nodes[0].replicas[0].gpus[0].index: the node has no GPU 7".to_owned(),
                "nodes[0].replicas[0].gpus[2].index: GPU 0 is named twice".to_owned(),
                format!("nodes[0].replicas[1].id: {replica} is named twice"),
                format!("nodes[1].id: {node} is named twice"),
                "holds[0].scope.pool: there is no pool none".to_owned(),
                "pools.all: no label makes a node one of it".to_owned(),
            ]
        );
    }

    #[test]
    fn unknown_fields_are_refused() {
        let gpu = serde_json::json!({"index": 0, "size": 1});
        let error = serde_json::from_value::<super::super::FleetGpu>(gpu).unwrap_err();
        assert!(
            error.to_string().contains("unknown field `size`"),
            "{error}"
        );
    }
}
