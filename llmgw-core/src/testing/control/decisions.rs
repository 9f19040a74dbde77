//! The promises of decisions.

use super::{
    Fixture, Violation, promises,
    verdict::{done, equal, holds, refused},
};
use crate::{api::decision::Decision, error::Code};

pub(super) async fn decisions_come_by_number(fixture: &Fixture) -> Result<(), Violation> {
    let Fixture {
        control,
        declared,
        alias,
        ..
    } = fixture;
    let catalog = &control.catalog;
    let all = done("decisions", catalog.decisions(None, 0, 1_000).await)?;
    holds(
        "decisions come by number, each once, from 1 on",
        all.is_sorted_by(|a, b| a.number < b.number)
            && all.first().is_none_or(|first| first.number > 0),
        &numbers(&all),
    )?;
    holds(
        "what was decided again was so later",
        all.iter()
            .all(|decision| decision.again > 0 || decision.last_at == decision.at),
        &all,
    )?;
    // More may come at any time, and the oldest may go, so that pages are compared by what they may have.
    for limit in [0, 1, 2] {
        let page = done("a page", catalog.decisions(None, 1, limit).await)?;
        holds(
            "a page begins after the number and has no more than was asked for",
            page.len() <= usize::try_from(limit).unwrap_or(0)
                && page.iter().all(|decision| decision.number > 1),
            &numbers(&page),
        )?;
    }
    for name in [declared, alias] {
        let own = done(
            "decisions on a model",
            catalog.decisions(Some(name), 0, 1_000).await,
        )?;
        holds(
            "decisions on a model are on no other",
            own.iter().all(|decision| decision.model == *declared),
            &own,
        )?;
        let known: Vec<u64> = all
            .iter()
            .filter(|decision| decision.model == *declared)
            .map(|decision| decision.number)
            .collect();
        let same: Vec<u64> = numbers(&own)
            .into_iter()
            .filter(|number| known.contains(number))
            .collect();
        equal("decisions on a model are those of the list", &known, &same)?;
    }
    let unknown = promises::name("conformance/unknown")?;
    refused(
        "an unknown model is not found",
        Code::NotFound,
        catalog.decisions(Some(&unknown), 0, 1_000).await,
    )?;
    Ok(())
}

fn numbers(decisions: &[Decision]) -> Vec<u64> {
    decisions.iter().map(|decision| decision.number).collect()
}
