//! The part of the table about the guard.

use llmgw_core::{
    api::guard::{GuardTrial, GuardTry, GuardView},
    cluster::{account::Role::Viewer, guard::GuardedCall},
};

use super::{LIMIT, Query, Table, guard};

const LEVEL: Query = &[(
    "level",
    false,
    r##"{"$ref": "#/components/schemas/LevelPath"}"##,
)];
const PAGE: Query = &[
    (
        "since",
        false,
        r#"{"enum": ["1h", "24h"], "description": "a length of time; 24h when absent"}"#,
    ),
    ("limit", false, LIMIT),
];

impl Table {
    pub(super) fn guard(self) -> Self {
        self.get(
            "/api/v1/guard",
            Viewer,
            "The rules that prompts and answers are checked by, for a level",
            guard::rules,
        )
        .asks(LEVEL)
        .answers::<GuardView>()
        .post(
            "/api/v1/guard/try",
            Viewer,
            "What they would find in a text; it is kept nowhere",
            guard::try_text,
        )
        .takes::<GuardTry>()
        .answers::<GuardTrial>()
        .get(
            "/api/v1/guard/decisions",
            Viewer,
            "The calls that rules matched, and what was done; nothing of what they said",
            guard::decisions,
        )
        .asks(PAGE)
        .answers::<Vec<GuardedCall>>()
    }
}
