//! The promises, one function each.

use super::{
    Fixture, Violation,
    verdict::{done, equal, holds, refused},
};
use crate::{
    api::admin::{ModelView, Origin},
    cluster::catalog::{ModelDefinition, OneOrMany, ProfileDefinition},
    control::Control,
    error::Code,
    id::{IdError, ModelName},
    units::Bytes,
};

pub(super) async fn lists_are_ordered(control: &Control) -> Result<(), Violation> {
    let models = models(control).await?;
    holds(
        "models come by name, each once",
        models.is_sorted_by(|a, b| a.name < b.name),
        &models,
    )?;
    let nodes = done("nodes", control.fleet.nodes().await)?;
    holds(
        "nodes come by host name, then by id, each once",
        nodes.is_sorted_by(|a, b| (&a.hostname, a.id) < (&b.hostname, b.id)),
        &nodes,
    )?;
    let replicas = done("replicas", control.fleet.replicas(None).await)?;
    holds(
        "replicas come by model, then by id, each once",
        replicas.is_sorted_by(|a, b| (&a.model, a.id) < (&b.model, b.id)),
        &replicas,
    )?;
    let summary = done("summary", control.fleet.summary().await)?;
    holds(
        "the summary counts no more than there is",
        summary.models_total == models.len()
            && summary.nodes_ready <= summary.nodes_total
            && summary.models_satisfied <= summary.models_total
            && summary.replicas_ready <= summary.replicas_total,
        &summary,
    )
}

pub(super) async fn a_model_is_listed_from_its_addition_to_its_removal(
    control: &Control,
) -> Result<(), Violation> {
    // A name with all that is special in a path and in a query.
    let name = name("conformance/a+b:1@x/retry")?;
    let definition = ModelDefinition {
        description: "said by the suite: ü, \"quotes\", <tags>".to_owned(),
        replicas: Some(2),
        ..definition(name.as_str(), &["conformance/a-too"], Bytes::mib(64))
    };
    let added = done(
        "a right definition is added",
        control.catalog.add(definition.clone()).await,
    )?;
    equal("an addition answers with the model's name", &name, &added)?;
    let view = listed(control, &name).await?;
    let ModelDefinition {
        description,
        aliases,
        replicas,
        ..
    } = definition;
    equal("origin", &Origin::Added, &view.origin)?;
    equal("description", &description, &view.description)?;
    let shown: Vec<String> = view.aliases.iter().map(ToString::to_string).collect();
    equal("aliases", &aliases, &shown)?;
    equal("source", &vec![SOURCE.to_owned()], &view.source)?;
    equal("desired", &replicas, &Some(view.desired))?;
    holds(
        "the profiles are shown",
        matches!(view.profiles.as_slice(), [only] if only.memory == Some(Bytes::mib(64))),
        &view.profiles,
    )?;
    done("a retry", control.catalog.retry(&name).await)?;
    done("a removal", control.catalog.remove(&name).await)?;
    holds(
        "a removed model is not listed",
        models(control).await?.iter().all(|view| view.name != name),
        &name,
    )?;
    refused(
        "a model can't be removed twice",
        Code::NotFound,
        control.catalog.remove(&name).await,
    )?;
    Ok(())
}

pub(super) async fn what_cannot_be_right_is_refused(control: &Control) -> Result<(), Violation> {
    let before = models(control).await?.len();
    let right = definition("conformance/wrong", &[], Bytes::gib(1));
    let cases = [
        ("name: ", definition("not a name", &[], Bytes::gib(1))),
        (
            "aliases[0]: ",
            definition("conformance/wrong", &["-"], Bytes::gib(1)),
        ),
        (
            "profiles[0].memory: ",
            definition("conformance/wrong", &[], Bytes::ZERO),
        ),
        (
            "profiles: ",
            ModelDefinition {
                profiles: Vec::new(),
                ..right.clone()
            },
        ),
        (
            "sha256: ",
            ModelDefinition {
                source: OneOrMany::One("https://host.invalid/x.gguf".to_owned()),
                ..right
            },
        ),
    ];
    for (field, wrong) in cases {
        let error = refused(
            "a definition that can't be right is refused",
            Code::InvalidRequest,
            control.catalog.add(wrong).await,
        )?;
        holds(
            "the refusal names the field",
            error.message.starts_with(field),
            &error,
        )?;
    }
    equal(
        "a refused definition leaves nothing behind",
        &before,
        &models(control).await?.len(),
    )
}

pub(super) async fn taken_names_are_refused(fixture: &Fixture) -> Result<(), Violation> {
    let Fixture {
        control,
        declared,
        alias,
        ..
    } = fixture;
    let first = definition(
        "conformance/taken",
        &["conformance/taken-too"],
        Bytes::mib(64),
    );
    let name = done("an addition", control.catalog.add(first).await)?;
    let before = models(control).await?.len();
    let cases = [
        ("conformance/taken", "conformance/free"),
        ("conformance/taken-too", "conformance/free"),
        ("conformance/free", "conformance/taken"),
        ("conformance/free", "conformance/taken-too"),
        (declared.as_str(), "conformance/free"),
        ("conformance/free", alias.as_str()),
    ];
    for (taken, other) in cases {
        refused(
            "a name or an alias that another model has is refused",
            Code::Conflict,
            control
                .catalog
                .add(definition(taken, &[other], Bytes::mib(64)))
                .await,
        )?;
    }
    equal(
        "a refused addition leaves nothing behind",
        &before,
        &models(control).await?.len(),
    )?;
    done("a removal", control.catalog.remove(&name).await)
}

pub(super) async fn unknown_names_are_not_found(fixture: &Fixture) -> Result<(), Violation> {
    let Fixture { control, alias, .. } = fixture;
    let unknown = name("conformance/unknown")?;
    let Control { catalog, fleet, .. } = control;
    let promise = "an unknown model is not found";
    refused(promise, Code::NotFound, catalog.remove(&unknown).await)?;
    refused(promise, Code::NotFound, catalog.retry(&unknown).await)?;
    refused(promise, Code::NotFound, catalog.explain(&unknown).await)?;
    let error = refused(
        promise,
        Code::NotFound,
        fleet.replicas(Some(&unknown)).await,
    )?;
    holds(
        "the error names the model",
        error.message.contains(unknown.as_str()),
        &error,
    )?;
    refused(
        "a model is removed by its own name alone",
        Code::NotFound,
        catalog.remove(alias).await,
    )?;
    Ok(())
}

pub(super) async fn declared_models_stay(fixture: &Fixture) -> Result<(), Violation> {
    let Fixture {
        control, declared, ..
    } = fixture;
    refused(
        "a declared model can't be removed",
        Code::Conflict,
        control.catalog.remove(declared).await,
    )?;
    let view = listed(control, declared).await?;
    equal("origin", &Origin::Declared, &view.origin)
}

pub(super) async fn aliases_stand_for_their_model(fixture: &Fixture) -> Result<(), Violation> {
    let Fixture {
        control,
        declared,
        alias,
        ..
    } = fixture;
    let view = listed(control, declared).await?;
    holds(
        "the alias is shown",
        view.aliases.contains(alias),
        &view.aliases,
    )?;
    done(
        "a retry by alias",
        control.catalog.retry(alias).await.map(drop),
    )?;
    let explanation = done("explain", control.catalog.explain(alias).await)?;
    equal(
        "an explanation has the model's own name",
        &(declared, declared),
        &(&explanation.model, &explanation.report.model),
    )?;
    let all = done("replicas", control.fleet.replicas(None).await)?;
    let own: Vec<_> = all
        .iter()
        .filter(|replica| replica.model == *declared)
        .map(|replica| replica.id)
        .collect();
    for name in [declared, alias] {
        let some = done("replicas", control.fleet.replicas(Some(name)).await)?;
        let some: Vec<_> = some.iter().map(|replica| replica.id).collect();
        equal("replicas of a model are those of the list", &own, &some)?;
    }
    Ok(())
}

pub(super) async fn what_fits_nowhere_is_explained(control: &Control) -> Result<(), Violation> {
    let huge = definition("conformance/huge", &[], Bytes::gib(1 << 20));
    let name = done("an addition", control.catalog.add(huge).await)?;
    let explanation = done("explain", control.catalog.explain(&name).await)?;
    let report = &explanation.report;
    holds(
        "what fits nowhere is not placed",
        !explanation.placed && explanation.replicas.is_empty() && report.fits.is_none(),
        &explanation,
    )?;
    let counted: usize = report.summary.iter().map(|count| count.nodes).sum();
    equal(
        "the counts add up to the number of nodes",
        &report.nodes,
        &counted,
    )?;
    holds(
        "every node and profile is rejected with all its reasons, in order",
        report.rejections.len() == report.nodes * report.profiles
            && report.rejections.iter().all(|rejection| {
                !rejection.reasons.is_empty()
                    && rejection.reasons.is_sorted_by_key(|reason| reason.check)
            }),
        &report.rejections,
    )?;
    holds(
        "the headline names the model",
        explanation.headline.contains(name.as_str()),
        &explanation.headline,
    )?;
    done("a removal", control.catalog.remove(&name).await)
}

pub(super) async fn a_retry_unparks(fixture: &Fixture) -> Result<(), Violation> {
    let Fixture {
        control, parked, ..
    } = fixture;
    let Some(parked) = parked else {
        return Ok(());
    };
    let view = listed(control, parked).await?;
    holds(
        "a parked model is shown so",
        view.parked && view.failures > 0,
        &view,
    )?;
    done("a retry", control.catalog.retry(parked).await)?;
    let view = listed(control, parked).await?;
    holds("a retry unparks", !view.parked, &view)
}

pub(super) async fn models(control: &Control) -> Result<Vec<ModelView>, Violation> {
    done("models", control.catalog.models().await)
}

pub(super) async fn listed(control: &Control, name: &ModelName) -> Result<ModelView, Violation> {
    let all = models(control).await?;
    all.into_iter()
        .find(|view| view.name == *name)
        .ok_or_else(|| Violation {
            promise: "a model that was added is listed",
            found: format!("{name} is not"),
        })
}

pub(super) fn definition(name: &str, aliases: &[&str], memory: Bytes) -> ModelDefinition {
    ModelDefinition {
        files: Vec::new(),
        name: name.to_owned(),
        description: String::new(),
        aliases: aliases.iter().map(|&alias| alias.to_owned()).collect(),
        fallbacks: Vec::new(),
        source: OneOrMany::One(SOURCE.to_owned()),
        sha256: None,
        size: None,
        replicas: None,
        min_replicas: None,
        max_replicas: None,
        idle_timeout: None,
        profiles: vec![ProfileDefinition::of_memory(memory)],
    }
}

pub(super) fn name(text: &str) -> Result<ModelName, Violation> {
    text.parse().map_err(|error: IdError| Violation {
        promise: "the suite's own names are names",
        found: error.to_string(),
    })
}

/// A file needs no digest, and nobody has this one.
const SOURCE: &str = "file:/nonexistent/conformance.gguf";
