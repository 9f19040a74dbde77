//! Which checks a node fails for a profile. All of them, not the first.

use llmgw_core::{
    cluster::{
        catalog::{GpuNeed, Model},
        engine::ProvisionState,
        node::NodeState,
    },
    reason::{Amount, Check, Reason},
    units::{Bytes, Cores},
};

use super::{
    demand::Demand,
    gang,
    room::{Room, Slot, amount},
    working::{Ask, Working, WorkingNode, disk_need},
};

/// Every check that fails for one part of a replica, in the order of [`Check`]; none when the node can take it.
pub(crate) fn failing(working: &Working<'_>, index: usize, ask: &Ask<'_>) -> Vec<Reason> {
    let Some(node) = working.nodes.get(index) else {
        return Vec::new();
    };
    let room = working.room_of(node);
    [
        check_state(node),
        check_hold(working, node),
        check_pool(working, node, ask),
        check_labels(node, ask),
        check_engine(node, ask),
        check_gpus(node, room, ask),
        check_gpu_memory(room, ask),
        check_cpu(room, &ask.demand),
        check_memory(room, &ask.demand),
        check_disk(working, index, ask),
        check_fabric(node, ask),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What keeps a node that can take one shard from being used: the others find no place.
pub(crate) fn too_few_nodes(ask: &Ask<'_>, able: usize) -> Option<Reason> {
    let shards = ask.profile.needs.shards?;
    let over = match &ask.profile.needs.fabric {
        Some(fabric) if fabric.required => format!(" that {} connects", fabric.name),
        _ => String::new(),
    };
    Some(Reason {
        check: Check::Shards,
        need: Amount::Text(format!("{} nodes{over}", shards.count)),
        have: Some(Amount::Text(able.to_string())),
        short_by: None,
        detail: format!(
            "its {} shards need as many nodes{over}, and only {able} can take one",
            shards.count
        ),
    })
}

fn check_state(node: &WorkingNode<'_>) -> Option<Reason> {
    let detail = match node.node.state {
        NodeState::Ready => return None,
        NodeState::Cordoned => "cordoned: it takes no new replicas",
        NodeState::Draining => "draining: what runs there moves off",
        NodeState::Lost => "lost: its agent is not heard",
        NodeState::Pending => "pending: it is not approved yet",
    };
    let have = node.node.state.as_str().to_owned();
    Some(told(
        Check::Node,
        "ready".to_owned(),
        Some(have),
        detail.to_owned(),
    ))
}

fn check_hold(working: &Working<'_>, node: &WorkingNode<'_>) -> Option<Reason> {
    let hold = working.fleet().hold_on(node.node)?;
    let detail = if hold.reason.is_empty() {
        "nothing is placed there".to_owned()
    } else {
        hold.reason.clone()
    };
    Some(told(
        Check::Hold,
        "no hold".to_owned(),
        Some("held".to_owned()),
        detail,
    ))
}

fn check_pool(working: &Working<'_>, node: &WorkingNode<'_>, ask: &Ask<'_>) -> Option<Reason> {
    let pool = ask.profile.needs.pool.as_ref()?;
    let fleet = working.fleet();
    if fleet.is_in_pool(node.node, pool) {
        return None;
    }
    let detail = if fleet.pools.contains_key(pool) {
        format!("not in pool {pool}")
    } else {
        format!("there is no pool {pool}")
    };
    Some(told(Check::Pool, pool.clone(), None, detail))
}

fn check_labels(node: &WorkingNode<'_>, ask: &Ask<'_>) -> Option<Reason> {
    let wanted = &ask.profile.needs.labels;
    let wrong = wanted
        .iter()
        .filter(|(key, value)| node.node.labels.get(*key) != Some(value));
    let mut have = Vec::new();
    let mut need = Vec::new();
    for (key, value) in wrong {
        need.push(format!("{key}={value}"));
        have.push(match node.node.labels.get(key) {
            Some(other) => format!("{key}={other}"),
            None => format!("no {key}"),
        });
    }
    if need.is_empty() {
        return None;
    }
    let detail = format!("needs {}, has {}", need.join(", "), have.join(", "));
    Some(told(
        Check::Labels,
        need.join(", "),
        Some(have.join(", ")),
        detail,
    ))
}

fn check_engine(node: &WorkingNode<'_>, ask: &Ask<'_>) -> Option<Reason> {
    let engine = &ask.profile.engine;
    let state = node.node.engines.get(engine);
    let detail = match state {
        Some(ProvisionState::Installed { .. }) => return None,
        Some(state) => format!("{engine} is {}", state.describe()),
        None => format!("{engine} is not among the engines that the node has or installs"),
    };
    let have = state.map(ProvisionState::describe);
    Some(told(
        Check::Engine,
        format!("{engine} installed"),
        have,
        detail,
    ))
}

/// Enough GPUs of a right class that work, whatever they hold.
fn check_gpus(node: &WorkingNode<'_>, room: &Room, ask: &Ask<'_>) -> Option<Reason> {
    let need = ask.profile.needs.gpus.as_ref()?;
    let wanted = wanted(need);
    if room.gpus.is_none() {
        let detail = "the node did not say which GPUs it has".to_owned();
        return Some(told(Check::Gpus, wanted, None, detail));
    }
    let right = room
        .slots()
        .iter()
        .filter(|slot| ask.demand.allows(slot.class));
    let (mut good, mut broken) = (0, 0);
    for slot in right {
        if slot.works {
            good += 1;
        } else {
            broken += 1;
        }
    }
    if good >= ask.demand.gpus {
        return None;
    }
    let mut have = format!("{good} that work");
    if broken > 0 {
        let faults = node
            .node
            .gpus
            .iter()
            .flatten()
            .filter_map(|gpu| gpu.fault.as_deref());
        have = format!(
            "{have}, {broken} broken ({})",
            faults.collect::<Vec<_>>().join(", ")
        );
    }
    let other = room.slots().len() - good - broken;
    if other > 0 {
        have = format!("{have}, {other} of other classes");
    }
    let detail = format!("needs {wanted}, has {have}");
    Some(told(Check::Gpus, wanted, Some(have), detail))
}

/// Enough of them with enough left.
fn check_gpu_memory(room: &Room, ask: &Ask<'_>) -> Option<Reason> {
    let demand = &ask.demand;
    let right = |slot: &&Slot| slot.works && demand.allows(slot.class);
    let mut slots: Vec<&Slot> = room.slots().iter().filter(right).collect();
    if demand.gpus == 0 || slots.len() < demand.gpus {
        return None;
    }
    if slots.iter().filter(|slot| slot.can_take(demand)).count() >= demand.gpus {
        return None;
    }
    let last = demand.gpus - 1;
    let Some(part) = demand.per_gpu else {
        let free = slots.iter().filter(|slot| slot.is_untouched()).count();
        let detail = format!("needs {} whole, {free} are unused", counted(demand.gpus));
        let need = format!("{} whole", counted(demand.gpus));
        return Some(told(
            Check::GpuMemory,
            need,
            Some(format!("{free} unused")),
            detail,
        ));
    };
    slots.sort_by_key(|slot| std::cmp::Reverse(slot.free()));
    let tightest = slots.get(last)?;
    if tightest.size.is_none() {
        let detail = "the node did not say how much memory its GPUs have";
        return Some(unknown(Check::GpuMemory, amount(part), detail));
    }
    let (need, have) = (amount(part), amount(tightest.free()));
    let short_by = need - have;
    let free: Vec<String> = slots
        .iter()
        .map(|slot| amount(slot.free()).to_string())
        .collect();
    Some(Reason {
        check: Check::GpuMemory,
        need: Amount::Bytes(need),
        have: Some(Amount::Bytes(have)),
        short_by: Some(short_by),
        detail: format!(
            "needs {need} on each of {}, has {} free, short by {short_by}",
            counted(demand.gpus),
            free.join(", ")
        ),
    })
}

fn check_cpu(room: &Room, demand: &Demand) -> Option<Reason> {
    if demand.cpu == 0 || room.cpu.is_some_and(|cpu| cpu >= demand.cpu) {
        return None;
    }
    let cores = |thousandths: i64| Cores(u64::try_from(thousandths).unwrap_or(0));
    let need = cores(demand.cpu);
    let Some(have) = room.cpu.map(cores) else {
        let detail = "the node did not say how many cores it has".to_owned();
        return Some(told(Check::Cpu, format!("{need} cores"), None, detail));
    };
    let detail = format!(
        "needs {need} cores, has {have} free, short by {}",
        need - have
    );
    Some(told(
        Check::Cpu,
        format!("{need} cores"),
        Some(format!("{have} cores")),
        detail,
    ))
}

fn check_memory(room: &Room, demand: &Demand) -> Option<Reason> {
    let need = amount(demand.memory);
    match room.memory {
        _ if demand.memory == 0 => None,
        Some(free) if demand.memory <= free => None,
        Some(free) => Some(short(Check::Memory, need, amount(free))),
        None => Some(unknown(
            Check::Memory,
            need,
            "the node did not say how much memory it has",
        )),
    }
}

fn check_disk(working: &Working<'_>, index: usize, ask: &Ask<'_>) -> Option<Reason> {
    let node = working.nodes.get(index)?;
    let replicas = ask
        .model
        .map_or(0, |model: &Model| working.count_on(model.name(), index));
    let fetches = node.fetches(ask.model, i64::try_from(replicas).unwrap_or(i64::MAX));
    if node.has_disk(ask, fetches) {
        return None;
    }
    let need = disk_need(ask, fetches);
    Some(match node.disk {
        Some(free) => short(Check::Disk, need, amount(free)),
        None => unknown(
            Check::Disk,
            need,
            "the node did not say how much disk it has",
        ),
    })
}

fn check_fabric(node: &WorkingNode<'_>, ask: &Ask<'_>) -> Option<Reason> {
    let fabric = ask.profile.needs.fabric.as_ref()?;
    if !fabric.required || gang::fabrics(node.node, &fabric.name).next().is_some() {
        return None;
    }
    let have: Vec<&str> = node
        .node
        .fabrics
        .iter()
        .map(|fabric| fabric.name.as_str())
        .collect();
    let have = if have.is_empty() {
        "none".to_owned()
    } else {
        have.join(", ")
    };
    let detail = format!("needs the fabric {}, has {have}", fabric.name);
    Some(told(Check::Fabric, fabric.name.clone(), Some(have), detail))
}

fn wanted(need: &GpuNeed) -> String {
    let count = usize::try_from(need.count).unwrap_or(usize::MAX);
    if need.classes.is_empty() {
        counted(count)
    } else {
        format!("{} x {}", need.count, need.classes.join(" or "))
    }
}

fn counted(gpus: usize) -> String {
    if gpus == 1 {
        "1 GPU".to_owned()
    } else {
        format!("{gpus} GPUs")
    }
}

fn told(check: Check, need: String, have: Option<String>, detail: String) -> Reason {
    Reason {
        check,
        need: Amount::Text(need),
        have: have.map(Amount::Text),
        short_by: None,
        detail,
    }
}

fn short(check: Check, need: Bytes, have: Bytes) -> Reason {
    let short_by = need - have;
    Reason {
        check,
        need: Amount::Bytes(need),
        have: Some(Amount::Bytes(have)),
        short_by: Some(short_by),
        detail: format!("needs {need}, has {have} free, short by {short_by}"),
    }
}

fn unknown(check: Check, need: Bytes, detail: &str) -> Reason {
    Reason {
        check,
        need: Amount::Bytes(need),
        have: None,
        short_by: None,
        detail: detail.to_owned(),
    }
}
