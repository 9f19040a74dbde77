//! The promises of a model that is defined otherwise.

use super::{
    Fixture, Violation,
    promises::{definition, listed, name},
    verdict::{done, equal, holds, refused},
};
use crate::{
    api::orders::ScaleRequest, control::Control, error::Code, id::ModelName, units::Bytes,
};

/// More than any node has: it is placed nowhere.
const LARGE: Bytes = Bytes::gib(1 << 20);

async fn added(control: &Control, own: &str, aliases: &[&str]) -> Result<ModelName, Violation> {
    let wanted = definition(own, aliases, LARGE);
    done("an addition", control.catalog.add(wanted).await)
}

pub(super) async fn an_added_model_is_defined_otherwise(
    fixture: &Fixture,
) -> Result<(), Violation> {
    let control = &fixture.control;
    let model = added(control, "conformance/edited", &["conformance/old"]).await?;
    let two = ScaleRequest {
        min: Some(2),
        ..ScaleRequest::default()
    };
    done("a scale", control.catalog.scale(&model, two).await)?;
    let mut other = definition("conformance/edited", &["conformance/new"], LARGE);
    other.description = "edited".to_owned();
    for profile in &mut other.profiles {
        profile.parallel = Some(3);
    }
    let replaced = control.catalog.replace(&model, other).await;
    let replaced = done("a replacement", replaced)?;
    equal(
        "a replacement answers which, and what is stale",
        &(&model, 0),
        &(&replaced.replaced, replaced.stale),
    )?;
    let view = listed(control, &model).await?;
    equal(
        "it is shown as it is defined now",
        &("edited", vec![name("conformance/new")?], vec![3]),
        &(
            view.description.as_str(),
            view.aliases.clone(),
            view.profiles.iter().map(|one| one.parallel).collect(),
        ),
    )?;
    equal(
        "and scaled as it was ordered",
        &(2, 2),
        &(view.min_replicas, view.max_replicas),
    )?;
    let alias = name("conformance/old")?;
    refused(
        "a name that it has no more is free",
        Code::NotFound,
        control.catalog.explain(&alias).await,
    )?;
    let entries = done("the audit log", control.audit.audit(0, 1_000).await)?;
    let subject = model.as_str();
    holds(
        "it is written down",
        entries
            .iter()
            .any(|one| one.action == "model.replace" && one.subject == subject),
        &entries,
    )?;
    done("a removal", control.catalog.remove(&model).await)
}

pub(super) async fn what_cannot_take_its_place_is_refused(
    fixture: &Fixture,
) -> Result<(), Violation> {
    let Fixture {
        control,
        declared,
        alias,
        ..
    } = fixture;
    let catalog = &control.catalog;
    let unknown = name("conformance/unknown")?;
    refused(
        "an unknown model can't be replaced",
        Code::NotFound,
        catalog
            .replace(&unknown, definition(unknown.as_str(), &[], LARGE))
            .await,
    )?;
    refused(
        "nor one by its alias",
        Code::NotFound,
        catalog
            .replace(alias, definition(alias.as_str(), &[], LARGE))
            .await,
    )?;
    refused(
        "a declared model can't be replaced",
        Code::Conflict,
        catalog
            .replace(declared, definition(declared.as_str(), &[], LARGE))
            .await,
    )?;
    let model = added(control, "conformance/edited", &["conformance/e"]).await?;
    let before = listed(control, &model).await?;
    let renamed = definition("conformance/renamed", &[], LARGE);
    let mut lonely = definition(model.as_str(), &[], LARGE);
    lonely.fallbacks = vec![unknown.to_string()];
    let mut empty = definition(model.as_str(), &[], LARGE);
    empty.profiles.clear();
    for (field, code, wrong) in [
        ("name: ", Code::InvalidRequest, renamed),
        ("fallbacks[0]: ", Code::InvalidRequest, lonely),
        ("profiles: ", Code::InvalidRequest, empty),
        (
            declared.as_str(),
            Code::Conflict,
            definition(model.as_str(), &[declared.as_str()], LARGE),
        ),
    ] {
        let error = refused(
            "a definition that can't be right is refused",
            code,
            catalog.replace(&model, wrong).await,
        )?;
        holds(
            "the refusal names the field or the name",
            error.message.starts_with(field),
            &error,
        )?;
    }
    equal(
        "what was refused changes nothing",
        &before,
        &listed(control, &model).await?,
    )?;
    done("a removal", catalog.remove(&model).await)
}
