//! How good a node is for a replica: less is better, compared field by field in this order.

use std::{cmp::Reverse, collections::BTreeMap};

use llmgw_core::{fingerprint::Fingerprint, id::NodeId};

use super::policy::Worth;

/// The score of a node that passed all checks.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Score {
    /// Replicas of the same model there, or, for a profile that packs, their negative: a node that fails should
    /// take as few of them along as possible.
    pub same_model: i64,
    /// Whether the weights have to be fetched first: minutes, where a start takes seconds. It comes before the policy's
    /// word, for no packing is worth minutes, and after that replicas keep apart, for two copies on one node fail
    /// together. A node that holds some files of a set and not all has to fetch; so has one whose agent does not say.
    pub fetches: bool,
    /// The policy's word, the best first.
    pub worth: Reverse<Worth>,
    /// Whether another replica is being started there: starts on a GPU wait for each other.
    pub waits: bool,
    /// A fixed hash of the node's id: equal nodes are not filled in file order.
    pub tie: u64,
    /// The id: the last word, should two hashes be equal.
    pub node: NodeId,
}

/// How ties between nodes are broken.
#[derive(Clone, Debug, Default)]
pub enum Ties {
    /// By a fixed hash of the node's id: always the same answer, and no order that anybody chose.
    #[default]
    HashOfId,
    /// By these ranks, the smallest first; for benchmarks that give an order. A node without one comes last.
    Rank(BTreeMap<NodeId, u64>),
}

// === impl Ties ===

impl Ties {
    pub(crate) fn of(&self, node: NodeId) -> u64 {
        match self {
            Self::HashOfId => mixed(Fingerprint::of_bytes(node.as_uuid().as_bytes()).0),
            Self::Rank(ranks) => ranks.get(&node).copied().unwrap_or(u64::MAX),
        }
    }
}

/// Spreads a hash over all of its bits: FNV leaves ids that differ in their last byte close to each other.
///
/// The finalizer of SplitMix64 (Steele, Lea, Flood; OOPSLA 2014).
fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
