//! The first API key: made at the first start, shown once, kept as its hash.

use std::path::Path;

use llmgw_core::{
    clock::Clock,
    cluster::account::ApiKey,
    id::KeyId,
    keys::{HashingKey, KeyRing, Secret},
    store::{Epoch, Store},
};

use crate::{
    data_dir::{DataDir, read_small, write_private},
    fault::Fault,
};

/// What a start can tell of the API key.
#[derive(Debug)]
pub enum FirstKey {
    /// It was not shown yet: show it, then call [`DataDir::forget_first_key`].
    Show(Secret),
    /// It is in the file that was asked for.
    InFile,
    /// It was shown at the first start.
    ShownBefore,
}

/// Makes sure that there is a key that somebody can know.
///
/// With a `file`: that file holds a valid key afterwards; a key in it that is still known is left as it is.
/// Without: a key is made when there is none, and told.
///
/// # Errors
/// When the store or a file can't be read or written.
pub async fn ensure(
    data: &DataDir,
    file: Option<&Path>,
    hashing_key: &HashingKey,
    store: &dyn Store,
    epoch: Epoch,
    clock: &dyn Clock,
) -> Result<FirstKey, Fault> {
    let keys = store.keys().await.map_err(Fault::Store)?;
    let ring = KeyRing::new(keys.iter().cloned());
    let known = |text: &str| ring.check(hashing_key, text).is_some();

    if let Some(file) = file {
        let there = read_small(file).ok().is_some_and(|text| known(&text));
        if !there {
            refuse_what_is_no_key(file)?;
            let secret = Secret::generate().map_err(Fault::Entropy)?;
            // The file first: a key that is in the store and in no file could never be used.
            write_private(file, secret.expose())?;
            insert(&secret, "key file", hashing_key, store, epoch, clock).await?;
        }
        data.forget_first_key()?;
        return Ok(FirstKey::InFile);
    }
    if let Some(kept) = data.first_key()?.filter(|kept| known(kept)) {
        return Ok(FirstKey::Show(Secret::from_text(kept)));
    }
    if !keys.is_empty() {
        return Ok(FirstKey::ShownBefore);
    }
    let secret = Secret::generate().map_err(Fault::Entropy)?;
    data.keep_first_key(&secret)?;
    insert(&secret, "first", hashing_key, store, epoch, clock).await?;
    Ok(FirstKey::Show(secret))
}

/// A file that somebody named by mistake must not be overwritten: only one that is empty, or holds a key.
fn refuse_what_is_no_key(file: &Path) -> Result<(), Fault> {
    let wrong = |problem: &str| Fault::Settings {
        origin: format!("--api-key-file {}", file.display()),
        problem: problem.to_owned(),
        hint: Some("name a file that is not there yet".to_owned()),
    };
    let Ok(metadata) = std::fs::symlink_metadata(file) else {
        return Ok(());
    };
    if !metadata.is_file() {
        return Err(wrong("it is no ordinary file"));
    }
    let text = read_small(file).map_err(|error| wrong(&format!("it can't be read: {error}")))?;
    if text.is_empty() || text.starts_with(Secret::PREFIX) {
        return Ok(());
    }
    Err(wrong(
        "it holds something that is no API key, and is not overwritten",
    ))
}

async fn insert(
    secret: &Secret,
    name: &str,
    hashing_key: &HashingKey,
    store: &dyn Store,
    epoch: Epoch,
    clock: &dyn Clock,
) -> Result<(), Fault> {
    let key = ApiKey {
        id: KeyId::generate(),
        name: name.to_owned(),
        hash: hashing_key.hash(secret.expose()),
        created_at: clock.now(),
    };
    store.insert_key(epoch, &key).await.map_err(Fault::Store)
}
