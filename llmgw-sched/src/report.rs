//! Builds the reasons: every node and profile, a count for each check, the nearest miss, what would help.
//!
//! Remedies are found by trying them: each line was planned with, and placed the model.

use llmgw_core::{
    cluster::{catalog::Model, engine::ProvisionState, node::NodeState},
    reason::{Check, CheckCount, Fit, Rejection, Report},
    units::Bytes,
};

use crate::{
    fleet::Fleet,
    planner::{Placement, Working, choose, filter::failing},
};

/// The report of a trial: `working` is the fleet as it was tried, without what `placed` took.
pub(crate) fn build(
    fleet: &Fleet,
    working: &Working<'_>,
    model: &Model,
    placed: Option<&Placement>,
) -> Report {
    let rejections = if placed.is_some() {
        Vec::new()
    } else {
        rejections(working, model)
    };
    let nearest = nearest(&rejections).cloned();
    Report {
        model: model.name().clone(),
        nodes: fleet.nodes.len(),
        profiles: model.profiles().len(),
        fits: placed.map(|placement| Fit {
            node: placement.node,
            hostname: placement.hostname.clone(),
            profile: placement.profile.clone(),
        }),
        summary: summary(&rejections),
        pending: if placed.is_some() {
            None
        } else {
            pending(fleet, model)
        },
        remedies: if placed.is_some() {
            Vec::new()
        } else {
            remedies(fleet, model)
        },
        rejections,
        nearest,
    }
}

fn rejections(working: &Working<'_>, model: &Model) -> Vec<Rejection> {
    let mut rejections: Vec<Rejection> = working
        .nodes
        .iter()
        .flat_map(|node| {
            model.profiles().iter().map(|profile| Rejection {
                node: node.node.id,
                hostname: node.node.hostname.clone(),
                profile: profile.name.clone(),
                reasons: failing(node, model, profile),
            })
        })
        .filter(|rejection| !rejection.reasons.is_empty())
        .collect();
    // By host name for people; the sort is stable, so that profiles stay in the model's order.
    rejections.sort_by(|a, b| a.hostname.cmp(&b.hostname).then(a.node.cmp(&b.node)));
    rejections
}

/// How far a rejection is from fitting: fewer failing checks, then fewer that are unknown, then less missing.
fn distance(rejection: &Rejection) -> (usize, usize, Bytes) {
    let unknown = rejection
        .reasons
        .iter()
        .filter(|reason| reason.have.is_none())
        .count();
    let missing = rejection
        .reasons
        .iter()
        .filter_map(|reason| reason.short_by)
        .sum();
    (rejection.reasons.len(), unknown, missing)
}

fn nearest(rejections: &[Rejection]) -> Option<&Rejection> {
    rejections
        .iter()
        .min_by_key(|rejection| distance(rejection))
}

/// Each node once, under the first failing check of its nearest profile.
fn summary(rejections: &[Rejection]) -> Vec<CheckCount> {
    let of_one_node = rejections.chunk_by(|a, b| a.node == b.node);
    let firsts: Vec<Check> = of_one_node
        .filter_map(|of_node| nearest(of_node)?.reasons.first())
        .map(|reason| reason.check)
        .collect();
    Check::ALL
        .iter()
        .map(|check| CheckCount {
            check: *check,
            nodes: firsts.iter().filter(|first| *first == check).count(),
        })
        .filter(|count| count.nodes > 0)
        .collect()
}

/// What will make it fit without anybody's doing: engines that are being installed. Tried.
fn pending(fleet: &Fleet, model: &Model) -> Option<String> {
    let mut finished = fleet.clone();
    let mut waits = Vec::new();
    for node in &mut finished.nodes {
        for (engine, state) in &mut node.engines {
            if matches!(
                state,
                ProvisionState::Pending | ProvisionState::Installing { .. }
            ) {
                waits.push((
                    node.id,
                    format!("{}: {engine} is {}", node.hostname, state.describe()),
                ));
                *state = installed();
            }
        }
    }
    let working = Working::of(&finished);
    let (_, index) = choose(&working, model)?;
    let chosen = working.nodes.get(index)?.node.id;
    waits
        .into_iter()
        .find(|(node, _)| *node == chosen)
        .map(|(_, wait)| wait)
}

fn remedies(fleet: &Fleet, model: &Model) -> Vec<String> {
    let mut remedies = Vec::new();
    if let Some(wait) = pending(fleet, model) {
        remedies.push(format!("wait: {wait}"));
    }
    remedies.extend(by_change(
        fleet,
        |node| match node.state {
            NodeState::Cordoned | NodeState::Draining | NodeState::Pending => {
                let line = format!("make {} ready ({})", node.hostname, node.state.as_str());
                node.state = NodeState::Ready;
                Some(line)
            }
            NodeState::Ready | NodeState::Lost => None,
        },
        model,
    ));
    remedies.extend(by_stopping(fleet, model));
    if remedies.is_empty() {
        remedies.extend(by_memory(fleet, model));
    }
    remedies
}

/// Changes one node at a time and keeps the changes after which the model fits.
fn by_change(
    fleet: &Fleet,
    change: impl Fn(&mut crate::fleet::FleetNode) -> Option<String>,
    model: &Model,
) -> Vec<String> {
    (0..fleet.nodes.len())
        .filter_map(|index| {
            let mut changed = fleet.clone();
            let line = change(changed.nodes.get_mut(index)?)?;
            choose(&Working::of(&changed), model).map(|_| line)
        })
        .take(MAX_REMEDIES)
        .collect()
}

/// Stops one replica of another model at a time.
fn by_stopping(fleet: &Fleet, model: &Model) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, node) in fleet.nodes.iter().enumerate() {
        for replica in node
            .replicas
            .iter()
            .filter(|replica| replica.model != *model.name())
        {
            let mut changed = fleet.clone();
            if let Some(node) = changed.nodes.get_mut(index) {
                node.replicas.retain(|other| other.id != replica.id);
            }
            if choose(&Working::of(&changed), model).is_some() {
                lines.push(format!(
                    "stop {} of {} on {}, which frees {}",
                    replica.id.short(),
                    replica.model,
                    node.hostname,
                    replica.memory,
                ));
            }
            if lines.len() == MAX_REMEDIES {
                return lines;
            }
        }
    }
    lines
}

/// Says how much memory a node must have free for the smallest profile.
fn by_memory(fleet: &Fleet, model: &Model) -> Option<String> {
    let smallest = model
        .profiles()
        .iter()
        .min_by_key(|profile| profile.memory)?;
    let mut changed = fleet.clone();
    for node in &mut changed.nodes {
        node.memory_allocatable = Some(node.memory_reserved() + smallest.memory);
    }
    let fits_then = choose(&Working::of(&changed), model).is_some();
    let what = if fits_then {
        "free memory on a node, or add one"
    } else {
        "add a node"
    };
    Some(format!(
        "{what}: {} with {} free is enough",
        smallest.name, smallest.memory
    ))
}

fn installed() -> ProvisionState {
    ProvisionState::Installed {
        version: String::new(),
        variant: String::new(),
    }
}

const MAX_REMEDIES: usize = 3;
