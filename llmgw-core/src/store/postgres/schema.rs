//! How the schema came to be: one migration after the other.

use crate::store::rows::MigrationText;

pub(super) const MIGRATIONS: &[MigrationText] = &[
    (
        1,
        "initial",
        include_str!("../../../migrations/postgres/0001_initial.sql"),
    ),
    (
        2,
        "audit",
        include_str!("../../../migrations/postgres/0002_audit.sql"),
    ),
    (
        3,
        "orders",
        include_str!("../../../migrations/postgres/0003_orders.sql"),
    ),
    (
        4,
        "tenancy",
        include_str!("../../../migrations/postgres/0004_tenancy.sql"),
    ),
    (
        5,
        "quotas",
        include_str!("../../../migrations/postgres/0005_quotas.sql"),
    ),
    (
        6,
        "costs",
        include_str!("../../../migrations/postgres/0006_costs.sql"),
    ),
    (
        7,
        "settings",
        include_str!("../../../migrations/postgres/0007_settings.sql"),
    ),
    (
        8,
        "guard",
        include_str!("../../../migrations/postgres/0008_guard.sql"),
    ),
];
