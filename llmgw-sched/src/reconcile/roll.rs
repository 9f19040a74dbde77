//! `Order::Roll`: replaces the replicas of a model whose definition has changed, one after another.
//!
//! One replica more than wanted is started with the new definition. When it and all others of the new definition have
//! served for [`STEADY`], one of the old ones drains and stops, and the next follows. When the new definition fails
//! [`MOST_FAILURES`] times, or most calls to one of its replicas fail, the roll is backed out: the old replicas that are
//! left stay, and the roll ends with the reason. When there is no room for one more, it waits, and the model's report
//! says which check fails; a forced roll then stops an old one first (`next_by_force`).

use std::time::Duration;

use llmgw_core::{
    api::decision::RollEnd,
    cluster::{
        catalog::Model,
        order::{Order, Subject},
    },
    id::{ModelName, ReplicaId},
};

use super::{
    Action, Why,
    scene::{Given, Scene},
};

/// A roll, while it is under way and after.
#[derive(Clone, Debug, PartialEq)]
pub struct Roll {
    /// Which roll of the model this is.
    pub number: u64,
    /// Since when.
    pub since: Duration,
    /// Old replicas that have been told to go.
    pub replaced: u32,
    /// How often a replica of the new definition has failed.
    pub failures: u32,
    /// The last of these failures.
    pub last_error: Option<String>,
    /// How it ended; absent while it is under way.
    pub ended: Option<RollEnd>,
}

/// Begins, goes on with, and ends the rolls that were ordered.
pub(super) fn roll(scene: &Scene<'_>) -> Vec<Action> {
    let mut actions = Vec::new();
    for stored in scene.intent.orders.iter() {
        if let Order::Roll { model, number, .. } = &stored.order {
            actions.extend(go_on(scene, model, *number));
        }
    }
    actions
}

/// Whether a replica more than wanted is to be there for a roll.
pub(super) fn wants_surge(scene: &Scene<'_>, model: &ModelName) -> bool {
    stands(scene, model) && {
        let replicas = scene.of_model(model);
        replicas.into_iter().any(|given| is_old(scene, given))
    }
}

/// Whether a roll was ordered that has not ended: also one that is not begun here, for an earlier leader was at it.
pub(super) fn stands(scene: &Scene<'_>, model: &ModelName) -> bool {
    let ordered = scene.intent.orders.rolls(model);
    let known = scene.memory.rolls.get(model);
    let known = known.filter(|roll| roll.number == ordered);
    ordered > 0 && known.is_none_or(|roll| roll.ended.is_none())
}

fn under_way<'s>(scene: &Scene<'s>, model: &ModelName) -> Option<&'s Roll> {
    let known = scene.memory.rolls.get(model);
    known.filter(|roll| roll.ended.is_none())
}

/// The old replica that goes before its successor is there, in a forced roll that was told that there is no room for both:
/// one after another, and only while all that there are of the new definition serve.
pub(super) fn next_by_force(scene: &Scene<'_>, model: &Model) -> Option<ReplicaId> {
    let name = model.name();
    let orders = &scene.intent.orders;
    let roll = under_way(scene, name).filter(|roll| roll.number == orders.rolls(name))?;
    if !orders.forces_roll(name) || !scene.may_move() || roll.failures >= MOST_FAILURES {
        return None;
    }
    let target = scene.target(model);
    let replicas = scene.of_model(name);
    // What ends of it still holds the room that the next one is to have.
    if target == 0 || replicas.len() > target || scene.has_leaving(name) {
        return None;
    }
    let (old, fresh): (Vec<_>, Vec<_>) = replicas.iter().partition(|given| is_old(scene, **given));
    let serves = |given: &Given<'_>| {
        scene.is_steady(*given, STEADY) && refuses(scene, roll, *given).is_none()
    };
    let next = fresh.iter().all(serves).then(|| next(scene, old))?;
    next.map(|(replica, _)| replica)
}

/// One that does not serve is missed by nobody; then one that is idle; then the oldest.
fn next<'s>(scene: &Scene<'_>, old: Vec<Given<'s>>) -> Option<Given<'s>> {
    old.into_iter()
        .min_by_key(|given| (scene.is_ready(*given), scene.is_busy(given.0), given.0))
}

fn is_old(scene: &Scene<'_>, (_, given): Given<'_>) -> bool {
    scene.is_stale(given) && !scene.is_held(given.node)
}

fn go_on(scene: &Scene<'_>, name: &ModelName, number: u64) -> Vec<Action> {
    let end = |ended: RollEnd| {
        if !scene
            .memory
            .may_tell(&Subject::Roll(name.clone()), scene.now)
        {
            return Vec::new();
        }
        vec![Action::EndRoll {
            model: name.clone(),
            number,
            ended,
        }]
    };
    let Some(model) = scene.intent.models.get(name) else {
        return end(RollEnd::NothingToDo);
    };
    let known = scene.memory.rolls.get(name);
    let known = known.filter(|roll| roll.number == number);
    if let Some(ended) = known.and_then(|roll| roll.ended.clone()) {
        // The order still stands: it is lifted by whoever writes, and that may have to be said twice.
        return end(ended);
    }
    if !scene.may_move() {
        return Vec::new();
    }
    let replicas = scene.of_model(name);
    let (old, fresh): (Vec<_>, Vec<_>) = replicas.iter().partition(|given| is_old(scene, **given));
    let target = scene.target(model);
    let Some(roll) = known else {
        if old.is_empty() {
            // What is not there may be with a node that is not heard yet, and of the old definition.
            return if fresh.len() >= target {
                end(RollEnd::NothingToDo)
            } else {
                Vec::new()
            };
        }
        return vec![Action::BeginRoll {
            model: name.clone(),
            number,
        }];
    };
    if roll.failures >= MOST_FAILURES {
        let why = roll.last_error.clone();
        let why = why.unwrap_or_else(|| "the new definition failed".to_owned());
        return end(RollEnd::BackedOut { why });
    }
    let ready = |given: &&Given<'_>| scene.is_ready(**given);
    let ready = replicas.iter().filter(ready).count();
    if let Some((failing, why)) = fresh.iter().find_map(|given| refuses(scene, roll, *given)) {
        let mut actions = end(RollEnd::BackedOut { why });
        if ready > target && !actions.is_empty() {
            actions.push(Action::Drain {
                replica: failing.0,
                why: Why::BackedOut,
            });
        }
        return actions;
    }
    let steady = |given: &Given<'_>| scene.is_steady(*given, STEADY);
    if !fresh.iter().all(steady) {
        return Vec::new();
    }
    if old.is_empty() {
        return if fresh.len() >= target {
            end(RollEnd::Done {
                replaced: roll.replaced,
            })
        } else {
            Vec::new()
        };
    }
    let Some(next) = next(scene, old) else {
        return Vec::new();
    };
    let left = ready.saturating_sub(usize::from(scene.is_ready(next)));
    // What is not wanted at all leaves without a roll, once it is idle.
    if target == 0 || replicas.len() <= target || left < target {
        return Vec::new();
    }
    vec![Action::Drain {
        replica: next.0,
        why: Why::Rolled,
    }]
}

/// Says of a replica of the new definition that most of its calls fail.
fn refuses<'s>(scene: &Scene<'_>, roll: &Roll, given: Given<'s>) -> Option<(Given<'s>, String)> {
    let calls = scene.observed.calls.get(&given.0)?;
    let is_new = given.1.since >= roll.since;
    let fails = calls.failed >= FEWEST_FAILED && calls.failed * 2 >= calls.given;
    (is_new && fails).then(|| {
        let why = format!(
            "{} of {} calls to {} failed",
            calls.failed,
            calls.given,
            given.0.short()
        );
        (given, why)
    })
}

/// How long a replica of the new definition must serve before an old one goes.
pub const STEADY: Duration = Duration::from_secs(10);
/// Failures of the new definition after which a roll is backed out: one may be the machine's.
pub const MOST_FAILURES: u32 = 2;
/// Fewer calls tell nothing.
const FEWEST_FAILED: u64 = 3;
