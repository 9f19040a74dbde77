//! The document in memory: it says which policy places, as JSON, and nothing else.

use async_trait::async_trait;
use serde::Deserialize;

use super::{MemoryControl, Origin, State};
use crate::{
    api::{
        settings::{SettingsDocument, SettingsKept, SettingsTrial, SettingsVersion, SettingsView},
        whatif::Outcome,
    },
    clock::Timestamp,
    cluster::settings::{AboutSettings, SETTINGS_PAGE, StoredSettings},
    control::{
        ControlError, Settings, check_base, check_document, settings_changes, settings_document,
        settings_version, unknown_version,
    },
    error::Code,
    testing::control::orders::settings_engines,
};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    placement: Placement,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Placement {
    policy: Option<String>,
}

#[async_trait]
impl Settings for MemoryControl {
    async fn settings(&self) -> Result<SettingsView, ControlError> {
        let state = self.answering()?;
        view(&state, newest(&state).as_ref())
    }

    async fn document(&self, version: Option<u64>) -> Result<SettingsDocument, ControlError> {
        let state = self.answering()?;
        let found = match version {
            None => newest(&state),
            Some(0) => None,
            Some(version) => Some(of_version(&state, version)?),
        };
        Ok(settings_document(found))
    }

    async fn history(
        &self,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<SettingsVersion>, ControlError> {
        let state = self.answering()?;
        let below = state.settings.iter().rev();
        let below = below.filter(|one| before.is_none_or(|before| one.version < before));
        let limit = usize::try_from(limit.min(SETTINGS_PAGE)).unwrap_or(usize::MAX);
        let shown = below.map(|one| settings_version((one.version, one.about.clone())));
        Ok(shown.take(limit).collect())
    }

    async fn put(&self, document: String, base: Option<u64>) -> Result<SettingsKept, ControlError> {
        let mut state = self.answering()?;
        check_base(base, newest(&state).map_or(0, |one| one.version))?;
        take(&mut state, self.actor(), document, None)
    }

    async fn roll_back(&self, version: u64) -> Result<SettingsKept, ControlError> {
        let mut state = self.answering()?;
        let text = match version {
            0 => String::new(),
            _ => of_version(&state, version)?.text,
        };
        take(&mut state, self.actor(), text, Some(version))
    }

    async fn try_out(&self, document: String) -> Result<SettingsTrial, ControlError> {
        let state = self.answering()?;
        let now = newest(&state);
        let tried = next(&state, self.actor(), document, None);
        Ok(SettingsTrial {
            base: now.as_ref().map_or(0, |one| one.version),
            changes: settings_changes(&view(&state, now.as_ref())?, &view(&state, Some(&tried))?),
            outcome: Outcome::default(),
        })
    }
}

fn newest(state: &State) -> Option<StoredSettings> {
    state.settings.last().cloned()
}

fn of_version(state: &State, version: u64) -> Result<StoredSettings, ControlError> {
    let found = state.settings.iter().find(|one| one.version == version);
    found.cloned().ok_or_else(|| unknown_version(version))
}

fn next(state: &State, by: &str, text: String, brings_back: Option<u64>) -> StoredSettings {
    StoredSettings {
        version: newest(state).map_or(1, |one| one.version + 1),
        text,
        about: AboutSettings {
            by: by.to_owned(),
            at: Timestamp(0),
            brings_back,
        },
    }
}

fn take(
    state: &mut State,
    by: &str,
    text: String,
    brings_back: Option<u64>,
) -> Result<SettingsKept, ControlError> {
    let now = newest(state);
    let before = view(state, now.as_ref())?;
    if now.as_ref().map_or("", |one| &one.text) == text {
        return Ok(SettingsKept {
            version: before.version,
            brings_back: None,
            changes: Vec::new(),
        });
    }
    let taken = next(state, by, text, brings_back);
    let kept = SettingsKept {
        version: taken.version,
        brings_back,
        changes: settings_changes(&before, &view(state, Some(&taken))?),
    };
    let action = match brings_back {
        None => "settings.put",
        Some(_) => "settings.rollback",
    };
    state.note(by, action, &taken.subject());
    state.settings.push(taken);
    Ok(kept)
}

fn view(state: &State, stored: Option<&StoredSettings>) -> Result<SettingsView, ControlError> {
    let text = stored.map_or("", |one| &one.text);
    check_document(text)?;
    let wrong =
        |problem: String| ControlError::new(Code::InvalidRequest, format!("document: {problem}"));
    let Document { placement } = match text {
        "" => Document::default(),
        text => serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?,
    };
    let policy = placement.policy.unwrap_or_else(|| "scarcity".to_owned());
    if !["scarcity", "spread"].contains(&policy.as_str()) {
        return Err(wrong(format!("placement.policy: there is no {policy}")));
    }
    let declared = state.models.values();
    let declared = declared.filter(|kept| kept.origin == Origin::Declared);
    Ok(SettingsView {
        models: declared.map(|kept| kept.model.clone().into()).collect(),
        engines: settings_engines(),
        pools: state.pools.by_name().clone(),
        placement_policy: policy,
        scaling: None,
        queue: None,
        evict_weights: false,
        mirror: None,
        hub: None,
        guard: None,
        version: stored.map_or(0, |one| one.version),
        problem: None,
        lease_ttl_seconds: 10,
        settle_seconds: 0,
    })
}
