//! More choice: profiles that ask for less, nodes that are kept out, engines that are on their way.

use std::collections::BTreeMap;

use llmgw_core::{
    cluster::{
        catalog::{Model, Profile},
        engine::ProvisionState,
        node::NodeState,
    },
    id::NodeId,
    reason::{
        Check,
        remedy::{Awaited, Change, Remedy},
    },
};

use super::{super::trial::Trials, first_of_each, on_nodes};
use crate::{
    fleet::{Fabric, Fleet, FleetGpu, FleetNode, HoldScope},
    report::installed,
};

/// A profile without the one demand that keeps it off the nodes.
pub(super) fn profile(trials: &Trials<'_, '_>) -> Vec<Remedy> {
    let demands = [Check::Pool, Check::Labels, Check::Gpus, Check::Fabric];
    let tried = demands.iter().flat_map(|demand| {
        let candidates = trials.lacking(std::slice::from_ref(demand)).into_iter();
        candidates.filter_map(|candidate| {
            let (profile, without) = relaxed(candidate.profile, *demand)?;
            let node = trials.node(candidate.index)?;
            Some(Remedy {
                change: Change::Profile { without },
                places: Some(trials.with_node(node, &profile)?),
            })
        })
    });
    first_of_each(tried)
}

/// The profile without a demand, and what that was.
fn relaxed(profile: &Profile, demand: Check) -> Option<(Profile, String)> {
    let mut relaxed = profile.clone();
    let needs = &mut relaxed.needs;
    let without = match demand {
        Check::Pool => format!("the pool {}", needs.pool.take()?),
        Check::Labels => {
            let labels = std::mem::take(&mut needs.labels);
            let labels: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
            format!("the labels {}", labels.join(", "))
        }
        Check::Gpus => {
            let classes = std::mem::take(&mut needs.gpus.as_mut()?.classes);
            if classes.is_empty() {
                return None;
            }
            format!("the GPU class {}", classes.join(" or "))
        }
        Check::Fabric => {
            let fabric = needs.fabric.as_mut()?;
            fabric.required = false;
            format!("requiring the fabric {}", fabric.name)
        }
        _ => return None,
    };
    Some((relaxed, without))
}

/// Engines that are being installed.
pub(super) fn installing(trials: &Trials<'_, '_>) -> Vec<Remedy> {
    on_nodes(
        trials,
        trials.lacking(&[Check::Engine]),
        |node, candidate| {
            let engine = &candidate.profile.engine;
            let state = node.engines.get_mut(engine)?;
            let (percent, seconds) = match state {
                ProvisionState::Pending | ProvisionState::Waiting { .. } => (None, None),
                ProvisionState::Installing {
                    percent,
                    eta_seconds,
                    ..
                } => (*percent, *eta_seconds),
                _ => return None,
            };
            let until = Awaited::Engine {
                engine: engine.clone(),
                hostname: node.hostname.clone(),
                state: state.describe(),
            };
            *state = installed();
            Some(Change::Wait {
                until,
                percent,
                seconds,
            })
        },
    )
}

/// Nodes that an operator keeps out, and those that are not heard.
pub(super) fn ready(trials: &Trials<'_, '_>) -> Vec<Remedy> {
    on_nodes(trials, trials.lacking(&[Check::Node]), |node, _| {
        let from = node.state;
        if !matches!(
            from,
            NodeState::Cordoned | NodeState::Draining | NodeState::Pending | NodeState::Lost
        ) {
            return None;
        }
        node.state = NodeState::Ready;
        Some(Change::Ready {
            node: node.id,
            hostname: node.hostname.clone(),
            from,
        })
    })
}

/// Holds, one at a time.
pub(super) fn lift(trials: &Trials<'_, '_>) -> Vec<Remedy> {
    let tried = trials.lacking(&[Check::Hold]).into_iter();
    first_of_each(tried.filter_map(|candidate| {
        let node = trials.node(candidate.index)?;
        let hold = trials.working.fleet().hold_on(&node)?.clone();
        let on = match &hold.scope {
            HoldScope::Facility(name) => format!("facility {name}"),
            HoldScope::Pool(name) => format!("pool {name}"),
            HoldScope::Node(_) => format!("node {}", node.hostname),
        };
        let places = trials.with(node, candidate.profile, |fleet| {
            fleet.holds.retain(|other| *other != hold);
        })?;
        Some(Remedy {
            change: Change::Lift {
                hold: on,
                reason: hold.reason,
            },
            places: Some(places),
        })
    }))
}

/// A node to add, for the profile that asks for least.
pub(super) fn node(trials: &Trials<'_, '_>) -> Option<Remedy> {
    let model = trials.model;
    let alone = |profile: &&Profile| profile.needs.shards.is_none();
    let least = |profile: &&Profile| {
        let gpus = profile.needs.gpus.as_ref();
        let on_gpus = gpus.and_then(|gpus| gpus.memory).unwrap_or_default();
        (gpus.map_or(0, |gpus| gpus.count), on_gpus, profile.memory)
    };
    let profile = model.profiles().iter().filter(alone).min_by_key(least)?;
    let fleet = trials.working.fleet();
    trials.with_node(ideal(fleet, model, profile)?, profile)?;
    let needs = &profile.needs;
    let mut with = vec![format!("{} of memory", profile.memory)];
    with.extend(needs.gpus.as_ref().map(|gpus| {
        let classes = gpus.classes.join(" or ");
        let class = if classes.is_empty() { "GPU" } else { &classes };
        match gpus.memory {
            Some(memory) => format!("{} x {class} with {memory}", gpus.count),
            None => format!("{} x {class} unused", gpus.count),
        }
    }));
    with.extend(needs.cpu.map(|cpu| format!("{cpu} cores")));
    Some(Remedy {
        change: Change::Node {
            with: format!("{} (profile {})", with.join(", "), profile.name),
        },
        places: None,
    })
}

/// A node that has what a profile asks for and nothing else; `None` when none can, as in a pool that there is not.
fn ideal(fleet: &Fleet, model: &Model, profile: &Profile) -> Option<FleetNode> {
    let needs = &profile.needs;
    let mut labels = needs.labels.clone();
    if let Some(pool) = &needs.pool {
        labels.extend(fleet.pools.get(pool)?.clone());
    }
    let gpus = needs.gpus.as_ref();
    let gpu = |index| FleetGpu {
        index,
        class: gpus.and_then(|gpus| gpus.classes.first().cloned()),
        memory: gpus.and_then(|gpus| gpus.memory),
        in_use: false,
        fault: None,
    };
    let fabric = needs.fabric.as_ref().map(|fabric| Fabric {
        name: fabric.name.clone(),
        kind: fabric.name.clone(),
    });
    let disk = model.weights().total().unwrap_or_default() + needs.disk.unwrap_or_default();
    Some(FleetNode {
        memory_allocatable: Some(profile.memory),
        cpu: needs.cpu,
        disk_free: Some(disk),
        gpus: Some((0..gpus.map_or(0, |gpus| gpus.count)).map(gpu).collect()),
        labels,
        fabrics: fabric.into_iter().collect(),
        engines: BTreeMap::from([(profile.engine.clone(), installed())]),
        ..FleetNode::named(NodeId::imagined(0), "new".to_owned())
    })
}
