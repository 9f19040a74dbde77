//! A whole cluster in one thread under a virtual clock, with faults; the same seed gives the same history.
//!
//! What runs is the real thing: the planner, [`reconcile::step`](crate::reconcile::step), the
//! [`Conductor`](crate::conductor::Conductor) and the [`Elector`](crate::lease::Elector). Simulated is what they speak
//! with: agents with their GPUs, disks, downloads and engines, the links between them, the store with its lease, clients, operators, and
//! clocks.
//!
//! In the first part of a run everything goes wrong at random: frames are lost, late, repeated and out of order, nodes
//! lose power or are cut off, all at once too; agents, engines and control planes crash and hang; two control planes
//! share a lease; the store is away; wall clocks jump; operators order this and that. Then all is mended, and the cluster
//! must come to rest with everything served that fits.
//!
//! After each step [`Invariant`]s are checked. One that is broken ends the run; the seed replays it.
//!
//! ```
//! use llmgw_sched::sim::{Options, run};
//!
//! let run = run(1, &Options::default());
//! assert!(run.violation.is_none(), "{:?}", run.violation);
//! ```

mod checks;
mod clients;
mod engines;
mod faults;
mod gpus;
mod node;
mod operator;
mod plane;
mod random;
mod rest;
mod store;
mod weights;
mod world;

use std::{fmt, time::Duration};

use self::world::World;
pub use crate::conductor::planted::Planted;

/// How to run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Keep what happens, line by line.
    pub trace: bool,
    /// A fault that is put in on purpose, to see that it is found.
    pub planted: Option<Planted>,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// What it was made from.
    pub seed: u64,
    /// The time that passed in the cluster.
    pub time: Duration,
    /// What was done how often.
    pub counts: Counts,
    /// The promise that was broken, if one was.
    pub violation: Option<Violation>,
    /// What happened, line by line, when it was to be kept.
    pub trace: Vec<String>,
}

/// What was done how often in a run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Steps of control planes.
    pub steps: u64,
    /// Actions that were decided.
    pub actions: u64,
    /// Frames that were sent.
    pub frames: u64,
    /// Frames that were lost, repeated or overtaken.
    pub spoilt: u64,
    /// Faults of machines, programs and networks.
    pub faults: u64,
    /// Calls of clients.
    pub calls: u64,
    /// Orders of operators.
    pub orders: u64,
}

/// A promise that was broken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Violation {
    /// When, since the run began.
    pub at: Duration,
    /// Which promise.
    pub invariant: Invariant,
    /// By what.
    pub what: String,
}

/// What always holds.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Invariant {
    /// A node never follows an order that is older than one it has followed, and no replica runs twice.
    Fence,
    /// The last replica that serves is never stopped by a move that nobody ordered.
    LastReady,
    /// What is parked is not started.
    Parked,
    /// What is promised of a node's memory, of each of its GPUs and of its disk never exceeds what it has.
    Capacity,
    /// On a GPU one replica starts at a time.
    Starts,
    /// Nothing is placed, and nothing moved that nobody ordered to, where an operator holds it.
    Held,
    /// What loads or answers is not taken for idle.
    Idle,
    /// Nothing is stopped while it answers, before its time to end has passed.
    Streams,
    /// Once all is well, the cluster comes to rest with everything served that fits, and runs nothing else.
    Rest,
}

/// Runs a cluster from its beginning to its rest, or until a promise is broken.
#[must_use]
pub fn run(seed: u64, options: &Options) -> Run {
    World::new(seed, options).run()
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            invariant,
            what,
        } = self;
        write!(f, "{:9.3} s  {invariant:?}: {what}", at.as_secs_f64())
    }
}

impl Counts {
    /// Adds those of another run.
    pub fn add(&mut self, other: Self) {
        let Self {
            steps,
            actions,
            frames,
            spoilt,
            faults,
            calls,
            orders,
        } = other;
        self.steps += steps;
        self.actions += actions;
        self.frames += frames;
        self.spoilt += spoilt;
        self.faults += faults;
        self.calls += calls;
        self.orders += orders;
    }
}

#[cfg(test)]
mod tests;
