//! What changes would do to the control plane in memory, by its own plain trial.

use std::collections::{BTreeMap, BTreeSet};

use super::trial::trial;
use crate::{
    api::{
        admin::{NodeView, ReplicaView},
        whatif::{Change, Move, Outcome, Start, Stop, Why},
    },
    cluster::{
        catalog::{DefinitionError, Model, ModelDefinition},
        node::NodeState,
    },
    id::{ModelName, NodeId, ReplicaId},
    reason::Report,
    units::Bytes,
};

/// Models, nodes and replicas while changes are made to them. Memory is all that counts, as in [`trial`].
#[derive(Clone)]
pub(super) struct Scene {
    models: BTreeMap<ModelName, Model>,
    nodes: Vec<NodeView>,
    held: Vec<Held>,
    gone: Vec<(Held, Why)>,
}

/// A replica that holds memory.
#[derive(Clone)]
struct Held {
    replica: ReplicaId,
    model: ModelName,
    node: NodeId,
    hostname: String,
    memory: Bytes,
}

impl Scene {
    pub(super) fn new(
        models: impl Iterator<Item = Model>,
        nodes: &[NodeView],
        replicas: &[ReplicaView],
    ) -> Self {
        let models: BTreeMap<ModelName, Model> =
            models.map(|model| (model.name().clone(), model)).collect();
        let held = |replica: &ReplicaView| Held {
            replica: replica.id,
            model: replica.model.clone(),
            node: replica.node,
            hostname: replica.hostname.clone(),
            memory: models
                .get(&replica.model)
                .and_then(|model| model.profile(&replica.profile))
                .map_or(Bytes::ZERO, |profile| profile.memory),
        };
        Self {
            held: replicas.iter().map(held).collect(),
            nodes: nodes.to_vec(),
            gone: Vec::new(),
            models,
        }
    }

    /// Places what is wanted, makes the changes, and places again.
    pub(super) fn what_if(mut self, changes: &[Change]) -> Result<Outcome, DefinitionError> {
        let (_, lacking) = self.place();
        let lacking: BTreeSet<ModelName> = lacking.into_iter().map(|report| report.model).collect();
        let before = self.with_room();
        for (index, change) in changes.iter().enumerate() {
            self.make(change).map_err(|problem| DefinitionError {
                field: format!("changes[{index}].{}", problem.field),
                ..problem
            })?;
        }
        let (starts, reports) = self.place();
        let mut outcome = Outcome::default();
        for start in starts {
            let of_model = |(held, why): &(Held, Why)| {
                held.model == start.model && !matches!(why, Why::Removed | Why::Surplus)
            };
            match self.gone.iter().position(of_model) {
                Some(at) => {
                    let (held, why) = self.gone.remove(at);
                    outcome.moves.push(Move {
                        replica: held.replica,
                        origin: held.hostname,
                        to: start,
                        why,
                    });
                }
                None => outcome.starts.push(start),
            }
        }
        let stop = |(held, why): &(Held, Why)| Stop {
            replica: held.replica,
            model: held.model.clone(),
            hostname: held.hostname.clone(),
            why: *why,
        };
        outcome.stops = self.gone.iter().map(stop).collect();
        for report in reports {
            if lacking.contains(&report.model) {
                outcome.lacking_already.push(report.model);
            } else {
                outcome.unplaceable.push(report);
            }
        }
        let after = self.with_room();
        let known = before.iter().filter(|name| self.models.contains_key(*name));
        outcome.last_slots = known
            .filter(|name| !after.contains(*name))
            .cloned()
            .collect();
        Ok(outcome)
    }

    fn make(&mut self, change: &Change) -> Result<(), DefinitionError> {
        match change {
            Change::Add(definition) => {
                let model = checked("add", definition)?;
                if self.models.contains_key(model.name()) {
                    let problem = format!("there is a model {} already", model.name());
                    return Err(wrong("add.name", problem));
                }
                self.models.insert(model.name().clone(), model);
            }
            Change::Edit(definition) => {
                let model = checked("edit", definition)?;
                self.known("edit.name", model.name())?;
                self.end(|held| held.model == *model.name(), Why::Edited);
                self.models.insert(model.name().clone(), model);
            }
            Change::Remove(name) => {
                self.known("remove", name)?;
                self.models.remove(name);
                self.end(|held| held.model == *name, Why::Removed);
            }
            Change::Scale { model, replicas } => {
                let mut definition: ModelDefinition =
                    self.known("scale.model", model)?.clone().into();
                definition.replicas = Some(*replicas);
                self.models
                    .insert(model.clone(), checked("scale", &definition)?);
            }
            Change::Drain(name) => {
                let node = self.node("drain", name)?;
                let id = node.id;
                node.state = NodeState::Draining;
                self.end(|held| held.node == id, Why::Drained);
            }
            Change::Lose(name) => {
                let id = self.node("lose", name)?.id;
                self.nodes.retain(|node| node.id != id);
                self.end(|held| held.node == id, Why::Lost);
            }
            Change::AddNodes { like, count } => {
                let like = self.node("add_nodes.like", like)?.clone();
                let first = self.nodes.len();
                for number in (1..=*count).map(|number| first as u64 + u64::from(number)) {
                    self.nodes.push(NodeView {
                        id: NodeId::imagined(number),
                        hostname: format!("new-{number}"),
                        state: NodeState::Ready,
                        memory_reserved: Bytes::ZERO,
                        ..like.clone()
                    });
                }
            }
        }
        Ok(())
    }

    fn known(&self, field: &str, name: &ModelName) -> Result<&Model, DefinitionError> {
        let missing = || wrong(field, format!("there is no model {name}"));
        self.models.get(name).ok_or_else(missing)
    }

    fn node(&mut self, field: &str, name: &str) -> Result<&mut NodeView, DefinitionError> {
        let called = |node: &&mut NodeView| node.hostname == name || node.id.to_string() == name;
        let missing = || wrong(field, format!("there is no node {name}"));
        self.nodes.iter_mut().find(called).ok_or_else(missing)
    }

    /// Ends replicas, and frees what they hold.
    fn end(&mut self, which: impl Fn(&Held) -> bool, why: Why) {
        for held in self.held.extract_if(.., |held| which(held)) {
            let node = self.nodes.iter_mut().find(|node| node.id == held.node);
            if let Some(node) = node {
                node.memory_reserved = node.memory_reserved - held.memory;
            }
            self.gone.push((held, why));
        }
    }

    /// Stops what is too much and places what is missing; says what starts, and of whom something is missing still.
    fn place(&mut self) -> (Vec<Start>, Vec<Report>) {
        let (mut starts, mut lacking) = (Vec::new(), Vec::new());
        for model in self.models.clone().values() {
            let name = model.name();
            let want = self.wanted(model);
            let of_model = |held: &&Held| held.model == *name;
            while let Some(last) = self.held.iter().filter(of_model).nth(want) {
                let last = last.replica;
                self.end(|held| held.replica == last, Why::Surplus);
            }
            while self.held.iter().filter(of_model).count() < want {
                let report = trial(&self.nodes, model);
                let Some(fit) = report.fits.clone() else {
                    lacking.push(report);
                    break;
                };
                let memory = model
                    .profile(&fit.profile)
                    .map_or(Bytes::ZERO, |p| p.memory);
                let node = self.nodes.iter_mut().find(|node| node.id == fit.node);
                if let Some(node) = node {
                    node.memory_reserved = node.memory_reserved + memory;
                }
                self.held.push(Held {
                    replica: ReplicaId::imagined(self.held.len() as u64),
                    model: name.clone(),
                    node: fit.node,
                    hostname: fit.hostname.clone(),
                    memory,
                });
                starts.push(Start {
                    model: name.clone(),
                    profile: fit.profile,
                    node: fit.node,
                    hostname: fit.hostname,
                    gpus: Vec::new(),
                });
            }
        }
        (starts, lacking)
    }

    /// How many replicas a model should have: within its bounds as many as it has.
    fn wanted(&self, model: &Model) -> usize {
        let gone = self
            .gone
            .iter()
            .filter(|(_, why)| !matches!(why, Why::Surplus));
        let gone = gone.map(|(held, _)| held);
        let all = self.held.iter().chain(gone);
        let running = all.filter(|held| held.model == *model.name()).count();
        let bound = |bound: u32| usize::try_from(bound).unwrap_or(usize::MAX);
        let scaling = model.scaling();
        running.clamp(bound(scaling.min()), bound(scaling.max()))
    }

    /// The models that could have one more replica.
    fn with_room(&self) -> BTreeSet<ModelName> {
        let models = self.models.values();
        let roomy = models.filter(|model| trial(&self.nodes, model).fits.is_some());
        roomy.map(|model| model.name().clone()).collect()
    }
}

fn checked(change: &str, definition: &ModelDefinition) -> Result<Model, DefinitionError> {
    Model::try_from(definition.clone()).map_err(|wrong| DefinitionError {
        field: format!("{change}.{}", wrong.field),
        ..wrong
    })
}

fn wrong(field: &str, problem: String) -> DefinitionError {
    DefinitionError {
        field: field.to_owned(),
        problem,
        hint: None,
    }
}
