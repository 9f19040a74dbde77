//! What is missing is placed, and room is made for it where that is allowed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use llmgw_core::{
    cluster::catalog::Model,
    id::{ModelName, NodeId},
    reason::{Report, render},
};

use super::{Action, Inputs, Why, scene::Scene};
use crate::{
    fleet::Phase,
    planner::{Options, StopReason, has_room, plan_with},
};

/// Places what is missing. What must end first for it is told to go, and the place is taken once it has.
pub(super) fn place(
    scene: &Scene<'_>,
    inputs: &Inputs,
    options: &Options,
) -> (Vec<Action>, BTreeMap<ModelName, Report>) {
    let (plan, reports) = plan_with(&inputs.fleet, &inputs.wanted, options);
    // What room is left over there is free only once they have ended, like the room that they make.
    let emptied: BTreeSet<NodeId> = plan
        .stops
        .iter()
        .filter(|stop| matches!(stop.why, StopReason::RoomFor(_)))
        .filter_map(|stop| Some(scene.memory.assignments.get(&stop.replica)?.node))
        .collect();
    let stops = plan.stops.into_iter().filter_map(|stop| match stop.why {
        StopReason::RoomFor(model) => Some(Action::Drain {
            replica: stop.replica,
            why: Why::RoomFor(model),
        }),
        // What is too much, or is served for elsewhere, has been told to go before.
        StopReason::Surplus | StopReason::Drained => None,
    });
    // What waits for another start on its GPU is placed once that has ended; until then its room is not given away,
    // for a plan is made anew from the same models in the same order. No agent starts shards yet.
    let starts = plan.placements.into_iter().filter(|placement| {
        !placement.waits
            && placement.shards.is_empty()
            && placement.after.is_empty()
            && !emptied.contains(&placement.node)
            && (placement.replaces.is_none() || scene.may_move())
    });
    let starts = starts.map(|placement| Action::Place {
        model: placement.model,
        profile: placement.profile,
        node: placement.node,
        gpus: placement.gpus,
    });
    let reports = reports
        .into_iter()
        .map(|report| (report.model.clone(), report));
    (stops.chain(starts).collect(), reports.collect())
}

/// The models on demand that have found no place, and would have one if others that run on demand made room for them.
pub(super) fn turns(
    scene: &Scene<'_>,
    inputs: &Inputs,
    options: &Options,
    reports: &BTreeMap<ModelName, Report>,
) -> BTreeSet<ModelName> {
    let waits = |report: &&Report| report.fits.is_none() && report.pending.is_none();
    let models = reports.values().filter(waits).filter_map(|report| {
        let model = scene.intent.models.get(&report.model)?;
        model.scaling().is_on_demand().then_some(model)
    });
    let mut models = models.peekable();
    if models.peek().is_none() {
        return BTreeSet::new();
    }
    let on_demand = |name: &ModelName| {
        let model = scene.intent.models.get(name);
        model.is_some_and(|model| model.scaling().is_on_demand())
    };
    let fits = |model: &&Model| {
        let mut fleet = inputs.fleet.clone();
        for node in &mut fleet.nodes {
            node.replicas.retain(|replica| {
                replica.phase != Phase::Leaving
                    && (replica.model == *model.name() || !on_demand(&replica.model))
            });
        }
        has_room(&fleet, model, options)
    };
    let waiting = models.filter(fits);
    waiting.map(|model| model.name().clone()).collect()
}

/// Has it told in the log that models are not placed: when the reason changes, and every ten minutes. What passes by
/// itself, such as an engine that is being installed, is no cause for a warning.
pub(super) fn warn(
    scene: &Scene<'_>,
    reports: &BTreeMap<ModelName, Report>,
    turns: &BTreeSet<ModelName>,
) -> Vec<Action> {
    let lasting = reports.values().filter(|report| {
        !turns.contains(&report.model)
            && report.fits.is_none()
            && report.pending.is_none()
            && report.nodes > 0
            && report.missing > 0
    });
    let warnings = lasting.filter_map(|report| {
        let reason = render::headline(report);
        let told = scene.memory.warned.get(&report.model);
        let again = told.is_none_or(|(known, at)| {
            *known != reason && changed(known, &reason)
                || scene.now.saturating_sub(*at) >= WARN_AGAIN
        });
        again.then(|| Action::Warn {
            model: report.model.clone(),
            reason,
        })
    });
    warnings.collect()
}

/// Whether a reason is another, and not the same with other numbers: what is free changes all the time.
fn changed(known: &str, reason: &str) -> bool {
    let words = |text: &str| {
        let words = text.split(|c: char| c.is_ascii_digit() || c == '.');
        words.collect::<String>()
    };
    words(known) != words(reason)
}

const WARN_AGAIN: Duration = Duration::from_secs(600);
