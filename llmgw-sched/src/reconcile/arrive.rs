//! What there is: what runs is taken over, what failed is counted, what is gone is let go.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use llmgw_core::{
    cluster::replica::{ReplicaState, ReplicaStatus},
    id::{ModelName, NodeId, ReplicaId},
};

use super::{Action, Assignment, Why, is_lost, roll, scene::Scene, statuses};

/// Takes over what runs already, the older before the younger; while the fleet has not settled all of it, so that what
/// looks like too much, or like nobody's, is not stopped before it is known.
pub(super) fn adopt(scene: &Scene<'_>) -> Vec<Action> {
    let Scene { intent, memory, .. } = *scene;
    let mut adopted: BTreeMap<&ModelName, usize> = BTreeMap::new();
    let mut actions = Vec::new();
    let running = running(scene);
    for (node, status) in &running {
        let spec = &status.spec;
        if scene.is_settled() {
            let Some(model) = intent.models.get(&spec.model) else {
                continue;
            };
            let count = adopted.entry(model.name()).or_insert(0);
            let serving = usize::try_from(memory.serving(model.name())).unwrap_or(usize::MAX);
            // A roll that an earlier leader was at has one replica more under way.
            let runs_old = || {
                let of_model = running
                    .iter()
                    .filter(|(_, one)| one.spec.model == *model.name());
                let mut specs = of_model.map(|(_, one)| &one.spec);
                specs.any(|spec| scene.is_of_older(spec))
            };
            let surge = scene.may_move() && roll::stands(scene, model.name()) && runs_old();
            let target = scene.target(model);
            let most = scene
                .wants(model)
                .max(target + usize::from(surge && target > 0));
            if serving.saturating_add(*count) >= most {
                continue;
            }
            *count += 1;
        }
        actions.push(Action::Adopt {
            spec: Box::new(spec.clone()),
            node: *node,
        });
    }
    actions
}

/// What runs and is not known yet, those that serve first, then the older ones. One that two nodes report is that of
/// the node where it has run for longer: the other one is not told to run it, and so ends it.
fn running<'s>(scene: &Scene<'s>) -> Vec<(NodeId, &'s ReplicaStatus)> {
    let is_running = |status: &ReplicaStatus| {
        matches!(
            status.state,
            ReplicaState::Placing
                | ReplicaState::Provisioning
                | ReplicaState::Fetching
                | ReplicaState::Starting
                | ReplicaState::Ready
        )
    };
    let mut running: Vec<(NodeId, &ReplicaStatus)> = statuses(scene.observed, scene.now)
        .filter(|(_, status)| is_running(status) && !scene.memory.knows(status.spec.id))
        .collect();
    running.sort_by_key(|(node, status)| {
        let ready = status.state == ReplicaState::Ready;
        (!ready, status.spec.id, status.since, *node)
    });
    let mut seen = BTreeSet::new();
    running.retain(|(_, status)| seen.insert(status.spec.id));
    running
}

pub(super) fn take_in_failures(scene: &Scene<'_>) -> Vec<Action> {
    let ended = |(id, given): (&ReplicaId, &Assignment)| {
        let status = scene.observed.nodes.get(&given.node)?.replicas.get(id)?;
        match status.state {
            ReplicaState::Failed => Some(Action::Fail {
                replica: *id,
                error: status.failure(),
                log_tail: status.log_tail.clone(),
            }),
            // An agent that is told to end ends its engines: nobody's failure.
            ReplicaState::Stopped => Some(Action::Forget {
                replica: *id,
                why: Why::AgentEnded,
            }),
            _ => None,
        }
    };
    let assignments = scene.memory.assignments.iter();
    assignments.filter_map(ended).collect()
}

pub(super) fn let_go(scene: &Scene<'_>) -> Vec<Action> {
    let Scene {
        observed,
        memory,
        now,
        ..
    } = *scene;
    let gone = |(id, given): (&ReplicaId, &Assignment)| {
        let why = match observed.nodes.get(&given.node) {
            None => Why::NodeLost,
            Some(node) if is_lost(node, now) => {
                // Whoever can't be heard with many others is not taken for gone.
                if memory.frozen.is_some() && !node.left {
                    return None;
                }
                Why::NodeLost
            }
            Some(node) => {
                let told = given
                    .revision
                    .is_some_and(|revision| node.revision >= revision);
                let patient = now.saturating_sub(given.since) < VANISHED_AFTER;
                if node.replicas.contains_key(id) || !told || patient {
                    return None;
                }
                Why::Vanished
            }
        };
        Some(Action::Forget { replica: *id, why })
    };
    memory.assignments.iter().filter_map(gone).collect()
}

/// Forgets the failures of models that a replica given since the last of them serves well.
pub(super) fn absolve(scene: &Scene<'_>) -> Vec<Action> {
    let serves_since = |model: &ModelName, failed_at: Duration| {
        let mut replicas = scene.memory.assignments.iter();
        replicas.any(|(id, given)| {
            given.spec.model == *model
                && given.since >= failed_at
                && scene.is_steady((*id, given), STEADY_AFTER)
        })
    };
    scene
        .memory
        .histories
        .iter()
        .filter(|(model, history)| {
            history.failures > 0 && !history.parked && serves_since(model, history.failed_at)
        })
        .map(|(model, _)| Action::Absolve {
            model: model.clone(),
        })
        .collect()
}

/// An agent says every replica of a desired state as soon as it has read it; this is for a slow one.
const VANISHED_AFTER: Duration = Duration::from_secs(10);
/// How long a replica must serve before earlier failures of its model are forgotten.
const STEADY_AFTER: Duration = Duration::from_secs(60);
