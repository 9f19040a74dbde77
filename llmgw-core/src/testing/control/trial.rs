//! Where the control plane in memory would place a replica, and why not.

use std::collections::BTreeMap;

use crate::{
    api::admin::NodeView,
    cluster::{
        catalog::{Model, Profile},
        node::NodeState,
    },
    reason::{Amount, Check, CheckCount, Fit, Reason, Rejection, Report},
    units::Bytes,
};

/// A trial by state and memory alone: whoever wants true placement asks the planner.
pub(super) fn trial(nodes: &[NodeView], model: &Model) -> Report {
    let mut fits = None;
    let mut rejections: Vec<Rejection> = Vec::new();
    let mut counts: BTreeMap<Check, usize> = BTreeMap::new();
    for node in nodes {
        let mut of_node: Vec<Rejection> = Vec::new();
        for profile in model.profiles() {
            let reasons = reasons(node, profile);
            if reasons.is_empty() {
                fits.get_or_insert_with(|| Fit {
                    node: node.id,
                    hostname: node.hostname.clone(),
                    profile: profile.name.clone(),
                });
            } else {
                of_node.push(Rejection {
                    node: node.id,
                    hostname: node.hostname.clone(),
                    profile: profile.name.clone(),
                    reasons,
                });
            }
        }
        let all_reject = of_node.len() == model.profiles().len();
        if let Some(first) = nearest(&of_node)
            .filter(|_| all_reject)
            .and_then(|rejection| rejection.reasons.first())
        {
            *counts.entry(first.check).or_default() += 1;
        }
        rejections.append(&mut of_node);
    }
    let summary = |(check, count)| CheckCount {
        check,
        nodes: count,
    };
    Report {
        model: model.name().clone(),
        nodes: nodes.len(),
        profiles: model.profiles().len(),
        replicas: 0,
        missing: 0,
        nearest: nearest(&rejections).filter(|_| fits.is_none()).cloned(),
        fits,
        rejections,
        summary: counts.into_iter().map(summary).collect(),
        pending: None,
        remedies: Vec::new(),
    }
}

/// The rejection with the fewest reasons, and among these the one that is short by least; a node that is being emptied
/// comes last.
fn nearest(rejections: &[Rejection]) -> Option<&Rejection> {
    rejections.iter().min_by_key(|rejection| {
        let short = rejection
            .reasons
            .iter()
            .map(|reason| reason.short_by.unwrap_or(Bytes(u64::MAX)));
        let draining = Some(Amount::Text(NodeState::Draining.as_str().to_owned()));
        let is_emptied = rejection.reasons.iter().any(|one| one.have == draining);
        (rejection.reasons.len(), is_emptied, short.sum::<Bytes>())
    })
}

/// Every check that fails, in order.
fn reasons(node: &NodeView, profile: &Profile) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if node.state != NodeState::Ready {
        let state = node.state.as_str();
        reasons.push(Reason {
            check: Check::Node,
            need: Amount::Text("ready".to_owned()),
            have: Some(Amount::Text(state.to_owned())),
            short_by: None,
            detail: format!("the node is {state}"),
        });
    }
    let need = profile.memory;
    let have = node
        .memory_allocatable
        .map(|all| all - node.memory_reserved);
    let short = have.map(|have| need - have);
    if short != Some(Bytes::ZERO) {
        let detail = match (have, short) {
            (Some(have), Some(short)) => format!("needs {need}, has {have}, short by {short}"),
            _ => format!("needs {need}, and its agent does not say what it has"),
        };
        reasons.push(Reason {
            check: Check::Memory,
            need: Amount::Bytes(need),
            have: have.map(Amount::Bytes),
            short_by: short,
            detail,
        });
    }
    reasons
}
