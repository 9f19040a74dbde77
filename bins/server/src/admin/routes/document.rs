//! The part of the table about what holds for the whole.

use llmgw_core::{
    api::settings::{
        RollbackRequest, SettingsDocument, SettingsKept, SettingsRequest, SettingsTrial,
        SettingsVersion, SettingsView, TryRequest,
    },
    cluster::account::Role::{Admin, Operator, Viewer},
};

use super::{LIMIT, NUMBER, Query, Table, settings};

const PAGE: Query = &[("before", false, NUMBER), ("limit", false, LIMIT)];

impl Table {
    pub(super) fn settings(self) -> Self {
        self.get(
            "/api/v1/settings",
            Viewer,
            "What holds: what the file and the command line say, and over it the cluster's document",
            settings::settings,
        )
        .answers::<SettingsView>()
        .put(
            "/api/v1/settings",
            Admin,
            "Take a document in the place of the one before; it is in force at once",
            settings::put,
        )
        .takes::<SettingsRequest>()
        .answers::<SettingsKept>()
        .get(
            "/api/v1/settings/document",
            Admin,
            "The cluster's document, as it was written",
            settings::document,
        )
        .answers::<SettingsDocument>()
        .get(
            "/api/v1/settings/history",
            Viewer,
            "The versions of the document, the newest first",
            settings::history,
        )
        .asks(PAGE)
        .answers::<Vec<SettingsVersion>>()
        .get(
            "/api/v1/settings/history/{version}",
            Admin,
            "A version of the document, as it was written",
            settings::version,
        )
        .answers::<SettingsDocument>()
        .post(
            "/api/v1/settings/rollback",
            Admin,
            "Bring the text of an earlier version back, as a new one",
            settings::roll_back,
        )
        .takes::<RollbackRequest>()
        .answers::<SettingsKept>()
        .post(
            "/api/v1/settings/try",
            Operator,
            "What a document would come to; changes nothing",
            settings::try_out,
        )
        .takes::<TryRequest>()
        .answers::<SettingsTrial>()
    }
}
