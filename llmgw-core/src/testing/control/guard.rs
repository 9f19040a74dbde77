//! The promises of the guard.

use std::time::Duration;

use super::{
    Violation,
    verdict::{done, equal, holds, refused},
};
use crate::{
    api::guard::GuardTry,
    cluster::{guard::Stage, tenancy::LevelPath},
    control::Control,
    error::Code,
};

pub(super) async fn rules_are_shown_and_tried(control: &Control) -> Result<(), Violation> {
    let guard = &control.guard;
    let shown = done("rules", guard.rules(&LevelPath::CLUSTER).await)?;
    holds(
        "the rules of the cluster are made by the cluster",
        shown.level.is_cluster() && shown.rules.iter().all(|held| held.by.is_cluster()),
        &shown,
    )?;
    let tried = |text: &str| GuardTry {
        text: text.to_owned(),
        level: LevelPath::CLUSTER,
        stage: Stage::Input,
    };
    let trial = done("try_text", guard.try_text(tried("a harmless word")).await)?;
    holds(
        "what is not matched is not changed",
        !trial.matched.is_empty() || (trial.action.is_none() && trial.text.is_none()),
        &trial,
    )?;
    if shown.baseline {
        let trial = guard.try_text(tried("4111 1111 1111 1111, or 4111111111111111"));
        let trial = done("try_text", trial.await)?;
        let found: Vec<(&str, u32)> = trial
            .matched
            .iter()
            .map(|one| (one.rule.as_str(), one.count))
            .collect();
        equal("the baseline finds cards", &found, &vec![("cards", 2)])?;
        equal("the baseline changes nothing", &trial.text, &None)?;
    }
    refused(
        "a text that is too long is not tried",
        Code::InvalidRequest,
        guard.try_text(tried(&"x".repeat(40 << 10))).await,
    )?;
    Ok(())
}

pub(super) async fn what_was_done_is_listed_newest_first(
    control: &Control,
) -> Result<(), Violation> {
    let all = done("guarded", control.guard.guarded(LONG, 1_000).await)?;
    holds(
        "calls that rules matched come newest first",
        all.is_sorted_by(|a, b| a.at >= b.at),
        &all,
    )?;
    holds(
        "a call that is listed says what was done",
        all.iter().all(|call| !call.decisions.is_empty()),
        &all,
    )?;
    let two = done("guarded", control.guard.guarded(LONG, 2).await)?;
    equal(
        "a page has no more than was asked for",
        &two.len(),
        &all.len().min(2),
    )
}

pub(super) async fn same_answers(left: &Control, right: &Control) -> Result<(), Violation> {
    for level in ["/", "acme/search"] {
        let Ok(level) = level.parse() else { continue };
        equal(
            "the guard's rules",
            &left.guard.rules(&level).await,
            &right.guard.rules(&level).await,
        )?;
    }
    for text in ["4111 1111 1111 1111".to_owned(), "x".repeat(40 << 10)] {
        let request = GuardTry {
            text,
            level: LevelPath::CLUSTER,
            stage: Stage::Input,
        };
        equal(
            "what the guard finds",
            &left.guard.try_text(request.clone()).await,
            &right.guard.try_text(request).await,
        )?;
    }
    equal(
        "what the guard did",
        &left.guard.guarded(LONG, 10).await,
        &right.guard.guarded(LONG, 10).await,
    )
}

const LONG: Duration = Duration::from_secs(365 * 86_400);
