//! What is to leave a draining node and is still there: what it waits for, and what would help.

use std::{collections::BTreeMap, fmt};

use llmgw_core::{
    api::{
        admin::{Explanation, ModelView, NodeView, ReplicaView},
        orders::HoldView,
    },
    cluster::{node::NodeState, order::HoldScope, replica::ReplicaState},
    control::Control,
    id::{HoldName, ModelName, NodeId, ReplicaId},
    reason::{Fit, Report, render},
};
use serde::Serialize;

use crate::failure::Failure;

/// A replica that is to leave its node, and does not yet.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Staying {
    replica: ReplicaId,
    model: ModelName,
    hostname: String,
    waits_for: WaitsFor,
}

/// What keeps it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "what")]
enum WaitsFor {
    /// An operator's order that nothing is moved there.
    Hold { name: HoldName, reason: String },
    /// Another replica, which serves in its place once it is ready.
    Successor {
        replica: ReplicaId,
        hostname: String,
        state: ReplicaState,
    },
    /// A model that failed too often, so that nothing new of it is placed.
    Retry { error: Option<String> },
    /// A place that there is: one more starts there.
    Start { fit: Fit },
    /// A place that there is not.
    Place { report: Box<Report> },
}

/// What is known of a cluster and tells what a replica waits for.
struct Known<'k> {
    nodes: BTreeMap<NodeId, &'k NodeView>,
    replicas: &'k [ReplicaView],
    holds: &'k [HoldView],
    models: &'k [ModelView],
    explanations: BTreeMap<ModelName, Explanation>,
}

/// What stays on draining nodes, of those replicas that `which` picks; `replicas` are all of their models.
pub(super) async fn staying(
    control: &Control,
    replicas: &[ReplicaView],
    which: impl Fn(&ReplicaView) -> bool,
) -> Result<Vec<Staying>, Failure> {
    let nodes = control.fleet.nodes().await?;
    let nodes: BTreeMap<NodeId, &NodeView> = nodes.iter().map(|node| (node.id, node)).collect();
    let stays = |replica: &&ReplicaView| which(replica) && is_to_leave(&nodes, replica);
    let stay: Vec<&ReplicaView> = replicas.iter().filter(stays).collect();
    if stay.is_empty() {
        return Ok(Vec::new());
    }
    let holds = control.holds.holds().await?;
    let models = control.catalog.models().await?;
    let mut explanations = BTreeMap::new();
    for replica in &stay {
        let model = &replica.model;
        let known = models.iter().any(|view| view.name == *model);
        if known && !explanations.contains_key(model) {
            explanations.insert(model.clone(), control.catalog.explain(model).await?);
        }
    }
    let known = Known {
        nodes,
        replicas,
        holds: &holds,
        models: &models,
        explanations,
    };
    let staying = stay.into_iter().filter_map(|replica| {
        Some(Staying {
            replica: replica.id,
            model: replica.model.clone(),
            hostname: replica.hostname.clone(),
            waits_for: known.waits_for(replica)?,
        })
    });
    Ok(staying.collect())
}

/// Whether a replica runs on a node that is to be emptied, and has not been told to go.
fn is_to_leave(nodes: &BTreeMap<NodeId, &NodeView>, replica: &ReplicaView) -> bool {
    let node = nodes.get(&replica.node);
    node.is_some_and(|node| node.state == NodeState::Draining)
        && (is_coming(replica.state) || replica.state == ReplicaState::Ready)
}

fn is_coming(state: ReplicaState) -> bool {
    matches!(
        state,
        ReplicaState::Placing
            | ReplicaState::Provisioning
            | ReplicaState::Fetching
            | ReplicaState::Starting
    )
}

// === impl Known ===

impl Known<'_> {
    fn waits_for(&self, replica: &ReplicaView) -> Option<WaitsFor> {
        if let Some(hold) = self.hold_on(replica.node) {
            return Some(WaitsFor::Hold {
                name: hold.name.clone(),
                reason: hold.reason.clone(),
            });
        }
        let successor = self.replicas.iter().find(|other| {
            let node = self.nodes.get(&other.node);
            other.model == replica.model
                && is_coming(other.state)
                && node.is_some_and(|node| node.state != NodeState::Draining)
        });
        if let Some(successor) = successor {
            return Some(WaitsFor::Successor {
                replica: successor.id,
                hostname: successor.hostname.clone(),
                state: successor.state,
            });
        }
        let model = self.models.iter().find(|view| view.name == replica.model);
        if let Some(parked) = model.filter(|model| model.parked) {
            return Some(WaitsFor::Retry {
                error: parked.last_error.clone(),
            });
        }
        let report = &self.explanations.get(&replica.model)?.report;
        Some(match &report.fits {
            Some(fit) => WaitsFor::Start { fit: fit.clone() },
            None => WaitsFor::Place {
                report: Box::new(report.clone()),
            },
        })
    }

    /// The hold on a node, of those whose place is known here.
    fn hold_on(&self, node: NodeId) -> Option<&HoldView> {
        let node = self.nodes.get(&node)?;
        self.holds.iter().find(|hold| match &hold.scope {
            HoldScope::Node(held) => *held == node.id,
            HoldScope::Facility(name) => node.labels.get("facility") == Some(name),
            // Which nodes are of a pool is told nowhere here: a report names such a hold.
            HoldScope::Pool(_) => false,
        })
    }
}

// === impl Staying ===

impl Staying {
    /// What would help, a line each.
    pub(super) fn remedies(&self) -> Vec<String> {
        let Self {
            model, hostname, ..
        } = self;
        match &self.waits_for {
            WaitsFor::Hold { name, .. } => {
                vec![format!(
                    "now: `llmgw ctl holds lift {name}`: {hostname} goes on emptying"
                )]
            }
            WaitsFor::Retry { .. } => {
                vec![format!(
                    "now: `llmgw ctl retry {model}`: it is placed again"
                )]
            }
            WaitsFor::Place { report } => {
                let remedies = report.remedies.iter();
                remedies
                    .map(|remedy| format!("{}: {remedy}", remedy.when()))
                    .collect()
            }
            WaitsFor::Successor { .. } | WaitsFor::Start { .. } => Vec::new(),
        }
    }
}

impl fmt::Display for Staying {
    /// One line: `r-7f3 of coder leaves gpu-1 when it has another place: …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            replica,
            model,
            hostname,
            waits_for,
        } = self;
        write!(f, "{} of {model} leaves {hostname} ", replica.short())?;
        match waits_for {
            WaitsFor::Hold { name, reason } if reason.is_empty() => {
                write!(f, "when the hold {name} is lifted or has ended")
            }
            WaitsFor::Hold { name, reason } => {
                write!(
                    f,
                    "when the hold {name} is lifted or has ended ({reason:?})"
                )
            }
            WaitsFor::Successor {
                replica,
                hostname,
                state,
            } => write!(
                f,
                "when {} serves in its place, which is {} on {hostname}",
                replica.short(),
                state.as_str()
            ),
            WaitsFor::Retry { error } => {
                let error = error.as_deref().unwrap_or("no reason was given");
                write!(f, "when {model} is tried again, which is parked: {error}")
            }
            WaitsFor::Start { fit } => {
                write!(
                    f,
                    "when another serves in its place: there is room on {}",
                    fit.hostname
                )
            }
            WaitsFor::Place { report } => {
                f.write_str("when it has another place, and there is none")?;
                match &report.nearest {
                    Some(nearest) => write!(f, ". Nearest: {}", render::rejection(nearest)),
                    None => f.write_str(": there is no other node"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use llmgw_core::{
        api::orders::{NodeStateRequest, NodeUse},
        reason::remedy::{Change, Remedy},
        testing::control::MemoryControl,
        units::Bytes,
    };

    use super::*;

    /// All of the sample's replicas that are to leave, once its node alpha is drained.
    async fn of_drained(control: &Control) -> Vec<Staying> {
        let drain = NodeStateRequest {
            state: NodeUse::Draining,
            reason: "a new disk".to_owned(),
            force: false,
        };
        control.fleet.use_node("alpha", drain).await.unwrap();
        let replicas = control.fleet.replicas(None).await.unwrap();
        staying(control, &replicas, |_| true).await.unwrap()
    }

    #[tokio::test]
    async fn what_serves_on_a_node_that_stays_waits_for_nothing() {
        let control = MemoryControl::sample().control();
        let replicas = control.fleet.replicas(None).await.unwrap();
        assert!(
            staying(&control, &replicas, |_| true)
                .await
                .unwrap()
                .is_empty()
        );
    }

    #[tokio::test]
    async fn a_drain_without_another_place_says_what_is_nearest() {
        let lines = of_drained(&MemoryControl::sample().control()).await;
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let expected = [
            "r-00000002 of org/qwen:7b leaves alpha when it has another place, and there is none. Nearest: beta with \
             default: node: the node is lost",
            "r-00000001 of smollm2-135m leaves alpha when it has another place, and there is none. Nearest: beta with \
             default: node: the node is lost",
        ];
        assert_eq!(lines, expected);
    }

    #[tokio::test]
    async fn a_hold_is_named_with_the_way_to_lift_it() {
        let control = MemoryControl::sample().control();
        let hold = serde_json::json!({
            "name": "audit", "scope": {"facility": "north"}, "reason": "inventory",
        });
        let hold = serde_json::from_value(hold).unwrap();
        control.holds.hold(hold).await.unwrap();
        let held = of_drained(&control).await;
        assert_eq!(
            held[0].to_string(),
            "r-00000002 of org/qwen:7b leaves alpha when the hold audit is lifted or has ended (\"inventory\")"
        );
        assert_eq!(
            held[0].remedies(),
            ["now: `llmgw ctl holds lift audit`: alpha goes on emptying"]
        );
    }

    #[test]
    fn a_successor_on_its_way_is_what_is_waited_for() {
        let one = Staying {
            replica: ReplicaId::imagined(1),
            model: "m".parse().unwrap(),
            hostname: "alpha".to_owned(),
            waits_for: WaitsFor::Successor {
                replica: ReplicaId::imagined(2),
                hostname: "beta".to_owned(),
                state: ReplicaState::Starting,
            },
        };
        let (old, new) = (one.replica.short(), ReplicaId::imagined(2).short());
        assert_eq!(
            one.to_string(),
            format!(
                "{old} of m leaves alpha when {new} serves in its place, which is starting on beta"
            )
        );
        assert_eq!(one.remedies(), [""; 0]);
    }

    #[test]
    fn what_would_help_is_what_the_trial_found() {
        let freed = Remedy {
            change: Change::Disk {
                node: NodeId::imagined(2),
                hostname: "beta".to_owned(),
                free: Bytes::gib(3),
            },
            places: None,
        };
        let report = Report {
            model: "m".parse().unwrap(),
            nodes: 2,
            profiles: 1,
            replicas: 1,
            missing: 1,
            fits: None,
            rejections: Vec::new(),
            summary: Vec::new(),
            nearest: None,
            pending: None,
            remedies: vec![freed],
        };
        let one = Staying {
            replica: ReplicaId::imagined(1),
            model: "m".parse().unwrap(),
            hostname: "alpha".to_owned(),
            waits_for: WaitsFor::Place {
                report: Box::new(report),
            },
        };
        assert_eq!(one.remedies(), ["now: free 3.0 GiB of disk on beta"]);
    }
}
