//! What operators have ordered, besides which models there are: it is kept, and a control plane that takes over finds
//! it.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::{engine::WantedEngine, node::NodeState, scaling::Scaling};
use crate::{
    clock::Timestamp,
    fingerprint::Fingerprint,
    id::{EngineName, HoldName, ModelName, NodeId},
};

/// One order. Each stands under its [`Subject`], and a later one on the same subject takes its place.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Order {
    /// Run a model that was added between so many replicas, and not as its definition says.
    Scale {
        /// The model, by its own name.
        model: ModelName,
        /// What is in force.
        scaling: Scaling,
    },
    /// Use a node otherwise than fully.
    Node(NodeOrder),
    /// Place and move nothing somewhere.
    Hold(Hold),
    /// Have another version of an engine, or another engine, than the settings say.
    Engine(Box<WantedEngine>),
    /// A model failed too often in a row, and is not tried again by itself. The loop's own order.
    Park {
        /// The model, by its own name.
        model: ModelName,
        /// How it came to that.
        parked: Parked,
    },
    /// Replace the replicas of a model whose definition has changed since they were started.
    Roll {
        /// The model, by its own name.
        model: ModelName,
        /// Counts the rolls of this model, so that one that was backed out is not begun again.
        number: u64,
        /// Whether an old replica may stop before its successor serves, where there is no room for both.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
}

/// What an [`Order`] is about.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Subject {
    /// A model's scaling.
    Scale(ModelName),
    /// A node's use.
    Node(NodeId),
    /// A hold, by its name.
    Hold(HoldName),
    /// An engine.
    Engine(EngineName),
    /// A model's failures.
    Park(ModelName),
    /// A model's roll.
    Roll(ModelName),
}

/// An order as it is kept.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct StoredOrder {
    /// What was ordered.
    pub order: Order,
    /// Who ordered it.
    pub by: String,
    /// When.
    pub since: Timestamp,
}

/// How a node is to be used.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NodeOrder {
    /// The node.
    pub node: NodeId,
    /// What it is for.
    pub duty: Duty,
    /// Why, in the operator's words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Whether what a draining node has may stop before it runs elsewhere, where there is no room for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// What a node that is not fully used is for.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Duty {
    /// What it has; nothing new is placed on it.
    Cordoned,
    /// What it has, until that runs elsewhere.
    Draining,
}

/// An operator's order not to place or move anything somewhere.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Hold {
    /// What it is lifted by.
    pub name: HoldName,
    /// Where.
    pub scope: HoldScope,
    /// Why, in the operator's words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// When it ends by itself; never when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// Where a [`Hold`] holds.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldScope {
    /// On every node whose label `facility` has this value.
    Facility(String),
    /// On every node of this pool.
    Pool(String),
    /// On this node.
    Node(NodeId),
}

/// How a model came to be parked.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Parked {
    /// Failures in a row.
    pub failures: u32,
    /// The last of them.
    pub error: String,
    /// The last lines of the log of the *first* of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first_log: Vec<String>,
    /// What failed: a model that is defined otherwise is tried again.
    pub definition: Fingerprint,
}

/// All orders that stand, by subject.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Orders(BTreeMap<Subject, StoredOrder>);

// === impl Order ===

impl Order {
    /// What it is about.
    #[must_use]
    pub fn subject(&self) -> Subject {
        match self {
            Self::Scale { model, .. } => Subject::Scale(model.clone()),
            Self::Node(order) => Subject::Node(order.node),
            Self::Hold(hold) => Subject::Hold(hold.name.clone()),
            Self::Engine(engine) => Subject::Engine(engine.name.clone()),
            Self::Park { model, .. } => Subject::Park(model.clone()),
            Self::Roll { model, .. } => Subject::Roll(model.clone()),
        }
    }
}

// === impl Subject ===

impl Subject {
    /// All kinds that this release knows.
    pub const KINDS: [&str; 6] = ["scale", "node", "hold", "engine", "park", "roll"];

    /// What may be ordered of a model, and ends with it.
    #[must_use]
    pub fn of_model(model: &ModelName) -> [Self; 3] {
        [
            Self::Scale(model.clone()),
            Self::Park(model.clone()),
            Self::Roll(model.clone()),
        ]
    }

    /// The kind, as a store keeps it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Scale(_) => "scale",
            Self::Node(_) => "node",
            Self::Hold(_) => "hold",
            Self::Engine(_) => "engine",
            Self::Park(_) => "park",
            Self::Roll(_) => "roll",
        }
    }

    /// The name within its kind, as a store keeps it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Scale(model) | Self::Park(model) | Self::Roll(model) => model.to_string(),
            Self::Node(node) => node.to_string(),
            Self::Hold(hold) => hold.to_string(),
            Self::Engine(engine) => engine.to_string(),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name())
    }
}

// === impl Duty ===

impl From<Duty> for NodeState {
    fn from(duty: Duty) -> Self {
        match duty {
            Duty::Cordoned => Self::Cordoned,
            Duty::Draining => Self::Draining,
        }
    }
}

// === impl Hold ===

impl Hold {
    /// Whether it has ended by itself at `now`.
    #[must_use]
    pub fn has_ended(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

// === impl Orders ===

impl Orders {
    /// Takes in an order, which takes the place of the one on the same subject.
    pub fn put(&mut self, stored: StoredOrder) {
        self.0.insert(stored.order.subject(), stored);
    }

    /// Lifts the order on a subject; says whether there was one.
    pub fn lift(&mut self, subject: &Subject) -> bool {
        self.0.remove(subject).is_some()
    }

    /// The order on a subject.
    #[must_use]
    pub fn get(&self, subject: &Subject) -> Option<&StoredOrder> {
        self.0.get(subject)
    }

    /// All, by subject.
    pub fn iter(&self) -> impl Iterator<Item = &StoredOrder> {
        self.0.values()
    }

    /// The scaling that was ordered for a model.
    #[must_use]
    pub fn scaling(&self, model: &ModelName) -> Option<Scaling> {
        match self.get(&Subject::Scale(model.clone()))?.order {
            Order::Scale { scaling, .. } => Some(scaling),
            _ => None,
        }
    }

    /// How many rolls of a model were ordered.
    #[must_use]
    pub fn rolls(&self, model: &ModelName) -> u64 {
        let stored = self.get(&Subject::Roll(model.clone()));
        stored.map_or(0, |stored| match stored.order {
            Order::Roll { number, .. } => number,
            _ => 0,
        })
    }

    /// Whether the roll of a model that was ordered last is a forced one.
    #[must_use]
    pub fn forces_roll(&self, model: &ModelName) -> bool {
        let stored = self.get(&Subject::Roll(model.clone()));
        stored.is_some_and(|stored| matches!(stored.order, Order::Roll { force: true, .. }))
    }

    /// Whether what a node has is to go even where it has no place elsewhere.
    #[must_use]
    pub fn forces_drain(&self, node: NodeId) -> bool {
        let ordered = self.node(node);
        ordered.is_some_and(|order| order.force && order.duty == Duty::Draining)
    }

    /// How a node is to be used, unless fully.
    #[must_use]
    pub fn node(&self, node: NodeId) -> Option<&NodeOrder> {
        match &self.get(&Subject::Node(node))?.order {
            Order::Node(order) => Some(order),
            _ => None,
        }
    }

    /// The holds that have not ended by themselves at `now`.
    pub fn holds(&self, now: Timestamp) -> impl Iterator<Item = &Hold> {
        self.iter().filter_map(move |stored| match &stored.order {
            Order::Hold(hold) if !hold.has_ended(now) => Some(hold),
            _ => None,
        })
    }

    /// The engines that were chosen besides those of the settings, or in their place.
    pub fn engines(&self) -> impl Iterator<Item = &WantedEngine> {
        self.iter().filter_map(|stored| match &stored.order {
            Order::Engine(engine) => Some(&**engine),
            _ => None,
        })
    }
}

impl Orders {
    /// The engines of the settings, with those that were chosen in their place or besides, by name.
    #[must_use]
    pub fn engines_over(&self, settings: &[WantedEngine]) -> Vec<WantedEngine> {
        let both = settings.iter().chain(self.engines());
        let by_name: BTreeMap<&EngineName, &WantedEngine> =
            both.map(|engine| (&engine.name, engine)).collect();
        by_name.into_values().cloned().collect()
    }
}

impl FromIterator<StoredOrder> for Orders {
    fn from_iter<I: IntoIterator<Item = StoredOrder>>(stored: I) -> Self {
        let mut orders = Self::default();
        for one in stored {
            orders.put(one);
        }
        orders
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(until: Option<i64>) -> StoredOrder {
        StoredOrder {
            order: Order::Hold(Hold {
                name: "north".parse().unwrap(),
                scope: HoldScope::Facility("north".into()),
                reason: "new floor".into(),
                until: until.map(Timestamp),
            }),
            by: "admin".into(),
            since: Timestamp(0),
        }
    }

    #[test]
    fn a_later_order_takes_the_place_of_the_one_on_the_same_subject() {
        let mut orders: Orders = [hold(None), hold(Some(10))].into_iter().collect();
        assert_eq!(orders.iter().count(), 1);
        assert_eq!(orders.holds(Timestamp(9)).count(), 1);
        assert_eq!(orders.holds(Timestamp(10)).count(), 0);
        let subject = hold(None).order.subject();
        assert!(orders.lift(&subject));
        assert!(!orders.lift(&subject));
    }

    #[test]
    fn an_order_survives_its_own_serial_form() {
        let orders = [
            hold(Some(5)).order,
            Order::Scale {
                model: "m".parse().unwrap(),
                scaling: Scaling::fixed(2),
            },
            Order::Node(NodeOrder {
                node: NodeId::imagined(1),
                duty: Duty::Draining,
                reason: String::new(),
                force: true,
            }),
            Order::Roll {
                model: "m".parse().unwrap(),
                number: 2,
                force: true,
            },
        ];
        for order in orders {
            assert!(Subject::KINDS.contains(&order.subject().kind()));
            let json = serde_json::to_string(&order).unwrap();
            assert_eq!(serde_json::from_str::<Order>(&json).unwrap(), order);
        }
    }

    #[test]
    fn what_an_older_release_kept_forces_nothing_and_is_written_as_it_was() {
        let node = NodeId::imagined(1);
        let rows = [
            format!(r#"{{"kind":"node","node":"{node}","duty":"draining"}}"#),
            r#"{"kind":"roll","model":"m","number":3}"#.to_owned(),
        ];
        let orders: Orders = rows
            .iter()
            .map(|row| StoredOrder {
                order: serde_json::from_str(row).unwrap(),
                by: "admin".into(),
                since: Timestamp(0),
            })
            .collect();
        let model: ModelName = "m".parse().unwrap();
        assert_eq!(orders.rolls(&model), 3);
        assert!(!orders.forces_roll(&model) && !orders.forces_drain(node));
        for (stored, row) in orders.iter().zip(&rows) {
            assert_eq!(serde_json::to_string(&stored.order).unwrap(), *row);
        }
    }
}
