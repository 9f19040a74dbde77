//! What a conductor is told.

use llmgw_core::{
    api::agent::NodeReport,
    cluster::{
        engine::WantedEngine,
        order::{Orders, StoredOrder, Subject},
        pool::Pools,
        weights::{Sha256Digest, WeightsOrders},
    },
    id::{ModelName, NodeId},
};

use super::{findings::Answered, snapshot::Entry};
use crate::{planner::policy::PolicyName, reconcile::Pacing};

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// An agent's session was opened; it takes the place of an earlier one.
    Opened {
        /// Whose.
        node: NodeId,
    },
    /// An agent's session has ended, and no other has taken its place. The node stays known.
    Closed {
        /// Whose.
        node: NodeId,
    },
    /// An agent said what is.
    Report {
        /// Who.
        node: NodeId,
        /// All that is, there.
        report: Box<NodeReport>,
    },
    /// This control plane leads again, with what the store holds.
    Leading {
        /// With this lease epoch.
        epoch: u64,
        /// The models of the store.
        entries: Vec<Entry>,
        /// The orders of the store.
        orders: Orders,
        /// Whether the epoch had to be raised above one that agents have followed.
        raised: bool,
    },
    /// A model was added to the store, or is defined otherwise there.
    Added {
        /// The model.
        entry: Box<Entry>,
    },
    /// A model was removed from the store.
    Removed {
        /// By its own name.
        model: ModelName,
    },
    /// A model's failures are forgiven.
    Retry {
        /// By its own name.
        model: ModelName,
    },
    /// What weights are was found out, or not.
    Found {
        /// What, of which model.
        answered: Box<Answered>,
    },
    /// Weights that no model refers to are to go.
    Collect {
        /// Which, where.
        orders: Vec<(NodeId, Sha256Digest)>,
    },
    /// An operator ordered something, and it is in the store.
    Ordered {
        /// What.
        order: Box<StoredOrder>,
    },
    /// An order was lifted, and is in the store no more.
    Lifted {
        /// Which.
        subject: Subject,
    },
    /// An operator says that the nodes that fell silent together are gone: what they ran is placed elsewhere.
    Thaw,
    /// Other terms hold: what files, command lines and the cluster's document say has changed.
    Terms {
        /// The models that are declared.
        entries: Vec<Entry>,
        /// The engines that nodes should have.
        engines: Vec<WantedEngine>,
        /// The pools of nodes.
        pools: Pools,
        /// How fast to follow what is asked for.
        pacing: Pacing,
        /// Which policy places.
        policy: PolicyName,
        /// What nodes are to do about weights.
        weights: Box<WeightsOrders>,
    },
    /// More is known of the releases of engines; what is not wanted so is passed over.
    Engines(Vec<WantedEngine>),
    /// A client asked for a model that nothing serves.
    Asked {
        /// By its own name.
        model: ModelName,
        /// What the answer is to be given to.
        ticket: Ticket,
    },
}

/// Whom an answer is for; the caller's own number.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ticket(pub u64);
