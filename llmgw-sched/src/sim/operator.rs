//! What operators do: models come, change and go, nodes are emptied, failures forgiven.

use llmgw_core::{
    clock::Timestamp,
    cluster::{
        catalog::Model,
        order::{Duty, Hold, HoldScope, NodeOrder, Order, StoredOrder, Subject},
        scaling::{Scaling, ScalingDefinition},
    },
    id::{ModelName, NodeId},
    units::Span,
};

use super::{
    weights,
    world::{Due, World},
};
use crate::conductor::{Event, snapshot::Entry};

impl World {
    pub(super) fn order(&mut self) {
        if !self.weather.bad {
            return;
        }
        let pause = self.between(self.weather.between_orders);
        self.after(pause, Due::Order);
        // Without a leader whose writes count, nothing can be ordered.
        if self.leader().is_none() {
            return;
        }
        self.counts.orders += 1;
        let models: Vec<ModelName> = self.store.models.keys().cloned().collect();
        let at = self.random.below(u64::try_from(models.len()).unwrap_or(0));
        let model = usize::try_from(at).ok().and_then(|at| models.get(at));
        let model = model.cloned();
        let nodes = self.node_ids();
        let node = self.random.pick(&nodes);
        match (self.random.below(23), model, node) {
            (0..=3, _, _) => self.add_model(),
            (4 | 5, Some(model), _) => self.remove_model(model),
            (6..=8, Some(model), _) => {
                if let Some(scaling) = self.scaling() {
                    self.put(Order::Scale { model, scaling });
                }
            }
            (9..=11, Some(model), _) => self.redefine(&model),
            (12 | 13, Some(model), _) => {
                self.numbers += 1;
                let number = self.numbers;
                // Without a throw: what happens else stays as it is for a seed.
                let force = number.is_multiple_of(3);
                self.put(Order::Roll {
                    model,
                    number,
                    force,
                });
            }
            (14 | 15, _, Some(node)) => self.change_duty(node),
            (16..=19, _, Some(node)) => self.hold(node),
            (20..=22, Some(model), _) => self.retry(model),
            _ => {}
        }
    }

    pub(super) fn add_model(&mut self) {
        self.numbers += 1;
        let name = format!("m{}", self.numbers);
        if let Some(entry) = self.entry(&name) {
            let temper = match self.random.below(10) {
                0 => 1_000,
                1 | 2 => 300,
                _ => 5,
            };
            self.tempers.insert(entry.model.name().clone(), temper);
            self.note(|| format!("operator: add {name}, of which {temper} in 1000 starts fail"));
            self.store
                .models
                .insert(entry.model.name().clone(), entry.clone());
            let entry = Box::new(entry);
            self.tell_leader(Event::Added { entry });
        }
    }

    fn entry(&mut self, name: &str) -> Option<Entry> {
        let memory = self.random.within(1, 9);
        let parallel = self.random.within(1, 4);
        let (min, more) = (self.random.below(3), self.random.below(2));
        let max = (min + more).max(1);
        let idle = self.random.within(10, 40);
        let number = self.random.below(16);
        let (source, sha256, size) = weights::file(number);
        let mut profile =
            serde_json::json!({"memory": format!("{memory}GiB"), "parallel": parallel});
        if self.random.happens(500) {
            let mut gpus = serde_json::json!({"count": self.random.within(1, 2)});
            if self.random.happens(800) {
                gpus["memory"] = format!("{}GiB", self.random.within(2, 12)).into();
            }
            profile["gpus"] = gpus;
        }
        let definition = serde_json::json!({
            "name": name,
            "source": source,
            "sha256": sha256,
            "size": size,
            "min_replicas": min,
            "max_replicas": max,
            "idle_timeout": format!("{idle}s"),
            "profiles": [profile],
        });
        let model: Model = serde_json::from_value(definition).ok()?;
        Some(Entry::added(model, Timestamp(0)))
    }

    fn scaling(&mut self) -> Option<Scaling> {
        let (min, more) = (self.random.below(4), self.random.below(3));
        let idle = self.random.span(10_000, 40_000);
        let definition = ScalingDefinition {
            min: u32::try_from(min).ok(),
            max: u32::try_from(min + more).ok(),
            idle_timeout: Some(Span(idle)),
            ..ScalingDefinition::default()
        };
        Scaling::try_from(definition).ok()
    }

    fn remove_model(&mut self, model: ModelName) {
        self.note(|| format!("operator: remove {model}"));
        self.store.models.remove(&model);
        for subject in [
            Subject::Scale(model.clone()),
            Subject::Park(model.clone()),
            Subject::Roll(model.clone()),
        ] {
            self.lift(subject);
        }
        self.tell_leader(Event::Removed { model });
    }

    /// Another definition under the same name.
    fn redefine(&mut self, model: &ModelName) {
        if let Some(entry) = self.entry(model.as_str()) {
            self.note(|| format!("operator: redefine {model}"));
            self.store.models.insert(model.clone(), entry.clone());
            let entry = Box::new(entry);
            self.tell_leader(Event::Added { entry });
        }
    }

    fn change_duty(&mut self, node: NodeId) {
        let subject = Subject::Node(node);
        if self.store.orders.contains_key(&subject) {
            self.lift(subject);
            return;
        }
        let duty = if self.random.happens(600) {
            Duty::Draining
        } else {
            Duty::Cordoned
        };
        let force = duty == Duty::Draining && self.counts.orders.is_multiple_of(3);
        self.put(Order::Node(NodeOrder {
            node,
            duty,
            reason: String::new(),
            force,
        }));
    }

    fn hold(&mut self, node: NodeId) {
        let number = self.random.below(3);
        let Ok(name) = format!("hold-{number}").parse() else {
            return;
        };
        let scope = if self.random.happens(700) {
            HoldScope::Node(node)
        } else {
            let facility = if self.random.happens(500) {
                "north"
            } else {
                "south"
            };
            HoldScope::Facility(facility.to_owned())
        };
        // By the operator's own clock: that of a control plane may have jumped.
        let until = self.now + self.random.span(10_000, 120_000);
        let until = i64::try_from(until.as_millis()).ok().map(Timestamp);
        let hold = Hold {
            name,
            scope,
            reason: String::new(),
            until: until.filter(|_| self.random.happens(600)),
        };
        let subject = Subject::Hold(hold.name.clone());
        if self.store.orders.contains_key(&subject) {
            self.lift(subject);
        } else {
            self.put(Order::Hold(hold));
        }
    }

    fn retry(&mut self, model: ModelName) {
        self.note(|| format!("operator: retry {model}"));
        self.store.orders.remove(&Subject::Park(model.clone()));
        self.tell_leader(Event::Retry { model });
    }

    fn put(&mut self, order: Order) {
        self.note(|| format!("operator: {order:?}"));
        let stored = StoredOrder {
            order,
            by: "operator".to_owned(),
            since: Timestamp(0),
        };
        let subject = stored.order.subject();
        self.store.orders.insert(subject, stored.clone());
        let order = Box::new(stored);
        self.tell_leader(Event::Ordered { order });
    }

    pub(super) fn lift(&mut self, subject: Subject) {
        if self.store.orders.remove(&subject).is_some() {
            self.note(|| format!("operator: lift {subject}"));
            self.tell_leader(Event::Lifted { subject });
        }
    }
}
