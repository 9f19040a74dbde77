//! Builds the reasons: every node and profile, a count for each check, the nearest miss, what would help.
//!
//! Remedies are found by trying them: each line was planned with, and placed the model.

use llmgw_core::{
    cluster::{catalog::Model, engine::ProvisionState, node::NodeState},
    id::NodeId,
    reason::{Check, CheckCount, Fit, Rejection, Report},
    units::Bytes,
};

use crate::{
    fleet::{Fleet, FleetNode},
    planner::{
        Choice, Options, Wanted, begin, choose,
        filter::{failing, too_few_nodes},
        policy::PolicyName,
        working::{Ask, Working},
    },
};

/// The report of a trial: `working` is the fleet as it was tried, without what the choice takes.
pub(crate) fn build(
    working: &mut Working<'_>,
    model: &Model,
    choice: Option<&Choice<'_>>,
) -> Report {
    let fits = choice.and_then(|choice| {
        let node = working.nodes.get(choice.spots.first()?.node)?.node;
        Some(Fit {
            node: node.id,
            hostname: node.hostname.clone(),
            profile: choice.ask.profile.name.clone(),
        })
    });
    let mut report = Report {
        model: model.name().clone(),
        nodes: working.nodes.len(),
        profiles: model.profiles().len(),
        fits,
        summary: Vec::new(),
        pending: None,
        remedies: Vec::new(),
        rejections: Vec::new(),
        nearest: None,
    };
    if report.fits.is_none() {
        report.rejections = rejections(working, model);
        report.nearest = nearest(&report.rejections).cloned();
        report.summary = summary(&report.rejections);
        let fleet = working.fleet();
        report.pending = pending(fleet, model);
        let pending = report.pending.as_deref();
        report.remedies = remedies(working, model, &report.rejections, pending);
    }
    report
}

fn rejections(working: &mut Working<'_>, model: &Model) -> Vec<Rejection> {
    let asks: Vec<Ask<'_>> = model
        .profiles()
        .iter()
        .map(|profile| working.ask(Some(model), profile))
        .collect();
    // By host name for people, then by id; the profiles of a node in the model's order.
    let mut order: Vec<usize> = (0..working.nodes.len()).collect();
    order.sort_by_key(|index| working.nodes.get(*index).map(|node| &node.node.hostname));
    let mut rejections: Vec<Rejection> = Vec::with_capacity(order.len() * asks.len());
    let mut able: Vec<Vec<usize>> = vec![Vec::new(); asks.len()];
    for index in order {
        let Some(node) = working.nodes.get(index).map(|node| node.node) else {
            continue;
        };
        for (ask, able) in asks.iter().zip(&mut able) {
            let reasons = failing(working, index, ask);
            if reasons.is_empty() {
                able.push(rejections.len());
            }
            rejections.push(Rejection {
                node: node.id,
                hostname: node.hostname.clone(),
                profile: ask.profile.name.clone(),
                reasons,
            });
        }
    }
    // It fits nowhere all the same: then the other shards found no place.
    for (ask, able) in asks.iter().zip(able) {
        let lonely = too_few_nodes(ask, able.len());
        for at in able {
            if let Some(rejection) = rejections.get_mut(at) {
                rejection.reasons.extend(lonely.clone());
            }
        }
    }
    rejections.retain(|rejection| !rejection.reasons.is_empty());
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
    let installs = |state: &ProvisionState| {
        matches!(
            state,
            ProvisionState::Pending | ProvisionState::Installing { .. }
        )
    };
    let waiting = |node: &&FleetNode| node.engines.values().any(installs);
    // The other nodes were tried as they are.
    let mut finished = Fleet {
        nodes: fleet.nodes.iter().filter(waiting).cloned().collect(),
        pools: fleet.pools.clone(),
        holds: fleet.holds.clone(),
    };
    if finished.nodes.is_empty() {
        return None;
    }
    if model
        .profiles()
        .iter()
        .any(|profile| profile.needs.shards.is_some())
    {
        finished = fleet.clone();
    }
    let mut waits = Vec::new();
    for node in &mut finished.nodes {
        for (engine, state) in node.engines.iter_mut().filter(|(_, state)| installs(state)) {
            let wait = format!("{}: {engine} is {}", node.hostname, state.describe());
            waits.push((node.id, wait));
            *state = installed();
        }
    }
    let mut working = with(&finished, model);
    let choice = choose(&mut working, model)?;
    let chosen: Vec<NodeId> = choice
        .spots
        .iter()
        .filter_map(|spot| Some(working.nodes.get(spot.node)?.node.id))
        .collect();
    waits
        .into_iter()
        .find(|(node, _)| chosen.contains(node))
        .map(|(_, wait)| wait)
}

fn remedies(
    working: &mut Working<'_>,
    model: &Model,
    rejections: &[Rejection],
    pending: Option<&str>,
) -> Vec<String> {
    let fleet = working.fleet();
    let mut remedies = Vec::new();
    if let Some(wait) = pending {
        remedies.push(format!("wait: {wait}"));
    }
    remedies.extend(by_readiness(fleet, model));
    remedies.extend(by_stopping(working, model));
    if remedies.is_empty() {
        remedies.extend(by_memory(rejections, model));
    }
    remedies
}

/// Makes one node ready at a time and keeps those after which the model fits.
fn by_readiness(fleet: &Fleet, model: &Model) -> Vec<String> {
    let mut lines = Vec::new();
    for node in &fleet.nodes {
        if !matches!(
            node.state,
            NodeState::Cordoned | NodeState::Draining | NodeState::Pending
        ) {
            continue;
        }
        let mut changed = node.clone();
        changed.state = NodeState::Ready;
        if fits_with(fleet, changed, model) {
            lines.push(format!(
                "make {} ready ({})",
                node.hostname,
                node.state.as_str()
            ));
        }
        if lines.len() == MAX_REMEDIES {
            break;
        }
    }
    lines
}

/// Stops one replica of another model at a time. Nothing helps a model whose shards need several nodes.
fn by_stopping(working: &mut Working<'_>, model: &Model) -> Vec<String> {
    let asks: Vec<Ask<'_>> = model
        .profiles()
        .iter()
        .filter(|profile| profile.needs.shards.is_none())
        .map(|profile| working.ask(Some(model), profile))
        .collect();
    let mut lines = Vec::new();
    for (index, node) in working.fleet().nodes.iter().enumerate() {
        let others = node.replicas.iter();
        for replica in others.filter(|replica| replica.model != *model.name()) {
            if asks
                .iter()
                .any(|ask| working.fits_without(index, replica, ask))
            {
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

/// Whether a model fits once a node is like this. Nothing else has changed, so no other node is looked at.
fn fits_with(fleet: &Fleet, changed: FleetNode, model: &Model) -> bool {
    let only = Fleet {
        nodes: vec![changed],
        pools: fleet.pools.clone(),
        holds: fleet.holds.clone(),
    };
    let mut working = with(&only, model);
    choose(&mut working, model).is_some()
}

/// A trial on a changed fleet. Which place is best plays no part, so the plainest policy does.
fn with<'f>(fleet: &'f Fleet, model: &Model) -> Working<'f> {
    let wanted = Wanted {
        models: vec![model.clone()],
    };
    let options = Options {
        policy: PolicyName::BestFit,
        ..Options::default()
    };
    begin(fleet, &wanted, &options)
}

/// Says how much memory a node must have free for the smallest profile.
fn by_memory(rejections: &[Rejection], model: &Model) -> Option<String> {
    let smallest = model
        .profiles()
        .iter()
        .min_by_key(|profile| profile.memory)?;
    // Every check was made: where memory alone failed, memory alone helps.
    let fits_then = rejections.iter().any(|rejection| {
        let mut reasons = rejection.reasons.iter();
        rejection.profile == smallest.name && reasons.all(|reason| reason.check == Check::Memory)
    });
    let what = if fits_then {
        "free memory on a node, or add one"
    } else {
        "add a node"
    };
    let gpus = smallest.needs.gpus.as_ref().map(|gpus| match gpus.memory {
        Some(memory) => format!(" and {} x {memory} of GPU memory", gpus.count),
        None => format!(" and {} unused GPUs", gpus.count),
    });
    Some(format!(
        "{what}: {} with {}{} free is enough",
        smallest.name,
        smallest.memory,
        gpus.unwrap_or_default()
    ))
}

fn installed() -> ProvisionState {
    ProvisionState::Installed {
        version: String::new(),
        variant: String::new(),
    }
}

const MAX_REMEDIES: usize = 3;
