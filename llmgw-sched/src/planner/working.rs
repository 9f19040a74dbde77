//! The fleet while a plan is being made: what was placed so far is taken.
//!
//! Nodes in the same state share all work: a state is numbered once, and what a policy says of it for a demand is
//! kept by that number. When a node changes it moves to another state, and nothing else has to be asked again.

use std::collections::BTreeMap;

use llmgw_core::{
    cluster::{
        catalog::{Model, Prefer, Profile},
        engine::ProvisionState,
        node::NodeState,
    },
    id::{EngineName, ModelName, ReplicaId},
    units::Bytes,
};

pub(crate) use self::node::{WorkingNode, disk_need};
use self::{
    node::{count_kind, hold, kinds_of},
    states::{Said, Shapes, States},
};
use super::{
    demand::{Classes, Demand, bytes, thousandths},
    policy::{Policy, Worth, kind},
    room::{Direction, GpuSet, Room},
    score::{Score, Ties},
};
use crate::fleet::{Fleet, FleetNode, FleetReplica, Phase};

mod node;
mod states;

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
    /// The nodes that use the same disk, by its name.
    disks: BTreeMap<&'f str, Vec<usize>>,
    /// The count of a model's replicas by node while a choice is made; nought in between.
    crowd: Vec<i64>,
    /// Placements since the policy was last shown what is left.
    unseen: u32,
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
            disks: BTreeMap::new(),
            unseen: 0,
        };
        working.join_disks();
        working.show_policy();
        working
    }

    /// Finds which nodes use the same disk. Each has looked at another moment: the least that one of them saw is
    /// what there is.
    fn join_disks(&mut self) {
        for (index, node) in self.nodes.iter().enumerate() {
            if let Some(disk) = &node.node.disk_id {
                self.disks.entry(disk).or_default().push(index);
            }
        }
        for sharing in self.disks.values() {
            let free = sharing
                .iter()
                .filter_map(|index| self.nodes.get(*index)?.disk);
            let least = free.min();
            for index in sharing {
                if let Some(node) = self.nodes.get_mut(*index) {
                    node.disk = node.disk.and(least);
                }
            }
        }
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
        if let Some(model) = ask.model {
            node.promised.insert(model.name().clone());
        }
        self.fill_disk(spot.node, disk_need(ask, spot.score.fetches));
        self.unseen += 1;
        if self.unseen >= SHOWN_EVERY {
            self.show_policy();
        }
    }

    /// Takes room on the disk of a node, and so of all that use the same one.
    fn fill_disk(&mut self, index: usize, need: Bytes) {
        let disk = self
            .nodes
            .get(index)
            .and_then(|node| node.node.disk_id.as_ref());
        let alone = [index];
        let sharing = disk.and_then(|disk| self.disks.get(disk.as_str()));
        for index in sharing.map_or(&alone[..], Vec::as_slice) {
            if let Some(node) = self.nodes.get_mut(*index) {
                node.disk = node.disk.map(|free| free.saturating_sub(bytes(need)));
            }
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
            hold(room, kinds, node, replica, direction);
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

/// The room of a node that there is not.
static NOTHING: Room = Room {
    cpu: None,
    memory: None,
    gpus: None,
    kinds: 0,
};

/// Placements after which a policy is shown again what is left: prices move slowly, and each time costs what was kept.
const SHOWN_EVERY: u32 = 256;
