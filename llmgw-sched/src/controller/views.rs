//! What the roles answer, from a snapshot.

mod summary;
mod warnings;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use llmgw_core::{
    api::{
        admin::{InstalledEngine, ModelView, NodeView, ProfileView, ReplicaView, UnhealthyGpu},
        orders::{LogOf, LogView, Scaled},
    },
    cluster::{
        catalog::{Model, Profile},
        engine::{Provision, ProvisionState},
        node::{Gpu, NodeState},
        order::{Order, Subject},
        replica::{ReplicaState, ReplicaStatus},
        weights::{FetchProgress, Sha256Digest},
    },
    control::Traffic,
    id::{ModelName, NodeId, ReplicaId},
    reason::{
        Fit,
        remedy::{Awaited, Change, Remedy},
    },
    route::Waiting,
    units::Bytes,
};

pub(super) use self::summary::{Surroundings, frozen, held_up, summary};
use crate::{
    conductor::snapshot::{Entry, Snapshot},
    fleet::FleetNode,
    reconcile::{Assignment, ObservedNode, is_lost},
};

pub(super) fn nodes(snapshot: &Snapshot, now: Duration) -> Vec<NodeView> {
    let fleet = snapshot.fleet(now);
    let known: BTreeMap<NodeId, &FleetNode> =
        fleet.nodes.iter().map(|node| (node.id, node)).collect();
    let models = digests(snapshot);
    let mut views: Vec<NodeView> = snapshot
        .observed
        .nodes
        .iter()
        .map(|(id, node)| {
            let given = snapshot
                .memory
                .assignments
                .values()
                .filter(|given| given.node == *id);
            node_view(
                *id,
                node,
                NodeSums {
                    reserved: known
                        .get(id)
                        .map_or(Bytes::ZERO, |node| node.memory_reserved()),
                    gpus_free: known.get(id).and_then(|node| node.gpus_free()),
                    replicas: given.count(),
                    models_on_disk: models_on_disk(&models, node),
                    pools: snapshot.pools.of(&node.facts.labels),
                    state: node_state(snapshot, *id, node, now),
                    state_reason: snapshot
                        .orders
                        .node(*id)
                        .map(|order| order.reason.clone())
                        .filter(|reason| !reason.is_empty()),
                },
                now,
            )
        })
        .collect();
    views.sort_by(|a, b| a.hostname.cmp(&b.hostname).then(a.id.cmp(&b.id)));
    views
}

struct NodeSums {
    reserved: Bytes,
    gpus_free: Option<usize>,
    replicas: usize,
    models_on_disk: Option<Vec<ModelName>>,
    pools: Vec<String>,
    state: NodeState,
    state_reason: Option<String>,
}

/// What a node may be used for: that it is not heard goes before what was ordered.
pub(super) fn node_state(
    snapshot: &Snapshot,
    id: NodeId,
    node: &ObservedNode,
    now: Duration,
) -> NodeState {
    match snapshot.orders.node(id) {
        _ if is_lost(node, now) => NodeState::Lost,
        Some(order) => order.duty.into(),
        None => NodeState::Ready,
    }
}

fn installed(provision: &[Provision]) -> Vec<InstalledEngine> {
    let engine = |one: &Provision| match &one.state {
        ProvisionState::Installed { version, variant } => Some(InstalledEngine {
            name: one.engine.clone(),
            version: version.clone(),
            variant: variant.clone(),
        }),
        _ => None,
    };
    provision.iter().filter_map(engine).collect()
}

/// The digests of each model that is known to have some.
fn digests(snapshot: &Snapshot) -> Vec<(ModelName, Vec<Sha256Digest>)> {
    let of = |entry: &Entry| {
        let completed = snapshot.completed(entry);
        let digests = completed.weights().digests().collect();
        (entry.model.name().clone(), digests)
    };
    let all = snapshot.entries.values().map(of);
    all.filter(|(_, digests): &(_, Vec<_>)| !digests.is_empty())
        .collect()
}

/// The models all of whose files lie on a node; absent when it does not say.
fn models_on_disk(
    models: &[(ModelName, Vec<Sha256Digest>)],
    node: &ObservedNode,
) -> Option<Vec<ModelName>> {
    let there = node.weights.as_ref()?.iter().map(|one| one.sha256);
    let there: BTreeSet<Sha256Digest> = there.collect();
    let has_all = |(_, digests): &&(ModelName, Vec<Sha256Digest>)| {
        digests.iter().all(|digest| there.contains(digest))
    };
    let held = models.iter().filter(has_all);
    Some(held.map(|(name, _)| name.clone()).collect())
}

fn node_view(id: NodeId, node: &ObservedNode, sums: NodeSums, now: Duration) -> NodeView {
    let facts = &node.facts;
    NodeView {
        id,
        hostname: facts.hostname.clone(),
        state: sums.state,
        state_reason: sums.state_reason,
        probed: true,
        labels: facts.labels.clone(),
        pools: sums.pools,
        os: facts.os.clone(),
        arch: facts.arch.clone(),
        cpu_cores: facts.cpu.as_ref().map(|cpu| cpu.cores),
        cpu_features: facts.cpu.as_ref().map(|cpu| cpu.features.clone()),
        mgmt_addr: facts.management_address.clone(),
        gpu_total: facts.gpus.as_ref().map(Vec::len),
        gpu_free: sums.gpus_free,
        gpu_classes: facts.gpus.as_deref().map(classes),
        unhealthy_gpus: facts.gpus.as_deref().map(unhealthy),
        fabrics: facts.fabrics.clone(),
        memory_total: facts.memory.map(|memory| memory.total),
        memory_gb: facts.memory.map(|memory| whole_gib(memory.total)),
        memory_allocatable: facts.memory.map(|memory| memory.allocatable),
        memory_reserved: sums.reserved,
        disk_free: facts.disk.as_ref().map(|disk| disk.free),
        disk_free_gb: facts.disk.as_ref().map(|disk| whole_gib(disk.free)),
        disk_total: facts.disk.as_ref().map(|disk| disk.total),
        disk_total_gb: facts.disk.as_ref().map(|disk| whole_gib(disk.total)),
        engines: installed(&node.provision),
        provision: node.provision.clone(),
        warnings: facts.warnings.clone(),
        last_seen_ago: now.saturating_sub(node.heard_at).as_secs(),
        agent_version: facts.agent_version.clone(),
        replicas: sums.replicas,
        models_on_disk: sums.models_on_disk,
    }
}

fn classes(gpus: &[Gpu]) -> Vec<String> {
    let classes: BTreeSet<&String> = gpus.iter().filter_map(|gpu| gpu.class.as_ref()).collect();
    classes.into_iter().cloned().collect()
}

fn unhealthy(gpus: &[Gpu]) -> Vec<UnhealthyGpu> {
    let sick = gpus.iter().filter_map(|gpu| {
        Some(UnhealthyGpu {
            index: gpu.index,
            class: gpu.class.clone(),
            fault: gpu.fault.clone()?,
        })
    });
    sick.collect()
}

fn whole_gib(bytes: Bytes) -> u64 {
    bytes.0 / Bytes::gib(1).0
}

pub(super) fn models(snapshot: &Snapshot, now: Duration) -> Vec<ModelView> {
    snapshot
        .entries
        .values()
        .map(|entry| model_view(snapshot, entry, now))
        .collect()
}

fn model_view(snapshot: &Snapshot, entry: &Entry, now: Duration) -> ModelView {
    let Entry { model, origin, .. } = entry;
    let name = model.name();
    let history = snapshot.memory.histories.get(name);
    let waiting = snapshot.waiting(entry, now);
    let completed = snapshot.completed(entry);
    let scaled = Scaled::from((name.clone(), completed.scaling()));
    let desired = snapshot.memory.target(&completed);
    let lacking = snapshot.memory.serving(name) < u64::from(desired);
    let unplaceable = match waiting {
        Waiting::Unplaceable(reason) if lacking => Some(reason),
        Waiting::Unplaceable(_) | Waiting::Loading(_) | Waiting::Parked(_) | Waiting::Off(_) => {
            None
        }
    };
    let report = snapshot.reports.get(name).filter(|_| unplaceable.is_some());
    ModelView {
        name: name.clone(),
        description: model.description().to_owned(),
        aliases: model.aliases().to_vec(),
        fallbacks: model.fallbacks().to_vec(),
        source: model
            .weights()
            .sources
            .iter()
            .map(|source| source.without_secrets().to_string())
            .collect(),
        origin: *origin,
        min_replicas: scaled.min,
        max_replicas: scaled.max,
        idle_timeout: scaled.idle_timeout,
        idle_timeout_text: scaled.idle_timeout_text,
        on_demand: scaled.on_demand,
        desired,
        ready_replicas: ready(snapshot, name),
        total_replicas: of_model(snapshot, name).count(),
        profiles: model
            .profiles()
            .iter()
            .zip(completed.profiles())
            .map(|(written, completed)| profile_view(written, completed))
            .collect(),
        parked: history.is_some_and(|history| history.parked),
        failures: history.map_or(0, |history| history.failures),
        last_error: history.and_then(|history| history.last_error.clone()),
        unplaceable,
        unplaceable_check: report.and_then(|report| Some(report.summary.first()?.check)),
    }
}

fn profile_view(written: &Profile, completed: &Profile) -> ProfileView {
    let profile = completed;
    ProfileView {
        name: profile.name.clone(),
        engine: profile.engine.to_string(),
        memory: profile.is_sized().then_some(profile.memory),
        memory_estimated: !written.is_sized(),
        context: profile.context,
        parallel: profile.parallel,
    }
}

pub(super) fn replicas(
    snapshot: &Snapshot,
    only: Option<&ModelName>,
    traffic: Option<&dyn Traffic>,
    now: Duration,
) -> Vec<ReplicaView> {
    let mut views: Vec<ReplicaView> = snapshot
        .memory
        .assignments
        .iter()
        .filter(|(_, given)| only.is_none_or(|model| given.spec.model == *model))
        .map(|(id, given)| replica_view(snapshot, *id, given, traffic, now))
        .collect();
    views.sort_by(|a, b| a.model.cmp(&b.model).then(a.id.cmp(&b.id)));
    views
}

fn replica_view(
    snapshot: &Snapshot,
    id: ReplicaId,
    given: &Assignment,
    traffic: Option<&dyn Traffic>,
    now: Duration,
) -> ReplicaView {
    let node = snapshot.observed.nodes.get(&given.node);
    let status: Option<&ReplicaStatus> = node.and_then(|node| node.replicas.get(&id));
    let state = match status {
        _ if given.draining.is_some() => ReplicaState::Draining,
        _ if node.is_none_or(|node| is_lost(node, now)) => ReplicaState::Lost,
        Some(status) => status.state,
        None => ReplicaState::Placing,
    };
    let current = snapshot.entries.get(&given.spec.model).and_then(|entry| {
        let model: &Model = &entry.model;
        model
            .profile(&given.spec.profile.name)
            .map(|profile| model.fingerprint(profile))
    });
    let in_flight = traffic.map_or(0, |traffic| traffic.outstanding(id));
    let mut view = ReplicaView {
        id,
        model: given.spec.model.clone(),
        profile: given.spec.profile.name.clone(),
        pool: given.spec.profile.needs.pool.clone(),
        // A model or profile that is gone does not make a replica stale: other states say that.
        stale: current.is_some_and(|current| current != given.spec.fingerprint),
        state,
        node: given.node,
        hostname: node.map_or_else(String::new, |node| node.facts.hostname.clone()),
        endpoint: status.and_then(|status| status.endpoint.clone()),
        age_seconds: now.saturating_sub(given.since).as_secs(),
        memory: Some(given.spec.profile.memory),
        measured: status.and_then(|status| status.measured.clone()),
        state_since: status.map(|status| status.since),
        in_flight,
        idle_seconds: match status {
            // A call that has come since the last step.
            _ if in_flight > 0 => 0,
            Some(_) => seconds(now.saturating_sub(given.used_at)),
            None => -1,
        },
        error: status.and_then(|status| status.error.clone()),
        log_tail: status
            .map(|status| status.log_tail.clone())
            .unwrap_or_default(),
        fetch: status
            .and_then(|status| status.fetch.clone())
            .map(|fetch| FetchProgress {
                source: fetch.source.without_secrets(),
                ..fetch
            }),
        shards: Vec::new(),
    };
    view.shards = vec![view.only_shard(given.spec.gpus.clone())];
    view
}

/// Whole seconds, as far as a number has them.
fn seconds(span: Duration) -> i64 {
    i64::try_from(span.as_secs()).unwrap_or(i64::MAX)
}

/// The last lines of the engines of a model, as far as nodes have told them.
pub(super) fn logs(snapshot: &Snapshot, model: &ModelName) -> Vec<LogView> {
    let mut logs = Vec::new();
    if let Some((error, lines)) = first_failure(snapshot, model) {
        logs.push(LogView {
            model: model.clone(),
            of: LogOf::FirstFailure,
            replica: None,
            hostname: None,
            error,
            lines,
        });
    }
    for (id, given) in of_model(snapshot, model) {
        let node = snapshot.observed.nodes.get(&given.node);
        let Some(status) = node.and_then(|node| node.replicas.get(id)) else {
            continue;
        };
        if status.log_tail.is_empty() && status.error.is_none() {
            continue;
        }
        logs.push(LogView {
            model: model.clone(),
            of: LogOf::Replica,
            replica: Some(*id),
            hostname: Some(snapshot.hostname(given.node)),
            error: status.error.clone(),
            lines: status.log_tail.clone(),
        });
    }
    logs
}

/// Why a model fails, and what its engine wrote at the first of the failures in a row: what parked it, as it was kept,
/// or what it is tried again after.
fn first_failure(snapshot: &Snapshot, model: &ModelName) -> Option<(Option<String>, Vec<String>)> {
    let parked = snapshot.orders.get(&Subject::Park(model.clone()));
    if let Some(Order::Park { parked, .. }) = parked.map(|stored| &stored.order) {
        return Some((Some(parked.error.clone()), parked.first_log.clone()));
    }
    let history = snapshot.memory.histories.get(model)?;
    Some((history.last_error.clone(), history.first_log.clone()))
}

/// What a model that nothing serves yet waits for by itself: its weights, with how long that takes.
pub(super) fn downloads(snapshot: &Snapshot, model: &ModelName) -> Vec<Remedy> {
    if ready(snapshot, model) > 0 {
        return Vec::new();
    }
    let given = of_model(snapshot, model).filter(|(_, given)| given.draining.is_none());
    let fetching = given.filter_map(|(id, given)| {
        let node = snapshot.observed.nodes.get(&given.node)?;
        let status = node.replicas.get(id)?;
        let fetch = status.fetch.as_ref()?;
        if status.state != ReplicaState::Fetching {
            return None;
        }
        Some(Remedy {
            change: Change::Wait {
                until: Awaited::Weights {
                    replica: *id,
                    hostname: node.facts.hostname.clone(),
                    state: fetch.to_string(),
                },
                percent: fetch.percent(),
                seconds: fetch.eta_seconds,
            },
            places: Some(Fit {
                node: given.node,
                hostname: node.facts.hostname.clone(),
                profile: given.spec.profile.name.clone(),
            }),
        })
    });
    fetching.collect()
}

/// How many of these replicas are of an older definition, and stay until they are rolled: those that end are not told.
pub(super) fn stale(replicas: &[ReplicaView]) -> usize {
    let stays = |replica: &&ReplicaView| replica.state != ReplicaState::Draining;
    replicas
        .iter()
        .filter(|replica| replica.stale)
        .filter(stays)
        .count()
}

fn of_model<'s>(
    snapshot: &'s Snapshot,
    name: &ModelName,
) -> impl Iterator<Item = (&'s ReplicaId, &'s Assignment)> {
    let assignments = snapshot.memory.assignments.iter();
    assignments.filter(move |(_, given)| given.spec.model == *name)
}

fn ready(snapshot: &Snapshot, name: &ModelName) -> usize {
    of_model(snapshot, name)
        .filter(|(_, given)| given.draining.is_none() && given.ready_since.is_some())
        .count()
}

#[cfg(test)]
mod tests;
