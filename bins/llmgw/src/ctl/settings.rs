//! What holds for the whole cluster, and its own document: shown, written, tried, brought back.

mod edit;
mod keys;

use std::path::PathBuf;

use clap::Subcommand;
use llmgw_core::{
    api::settings::{SettingChange, SettingsKept, SettingsTrial, SettingsVersion},
    control::{Control, Settings},
    terminal::one_line,
};
use llmgw_server::settings::{KEYS, Key, KeyOf};
use serde_json::Value;

use super::text::{self, moment};
use crate::{
    document,
    failure::{Cause, Failure},
    grid::grid,
    output::{Format, Shown},
    plan,
};

#[derive(Clone, Debug, Subcommand)]
pub(super) enum SettingsOrder {
    /// What the cluster's document says, or a key of it
    Get {
        /// Such as queue.max_total or models.tiny
        key: Option<String>,
        /// Of this version, not the newest
        #[arg(long)]
        version: Option<u64>,
    },
    /// Have the document say this of a key; it is written anew, without its comments
    Set {
        /// Such as queue.max_total, engines.llamacpp.version or models.tiny
        key: String,
        /// As it stands in a file: `64`, `1m`, `{gpu: h200}`
        value: String,
    },
    /// Have the document say nothing of a key; it is written anew, without its comments
    Unset {
        /// Such as queue.max_total or models.tiny
        key: String,
    },
    /// Take a whole document, in the place of the one before
    Put {
        /// YAML or JSON; `-` for standard input
        file: PathBuf,
        /// Only if this is the newest version still
        #[arg(long, value_name = "VERSION")]
        base: Option<u64>,
    },
    /// Write the document in an editor: the one that VISUAL or EDITOR names
    Edit,
    /// What a document would come to, and what the planner would do; changes nothing
    Try {
        /// YAML or JSON; `-` for standard input
        file: PathBuf,
    },
    /// The versions of the document, the newest first
    History {
        /// Only those before this version
        #[arg(long, value_name = "VERSION")]
        before: Option<u64>,
        /// No more than this many
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// Bring the text of an earlier version back, as a new one; 0 for a document that says nothing
    Rollback {
        /// Which
        version: u64,
    },
    /// Which keys there are, and which may stand in the cluster's document
    Keys,
}

impl SettingsOrder {
    /// Whether it can be asked again and again.
    pub(super) fn only_asks(&self) -> bool {
        match self {
            Self::Get { .. } | Self::History { .. } | Self::Keys => true,
            // It may read standard input.
            Self::Try { .. } => false,
            Self::Set { .. }
            | Self::Unset { .. }
            | Self::Put { .. }
            | Self::Edit
            | Self::Rollback { .. } => false,
        }
    }
}

pub(super) async fn settings(
    control: &Control,
    format: Format,
    order: Option<SettingsOrder>,
) -> Result<Shown, Failure> {
    let settings = &*control.settings;
    match order {
        None => format.show(&settings.settings().await?, text::settings),
        Some(SettingsOrder::Get { key, version }) => {
            let found = settings.document(version).await?;
            match key {
                None => format.show(&found, |found| found.document.clone()),
                Some(key) => {
                    let document = keys::parsed(&found.document)?;
                    let value = keys::get(&document, &key)?;
                    format.show(&value, yaml)
                }
            }
        }
        Some(SettingsOrder::Set { key, value }) => {
            let value = keys::parsed(&value)?;
            change(settings, format, |document| {
                keys::set(document, &key, value)
            })
            .await
        }
        Some(SettingsOrder::Unset { key }) => {
            change(settings, format, |document| keys::unset(document, &key)).await
        }
        Some(SettingsOrder::Put { file, base }) => {
            let document = document::text(&file, &document::SETTINGS)?;
            format.show(&settings.put(document, base).await?, kept)
        }
        Some(SettingsOrder::Edit) => {
            let found = settings.document(None).await?;
            let edited = edit::edit(&found.document)?;
            if edited.text == found.document {
                return Ok(Shown::remark("nothing was changed"));
            }
            match settings.put(edited.text.clone(), Some(found.version)).await {
                Ok(answer) => {
                    edited.forget();
                    format.show(&answer, kept)
                }
                Err(error) => {
                    let place = edited.keep();
                    let failure = Failure::from(error);
                    Err(failure.with_hint(format!(
                        "what you wrote is in {place}: mend it and give it to `llmgw ctl settings put`"
                    )))
                }
            }
        }
        Some(SettingsOrder::Try { file }) => {
            let document = document::text(&file, &document::SETTINGS)?;
            format.show(&settings.try_out(document).await?, tried)
        }
        Some(SettingsOrder::History { before, limit }) => {
            let history = settings.history(before, limit).await?;
            format.list(&history, versions, "the cluster has no document yet")
        }
        Some(SettingsOrder::Rollback { version }) => {
            format.show(&settings.roll_back(version).await?, kept)
        }
        Some(SettingsOrder::Keys) => {
            let keys: Vec<Value> = KEYS.iter().map(key_json).collect();
            format.list(&keys, |_| key_table(), "there are no keys")
        }
    }
}

async fn change(
    settings: &dyn Settings,
    format: Format,
    change: impl FnOnce(&mut Value) -> Result<(), Failure>,
) -> Result<Shown, Failure> {
    let found = settings.document(None).await?;
    let mut document = keys::parsed(&found.document)?;
    change(&mut document)?;
    let text = keys::written(&document)?;
    let answer = settings.put(text, Some(found.version)).await?;
    format.show(&answer, kept)
}

fn kept(kept: &SettingsKept) -> String {
    let SettingsKept {
        version,
        brings_back,
        changes,
    } = kept;
    let mut lines = changed(changes);
    if lines.is_empty() {
        lines = "nothing holds otherwise\n".to_owned();
    }
    let back = brings_back.map_or(String::new(), |back| format!(", which brings back {back}"));
    lines.push_str(&format!("version {version} is in force{back}\n"));
    lines
}

fn tried(trial: &SettingsTrial) -> String {
    let SettingsTrial {
        base,
        changes,
        outcome,
    } = trial;
    if changes.is_empty() {
        return format!("nothing would hold otherwise than with version {base}\n");
    }
    format!("{}\n{}", changed(changes), plan::outcome(outcome))
}

/// A line for each change.
fn changed(changes: &[SettingChange]) -> String {
    let line = |change: &SettingChange| {
        let SettingChange { key, was, is } = change;
        match (was, is) {
            (Some(was), Some(is)) => format!("{key}: {} -> {}\n", short(was), short(is)),
            (None, Some(is)) => format!("{key}: new, {}\n", short(is)),
            (Some(was), None) => format!("{key}: gone, was {}\n", short(was)),
            (None, None) => format!("{key}\n"),
        }
    };
    changes.iter().map(line).collect()
}

/// A value on one line, cut where it gets long: the whole is in `-o json`.
fn short(value: &Value) -> String {
    let text = one_line(&value.to_string());
    match text.char_indices().nth(LONGEST_VALUE) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

fn versions(all: &[SettingsVersion]) -> String {
    let rows = all.iter().map(|one| {
        let back = one
            .brings_back
            .map_or(String::new(), |back| back.to_string());
        vec![
            one.version.to_string(),
            moment(one.at),
            one.by.clone(),
            back,
        ]
    });
    grid(&["VERSION", "AT", "BY", "BRINGS BACK"], &[0, 3], rows)
}

fn key_json(key: &Key) -> Value {
    let Key { path, of, about } = key;
    serde_json::json!({"key": path, "in_document": *of == KeyOf::Cluster, "about": about})
}

fn key_table() -> String {
    let rows = KEYS.iter().map(|key| {
        let place = match key.of {
            KeyOf::Cluster => "document, file",
            KeyOf::Machine => "file",
        };
        vec![key.path.to_owned(), place.to_owned(), key.about.to_owned()]
    });
    grid(&["KEY", "STANDS IN", "SAYS"], &[], rows)
}

fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|error| format!("error: {error}\n"))
}

/// What can't be done with a key.
fn wrong(key: &str, problem: &str) -> Failure {
    Failure::new(Cause::Usage, format!("{key}: {problem}"))
        .with_hint("`llmgw ctl settings keys` lists the keys")
}

const LONGEST_VALUE: usize = 100;
