//! What each node was told last, and what it is told next.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use llmgw_core::{
    api::agent::DesiredState,
    cluster::{
        engine::WantedEngine,
        pool::{Labels, Pools},
        replica::ReplicaSpec,
        weights::WeightsOrders,
    },
    id::NodeId,
};

use super::{snapshot::Snapshot, weights};
use crate::reconcile::{ObservedNode, is_lost};

/// The sessions that are open, and the revision of the last order.
#[derive(Debug, Default)]
pub(super) struct Telling {
    revision: u64,
    sessions: BTreeMap<NodeId, Session>,
}

#[derive(Debug, Default)]
struct Session {
    /// Nothing is told to an agent before it has said what it runs.
    reported: bool,
    told: Option<Told>,
}

#[derive(Debug)]
struct Told {
    desired: Arc<DesiredState>,
    at: Duration,
}

impl Telling {
    pub(super) fn open(&mut self, node: NodeId) {
        self.sessions.insert(node, Session::default());
    }

    pub(super) fn close(&mut self, node: NodeId) {
        self.sessions.remove(&node);
    }

    /// Whether a node has a session and has said what it runs.
    #[cfg(feature = "sim")]
    pub(super) fn is_open(&self, node: NodeId) -> bool {
        self.sessions
            .get(&node)
            .is_some_and(|session| session.reported)
    }

    pub(super) fn heard(&mut self, node: NodeId) {
        if let Some(session) = self.sessions.get_mut(&node) {
            session.reported = true;
        }
    }

    /// The revision of the last order.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Whom to tell what. What a node was told before is told again only while it does not work towards that.
    pub(super) fn tell(
        &mut self,
        state: &mut Snapshot,
        engines: &[WantedEngine],
        epoch: u64,
        now: Duration,
    ) -> Vec<(NodeId, Arc<DesiredState>)> {
        let orders: BTreeMap<NodeId, WeightsOrders> = self
            .sessions
            .keys()
            .map(|node| (*node, weights::orders(state, *node)))
            .collect();
        let nodes = state.observed.nodes.iter();
        let lost: BTreeSet<NodeId> = nodes
            .filter(|(_, node)| is_lost(node, now))
            .map(|(id, _)| *id)
            .collect();
        let mut desired = Vec::new();
        for (node, session) in self
            .sessions
            .iter_mut()
            // A node that is lost has nothing assigned, and would end what it runs: it is told again when it is
            // heard, and what it runs has been taken back.
            .filter(|(node, session)| session.reported && !lost.contains(node))
        {
            let given = state
                .memory
                .assignments
                .values_mut()
                .filter(|given| given.node == *node);
            let mut given: Vec<_> = given.collect();
            let replicas: Vec<ReplicaSpec> = given
                .iter()
                .map(|given| ReplicaSpec::clone(&given.spec))
                .collect();
            let heard = state.observed.nodes.get(node);
            let engines = of_node(engines, &state.pools, heard);
            let told = session.told.as_mut().filter(|told| {
                let Told { desired, .. } = told;
                desired.epoch == epoch
                    && desired.engines == engines
                    && desired.replicas == replicas
                    && orders.get(node) == Some(&desired.weights)
            });
            if let Some(told) = told {
                // It did not arrive, or could not be followed then.
                let observed = state.observed.nodes.get(node);
                let behind = observed.is_some_and(|node| node.revision < told.desired.revision);
                if behind && now.saturating_sub(told.at) >= AGAIN {
                    told.at = now;
                    desired.push((*node, Arc::clone(&told.desired)));
                }
                continue;
            }
            self.revision += 1;
            for given in &mut given {
                given.revision.get_or_insert(self.revision);
            }
            let new = Arc::new(DesiredState {
                epoch,
                revision: self.revision,
                engines,
                replicas,
                weights: orders.get(node).cloned().unwrap_or_default(),
            });
            session.told = Some(Told {
                desired: Arc::clone(&new),
                at: now,
            });
            desired.push((*node, new));
        }
        desired
    }
}

/// The engines that a node should have.
fn of_node(
    engines: &[WantedEngine],
    pools: &Pools,
    node: Option<&Arc<ObservedNode>>,
) -> Vec<WantedEngine> {
    let unknown = Labels::new();
    let labels = node.map_or(&unknown, |node| &node.facts.labels);
    let own = engines.iter().filter(|one| one.is_for(pools, labels));
    own.cloned().collect()
}

/// Whom was told something and does not say after two reports and a while that it works towards that is told again.
const AGAIN: Duration = Duration::from_secs(5);
