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
    let hash = hashing_key.hash(secret.expose());
    let key = ApiKey::new(KeyId::generate(), name, hash, clock.now());
    store.insert_key(epoch, &key).await.map_err(Fault::Store)
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc, time::Duration};

    use llmgw_core::{clock::SystemClock, store::MemoryStore};
    use tempfile::TempDir;

    use super::*;

    /// A control plane's first steps, without the rest of it.
    struct Start {
        directory: TempDir,
        data: DataDir,
        hashing_key: HashingKey,
        store: MemoryStore,
        epoch: Epoch,
    }

    impl Start {
        async fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let data = DataDir::open(&directory.path().join("data")).unwrap();
            let hashing_key = data.hashing_key().unwrap();
            let store = MemoryStore::new(Arc::new(SystemClock::new()));
            let lease = store.acquire_lease("a", Duration::from_secs(60)).await;
            Self {
                epoch: lease.unwrap().epoch,
                directory,
                data,
                hashing_key,
                store,
            }
        }

        async fn ensure(&self, file: &Path) -> Result<FirstKey, Fault> {
            let clock = SystemClock::new();
            let Self {
                data,
                hashing_key,
                store,
                epoch,
                ..
            } = self;
            ensure(data, Some(file), hashing_key, store, *epoch, &clock).await
        }

        async fn keys(&self) -> usize {
            self.store.keys().await.unwrap().len()
        }
    }

    #[tokio::test]
    async fn a_file_that_holds_no_key_is_refused_and_left_as_it_is() {
        let start = Start::new().await;
        let file = start.directory.path().join("notes");
        let long = "sk".repeat(3_000);
        for text in ["buy milk\n", "sk-other-service", &long] {
            fs::write(&file, text).unwrap();
            let fault = start.ensure(&file).await.unwrap_err();
            let said = fault.render();
            assert!(
                said.contains("notes: it holds something that is no API key"),
                "{said}"
            );
            assert!(fault.is_usage() && fault.hint().is_some(), "{said}");
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        fs::write(&file, [0xff, 0xfe]).unwrap();
        start.ensure(&file).await.unwrap_err();
        assert_eq!(fs::read(&file).unwrap(), [0xff, 0xfe]);
        assert_eq!(start.keys().await, 0);
    }

    #[tokio::test]
    async fn what_is_no_ordinary_file_is_refused() {
        let start = Start::new().await;
        let target = start.directory.path().join("target");
        fs::write(&target, "").unwrap();
        let link = start.directory.path().join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        for file in [&link, start.directory.path()] {
            let said = start.ensure(file).await.unwrap_err().render();
            assert!(said.contains("it is no ordinary file"), "{said}");
        }
        assert_eq!(start.keys().await, 0);
    }

    #[tokio::test]
    async fn a_key_that_is_known_stays_and_another_is_replaced() {
        let start = Start::new().await;
        let file = start.directory.path().join("key");
        fs::write(&file, "").unwrap();
        let made = start.ensure(&file).await.unwrap();
        assert!(matches!(made, FirstKey::InFile), "{made:?}");
        let key = fs::read_to_string(&file).unwrap();
        assert!(key.starts_with(Secret::PREFIX));
        start.ensure(&file).await.unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), key);
        assert_eq!(start.keys().await, 1);

        // A key of another data directory, or one that was revoked, opens nothing here.
        let stale = Secret::generate().unwrap();
        fs::write(&file, stale.expose()).unwrap();
        start.ensure(&file).await.unwrap();
        let next = fs::read_to_string(&file).unwrap();
        assert!(next.trim() != stale.expose() && next.starts_with(Secret::PREFIX));
        assert_eq!(start.keys().await, 2);
    }

    #[tokio::test]
    async fn a_directory_that_is_not_there_is_named_with_what_helps() {
        let start = Start::new().await;
        let file = start.directory.path().join("no/key");
        let said = start.ensure(&file).await.unwrap_err().render();
        assert!(
            said.contains("writing ") && said.contains("no/key"),
            "{said}"
        );
        assert!(said.contains("hint: make the directory "), "{said}");
        assert_eq!(start.keys().await, 0);
    }
}
