//! What nodes warn of, each warning once for all nodes that have it.

use std::{collections::BTreeMap, sync::Arc};

use crate::reconcile::ObservedNode;

/// A line for each warning: `gpu-1: …` of one node, `3 nodes (gpu-1, gpu-2, gpu-3): …` of several, in the order in which
/// nodes have them.
pub(super) fn told_once<'n>(nodes: impl Iterator<Item = &'n Arc<ObservedNode>>) -> Vec<String> {
    let mut order: Vec<&str> = Vec::new();
    let mut having: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in nodes {
        for warning in &node.facts.warnings {
            let hosts = having.entry(&warning.text).or_default();
            if hosts.is_empty() {
                order.push(&warning.text);
            }
            // A node that says it twice is still one.
            if hosts.last() != Some(&node.facts.hostname.as_str()) {
                hosts.push(&node.facts.hostname);
            }
        }
    }
    let line = |text: &&str| {
        let hosts = having.get(text).map_or(&[][..], Vec::as_slice);
        format!("{}: {text}", whose(hosts))
    };
    order.iter().map(line).collect()
}

/// The nodes in words, the first of many by name.
fn whose(hosts: &[&str]) -> String {
    if let [host] = hosts {
        return (*host).to_owned();
    }
    let mut sorted = hosts.to_vec();
    sorted.sort_unstable();
    let named = sorted.get(..NAMED).unwrap_or(&sorted).join(", ");
    match sorted.len().saturating_sub(NAMED) {
        0 => format!("{} nodes ({named})", sorted.len()),
        more => format!("{} nodes ({named} and {more} more)", sorted.len()),
    }
}

/// `nodes` has them all, with what each warns of.
const NAMED: usize = 3;
