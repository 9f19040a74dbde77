//! The loop as a pure step: what is intended, what is observed, what time it is -> what to do.
//!
//! [`step`] decides and changes nothing; [`Memory::apply`] notes what was decided. Ids come from the caller, so
//! that the same history always gives the same decisions. Time is the caller's monotonic time.
//!
//! A step goes through these, in this order; each sees what those before it decided:
//!
//! | step | module |
//! |---|---|
//! | freezes moves when too many nodes are silent | [`silence`] |
//! | adopts what runs already, takes in failures, lets go of what is lost | `arrive` |
//! | has written down what is parked, and lifts what is over | `parking` |
//! | sets how many replicas a model should have, by its load | [`demand`] |
//! | replaces replicas whose definition has changed | [`roll`] |
//! | drains what is not wanted, stops what has drained | `leave` |
//! | forgets the failures of what serves well | `arrive` |
//! | places what is missing | `place` |
//! | stops what was forced to go and has no room elsewhere | `force` |
//!
//! Who may do what: an order of an operator is followed in any case. What the loop does by itself (moves off draining
//! nodes, rolls, less load) never stops the last replica that serves, spares what is held, and waits while the fleet
//! has not settled or too much of it is silent. A drain or a roll that is forced may stop the last one that serves, and
//! does so only where its successor has no room.

mod action;
mod arrive;
pub mod demand;
mod fleet;
mod force;
pub mod inputs;
mod leave;
pub mod memory;
mod pacing;
mod parking;
mod place;
pub mod roll;
mod scene;
pub mod silence;
pub mod standing;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use llmgw_core::{
    clock::Timestamp,
    cluster::{
        catalog::{Model, Profile},
        engine::Provision,
        node::NodeFacts,
        order::Orders,
        pool::Pools,
        replica::{ReplicaState, ReplicaStatus},
        weights::WeightsOnDisk,
    },
    fingerprint::Fingerprint,
    id::{EngineName, ModelName, NodeId, ProfileName, ReplicaId},
    reason::Report,
};

pub(crate) use self::inputs::inputs;
pub use self::{
    action::{Action, Why},
    demand::Asked,
    fleet::fleet,
    inputs::{Inputs, lacks},
    memory::{Assignment, History, Memory},
    pacing::Pacing,
};
use self::{
    arrive::{absolve, adopt, let_go, take_in_failures},
    demand::scale,
    force::force,
    leave::{drain, keep, stop_drained},
    parking::park,
    place::{place, turns, warn},
    roll::roll,
    scene::Scene,
    silence::watch_silence,
};
use crate::planner::{Options, policy::PolicyName, sizes::Sizes};

/// What should run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Intent {
    /// The models, by name.
    pub models: BTreeMap<ModelName, Model>,
    /// Engines that nodes should have.
    pub engines: Vec<Wish>,
    /// Pools of nodes.
    pub pools: Arc<Pools>,
    /// How fast to follow what is asked for.
    pub pacing: Pacing,
    /// Which policy places.
    pub policy: PolicyName,
    /// What is known of the weights of models.
    pub sizes: Arc<Sizes>,
    /// What operators have ordered besides.
    pub orders: Arc<Orders>,
    /// The wall clock's time: tells which holds have ended by themselves.
    pub at: Timestamp,
    /// What tells whether models have changed, by what people wrote: a model is run with more than that. Of one that
    /// is not here, what it is run with counts.
    pub definitions: BTreeMap<ModelName, Arc<Definition>>,
}

/// An engine that every node should have, or every node of a pool.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Wish {
    /// Which engine.
    pub engine: EngineName,
    /// The pool; all nodes when absent.
    pub pool: Option<String>,
}

/// Tells whether what people wrote of a model has changed, as far as it concerns how it runs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Definition {
    whole: Fingerprint,
    profiles: BTreeMap<ProfileName, Fingerprint>,
}

impl Intent {
    /// How to plan.
    #[must_use]
    pub fn options(&self) -> Options {
        Options {
            policy: self.policy,
            sizes: Arc::clone(&self.sizes),
            ..Options::default()
        }
    }

    /// Tells whether a model's weights or profiles have changed; `None` when there is no such model.
    #[must_use]
    pub fn definition(&self, model: &ModelName) -> Option<Fingerprint> {
        match self.definitions.get(model) {
            Some(definition) => Some(definition.whole),
            None => Some(Definition::of(self.models.get(model)?).whole),
        }
    }

    /// Tells whether a profile of a model, or its weights, have changed; `None` when there is no such profile.
    #[must_use]
    pub fn fingerprint(&self, model: &ModelName, profile: &ProfileName) -> Option<Fingerprint> {
        if let Some(definition) = self.definitions.get(model) {
            return definition.profiles.get(profile).copied();
        }
        let model = self.models.get(model)?;
        Some(model.fingerprint(model.profile(profile)?))
    }
}

impl Definition {
    /// Of what people wrote.
    #[must_use]
    pub fn of(written: &Model) -> Self {
        let profiles = written.profiles().iter();
        let of = |profile: &Profile| (profile.name.clone(), written.fingerprint(profile));
        // Plain data without maps always has a JSON form; the fallback can't be reached.
        let whole = Fingerprint::of(&(written.weights(), written.profiles()));
        Self {
            whole: whole.unwrap_or(Fingerprint(0)),
            profiles: profiles.map(of).collect(),
        }
    }
}

/// What is, as agents and the gateway tell it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Nodes that were ever heard. Shared: whoever looks gets the whole with each step, and few nodes change in one.
    pub nodes: BTreeMap<NodeId, Arc<ObservedNode>>,
    /// Calls that each replica is answering now; absent is none.
    pub outstanding: BTreeMap<ReplicaId, u64>,
    /// Calls that each replica was given in all, and how they went; absent is none.
    pub calls: BTreeMap<ReplicaId, Calls>,
    /// What clients ask for that nothing serves.
    pub asked: BTreeMap<ModelName, Asked>,
}

/// Calls that a replica was given since a gateway knows it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Calls {
    /// All of them.
    pub given: u64,
    /// Those that the replica failed: it could not be reached, went away, or answered with an error of its own.
    pub failed: u64,
}

impl Observed {
    /// Takes in that a client asked for a model that nothing serves.
    pub fn ask(&mut self, model: &ModelName, now: Duration) {
        let asked = self.asked.entry(model.clone()).or_default();
        asked.calls = asked.calls.wrapping_add(1);
        asked.last = now;
    }
}

/// What an agent said last.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedNode {
    /// When it was heard.
    pub heard_at: Duration,
    /// Its agent has said that it ends.
    pub left: bool,
    /// The desired revision of this epoch that the agent works towards; 0 when it has none yet.
    pub revision: u64,
    /// What it found on the machine.
    pub facts: NodeFacts,
    /// How far it is with each engine.
    pub provision: Vec<Provision>,
    /// What it runs.
    pub replicas: BTreeMap<ReplicaId, ReplicaStatus>,
    /// The weights that lie on its disk; absent when it does not say.
    pub weights: Option<Vec<WeightsOnDisk>>,
}

/// What [`step`] decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// What to do, in this order.
    pub actions: Vec<Action>,
    /// For each model that lacks replicas and was tried: where it goes, or why it fits nowhere.
    pub reports: BTreeMap<ModelName, Report>,
    /// Models on demand that fit nowhere now, and would if others that run on demand made room: they wait for their turn.
    pub turns: BTreeSet<ModelName>,
    /// What the planner was given.
    pub inputs: Inputs,
    /// The policy that it scored nodes with.
    pub policy: PolicyName,
}

/// Decides.
#[must_use]
pub fn step(intent: &Intent, observed: &Observed, memory: &Memory, now: Duration) -> Step {
    // The working copy takes in each decision, so that later ones see it.
    let mut working = memory.clone();
    let mut actions = Vec::new();
    let mut take = |working: &mut Memory, decided: Vec<Action>| {
        for action in &decided {
            working.apply(action, now);
        }
        actions.extend(decided);
    };
    for decide in [
        watch_silence,
        adopt,
        take_in_failures,
        let_go,
        park,
        scale,
        roll,
        keep,
        drain,
        stop_drained,
        absolve,
    ] {
        let decided = decide(&Scene {
            intent,
            observed,
            memory: &working,
            now,
        });
        take(&mut working, decided);
    }
    let inputs = inputs(intent, observed, &working, now);
    let scene = Scene {
        intent,
        observed,
        memory: &working,
        now,
    };
    let mut options = intent.options();
    // Room is made by what nobody asks for now, and not a second time for the same model.
    let idle = intent.pacing.evict_idle_after.as_secs();
    options.evict_after_seconds = scene.may_move().then_some(idle);
    options.spared = working.room.values().cloned().collect();
    let (placements, reports) = if scene.is_settled() {
        place(&scene, &inputs, &options)
    } else {
        (Vec::new(), BTreeMap::new())
    };
    let turns = turns(&scene, &inputs, &options, &reports);
    let forced = force(&scene, &placements, &reports, &turns);
    let warnings = warn(&scene, &reports, &turns);
    take(&mut working, placements);
    take(&mut working, forced);
    take(&mut working, warnings);
    Step {
        actions,
        reports,
        turns,
        inputs,
        policy: options.policy,
    }
}

/// Whether a node has not been heard for longer than the grace, or its agent has ended.
#[must_use]
pub fn is_lost(node: &ObservedNode, now: Duration) -> bool {
    node.left || now.saturating_sub(node.heard_at) > LOST_AFTER
}

/// What nodes that are heard say of their replicas, by node and replica.
fn statuses(observed: &Observed, now: Duration) -> impl Iterator<Item = (NodeId, &ReplicaStatus)> {
    observed
        .nodes
        .iter()
        .filter(move |(_, node)| !is_lost(node, now))
        .flat_map(|(id, node)| node.replicas.values().map(|status| (*id, status)))
}

/// What its node says of a replica that was given to it.
pub(crate) fn state_of(
    observed: &Observed,
    id: ReplicaId,
    given: &Assignment,
) -> Option<ReplicaState> {
    observed
        .nodes
        .get(&given.node)?
        .replicas
        .get(&id)
        .map(|status| status.state)
}

/// Seven heartbeats: a node that is only slow is not lost.
const LOST_AFTER: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests;
