//! When many nodes fall silent at once, it is more likely that they can't be heard than that they are gone: then nothing
//! is moved, and that is said, until they are back or an operator says so.

use std::{collections::BTreeSet, time::Duration};

use llmgw_core::id::NodeId;

use super::{Action, LOST_AFTER, scene::Scene};

/// Too many nodes are silent for anything to be moved.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Frozen {
    /// Since when.
    pub since: Duration,
    /// The nodes that were silent then.
    pub silent: BTreeSet<NodeId>,
    /// How many nodes there were, those included.
    pub of: usize,
}

/// Stops moving when too many nodes are silent, and begins again when they are back.
pub(super) fn watch_silence(scene: &Scene<'_>) -> Vec<Action> {
    let (silent, of) = silent(scene);
    let too_many = is_too_many(silent.len(), of);
    match (&scene.memory.frozen, too_many) {
        (None, true) if would_lose(scene, &silent) => vec![Action::Freeze { silent, of }],
        (Some(_), false) => vec![Action::Thaw],
        _ => Vec::new(),
    }
}

/// The nodes that are silent, and how many there are that count: those that are heard, that fell silent lately, or that
/// still have something to do. One that was given up long ago tells nothing about the network.
fn silent(scene: &Scene<'_>) -> (BTreeSet<NodeId>, usize) {
    let busy: BTreeSet<NodeId> = scene
        .memory
        .assignments
        .values()
        .map(|given| given.node)
        .collect();
    let frozen = scene.memory.frozen.as_ref();
    let mut silent = BTreeSet::new();
    let mut of = 0;
    for (id, node) in &scene.observed.nodes {
        let age = scene.now.saturating_sub(node.heard_at);
        if node.left || scene.memory.given_up.contains(id) {
            continue;
        }
        let counts = age <= LOST_AFTER + LATELY
            || busy.contains(id)
            || frozen.is_some_and(|frozen| frozen.silent.contains(id));
        if !counts {
            continue;
        }
        of += 1;
        if age > QUIET_AFTER {
            silent.insert(*id);
        }
    }
    (silent, of)
}

/// A third of them or so and at least three, or all of several.
fn is_too_many(silent: usize, of: usize) -> bool {
    (silent >= 3 && silent * 10 >= of * 3) || (silent >= 2 && silent == of)
}

/// Whether one of them is silent for so long that what it runs would be let go.
fn would_lose(scene: &Scene<'_>, silent: &BTreeSet<NodeId>) -> bool {
    let heard_at = |id: &NodeId| Some(scene.observed.nodes.get(id)?.heard_at);
    silent
        .iter()
        .filter_map(heard_at)
        .any(|at| scene.now.saturating_sub(at) > LOST_AFTER)
}

/// Three heartbeats: those that fell silent together with the first that is lost are beyond this by then.
const QUIET_AFTER: Duration = Duration::from_secs(6);
/// How long a node that is lost still counts as one that fell silent with others.
const LATELY: Duration = Duration::from_secs(60);
