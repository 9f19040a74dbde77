//! Which checks a node fails for a profile. All of them, not the first.

use llmgw_core::{
    cluster::{
        catalog::{Model, Profile},
        engine::ProvisionState,
        node::NodeState,
    },
    reason::{Amount, Check, Reason},
    units::Bytes,
};

use super::WorkingNode;

/// Every check that fails, in the order of [`Check`]; none when the node can take a replica.
pub(crate) fn failing(node: &WorkingNode<'_>, model: &Model, profile: &Profile) -> Vec<Reason> {
    [
        check_state(node),
        check_engine(node, profile),
        check_memory(node, profile),
        check_disk(node, model),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn check_state(node: &WorkingNode<'_>) -> Option<Reason> {
    let detail = match node.node.state {
        NodeState::Ready => return None,
        NodeState::Cordoned => "cordoned: it takes no new replicas",
        NodeState::Draining => "draining: what runs there moves off",
        NodeState::Lost => "lost: its agent is not heard",
        NodeState::Pending => "pending: it is not approved yet",
    };
    Some(Reason {
        check: Check::Node,
        need: Amount::Text("ready".to_owned()),
        have: Some(Amount::Text(node.node.state.as_str().to_owned())),
        short_by: None,
        detail: detail.to_owned(),
    })
}

fn check_engine(node: &WorkingNode<'_>, profile: &Profile) -> Option<Reason> {
    let state = node.node.engines.get(&profile.engine);
    let detail = match state {
        Some(ProvisionState::Installed { .. }) => return None,
        Some(state) => format!("{} is {}", profile.engine, state.describe()),
        None => format!(
            "{} is not among the engines that the node has or installs",
            profile.engine
        ),
    };
    Some(Reason {
        check: Check::Engine,
        need: Amount::Text(format!("{} installed", profile.engine)),
        have: state.map(|state| Amount::Text(state.describe())),
        short_by: None,
        detail,
    })
}

fn check_memory(node: &WorkingNode<'_>, profile: &Profile) -> Option<Reason> {
    let need = profile.memory;
    match node.memory_free {
        Some(free) if need <= free => None,
        Some(free) => Some(short(Check::Memory, need, free)),
        None => Some(unknown(
            Check::Memory,
            need,
            "the node did not say how much memory it has",
        )),
    }
}

fn check_disk(node: &WorkingNode<'_>, model: &Model) -> Option<Reason> {
    // A size that is not known can't be checked here: the agent checks again before it writes.
    let need = model.weights().size?;
    let on_the_node = |source: &llmgw_core::cluster::weights::Source| source.scheme() == "file";
    if model.weights().sources.first().is_some_and(on_the_node) || node.count(model.name()) > 0 {
        return None;
    }
    match node.node.disk_free {
        Some(free) if need <= free => None,
        Some(free) => Some(short(Check::Disk, need, free)),
        None => Some(unknown(
            Check::Disk,
            need,
            "the node did not say how much disk it has",
        )),
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
