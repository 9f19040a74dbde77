//! Decisions: how they are read.

use llmgw_core::{api::decision::Decision, control::ControlError, id::ModelName};

use super::roles::known;
use crate::conductor::snapshot::Snapshot;

/// What is kept of a model or of all.
pub(super) fn read(
    snapshot: &Snapshot,
    model: Option<&ModelName>,
    after: u64,
    limit: u32,
) -> Result<Vec<Decision>, ControlError> {
    let journal = &snapshot.journal;
    let own = match model {
        // A model that was removed has no name but in its decisions.
        Some(name) if journal.mentions(name) => Some(name),
        Some(name) => Some(known(snapshot, name)?.model.name()),
        None => None,
    };
    let limit = usize::try_from(limit.min(MAX_PAGE)).unwrap_or(usize::MAX);
    Ok(journal.decisions(own, after, limit))
}

const MAX_PAGE: u32 = 1_000;
