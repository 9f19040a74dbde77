//! States that nodes are in, and what the policy said of them.

use std::collections::HashMap;

use crate::planner::{demand::Demand, policy::Worth, room::Room};

/// The rooms that there are, numbered; equal rooms have one number.
#[derive(Debug, Default)]
pub(super) struct States {
    pub(super) rooms: Vec<Room>,
    /// How many nodes are in each.
    pub(super) nodes: Vec<u32>,
    numbers: HashMap<Room, usize>,
}

/// What the policy said, by demand and state.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    said: HashMap<Demand, Vec<Said>>,
}

/// What the policy said of one state.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said {
    NotAsked,
    NoRoom,
    Room(Worth),
}

// === impl States ===

impl States {
    /// The number of a room, with one more node in it.
    pub(super) fn number(&mut self, room: Room) -> usize {
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

    pub(super) fn leave(&mut self, number: usize) {
        if let Some(nodes) = self.nodes.get_mut(number) {
            *nodes = nodes.saturating_sub(1);
        }
    }
}

// === impl Shapes ===

impl Shapes {
    /// What was said for a demand, by state.
    pub(super) fn of(&mut self, demand: &Demand, states: usize) -> &mut Vec<Said> {
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

/// Demands for which answers are kept.
const MOST_SHAPES: usize = 512;
