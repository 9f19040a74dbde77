//! `plan(&Fleet, &Wanted) -> (Plan, reports)`: filter, score, place.
//!
//! Synchronous and deterministic: no clock, no random, and the order of the input changes nothing. New replicas
//! have no ids here; whoever carries a plan out mints them.
//!
//! | step | module |
//! |---|---|
//! | what a profile takes, and what a node has left | [`demand`], [`room`] |
//! | which nodes can't take it, and why | `filter` |
//! | how good the others are | [`score`], [`policy`], [`mix`] |
//! | the fleet while a plan is made | [`working`] |
//! | all shards of a replica at once | `gang` |
//! | what has to stop | `scale`, `evict` |
//! | the plan while it is made | `planning` |

mod carried_out;
pub mod demand;
pub(crate) mod evict;
pub(crate) mod filter;
pub(crate) mod gang;
pub mod mix;
mod planning;
pub mod policy;
pub mod room;
pub(crate) mod scale;
pub mod score;
pub mod sizes;
pub mod wanted;
pub mod working;

use std::{collections::BTreeSet, fmt, sync::Arc};

use llmgw_core::{
    cluster::catalog::Model,
    id::{ModelName, NodeId, ProfileName, ReplicaId},
    reason::Report,
    units::Bytes,
};
use serde::{Deserialize, Serialize};

pub use self::wanted::Wanted;
use self::{
    demand::{Classes, Demand},
    planning::Planning,
    policy::{PolicyName, Scale},
    score::Ties,
    sizes::Sizes,
    working::{Ask, Spot, Working},
};
use crate::{fleet::Fleet, report};

/// How to plan.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which policy scores nodes.
    pub policy: PolicyName,
    /// How ties are broken.
    pub ties: Ties,
    /// Replicas that were started on demand and that nobody asks to keep may be stopped for another model once they
    /// have been idle for so many seconds; absent: they may not.
    pub evict_after_seconds: Option<u64>,
    /// Models for which nothing is stopped: room is being made for them already.
    pub spared: BTreeSet<ModelName>,
    /// What is known of the weights of models, for remedies that ask for less memory.
    pub sizes: Arc<Sizes>,
}

/// What to do about it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Plan {
    /// Replicas to start, by model, then in the order in which they were placed.
    pub placements: Vec<Placement>,
    /// Replicas to stop, by model, the first to stop first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stops: Vec<Stop>,
}

/// A replica to start.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Placement {
    /// The model.
    pub model: ModelName,
    /// How to run it.
    pub profile: ProfileName,
    /// Where; of a replica with shards, where its first one goes.
    pub node: NodeId,
    /// What people call that node.
    pub hostname: String,
    /// What to reserve there of main memory.
    pub memory: Bytes,
    /// The numbers of the GPUs there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<u32>,
    /// All shards by rank, the first included; empty when it runs on one node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<PlacedShard>,
    /// The replica on a draining node whose place it takes: that one stops when this one is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<ReplicaId>,
    /// Replicas that have to end before there is room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<ReplicaId>,
    /// Whether another start on one of its GPUs has to end first. The room is kept for it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub waits: bool,
}

/// Where one shard goes.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct PlacedShard {
    /// Where.
    pub node: NodeId,
    /// What people call that node.
    pub hostname: String,
    /// The numbers of the GPUs there.
    pub gpus: Vec<u32>,
}

/// A replica to stop.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Stop {
    /// Which.
    pub replica: ReplicaId,
    /// Its model.
    pub model: ModelName,
    /// Where it runs.
    pub node: NodeId,
    /// Why.
    pub why: StopReason,
}

/// Why a replica is to stop.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Its model has more than it should.
    Surplus,
    /// Its node is draining, and others serve in its place.
    Drained,
    /// It is idle, and this model needs the room.
    RoomFor(ModelName),
}

/// Places what is wanted and not there yet, as [`Options::default`] says.
///
/// The reports are one for each model that lacks replicas, by name: of the trial that failed, or of the last that
/// succeeded.
#[must_use]
pub fn plan(fleet: &Fleet, wanted: &Wanted) -> (Plan, Vec<Report>) {
    plan_with(fleet, wanted, &Options::default())
}

/// Places what is wanted and not there yet, moves what is on draining nodes, and stops what is too much.
///
/// Models are taken by the size of their first profile, largest first, then by name: what is hardest to place
/// chooses first.
#[must_use]
pub fn plan_with(fleet: &Fleet, wanted: &Wanted, options: &Options) -> (Plan, Vec<Report>) {
    let fleet = &*fleet.in_order();
    let models = wanted.by_name();
    let mut working = begin(fleet, wanted, options);
    let mut planning = Planning {
        options,
        wanted: &models,
        plan: Plan::default(),
        reports: Vec::new(),
        stopping: BTreeSet::new(),
        waiting: Vec::new(),
    };
    let mut order: Vec<&Model> = models.values().copied().collect();
    order.sort_by_cached_key(|model| (std::cmp::Reverse(size(&mut working, model)), model.name()));
    for model in &order {
        planning.stop_surplus(&working, model);
    }
    for model in order {
        planning.place_missing(&mut working, model);
    }
    planning.report_waiting(&mut working);
    let Planning {
        mut plan,
        mut reports,
        ..
    } = planning;
    plan.placements.sort_by(|a, b| a.model.cmp(&b.model));
    plan.stops.sort_by(|a, b| a.model.cmp(&b.model));
    reports.sort_by(|a, b| a.model.cmp(&b.model));
    (plan, reports)
}

/// Tries to place one more replica of `model`, whatever runs already, and says where or why not.
#[must_use]
pub fn trial(fleet: &Fleet, model: &Model) -> Report {
    trial_with(fleet, model, &Options::default())
}

/// [`trial`] with options.
#[must_use]
pub fn trial_with(fleet: &Fleet, model: &Model, options: &Options) -> Report {
    let fleet = &*fleet.in_order();
    let wanted = Wanted {
        models: vec![model.clone()],
    };
    let mut working = begin(fleet, &wanted, options);
    let choice = choose(&mut working, model);
    let trial = Trial {
        model,
        replicas: 0,
        missing: 0,
        choice: choice.as_ref(),
        ahead: &[],
    };
    report::build(&mut working, trial, &options.sizes)
}

/// Why a model lacks replicas, or where one more could go.
///
/// A model that lacks some is judged within the plan of all models, where others may come before it; one that has
/// all is tried by itself. `None` when `wanted` has no such model.
#[must_use]
pub fn explain(
    fleet: &Fleet,
    wanted: &Wanted,
    model: &ModelName,
    options: &Options,
) -> Option<Report> {
    let asked = wanted.models.iter().find(|one| one.name() == model)?;
    let (_, reports) = plan_with(fleet, wanted, options);
    let lacking = reports.into_iter().find(|report| report.model == *model);
    Some(lacking.unwrap_or_else(|| trial_with(fleet, asked, options)))
}

/// Whether there is a place for one more replica of `model`.
#[must_use]
pub fn has_room(fleet: &Fleet, model: &Model, options: &Options) -> bool {
    let fleet = &fleet.sorted();
    let wanted = Wanted {
        models: vec![model.clone()],
    };
    let mut working = begin(fleet, &wanted, options);
    choose(&mut working, model).is_some()
}

/// The fleet as a plan begins with it.
pub(crate) fn begin<'f>(fleet: &'f Fleet, wanted: &Wanted, options: &Options) -> Working<'f> {
    let mut classes = Classes::default();
    let mix = wanted.mix(&mut classes);
    let policy = options.policy.policy(mix, Scale::of(fleet));
    Working::new(fleet, classes, policy, &options.ties)
}

/// A profile that fits, and the places of its parts by rank.
#[derive(Clone, Debug)]
pub(crate) struct Choice<'m> {
    pub(crate) model: &'m Model,
    pub(crate) ask: Ask<'m>,
    pub(crate) spots: Vec<Spot>,
}

/// The first profile that fits anywhere, at its best places.
pub(crate) fn choose<'m>(working: &mut Working<'_>, model: &'m Model) -> Option<Choice<'m>> {
    model.profiles().iter().find_map(|profile| {
        let ask = working.ask(Some(model), profile);
        let spots = gang::best(working, &ask)?;
        Some(Choice { model, ask, spots })
    })
}

/// A trial that a report is made of.
#[derive(Clone, Copy)]
pub(crate) struct Trial<'t> {
    pub(crate) model: &'t Model,
    /// Replicas that the model should have; none when one was only asked about.
    pub(crate) replicas: u32,
    /// Those that have no place, the one that was tried included.
    pub(crate) missing: u32,
    /// Where the one that was tried goes.
    pub(crate) choice: Option<&'t Choice<'t>>,
    /// Models that come first wherever room is made.
    pub(crate) ahead: &'t [Waiting<'t>],
}

/// A model that has found no place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting<'m> {
    pub(crate) model: &'m Model,
    /// Replicas that it lacks.
    pub(crate) missing: u32,
}

/// How hard a model is to place: shards, GPUs of each, whole before shared, GPU memory, main memory.
fn size(working: &mut Working<'_>, model: &Model) -> (u32, usize, bool, i64, i64) {
    let Some(profile) = model.profiles().first() else {
        return (0, 0, false, 0, 0);
    };
    let demand = Demand::of(profile, working.classes());
    (
        profile.needs.shards.map_or(1, |shards| shards.count),
        demand.gpus,
        demand.gpus > 0 && demand.per_gpu.is_none(),
        demand.per_gpu.unwrap_or(0),
        demand.memory,
    )
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Surplus => f.write_str("surplus"),
            Self::Drained => f.write_str("drained"),
            Self::RoomFor(model) => write!(f, "room for {model}"),
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(flag: &bool) -> bool {
    !*flag
}

#[cfg(test)]
mod tests;
