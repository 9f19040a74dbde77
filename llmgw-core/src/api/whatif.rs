//! What a change would do, before anything is done.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    cluster::catalog::ModelDefinition,
    id::{ModelName, NodeId, ProfileName, ReplicaId},
    reason::Report,
};

/// A question: what would these changes do, all together?
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WhatIf {
    /// The changes, in the order in which they are made.
    pub changes: Vec<Change>,
}

/// All that a plan is made from, as one file: what would be can then be asked elsewhere, and later.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// The name of the policy that places.
    pub policy: String,
    /// The nodes, what they have and what they run: the serial form of `llmgw_sched::fleet::Fleet`.
    pub fleet: serde_json::Value,
    /// What should run, by name.
    pub models: Vec<ModelDefinition>,
}

/// A change to try. Nodes are named by host name or id.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A model more.
    Add(Box<ModelDefinition>),
    /// A model with another definition.
    Edit(Box<ModelDefinition>),
    /// A model less.
    Remove(ModelName),
    /// A model with another number of replicas.
    #[serde(rename_all = "snake_case")]
    Scale {
        /// Which.
        model: ModelName,
        /// How many there should be.
        replicas: u32,
    },
    /// A node that is emptied.
    Drain(String),
    /// A node that fails.
    Lose(String),
    /// Nodes more, each like one that is there, and empty.
    #[serde(rename_all = "snake_case")]
    AddNodes {
        /// Which one they are like.
        like: String,
        /// How many.
        count: u32,
    },
}

/// What the changes would do.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Outcome {
    /// Replicas that end here and begin there.
    pub moves: Vec<Move>,
    /// Replicas that begin.
    pub starts: Vec<Start>,
    /// Replicas that end.
    pub stops: Vec<Stop>,
    /// Models that would lack replicas and don't now, with the reasons.
    pub unplaceable: Vec<Report>,
    /// Models that lack replicas now, and would still.
    pub lacking_already: Vec<ModelName>,
    /// Models that could have one more replica now, and could not then.
    pub last_slots: Vec<ModelName>,
}

/// A replica that begins.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Start {
    /// The model.
    pub model: ModelName,
    /// How it runs.
    pub profile: ProfileName,
    /// Where.
    pub node: NodeId,
    /// What people call that node.
    pub hostname: String,
    /// The numbers of the GPUs there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<u32>,
}

/// A replica that ends in one place and begins in another.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Move {
    /// The one that ends.
    pub replica: ReplicaId,
    /// What people call its node.
    pub origin: String,
    /// The one that begins.
    pub to: Start,
    /// Why.
    pub why: Why,
}

/// A replica that ends.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Stop {
    /// Which.
    pub replica: ReplicaId,
    /// What it serves.
    pub model: ModelName,
    /// What people call its node.
    pub hostname: String,
    /// Why.
    pub why: Why,
}

/// Why a replica ends.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Its model has more than it should.
    Surplus,
    /// Its model is gone.
    Removed,
    /// Its model is defined otherwise.
    Edited,
    /// Its node is draining.
    Drained,
    /// Its node has failed.
    Lost,
    /// It is idle, and another model needs the room.
    Evicted,
}

impl Outcome {
    /// Whether nothing would change.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        let Self {
            moves,
            starts,
            stops,
            unplaceable,
            lacking_already: _,
            last_slots,
        } = self;
        moves.is_empty()
            && starts.is_empty()
            && stops.is_empty()
            && unplaceable.is_empty()
            && last_slots.is_empty()
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Surplus => "surplus",
            Self::Removed => "removed",
            Self::Edited => "edited",
            Self::Drained => "drained",
            Self::Lost => "lost",
            Self::Evicted => "evicted",
        })
    }
}
