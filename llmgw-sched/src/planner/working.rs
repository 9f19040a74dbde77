//! The fleet while a plan is being made: what was placed so far is taken.
//!
//! Nodes in the same state share all work: a state is numbered once, and what a policy says of it for a demand is
//! kept by that number. When a node changes it moves to another state, and nothing else has to be asked again.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use llmgw_core::{
    cluster::{
        catalog::{Model, Prefer, Profile},
        engine::ProvisionState,
        node::NodeState,
        weights::Source,
    },
    id::{EngineName, ModelName, ReplicaId},
    units::Bytes,
};

use super::{
    demand::{Classes, Demand, bytes, thousandths},
    policy::{Policy, Worth, kind},
    room::{Direction, GpuSet, Room},
    score::{Score, Ties},
};
use crate::fleet::{Fleet, FleetNode, FleetReplica, Phase};

/// The fleet while a plan is being made.
#[derive(Debug)]
pub struct Working<'f> {
    fleet: &'f Fleet,
    pub(crate) nodes: Vec<WorkingNode<'f>>,
    /// Replicas by model and node: what counts of them, placed ones included.
    counts: BTreeMap<ModelName, BTreeMap<usize, u64>>,
    classes: Classes,
    states: States,
    policy: Box<dyn Policy>,
    shapes: Shapes,
    selections: BTreeMap<Selection, Vec<bool>>,
    /// The count of a model's replicas by node while a choice is made; nought in between.
    crowd: Vec<i64>,
    /// Placements since the policy was last shown what is left.
    unseen: u32,
}

/// One node of a [`Working`].
#[derive(Debug)]
pub(crate) struct WorkingNode<'f> {
    pub(crate) node: &'f FleetNode,
    state: usize,
    /// Bytes that may still be written; absent when not known.
    pub(crate) disk: Option<i64>,
    /// Replicas that were starting when the fleet was seen.
    pub(crate) starting: BTreeMap<usize, u32>,
    kinds: [u32; 16],
    tie: u64,
    /// Models whose weights were promised to it by this plan.
    promised: BTreeSet<ModelName>,
}

/// One more replica, or one of its shards, that is to be placed.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// Of what; absent for a demand that is nobody's, such as a benchmark's.
    pub model: Option<&'a Model>,
    /// How.
    pub profile: &'a Profile,
    /// The same in numbers.
    pub demand: Demand,
    /// Which part of the replica, from 0: the first is what counts as one.
    pub rank: u32,
}

/// A place on a node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Spot {
    /// The node, by its place in the order of ids.
    pub node: usize,
    /// The GPUs, by their places in the order of numbers.
    pub gpus: GpuSet,
    /// How good it is.
    pub score: Score,
}

/// What a profile asks of a node that does not change while a plan is made.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Selection {
    engine: EngineName,
    pool: Option<String>,
    labels: BTreeMap<String, String>,
}

/// The rooms that there are, numbered; equal rooms have one number.
#[derive(Debug, Default)]
struct States {
    rooms: Vec<Room>,
    /// How many nodes are in each.
    nodes: Vec<u32>,
    numbers: HashMap<Room, usize>,
}

/// What the policy said, by demand and state.
#[derive(Debug, Default)]
struct Shapes {
    said: HashMap<Demand, Vec<Said>>,
}

#[derive(Clone, Copy, Debug)]
enum Said {
    NotAsked,
    NoRoom,
    Room(Worth),
}

// === impl Working ===

impl<'f> Working<'f> {
    /// The fleet as it stands; `fleet` is sorted, `classes` are its own.
    #[must_use]
    pub fn new(
        fleet: &'f Fleet,
        mut classes: Classes,
        policy: Box<dyn Policy>,
        ties: &Ties,
    ) -> Self {
        let mut states = States::default();
        let mut counts: BTreeMap<ModelName, BTreeMap<usize, u64>> = BTreeMap::new();
        let mut nodes = Vec::with_capacity(fleet.nodes.len());
        for (index, node) in fleet.nodes.iter().enumerate() {
            for replica in node.replicas.iter().filter(|replica| replica.counts()) {
                let by_node = counts.entry(replica.model.clone()).or_default();
                *by_node.entry(index).or_insert(0) += 1;
            }
            nodes.push(WorkingNode::of(node, &mut states, &mut classes, ties));
        }
        let mut working = Self {
            fleet,
            crowd: vec![0; nodes.len()],
            nodes,
            counts,
            classes,
            states,
            policy,
            shapes: Shapes::default(),
            selections: BTreeMap::new(),
            unseen: 0,
        };
        working.show_policy();
        working
    }

    /// A question to place one more.
    #[must_use]
    pub fn ask<'a>(&mut self, model: Option<&'a Model>, profile: &'a Profile) -> Ask<'a> {
        Ask {
            model,
            profile,
            demand: Demand::of(profile, &mut self.classes),
            rank: 0,
        }
    }

    /// The best place for a part that runs on one node, if there is one.
    pub fn best(&mut self, ask: &Ask<'_>) -> Option<Spot> {
        self.best_of(ask, |_| true)
    }

    /// The best place among these nodes.
    pub(crate) fn best_of(&mut self, ask: &Ask<'_>, among: impl Fn(usize) -> bool) -> Option<Spot> {
        self.select(ask.profile);
        let crowded = self.crowd_of(ask);
        let Self {
            fleet: _,
            nodes,
            states,
            policy,
            shapes,
            selections,
            crowd,
            ..
        } = self;
        let selected = selections.get(&Selection::of(ask.profile))?;
        let said = shapes.of(&ask.demand, states.rooms.len());
        let sign = match ask.profile.needs.prefer {
            Prefer::Spread => 1,
            Prefer::Pack => -1,
        };
        let mut best: Option<(Score, usize)> = None;
        for (index, node) in nodes.iter().enumerate() {
            if !selected.get(index).copied().unwrap_or(false) {
                continue;
            }
            let worth = match said.get(node.state).copied().unwrap_or(Said::NotAsked) {
                Said::NoRoom => continue,
                Said::Room(worth) => worth,
                Said::NotAsked => {
                    let Some(room) = states.rooms.get(node.state) else {
                        continue;
                    };
                    let answer = if room.fits(&ask.demand) {
                        Said::Room(policy.worth(room, &ask.demand))
                    } else {
                        Said::NoRoom
                    };
                    if policy.is_pure()
                        && let Some(kept) = said.get_mut(node.state)
                    {
                        *kept = answer;
                    }
                    match answer {
                        Said::Room(worth) => worth,
                        Said::NoRoom | Said::NotAsked => continue,
                    }
                }
            };
            let same_model = crowd.get(index).copied().unwrap_or(0);
            let score = Score {
                same_model: sign * same_model,
                fetches: node.fetches(ask.model, same_model),
                worth: std::cmp::Reverse(worth),
                waits: ask.demand.gpus > 0 && !node.starting.is_empty(),
                tie: node.tie,
                node: node.node.id,
            };
            if best.is_none_or(|(known, _)| score < known)
                && among(index)
                && node.has_disk(ask, score.fetches)
            {
                best = Some((score, index));
            }
        }
        for index in crowded {
            if let Some(count) = crowd.get_mut(index) {
                *count = 0;
            }
        }
        let (score, node) = best?;
        let gpus = self.gpus_on(node, &ask.demand);
        Some(Spot { node, gpus, score })
    }

    /// Notes how many replicas of the model are where, and gives the places that were written.
    fn crowd_of(&mut self, ask: &Ask<'_>) -> Vec<usize> {
        let by_node = ask.model.and_then(|model| self.counts.get(model.name()));
        let mut written = Vec::new();
        for (node, count) in by_node.into_iter().flatten() {
            if let Some(crowd) = self.crowd.get_mut(*node) {
                *crowd = i64::try_from(*count).unwrap_or(i64::MAX);
                written.push(*node);
            }
        }
        written
    }

    /// The GPUs that a demand would use there.
    pub(crate) fn gpus_on(&self, node: usize, demand: &Demand) -> GpuSet {
        let room = self.nodes.get(node).map(|node| self.room_of(node));
        match room {
            Some(room) if demand.gpus > 0 => self.policy.gpus(room, demand),
            _ => GpuSet::default(),
        }
    }

    /// Takes a place. What starts holds up other starts on its GPUs; what is there already does not.
    pub fn take(&mut self, ask: &Ask<'_>, spot: Spot, phase: Phase) {
        self.change(ask, spot, Direction::Take);
        if let Some(model) = ask.model.filter(|_| ask.rank == 0) {
            let by_node = self.counts.entry(model.name().clone()).or_default();
            *by_node.entry(spot.node).or_insert(0) += 1;
        }
        let Some(node) = self.nodes.get_mut(spot.node) else {
            return;
        };
        if phase == Phase::Starting {
            for place in spot.gpus.places() {
                *node.starting.entry(place).or_insert(0) += 1;
            }
        }
        let need = node.disk_need(ask, spot.score.fetches);
        node.disk = node.disk.map(|free| free.saturating_sub(bytes(need)));
        if let Some(model) = ask.model {
            node.promised.insert(model.name().clone());
        }
        self.unseen += 1;
        if self.unseen >= SHOWN_EVERY {
            self.show_policy();
        }
    }

    fn change(&mut self, ask: &Ask<'_>, spot: Spot, direction: Direction) {
        let kind = kind(&ask.demand);
        self.alter(spot.node, |room, kinds| {
            match direction {
                Direction::Take => room.take(&ask.demand, spot.gpus),
                Direction::Give => room.give(&ask.demand, spot.gpus),
            }
            count_kind(kinds, kind, direction);
        });
    }

    /// Takes a running replica off its node; its weights stay.
    pub(crate) fn release(&mut self, index: usize, replica: &FleetReplica) {
        self.hold(index, replica, Direction::Give);
    }

    /// Puts a released replica back.
    pub(crate) fn restore(&mut self, index: usize, replica: &FleetReplica) {
        self.hold(index, replica, Direction::Take);
    }

    fn hold(&mut self, index: usize, replica: &FleetReplica, direction: Direction) {
        let Some(node) = self.nodes.get(index).map(|node| node.node) else {
            return;
        };
        self.alter(index, |room, kinds| {
            hold(room, kinds, node, replica, direction)
        });
        if replica.counts()
            && let Some(by_node) = self.counts.get_mut(&replica.model)
            && let Some(count) = by_node.get_mut(&index)
        {
            *count = match direction {
                Direction::Take => *count + 1,
                Direction::Give => count.saturating_sub(1),
            };
        }
    }

    fn alter(&mut self, index: usize, change: impl FnOnce(&mut Room, &mut [u32; 16])) {
        let Some(node) = self.nodes.get_mut(index) else {
            return;
        };
        let Some(room) = self.states.rooms.get(node.state) else {
            return;
        };
        let mut room = room.clone();
        change(&mut room, &mut node.kinds);
        room.kinds = kinds_of(&node.kinds);
        self.states.leave(node.state);
        node.state = self.states.number(room);
    }

    /// How good the place of a running replica is for it, as if it were to be placed there now.
    pub(crate) fn worth_of(&self, index: usize, replica: &FleetReplica) -> Worth {
        let Some(node) = self.nodes.get(index) else {
            return Worth::default();
        };
        let mut room = self.room_of(node).clone();
        let mut kinds = node.kinds;
        hold(&mut room, &mut kinds, node.node, replica, Direction::Give);
        room.kinds = kinds_of(&kinds);
        let demand = Demand {
            cpu: thousandths(replica.cpu),
            memory: bytes(replica.memory),
            gpus: replica.gpus.len(),
            per_gpu: replica
                .gpus
                .first()
                .and_then(|share| share.memory)
                .map(bytes),
            classes: Vec::new(),
        };
        self.policy.worth(&room, &demand)
    }

    /// Shows the policy what is left.
    fn show_policy(&mut self) {
        self.unseen = 0;
        let rooms = self
            .states
            .rooms
            .iter()
            .zip(self.states.nodes.iter().copied());
        if self
            .policy
            .watch(&mut rooms.filter(|(_, nodes)| *nodes > 0))
        {
            self.shapes = Shapes::default();
        }
    }

    /// Notes which nodes a profile may use at all, once for each way to choose.
    fn select(&mut self, profile: &Profile) {
        let selection = Selection::of(profile);
        if self.selections.contains_key(&selection) {
            return;
        }
        let fleet = self.fleet;
        let suits = |node: &WorkingNode<'_>| is_selected(fleet, node.node, profile);
        let selected = self.nodes.iter().map(suits).collect();
        self.selections.insert(selection, selected);
    }

    /// The fleet that this began with.
    #[must_use]
    pub fn fleet(&self) -> &'f Fleet {
        self.fleet
    }

    /// What a node has left, by its place.
    #[must_use]
    pub fn room(&self, node: usize) -> Option<&Room> {
        self.nodes.get(node).map(|node| self.room_of(node))
    }

    pub(crate) fn room_of(&self, node: &WorkingNode<'_>) -> &Room {
        self.states.rooms.get(node.state).unwrap_or(&NOTHING)
    }

    pub(crate) fn classes(&mut self) -> &mut Classes {
        &mut self.classes
    }

    /// Replicas of a model on one node, placed ones included.
    pub(crate) fn count_on(&self, model: &ModelName, node: usize) -> u64 {
        let by_node = self.counts.get(model);
        by_node
            .and_then(|by_node| by_node.get(&node))
            .copied()
            .unwrap_or(0)
    }

    /// Whether a start on these GPUs has to wait for another.
    pub(crate) fn waits(&self, spot: Spot) -> bool {
        self.nodes.get(spot.node).is_some_and(|node| {
            spot.gpus
                .places()
                .any(|place| node.starting.contains_key(&place))
        })
    }

    /// The numbers of GPUs by their places.
    pub(crate) fn gpu_numbers(&self, spot: Spot) -> Vec<u32> {
        let gpus = self
            .nodes
            .get(spot.node)
            .and_then(|node| node.node.gpus.as_deref());
        let gpus = gpus.unwrap_or_default();
        let numbers = spot.gpus.places().filter_map(|place| gpus.get(place));
        numbers.map(|gpu| gpu.index).collect()
    }

    /// How many states nodes have been in so far: what memory goes with.
    #[must_use]
    pub fn states(&self) -> usize {
        self.states.rooms.len()
    }

    /// Where a replica runs, by the places of its nodes.
    pub(crate) fn find(
        &self,
        id: ReplicaId,
    ) -> impl Iterator<Item = (usize, &'f FleetReplica)> + '_ {
        self.nodes
            .iter()
            .enumerate()
            .flat_map(move |(index, node)| {
                let replicas = node.node.replicas.iter();
                replicas
                    .filter(move |replica| replica.id == id)
                    .map(move |replica| (index, replica))
            })
    }
}

// === impl WorkingNode ===

impl<'f> WorkingNode<'f> {
    fn of(node: &'f FleetNode, states: &mut States, classes: &mut Classes, ties: &Ties) -> Self {
        let mut room = Room::of(node, classes);
        let mut kinds = [0; 16];
        let mut starting = BTreeMap::new();
        for replica in &node.replicas {
            hold(&mut room, &mut kinds, node, replica, Direction::Take);
            if replica.phase == Phase::Starting {
                for place in places(node, replica) {
                    *starting.entry(place).or_insert(0) += 1;
                }
            }
        }
        room.kinds = kinds_of(&kinds);
        Self {
            node,
            state: states.number(room),
            disk: node.disk_free.map(bytes),
            starting,
            kinds,
            tie: ties.of(node.id),
            promised: BTreeSet::new(),
        }
    }

    /// Whether weights would have to be fetched to it.
    pub(crate) fn fetches(&self, model: Option<&Model>, replicas: i64) -> bool {
        let Some(model) = model else {
            return false;
        };
        let there = || match model.weights().sha256 {
            Some(digest) => !self.node.weights.is_empty() && self.node.weights.contains(&digest),
            None => false,
        };
        replicas == 0 && !is_on_the_node(model) && !there() && !self.promised.contains(model.name())
    }

    /// Disk that a replica would take.
    pub(crate) fn disk_need(&self, ask: &Ask<'_>, fetches: bool) -> Bytes {
        let weights = ask
            .model
            .filter(|_| fetches)
            .and_then(|model| model.weights().size);
        // A size that is not known can't be checked here: the agent checks again before it writes.
        weights.unwrap_or(Bytes::ZERO) + ask.profile.needs.disk.unwrap_or(Bytes::ZERO)
    }

    pub(crate) fn has_disk(&self, ask: &Ask<'_>, fetches: bool) -> bool {
        let need = self.disk_need(ask, fetches);
        need == Bytes::ZERO || self.disk.is_some_and(|free| free >= bytes(need))
    }
}

/// Whether the first source of its weights is a file that the node has of itself.
fn is_on_the_node(model: &Model) -> bool {
    matches!(model.weights().sources.first(), Some(Source::File { .. }))
}

/// Whether a profile may use a node at all: what does not change while a plan is made.
fn is_selected(fleet: &Fleet, node: &FleetNode, profile: &Profile) -> bool {
    let needs = &profile.needs;
    node.state == NodeState::Ready
        && matches!(
            node.engines.get(&profile.engine),
            Some(ProvisionState::Installed { .. })
        )
        && node.has_labels(&needs.labels)
        && needs
            .pool
            .as_ref()
            .is_none_or(|pool| fleet.is_in_pool(node, pool))
        && fleet.hold_on(node).is_none()
}

/// The places of a replica's GPUs among those of its node.
fn places(node: &FleetNode, replica: &FleetReplica) -> Vec<usize> {
    let gpus = node.gpus.as_deref().unwrap_or_default();
    let place = |index: u32| gpus.iter().position(|gpu| gpu.index == index);
    // A share of a GPU that is gone keeps its turn, so that shares and places stay in step.
    replica
        .gpus
        .iter()
        .map(|share| place(share.index).unwrap_or(usize::MAX))
        .collect()
}

fn hold(
    room: &mut Room,
    kinds: &mut [u32; 16],
    node: &FleetNode,
    replica: &FleetReplica,
    direction: Direction,
) {
    room.hold(replica, &places(node, replica), direction);
    let kind = match replica.gpus.as_slice() {
        [] => 0,
        [share] if share.memory.is_some() => 1,
        shares => 1 << shares.len().min(15),
    };
    count_kind(kinds, kind, direction);
}

fn count_kind(kinds: &mut [u32; 16], kind: u16, direction: Direction) {
    if kind == 0 {
        return;
    }
    let place = usize::try_from(kind.trailing_zeros()).unwrap_or(0);
    if let Some(count) = kinds.get_mut(place) {
        *count = match direction {
            Direction::Take => count.saturating_add(1),
            Direction::Give => count.saturating_sub(1),
        };
    }
}

fn kinds_of(kinds: &[u32; 16]) -> u16 {
    let set = kinds.iter().enumerate().filter(|(_, count)| **count > 0);
    set.fold(0, |bits, (place, _)| bits | 1 << place)
}

// === impl Selection ===

impl Selection {
    fn of(profile: &Profile) -> Self {
        Self {
            engine: profile.engine.clone(),
            pool: profile.needs.pool.clone(),
            labels: profile.needs.labels.clone(),
        }
    }
}

// === impl States ===

impl States {
    /// The number of a room, with one more node in it.
    fn number(&mut self, room: Room) -> usize {
        if let Some(number) = self.numbers.get(&room) {
            if let Some(nodes) = self.nodes.get_mut(*number) {
                *nodes += 1;
            }
            return *number;
        }
        let number = self.rooms.len();
        self.rooms.push(room.clone());
        self.nodes.push(1);
        self.numbers.insert(room, number);
        number
    }

    fn leave(&mut self, number: usize) {
        if let Some(nodes) = self.nodes.get_mut(number) {
            *nodes = nodes.saturating_sub(1);
        }
    }
}

// === impl Shapes ===

impl Shapes {
    /// What was said for a demand, by state.
    fn of(&mut self, demand: &Demand, states: usize) -> &mut Vec<Said> {
        // The answers can be had again; what may be asked is without bound.
        if self.said.len() > MOST_SHAPES && !self.said.contains_key(demand) {
            self.said.clear();
        }
        let said = self.said.entry(demand.clone()).or_default();
        if said.len() < states {
            said.resize(states, Said::NotAsked);
        }
        said
    }
}

/// The room of a node that there is not.
static NOTHING: Room = Room {
    cpu: None,
    memory: None,
    gpus: None,
    kinds: 0,
};

/// Placements after which a policy is shown again what is left: prices move slowly, and each time costs what was kept.
const SHOWN_EVERY: u32 = 256;
/// Demands for which answers are kept.
const MOST_SHAPES: usize = 512;
