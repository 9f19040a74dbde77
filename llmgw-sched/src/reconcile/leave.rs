//! What is not wanted any more drains, and stops; what is missed again is kept.

use std::time::Duration;

use llmgw_core::{api::decision::ScaleReason, cluster::catalog::Model, id::ReplicaId};

use super::{
    Action, Assignment, Why, demand,
    scene::{Given, Places, Scene},
};

/// Sends no new calls to what is too much, and to what others serve in the place of.
pub(super) fn drain(scene: &Scene<'_>) -> Vec<Action> {
    // Agents that ran on may not all have been heard: what looks like too much may be all there is.
    if !scene.is_settled() {
        return Vec::new();
    }
    let mut actions = Vec::new();
    for (name, replicas) in scene.by_model() {
        let Some(model) = scene.intent.models.get(name) else {
            let drained = replicas.into_iter();
            actions.extend(drained.map(|(replica, _)| Action::Drain {
                replica,
                why: Why::ModelRemoved,
            }));
            continue;
        };
        let Places {
            mut kept,
            mut leaving,
        } = scene.places(replicas);
        let target = scene.target(model);
        if target == 0 {
            // Nothing is to serve in the place of those on draining nodes.
            kept.append(&mut leaving);
        }
        let ready = kept.iter().filter(|given| scene.is_ready(**given)).count();
        actions.extend(surplus(scene, model, kept));
        if scene.memory.frozen.is_none() {
            actions.extend(moved(scene, leaving, target.saturating_sub(ready)));
        }
    }
    actions
}

/// What is too much of a model, where it may stay: what is beyond the most that it may have, in any case; and what it has
/// no work for, as far as that may go.
fn surplus(scene: &Scene<'_>, model: &Model, mut kept: Vec<Given<'_>>) -> Vec<Action> {
    let wants = scene.wants(model);
    let surplus = kept.len().saturating_sub(wants);
    if surplus == 0 {
        return Vec::new();
    }
    // One that does not serve is missed by nobody; then one whose definition has changed, one where moves are not
    // held, one that is idle; then the youngest.
    kept.sort_by_key(|given| {
        (
            scene.is_ready(*given),
            !scene.is_stale(given.1),
            scene.is_held(given.1.node),
            scene.is_busy(given.0),
            std::cmp::Reverse(given.0),
        )
    });
    let drain = |why: Why| {
        move |(replica, _): Given<'_>| Action::Drain {
            replica,
            why: why.clone(),
        }
    };
    let scaling = model.scaling();
    if !demand::follows_load(model) {
        let why = if scaling.is_off() {
            Why::SwitchedOff
        } else {
            Why::Surplus
        };
        return kept.into_iter().take(surplus).map(drain(why)).collect();
    }
    let most = usize::try_from(scaling.max()).unwrap_or(usize::MAX);
    let beyond = kept.len().saturating_sub(most).min(surplus);
    let mut idle = kept.split_off(beyond);
    let beyond = kept.into_iter().map(drain(Why::Surplus));
    if !scene.may_move() {
        return beyond.collect();
    }
    let reason = scene.memory.demands.get(model.name());
    let why = match reason.and_then(|demand| demand.reason.as_ref()) {
        Some(ScaleReason::Idle { .. }) => Why::Idle,
        // None is to be left: its scaling was changed since its load fell.
        _ if wants == 0 => Why::Idle,
        _ => Why::LessLoad,
    };
    // What leaves for want of work is never one that works or is on its way up.
    idle.retain(|given| scene.is_ready(*given));
    let too_much = idle.len().saturating_sub(wants);
    idle.retain(|given| !scene.is_busy(given.0));
    let idle = idle.into_iter().take(too_much).map(drain(why));
    beyond.chain(idle).collect()
}

/// What on draining nodes is served for elsewhere by now: all but so many.
fn moved(scene: &Scene<'_>, mut leaving: Vec<Given<'_>>, needed: usize) -> Vec<Action> {
    leaving.sort_by_key(|given| (scene.is_ready(*given), scene.is_busy(given.0), given.0));
    let drained = leaving.len().saturating_sub(needed);
    let drained = leaving.into_iter().take(drained);
    let drained = drained.map(|(replica, _)| Action::Drain {
        replica,
        why: Why::Moved,
    });
    drained.collect()
}

/// Takes back what was to go and is missed by now: those that should serve in its place do not.
pub(super) fn keep(scene: &Scene<'_>) -> Vec<Action> {
    let mut actions = Vec::new();
    for model in scene.intent.models.values() {
        let target = scene.target(model);
        let mut draining = scene
            .memory
            .assignments
            .iter()
            .filter(|(_, given)| given.spec.model == *model.name())
            .filter(|(_, given)| may_stay(scene, given))
            .map(|(id, given)| (*id, given))
            .filter(|given| scene.is_ready(*given))
            .peekable();
        if draining.peek().is_none() {
            continue;
        }
        let serving = scene.of_model(model.name());
        let ready = serving.iter().filter(|given| scene.is_ready(**given));
        let missing = target.saturating_sub(ready.count());
        let kept = draining.take(missing);
        actions.extend(kept.map(|(replica, _)| Action::Keep { replica }));
    }
    actions
}

/// Whether it goes for a reason that may pass, or has passed: what was forced stays when nobody forces it any more.
fn may_stay(scene: &Scene<'_>, given: &Assignment) -> bool {
    let Some((_, why)) = &given.draining else {
        return false;
    };
    match why {
        Why::Surplus | Why::Idle | Why::LessLoad | Why::Moved | Why::Rolled => true,
        Why::MovedByForce => !scene.must_go(given.node),
        Why::RolledByForce => !scene.intent.orders.forces_roll(&given.spec.model),
        Why::ModelRemoved
        | Why::SwitchedOff
        | Why::BackedOut
        | Why::RoomFor(_)
        | Why::NodeLost
        | Why::Vanished
        | Why::AgentEnded => false,
    }
}

/// Ends what has no calls any more, or has had its time to end them.
pub(super) fn stop_drained(scene: &Scene<'_>) -> Vec<Action> {
    let drained = |(id, given): (&ReplicaId, &Assignment)| {
        let (since, why) = given.draining.as_ref()?;
        let span = scene.now.saturating_sub(*since);
        let busy = scene.is_busy(*id) && span < patience(why);
        // What never served was never given a call.
        let told = span >= SETTLED || given.ready_since.is_none();
        (told && !busy).then(|| Action::Stop {
            replica: *id,
            why: why.clone(),
        })
    };
    scene
        .memory
        .assignments
        .iter()
        .filter_map(drained)
        .collect()
}

/// How long calls may take to end once their replica is not wanted any more.
fn patience(why: &Why) -> Duration {
    match why {
        Why::ModelRemoved | Why::SwitchedOff | Why::MovedByForce | Why::RolledByForce => {
            Duration::from_secs(60)
        }
        // Nobody asked for calls to be cut: a long answer is let end.
        _ => Duration::from_secs(600),
    }
}

/// A call that was given to a replica just before the gateway heard that it drains is counted by then.
const SETTLED: Duration = Duration::from_secs(1);
