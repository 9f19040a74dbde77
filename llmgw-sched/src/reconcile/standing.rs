//! What a model that nothing serves waits for, from what the loop knows.

use std::time::Duration;

use llmgw_core::{
    cluster::{
        catalog::Model,
        node::Warning,
        replica::{ReplicaState, ReplicaStatus},
        weights::FetchProgress,
    },
    id::ModelName,
    reason::{Report, render},
    route::{Progress, Waiting},
};

use super::{Memory, Observed};

/// What is known of the last attempt to place a model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trial<'t> {
    /// Why it found no place; absent when there was no attempt.
    pub report: Option<&'t Report>,
    /// Whether it would find one if others that run on demand made room.
    pub waits_for_turn: bool,
}

/// What the model waits for, scaled as ordered.
#[must_use]
pub fn waiting(
    model: &Model,
    observed: &Observed,
    memory: &Memory,
    trial: Trial<'_>,
    now: Duration,
) -> Waiting {
    let name = model.name();
    if model.scaling().is_off() {
        return Waiting::Off(format!("{name} is switched off: it is to have no replicas"));
    }
    let history = memory.histories.get(name);
    let last_error = history.and_then(|history| history.last_error.as_deref());
    if let Some(history) = history.filter(|history| history.parked) {
        return Waiting::Parked(format!(
            "{name} failed {} times in a row and is not tried again: {}",
            history.failures,
            last_error.unwrap_or("no reason was given"),
        ));
    }
    if let Some(status) = most_advanced(name, observed, memory) {
        return Waiting::Loading(format!("{name} is {}", doing(status)));
    }
    if memory.serving(name) > 0 {
        return Waiting::Loading(match hindrance(name, observed, memory) {
            Some(hindrance) => format!("{name} is placed, but {hindrance}"),
            None => format!("{name} is placed; its node has not begun yet"),
        });
    }
    if let Some(history) = history.filter(|history| !history.may_try(now)) {
        let wait = history.retry_at.saturating_sub(now).as_secs() + 1;
        return Waiting::Loading(format!(
            "{name} failed to start and is tried again in {wait} s: {}",
            last_error.unwrap_or("no reason was given"),
        ));
    }
    if observed.nodes.is_empty() {
        return Waiting::Loading(format!("{name} waits for a node: none has joined yet"));
    }
    if memory.target(model) == 0 {
        return Waiting::Loading(format!("{name} is not running: a call starts it"));
    }
    if let Some((other, _)) = memory.yielded.get(name) {
        return Waiting::Loading(format!(
            "{name} waits for its turn: it has made room for {other}"
        ));
    }
    if memory.room.values().any(|other| other == name) {
        return Waiting::Loading(format!(
            "{name} waits until what makes room for it has ended"
        ));
    }
    match trial.report {
        Some(report) if report.fits.is_none() && trial.waits_for_turn => Waiting::Loading(format!(
            "{name} waits for room: what has it is ending, or gives way to it in turn"
        )),
        Some(report) if report.fits.is_none() => match &report.pending {
            Some(pending) => Waiting::Loading(format!("{name} waits for {pending}")),
            None => Waiting::Unplaceable(render::headline(report)),
        },
        Some(_) => Waiting::Loading(format!("{name} is being placed")),
        None => Waiting::Loading(format!("{name} is about to be placed")),
    }
}

/// How far the model is on its way to a replica that serves.
#[must_use]
pub fn progress(model: &Model, observed: &Observed, memory: &Memory, now: Duration) -> Progress {
    let name = model.name();
    if let Some(status) = most_advanced(name, observed, memory) {
        let (doing, fetch) = match status.state {
            ReplicaState::Ready => return Progress::default(),
            ReplicaState::Fetching => ("fetching weights", status.fetch.as_ref()),
            state => (state.as_str(), None),
        };
        return Progress {
            doing: Some(doing.to_owned()),
            percent: fetch.and_then(FetchProgress::percent),
            eta: fetch.and_then(|fetch| Some(Duration::from_secs(fetch.eta_seconds?))),
        };
    }
    let history = memory.histories.get(name);
    let waits = history.filter(|history| !history.parked && !history.may_try(now));
    match waits.filter(|_| memory.serving(name) == 0) {
        Some(history) => Progress {
            doing: Some("waiting to be tried again".to_owned()),
            percent: None,
            eta: Some(history.retry_at.saturating_sub(now)),
        },
        None => Progress::default(),
    }
}

/// What a replica is doing, in a few words: `fetching weights: 2.0 GiB of 8.0 GiB (25 %), 12.0 MiB/s, ~8 min left`.
#[must_use]
pub fn doing(status: &ReplicaStatus) -> String {
    match (status.state, &status.fetch) {
        (ReplicaState::Fetching, Some(fetch)) => format!("fetching weights: {fetch}"),
        (state, _) => state.as_str().to_owned(),
    }
}

/// Why a node that was given the model can't do what it should.
fn hindrance(name: &ModelName, observed: &Observed, memory: &Memory) -> Option<String> {
    let given = memory.assignments.values();
    let nodes = given
        .filter(|given| given.spec.model == *name)
        .filter_map(|given| observed.nodes.get(&given.node));
    nodes
        .flat_map(|node| {
            let warnings = node.facts.warnings.iter();
            warnings
                .filter(|warning| warning.code == Warning::CANNOT_FOLLOW)
                .map(|warning| format!("on {}, {}", node.facts.hostname, warning.text))
        })
        .next()
}

fn most_advanced<'o>(
    name: &ModelName,
    observed: &'o Observed,
    memory: &Memory,
) -> Option<&'o ReplicaStatus> {
    memory
        .assignments
        .iter()
        .filter(|(_, given)| given.spec.model == *name && given.draining.is_none())
        .filter_map(|(id, given)| observed.nodes.get(&given.node)?.replicas.get(id))
        .filter(|status| status.state != ReplicaState::Unknown)
        .max_by_key(|status| status.state)
}
