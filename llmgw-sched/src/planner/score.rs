//! How good a node is for a replica: less is better, compared field by field in this order.

use llmgw_core::{
    cluster::catalog::{Model, Profile},
    fingerprint::Fingerprint,
    id::NodeId,
    units::Bytes,
};

use super::WorkingNode;

/// The score of a node that passed all checks.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Score {
    /// Replicas of the same model there: a node that fails should take as few of them along as possible.
    same_model: u64,
    /// Memory left there afterwards: the tightest fit keeps room elsewhere for what is larger.
    left_over: Bytes,
    /// A fixed hash of the node's id: equal nodes are not filled in file order.
    tie: Fingerprint,
    /// The id: the last word, should two hashes be equal.
    node: NodeId,
}

impl Score {
    pub(crate) fn of(node: &WorkingNode<'_>, model: &Model, profile: &Profile) -> Self {
        let id = node.node.id;
        Self {
            same_model: node.count(model.name()),
            left_over: node.memory_free.unwrap_or(Bytes::ZERO) - profile.memory,
            tie: Fingerprint::of_bytes(id.as_uuid().as_bytes()),
            node: id,
        }
    }
}
