//! What a catalog must refuse, and what it answers: the same for every implementation.

use super::{ControlError, forced};
use crate::{
    api::orders::{RollRequest, ScaleRequest},
    cluster::{
        catalog::{DefinitionError, Model, ModelDefinition, check_fallbacks},
        pool::Pools,
        scaling::{Scaling, ScalingDefinition},
    },
    error::Code,
    id::ModelName,
    units::Span,
};

/// Checks a definition as [`Catalog::add`](super::Catalog::add) must: alone, then against the models there are.
///
/// # Errors
/// What `add` must answer.
pub fn check_addition<'a>(
    definition: ModelDefinition,
    existing: impl IntoIterator<Item = &'a Model>,
    pools: &Pools,
) -> Result<Model, ControlError> {
    let model = Model::try_from(definition)?;
    if let Some(error) = model.cannot_start() {
        return Err(error.into());
    }
    check_pools(&model, pools)?;
    let existing: Vec<&Model> = existing.into_iter().collect();
    for other in &existing {
        let names = std::iter::once(model.name()).chain(model.aliases());
        for name in names {
            if other.answers_to(name.as_str()) {
                let what = if other.name() == name {
                    "a model".to_owned()
                } else {
                    format!("an alias of {}", other.name())
                };
                let hint = "choose another name, or replace that model: `llmgw ctl add --replace`, PUT models/{name}";
                return Err(
                    ControlError::new(Code::Conflict, format!("{name} is already {what}"))
                        .with_hint(hint),
                );
            }
        }
    }
    check_fallbacks(&model, existing)?;
    Ok(model)
}

/// Checks a definition as [`Catalog::replace`](super::Catalog::replace) must, of a model that is there and was added.
///
/// # Errors
/// What `replace` must answer.
pub fn check_replacement<'a>(
    name: &ModelName,
    definition: ModelDefinition,
    existing: impl IntoIterator<Item = &'a Model>,
    pools: &Pools,
) -> Result<Model, ControlError> {
    if definition.name != name.as_str() {
        let short: String = definition.name.chars().take(128).collect();
        let message = format!("name: {short:?} is not {name}, which is to be replaced");
        return Err(ControlError::new(Code::InvalidRequest, message)
            .with_hint("a model keeps its name: add another, and remove this one"));
    }
    let others = existing.into_iter().filter(|other| other.name() != name);
    check_addition(definition, others, pools)
}

/// Refuses a model one of whose profiles asks for a pool that there is not.
///
/// # Errors
/// Which profile asks for it, and which pools there are.
pub fn check_pools(model: &Model, pools: &Pools) -> Result<(), DefinitionError> {
    for (index, profile) in model.profiles().iter().enumerate() {
        if let Some(pool) = &profile.needs.pool {
            pools.require(pool, &format!("profiles[{index}].pool"))?;
        }
    }
    Ok(())
}

/// Refuses to remove a model that others fall back to, as [`Catalog::remove`](super::Catalog::remove) must.
///
/// # Errors
/// What `remove` must answer.
pub fn check_removal<'a>(
    name: &ModelName,
    existing: impl IntoIterator<Item = &'a Model>,
) -> Result<(), ControlError> {
    let falls_back = |model: &&Model| model.fallbacks().contains(name);
    let users = existing.into_iter().filter(falls_back);
    let users: Vec<&str> = users.map(|model| model.name().as_str()).collect();
    if users.is_empty() {
        return Ok(());
    }
    let verb = if users.len() == 1 { "falls" } else { "fall" };
    Err(ControlError::new(
        Code::Conflict,
        format!("{} {verb} back to {name}", users.join(", ")),
    )
    .with_hint("remove those first"))
}

/// Refuses to scale, and with the same words to remove, what is declared.
#[must_use]
pub fn is_declared(name: &ModelName) -> ControlError {
    ControlError::new(
        Code::Conflict,
        format!("{name} is declared in the settings: a file, a flag or the cluster's document"),
    )
    .with_hint(
        "change it there: `llmgw ctl settings get` shows the document; the starter model runs where no file and no flag names one",
    )
}

/// What is in force for a model after a request, as [`Catalog::scale`](super::Catalog::scale) must check it.
///
/// # Errors
/// What `scale` must answer.
pub fn check_scaling(request: ScaleRequest, before: Scaling) -> Result<Scaling, ControlError> {
    let ScaleRequest {
        min,
        max,
        idle_timeout,
    } = request;
    // What is not said about numbers stays only when nothing is.
    let (min, max) = match (min, max) {
        (None, None) if idle_timeout.is_none() => {
            return Err(ControlError::new(
                Code::InvalidRequest,
                "min: neither min nor max nor idle_timeout is given",
            )
            .with_hint("say how many replicas should run at least, such as {\"min\": 2}"));
        }
        (None, None) => (Some(before.min()), Some(before.max())),
        given => given,
    };
    let definition = ScalingDefinition {
        replicas: None,
        min,
        max,
        idle_timeout: idle_timeout.or_else(|| Some(Span(before.idle_timeout()))),
    };
    definition.checked().map_err(|mut error| {
        error.field = error.field.replace("_replicas", "");
        error.problem = error.problem.replace("_replicas", "");
        error.hint = error.hint.map(|hint| hint.replace("_replicas", ""));
        error.into()
    })
}

/// No replica of the model is stale.
#[must_use]
pub fn nothing_to_roll(name: &ModelName) -> ControlError {
    ControlError::new(Code::Conflict, format!("no replica of {name} is stale"))
        .with_hint("there is nothing to roll: all run as the model is defined")
}

/// What a roll is about, as it stands in the audit log.
#[must_use]
pub fn roll_subject(model: &ModelName, roll: RollRequest) -> String {
    forced(model.as_str(), roll.force)
}
