//! What is, read from the control roles at a scrape.

use prometheus::{GaugeVec, Registry};

use super::{named, registered, text};
use crate::{
    api::{
        admin::{ModelView, NodeView, ReplicaView, Summary},
        tenancy::LevelView,
    },
    cluster::{engine::ProvisionState, node::NodeState},
    reason::Check,
    units::{Bytes, Micros},
};

/// What the control roles said at one moment.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The whole in one look.
    pub summary: Summary,
    /// All models.
    pub models: Vec<ModelView>,
    /// All replicas.
    pub replicas: Vec<ReplicaView>,
    /// All nodes.
    pub nodes: Vec<NodeView>,
    /// All levels; `None` when nobody can tell now.
    pub levels: Option<Vec<LevelView>>,
}

/// The text that Prometheus reads; see [the table](super).
#[must_use]
pub fn text_of(reading: &Reading) -> String {
    let families = Families(Registry::new());
    families.summary(&reading.summary);
    families.models(&reading.models);
    families.replicas(&reading.replicas);
    families.nodes(&reading.nodes);
    families.budgets(reading.levels.as_deref().unwrap_or_default());
    text(&families.0)
}

struct Families(Registry);

/// A number that a node may have.
type Amount = fn(&NodeView) -> Option<f64>;

// === impl Families ===

impl Families {
    fn add(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        registered(&self.0, GaugeVec::new(named(name, help), labels))
    }

    fn summary(&self, summary: &Summary) {
        let one = |name, help, value: f64| {
            self.add(name, help, &[])
                .with_label_values::<&str>(&[])
                .set(value);
        };
        one(
            "llmgw_leader",
            "1 while this control plane leads.",
            flag(summary.leading),
        );
        one(
            "llmgw_lease_epoch",
            "The turn of leading.",
            number(summary.epoch),
        );
        one(
            "llmgw_uptime_seconds",
            "Since this control plane started.",
            number(summary.uptime_seconds),
        );
        one(
            "llmgw_nodes",
            "Nodes that are known.",
            count(summary.nodes_total),
        );
        one(
            "llmgw_nodes_ready",
            "Nodes that are used: heard, and neither cordoned nor draining.",
            count(summary.nodes_ready),
        );
        one(
            "llmgw_attention",
            "Things that an operator should look at.",
            count(summary.attention.len()),
        );
    }

    fn models(&self, models: &[ModelView]) {
        let labels = ["model"];
        let desired = self.add(
            "llmgw_model_desired_replicas",
            "How many replicas should run now.",
            &labels,
        );
        let ready = self.add(
            "llmgw_model_ready_replicas",
            "How many replicas serve.",
            &labels,
        );
        let failures = self.add(
            "llmgw_model_consecutive_failures",
            "Starts that failed in a row.",
            &labels,
        );
        let parked = self.add(
            "llmgw_model_parked",
            "1 when the model is not tried again by itself.",
            &labels,
        );
        let unplaceable = self.add(
            "llmgw_model_unplaceable",
            "1 under the check that most nodes fail.",
            &["model", "reason"],
        );
        for model in models {
            let name = [model.name.as_str()];
            desired
                .with_label_values(&name)
                .set(f64::from(model.desired));
            ready
                .with_label_values(&name)
                .set(count(model.ready_replicas));
            failures
                .with_label_values(&name)
                .set(f64::from(model.failures));
            parked.with_label_values(&name).set(flag(model.parked));
            if model.unplaceable.is_some() {
                let reason = model.unplaceable_check.map_or("unknown", Check::as_str);
                unplaceable
                    .with_label_values(&[model.name.as_str(), reason])
                    .set(1.0);
            }
        }
    }

    fn replicas(&self, replicas: &[ReplicaView]) {
        let labels = ["model", "replica"];
        let states = self.add("llmgw_replicas", "Replicas by state.", &["model", "state"]);
        let age = self.add(
            "llmgw_replica_age_seconds",
            "Since the replica was placed or adopted.",
            &labels,
        );
        let in_flight = self.add(
            "llmgw_replica_in_flight",
            "Calls that the replica is answering.",
            &labels,
        );
        let fetched = self.add(
            "llmgw_weights_fetched_bytes",
            "Weights that are on the disk.",
            &labels,
        );
        let total = self.add("llmgw_weights_total_bytes", "Weights in all.", &labels);
        let stalled = self.add(
            "llmgw_weights_stalled",
            "1 while no byte of the weights comes.",
            &labels,
        );
        for replica in replicas {
            let model = replica.model.as_str();
            let id = replica.id.to_string();
            let labels = [model, id.as_str()];
            states
                .with_label_values(&[model, replica.state.as_str()])
                .inc();
            age.with_label_values(&labels)
                .set(number(replica.age_seconds));
            in_flight
                .with_label_values(&labels)
                .set(number(replica.in_flight));
            let Some(fetch) = &replica.fetch else {
                continue;
            };
            fetched
                .with_label_values(&labels)
                .set(bytes(fetch.bytes_done));
            if let Some(all) = fetch.bytes_total {
                total.with_label_values(&labels).set(bytes(all));
            }
            stalled
                .with_label_values(&labels)
                .set(flag(fetch.stalled_since.is_some()));
        }
    }

    fn nodes(&self, nodes: &[NodeView]) {
        let state = self.add(
            "llmgw_node_state",
            "1 for the state that the node has.",
            &["node", "state"],
        );
        let seen = self.add(
            "llmgw_node_last_seen_seconds",
            "Since the node was heard.",
            &["node"],
        );
        let warnings = self.add(
            "llmgw_node_warnings",
            "Warnings of the node's agent.",
            &["node", "code"],
        );
        let installs = self.add(
            "llmgw_engine_installs",
            "1 for the state that the engine has on the node.",
            &["node", "engine", "state"],
        );
        // Two machines may give themselves one name.
        let twice = |node: &NodeView| {
            nodes
                .iter()
                .filter(|other| other.hostname == node.hostname)
                .count()
                > 1
        };
        let name = |node: &NodeView| match twice(node) {
            true => format!("{} ({})", node.hostname, node.id.short()),
            false => node.hostname.clone(),
        };
        let names: Vec<String> = nodes.iter().map(name).collect();
        for (node, name) in nodes.iter().zip(&names) {
            let name = name.as_str();
            for possible in STATES {
                state
                    .with_label_values(&[name, possible.as_str()])
                    .set(flag(node.state == possible));
            }
            seen.with_label_values(&[name])
                .set(number(node.last_seen_ago));
            for warning in &node.warnings {
                warnings
                    .with_label_values(&[name, warning.code.as_str()])
                    .inc();
            }
            for provision in &node.provision {
                let state = install(&provision.state);
                installs
                    .with_label_values(&[name, provision.engine.as_str(), state])
                    .set(1.0);
            }
        }
        let amounts: [(&str, &str, Amount); 6] = [
            (
                "llmgw_node_memory_allocatable_bytes",
                "Main memory that engines may use in all.",
                |node| node.memory_allocatable.map(bytes),
            ),
            (
                "llmgw_node_memory_reserved_bytes",
                "Main memory that replicas have reserved.",
                |node| Some(bytes(node.memory_reserved)),
            ),
            (
                "llmgw_node_disk_free_bytes",
                "What may still be written to the disk of the weights.",
                |node| node.disk_free.map(bytes),
            ),
            ("llmgw_node_gpus", "GPUs.", |node| node.gpu_total.map(count)),
            (
                "llmgw_node_gpus_free",
                "GPUs that work and that nothing uses.",
                |node| node.gpu_free.map(count),
            ),
            (
                "llmgw_node_gpus_unhealthy",
                "GPUs that nothing is placed on.",
                |node| {
                    let unhealthy = node.unhealthy_gpus.as_ref();
                    unhealthy.map(|unhealthy| count(unhealthy.len()))
                },
            ),
        ];
        for (family, help, amount) in amounts {
            let family = self.add(family, help, &["node"]);
            for (node, name) in nodes.iter().zip(&names) {
                if let Some(amount) = amount(node) {
                    family.with_label_values(&[name.as_str()]).set(amount);
                }
            }
        }
    }
}

impl Families {
    /// Of levels alone: keys are as many as there are clients.
    fn budgets(&self, levels: &[LevelView]) {
        let labels = ["level", "period"];
        let whole = self.add(
            "llmgw_budget_units",
            "What a level may spend within a period.",
            &labels,
        );
        let remaining = self.add(
            "llmgw_budget_remaining_units",
            "What is neither spent nor reserved of it.",
            &labels,
        );
        let budgets = levels
            .iter()
            .flat_map(|level| level.spending.iter().map(move |one| (level, one)));
        for (level, spending) in budgets.take(MOST_BUDGETS) {
            let path = level.path.to_string();
            let place = [path.as_str(), spending.period.as_str()];
            let gone = spending
                .spent_micros
                .0
                .saturating_add(spending.reserved_micros.0);
            let left = spending.amount_micros.0.saturating_sub(gone);
            whole
                .with_label_values(&place)
                .set(units(spending.amount_micros));
            remaining.with_label_values(&place).set(units(Micros(left)));
        }
    }
}

/// The state of an installation, without its words.
fn install(state: &ProvisionState) -> &'static str {
    match state {
        ProvisionState::Pending => "pending",
        ProvisionState::Waiting { .. } => "waiting",
        ProvisionState::Installing { .. } => "installing",
        ProvisionState::Installed { .. } => "installed",
        ProvisionState::Failed { .. } => "failed",
        ProvisionState::Unknown => "unknown",
    }
}

fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

/// Prometheus knows no other numbers: beyond 2^53 the last digits are lost.
fn number(number: u64) -> f64 {
    number as f64
}

fn count(count: usize) -> f64 {
    number(u64::try_from(count).unwrap_or(u64::MAX))
}

/// Of the cluster's currency.
fn units(micros: Micros) -> f64 {
    micros.0 as f64 / 1e6
}

fn bytes(bytes: Bytes) -> f64 {
    number(bytes.0)
}

/// As many labels as a scrape should have for them.
const MOST_BUDGETS: usize = 1_000;

const STATES: [NodeState; 5] = [
    NodeState::Ready,
    NodeState::Cordoned,
    NodeState::Draining,
    NodeState::Lost,
    NodeState::Pending,
];
