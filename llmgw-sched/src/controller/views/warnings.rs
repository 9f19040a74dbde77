//! What nodes warn of, each warning once for all nodes that have it.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use crate::reconcile::ObservedNode;

/// A line for each warning: `gpu-1: …` of one node, `3 nodes (gpu-1, gpu-2, gpu-3): …` of several, in the order in which
/// nodes have them.
///
/// Warnings that differ in paths alone are one: each node has its own there. Where they differ, `…` stands in their place.
pub(super) fn told_once<'n>(nodes: impl Iterator<Item = &'n Arc<ObservedNode>>) -> Vec<String> {
    let mut order: Vec<String> = Vec::new();
    let mut having: BTreeMap<String, Vec<(&str, &str)>> = BTreeMap::new();
    for node in nodes {
        let hostname = node.facts.hostname.as_str();
        for warning in &node.facts.warnings {
            let general = without_paths(&warning.text);
            let told = having.entry(general.clone()).or_default();
            if told.is_empty() {
                order.push(general);
            }
            // A node that says it twice is still one.
            if told.last().map(|(host, _)| *host) != Some(hostname) {
                told.push((hostname, &warning.text));
            }
        }
    }
    let line = |general: &String| {
        let told = having.get(general).map_or(&[][..], Vec::as_slice);
        let hosts: Vec<&str> = told.iter().map(|(host, _)| *host).collect();
        let mut texts = told.iter().map(|(_, text)| *text);
        let first = texts.next().unwrap_or(general);
        let text = if texts.all(|text| text == first) {
            first
        } else {
            general
        };
        format!("{}: {text}", whose(&hosts))
    };
    order.iter().map(line).collect()
}

/// The text with `…` in the place of each absolute path.
fn without_paths(text: &str) -> String {
    let word = |word: &str| {
        if word.starts_with('/') {
            "…".to_owned()
        } else {
            word.to_owned()
        }
    };
    let words: Vec<String> = text.split(' ').map(word).collect();
    words.join(" ")
}

/// The nodes in words, the first of many by name.
fn whose<'h>(hosts: &[&'h str]) -> Cow<'h, str> {
    if let [host] = hosts {
        return Cow::Borrowed(host);
    }
    let mut sorted = hosts.to_vec();
    sorted.sort_unstable();
    let named = sorted.get(..NAMED).unwrap_or(&sorted).join(", ");
    Cow::Owned(match sorted.len().saturating_sub(NAMED) {
        0 => format!("{} nodes ({named})", sorted.len()),
        more => format!("{} nodes ({named} and {more} more)", sorted.len()),
    })
}

/// `nodes` has them all, with what each warns of.
const NAMED: usize = 3;
