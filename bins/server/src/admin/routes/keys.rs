//! The part of the table about who may use the models.

use llmgw_core::{
    api::tenancy::{
        CreatedKey, KeyRequest, KeyView, LevelRemoved, LevelRequest, LevelView, Revoked,
    },
    cluster::account::Role::{Admin, Viewer},
};

use super::{Table, tenancy};

impl Table {
    pub(super) fn tenancy(self) -> Self {
        self.get(
            "/api/v1/keys",
            Viewer,
            "API keys, without their secrets",
            tenancy::keys,
        )
        .answers::<Vec<KeyView>>()
        .post(
            "/api/v1/keys",
            Admin,
            "Make an API key",
            tenancy::create_key,
        )
        .takes::<KeyRequest>()
        .answers::<CreatedKey>()
        .delete(
            "/api/v1/keys/{id}",
            Admin,
            "Revoke an API key",
            tenancy::revoke_key,
        )
        .answers::<Revoked>()
        .get(
            "/api/v1/tenants",
            Viewer,
            "Organisations, teams and projects, and what is limited there",
            tenancy::levels,
        )
        .answers::<Vec<LevelView>>()
        .post(
            "/api/v1/tenants",
            Admin,
            "Make an organisation, a team or a project",
            tenancy::create_level,
        )
        .takes::<LevelRequest>()
        .answers::<LevelView>()
        .put(
            "/api/v1/tenants",
            Admin,
            "Limit a level otherwise",
            tenancy::limit_level,
        )
        .takes::<LevelRequest>()
        .answers::<LevelView>()
        .delete(
            "/api/v1/tenants/{*name}",
            Admin,
            "Remove a level that nothing is in",
            tenancy::remove_level,
        )
        .answers::<LevelRemoved>()
    }
}
