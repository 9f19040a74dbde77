//! What would help: changes of one kind at a time, each tried, each as small as it can be.

mod room;
mod smaller;
mod wider;

use llmgw_core::reason::remedy::{Change, Remedy};

use super::trial::{Candidate, Trials};
use crate::fleet::FleetNode;

/// All that helps, by kind in the order of [`Change`], the best of each kind first.
pub(super) fn remedies(trials: &Trials<'_, '_>) -> Vec<Remedy> {
    let kinds: [fn(&Trials<'_, '_>) -> Vec<Remedy>; 8] = [
        smaller::context,
        smaller::slots,
        wider::profile,
        room::stop,
        wait,
        wider::ready,
        wider::lift,
        room::disk,
    ];
    let mut remedies: Vec<Remedy> = kinds
        .iter()
        .flat_map(|kind| kind(trials).into_iter().take(MOST_OF_A_KIND))
        .collect();
    if remedies.is_empty() {
        remedies.extend(wider::node(trials));
    }
    remedies
}

fn wait(trials: &Trials<'_, '_>) -> Vec<Remedy> {
    let mut waits = wider::installing(trials);
    waits.extend(room::leaving(trials));
    waits
}

/// Tries a change of each candidate's node, and keeps those after which the model is placed.
fn on_nodes<'t>(
    trials: &Trials<'_, '_>,
    candidates: Vec<Candidate<'t>>,
    change: impl Fn(&mut FleetNode, Candidate<'t>) -> Option<Change>,
) -> Vec<Remedy> {
    let tried = candidates.into_iter().filter_map(|candidate| {
        let mut node = trials.node(candidate.index)?;
        let change = change(&mut node, candidate)?;
        let places = trials.with_node(node, candidate.profile)?;
        Some(Remedy {
            change,
            places: Some(places),
        })
    });
    first_of_each(tried)
}

/// Leaves out what was said before of another profile or node.
fn first_of_each(remedies: impl Iterator<Item = Remedy>) -> Vec<Remedy> {
    let mut kept: Vec<Remedy> = Vec::new();
    for remedy in remedies {
        if kept.iter().all(|known| known.change != remedy.change) {
            kept.push(remedy);
        }
        if kept.len() == MOST_OF_A_KIND {
            break;
        }
    }
    kept
}

/// More of one kind would hide the others.
const MOST_OF_A_KIND: usize = 3;
