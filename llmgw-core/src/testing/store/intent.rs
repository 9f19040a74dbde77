//! Models and keys.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{
    Checked, StoreFixture, ensure,
    lease::unexpected,
    sample::{self, LONG, polled},
};
use crate::{
    clock::Timestamp,
    cluster::account::ApiKey,
    id::KeyId,
    store::{StoreError, StoredModel},
};

pub(super) async fn models_come_back_as_they_were_and_in_order(
    fixture: &dyn StoreFixture,
) -> Checked {
    let store = fixture.open().await?;
    ensure!(store.models().await?.is_empty(), "a new store has models");
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    // In the order of their bytes, which is not that of any language.
    let in_order = [
        "1", "10", "2", "B", "Zed", "a", "a+b", "a-b", "a.b", "a/b", "a0", "a:b", "a@b", "aB",
        "a_b", "ab", "z",
    ];
    let mut models = in_order
        .iter()
        .map(|name| sample::model(name))
        .collect::<Result<Vec<StoredModel>, _>>()?;
    for (index, model) in models.iter_mut().enumerate() {
        model.added_at = [i64::MIN, -1, 0, 1, i64::MAX]
            .get(index)
            .map_or(sample::NOW, |millis| Timestamp(*millis));
    }
    for model in models.iter().rev() {
        store.insert_model(epoch, model).await?;
    }
    let found = store.models().await?;
    ensure!(
        found == models,
        "{:?} came back as {found:?}",
        sample::model_names(&*store).await?
    );
    Ok(())
}

pub(super) async fn keys_come_back_as_they_were_and_in_order(
    fixture: &dyn StoreFixture,
) -> Checked {
    let store = fixture.open().await?;
    ensure!(store.keys().await?.is_empty(), "a new store has keys");
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    // The same name twice is nothing special: keys are told apart by their ids.
    let mut keys: Vec<ApiKey> = (0..20)
        .map(|index| sample::key(["a", "b"][index % 2]))
        .collect();
    keys.sort_by_key(|key| key.id);
    for (key, millis) in keys.iter_mut().zip([i64::MIN, -1, 0, 1, i64::MAX]) {
        key.created_at = Timestamp(millis);
        key.expires_at = Some(Timestamp(millis));
        key.level = "acme/search".parse()?;
        key.limits = sample::limits(&["b", "a/b"])?;
    }
    for key in keys.iter().rev() {
        store.insert_key(epoch, key).await?;
    }
    let found = store.keys().await?;
    ensure!(found == keys, "{keys:?} came back as {found:?}");
    for (found, key) in found.iter().zip(&keys) {
        ensure!(found.hash == key.hash, "the hash of {} changed", key.id);
    }
    Ok(())
}

pub(super) async fn what_exists_is_not_replaced(fixture: &dyn StoreFixture) -> Checked {
    let (store, other) = (fixture.open().await?, fixture.open().await?);
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    let model = sample::model_described("m", "first")?;
    let key = sample::key("first");
    store.insert_model(epoch, &model).await?;
    store.insert_key(epoch, &key).await?;
    let second = sample::model_described("m", "second")?;
    let renamed = ApiKey {
        name: "second".to_owned(),
        ..key.clone()
    };
    for handle in [&store, &other] {
        match handle.insert_model(epoch, &second).await {
            Err(StoreError::Exists { what }) => {
                ensure!(what.contains('m'), "{what:?} does not name the model");
            }
            answer => return Err(unexpected("Exists", answer)),
        }
        match handle.insert_key(epoch, &renamed).await {
            Err(StoreError::Exists { what }) => {
                ensure!(
                    what.contains(&key.id.to_string()),
                    "{what:?} does not name the key"
                );
            }
            answer => return Err(unexpected("Exists", answer)),
        }
    }
    ensure!(store.models().await? == [model], "the model was replaced");
    ensure!(store.keys().await? == [key], "the key was replaced");
    Ok(())
}

pub(super) async fn deleting_says_whether_it_was_there(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    let (model, stays) = (sample::model("m")?, sample::model("stays")?);
    let (key, key_stays) = (sample::key("k"), sample::key("stays"));
    store.insert_model(epoch, &stays).await?;
    store.insert_key(epoch, &key_stays).await?;
    for round in 0..2 {
        let name = model.model.name();
        ensure!(
            !store.delete_model(epoch, name).await?,
            "an absent model was deleted in round {round}"
        );
        store.insert_model(epoch, &model).await?;
        ensure!(
            store.delete_model(epoch, name).await?,
            "a model was not deleted in round {round}"
        );
        ensure!(
            !store.delete_key(epoch, key.id).await?,
            "an absent key was deleted in round {round}"
        );
        store.insert_key(epoch, &key).await?;
        ensure!(
            store.delete_key(epoch, key.id).await?,
            "a key was not deleted in round {round}"
        );
    }
    ensure!(
        !store.delete_key(epoch, KeyId::generate()).await?,
        "a key that never was"
    );
    let names = sample::model_names(&*store).await?;
    ensure!(names == ["stays"], "{names:?} are left");
    ensure!(
        store.keys().await? == [key_stays],
        "the wrong key was deleted"
    );
    Ok(())
}

pub(super) async fn texts_come_back_as_they_were(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    let long = "漢".repeat(1_000);
    for (index, text) in TEXTS.iter().copied().chain([long.as_str()]).enumerate() {
        let model = sample::model_described(&format!("m{index}"), text)?;
        let key = sample::key(text);
        let may_be_refused = text.contains('\0');
        match store.insert_model(epoch, &model).await {
            Err(StoreError::Refused { .. }) if may_be_refused => {}
            written => {
                written?;
                let found = store.models().await?;
                ensure!(found.contains(&model), "{text:?} came back as {found:?}");
            }
        }
        match store.insert_key(epoch, &key).await {
            Err(StoreError::Refused { .. }) if may_be_refused => {}
            written => {
                written?;
                let found = store.keys().await?;
                ensure!(found.contains(&key), "{text:?} came back as {found:?}");
            }
        }
    }
    Ok(())
}

pub(super) async fn a_write_is_seen_by_every_handle_at_once(fixture: &dyn StoreFixture) -> Checked {
    let handles = [fixture.open().await?, fixture.open().await?];
    let [one, other] = &handles;
    let epoch = one.acquire_lease("a", LONG).await?.epoch;
    for round in 0..20 {
        for (writer, reader) in [(one, other), (other, one)] {
            let model = sample::model(&format!("m{round}"))?;
            let key = sample::key("k");
            writer.insert_model(epoch, &model).await?;
            ensure!(
                reader.models().await? == [model.clone()],
                "a model was not seen in round {round}"
            );
            writer.insert_key(epoch, &key).await?;
            ensure!(
                reader.keys().await? == [key.clone()],
                "a key was not seen in round {round}"
            );
            writer.delete_model(epoch, model.model.name()).await?;
            ensure!(
                reader.models().await?.is_empty(),
                "a deleted model was seen in round {round}"
            );
            writer.delete_key(epoch, key.id).await?;
            ensure!(
                reader.keys().await?.is_empty(),
                "a deleted key was seen in round {round}"
            );
            let used = sample::usage(&format!("m{round}"), key.id)?;
            writer.append_usage(&[used]).await?;
            let totals = reader.usage_totals(Timestamp(0), None).await?;
            ensure!(
                totals.iter().any(|total| total.key == key.id),
                "usage was not seen in round {round}"
            );
        }
    }
    Ok(())
}

pub(super) async fn what_was_written_outlives_all_handles(fixture: &dyn StoreFixture) -> Checked {
    let (model, key) = (sample::model("m")?, sample::key("k"));
    let epoch = {
        let store = fixture.open().await?;
        let epoch = store.acquire_lease("a", LONG).await?.epoch;
        store.insert_model(epoch, &model).await?;
        store.insert_key(epoch, &key).await?;
        store.append_usage(&[sample::usage("m", key.id)?]).await?;
        epoch
    };
    let store = fixture.open().await?;
    ensure!(
        store.models().await? == [model.clone()],
        "the model is lost"
    );
    ensure!(store.keys().await? == [key.clone()], "the key is lost");
    let totals = store.usage_totals(Timestamp(0), None).await?;
    ensure!(totals.len() == 1, "the usage became {totals:?}");
    match store.acquire_lease("b", LONG).await {
        Err(StoreError::Held { holder, .. }) if holder == "a" => {}
        answer => return Err(unexpected("Held by a", answer)),
    }
    ensure!(
        store.delete_model(epoch, model.model.name()).await?,
        "the epoch is lost"
    );
    ensure!(store.delete_key(epoch, key.id).await?, "the epoch is lost");
    Ok(())
}

pub(super) async fn a_dropped_write_is_whole_or_nothing_and_spoils_no_later_one(
    fixture: &dyn StoreFixture,
) -> Checked {
    let (store, other) = (fixture.open().await?, fixture.open().await?);
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    for polls in 1..=DROPS {
        let model = sample::model(&format!("m{polls}"))?;
        let dropped = polled(polls, store.insert_model(epoch, &model)).await;
        // What follows on the same handle is acknowledged for good, and seen by another.
        let key = sample::key("after");
        store.insert_key(epoch, &key).await?;
        ensure!(
            other.keys().await?.contains(&key),
            "a write was acknowledged and lost, after one that was dropped at poll {polls}"
        );
        let was_there = other.models().await?.contains(&model);
        match (dropped, store.insert_model(epoch, &model).await) {
            (Some(written), Err(StoreError::Exists { .. })) => written?,
            (None, Err(StoreError::Exists { .. })) => {}
            (None, Ok(())) => ensure!(!was_there, "a model was there, and then was not"),
            (_, answer) => return Err(unexpected("whole or nothing", answer)),
        }
        ensure!(
            other.models().await?.contains(&model),
            "a model exists and is not listed, after a write that was dropped at poll {polls}"
        );
        drop(polled(polls, store.renew_lease(epoch, LONG)).await);
        drop(polled(polls, store.delete_key(epoch, key.id)).await);
        drop(polled(polls, store.models()).await);
        store.renew_lease(epoch, LONG).await?;
    }
    // A lease may have been taken by a call that was dropped; that, too, is whole.
    let mut last = epoch;
    for polls in 1..=DROPS {
        drop(polled(polls, store.acquire_lease("a", LONG)).await);
        let next = store.acquire_lease("a", LONG).await?.epoch;
        ensure!(last < next, "{last:?} was followed by {next:?}");
        other.renew_lease(next, LONG).await?;
        drop(polled(polls, store.release_lease(last)).await);
        last = next;
    }
    Ok(())
}

pub(super) async fn calls_may_be_made_at_the_same_time(fixture: &dyn StoreFixture) -> Checked {
    let store = fixture.open().await?;
    let epoch = store.acquire_lease("a", LONG).await?.epoch;
    let mut calling: JoinSet<Checked> = JoinSet::new();
    for index in 0..24 {
        let store = Arc::clone(&store);
        calling.spawn(async move {
            let (model, key) = (sample::model(&format!("m{index}"))?, sample::key("k"));
            store.insert_model(epoch, &model).await?;
            store.insert_key(epoch, &key).await?;
            let used = sample::batch("m", key.id, 10)?;
            store.append_usage(&used).await?;
            store.renew_lease(epoch, LONG).await?;
            ensure!(store.models().await?.contains(&model), "its model is gone");
            ensure!(store.keys().await?.contains(&key), "its key is gone");
            if index % 2 == 0 {
                store.delete_model(epoch, model.model.name()).await?;
                store.delete_key(epoch, key.id).await?;
            }
            Ok(())
        });
    }
    while let Some(called) = calling.join_next().await {
        called??;
    }
    let (models, keys) = (store.models().await?.len(), store.keys().await?.len());
    ensure!(
        models == 12 && keys == 12,
        "{models} models and {keys} keys are left of 12 each"
    );
    let used: u64 = store
        .usage_totals(Timestamp(0), None)
        .await?
        .iter()
        .map(|total| total.requests)
        .sum();
    ensure!(used == 240, "{used} of 240 requests are in the accounts");
    Ok(())
}

/// What has broken someone's store before.
pub(super) const TEXTS: &[&str] = &[
    "",
    " ",
    "'",
    "''",
    "\"; DROP TABLE model; --",
    "\\' \\\\ \\n %s %d ${HOME} $1 ?1 :a @b {}",
    "line\nbreak\r\nand\ttab",
    "ñandú 漢字 🦀 e\u{301} \u{feff}\u{200b}\u{202e}",
    "\u{1}\u{7f}\u{fffd}\u{ffff}\u{10ffff}",
    "NULL",
    "{\"json\": [1]}",
    "a\0b",
];

/// More places than any store waits at in one write.
const DROPS: usize = 40;
