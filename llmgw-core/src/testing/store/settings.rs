//! Versions of the settings.

use super::{
    Checked, StoreFixture, ensure,
    lease::unexpected,
    sample::{self, LONG},
};
use crate::{
    cluster::settings::{AboutSettings, StoredSettings},
    store::{Epoch, Store, StoreError, Write},
};

pub(super) async fn every_version_of_the_settings_is_kept(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    ensure!(
        store.settings(None).await?.is_none() && store.settings(Some(1)).await?.is_none(),
        "a new store has settings"
    );
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    let versions = [
        sample::settings(1, "# a comment\nqueue: {max_total: 8}\n", None),
        sample::settings(2, "", None),
        sample::settings(3, "# a comment\nqueue: {max_total: 8}\n", Some(1)),
    ];
    for version in &versions {
        add(&*store, epoch, version).await?;
    }
    let store = fixture.open().await?;
    for version in &versions {
        let found = store.settings(Some(version.version)).await?;
        ensure!(
            found.as_ref() == Some(version),
            "{version:?} came back as {found:?}"
        );
    }
    let (newest, found) = (versions.last(), store.settings(None).await?);
    ensure!(
        found.as_ref() == newest,
        "the newest settings are {found:?}"
    );
    let none = store.settings(Some(u64::MAX)).await?;
    ensure!(none.is_none(), "a version that is not there is {none:?}");
    Ok(())
}

pub(super) async fn a_version_of_the_settings_is_written_once(
    fixture: &dyn StoreFixture,
) -> Checked {
    let store = fixture.open().await?;
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    let first = sample::settings(1, "queue: {max_total: 8}", None);
    add(&*store, epoch, &first).await?;
    match add(&*store, epoch, &sample::settings(1, "{}", None)).await {
        Err(StoreError::Exists { .. }) => {}
        other => return Err(unexpected("writing a version again", other)),
    }
    let found = store.settings(None).await?;
    ensure!(found.as_ref() == Some(&first), "it became {found:?}");
    Ok(())
}

pub(super) async fn the_history_of_the_settings_is_read_from_its_end(
    fixture: &dyn StoreFixture,
) -> Checked {
    let store = fixture.open().await?;
    let none = store.settings_history(None, 10).await?;
    ensure!(none.is_empty(), "a new store has a history: {none:?}");
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    let mut all: Vec<(u64, AboutSettings)> = Vec::new();
    for version in 1..=5_u64 {
        let brings_back = version.checked_sub(3).filter(|back| *back > 0);
        let one = sample::settings(version, "{}", brings_back);
        add(&*store, epoch, &one).await?;
        all.insert(0, (version, one.about));
    }
    for (before, limit, from, count) in [
        (None, 10, 0, 5),
        (None, 2, 0, 2),
        (Some(4), 2, 2, 2),
        (Some(1), 9, 5, 0),
        (None, 0, 0, 0),
    ] {
        let found = store.settings_history(before, limit).await?;
        let expected: Vec<_> = all.iter().skip(from).take(count).cloned().collect();
        ensure!(
            found == expected,
            "{limit} before {before:?} are {found:?}, not {expected:?}"
        );
    }
    Ok(())
}

async fn add(store: &dyn Store, epoch: Epoch, settings: &StoredSettings) -> Result<(), StoreError> {
    let write = Write::AddSettings(Box::new(settings.clone()));
    let entry = sample::audit_entry("settings");
    store.commit(epoch, &[write], &entry).await.map(drop)
}
