//! All shards of a replica at once, or none: each on a node of its own, over one fabric where that is asked for.

use std::collections::BTreeMap;

use super::working::{Ask, Spot, Working};
use crate::fleet::FleetNode;

/// The best places for all parts of a replica, by rank; `None` when one of them finds none.
pub(crate) fn best(working: &mut Working<'_>, ask: &Ask<'_>) -> Option<Vec<Spot>> {
    let needs = &ask.profile.needs;
    let Some(shards) = needs.shards else {
        return working.best(ask).map(|spot| vec![spot]);
    };
    let count = usize::try_from(shards.count).unwrap_or(usize::MAX);
    if let Some(fabric) = &needs.fabric {
        let groups = groups(working, &fabric.name);
        let within = groups
            .into_values()
            .filter(|nodes| nodes.len() >= count)
            .filter_map(|nodes| {
                apart(working, ask, count, |node| {
                    nodes.binary_search(&node).is_ok()
                })
            })
            // The fabric whose nodes are better, the worst of each compared first.
            .min_by_key(|spots| {
                let mut scores: Vec<_> = spots.iter().map(|spot| spot.score).collect();
                scores.sort_unstable_by_key(|score| std::cmp::Reverse(*score));
                scores
            });
        if within.is_some() || fabric.required {
            return within;
        }
    }
    apart(working, ask, count, |_| true)
}

/// So many best places on different nodes.
fn apart(
    working: &mut Working<'_>,
    ask: &Ask<'_>,
    count: usize,
    among: impl Fn(usize) -> bool,
) -> Option<Vec<Spot>> {
    let mut spots: Vec<Spot> = Vec::new();
    while spots.len() < count {
        let free = |node: usize| among(node) && spots.iter().all(|spot| spot.node != node);
        let spot = working.best_of(ask, free)?;
        spots.push(spot);
    }
    Some(spots)
}

/// The places of the nodes of each fabric that answers to a name or kind.
fn groups(working: &Working<'_>, wanted: &str) -> BTreeMap<String, Vec<usize>> {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, node) in working.nodes.iter().enumerate() {
        for fabric in fabrics(node.node, wanted) {
            let nodes = groups.entry(fabric.to_owned()).or_default();
            // A node that names a fabric twice is in it once.
            if nodes.last() != Some(&index) {
                nodes.push(index);
            }
        }
    }
    groups
}

/// The names of a node's fabrics that answer to a name or kind.
pub(crate) fn fabrics<'n>(node: &'n FleetNode, wanted: &'n str) -> impl Iterator<Item = &'n str> {
    node.fabrics
        .iter()
        .filter(move |fabric| fabric.name == wanted || fabric.kind == wanted)
        .map(|fabric| fabric.name.as_str())
}
