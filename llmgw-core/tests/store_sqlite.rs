//! The SQLite store keeps the contract, and what a file adds to it.
#![cfg(all(feature = "sqlite", feature = "testing"))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use llmgw_core::{
    clock::Timestamp,
    cluster::{
        account::UsageRecord,
        audit::{ChainHead, ChainProblem, NewAuditEntry, verify_chain},
        catalog::{Model, ModelDefinition},
    },
    error::{Chain, Coded},
    id::{KeyId, RequestId},
    store::{Epoch, SqliteStore, Store, StoreError, StoredModel, open},
    testing::store::{StoreFixture, conformance},
    units::Tokens,
};
use sqlx::{ConnectOptions, Connection, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sqlite_store_keeps_the_contract() {
    conformance(|| async { InDirectory(TempDir::new().unwrap()) })
        .await
        .unwrap_or_else(|found| panic!("{found}"));
}

#[tokio::test]
async fn only_its_owner_can_read_the_files() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("s.db");
    let store = SqliteStore::open(&path).await.unwrap();
    store.acquire_lease("a", LONG).await.unwrap();
    for name in ["s.db", "s.db-wal", "s.db-shm"] {
        let mode = fs::metadata(directory.path().join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    // One whose mode was changed on purpose is left so.
    drop(store);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    SqliteStore::open(&path).await.unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o640
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_may_open_a_new_file_at_once() {
    for _ in 0..5 {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("s.db");
        let mut opening = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let path = path.clone();
            opening.spawn(async move { SqliteStore::open(&path).await });
        }
        while let Some(opened) = opening.join_next().await {
            opened.unwrap().unwrap();
        }
    }
}

#[tokio::test]
async fn a_file_of_a_newer_release_is_refused_and_left_as_it_is() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("s.db");
    drop(SqliteStore::open(&path).await.unwrap());
    execute(
        &path,
        "INSERT INTO migration (version, description, success, checksum, execution_time)
         VALUES (9999, 'of a newer release', TRUE, x'00', 0)",
    )
    .await;
    let error = SqliteStore::open(&path).await.unwrap_err();
    assert!(
        matches!(error, StoreError::Newer { found: 9_999, .. }),
        "{error:?}"
    );
    assert!(error.hint().unwrap().contains("newer release"));
    execute(&path, "DELETE FROM migration WHERE version = 9999").await;
    SqliteStore::open(&path).await.unwrap();
}

#[tokio::test]
async fn a_file_of_an_earlier_release_is_brought_up_to_date() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("s.db");
    fs::write(&path, "").unwrap();
    execute(&path, include_str!("store_sqlite/schema_1.sql")).await;
    for seq in [1, 2] {
        let store = SqliteStore::open(&path).await.unwrap();
        let models = store.models().await.unwrap();
        let names: Vec<&str> = models.iter().map(|m| m.model.name().as_str()).collect();
        assert_eq!(names, ["r0-0", "r0-1"]);
        let keys = store.keys().await.unwrap();
        assert_eq!((keys.len(), keys[0].name.as_str()), (1, "ops"));
        let totals = store.usage_totals(Timestamp(0), None).await.unwrap();
        assert_eq!((totals.len(), totals[0].prompt_tokens), (1, Tokens(100)));
        // The epochs go on where they were.
        let epoch = store.acquire_lease("writer", LONG).await.unwrap().epoch;
        assert_eq!(epoch, Epoch(1 + seq));
        let entry = store.append_audit(epoch, &audit_entry("m")).await.unwrap();
        assert_eq!(entry.seq, seq);
        let log = store.audit(0, 10).await.unwrap();
        assert_eq!(verify_chain(ChainHead::EMPTY, &log), Ok(()));
        assert_eq!(log.last(), Some(&entry));
    }
}

/// Who can write the file can change the log; not so that nobody sees it.
#[tokio::test]
async fn an_audit_log_that_was_changed_by_hand_shows_it() {
    for (sql, seq, problem) in [
        (
            "UPDATE audit SET actor = 'nobody' WHERE seq = 2",
            2,
            ChainProblem::Changed,
        ),
        (
            "DELETE FROM audit WHERE seq = 2",
            2,
            ChainProblem::Displaced { by: 3 },
        ),
        // From the end: the number is not given again.
        (
            "DELETE FROM audit WHERE seq = 3",
            3,
            ChainProblem::Displaced { by: 4 },
        ),
        (
            "UPDATE audit SET seq = 9 WHERE seq = 2; UPDATE audit SET seq = 2 WHERE seq = 3;
             UPDATE audit SET seq = 3 WHERE seq = 9",
            2,
            ChainProblem::Detached,
        ),
    ] {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("s.db");
        let store = SqliteStore::open(&path).await.unwrap();
        let epoch = store.acquire_lease("a", LONG).await.unwrap().epoch;
        for subject in ["one", "two", "three"] {
            let entry = audit_entry(subject);
            store.append_audit(epoch, &entry).await.unwrap();
        }
        let log = store.audit(0, 10).await.unwrap();
        assert_eq!(verify_chain(ChainHead::EMPTY, &log), Ok(()));
        execute(&path, sql).await;
        let next = store.append_audit(epoch, &audit_entry("four")).await;
        assert_eq!(next.unwrap().seq, 4, "{sql}");
        let log = store.audit(0, 10).await.unwrap();
        let found = verify_chain(ChainHead::EMPTY, &log).unwrap_err();
        assert_eq!((found.seq, found.problem), (seq, problem), "{sql}");
    }
}

#[tokio::test]
async fn what_cannot_be_opened_is_said_with_its_path() {
    let directory = TempDir::new().unwrap();
    let missing = directory.path().join("no/s.db");
    let error = SqliteStore::open(&missing).await.unwrap_err();
    let said = Chain(&error).to_string();
    assert!(
        said.contains("no/s.db") && said.contains("No such file"),
        "{said}"
    );

    let text = directory.path().join("text");
    fs::write(&text, "this is no database".repeat(100)).unwrap();
    let said = Chain(&SqliteStore::open(&text).await.unwrap_err()).to_string();
    assert!(said.contains("not a database"), "{said}");
    assert_eq!(said.matches("not a database").count(), 1, "{said}");

    let said = Chain(&SqliteStore::open(directory.path()).await.unwrap_err()).to_string();
    assert!(said.contains("unable to open"), "{said}");
}

#[tokio::test]
async fn odd_file_names_are_files() {
    let directory = TempDir::new().unwrap();
    for name in ["file:x?mode=memory", ":memory:", "a b%20ñ#.db", "x?y=z"] {
        let path = directory.path().join(name);
        let url = format!("sqlite:{}", path.display());
        let store = open(&url).await.unwrap();
        assert!(path.is_file(), "{name}");
        assert_eq!(store.describe(), url);
    }
}

#[tokio::test]
async fn a_clock_that_was_set_back_does_not_hold_the_lease_for_ever() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("s.db");
    let store = SqliteStore::open(&path).await.unwrap();
    store.acquire_lease("a", LONG).await.unwrap();
    let ahead = |hours: i64| {
        let by = hours * 3_600_000;
        format!("UPDATE lease SET renewed_at = renewed_at + {by}, expires_at = expires_at + {by}")
    };
    // As if it had been taken while the clock was an hour ahead.
    let held = store.acquire_lease("b", LONG).await.unwrap_err();
    assert!(matches!(held, StoreError::Held { .. }), "{held}");
    execute(&path, &ahead(1)).await;
    store.acquire_lease("b", LONG).await.unwrap();
    let held = store.acquire_lease("c", LONG).await.unwrap_err();
    assert!(matches!(held, StoreError::Held { .. }), "{held}");
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_named() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("s.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let epoch = store.acquire_lease("a", LONG).await.unwrap().epoch;
    store.insert_model(epoch, &model("tiny")).await.unwrap();
    execute(&path, "UPDATE model SET definition = '{}'").await;
    let error = store.models().await.unwrap_err();
    assert_eq!(error.to_string(), "reading model tiny from the store");
}

#[tokio::test]
async fn a_thousand_records_take_well_under_a_second() {
    let directory = TempDir::new().unwrap();
    let store = SqliteStore::open(directory.path().join("s.db"))
        .await
        .unwrap();
    let records: Vec<UsageRecord> = (0..1_000).map(|_| usage()).collect();
    let begun = tokio::time::Instant::now();
    store.append_usage(&records).await.unwrap();
    let took = begun.elapsed();
    println!("1,000 records took {took:?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// Writes in another process, kills that at some moment, and looks for everything that it had acknowledged.
#[tokio::test]
async fn what_was_acknowledged_outlives_a_killed_process() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("s.db");
    let mut expected: Vec<String> = Vec::new();
    let mut last = Epoch(0);
    for round in 0..6_usize {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "writes_until_it_is_killed",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env(CHILD_FILE, &path)
            .env(CHILD_ROUND, round.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged: Vec<String> = Vec::new();
        // The kill falls at another place of a write in each round.
        while acknowledged.len() < 5 + 7 * round {
            let line = lines
                .next()
                .expect("the child writes until it is killed")
                .unwrap();
            if let Some((_, name)) = line.split_once(ACKNOWLEDGED) {
                acknowledged.push(name.to_owned());
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had said before it died counts too.
        for line in lines.map_while(Result::ok) {
            if let Some((_, name)) = line.split_once(ACKNOWLEDGED) {
                acknowledged.push(name.to_owned());
            }
        }
        expected.extend(acknowledged);
        let store = SqliteStore::open(&path).await.unwrap();
        let models = store.models().await.unwrap();
        let names: Vec<&str> = models.iter().map(|m| m.model.name().as_str()).collect();
        for name in &expected {
            assert!(
                names.contains(&name.as_str()),
                "{name} was lost in round {round}"
            );
        }
        let next = store.acquire_lease("writer", LONG).await.unwrap().epoch;
        assert!(last < next);
        last = next;
    }
}

#[tokio::test]
#[ignore = "is started, and killed, by what_was_acknowledged_outlives_a_killed_process"]
#[expect(
    clippy::disallowed_methods,
    reason = "is told by its parent what to do"
)]
async fn writes_until_it_is_killed() {
    let path = std::env::var(CHILD_FILE).unwrap();
    let round = std::env::var(CHILD_ROUND).unwrap();
    let store = SqliteStore::open(path).await.unwrap();
    let epoch = store.acquire_lease("writer", LONG).await.unwrap().epoch;
    for index in 0.. {
        let name = format!("r{round}-{index}");
        store.insert_model(epoch, &model(&name)).await.unwrap();
        println!("{ACKNOWLEDGED}{name}");
    }
}

struct InDirectory(TempDir);

#[async_trait]
impl StoreFixture for InDirectory {
    async fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        let path = self.0.path().join("store.db");
        open(&format!("sqlite:{}", path.display())).await
    }
}

fn model(name: &str) -> StoredModel {
    let definition: ModelDefinition = serde_json::from_value(serde_json::json!({
        "name": name,
        "source": "file:/models/tiny.gguf",
        "profiles": [{"memory": "1GiB"}],
    }))
    .unwrap();
    StoredModel {
        model: Model::try_from(definition).unwrap(),
        added_at: Timestamp(0),
    }
}

fn audit_entry(subject: &str) -> NewAuditEntry {
    NewAuditEntry {
        at: Timestamp(0),
        actor: "key:ops".to_owned(),
        action: "model.add".to_owned(),
        subject: subject.to_owned(),
    }
}

fn usage() -> UsageRecord {
    UsageRecord {
        request: RequestId::generate(),
        key: KeyId::generate(),
        model: "tiny".parse().unwrap(),
        replica: None,
        prompt_tokens: Tokens(1),
        cached_tokens: Tokens(0),
        completion_tokens: Tokens(1),
        estimated: false,
        status: 200,
        started_at: Timestamp(0),
        duration: Duration::ZERO,
        time_to_first_token: None,
        level: Default::default(),
        cost: Default::default(),
        guard: Vec::new(),
    }
}

async fn execute(path: &PathBuf, sql: &str) {
    let options = SqliteConnectOptions::new().filename(path);
    let mut connection = options.connect().await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
}

const LONG: Duration = Duration::from_secs(600);
const CHILD_FILE: &str = "LLMGW_TEST_CHILD_FILE";
const CHILD_ROUND: &str = "LLMGW_TEST_CHILD_ROUND";
const ACKNOWLEDGED: &str = "acknowledged ";

#[tokio::test]
async fn nothing_is_written_into_a_file_that_is_not_at_its_place_any_more() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("s.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let epoch = store.acquire_lease("a", LONG).await.unwrap().epoch;
    store.insert_model(epoch, &model("tiny")).await.unwrap();
    let aside = directory.path().join("aside.db");
    fs::rename(&path, &aside).unwrap();
    let error = store.insert_model(epoch, &model("lost")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    let said = Chain(&error).to_string();
    assert!(said.contains("removed") && said.contains("s.db"), "{said}");
    fs::write(&path, "another").unwrap();
    let error = store.renew_lease(epoch, LONG).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    fs::rename(&aside, &path).unwrap();
    store.insert_model(epoch, &model("kept")).await.unwrap();
    assert_eq!(store.models().await.unwrap().len(), 2);
}
