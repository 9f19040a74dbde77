//! What is promised of the GPUs of a node, counted anew from what runs there and what was given to it.

use std::collections::BTreeMap;

use llmgw_core::{
    cluster::{
        catalog::{GpuNeed, Profile},
        node::{Gpu, NodeFacts},
        replica::ReplicaSpec,
    },
    units::Bytes,
};

/// What is promised of each GPU, by its number.
#[derive(Debug, Default)]
pub(super) struct Promised(BTreeMap<u32, Shares>);

/// What is promised of one of them.
#[derive(Clone, Copy, Debug, Default)]
struct Shares {
    sum: Bytes,
    /// Those who have it all.
    whole: u32,
    holders: u32,
}

/// A GPU of a simulated node.
pub(super) fn gpu(index: u32, memory: Bytes) -> Gpu {
    Gpu {
        index,
        vendor: "nvidia".to_owned(),
        memory_total: Some(memory),
        memory_others: Some(Bytes::ZERO),
        ..Gpu::default()
    }
}

impl Promised {
    pub(super) fn add(&mut self, spec: &ReplicaSpec) {
        let memory = need(&spec.profile).and_then(|need| need.memory);
        for index in &spec.gpus {
            let shares = self.0.entry(*index).or_default();
            shares.holders += 1;
            match memory {
                Some(memory) => shares.sum = shares.sum + memory,
                None => shares.whole += 1,
            }
        }
    }

    /// A GPU of which more is promised than it has.
    pub(super) fn too_much(&self, facts: &NodeFacts) -> Option<String> {
        self.0.iter().find_map(|(index, shares)| {
            let has = memory(facts, *index)?;
            let shared_and_whole = shares.whole > 0 && shares.holders > 1;
            (shared_and_whole || shares.sum > has)
                .then(|| format!("{shares:?} is promised of GPU {index}, which has {has}"))
        })
    }

    /// Whether there is room for one more with this profile.
    pub(super) fn has_room(&self, facts: &NodeFacts, profile: &Profile) -> bool {
        let Some(need) = need(profile) else {
            return true;
        };
        let gpus = facts.gpus.iter().flatten();
        let able = gpus.filter(|gpu| {
            let shares = self.0.get(&gpu.index).copied().unwrap_or_default();
            match need.memory {
                None => shares.holders == 0,
                Some(memory) => {
                    let has = gpu.memory_usable().unwrap_or(Bytes::ZERO);
                    shares.whole == 0 && shares.sum + memory <= has
                }
            }
        });
        u32::try_from(able.count()).is_ok_and(|able| able >= need.count)
    }
}

fn need(profile: &Profile) -> Option<&GpuNeed> {
    profile.needs.gpus.as_ref()
}

fn memory(facts: &NodeFacts, index: u32) -> Option<Bytes> {
    let mut gpus = facts.gpus.iter().flatten();
    gpus.find(|gpu| gpu.index == index)?.memory_usable()
}
