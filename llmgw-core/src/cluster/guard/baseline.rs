//! The policy that stands when none was given.

use super::{Action, PiiKind, Policy, Rule, RuleDefinition, RuleKind, Stages, definition};
use crate::id::RuleName;

/// What has a check of its own is flagged where a client sends it: of these forms, next to nothing is found by mistake.
/// An e-mail address, a phone number or a network address stands in every other text, and to flag them would tell nothing.
/// Answers are not looked at, so that streams pass without a wait.
pub(super) fn policy() -> Policy {
    let rules: Vec<Rule> = BASELINE.iter().filter_map(rule).collect();
    let definition = definition::PolicyDefinition {
        rules: BASELINE.iter().map(written).collect(),
        ..Default::default()
    };
    Policy {
        rules,
        levels: Default::default(),
        definition,
        is_baseline: true,
    }
}

fn rule(one: &(&str, PiiKind)) -> Option<Rule> {
    let (name, kind) = one;
    Some(Rule {
        name: name.parse::<RuleName>().ok()?,
        kind: RuleKind::Pii(vec![*kind]),
        stages: Stages::INPUT,
        action: Action::Flag,
        message: None,
        locked: false,
        definition: Box::new(written(one)),
    })
}

fn written((name, kind): &(&str, PiiKind)) -> RuleDefinition {
    RuleDefinition {
        name: (*name).to_owned(),
        keywords: None,
        regex: None,
        pii: Some(vec![*kind]),
        judge: None,
        stages: None,
        action: Action::Flag,
        message: None,
        locked: false,
    }
}

const BASELINE: [(&str, PiiKind); 4] = [
    ("secrets", PiiKind::Secret),
    ("cards", PiiKind::Card),
    ("bank-accounts", PiiKind::Iban),
    ("social-security", PiiKind::Ssn),
];
