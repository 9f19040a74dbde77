//! The fleet once a plan was carried out.

use llmgw_core::id::ReplicaId;

use super::{PlacedShard, Placement, Plan, Wanted};
use crate::fleet::{Fleet, FleetReplica, GpuShare};

impl Plan {
    /// The fleet once all of this was done: what stops is gone, what was replaced is gone, what starts serves. New
    /// replicas have imagined ids.
    #[must_use]
    pub fn carried_out(&self, fleet: &Fleet, wanted: &Wanted) -> Fleet {
        let mut fleet = fleet.clone();
        let stops = self.stops.iter().map(|stop| stop.replica);
        let replaced = self
            .placements
            .iter()
            .filter_map(|placement| placement.replaces);
        let gone: Vec<ReplicaId> = stops.chain(replaced).collect();
        for node in &mut fleet.nodes {
            node.replicas.retain(|replica| !gone.contains(&replica.id));
        }
        let models = wanted.by_name();
        let mut number = first_free(&fleet);
        for placement in &self.placements {
            let profile = models
                .get(&placement.model)
                .and_then(|model| model.profile(&placement.profile));
            let Some(profile) = profile else { continue };
            let per_gpu = profile.needs.gpus.as_ref().and_then(|gpus| gpus.memory);
            let parts = parts(placement);
            for (rank, part) in (0..).zip(&parts) {
                let nodes = &mut fleet.nodes;
                let Some(node) = nodes.iter_mut().find(|node| node.id == part.node) else {
                    continue;
                };
                let shares = part.gpus.iter().map(|index| GpuShare {
                    index: *index,
                    memory: per_gpu,
                });
                node.replicas.push(FleetReplica {
                    cpu: profile.needs.cpu.unwrap_or_default(),
                    gpus: shares.collect(),
                    rank: (parts.len() > 1).then_some(rank),
                    ..FleetReplica::serving(
                        ReplicaId::imagined(number),
                        placement.model.clone(),
                        placement.memory,
                    )
                });
            }
            number += 1;
        }
        fleet
    }
}

/// The shards of a placement; of one without, itself.
fn parts(placement: &Placement) -> Vec<PlacedShard> {
    if !placement.shards.is_empty() {
        return placement.shards.clone();
    }
    vec![PlacedShard {
        node: placement.node,
        hostname: placement.hostname.clone(),
        gpus: placement.gpus.clone(),
    }]
}

/// The first number after those of all imagined replicas.
fn first_free(fleet: &Fleet) -> u64 {
    let replicas = fleet.nodes.iter().flat_map(|node| &node.replicas);
    let numbers = replicas.filter_map(|replica| u64::try_from(replica.id.as_uuid().as_u128()).ok());
    numbers.max().map_or(1, |highest| highest.saturating_add(1))
}
