//! What follows from a step.

use std::sync::Arc;

use llmgw_core::{
    api::agent::DesiredState,
    cluster::order::{StoredOrder, Subject},
    id::NodeId,
    route::{ModelRoute, Waiting},
};

use super::event::Ticket;
use crate::reconcile::Action;

/// What the owner of a conductor is to do after a step.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// What nodes are to be told. The last one of a node counts; those before it need not be sent.
    pub desired: Vec<(NodeId, Arc<DesiredState>)>,
    /// What the gateway routes by from now on; absent when nothing has changed.
    pub routes: Option<Vec<ModelRoute>>,
    /// What models wait for, for those who asked; absent for one that is served or not known.
    pub answers: Vec<(Ticket, Option<Waiting>)>,
    /// The highest epoch that an agent has followed, where that agent follows no order of this conductor.
    pub outranked: Option<u64>,
    /// What the loop orders or lifts by itself, such as parking: to be written to the store, so that the next one to
    /// lead finds it. It holds already.
    pub orders: Vec<OwnOrder>,
    /// What is worth a line in the log, in order.
    pub notes: Vec<Note>,
}

/// An order of the loop's own.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OwnOrder {
    /// This stands from now on.
    Put(StoredOrder),
    /// This stands no more.
    Lift(Subject),
}

/// Something worth a line in the log.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// It did something.
    Acted(Action),
    /// A node says that it has followed an epoch that can't be.
    ImpossibleEpoch {
        /// Who.
        node: NodeId,
        /// What it says.
        highest_epoch: u64,
    },
}
