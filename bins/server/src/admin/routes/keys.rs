//! The part of the table about who may use the models, and what that costs.

use llmgw_core::{
    api::{
        tenancy::{
            CreatedKey, KeyLimits, KeyRequest, KeyView, LevelRemoved, LevelRequest, LevelView,
            Revoked,
        },
        usage::{PriceRequest, UsageView},
    },
    cluster::{
        account::Role::{Admin, Viewer},
        tenancy::Price,
    },
};

use super::{Query, Table, fleet, tenancy};

const USAGE: Query = &[
    (
        "by",
        false,
        r#"{"enum": ["model", "key", "level,model,day"], "description": "model, key, level, organisation, team, hour, day, month, with commas between them"}"#,
    ),
    (
        "since",
        false,
        r#"{"enum": ["1h", "24h", "30days"], "description": "a length of time"}"#,
    ),
];

impl Table {
    pub(super) fn tenancy(self) -> Self {
        self.get(
            "/api/v1/usage",
            Viewer,
            "Calls, tokens and what they cost",
            fleet::usage,
        )
        .asks(USAGE)
        .answers::<Vec<UsageView>>()
        .get(
            "/api/v1/prices",
            Viewer,
            "What models cost, and have cost",
            tenancy::prices,
        )
        .answers::<Vec<Price>>()
        .post(
            "/api/v1/prices",
            Admin,
            "Have a model cost so much from now on",
            tenancy::set_price,
        )
        .takes::<PriceRequest>()
        .answers::<Price>()
        .get(
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
        .put(
            "/api/v1/keys/{id}",
            Admin,
            "Limit an API key otherwise",
            tenancy::limit_key,
        )
        .takes::<KeyLimits>()
        .answers::<KeyView>()
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
