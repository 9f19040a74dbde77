//! Decisions: how the loop writes them down.

use std::collections::BTreeMap;

use llmgw_core::{
    api::decision::{Leaving, Outcome},
    clock::Timestamp,
    id::{ModelName, ReplicaId},
    reason::Report,
};

use super::snapshot::Snapshot;
use crate::{
    journal::{Journal, Made},
    planner::policy::PolicyName,
    reconcile::{Action, Inputs, Why},
};

/// When and from what a step decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'s> {
    pub(super) at: Timestamp,
    pub(super) epoch: u64,
    pub(super) inputs: &'s Inputs,
    pub(super) policy: PolicyName,
}

/// What to write down of an action that is about to be carried out. `None` for a placement, whose replica has no id
/// before it is carried out, and for a replica that is not known any more.
pub(super) fn what(action: &Action, state: &Snapshot) -> Option<(ModelName, Outcome)> {
    let model = |replica: &ReplicaId| {
        let given = state.memory.assignments.get(replica)?;
        Some(given.spec.model.clone())
    };
    match action {
        Action::Place { .. } => None,
        Action::Adopt { spec, node } => {
            let adopted = Outcome::Adopted {
                replica: spec.id,
                node: *node,
                hostname: state.hostname(*node),
            };
            Some((spec.model.clone(), adopted))
        }
        Action::Drain { replica, why } => {
            let (replica, why) = (*replica, leaving(why));
            Some((model(&replica)?, Outcome::Draining { replica, why }))
        }
        Action::Stop { replica, why } => {
            let (replica, why) = (*replica, leaving(why));
            Some((model(&replica)?, Outcome::Stopped { replica, why }))
        }
        Action::Forget { replica, why } => {
            let (replica, why) = (*replica, leaving(why));
            Some((model(&replica)?, Outcome::LetGo { replica, why }))
        }
        Action::Fail { replica, error, .. } => {
            let (replica, error) = (*replica, error.clone());
            Some((model(&replica)?, Outcome::Failed { replica, error }))
        }
        Action::Absolve { model } => Some((model.clone(), Outcome::Absolved)),
        Action::Keep { replica } => {
            let replica = *replica;
            Some((model(&replica)?, Outcome::Kept { replica }))
        }
        Action::Scale {
            model,
            from,
            to,
            why,
        } => {
            let (from, to, why) = (*from, *to, why.clone());
            Some((model.clone(), Outcome::Scaled { from, to, why }))
        }
        Action::Park { model, parked } => {
            let (failures, error) = (parked.failures, parked.error.clone());
            Some((model.clone(), Outcome::Parked { failures, error }))
        }
        Action::Unpark { model } => Some((model.clone(), Outcome::Unparked)),
        Action::BeginRoll { model, number } => {
            Some((model.clone(), Outcome::RollBegun { roll: *number }))
        }
        Action::EndRoll {
            model,
            number,
            ended,
        } => {
            let (roll, ended) = (*number, ended.clone());
            Some((model.clone(), Outcome::RollEnded { roll, ended }))
        }
        // About the whole fleet, or told before.
        Action::Freeze { .. } | Action::Thaw | Action::Recall { .. } | Action::Warn { .. } => None,
    }
}

/// Writes down what a step did, and which models it could not place. One that it could not place before for the same
/// reasons is counted.
pub(super) fn write_down(
    journal: &mut Journal,
    source: &Source<'_>,
    mut outcomes: Vec<(ModelName, Outcome)>,
    reports: &BTreeMap<ModelName, Report>,
) {
    let Source {
        at,
        epoch,
        inputs,
        policy,
    } = *source;
    for (model, report) in reports.iter().filter(|(_, report)| report.fits.is_none()) {
        // Something that was done for the model in this step comes in between.
        let done = outcomes.iter().any(|(other, _)| other == model);
        if done || !journal.repeat(report, epoch, at) {
            let report = Box::new(report.clone());
            outcomes.push((model.clone(), Outcome::NotPlaced { report }));
        }
    }
    if outcomes.is_empty() {
        return;
    }
    let made = Made {
        at,
        epoch,
        inputs: inputs.fingerprint(),
        policy: policy.as_str().to_owned(),
    };
    for (model, what) in outcomes {
        journal.note(&made, model, what);
    }
}

fn leaving(why: &Why) -> Leaving {
    match why {
        Why::ModelRemoved => Leaving::ModelRemoved,
        Why::Surplus => Leaving::Surplus,
        Why::SwitchedOff => Leaving::SwitchedOff,
        Why::Idle => Leaving::Idle,
        Why::LessLoad => Leaving::LessLoad,
        Why::Moved => Leaving::Moved,
        Why::Rolled => Leaving::Rolled,
        Why::MovedByForce => Leaving::MovedByForce,
        Why::RolledByForce => Leaving::RolledByForce,
        Why::BackedOut => Leaving::BackedOut,
        Why::RoomFor(model) => Leaving::RoomFor(model.clone()),
        Why::NodeLost => Leaving::NodeLost,
        Why::Vanished => Leaving::Vanished,
        Why::AgentEnded => Leaving::AgentEnded,
    }
}
