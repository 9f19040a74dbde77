//! Stage 4, authorise: whether the caller may use the model.

use super::{identify::Caller, refusal::Refusal};
use crate::{cluster::tenancy::Party, error::Code, route::ModelRoute};

/// Whether this caller may use this model: the key, and every level that it is in, must allow it. `GET /v1/models` lists
/// what this allows, so that the list and the calls never differ.
pub(super) fn may_use(caller: &Caller, model: &ModelRoute) -> bool {
    refused_by(caller, model).is_none()
}

/// The same with the reason.
pub(super) fn authorise(caller: &Caller, model: &ModelRoute) -> Result<(), Refusal> {
    match refused_by(caller, model) {
        None => Ok(()),
        Some(party) => {
            let message = format!("{party} may not use the model {}", model.name);
            Err(Refusal::new(Code::ModelNotAllowed, message).with_param("model"))
        }
    }
}

fn refused_by<'c>(caller: &'c Caller, model: &ModelRoute) -> Option<&'c Party> {
    let names = std::iter::once(&model.name).chain(&model.aliases);
    caller.pass.refused_by(names)
}
