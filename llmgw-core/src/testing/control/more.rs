//! The promises of keys, settings, jobs, the audit log and what-if.

use super::{
    Fixture, Violation, promises,
    verdict::{done, equal, holds, refused},
};
use crate::{
    api::{
        tenancy::{KeyRequest, KeyView},
        whatif::Change,
    },
    cluster::{
        audit::{AuditEntry, ChainHead, verify_chain},
        weights::Sha256Digest,
    },
    control::Control,
    error::Code,
    id::KeyId,
    units::Bytes,
};

pub(super) async fn a_key_is_listed_from_its_making_to_its_revocation(
    control: &Control,
) -> Result<(), Violation> {
    let before = keys(control).await?;
    let first = done(
        "a key is made",
        control
            .tenancy
            .create_key(KeyRequest::named("  conformance: one "))
            .await,
    )?;
    let second = done(
        "another of the same name",
        control
            .tenancy
            .create_key(KeyRequest::named("conformance: one"))
            .await,
    )?;
    equal("its name", &"conformance: one", &first.key.name.as_str())?;
    holds(
        "each key has an id and a secret of its own",
        first.key.id != second.key.id && first.secret != second.secret && !first.secret.is_empty(),
        &(first.key.id, second.key.id),
    )?;
    let listed = keys(control).await?;
    holds(
        "keys come by id, each once, those that were made too",
        listed.is_sorted_by(|a, b| a.id < b.id)
            && listed.contains(&first.key)
            && listed.contains(&second.key),
        &listed,
    )?;
    for key in [first.key.id, second.key.id] {
        done("a revocation", control.tenancy.revoke_key(key).await)?;
        refused(
            "a key can't be revoked twice",
            Code::NotFound,
            control.tenancy.revoke_key(key).await,
        )?;
    }
    equal(
        "revoked keys are not listed",
        &before,
        &keys(control).await?,
    )
}

pub(super) async fn what_is_frozen_is_thawed_once(control: &Control) -> Result<(), Violation> {
    let fleet = &control.fleet;
    let summary = done("the summary", fleet.summary().await)?;
    if let Some(frozen) = summary.frozen {
        let sentence = frozen.to_string();
        holds(
            "what needs attention says that nothing is moved",
            summary.attention.contains(&sentence),
            &summary.attention,
        )?;
        let thawed = done("a thaw", fleet.thaw().await)?.thawed;
        equal(
            "a thaw answers which nodes are given up",
            &(&frozen.silent, frozen.of),
            &(&thawed.silent, thawed.of),
        )?;
        let after = done("the summary", fleet.summary().await)?;
        equal("and nothing is frozen any more", &None, &after.frozen)?;
    }
    refused(
        "what is not frozen can't be thawed",
        Code::Conflict,
        fleet.thaw().await,
    )?;
    Ok(())
}

pub(super) async fn what_is_not_listed_is_not_collected(
    control: &Control,
) -> Result<(), Violation> {
    let listed = done("weights to collect", control.storage.orphans().await)?;
    holds(
        "weights come by node, then by digest",
        listed.is_sorted_by_key(|one| (one.hostname.clone(), one.node, one.sha256)),
        &listed,
    )?;
    refused(
        "nothing is collected that was not named",
        Code::InvalidRequest,
        control.storage.collect(&[]).await,
    )?;
    // Nobody has weights of this digest: it is that of no file.
    let nowhere = Sha256Digest([0; 32]);
    refused(
        "what is listed nowhere is not collected",
        Code::NotFound,
        control.storage.collect(&[nowhere]).await,
    )?;
    let may_stay = listed.iter().find(|one| one.kept.is_some());
    if let Some(kept) = may_stay {
        let answer = control.storage.collect(&[kept.sha256]).await;
        let answer = done("an order to collect what has to stay", answer)?;
        holds(
            "what has to stay is not collected, and the answer says why",
            answer
                .iter()
                .any(|one| one.sha256 == kept.sha256 && one.kept.is_some() && !one.collecting),
            &answer,
        )?;
    }
    Ok(())
}

pub(super) async fn keys_that_cannot_be_are_refused(control: &Control) -> Result<(), Violation> {
    let before = keys(control).await?;
    for name in ["", "   ", "a\nb", "a\u{202e}b", &"x".repeat(129)] {
        refused(
            "a key's name can be read",
            Code::InvalidRequest,
            control.tenancy.create_key(KeyRequest::named(name)).await,
        )?;
    }
    refused(
        "an unknown key is not found",
        Code::NotFound,
        control.tenancy.revoke_key(KeyId::generate()).await,
    )?;
    equal(
        "a refusal leaves the keys as they were",
        &before,
        &keys(control).await?,
    )
}

pub(super) async fn declared_models_are_in_the_settings(
    fixture: &Fixture,
) -> Result<(), Violation> {
    let settings = done("settings", fixture.control.settings.settings().await)?;
    holds(
        "a declared model is in the settings",
        settings
            .models
            .iter()
            .any(|model| model.name == fixture.declared.as_str()),
        &settings.models,
    )
}

pub(super) async fn jobs_are_ordered(control: &Control) -> Result<(), Violation> {
    let jobs = done("jobs", control.jobs.jobs().await)?;
    holds(
        "jobs come by node, then by subject",
        jobs.is_sorted_by(|a, b| {
            (&a.hostname, a.node, &a.subject) <= (&b.hostname, b.node, &b.subject)
        }),
        &jobs,
    )
}

pub(super) async fn orders_are_written_down(control: &Control) -> Result<(), Violation> {
    let before = log(control).await?;
    let name = promises::name("conformance/audited")?;
    let definition = promises::definition(name.as_str(), &[], Bytes::gib(1));
    done("an addition", control.catalog.add(definition).await)?;
    done("a removal", control.catalog.remove(&name).await)?;
    let key = done(
        "a key",
        control
            .tenancy
            .create_key(KeyRequest::named("audited"))
            .await,
    )?;
    done(
        "its revocation",
        control.tenancy.revoke_key(key.key.id).await,
    )?;
    let after = log(control).await?;
    let fresh = after.get(before.len()..).unwrap_or_default();
    let orders: Vec<(&str, &str)> = fresh
        .iter()
        .map(|entry| (entry.action.as_str(), entry.subject.as_str()))
        .collect();
    // The name too: the key is gone when somebody reads it.
    let id = format!("{} audited", key.key.id);
    let expected = [
        ("model.add", name.as_str()),
        ("model.remove", name.as_str()),
        ("key.create", id.as_str()),
        ("key.revoke", id.as_str()),
    ];
    equal("every order has its entry", &expected.to_vec(), &orders)?;
    holds(
        "entries form a chain",
        verify_chain(ChainHead::EMPTY, &after).is_ok(),
        &after,
    )?;
    let last = after.last().map_or(0, |entry| entry.seq);
    let page = done(
        "a page",
        control.audit.audit(last.saturating_sub(2), 1).await,
    )?;
    equal(
        "a page begins after the number and has no more than was asked for",
        &vec![last.saturating_sub(1)],
        &page.iter().map(|entry| entry.seq).collect::<Vec<u64>>(),
    )
}

pub(super) async fn a_question_says_what_would_be_and_changes_nothing(
    fixture: &Fixture,
) -> Result<(), Violation> {
    let Fixture {
        control, declared, ..
    } = fixture;
    let models = promises::models(control).await?;
    let entries = log(control).await?;
    let snapshot = done("snapshot", control.fleet.snapshot().await)?;
    let planned: Vec<String> = snapshot
        .models
        .iter()
        .map(|model| model.name.clone())
        .collect();
    let named: Vec<String> = models.iter().map(|model| model.name.to_string()).collect();
    equal("a snapshot has every model", &named, &planned)?;
    let nodes = done("nodes", control.fleet.nodes().await)?;
    let counted = snapshot
        .fleet
        .get("nodes")
        .and_then(|nodes| nodes.as_array());
    equal(
        "a snapshot has every node",
        &Some(nodes.len()),
        &counted.map(Vec::len),
    )?;
    let nothing = done("no change", control.fleet.plan(&[]).await)?;
    holds("no change changes nothing", nothing.is_nothing(), &nothing)?;
    let name = promises::name("conformance/too-much")?;
    let large = promises::definition(name.as_str(), &[], Bytes(1 << 50));
    let addition = [Change::Add(Box::new(large))];
    let outcome = done("an addition", control.fleet.plan(&addition).await)?;
    let reasons: Vec<_> = outcome
        .unplaceable
        .iter()
        .map(|report| (&report.model, report.fits.is_some()))
        .collect();
    equal(
        "a model that would fit nowhere is said to",
        &vec![(&name, false)],
        &reasons,
    )?;
    let removal = [Change::Remove(declared.clone())];
    let outcome = done("a removal", control.fleet.plan(&removal).await)?;
    let begins = outcome.starts.iter().any(|start| start.model == *declared)
        || outcome
            .moves
            .iter()
            .any(|moved| moved.to.model == *declared);
    holds("a model that is gone begins nowhere", !begins, &outcome)?;
    equal(
        "a question leaves the models as they were",
        &models,
        &promises::models(control).await?,
    )?;
    equal(
        "a question is no order, and has no entry",
        &entries,
        &log(control).await?,
    )
}

pub(super) async fn changes_that_cannot_be_made_are_named(
    fixture: &Fixture,
) -> Result<(), Violation> {
    let Fixture {
        control, declared, ..
    } = fixture;
    let unknown = promises::name("conformance/unknown")?;
    let taken = promises::definition(declared.as_str(), &[], Bytes::gib(1));
    let empty = promises::definition("conformance/wrong", &[], Bytes::ZERO);
    let none = || "conformance-unknown".to_owned();
    for (change, path) in [
        (Change::Remove(unknown.clone()), "remove"),
        (Change::Add(Box::new(taken)), "add.name"),
        (Change::Add(Box::new(empty)), "add.profiles[0].memory"),
        (Change::Drain(none()), "drain"),
        (Change::Lose(none()), "lose"),
        (
            Change::Scale {
                model: unknown.clone(),
                replicas: 2,
            },
            "scale.model",
        ),
        (
            Change::AddNodes {
                like: none(),
                count: 1,
            },
            "add_nodes.like",
        ),
    ] {
        let possible = Change::Scale {
            model: declared.clone(),
            replicas: 1,
        };
        let answer = control.fleet.plan(&[possible, change]).await;
        let message = answer.as_ref().err().map(|error| error.message.clone());
        refused(
            "a change that can't be made is refused",
            Code::InvalidRequest,
            answer,
        )?;
        let path = format!("changes[1].{path}: ");
        holds(
            "a refusal names the change by its path",
            message.as_ref().is_some_and(|said| said.starts_with(&path)),
            &(path.as_str(), &message),
        )?;
    }
    Ok(())
}

/// Questions about what is there and what is not.
pub(super) async fn questions(control: &Control) -> Vec<Vec<Change>> {
    let mut questions = vec![Vec::new(), vec![Change::Drain("conformance".to_owned())]];
    for view in control.catalog.models().await.unwrap_or_default() {
        questions.push(vec![Change::Scale {
            model: view.name.clone(),
            replicas: view.desired.saturating_add(1),
        }]);
        questions.push(vec![Change::Remove(view.name)]);
    }
    for node in control.fleet.nodes().await.unwrap_or_default() {
        questions.push(vec![Change::AddNodes {
            like: node.id.to_string(),
            count: 2,
        }]);
        questions.push(vec![
            Change::Drain(node.id.to_string()),
            Change::Lose(node.id.to_string()),
        ]);
    }
    questions
}

async fn keys(control: &Control) -> Result<Vec<KeyView>, Violation> {
    done("keys", control.tenancy.keys().await)
}

/// The whole log, page by page.
pub(super) async fn log(control: &Control) -> Result<Vec<AuditEntry>, Violation> {
    let mut entries: Vec<AuditEntry> = Vec::new();
    loop {
        let after = entries.last().map_or(0, |entry| entry.seq);
        let page = done("audit", control.audit.audit(after, 1_000).await)?;
        if page.is_empty() {
            return Ok(entries);
        }
        entries.extend(page);
    }
}
