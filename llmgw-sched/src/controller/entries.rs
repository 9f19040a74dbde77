//! The models that there are when a controller begins.

use std::collections::BTreeMap;

use llmgw_core::{
    clock::Timestamp,
    cluster::catalog::{Model, fallback_faults},
    id::ModelName,
    store::StoredModel,
};

use super::ControllerError;
use crate::conductor::snapshot::Entry;

/// Declared and added models together. A declared model wins over an added one that claims a name of its. An added
/// model whose fallback is no longer declared is run all the same.
pub(super) fn entries(
    declared: Vec<Model>,
    added: Vec<StoredModel>,
    now: Timestamp,
) -> Result<BTreeMap<ModelName, Entry>, ControllerError> {
    let mut entries = declared_entries(declared, now)?;
    for StoredModel { model, added_at } in added {
        let clash = entries.values().find(|other| {
            std::iter::once(model.name())
                .chain(model.aliases())
                .any(|name| other.model.answers_to(name.as_str()))
        });
        match clash {
            None => {
                entries.insert(model.name().clone(), Entry::added(model, added_at));
            }
            Some(other) => tracing::warn!(
                model = %model.name(),
                declared = %other.model.name(),
                "an added model is not run: a declared one has its name",
            ),
        }
    }
    let all: Vec<&Model> = entries.values().map(|entry| &entry.model).collect();
    for fault in fallback_faults(&all) {
        let name = all.get(fault.at).map(|model| model.name().as_str());
        tracing::warn!(model = name, problem = %fault.error, "the fallbacks of a model are right no more");
    }
    Ok(entries)
}

/// Declared models alone.
pub(super) fn declared_entries(
    declared: Vec<Model>,
    now: Timestamp,
) -> Result<BTreeMap<ModelName, Entry>, ControllerError> {
    let mut entries: BTreeMap<ModelName, Entry> = BTreeMap::new();
    for model in declared {
        if let Some(problem) = model.cannot_start() {
            return Err(ControllerError::CannotStart {
                name: model.name().to_string(),
                problem,
            });
        }
        let names = std::iter::once(model.name()).chain(model.aliases());
        for name in names {
            if entries
                .values()
                .any(|other| other.model.answers_to(name.as_str()))
            {
                return Err(ControllerError::DeclaredTwice {
                    name: name.to_string(),
                });
            }
        }
        entries.insert(model.name().clone(), Entry::declared(model, now));
    }
    let all: Vec<&Model> = entries.values().map(|entry| &entry.model).collect();
    if let Some(fault) = fallback_faults(&all).into_iter().next() {
        let name = all.get(fault.at).map(|model| model.name().to_string());
        return Err(ControllerError::Fallbacks {
            name: name.unwrap_or_default(),
            problem: fault.error,
        });
    }
    Ok(entries)
}
