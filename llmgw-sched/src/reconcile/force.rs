//! What an operator has forced to go stops though nothing serves in its place, once it is known that its successor has no
//! room. Where there is room, it goes as everything does: the successor serves first.

use std::collections::{BTreeMap, BTreeSet};

use llmgw_core::{
    cluster::catalog::Model,
    id::{ModelName, ReplicaId},
    reason::Report,
};

use super::{
    Action, Why,
    roll::next_by_force,
    scene::{Given, Scene},
};

/// Sends no new calls to what is forced to go and was found no room for, by the trials of this step.
pub(super) fn force(
    scene: &Scene<'_>,
    placements: &[Action],
    reports: &BTreeMap<ModelName, Report>,
    turns: &BTreeSet<ModelName>,
) -> Vec<Action> {
    if !scene.may_move() {
        return Vec::new();
    }
    let mut actions = Vec::new();
    for model in scene.intent.models.values() {
        let name = model.name();
        // What waits for something that passes, or for its turn, has room soon.
        let report = reports.get(name).filter(|report| {
            let is_made = scene.memory.room.values().any(|other| other == name);
            report.fits.is_none() && report.pending.is_none() && !turns.contains(name) && !is_made
        });
        let moved = forced_to_move(scene, model, report);
        let is_moved = !moved.is_empty();
        actions.extend(moved.into_iter().map(|replica| Action::Drain {
            replica,
            why: Why::MovedByForce,
        }));
        // What starts now takes the room that the last one left, and must serve before the next one goes.
        let starts =
            |action: &Action| matches!(action, Action::Place { model, .. } if model == name);
        let rolled = report.filter(|_| !is_moved && !placements.iter().any(starts));
        let rolled = rolled.and_then(|_| next_by_force(scene, model));
        actions.extend(rolled.map(|replica| Action::Drain {
            replica,
            why: Why::RolledByForce,
        }));
    }
    actions
}

/// Those on nodes whose drain is forced, as many as find no place elsewhere: those first that are missed least.
fn forced_to_move(scene: &Scene<'_>, model: &Model, report: Option<&Report>) -> Vec<ReplicaId> {
    let places = scene.places(scene.of_model(model.name()));
    let mut forced: Vec<Given<'_>> = places.leaving;
    forced.retain(|(_, given)| scene.must_go(given.node));
    if forced.is_empty() {
        return Vec::new();
    }
    let lacking = scene.target(model).saturating_sub(places.kept.len());
    let history = scene.memory.histories.get(model.name());
    let homeless = match report {
        Some(report) => usize::try_from(report.missing).unwrap_or(usize::MAX),
        // Of a parked model nothing is started anywhere.
        None if history.is_some_and(|history| history.parked) => lacking,
        None => 0,
    };
    forced.sort_by_key(|given| (scene.is_ready(*given), scene.is_busy(given.0), given.0));
    let forced = forced.into_iter().take(homeless.min(lacking));
    forced.map(|(replica, _)| replica).collect()
}
