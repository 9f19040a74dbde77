//! The state of the whole in one look, and what needs attention.

use std::{collections::BTreeSet, time::Duration};

use llmgw_core::{
    api::{
        admin::{ModelView, Summary},
        decision::RollEnd,
        frozen::{Frozen, SilentNode},
    },
    cluster::node::NodeState,
    id::ModelName,
    reason::render,
    route::Waiting,
};

use super::{models, node_state, replicas, stale, warnings};
use crate::{conductor::snapshot::Snapshot, reconcile::is_lost};

/// What a summary needs besides the snapshot.
#[derive(Clone, Debug)]
pub(in crate::controller) struct Surroundings {
    pub(in crate::controller) version: String,
    pub(in crate::controller) epoch: Option<u64>,
    /// Why the lease could not be taken or kept the last time.
    pub(in crate::controller) store_trouble: Option<String>,
    /// Why what the settings say now is not in force.
    pub(in crate::controller) settings_problem: Option<String>,
    pub(in crate::controller) store: String,
    pub(in crate::controller) uptime: Duration,
    pub(in crate::controller) requests: u64,
}

pub(in crate::controller) fn summary(
    snapshot: &Snapshot,
    around: Surroundings,
    now: Duration,
) -> Summary {
    let models = models(snapshot, now);
    let satisfied = |model: &&ModelView| {
        u64::try_from(model.ready_replicas).unwrap_or(u64::MAX) >= u64::from(model.desired)
    };
    let nodes = &snapshot.observed.nodes;
    let attention = attention(snapshot, &models, &around, now);
    Summary {
        version: around.version,
        leading: around.epoch.is_some(),
        epoch: around.epoch.unwrap_or(0),
        store: around.store,
        uptime_seconds: around.uptime.as_secs(),
        nodes_ready: nodes
            .iter()
            .filter(|(id, node)| node_state(snapshot, **id, node, now) == NodeState::Ready)
            .count(),
        nodes_total: nodes.len(),
        models_satisfied: models.iter().filter(satisfied).count(),
        models_total: models.len(),
        replicas_ready: models.iter().map(|model| model.ready_replicas).sum(),
        replicas_total: snapshot.memory.assignments.len(),
        requests: around.requests,
        attention,
        frozen: frozen(snapshot, now),
    }
}

/// That nothing is moved, and for which nodes.
pub(in crate::controller) fn frozen(snapshot: &Snapshot, now: Duration) -> Option<Frozen> {
    let frozen = snapshot.memory.frozen.as_ref()?;
    let silent = frozen.silent.iter().map(|id| SilentNode {
        hostname: snapshot.hostname(*id),
        id: *id,
    });
    let mut silent: Vec<SilentNode> = silent.collect();
    silent.sort();
    Some(Frozen {
        seconds: now.saturating_sub(frozen.since).as_secs(),
        silent,
        of: frozen.of,
    })
}

/// What an operator should look at, most pressing first.
fn attention(
    snapshot: &Snapshot,
    models: &[ModelView],
    around: &Surroundings,
    now: Duration,
) -> Vec<String> {
    let mut lines = Vec::new();
    if around.epoch.is_none() {
        lines.push(match &around.store_trouble {
            Some(trouble) => format!(
                "this control plane does not lead, for the store can't be used: {trouble}; nothing is placed or \
                 changed"
            ),
            None => "this control plane does not lead: nothing is placed or changed".to_owned(),
        });
    }
    if let Some(problem) = &around.settings_problem {
        lines.push(format!(
            "the settings can't be right, and those before stay in force: {problem}"
        ));
    }
    if snapshot.store_was_older {
        lines.push(
            "the store was lost or is an older copy, for nodes have followed a later one: models, keys and usage \
             that it does not hold are lost"
                .to_owned(),
        );
    }
    lines.extend(frozen(snapshot, now).map(|frozen| frozen.to_string()));
    if snapshot.observed.nodes.is_empty() {
        lines.push("no node has joined yet: nothing can be placed".to_owned());
    }
    let parked = models.iter().filter(|model| model.parked);
    lines.extend(parked.map(|model| {
        let error = model.last_error.as_deref().unwrap_or("no reason was given");
        format!(
            "{name} is parked after {} failures: {error}; `llmgw ctl logs {name}` has what its engine wrote, `llmgw ctl \
             retry {name}` tries it again",
            model.failures,
            name = model.name,
        )
    }));
    let failing = models
        .iter()
        .filter(|model| !model.parked && model.failures > 0);
    lines.extend(failing.filter_map(|model| {
        let error = model.last_error.as_deref()?;
        let times = if model.failures == 1 {
            "once".to_owned()
        } else {
            format!("{} times in a row", model.failures)
        };
        Some(format!(
            "{name} has failed {times}: {error}; `llmgw ctl logs {name}` has what its engine wrote",
            name = model.name
        ))
    }));
    lines.extend(models.iter().filter_map(|model| model.unplaceable.clone()));
    lines.extend(unknown(snapshot, models, now));
    lines.extend(stuck(snapshot, now, None));
    lines.extend(stuck_rolls(snapshot, None));
    lines.extend(backed_out(snapshot, models, now));
    for node in snapshot.observed.nodes.values() {
        let hostname = &node.facts.hostname;
        if is_lost(node, now) {
            lines.push(if node.left {
                format!("{hostname} has left: its agent was ended")
            } else {
                let silent = now.saturating_sub(node.heard_at).as_secs();
                format!("{hostname} is lost: not heard for {silent} s")
            });
        }
    }
    lines.extend(warnings::told_once(snapshot.observed.nodes.values()));
    lines
}

/// Models that lack replicas because it is not known what they need.
fn unknown(snapshot: &Snapshot, models: &[ModelView], now: Duration) -> Vec<String> {
    let lacking = models
        .iter()
        .filter(|model| u64::from(model.desired) > snapshot.memory.serving(&model.name));
    let waiting = lacking.filter_map(|model| {
        let entry = snapshot.entries.get(&model.name)?;
        if snapshot.completed(entry).is_complete() || model.parked {
            return None;
        }
        match snapshot.waiting(entry, now) {
            Waiting::Loading(why) => Some(why),
            // They are told of as such.
            Waiting::Unplaceable(_) | Waiting::Parked(_) | Waiting::Off(_) => None,
        }
    });
    waiting.collect()
}

/// What holds up a drain or a roll of a model's replicas.
pub(in crate::controller) fn held_up(
    snapshot: &Snapshot,
    model: &ModelName,
    now: Duration,
) -> Vec<String> {
    let mut lines: Vec<String> = stuck(snapshot, now, Some(model)).into_iter().collect();
    lines.extend(stuck_rolls(snapshot, Some(model)));
    lines
}

/// What draining nodes can't give away, of all models or of one, and why: it goes on serving there until it has another
/// place.
pub(super) fn stuck(
    snapshot: &Snapshot,
    now: Duration,
    only: Option<&ModelName>,
) -> BTreeSet<String> {
    let assignments = snapshot.memory.assignments.values();
    let asked_for = assignments.filter(|given| only.is_none_or(|name| given.spec.model == *name));
    let staying = asked_for.filter(|given| given.draining.is_none());
    let stuck = staying.filter_map(|given| {
        let node = snapshot.observed.nodes.get(&given.node)?;
        let state = node_state(snapshot, given.node, node, now);
        let report = snapshot.reports.get(&given.spec.model)?;
        let nearest = report.nearest.as_ref()?;
        (state == NodeState::Draining && report.fits.is_none()).then(|| {
            let (hostname, model) = (&node.facts.hostname, &given.spec.model);
            let nearest = render::rejection(nearest);
            let stuck = format!(
                "{hostname} is draining and keeps {model}: no room for its successor. Nearest: {nearest}"
            );
            if snapshot.orders.forces_drain(given.node) {
                return stuck;
            }
            format!("{stuck}; `llmgw ctl drain {hostname} --force` stops it first")
        })
    });
    stuck.collect()
}

/// Which rolls were backed out and left replicas of an older definition behind, and why.
fn backed_out(snapshot: &Snapshot, models: &[ModelView], now: Duration) -> Vec<String> {
    let mut lines = Vec::new();
    for view in models {
        let roll = snapshot.memory.rolls.get(&view.name);
        let Some(RollEnd::BackedOut { why }) = roll.and_then(|roll| roll.ended.as_ref()) else {
            continue;
        };
        let replicas = replicas(snapshot, Some(&view.name), None, now);
        let stale = stale(&replicas);
        if stale > 0 {
            lines.push(format!(
                "the roll of {name} was backed out: {why}; {stale} of its replicas are of an older definition, and serve; \
                 mend the definition, then `llmgw ctl roll {name}`",
                name = view.name,
            ));
        }
    }
    lines
}

/// Which rolls wait for room, and why: they go on with it, or by force.
fn stuck_rolls(snapshot: &Snapshot, only: Option<&ModelName>) -> Vec<String> {
    let rolls = snapshot.memory.rolls.iter();
    let asked_for = rolls.filter(|(model, _)| only.is_none_or(|name| *model == name));
    let stuck = asked_for.filter(|(_, roll)| roll.ended.is_none());
    let lines =    stuck.filter_map(|(model, _)| {
        let report = snapshot.reports.get(model)?;
        let nearest = report.nearest.as_ref()?;
        if report.fits.is_some() || snapshot.orders.forces_roll(model) {
            return None;
        }
        Some(format!(
            "{model} is rolled, and waits: no room for the successor of a stale replica. Nearest: {}; \
             `llmgw ctl roll {model} --force` stops the old one first",
            render::rejection(nearest)
        ))
    });
    lines.collect()
}
