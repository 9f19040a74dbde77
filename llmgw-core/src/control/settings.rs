//! What holds for the whole: what files and command lines say, and over it the cluster's own document.

use std::{collections::BTreeMap, fmt};

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;

use super::ControlError;
use crate::{
    api::settings::{
        SettingChange, SettingsDocument, SettingsKept, SettingsTrial, SettingsVersion, SettingsView,
    },
    cluster::settings::{AboutSettings, LONGEST_SETTINGS, StoredSettings},
    error::Code,
};

/// What holds for the whole. A control plane is told by its file and its command line; over them stands one document of the
/// cluster's own, of which every version is kept.
///
/// # Contract
/// * A document that was taken is in force when it is answered, and survives a restart.
/// * A document that is refused changes nothing.
#[async_trait]
pub trait Settings: fmt::Debug + Send + Sync + 'static {
    /// What is in force.
    async fn settings(&self) -> Result<SettingsView, ControlError>;

    /// The newest version of the document, or this one; without any, one that says nothing, of version 0.
    ///
    /// MUST refuse a version that there is not ([`Code::NotFound`]); 0 is there always.
    async fn document(&self, version: Option<u64>) -> Result<SettingsDocument, ControlError>;

    /// Versions below `before`, or all, the newest first: at most `limit`, and never more than 1,000.
    async fn history(
        &self,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<SettingsVersion>, ControlError>;

    /// Takes a document in the place of the one before. One that is the same text makes no new version.
    ///
    /// MUST refuse one that can't be right, with the key ([`Code::InvalidRequest`]), one that contradicts what was added
    /// ([`Code::Conflict`]), and another `base` than the newest version ([`Code::Conflict`]).
    async fn put(&self, document: String, base: Option<u64>) -> Result<SettingsKept, ControlError>;

    /// Takes the text of an earlier version again, as a new one; of version 0, one that says nothing.
    ///
    /// MUST refuse what [`put`](Self::put) refuses, and a version that there is not ([`Code::NotFound`]).
    async fn roll_back(&self, version: u64) -> Result<SettingsKept, ControlError>;

    /// What a document would come to. Asks, and changes nothing: it is no order, and leaves no entry in the audit log.
    ///
    /// MUST refuse what [`put`](Self::put) refuses.
    async fn try_out(&self, document: String) -> Result<SettingsTrial, ControlError>;
}

/// Checks what every document must be, whatever it says.
///
/// # Errors
/// What [`Settings::put`] must answer.
pub fn check_document(document: &str) -> Result<(), ControlError> {
    let wrong = |problem: &str| {
        let message = format!("document: {problem}");
        Err(ControlError::new(Code::InvalidRequest, message))
    };
    if document.len() > LONGEST_SETTINGS {
        return wrong("it is longer than 1 MiB");
    }
    if document.contains('\0') {
        return wrong("it has a NUL character");
    }
    Ok(())
}

/// Checks that a document was made from the newest version.
///
/// # Errors
/// What [`Settings::put`] must answer.
pub fn check_base(base: Option<u64>, newest: u64) -> Result<(), ControlError> {
    match base {
        Some(base) if base != newest => {
            let message =
                format!("base: the settings are at version {newest}, and not at {base} any more");
            Err(ControlError::new(Code::Conflict, message).with_hint(
                "look at what has changed with `llmgw ctl settings get`, and make your change again",
            ))
        }
        _ => Ok(()),
    }
}

/// There is no such version.
#[must_use]
pub fn unknown_version(version: u64) -> ControlError {
    let message = format!("there is no version {version} of the settings");
    ControlError::new(Code::NotFound, message)
        .with_hint("`llmgw ctl settings history` lists those there are")
}

/// A version as it is shown, or that there is none.
#[must_use]
pub fn settings_document(stored: Option<StoredSettings>) -> SettingsDocument {
    match stored {
        None => SettingsDocument {
            version: 0,
            document: String::new(),
            by: None,
            at: None,
            brings_back: None,
        },
        Some(StoredSettings {
            version,
            text,
            about,
        }) => SettingsDocument {
            version,
            document: text,
            by: Some(about.by),
            at: Some(about.at),
            brings_back: about.brings_back,
        },
    }
}

/// A version as it is listed.
#[must_use]
pub fn settings_version((version, about): (u64, AboutSettings)) -> SettingsVersion {
    let AboutSettings {
        by,
        at,
        brings_back,
    } = about;
    SettingsVersion {
        version,
        by,
        at,
        brings_back,
    }
}

/// What holds otherwise after than before, by key.
#[must_use]
pub fn settings_changes(before: &SettingsView, after: &SettingsView) -> Vec<SettingChange> {
    let (mut before, mut after) = (by_key(before), by_key(after));
    let keys: Vec<String> = before.keys().chain(after.keys()).cloned().collect();
    let mut changes = BTreeMap::new();
    for key in keys {
        let (was, is) = (before.remove(&key), after.remove(&key));
        if was != is {
            changes
                .entry(key.clone())
                .or_insert(SettingChange { key, was, is });
        }
    }
    changes.into_values().collect()
}

/// Each setting by its key, as it stands in a document.
fn by_key(view: &SettingsView) -> BTreeMap<String, Value> {
    let SettingsView {
        models,
        engines,
        pools,
        placement_policy,
        scaling,
        queue,
        evict_weights,
        mirror,
        hub,
        guard,
        // Of the control plane, not of what holds.
        version: _,
        problem: _,
        lease_ttl_seconds: _,
        settle_seconds: _,
    } = view;
    let mut all = BTreeMap::new();
    let mut put = |key: String, value: Value| {
        if !value.is_null() {
            all.insert(key, value);
        }
    };
    for model in models {
        put(format!("models.{}", model.name), json(model));
    }
    for engine in engines {
        put(format!("engines.{}", engine.name), json(engine));
    }
    for (name, labels) in pools {
        put(format!("pools.{name}"), json(labels));
    }
    put("placement.policy".to_owned(), json(placement_policy));
    put("guard".to_owned(), json(guard));
    for (part, value) in [("scaling", json(scaling)), ("queue", json(queue))] {
        if let Value::Object(fields) = value {
            for (field, value) in fields {
                put(format!("{part}.{field}"), value);
            }
        }
    }
    put("weights.evict".to_owned(), json(evict_weights));
    put("weights.mirror".to_owned(), json(mirror));
    put("weights.hub".to_owned(), json(hub));
    all
}

/// These types have no maps with keys that are no texts, and nothing else can fail.
fn json<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}
