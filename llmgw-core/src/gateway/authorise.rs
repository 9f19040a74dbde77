//! Stage 4, authorise: whether the caller may use the model.

use super::identify::Caller;
use crate::route::ModelRoute;

/// Whether this caller may use this model. `GET /v1/models` lists what this allows, so that the list and the
/// calls never differ.
///
/// A key has no list of models yet: what the ring holds may use all.
pub(super) fn may_use(_caller: &Caller, _model: &ModelRoute) -> bool {
    true
}
