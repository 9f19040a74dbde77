//! Which replicas to stop when a model has more than it should, and when those of a draining node may end.

use std::cmp::Reverse;

use llmgw_core::{cluster::node::NodeState, id::ModelName};

use super::working::Working;
use crate::fleet::{FleetNode, FleetReplica, Phase};

/// The replicas of one model, by where they stand.
#[derive(Debug, Default)]
pub(crate) struct Standing<'f> {
    /// Those that stay, by the place of their node.
    pub(crate) kept: Vec<(usize, &'f FleetReplica)>,
    /// Those on nodes that are draining and not held, by id.
    pub(crate) leaving: Vec<(usize, &'f FleetReplica)>,
}

impl<'f> Standing<'f> {
    pub(crate) fn of(working: &Working<'f>, model: &ModelName) -> Self {
        let fleet = working.fleet();
        let mut standing = Self::default();
        for (index, node) in working.nodes.iter().enumerate() {
            let replicas = node.node.replicas.iter();
            for replica in replicas.filter(|replica| replica.model == *model && replica.counts()) {
                if moves_off(fleet.hold_on(node.node).is_some(), node.node) {
                    standing.leaving.push((index, replica));
                } else {
                    standing.kept.push((index, replica));
                }
            }
        }
        standing.leaving.sort_by_key(|(_, replica)| replica.id);
        standing
    }

    /// Those that serve and stay.
    pub(crate) fn ready(&self) -> usize {
        let ready = |(_, replica): &&(usize, &FleetReplica)| replica.phase == Phase::Ready;
        self.kept.iter().filter(ready).count()
    }

    /// The surplus over `wanted`, the first to stop first.
    pub(crate) fn surplus(
        &self,
        working: &Working<'f>,
        wanted: usize,
    ) -> Vec<(usize, &'f FleetReplica)> {
        let surplus = self.kept.len().saturating_sub(wanted);
        let mut kept = self.kept.clone();
        let mut stops = Vec::new();
        while stops.len() < surplus {
            // What stops changes what the others are worth, so each is chosen anew.
            let next = kept.iter().enumerate().min_by_key(|(_, (index, replica))| {
                let on_node = kept.iter().filter(|(other, _)| other == index).count();
                (
                    // One that does not serve yet is missed by nobody.
                    replica.phase == Phase::Ready,
                    // Then one of those that share a node.
                    Reverse(on_node),
                    // Then the one whose place suits it least, by the policy's word.
                    working.worth_of(*index, replica),
                    // Then the youngest.
                    Reverse(replica.id),
                )
            });
            let Some((at, _)) = next else { break };
            let (index, replica) = kept.swap_remove(at);
            stops.push((index, replica));
        }
        stops
    }
}

fn moves_off(is_held: bool, node: &FleetNode) -> bool {
    node.state == NodeState::Draining && !is_held
}
