//! What the contract of the settings promises.

use super::{
    Fixture, Violation,
    more::log,
    verdict::{done, equal, holds, refused},
};
use crate::{
    control::{Control, Settings},
    error::Code,
};

pub(super) async fn a_document_is_in_force_until_another_is(
    fixture: &Fixture,
) -> Result<(), Violation> {
    let settings = &*fixture.control.settings;
    let before = done("settings", settings.settings().await)?;
    let first = done("the document", settings.document(None).await)?;
    equal(
        "the settings say which version is in force",
        &first.version,
        &before.version,
    )?;
    let (policy, text) = other_policy(&before.placement_policy);

    let trial = done("a trial", settings.try_out(text.clone()).await)?;
    let keys: Vec<&str> = trial.changes.iter().map(|one| one.key.as_str()).collect();
    equal(
        "a trial says what would hold otherwise",
        &vec!["placement.policy"],
        &keys,
    )?;
    equal("a trial says against what", &before.version, &trial.base)?;
    equal(
        "a trial changes nothing",
        &before,
        &done("settings", settings.settings().await)?,
    )?;

    let base = Some(before.version);
    let kept = done("a document", settings.put(text.clone(), base).await)?;
    equal(
        "a document is the next version",
        &(before.version + 1),
        &kept.version,
    )?;
    equal(
        "what is kept changes what the trial said",
        &trial.changes,
        &kept.changes,
    )?;
    let now = done("settings", settings.settings().await)?;
    equal(
        "a document is in force when it is answered",
        &(policy, kept.version),
        &(now.placement_policy.as_str(), now.version),
    )?;
    let found = done("the document", settings.document(None).await)?;
    equal("a document comes back as it was", &text, &found.document)?;

    let again = done("the same", settings.put(text.clone(), None).await)?;
    equal(
        "the same document makes no version",
        &(kept.version, true),
        &(again.version, again.changes.is_empty()),
    )?;
    refused(
        "a document that was made from an older version is refused",
        Code::Conflict,
        settings.put(String::new(), base).await,
    )?;

    let back = done("rolling back", settings.roll_back(first.version).await)?;
    equal(
        "what is brought back is a version of its own",
        &(kept.version + 1, Some(first.version)),
        &(back.version, back.brings_back),
    )?;
    let after = done("settings", settings.settings().await)?;
    equal(
        "what was brought back is in force",
        &(&before.placement_policy, back.version),
        &(&after.placement_policy, after.version),
    )?;
    let old = settings.document(Some(kept.version)).await;
    equal(
        "every version is kept",
        &text,
        &done("an old document", old)?.document,
    )?;
    let page = done(
        "the history",
        settings.history(Some(back.version + 1), 2).await,
    )?;
    let listed: Vec<(u64, Option<u64>)> = page
        .iter()
        .map(|one| (one.version, one.brings_back))
        .collect();
    equal(
        "the history has the newest first",
        &vec![(back.version, Some(first.version)), (kept.version, None)],
        &listed,
    )
}

pub(super) async fn documents_that_cannot_be_right_are_refused(
    control: &Control,
) -> Result<(), Violation> {
    let settings = &*control.settings;
    let before = done("settings", settings.settings().await)?;
    let entries = log(control).await?.len();
    for document in [
        "[",
        r#"{"frob": 1}"#,
        r#"{"placement": {"policy": "frob"}}"#,
        "{\"placement\": {}}\0",
    ] {
        let what = "a document that can't be right is refused";
        refused(
            what,
            Code::InvalidRequest,
            settings.put(document.to_owned(), None).await,
        )?;
        refused(
            what,
            Code::InvalidRequest,
            settings.try_out(document.to_owned()).await,
        )?;
    }
    let none = before.version + 1_000;
    refused(
        "a version that there is not is not found",
        Code::NotFound,
        settings.document(Some(none)).await,
    )?;
    refused(
        "a version that there is not is not brought back",
        Code::NotFound,
        settings.roll_back(none).await,
    )?;
    equal(
        "what was refused changes nothing",
        &before,
        &done("settings", settings.settings().await)?,
    )?;
    holds(
        "what was refused is not in the log",
        log(control).await?.len() == entries,
        &entries,
    )
}

pub(super) async fn same_answers(left: &Control, right: &Control) -> Result<(), Violation> {
    let (left, right): (&dyn Settings, &dyn Settings) = (&*left.settings, &*right.settings);
    equal("settings", &left.settings().await, &right.settings().await)?;
    for version in [None, Some(0), Some(1), Some(1_000_000)] {
        equal(
            "a document",
            &left.document(version).await,
            &right.document(version).await,
        )?;
        equal(
            "the history of the settings",
            &left.history(version, 3).await,
            &right.history(version, 3).await,
        )?;
    }
    let text = other_policy("scarcity").1;
    equal(
        "a trial of settings",
        &left.try_out(text.clone()).await,
        &right.try_out(text).await,
    )?;
    equal(
        "refusal of settings",
        &left.put("[".to_owned(), Some(1_000_000)).await,
        &right.put("[".to_owned(), Some(1_000_000)).await,
    )
}

/// Another policy than this, and a document that says so.
fn other_policy(now: &str) -> (&'static str, String) {
    let policy = match now {
        "spread" => "scarcity",
        _ => "spread",
    };
    (
        policy,
        format!(r#"{{"placement": {{"policy": "{policy}"}}}}"#),
    )
}
