//! What a step decides.

use std::collections::BTreeSet;

use llmgw_core::{
    api::decision::{RollEnd, ScaleReason},
    cluster::{order::Parked, replica::ReplicaSpec},
    id::{ModelName, NodeId, ProfileName, ReplicaId},
};

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Take a running replica over.
    Adopt {
        /// What runs.
        spec: Box<ReplicaSpec>,
        /// Where.
        node: NodeId,
    },
    /// Give a node a new replica.
    Place {
        /// The model.
        model: ModelName,
        /// How to run it.
        profile: ProfileName,
        /// Where.
        node: NodeId,
        /// The numbers of its GPUs there.
        gpus: Vec<u32>,
    },
    /// Send it no new calls.
    Drain {
        /// The replica.
        replica: ReplicaId,
        /// Why.
        why: Why,
    },
    /// Send it calls again: it is missed.
    Keep {
        /// The replica.
        replica: ReplicaId,
    },
    /// End it.
    Stop {
        /// The replica.
        replica: ReplicaId,
        /// Why.
        why: Why,
    },
    /// It failed: let go of it and count the failure.
    Fail {
        /// The replica.
        replica: ReplicaId,
        /// What went wrong.
        error: String,
        /// The last lines of its log.
        log_tail: Vec<String>,
    },
    /// It is out of reach: let go of it without counting a failure.
    Forget {
        /// The replica.
        replica: ReplicaId,
        /// Why.
        why: Why,
    },
    /// A model has run well for a while: forget its failures.
    Absolve {
        /// The model.
        model: ModelName,
    },
    /// A model should have more or fewer replicas than before.
    Scale {
        /// The model.
        model: ModelName,
        /// How many it should have had.
        from: u32,
        /// How many it should have.
        to: u32,
        /// Why.
        why: ScaleReason,
    },
    /// A model failed too often: have that written down as [`Order::Park`](llmgw_core::cluster::order::Order::Park).
    Park {
        /// The model.
        model: ModelName,
        /// How it came to that.
        parked: Parked,
    },
    /// A parked model is defined otherwise now, or is gone: have its order lifted.
    Unpark {
        /// The model.
        model: ModelName,
    },
    /// A model was parked before this control plane led: remember that.
    Recall {
        /// The model.
        model: ModelName,
        /// How it came to that.
        parked: Parked,
    },
    /// A roll that was ordered begins.
    BeginRoll {
        /// The model.
        model: ModelName,
        /// Which roll of the model.
        number: u64,
    },
    /// A roll is over: have its order lifted.
    EndRoll {
        /// The model.
        model: ModelName,
        /// Which roll of the model.
        number: u64,
        /// How it ended.
        ended: RollEnd,
    },
    /// Too many nodes are silent: move nothing.
    Freeze {
        /// Those that are silent.
        silent: BTreeSet<NodeId>,
        /// How many nodes there are, those included.
        of: usize,
    },
    /// Enough nodes are heard again.
    Thaw,
    /// Tell in the log that a model is not placed, and why.
    Warn {
        /// The model.
        model: ModelName,
        /// The reason, in one line.
        reason: String,
    },
}

/// Why a replica leaves.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Why {
    /// Its model was removed.
    ModelRemoved,
    /// The model has more replicas than it should.
    Surplus,
    /// The model is switched off.
    SwitchedOff,
    /// Nobody has asked for the model for a while.
    Idle,
    /// The model has less load than its replicas are for.
    LessLoad,
    /// Its node is draining, and others serve in its place.
    Moved,
    /// A replica of the model's new definition serves in its place.
    Rolled,
    /// Its node is draining, there is no room for it elsewhere, and an operator forced it to go.
    MovedByForce,
    /// Its model is rolled, there is no room for its successor beside it, and an operator forced it to go.
    RolledByForce,
    /// It is of a new definition that does not work.
    BackedOut,
    /// This model needs the room.
    RoomFor(ModelName),
    /// Its node is not heard.
    NodeLost,
    /// Its node no longer knows it.
    Vanished,
    /// Its agent was told to end, and ended it.
    AgentEnded,
}
