//! What changes would do: the plan before, the plan after, and what of it people ask about.

use std::collections::{BTreeMap, BTreeSet};

use llmgw_core::{
    api::whatif::{Change, Move, Outcome, Start, Stop, Why},
    cluster::{
        catalog::{DefinitionError, Model, ModelDefinition},
        node::NodeState,
    },
    id::{ModelName, NodeId, ReplicaId},
    reason::remedy::{Change as Mend, Remedy},
};

use crate::{
    fleet::{Fleet, FleetNode, FleetReplica, Phase},
    planner::{self, Options, Placement, Plan, StopReason, Wanted},
};

/// What these changes would do, all together, to a fleet on which this is wanted.
///
/// A model whose number of replicas follows its load is taken to need as many as it has now.
///
/// Nothing is lost on the way: the fleet before is planned too, so that what would come anyway is not put down to
/// the changes.
///
/// # Errors
/// When a change can't be made, with its path: a model or a node that is not there, or a fleet that can't be.
pub fn what_if(
    fleet: &Fleet,
    wanted: &Wanted,
    changes: &[Change],
    options: &Options,
) -> Result<Outcome, DefinitionError> {
    if changes.len() > MOST_CHANGES {
        let problem = format!(
            "{} changes; {MOST_CHANGES} can be made at once",
            changes.len()
        );
        return Err(wrong("changes", problem, "ask about fewer at a time"));
    }
    let wanted = wanted.clone().as_it_runs(fleet);
    let drained_before = draining(fleet);
    let before = Settled::of(fleet.sorted(), wanted, options);
    let mut scene = Scene::of(&before);
    for (index, change) in changes.iter().enumerate() {
        scene.make(change).map_err(|problem| DefinitionError {
            field: format!("changes[{index}].{}", problem.field),
            ..problem
        })?;
    }
    let Scene {
        fleet,
        models,
        mut gone,
        ended,
        why,
        added: _,
    } = scene;
    let wanted = Wanted {
        models: models.into_values().collect(),
    };
    let wanted = wanted.as_it_runs(&before.fleet);
    if let Some(wrong) = wanted.check(&fleet).into_iter().next() {
        return Err(wrong);
    }
    let (plan, reports) = planner::plan_with(&fleet, &wanted, options);
    let mut outcome = Outcome::default();
    let Plan { placements, stops } = plan.clone();
    for placement in placements {
        let replaced = placement.replaces;
        let start = start(placement);
        let found = gone.iter().position(|(replica, _)| {
            replaced.map_or(replica.model == start.model, |id| replica.id == id)
        });
        let leaves = found.map(|at| gone.remove(at)).or_else(|| {
            let id = replaced?;
            let node = fleet.nodes.iter().find(|node| holds(node, id))?;
            let replica = node.replicas.iter().find(|replica| replica.id == id)?;
            Some((replica.clone(), node.hostname.clone()))
        });
        match leaves {
            Some((replica, origin)) => outcome.moves.push(Move {
                why: why.get(&replica.id).copied().unwrap_or(Why::Drained),
                replica: replica.id,
                origin,
                to: start,
            }),
            None => outcome.starts.push(start),
        }
    }
    let moved: BTreeSet<ReplicaId> = outcome.moves.iter().map(|moved| moved.replica).collect();
    let ended = ended.into_iter().chain(gone);
    outcome.stops = ended
        .filter(|(replica, _)| replica.rank.unwrap_or(0) == 0 && !moved.contains(&replica.id))
        .map(|(replica, hostname)| Stop {
            why: why.get(&replica.id).copied().unwrap_or(Why::Removed),
            replica: replica.id,
            model: replica.model,
            hostname,
        })
        .collect();
    let hostnames: BTreeMap<NodeId, &str> = fleet
        .nodes
        .iter()
        .map(|node| (node.id, node.hostname.as_str()))
        .collect();
    for stop in stops
        .into_iter()
        .filter(|stop| !moved.contains(&stop.replica))
    {
        outcome.stops.push(Stop {
            replica: stop.replica,
            model: stop.model,
            hostname: hostnames
                .get(&stop.node)
                .map_or_else(String::new, |name| (*name).to_owned()),
            why: match stop.why {
                StopReason::Surplus => Why::Surplus,
                StopReason::Drained => Why::Drained,
                StopReason::RoomFor(_) => Why::Evicted,
            },
        });
    }
    // What was asked for is no mistake to be undone.
    let is_asked = |remedy: &Remedy| match &remedy.change {
        Mend::Ready { node, .. } => {
            draining(&fleet).contains(node) && !drained_before.contains(node)
        }
        _ => false,
    };
    for mut report in reports.into_iter().filter(|report| report.fits.is_none()) {
        report.remedies.retain(|remedy| !is_asked(remedy));
        if before.lacking.contains(&report.model) {
            outcome.lacking_already.push(report.model);
        } else {
            outcome.unplaceable.push(report);
        }
    }
    outcome.last_slots = last_slots(&before, &fleet, &wanted, &plan, options);
    Ok(outcome)
}

/// The nodes that are being emptied.
fn draining(fleet: &Fleet) -> BTreeSet<NodeId> {
    let nodes = fleet.nodes.iter();
    let draining = nodes.filter(|node| node.state == NodeState::Draining);
    draining.map(|node| node.id).collect()
}

/// A fleet with everything placed that can be.
struct Settled {
    fleet: Fleet,
    wanted: Wanted,
    /// Models that lack replicas all the same.
    lacking: BTreeSet<ModelName>,
}

/// A fleet and what is wanted of it, while changes are made.
struct Scene {
    fleet: Fleet,
    models: BTreeMap<ModelName, Model>,
    /// Replicas that are to be begun anew elsewhere, and the host names of their nodes.
    gone: Vec<(FleetReplica, String)>,
    /// Replicas of models that are wanted no more.
    ended: Vec<(FleetReplica, String)>,
    why: BTreeMap<ReplicaId, Why>,
    /// Nodes that were added so far.
    added: u32,
}

// === impl Settled ===

impl Settled {
    fn of(fleet: Fleet, wanted: Wanted, options: &Options) -> Self {
        let (plan, reports) = planner::plan_with(&fleet, &wanted, options);
        let lacking = reports.into_iter().filter(|report| report.fits.is_none());
        Self {
            lacking: lacking.map(|report| report.model).collect(),
            fleet: plan.carried_out(&fleet, &wanted),
            wanted,
        }
    }
}

// === impl Scene ===

impl Scene {
    fn of(settled: &Settled) -> Self {
        let models = settled.wanted.models.iter();
        Self {
            fleet: settled.fleet.clone(),
            models: models
                .map(|model| (model.name().clone(), model.clone()))
                .collect(),
            gone: Vec::new(),
            ended: Vec::new(),
            why: BTreeMap::new(),
            added: 0,
        }
    }

    fn make(&mut self, change: &Change) -> Result<(), DefinitionError> {
        match change {
            Change::Add(definition) => {
                let model = checked("add", definition)?;
                if self.models.contains_key(model.name()) {
                    let problem = format!("there is a model {} already", model.name());
                    return Err(wrong("add.name", problem, "edit it instead"));
                }
                let names = std::iter::once(model.name()).chain(model.aliases());
                for name in names {
                    let mut others = self.models.values();
                    if let Some(other) = others.find(|other| other.answers_to(name.as_str())) {
                        let problem = format!("{} answers to {name} already", other.name());
                        return Err(wrong("add", problem, "choose another name"));
                    }
                }
                self.models.insert(model.name().clone(), model);
            }
            Change::Edit(definition) => {
                let model = checked("edit", definition)?;
                let old = self.known("edit.name", model.name())?;
                let is_kept = |model: &Model, profile| {
                    old.profiles()
                        .iter()
                        .any(|known| old.fingerprint(known) == model.fingerprint(profile))
                };
                let same = model.profiles().len() == old.profiles().len()
                    && model
                        .profiles()
                        .iter()
                        .all(|profile| is_kept(&model, profile));
                if !same {
                    self.begin_anew(model.name());
                }
                self.models.insert(model.name().clone(), model);
            }
            Change::Remove(name) => {
                self.known("remove", name)?;
                self.models.remove(name);
                self.end(|replica| replica.model == *name, Why::Removed);
            }
            Change::Scale { model, replicas } => {
                let mut definition: ModelDefinition =
                    self.known("scale.model", model)?.clone().into();
                definition.replicas = Some(*replicas);
                let scaled = checked("scale", &definition)?;
                self.models.insert(model.clone(), scaled);
            }
            Change::Drain(name) => {
                let at = self.node("drain", name)?;
                if let Some(node) = self.fleet.nodes.get_mut(at) {
                    node.state = NodeState::Draining;
                }
            }
            Change::Lose(name) => {
                let at = self.node("lose", name)?;
                let lost = self.fleet.nodes.remove(at);
                self.lose(lost);
            }
            Change::AddNodes { like, count } => {
                let at = self.node("add_nodes.like", like)?;
                if *count == 0 || *count > MOST_ADDED {
                    let problem = format!("{count} nodes; 1 to {MOST_ADDED} can be");
                    return Err(wrong("add_nodes.count", problem, ""));
                }
                let all = self.added.saturating_add(*count);
                if all > MOST_ADDED {
                    let problem = format!("{all} nodes in all; {MOST_ADDED} can be");
                    return Err(wrong("add_nodes.count", problem, ""));
                }
                self.added = all;
                self.add_nodes(at, *count);
            }
        }
        Ok(())
    }

    fn known(&self, field: &str, name: &ModelName) -> Result<&Model, DefinitionError> {
        self.models.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.models.keys().map(ModelName::as_str).collect();
            let hint = format!("there are: {}", names.join(", "));
            wrong(field, format!("there is no model {name}"), &hint)
        })
    }

    /// The place of the one node of this host name or id.
    fn node(&self, field: &str, name: &str) -> Result<usize, DefinitionError> {
        let nodes = self.fleet.nodes.iter().enumerate();
        let of_name = |node: &FleetNode| node.hostname == name || node.id.to_string() == name;
        let found: Vec<usize> = nodes
            .filter(|(_, node)| of_name(node))
            .map(|(at, _)| at)
            .collect();
        match found[..] {
            [at] => Ok(at),
            [] => Err(wrong(field, format!("there is no node {name}"), "")),
            _ => {
                let problem = format!("{} nodes are called {name}", found.len());
                Err(wrong(field, problem, "name it by its id"))
            }
        }
    }

    /// Adds empty nodes like the one at this place. Their names and ids are those that no node has.
    fn add_nodes(&mut self, at: usize, count: u32) {
        let Some(like) = self.fleet.nodes.get(at).cloned() else {
            return;
        };
        let nodes = self.fleet.nodes.iter();
        let taken: BTreeSet<NodeId> = nodes.clone().map(|node| node.id).collect();
        let called: BTreeSet<String> = nodes.map(|node| node.hostname.clone()).collect();
        let names = (1_u64..).map(|number| (NodeId::imagined(number), format!("new-{number}")));
        let fresh = names.filter(|(id, name)| !taken.contains(id) && !called.contains(name));
        for (id, hostname) in fresh.take(usize::try_from(count).unwrap_or(0)) {
            self.fleet.nodes.push(FleetNode {
                id,
                hostname,
                state: NodeState::Ready,
                replicas: Vec::new(),
                ..like.clone()
            });
        }
    }

    /// Replicas that hold what they have until their successors serve.
    fn begin_anew(&mut self, model: &ModelName) {
        for node in &mut self.fleet.nodes {
            let of_model = node
                .replicas
                .iter_mut()
                .filter(|replica| replica.model == *model && replica.phase != Phase::Leaving);
            for replica in of_model {
                self.why.insert(replica.id, Why::Edited);
                if replica.rank.unwrap_or(0) == 0 {
                    self.gone.push((replica.clone(), node.hostname.clone()));
                }
                replica.phase = Phase::Leaving;
            }
        }
    }

    fn end(&mut self, which: impl Fn(&FleetReplica) -> bool, why: Why) {
        for node in &mut self.fleet.nodes {
            for replica in node.replicas.extract_if(.., |replica| which(replica)) {
                self.why.insert(replica.id, why);
                self.ended.push((replica, node.hostname.clone()));
            }
        }
    }

    /// A replica that has lost a part is lost as a whole.
    fn lose(&mut self, node: FleetNode) {
        let lost: BTreeSet<ReplicaId> = node.replicas.iter().map(|replica| replica.id).collect();
        for other in &mut self.fleet.nodes {
            let parts = other
                .replicas
                .extract_if(.., |replica| lost.contains(&replica.id));
            let first = parts.filter(|replica| replica.rank == Some(0));
            self.gone
                .extend(first.map(|replica| (replica, other.hostname.clone())));
        }
        let hostname = node.hostname;
        let first = node.replicas.into_iter();
        let first = first.filter(|replica| replica.rank.unwrap_or(0) == 0);
        self.gone.extend(
            first
                .filter(|replica| replica.phase != Phase::Leaving)
                .map(|replica| (replica, hostname.clone())),
        );
        self.why.extend(lost.into_iter().map(|id| (id, Why::Lost)));
    }
}

/// Models for which there was room for one more, and is none after the changes.
fn last_slots(
    before: &Settled,
    fleet: &Fleet,
    wanted: &Wanted,
    plan: &Plan,
    options: &Options,
) -> Vec<ModelName> {
    let after = plan.carried_out(fleet, wanted);
    let models = wanted.by_name().into_values();
    models
        .filter(|model| {
            let known = before.wanted.by_name();
            known.get(model.name()).is_some_and(|old| {
                planner::has_room(&before.fleet, old, options)
                    && !planner::has_room(&after, model, options)
            })
        })
        .map(|model| model.name().clone())
        .collect()
}

fn holds(node: &FleetNode, replica: ReplicaId) -> bool {
    node.replicas.iter().any(|held| held.id == replica)
}

fn start(placement: Placement) -> Start {
    Start {
        model: placement.model,
        profile: placement.profile,
        node: placement.node,
        hostname: placement.hostname,
        gpus: placement.gpus,
    }
}

fn checked(change: &str, definition: &ModelDefinition) -> Result<Model, DefinitionError> {
    let model = Model::try_from(definition.clone()).map_err(|wrong| DefinitionError {
        field: format!("{change}.{}", wrong.field),
        ..wrong
    })?;
    let unsized_at = model
        .profiles()
        .iter()
        .position(|profile| !profile.is_sized());
    if let Some(index) = unsized_at {
        let field = format!("{change}.profiles[{index}].memory");
        let problem = "missing, and nobody can plan before what it needs is known".to_owned();
        return Err(wrong(&field, problem, "`llmgw fit` estimates it"));
    }
    Ok(model)
}

fn wrong(field: &str, problem: String, hint: &str) -> DefinitionError {
    DefinitionError {
        field: field.to_owned(),
        problem,
        hint: (!hint.is_empty()).then(|| hint.to_owned()),
    }
}

/// Enough to see what a rack would bring.
const MOST_ADDED: u32 = 1_000;
/// A question that is larger would take longer than anybody waits.
const MOST_CHANGES: usize = 1_000;

#[cfg(test)]
mod tests;
