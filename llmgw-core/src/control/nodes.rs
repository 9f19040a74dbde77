//! What may be ordered of nodes, and what it answers: the same for every implementation.

use super::{ControlError, forced, holds};
use crate::{
    api::orders::{NodeStateRequest, NodeUse},
    cluster::order::{Duty, NodeOrder},
    error::Code,
    id::NodeId,
};

/// Finds the node that a request names by its id or its host name, as [`Fleet::use_node`](super::Fleet::use_node) must.
///
/// # Errors
/// What `use_node` must answer.
pub fn named_node<'n>(
    name: &str,
    nodes: impl IntoIterator<Item = (NodeId, &'n str)>,
) -> Result<NodeId, ControlError> {
    let id: Option<NodeId> = name.parse().ok();
    let named = |(node, hostname): &(NodeId, &str)| Some(*node) == id || *hostname == name;
    let found: Vec<NodeId> = nodes
        .into_iter()
        .filter(named)
        .map(|(node, _)| node)
        .collect();
    match found.as_slice() {
        [node] => Ok(*node),
        [] => {
            let short: String = name.chars().take(64).collect();
            let message = format!("there is no node {short:?}");
            Err(ControlError::new(Code::NotFound, message)
                .with_hint("`llmgw ctl nodes` lists those there are"))
        }
        several => {
            let ids: Vec<String> = several.iter().map(ToString::to_string).collect();
            let message = format!(
                "{name} is the host name of several nodes: {}",
                ids.join(", ")
            );
            Err(ControlError::new(Code::Conflict, message).with_hint("name the one by its id"))
        }
    }
}

/// The order that uses a node so, as [`Fleet::use_node`](super::Fleet::use_node) must check it; `None` for one that lifts it.
///
/// # Errors
/// What `use_node` must answer of a node that is there.
pub fn check_node_order(
    node: NodeId,
    wanted: NodeStateRequest,
) -> Result<Option<NodeOrder>, ControlError> {
    let NodeStateRequest {
        state,
        reason,
        force,
    } = wanted;
    if !reason.is_empty() && !holds::is_text(&reason, holds::MAX_REASON) {
        let message =
            "reason: it is longer than 500 characters, or has one that a terminal would obey";
        return Err(ControlError::new(Code::InvalidRequest, message));
    }
    if force && state != NodeUse::Draining {
        let message = format!(
            "force: nothing has to go from a node that is {}",
            state.as_str()
        );
        return Err(ControlError::new(Code::InvalidRequest, message)
            .with_hint("force is for a node that drains"));
    }
    let duty = match state {
        NodeUse::Ready => return Ok(None),
        NodeUse::Cordoned => Duty::Cordoned,
        NodeUse::Draining => Duty::Draining,
    };
    Ok(Some(NodeOrder {
        node,
        duty,
        reason,
        force,
    }))
}

/// What an order of a node is about, as it stands in the audit log: `NODE draining`, and `force` where it is.
#[must_use]
pub fn node_subject(node: NodeId, wanted: &NodeStateRequest) -> String {
    forced(&format!("{node} {}", wanted.state.as_str()), wanted.force)
}

/// The node takes part already.
#[must_use]
pub fn is_let_in(hostname: &str) -> ControlError {
    ControlError::new(Code::Conflict, format!("{hostname} is let in already"))
        .with_hint("nodes need no approval so far: whoever has the agent token takes part")
}

/// Moves are not frozen.
#[must_use]
pub fn nothing_frozen() -> ControlError {
    ControlError::new(
        Code::Conflict,
        "nothing is frozen: no nodes fell silent at once",
    )
    .with_hint(
        "a node that is silent alone is lost after 15 s, and what it ran is placed elsewhere",
    )
}
