//! The promises of levels, and of keys that belong to them.

use super::{
    Violation,
    verdict::{done, equal, holds, refused},
};
use crate::{
    api::tenancy::{KeyRequest, KeyView, LevelRequest, LevelView},
    cluster::tenancy::{LevelPath, Limits},
    control::Control,
    error::Code,
    id::ModelName,
    units::Span,
};

pub(super) async fn a_level_is_listed_from_its_making_to_its_removal(
    control: &Control,
) -> Result<(), Violation> {
    let tenancy = &control.tenancy;
    let before = levels(control).await?;
    let paths: Vec<&LevelPath> = before.iter().map(|level| &level.path).collect();
    holds(
        "levels come by path, each once, the cluster itself too",
        paths.is_sorted_by(|a, b| a < b) && paths.contains(&&LevelPath::CLUSTER),
        &paths,
    )?;
    let (organisation, team) = (level("conformance")?, level("conformance/team")?);
    refused(
        "a level is in one that there is",
        Code::InvalidRequest,
        tenancy.create_level(request(&team, only(&[])?)).await,
    )?;
    let limits = only(&["conformance/a"])?;
    let made = tenancy.create_level(request(&organisation, limits.clone()));
    let made = done("a level is made", made.await)?;
    equal("its path", &organisation, &made.path)?;
    equal("its limits", &limits, &made.limits)?;
    equal("its kind", &"organisation", &made.kind.as_str())?;
    done(
        "a level in it is made",
        tenancy
            .create_level(request(&team, Limits::default()))
            .await,
    )?;
    refused(
        "a level is made once",
        Code::Conflict,
        tenancy
            .create_level(request(&team, Limits::default()))
            .await,
    )?;
    let other = only(&["conformance/b", "conformance/c"])?;
    let limited = tenancy.limit_level(request(&team, other.clone())).await;
    equal("its limits", &other, &done("a limit", limited)?.limits)?;
    let listed = levels(control).await?;
    let own: Vec<(&LevelPath, &Limits)> = listed
        .iter()
        .filter(|level| level.path.is_within(&organisation))
        .map(|level| (&level.path, &level.limits))
        .collect();
    let expected = vec![(&organisation, &limits), (&team, &other)];
    equal("what was made and limited is listed", expected, own)?;
    refused(
        "a level that others are in stays",
        Code::Conflict,
        tenancy.remove_level(&organisation).await,
    )?;
    for path in [&team, &organisation] {
        done("a removal", tenancy.remove_level(path).await)?;
        refused(
            "a level that is not there can't be removed",
            Code::NotFound,
            tenancy.remove_level(path).await,
        )?;
        refused(
            "a level that is not there can't be limited",
            Code::NotFound,
            tenancy.limit_level(request(path, only(&[])?)).await,
        )?;
    }
    refused(
        "the cluster itself stays",
        Code::Conflict,
        tenancy.remove_level(&LevelPath::CLUSTER).await,
    )?;
    equal(
        "removed levels leave no trace",
        &before,
        &levels(control).await?,
    )
}

pub(super) async fn a_key_belongs_to_a_level_that_there_is(
    control: &Control,
) -> Result<(), Violation> {
    let tenancy = &control.tenancy;
    let path = level("conformance-keys")?;
    let wanted = KeyRequest {
        level: path.clone(),
        expires_in: "1day".parse::<Span>().ok(),
        limits: only(&["conformance/a"])?,
        ..KeyRequest::named("conformance")
    };
    refused(
        "a key's level is one that there is",
        Code::InvalidRequest,
        tenancy.create_key(wanted.clone()).await,
    )?;
    let made = tenancy.create_level(request(&path, Limits::default()));
    done("a level is made", made.await)?;
    for span in ["0s", "1ns", "999ms", "101years", "99999years"] {
        refused(
            "a key lasts for a second at least, and for a hundred years at most",
            Code::InvalidRequest,
            tenancy
                .create_key(KeyRequest {
                    expires_in: span.parse::<Span>().ok(),
                    ..wanted.clone()
                })
                .await,
        )?;
    }
    let key = done("a key is made", tenancy.create_key(wanted.clone()).await)?.key;
    equal("its level", &path, &key.level)?;
    equal("its limits", &wanted.limits, &key.limits)?;
    let lasts = key.expires_at.map(|end| end.since(key.created_at));
    equal("its end", &wanted.expires_in.map(|span| span.0), &lasts)?;
    let listed = done("keys", tenancy.keys().await)?;
    holds(
        "a key is listed as it was made",
        listed.contains(&key),
        &listed,
    )?;
    let shown = levels(control).await?;
    let counted = shown.iter().find(|level| level.path == path);
    equal(
        "a level counts its keys",
        Some(1),
        counted.map(|level| level.keys),
    )?;
    refused(
        "a level with keys stays",
        Code::Conflict,
        tenancy.remove_level(&path).await,
    )?;
    let other = Limits {
        concurrent: Some(2),
        ..only(&["conformance/b"])?
    };
    let limited = done("a change", tenancy.limit_key(key.id, other.clone()).await)?;
    let expected = KeyView {
        limits: other,
        ..key.clone()
    };
    equal(
        "a key that is limited otherwise is the same else",
        &expected,
        &limited,
    )?;
    let listed = done("keys", tenancy.keys().await)?;
    holds("it is listed so", listed.contains(&limited), &listed)?;
    let nothing = Limits {
        concurrent: Some(0),
        ..Limits::default()
    };
    refused(
        "limits that can't be meant",
        Code::InvalidRequest,
        tenancy.limit_key(key.id, nothing).await,
    )?;
    done("a revocation", tenancy.revoke_key(key.id).await)?;
    refused(
        "a key that is gone can't be limited",
        Code::NotFound,
        tenancy.limit_key(key.id, Limits::default()).await,
    )?;
    done("a removal", tenancy.remove_level(&path).await)
}

async fn levels(control: &Control) -> Result<Vec<LevelView>, Violation> {
    done("levels", control.tenancy.levels().await)
}

fn request(path: &LevelPath, limits: Limits) -> LevelRequest {
    let path = path.clone();
    LevelRequest { path, limits }
}

fn only(models: &[&str]) -> Result<Limits, Violation> {
    let models: Result<Vec<ModelName>, Violation> = models
        .iter()
        .map(|name| super::promises::name(name))
        .collect();
    Ok(Limits {
        models: Some(models?),
        ..Limits::default()
    })
}

fn level(text: &str) -> Result<LevelPath, Violation> {
    text.parse().map_err(|error| Violation {
        promise: "the suite's own levels are some",
        found: format!("{error}"),
    })
}
