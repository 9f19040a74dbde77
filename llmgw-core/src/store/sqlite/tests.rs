use std::fs;

use tempfile::TempDir;

use super::*;
use crate::{cluster::account::KeyHash, error::Chain};

const LONG: Duration = Duration::from_secs(600);

fn key(name: String) -> ApiKey {
    ApiKey::new(KeyId::generate(), name, KeyHash([7; 32]), Timestamp(0))
}

async fn pragma(store: &SqliteStore, text: &'static str) -> i64 {
    sqlx::query_scalar(text)
        .fetch_one(&store.writer)
        .await
        .unwrap()
}

/// SQLite's own limit on a file's size stands for the disk.
#[tokio::test]
async fn writes_go_on_when_a_full_disk_has_room_again() {
    let directory = TempDir::new().unwrap();
    let store = SqliteStore::open(directory.path().join("s.db"))
        .await
        .unwrap();
    let epoch = store.acquire_lease("a", LONG).await.unwrap().epoch;
    assert!(pragma(&store, "PRAGMA max_page_count = 40").await <= 40);
    let mut kept = 0;
    let full = loop {
        match store.insert_key(epoch, &key("k".repeat(9_000))).await {
            Ok(()) => kept += 1,
            Err(error) => break error,
        }
    };
    assert!(Chain(&full).to_string().contains("full"), "{full:?}");
    pragma(&store, "PRAGMA max_page_count = 4000").await;
    for _ in 0..3 {
        let added = store.insert_key(epoch, &key("k".repeat(9_000))).await;
        added.unwrap();
        kept += 1;
        store.renew_lease(epoch, LONG).await.unwrap();
    }
    assert_eq!(store.keys().await.unwrap().len(), kept);
}

#[tokio::test]
async fn who_gives_the_lease_up_leaves_the_whole_in_one_file() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("s.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let epoch = store.acquire_lease("a", LONG).await.unwrap().epoch;
    store
        .insert_key(epoch, &key("ops".to_owned()))
        .await
        .unwrap();
    // A reader that has read does not keep the log.
    store.keys().await.unwrap();
    let log = directory.path().join("s.db-wal");
    assert!(fs::metadata(&log).unwrap().len() > 0);
    store.release_lease(epoch).await.unwrap();
    assert_eq!(fs::metadata(&log).unwrap().len(), 0);

    let copy = directory.path().join("copy.db");
    fs::copy(&path, &copy).unwrap();
    let keys = SqliteStore::open(&copy)
        .await
        .unwrap()
        .keys()
        .await
        .unwrap();
    assert_eq!(keys.len(), 1);
}

#[tokio::test]
async fn a_damaged_file_is_named() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("s.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let epoch = store.acquire_lease("a", LONG).await.unwrap().epoch;
    for _ in 0..40 {
        store
            .insert_key(epoch, &key("k".repeat(900)))
            .await
            .unwrap();
    }
    store.release_lease(epoch).await.unwrap();
    drop(store);
    let whole = fs::read(&path).unwrap();

    // From its first byte: it is no database any more.
    fs::write(&path, vec![b'x'; whole.len()]).unwrap();
    let error = SqliteStore::open(&path).await.unwrap_err();
    named(&error, "s.db from the store: file is not a database");

    // Further on: only who reads there sees it.
    let mut torn = whole.clone();
    let half = torn.len() / 2;
    torn.iter_mut().skip(half).for_each(|byte| *byte = 0x55);
    fs::write(&path, torn).unwrap();
    let error = match SqliteStore::open(&path).await {
        Ok(store) => store.keys().await.unwrap_err(),
        Err(error) => error,
    };
    named(
        &error,
        "s.db from the store: database disk image is malformed",
    );
}

fn named(error: &StoreError, said: &str) {
    let chain = Chain(error).to_string();
    assert!(matches!(error, StoreError::Unreadable { .. }), "{chain}");
    assert!(chain.contains(said), "{chain}");
}

/// What a loss of power leaves can't be tried here; that SQLite was told to wait for the disk can.
#[tokio::test]
async fn a_write_waits_for_the_disk() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("s.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let journal: String = sqlx::query_scalar("PRAGMA journal_mode")
        .fetch_one(&store.writer)
        .await
        .unwrap();
    let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous")
        .fetch_one(&store.writer)
        .await
        .unwrap();
    // 2 is FULL.
    assert_eq!((journal.as_str(), synchronous), ("wal", 2));
}
