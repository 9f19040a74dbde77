//! Faults that are put in on purpose, so that the simulation can show that it finds them.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use llmgw_core::{
    cluster::{
        order::{Duty, Order, StoredOrder},
        replica::ReplicaState,
    },
    id::{ModelName, ReplicaId},
};

use super::Conductor;
use crate::{
    planner::{Placement, plan_with},
    reconcile::{Action, Intent, Step, Why},
};

/// A fault.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Planted {
    /// Agents follow any order that comes, also an older one. This one is in the simulated agent.
    FenceIgnored,
    /// What leaves a draining node is drained before anything serves in its place.
    DrainWithoutSurge,
    /// Who takes over does not ask the store which models are parked.
    ParkedForgotten,
    /// Memory that is promised to what still starts is given away again.
    StartsUncounted,
    /// What is to wait for another start on its GPU is placed at once.
    StartsTogether,
    /// Operators' holds are passed over.
    HoldsForgotten,
    /// A replica on demand is idle when it was given long ago, whatever it loads or answers.
    IdleByAge,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::FenceIgnored,
        Self::DrainWithoutSurge,
        Self::ParkedForgotten,
        Self::StartsUncounted,
        Self::StartsTogether,
        Self::HoldsForgotten,
        Self::IdleByAge,
    ];
}

impl Conductor {
    /// Makes it faulty.
    pub fn plant(&mut self, planted: Planted) {
        self.planted = Some(planted);
    }

    /// Forgets of the orders that it begins with those that it passes over.
    pub(super) fn forget_planted(&mut self) {
        let orders = self.state.orders.iter();
        let kept = orders.filter(|order| !self.is_forgotten(order)).cloned();
        self.state.orders = Arc::new(kept.collect());
    }

    /// Whether it passes over an order that stands.
    pub(super) fn is_forgotten(&self, order: &StoredOrder) -> bool {
        match self.planted {
            Some(Planted::ParkedForgotten) => matches!(order.order, Order::Park { .. }),
            Some(Planted::HoldsForgotten) => matches!(order.order, Order::Hold(_)),
            _ => false,
        }
    }

    /// What was decided, with what a fault adds.
    pub(super) fn spoilt(&self, mut decided: Step, intent: &Intent, now: Duration) -> Step {
        let spoilt = match self.planted {
            Some(Planted::DrainWithoutSurge) => self.drain_at_once(),
            Some(Planted::StartsUncounted) => self.place_over_starts(intent),
            Some(Planted::IdleByAge) => self.idle_by_age(intent, now),
            Some(Planted::StartsTogether) => place_together(&decided, intent),
            Some(Planted::FenceIgnored | Planted::ParkedForgotten | Planted::HoldsForgotten)
            | None => Vec::new(),
        };
        decided.actions.extend(spoilt);
        decided
    }

    fn drain_at_once(&self) -> Vec<Action> {
        let state = &self.state;
        let leaves = state.memory.assignments.iter().filter(|(_, given)| {
            let order = state.orders.node(given.node);
            given.draining.is_none() && order.is_some_and(|order| order.duty == Duty::Draining)
        });
        let drain = |replica: &ReplicaId| Action::Drain {
            replica: *replica,
            why: Why::Moved,
        };
        leaves.map(|(replica, _)| drain(replica)).collect()
    }

    fn place_over_starts(&self, intent: &Intent) -> Vec<Action> {
        let state = &self.state;
        if state.reports.is_empty() {
            return Vec::new();
        }
        let lacking: BTreeSet<&ModelName> = state.reports.keys().collect();
        let mut models = intent.models.values();
        let model = models.find(|model| lacking.contains(model.name()));
        let Some((model, profile)) = model.and_then(|one| Some((one, one.profiles().first()?)))
        else {
            return Vec::new();
        };
        let parked = state.memory.histories.get(model.name());
        if parked.is_some_and(|history| history.parked) {
            return Vec::new();
        }
        let room = state.observed.nodes.iter().find(|(id, node)| {
            let ready = node
                .replicas
                .values()
                .filter(|status| status.state == ReplicaState::Ready);
            let used: u64 = ready.map(|status| status.spec.profile.memory.0).sum();
            let has = node.facts.memory.map_or(0, |memory| memory.allocatable.0);
            let heard = self.telling.is_open(**id);
            heard && used + profile.memory.0 <= has
        });
        let place = |(node, _): (&_, &_)| Action::Place {
            model: model.name().clone(),
            profile: profile.name.clone(),
            node: *node,
            gpus: Vec::new(),
        };
        room.map(place).into_iter().collect()
    }

    fn idle_by_age(&self, intent: &Intent, now: Duration) -> Vec<Action> {
        let state = &self.state;
        let idle = state.memory.assignments.iter().filter(|(_, given)| {
            let Some(model) = intent.models.get(&given.spec.model) else {
                return false;
            };
            given.draining.is_none()
                && model.scaling().is_on_demand()
                && now.saturating_sub(given.since) >= model.scaling().idle_timeout()
        });
        let drain = |replica: &ReplicaId| Action::Drain {
            replica: *replica,
            why: Why::Idle,
        };
        idle.map(|(replica, _)| drain(replica)).collect()
    }
}

fn place_together(decided: &Step, intent: &Intent) -> Vec<Action> {
    // While the fleet settles nothing is placed at all.
    if decided.reports.is_empty() {
        return Vec::new();
    }
    let inputs = &decided.inputs;
    let (plan, _) = plan_with(&inputs.fleet, &inputs.wanted, &intent.options());
    let waiting = plan.placements.into_iter().filter(|one| one.waits);
    let place = |placement: Placement| Action::Place {
        model: placement.model,
        profile: placement.profile,
        node: placement.node,
        gpus: placement.gpus,
    };
    waiting.map(place).collect()
}
