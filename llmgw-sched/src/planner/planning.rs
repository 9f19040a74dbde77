//! A plan while it is made, model by model.

use std::collections::{BTreeMap, BTreeSet};

use llmgw_core::{
    cluster::catalog::Model,
    id::{ModelName, ReplicaId},
    reason::Report,
};

use super::{
    Choice, Options, PlacedShard, Placement, Plan, Stop, StopReason, Trial, Waiting, choose,
    evict::{self, Evictable},
    scale::Standing,
    working::{Ask, Working},
};
use crate::{
    fleet::{FleetReplica, Phase},
    report,
};

/// A plan while it is made.
pub(super) struct Planning<'p> {
    pub(super) options: &'p Options,
    pub(super) wanted: &'p BTreeMap<&'p ModelName, &'p Model>,
    pub(super) plan: Plan,
    pub(super) reports: Vec<Report>,
    pub(super) stopping: BTreeSet<ReplicaId>,
    pub(super) waiting: Vec<Waiting<'p>>,
}

impl<'p> Planning<'p> {
    /// Stops what a model has too much of, and what on draining nodes is served for elsewhere.
    pub(super) fn stop_surplus(&mut self, working: &Working<'_>, model: &Model) {
        let wanted = usize::try_from(model.replicas()).unwrap_or(usize::MAX);
        let standing = Standing::of(working, model.name());
        let surplus = standing.surplus(working, wanted);
        let surplus = surplus.into_iter().map(|stop| (stop, StopReason::Surplus));
        let drained = standing.leaving.iter().copied();
        let drained = drained
            .filter(|_| standing.ready() >= wanted)
            .map(|stop| (stop, StopReason::Drained));
        for ((index, replica), why) in surplus.chain(drained) {
            self.stop(working, index, replica, why);
        }
    }

    fn stop(
        &mut self,
        working: &Working<'_>,
        index: usize,
        replica: &FleetReplica,
        why: StopReason,
    ) {
        let Some(node) = working.nodes.get(index) else {
            return;
        };
        self.stopping.insert(replica.id);
        self.plan.stops.push(Stop {
            replica: replica.id,
            model: replica.model.clone(),
            node: node.node.id,
            why,
        });
    }

    /// Places what a model lacks: first what is not there at all, then what is on draining nodes.
    pub(super) fn place_missing(&mut self, working: &mut Working<'_>, model: &'p Model) {
        let standing = Standing::of(working, model.name());
        let wanted = usize::try_from(model.replicas()).unwrap_or(usize::MAX);
        let missing = wanted.saturating_sub(standing.kept.len());
        let absent = missing.saturating_sub(standing.leaving.len());
        for trial in 0..missing {
            let moved = trial
                .checked_sub(absent)
                .and_then(|at| standing.leaving.get(at));
            let replaces = moved.map(|(_, replica)| replica.id);
            let mut choice = choose(working, model);
            let mut after = Vec::new();
            if choice.is_none()
                && let Some((made, stopped)) = self.make_room(working, model)
            {
                choice = Some(made);
                after = stopped;
            }
            let Some(choice) = choice else {
                let missing = u32::try_from(missing - trial).unwrap_or(u32::MAX);
                self.waiting.push(Waiting { model, missing });
                break;
            };
            if trial + 1 == missing {
                let trial = Trial {
                    model,
                    replicas: model.replicas(),
                    missing: 0,
                    choice: Some(&choice),
                    ahead: &[],
                };
                let report = report::build(working, trial, &self.options.sizes);
                self.reports.push(report);
            }
            let Some(mut placement) = place(working, &choice) else {
                break;
            };
            placement.replaces = replaces;
            placement.after = after;
            self.plan.placements.push(placement);
        }
    }

    /// Says why models have found no place, when all others have theirs: what those took is not offered.
    pub(super) fn report_waiting(&mut self, working: &mut Working<'_>) {
        for (at, waiting) in self.waiting.iter().enumerate() {
            let trial = Trial {
                model: waiting.model,
                replicas: waiting.model.replicas(),
                missing: waiting.missing,
                choice: None,
                ahead: self.waiting.get(..at).unwrap_or_default(),
            };
            let report = report::build(working, trial, &self.options.sizes);
            self.reports.push(report);
        }
    }

    /// Stops idle replicas for a model, where that is allowed and helps.
    fn make_room<'m>(
        &mut self,
        working: &mut Working<'_>,
        model: &'m Model,
    ) -> Option<(Choice<'m>, Vec<ReplicaId>)> {
        let idle_seconds = self.options.evict_after_seconds?;
        if self.options.spared.contains(model.name()) {
            return None;
        }
        model.profiles().iter().find_map(|profile| {
            let ask = working.ask(Some(model), profile);
            let evictable = Evictable {
                idle_seconds,
                spared: &self.stopping,
                wanted: self.wanted,
            };
            let (spot, victims) = evict::make_room(working, &ask, evictable)?;
            for victim in &victims {
                let found: Vec<_> = working.find(*victim).collect();
                for (index, replica) in found {
                    working.release(index, replica);
                    let why = StopReason::RoomFor(model.name().clone());
                    self.stop(working, index, replica, why);
                }
            }
            let choice = Choice {
                model,
                ask,
                spots: vec![spot],
            };
            Some((choice, victims))
        })
    }
}

/// Takes the places of a choice.
fn place(working: &mut Working<'_>, choice: &Choice<'_>) -> Option<Placement> {
    let Choice { model, ask, spots } = choice;
    let waits = spots.iter().any(|spot| working.waits(*spot));
    let mut parts = Vec::new();
    for (rank, spot) in spots.iter().enumerate() {
        let node = working.nodes.get(spot.node)?.node;
        parts.push(PlacedShard {
            node: node.id,
            hostname: node.hostname.clone(),
            gpus: working.gpu_numbers(*spot),
        });
        let part = Ask {
            rank: u32::try_from(rank).unwrap_or(u32::MAX),
            ..ask.clone()
        };
        working.take(&part, *spot, Phase::Starting);
    }
    let first = parts.first()?.clone();
    let is_sharded = ask.profile.needs.shards.is_some();
    Some(Placement {
        model: model.name().clone(),
        profile: ask.profile.name.clone(),
        node: first.node,
        hostname: first.hostname,
        memory: ask.profile.memory,
        gpus: first.gpus,
        shards: if is_sharded { parts } else { Vec::new() },
        replaces: None,
        after: Vec::new(),
        waits,
    })
}
