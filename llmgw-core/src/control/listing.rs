//! Lists that several control planes make in the same way.

use std::collections::BTreeMap;

use crate::{
    api::admin::{ChosenBy, EngineView, JobKind, JobView, NodeEngine, NodeView, ReplicaView},
    cluster::{
        engine::{ProvisionState, WantedEngine},
        order::{Orders, Subject},
        replica::ReplicaState,
        weights::shown,
    },
    id::EngineName,
};

/// The engines that are wanted and those that nodes tell of, by name, then by node; `orders` say which were chosen.
#[must_use]
pub fn engines(wanted: &[WantedEngine], orders: &Orders, nodes: &[NodeView]) -> Vec<EngineView> {
    let mut engines: BTreeMap<&EngineName, EngineView> = BTreeMap::new();
    let bare = |name: &EngineName| EngineView {
        name: name.clone(),
        wanted: None,
        chosen: None,
        nodes: Vec::new(),
    };
    for one in wanted {
        let engine = engines.entry(&one.name).or_insert_with(|| bare(&one.name));
        // What is found out about a release is no part of what is wanted.
        engine.wanted = Some(WantedEngine {
            release: None,
            ..one.without_secrets()
        });
        let chosen = orders.get(&Subject::Engine(one.name.clone()));
        engine.chosen = chosen.map(|stored| ChosenBy {
            by: stored.by.clone(),
            since: stored.since,
        });
    }
    for node in nodes {
        for provision in &node.provision {
            let name = &provision.engine;
            let engine = engines.entry(name).or_insert_with(|| bare(name));
            engine.nodes.push(NodeEngine {
                node: node.id,
                hostname: node.hostname.clone(),
                provision: provision.clone(),
            });
        }
    }
    engines.into_values().collect()
}

/// The jobs that nodes and replicas tell of, by node, then by subject.
#[must_use]
pub fn jobs(nodes: &[NodeView], replicas: &[ReplicaView]) -> Vec<JobView> {
    let mut jobs = Vec::new();
    for node in nodes {
        for provision in &node.provision {
            let percent = match &provision.state {
                ProvisionState::Installing { percent, .. } => *percent,
                _ => continue,
            };
            jobs.push(JobView {
                id: format!("install-{}-{}", provision.engine, node.id),
                kind: JobKind::InstallEngine,
                subject: provision.engine.to_string(),
                node: node.id,
                hostname: node.hostname.clone(),
                detail: provision.state.describe(),
                percent,
            });
        }
    }
    for replica in replicas {
        let Some(fetch) = &replica.fetch else {
            continue;
        };
        if replica.state != ReplicaState::Fetching {
            continue;
        }
        jobs.push(JobView {
            id: format!("fetch-{}", replica.id),
            kind: JobKind::FetchWeights,
            subject: replica.model.to_string(),
            node: replica.node,
            hostname: replica.hostname.clone(),
            detail: format!("{fetch} from {}", shown(&fetch.source)),
            percent: fetch.percent(),
        });
    }
    jobs.sort_by(|a, b| {
        (&a.hostname, a.node, &a.subject, a.kind).cmp(&(&b.hostname, b.node, &b.subject, b.kind))
    });
    jobs
}
