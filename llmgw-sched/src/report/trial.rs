//! Tries changes for one model, on what the plan has left of the fleet.

use llmgw_core::{
    cluster::catalog::{Model, Profile},
    id::{ModelName, ReplicaId},
    reason::{Check, Fit, Rejection},
    units::Cores,
};

use super::distance;
use crate::{
    fleet::{Fleet, FleetNode, FleetReplica, GpuShare, Phase},
    planner::{
        Options, Waiting, Wanted, begin, choose, gang,
        policy::PolicyName,
        room::{Room, amount},
        sizes::Sizes,
        working::{Ask, Working},
    },
};

/// A model that fits nowhere, and why.
pub(super) struct Trials<'t, 'f> {
    pub(super) working: &'t Working<'f>,
    pub(super) model: &'t Model,
    /// Those that have found no place either and choose first.
    pub(super) ahead: &'t [Waiting<'t>],
    pub(super) rejections: &'t [Rejection],
    pub(super) sizes: &'t Sizes,
}

/// A node and a profile that a change of one kind might bring together.
#[derive(Clone, Copy)]
pub(super) struct Candidate<'t> {
    pub(super) index: usize,
    pub(super) profile: &'t Profile,
    pub(super) rejection: &'t Rejection,
}

impl<'t, 'f> Trials<'t, 'f> {
    /// The nearest misses that lack nothing but these checks.
    pub(super) fn lacking(&self, checks: &[Check]) -> Vec<Candidate<'t>> {
        let only = |rejection: &&Rejection| {
            let mut reasons = rejection.reasons.iter();
            // With shards, the others find no place for the same reason.
            reasons.all(|reason| {
                checks.contains(&reason.check)
                    || (self.is_sharded() && reason.check == Check::Shards)
            })
        };
        let mut near: Vec<&Rejection> = self.rejections.iter().filter(only).collect();
        near.sort_by_cached_key(|rejection| distance(rejection));
        let nodes = &self.working.fleet().nodes;
        near.into_iter()
            .filter_map(|rejection| {
                let index = nodes.binary_search_by_key(&rejection.node, |node| node.id);
                Some(Candidate {
                    index: index.ok()?,
                    profile: self.model.profile(&rejection.profile)?,
                    rejection,
                })
            })
            .take(MOST_TRIED)
            .collect()
    }

    fn is_sharded(&self) -> bool {
        let mut profiles = self.model.profiles().iter();
        profiles.any(|profile| profile.needs.shards.is_some())
    }

    /// A node with what this plan has taken of it so far.
    pub(super) fn node(&self, index: usize) -> Option<FleetNode> {
        let working = self.working.nodes.get(index)?;
        let mut node = working.node.clone();
        node.disk_free = working.disk.map(amount);
        let alone = Fleet {
            nodes: vec![working.node.clone()],
            ..Fleet::default()
        };
        let before = plainly(&alone);
        let (before, now) = (before.room(0)?, self.working.room(index)?);
        let holder = taken(&node, before, now, self.model.name());
        node.replicas.extend(holder);
        Some(node)
    }

    /// Where the model goes with this profile once a node is like this. Nothing else has changed, so no other node
    /// is looked at unless its shards need several.
    pub(super) fn with_node(&self, changed: FleetNode, profile: &Profile) -> Option<Fit> {
        self.with(changed, profile, |_| {})
    }

    /// The same in a fleet that was changed otherwise too.
    pub(super) fn with(
        &self,
        changed: FleetNode,
        profile: &Profile,
        change: impl FnOnce(&mut Fleet),
    ) -> Option<Fit> {
        let whole = self.working.fleet();
        let mut nodes = Vec::new();
        let mut ahead = self
            .ahead
            .iter()
            .flat_map(|waiting| waiting.model.profiles());
        let is_sharded = |profile: &Profile| profile.needs.shards.is_some();
        if is_sharded(profile) || ahead.any(is_sharded) {
            for index in 0..whole.nodes.len() {
                nodes.extend(self.node(index).filter(|node| node.id != changed.id));
            }
        }
        nodes.push(changed);
        nodes.sort_by_key(|node| node.id);
        let mut fleet = Fleet {
            nodes,
            pools: whole.pools.clone(),
            holds: whole.holds.clone(),
        };
        change(&mut fleet);
        let mut working = plainly(&fleet);
        self.place_ahead(&mut working);
        let ask = working.ask(Some(self.model), profile);
        let spots = gang::best(&mut working, &ask)?;
        let node = working.nodes.get(spots.first()?.node)?.node;
        Some(Fit {
            node: node.id,
            hostname: node.hostname.clone(),
            profile: profile.name.clone(),
        })
    }

    /// Gives those that choose first what they find room for now.
    fn place_ahead(&self, working: &mut Working<'_>) {
        for waiting in self.ahead {
            for _ in 0..waiting.missing {
                let Some(choice) = choose(working, waiting.model) else {
                    break;
                };
                for (rank, spot) in (0u32..).zip(&choice.spots) {
                    let part = Ask {
                        rank,
                        ..choice.ask.clone()
                    };
                    working.take(&part, *spot, Phase::Starting);
                }
            }
        }
    }
}

/// A fleet to try on. Which place is best plays no part, so the plainest policy does.
fn plainly(fleet: &Fleet) -> Working<'_> {
    let options = Options {
        policy: PolicyName::BestFit,
        ..Options::default()
    };
    begin(fleet, &Wanted::default(), &options)
}

/// What was taken of a node since, as one replica that holds it and counts for no model.
fn taken(node: &FleetNode, before: &Room, now: &Room, model: &ModelName) -> Option<FleetReplica> {
    if before == now {
        return None;
    }
    let less = |before: Option<i64>, now: Option<i64>| {
        let taken = before.unwrap_or(0).saturating_sub(now.unwrap_or(0));
        amount(taken)
    };
    let gpus = node.gpus.iter().flatten();
    let slots = before.slots().iter().zip(now.slots());
    let shares = gpus.zip(slots).filter(|(_, (a, b))| a.holders < b.holders);
    let shares = shares.map(|(gpu, (a, b))| GpuShare {
        index: gpu.index,
        memory: gpu
            .memory
            .map(|_| amount(b.promised.saturating_sub(a.promised))),
    });
    let memory = less(before.memory, now.memory);
    let id = ReplicaId::from_uuid(node.id.as_uuid());
    Some(FleetReplica {
        cpu: Cores(less(before.cpu, now.cpu).0),
        gpus: shares.collect(),
        rank: Some(1),
        ..FleetReplica::serving(id, model.clone(), memory)
    })
}

/// Nodes that are tried for one kind of change, the nearest first: an explanation stays quick in a large fleet.
const MOST_TRIED: usize = 16;
