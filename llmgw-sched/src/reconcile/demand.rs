//! How many replicas a model should have between its fewest and its most.
//!
//! Load is the calls that its replicas are answering and those that wait for one. It is held against the slots of the
//! replicas (`parallel` of the profile each runs with). Replicas are added once there has been more load than slots for
//! [`Pacing::scale_up_after`](super::Pacing::scale_up_after) while all replicas served, so that a peak adds none and a start is never answered with another. They
//! are taken away after the model's `idle_timeout` of less need, down to the most that was needed in all of that time:
//! the *stabilization window* of Kubernetes' horizontal autoscaler, which also scales to the highest of the window.
//! Less need is counted at seven tenths of the slots, so that what is left has room to spare and the next call does not add
//! the replica again.
//!
//! Of a model on demand the first replica starts with the first call, at once. Loading and calls that are under way
//! count as use.

use std::time::Duration;

use llmgw_core::{api::decision::ScaleReason, cluster::catalog::Model};

use super::{Action, Memory, Observed, scene::Scene};

/// What clients ask of a model, as the gateway tells it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Asked {
    /// Calls that wait for a replica now.
    pub waiting: u64,
    /// Calls that have asked for it while nothing served it, in all.
    pub calls: u64,
    /// When the last of them came.
    pub last: Duration,
}

/// What was done for a model whose number of replicas follows its load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// How many replicas it should have.
    pub target: u32,
    /// When it was last asked for or at work.
    pub used_at: Duration,
    /// Since when calls wait without a break.
    pub waiting_since: Option<Duration>,
    /// Why the target is what it is; absent while it is what it began with.
    pub reason: Option<ScaleReason>,
    /// Since when there is more load than slots.
    above_since: Option<Duration>,
    /// Since when fewer replicas would do, and the most that were needed since.
    below: Option<(Duration, u32)>,
    /// Whether it was asked for when it was last looked at.
    is_asked: bool,
    /// Calls that had asked for it by then.
    asked: u64,
    /// Load and slots when they were last looked at.
    load: u64,
    slots: u64,
}

// === impl Demand ===

impl Demand {
    /// Of a model that has so many replicas, and of which nothing else is known.
    pub(super) fn new(target: u32) -> Self {
        Self {
            target,
            ..Self::default()
        }
    }

    /// Takes in what a model is asked for.
    pub(super) fn observe(
        &mut self,
        model: &Model,
        observed: &Observed,
        memory: &Memory,
        now: Duration,
    ) {
        let mut replicas = 0_u32;
        let mut ready = 0_u32;
        let mut calls = 0_u64;
        let mut slots_each = None;
        let mut used = false;
        for (id, given) in &memory.assignments {
            if given.spec.model != *model.name() || given.draining.is_some() {
                continue;
            }
            replicas += 1;
            ready += u32::from(given.ready_since.is_some());
            calls += observed.outstanding.get(id).copied().unwrap_or(0);
            slots_each.get_or_insert(given.spec.profile.parallel);
            used |= given.used_at > self.used_at || given.ready_since.is_none();
        }
        let asked = observed.asked.get(model.name()).copied();
        let asked = asked.unwrap_or_default();
        self.waiting_since = (asked.waiting > 0).then(|| self.waiting_since.unwrap_or(now));
        used |= calls > 0;
        self.is_asked = asked.waiting > 0 || asked.calls != self.asked;
        self.asked = asked.calls;
        used |= self.is_asked;
        if used {
            self.used_at = now;
        }
        let slots_each = slots_each.or_else(|| model.profiles().first().map(|one| one.parallel));
        let slots_each = u64::from(slots_each.unwrap_or(1).max(1));
        self.load = calls + asked.waiting;
        self.slots = slots_each * u64::from(replicas);

        let is_whole = ready >= self.target && replicas >= self.target;
        let too_much = self.load > slots_each * u64::from(self.target) && is_whole;
        self.above_since = too_much.then(|| self.above_since.unwrap_or(now));

        let needed = self.load.saturating_mul(FILL.1);
        let needed = needed.div_ceil(slots_each.saturating_mul(FILL.0));
        let needed = u32::try_from(needed).unwrap_or(u32::MAX);
        let needed = needed.max(u32::from(used));
        let is_loading = replicas > ready;
        self.below = (needed < self.target && !is_loading).then(|| {
            let (since, most) = self.below.unwrap_or((now, 0));
            (since, most.max(needed))
        });
    }

    /// What the target should be from now, and why; `None` when it is right.
    fn decide(&self, model: &Model, scene: &Scene<'_>) -> Option<(u32, ScaleReason)> {
        let (now, may_stop) = (scene.now, scene.may_move());
        let scaling = model.scaling();
        let current = self.target.clamp(scaling.min(), scaling.max());
        let since = |at: Duration| now.saturating_sub(at).as_secs();
        if current == 0 && self.is_asked {
            let waiting = self.load;
            return Some((1, ScaleReason::Asked { waiting }));
        }
        if let Some(above) = self.above_since
            && now.saturating_sub(above) >= scene.intent.pacing.scale_up_after
            && current < scaling.max()
        {
            let each = (self.slots / u64::from(current.max(1))).max(1);
            let needed = u32::try_from(self.load.div_ceil(each)).unwrap_or(u32::MAX);
            let to = needed.clamp(current.saturating_add(1), scaling.max());
            let why = ScaleReason::Load {
                calls: self.load,
                slots: self.slots,
                seconds: since(above),
            };
            return Some((to, why));
        }
        let (below, most) = self.below?;
        let to = most.max(scaling.min());
        if !may_stop || to >= current || now.saturating_sub(below) < scaling.idle_timeout() {
            return None;
        }
        let seconds = since(below);
        let why = if to == 0 {
            ScaleReason::Idle { seconds }
        } else {
            ScaleReason::LessLoad {
                needed: to,
                seconds,
            }
        };
        Some((to, why))
    }

    /// Takes in that the target is another now.
    pub(super) fn set(&mut self, target: u32, reason: ScaleReason) {
        self.target = target;
        self.reason = Some(reason);
        self.above_since = None;
        self.below = None;
    }
}

/// Sets how many replicas models should have.
pub(super) fn scale(scene: &Scene<'_>) -> Vec<Action> {
    let models = scene.intent.models.values();
    let decided = models.filter_map(|model| {
        let demand = scene.memory.demands.get(model.name())?;
        let (to, why) = demand.decide(model, scene)?;
        Some(Action::Scale {
            model: model.name().clone(),
            from: scene.memory.target(model),
            to,
            why,
        })
    });
    decided.collect()
}

/// Whether the number of a model's replicas follows its load.
pub(super) fn follows_load(model: &Model) -> bool {
    model.scaling().min() < model.scaling().max()
}

/// Seven tenths of the slots are counted when replicas are taken away.
const FILL: (u64, u64) = (7, 10);
