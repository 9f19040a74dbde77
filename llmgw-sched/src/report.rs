//! Builds the reasons: every node and profile, a count for each check, the nearest miss, what would help.
//!
//! Remedies are found by trying them: each line was planned with, and placed the model.

mod remedies;
mod trial;

use llmgw_core::{
    cluster::{catalog::Model, engine::ProvisionState, node::NodeState},
    reason::{Amount, Check, CheckCount, Fit, Reason, Rejection, Report, remedy::Change},
    units::Bytes,
};

use self::trial::Trials;
use crate::planner::{
    Trial,
    filter::{failing, too_few_nodes},
    sizes::Sizes,
    working::{Ask, Working},
};

/// The report of a trial: `working` is the fleet as it was tried, without what the choice takes.
pub(crate) fn build(working: &mut Working<'_>, trial: Trial<'_>, sizes: &Sizes) -> Report {
    let Trial {
        model,
        replicas,
        missing,
        choice,
        ahead,
    } = trial;
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
        replicas,
        missing,
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
        report.remedies = remedies::remedies(&Trials {
            working,
            model,
            ahead,
            rejections: &report.rejections,
            sizes,
        });
        let mut remedies = report.remedies.iter();
        report.pending = remedies.find_map(|remedy| match &remedy.change {
            Change::Wait { until, .. } => Some(until.to_string()),
            _ => None,
        });
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

/// How far a rejection is from fitting: fewer failing checks, then fewer that nobody can mend on that node, then fewer
/// that are unknown, then less missing. A node that is being emptied is farther than all others: it is no place to come
/// nearer to, least of all for what is to leave it.
fn distance(rejection: &Rejection) -> (bool, usize, usize, usize, Bytes) {
    let draining = Amount::Text(NodeState::Draining.as_str().to_owned());
    let is_emptied =
        |reason: &Reason| reason.check == Check::Node && reason.have.as_ref() == Some(&draining);
    let is_of_the_node = |reason: &Reason| {
        matches!(
            reason.check,
            Check::Pool | Check::Labels | Check::Gpus | Check::Fabric
        )
    };
    let given = rejection
        .reasons
        .iter()
        .filter(|reason| is_of_the_node(reason))
        .count();
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
    let is_emptied = rejection.reasons.iter().any(is_emptied);
    (is_emptied, rejection.reasons.len(), given, unknown, missing)
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

pub(crate) fn installed() -> ProvisionState {
    ProvisionState::Installed {
        version: String::new(),
        variant: String::new(),
    }
}
