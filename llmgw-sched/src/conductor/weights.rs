//! Weights on the nodes' disks that no model refers to: which there are, and their removal.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use llmgw_core::{
    api::admin::OrphanView,
    cluster::weights::{Sha256Digest, Source, WeightsOrders},
    id::NodeId,
};

use super::{findings, snapshot::Snapshot};
use crate::reconcile::{ObservedNode, is_lost};

/// What lies on disks and no model refers to, by node, then by digest.
#[must_use]
pub fn orphans(snapshot: &Snapshot, now: Duration) -> Vec<OrphanView> {
    let catalog = of_catalog(snapshot);
    let used = used(snapshot);
    let unknown = unknown(snapshot);
    let mut orphans = Vec::new();
    for (id, node) in &snapshot.observed.nodes {
        let lost = is_lost(node, now).then(|| format!("{} is not heard", node.facts.hostname));
        let shared = shares_with_unknown(snapshot, *id, node, now);
        let ordered = snapshot.collect.get(id);
        for one in node.weights.iter().flatten().filter(|one| !one.in_place) {
            if catalog.contains(&one.sha256) {
                continue;
            }
            let user = used
                .get(&one.sha256)
                .map(|hostname| format!("a replica on {hostname} still runs on them"));
            let in_use = one
                .in_use
                .then(|| format!("{} still uses them", node.facts.hostname));
            orphans.push(OrphanView {
                sha256: one.sha256,
                node: *id,
                hostname: node.facts.hostname.clone(),
                name: one.name.clone(),
                size: one.size,
                last_used: one.last_used,
                collecting: ordered.is_some_and(|ordered| ordered.contains(&one.sha256)),
                kept: user
                    .or(in_use)
                    .or_else(|| unknown.clone())
                    .or_else(|| lost.clone())
                    .or_else(|| shared.clone()),
            });
        }
    }
    orphans.sort_by(|a, b| (&a.hostname, a.node, a.sha256).cmp(&(&b.hostname, b.node, b.sha256)));
    orphans
}

/// What a node is to do about weights. What a model refers to again is collected no more.
#[must_use]
pub fn orders(snapshot: &Snapshot, node: NodeId) -> WeightsOrders {
    let WeightsOrders {
        evict,
        mirror,
        hub_token,
        collect: _,
        headers: _,
    } = &snapshot.weights_orders;
    let ordered = snapshot.collect.get(&node);
    let collect = ordered.map_or_else(BTreeSet::new, |ordered| {
        let (catalog, used) = (of_catalog(snapshot), used(snapshot));
        let still =
            |digest: &&Sha256Digest| !catalog.contains(digest) && !used.contains_key(digest);
        ordered.iter().filter(still).copied().collect()
    });
    // A secret goes where it is needed.
    let mut given = snapshot.memory.assignments.values();
    let asks_hub = given.any(|given| {
        let mut sources = given.spec.weights.sources.iter();
        given.node == node && sources.any(|source| matches!(source, Source::Hub { .. }))
    });
    WeightsOrders {
        collect,
        evict: *evict,
        mirror: mirror.clone(),
        headers: findings::asked_of_nodes(snapshot),
        hub_token: hub_token.clone().filter(|_| asks_hub),
    }
}

/// The digests of all models, as they are defined and as they were found to be.
fn of_catalog(snapshot: &Snapshot) -> BTreeSet<Sha256Digest> {
    let mut digests = BTreeSet::new();
    for entry in snapshot.entries.values() {
        digests.extend(entry.model.weights().digests());
        digests.extend(snapshot.completed(entry).weights().digests());
    }
    digests
}

/// The digests of all replicas, also of models that are gone, with a node that runs one.
fn used(snapshot: &Snapshot) -> BTreeMap<Sha256Digest, String> {
    let mut used = BTreeMap::new();
    for (id, node) in &snapshot.observed.nodes {
        let reported = node.replicas.values().map(|status| &status.spec);
        let given = snapshot.memory.assignments.values();
        let given = given
            .filter(|given| given.node == *id)
            .map(|given| &*given.spec);
        for spec in reported.chain(given) {
            for digest in spec.weights.digests() {
                used.insert(digest, node.facts.hostname.clone());
            }
        }
    }
    used
}

/// Why no digest can be said to be nobody's: a model whose files are not known yet may be made of any.
fn unknown(snapshot: &Snapshot) -> Option<String> {
    let mut entries = snapshot.entries.values();
    let open = entries.find(|entry| !snapshot.completed(entry).weights().is_pinned())?;
    Some(format!(
        "it is not known yet which files {} is made of",
        open.model.name()
    ))
}

/// Why nothing may be removed from a disk that others may share: one of them does not say what it uses.
fn shares_with_unknown(
    snapshot: &Snapshot,
    id: NodeId,
    node: &ObservedNode,
    now: Duration,
) -> Option<String> {
    let is_shared = |node: &ObservedNode| node.facts.disk.as_ref().is_some_and(|disk| disk.shared);
    if !is_shared(node) {
        return None;
    }
    let mut others = snapshot.observed.nodes.iter();
    let silent = others.find(|(other, other_node)| {
        **other != id
            && is_shared(other_node)
            && (is_lost(other_node, now) || other_node.weights.is_none())
    });
    silent.map(|(_, other)| {
        format!(
            "the disk is shared, and {} does not say what it uses",
            other.facts.hostname
        )
    })
}
