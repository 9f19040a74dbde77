//! Versions of the settings, and what can be wrong with them.

use llmgw_core::cluster::settings::{AboutSettings, StoredSettings};

use super::{BrokenStore, Bug};

impl BrokenStore {
    pub(super) fn settings_of(&self, version: Option<u64>) -> Option<StoredSettings> {
        let data = self.data();
        let mut all = data.settings.values();
        let found = match version {
            Some(version) => data.settings.get(&version),
            None if self.has(Bug::OldestSettingsAreNewest) => all.next(),
            None => all.next_back(),
        };
        found.cloned()
    }

    pub(super) fn history(&self, before: Option<u64>, limit: u32) -> Vec<(u64, AboutSettings)> {
        let end = before.unwrap_or(u64::MAX);
        let end = end.saturating_add(u64::from(self.has(Bug::HistoryBeginsWithBefore)));
        let data = self.data();
        let below = data.settings.range(..end);
        let mut found: Vec<_> = below.map(|(at, one)| (*at, one.about.clone())).collect();
        if !self.has(Bug::HistoryIsForward) {
            found.reverse();
        }
        found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        found
    }
}
