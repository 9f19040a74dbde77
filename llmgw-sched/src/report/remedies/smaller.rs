//! Less context, or fewer requests at the same time.

use llmgw_core::{
    cluster::catalog::Profile,
    reason::{
        Check, Fit,
        remedy::{Change, Remedy, Resized},
    },
    units::Tokens,
};

use super::super::trial::{Candidate, Trials};

/// The profile whose context has to shrink least.
pub(super) fn context(trials: &Trials<'_, '_>) -> Vec<Remedy> {
    let tried = trials.lacking(MEMORY).into_iter().filter_map(|candidate| {
        let from = candidate.profile.context;
        let steps = from.0.saturating_sub(1) / STEP;
        let (steps, places, profile) = most(trials, candidate, steps, |steps| {
            let parallel = candidate.profile.parallel;
            resized(trials, candidate, Tokens(steps * STEP), parallel)
        })?;
        let to = Tokens(steps * STEP);
        let needs = needs(&profile);
        let change = Change::Context { from, to, needs };
        Some((from.0 - to.0, remedy(change, places)))
    });
    least(tried)
}

/// The profile that has to give up the fewest slots.
pub(super) fn slots(trials: &Trials<'_, '_>) -> Vec<Remedy> {
    let tried = trials.lacking(MEMORY).into_iter().filter_map(|candidate| {
        let from = candidate.profile.parallel;
        let count = |slots: u64| u32::try_from(slots).unwrap_or(u32::MAX);
        let below = u64::from(from.saturating_sub(1));
        let (slots, places, profile) = most(trials, candidate, below, |slots| {
            resized(trials, candidate, candidate.profile.context, count(slots))
        })?;
        let to = count(slots);
        let needs = needs(&profile);
        let change = Change::Slots { from, to, needs };
        Some((u64::from(from - to), remedy(change, places)))
    });
    least(tried)
}

fn resized(
    trials: &Trials<'_, '_>,
    candidate: Candidate<'_>,
    context: Tokens,
    parallel: u32,
) -> Option<Profile> {
    let model = trials.model.name();
    let profile = candidate.profile;
    trials.sizes.resized(model, profile, context, parallel)
}

/// The greatest size from 1 to `below` that fits on the candidate's node, by bisection; one more does not.
fn most(
    trials: &Trials<'_, '_>,
    candidate: Candidate<'_>,
    below: u64,
    profile: impl Fn(u64) -> Option<Profile>,
) -> Option<(u64, Fit, Profile)> {
    let node = trials.node(candidate.index)?;
    let try_with = |size: u64| {
        let profile = profile(size)?;
        Some((trials.with_node(node.clone(), &profile)?, profile))
    };
    let (mut fits, mut most) = (0, below);
    let mut found = None;
    while fits < most {
        let middle = fits + (most - fits).div_ceil(2);
        match try_with(middle) {
            Some((places, profile)) => {
                found = Some((middle, places, profile));
                fits = middle;
            }
            None => most = middle - 1,
        }
    }
    found
}

fn needs(profile: &Profile) -> Resized {
    let gpus = profile.needs.gpus.as_ref();
    Resized {
        memory: profile.memory,
        gpu_memory: gpus.and_then(|gpus| gpus.memory),
    }
}

fn least(tried: impl Iterator<Item = (u64, Remedy)>) -> Vec<Remedy> {
    let best = tried.min_by_key(|(given_up, _)| *given_up);
    best.map(|(_, remedy)| remedy).into_iter().collect()
}

fn remedy(change: Change, places: Fit) -> Remedy {
    Remedy {
        change,
        places: Some(places),
    }
}

const MEMORY: &[Check] = &[Check::GpuMemory, Check::Memory];

/// Engines round the cache up to so many tokens.
const STEP: u64 = 256;
