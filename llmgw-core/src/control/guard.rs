//! The guard: what it looks for, what it would find, what it did.

use std::{fmt, time::Duration};

use async_trait::async_trait;

use super::ControlError;
use crate::{
    api::guard::{GuardTrial, GuardTry, GuardView},
    cluster::{guard::GuardedCall, tenancy::LevelPath},
};
#[cfg(feature = "guard")]
use crate::{
    api::guard::{HeldRule, MatchedRule},
    error::Code,
    guard::Rules,
};

/// The guard: what it looks for, what it would find, what it did.
#[async_trait]
pub trait Guarding: fmt::Debug + Send + Sync + 'static {
    /// The rules that hold for a level now, whether there is such a level or not.
    async fn rules(&self, level: &LevelPath) -> Result<GuardView, ControlError>;

    /// What would be found in a text, and done about it; models are not asked. The text is kept nowhere, nor is what was
    /// found.
    ///
    /// MUST refuse a text of more than 32 KiB ([`Code::InvalidRequest`](crate::error::Code::InvalidRequest)).
    async fn try_text(&self, request: GuardTry) -> Result<GuardTrial, ControlError>;

    /// The calls of the last `since` that rules matched, the newest first, at most `limit` and never more than 1,000. Shows
    /// what is in the store: a call shows up within a second after it is over.
    async fn guarded(&self, since: Duration, limit: u32) -> Result<Vec<GuardedCall>, ControlError>;
}

/// The rules that hold for a level, as [`Guarding::rules`] must show them.
#[cfg(feature = "guard")]
#[must_use]
pub fn guard_view(rules: &Rules, level: &LevelPath) -> GuardView {
    let held = rules.policy().of(level);
    GuardView {
        level: level.clone(),
        baseline: rules.policy().is_baseline(),
        rules: held
            .map(|held| HeldRule {
                by: held.by,
                rule: (*held.rule.definition).clone(),
            })
            .collect(),
    }
}

/// What is found in a text, as [`Guarding::try_text`] must show it.
///
/// # Errors
/// What `try_text` must answer.
#[cfg(feature = "guard")]
pub fn guard_trial(rules: &Rules, request: &GuardTry) -> Result<GuardTrial, ControlError> {
    let GuardTry { text, level, stage } = request;
    if text.len() > LONGEST_TRIED {
        let message = format!(
            "text: it has {} bytes, and {LONGEST_TRIED} are the most",
            text.len()
        );
        return Err(ControlError::new(Code::InvalidRequest, message)
            .with_hint("try a part of it, or send it to a model"));
    }
    let set = rules.at(level);
    let verdict = set.check_text(*stage, text);
    let mut changed = String::new();
    let mut from = 0;
    for change in &verdict.changes {
        changed.push_str(text.get(from..change.range.start).unwrap_or_default());
        changed.push_str(&change.with);
        from = change.range.end;
    }
    changed.push_str(text.get(from..).unwrap_or_default());
    Ok(GuardTrial {
        action: verdict.decisions.iter().map(|one| one.action).max(),
        text: (!verdict.changes.is_empty()).then_some(changed),
        not_asked: set
            .judges(*stage)
            .map(|(rule, _)| rule.name.clone())
            .collect(),
        matched: verdict
            .decisions
            .into_iter()
            .map(|one| MatchedRule {
                rule: one.rule,
                by: one.by,
                action: one.action,
                count: one.count,
            })
            .collect(),
    })
}

#[cfg(feature = "guard")]
const LONGEST_TRIED: usize = 32 << 10;
