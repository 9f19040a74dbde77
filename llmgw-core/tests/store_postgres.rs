//! The PostgreSQL store keeps the contract, and what a server adds to it.
//!
//! All tests share a server of their own. Without PostgreSQL on the machine they fail, unless
//! `LLMGW_TEST_NO_POSTGRES=1` says that this is known.
#![cfg(all(feature = "postgres", feature = "testing"))]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::{
    future::poll_fn,
    sync::{Arc, OnceLock},
    task::Poll,
    time::Duration,
};

use async_trait::async_trait;
use llmgw_core::{
    clock::Timestamp,
    cluster::{
        account::UsageRecord,
        audit::{ChainHead, NewAuditEntry, verify_chain},
        catalog::{Model, ModelDefinition},
    },
    error::{Chain, Coded},
    id::{KeyId, RequestId},
    store::{PostgresStore, Store, StoreError, StoredModel, open},
    testing::{
        postgres::{PostgresError, PostgresServer},
        store::{StoreFixture, conformance},
    },
    units::Tokens,
};
use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep, timeout};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_postgres_store_keeps_the_contract() {
    let Some(server) = server() else { return };
    conformance(|| async { InDatabase(server.database().await.unwrap()) })
        .await
        .unwrap_or_else(|found| panic!("{found}"));
}

/// The write is begun while a takeover is under way: it must wait for it, and then fail.
#[tokio::test]
async fn a_write_waits_for_a_takeover_and_sees_it() {
    let Some(server) = server() else { return };
    let url = server.database().await.unwrap();
    let store = PostgresStore::connect(&url).await.unwrap();
    let epoch = store.acquire_lease("a", LONG).await.unwrap().epoch;
    let mut other = PgConnection::connect(&url).await.unwrap();
    let mut takeover = other.begin().await.unwrap();
    run(
        &mut takeover,
        "UPDATE llmgw.lease SET epoch = epoch + 1, holder = 'b'",
    )
    .await;

    let writer = store.clone();
    let mut writing = tokio::task::JoinSet::new();
    writing.spawn(async move { writer.insert_model(epoch, &model("late")).await });
    until_someone_waits_for_a_lock(&url).await;
    assert!(writing.try_join_next().is_none(), "it did not wait");
    takeover.commit().await.unwrap();
    let written = writing.join_next().await.unwrap().unwrap();
    assert!(
        matches!(written, Err(StoreError::Fenced { .. })),
        "{written:?}"
    );
    assert!(store.models().await.unwrap().is_empty());
}

/// The takeover is begun while a write is under way: it must wait for it, so that what is read after it is all.
#[tokio::test]
async fn a_takeover_waits_for_writes_under_way() {
    let Some(server) = server() else { return };
    let url = server.database().await.unwrap();
    let store = PostgresStore::connect(&url).await.unwrap();
    store.acquire_lease("a", LONG).await.unwrap();
    let mut other = PgConnection::connect(&url).await.unwrap();
    let mut write = other.begin().await.unwrap();
    run(&mut write, "SELECT epoch FROM llmgw.lease FOR SHARE").await;

    // Other writes of the same epoch are not held up.
    let mut third = PgConnection::connect(&url).await.unwrap();
    run(&mut third, "SELECT epoch FROM llmgw.lease FOR SHARE NOWAIT").await;

    let taker = store.clone();
    let mut taking = tokio::task::JoinSet::new();
    taking.spawn(async move { taker.acquire_lease("a", LONG).await });
    until_someone_waits_for_a_lock(&url).await;
    assert!(taking.try_join_next().is_none(), "it did not wait");
    write.commit().await.unwrap();
    taking.join_next().await.unwrap().unwrap().unwrap();
}

/// A writer that locks the lease and then falls silent, as one whose machine lost its power: a future that is
/// neither polled any more nor dropped.
#[tokio::test]
async fn a_silent_writer_holds_a_takeover_up_for_seconds_only() {
    let Some(server) = server() else { return };
    let url = server.database().await.unwrap();
    let store = PostgresStore::connect(&url).await.unwrap();
    let epoch = store.acquire_lease("a", LONG).await.unwrap().epoch;
    let mut watcher = PgConnection::connect(&url).await.unwrap();
    // The database takes its time over the insertion, so that the write is seen amid its transaction.
    run(&mut watcher, SLOW).await;
    let trigger = "CREATE TRIGGER slow BEFORE INSERT ON llmgw.model EXECUTE FUNCTION llmgw.slow()";
    run(&mut watcher, trigger).await;
    let late = model("late");
    let mut write = Box::pin({
        let (store, late) = (store.clone(), late.clone());
        async move { store.insert_model(epoch, &late).await }
    });
    while !lease_is_locked(&mut watcher).await {
        let once = poll_fn(|context| Poll::Ready(write.as_mut().poll(context))).await;
        assert!(once.is_pending(), "{once:?}");
        sleep(POLL).await;
    }
    let begun = Instant::now();
    let taken = store.acquire_lease("a", LONG).await.unwrap();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(4), "it took {took:?}");
    // And when it speaks again, it is too late.
    let written = write.await;
    assert!(
        matches!(written, Err(StoreError::Unavailable { .. })),
        "{written:?}"
    );
    let models = store.models().await.unwrap();
    assert!(
        models
            .iter()
            .all(|kept| kept.model.name() != late.model.name())
    );
    store.renew_lease(taken.epoch, LONG).await.unwrap();
}

#[tokio::test]
async fn what_a_database_has_as_its_defaults_changes_nothing() {
    let Some(server) = server() else { return };
    let url = server.database().await.unwrap();
    let mut admin = PgConnection::connect(&url).await.unwrap();
    let database = url.rsplit('/').next().unwrap();
    for setting in [
        "synchronous_commit = off",
        "default_transaction_isolation = serializable",
        "default_transaction_read_only = on",
    ] {
        run(
            &mut admin,
            &format!("ALTER DATABASE {database} SET {setting}"),
        )
        .await;
    }
    let store = PostgresStore::connect(&url).await.unwrap();
    // Keeps what was in force in a write of ours.
    run(
        &mut admin,
        "CREATE TABLE seen (synchronous text, isolation text);
         CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO seen VALUES (
                 current_setting('synchronous_commit'), current_setting('transaction_isolation'));
             RETURN NULL;
         END $$;
         CREATE TRIGGER see AFTER INSERT ON llmgw.model EXECUTE FUNCTION see();",
    )
    .await;
    let epoch = store.acquire_lease("a", LONG).await.unwrap().epoch;
    store.insert_model(epoch, &model("tiny")).await.unwrap();
    let seen: (String, String) = sqlx::query_as("SELECT synchronous, isolation FROM seen")
        .fetch_one(&mut admin)
        .await
        .unwrap();
    assert_eq!(seen, ("on".to_owned(), "read committed".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_may_open_a_new_database_at_once_and_a_newer_one_is_refused() {
    let Some(server) = server() else { return };
    let url = server.database().await.unwrap();
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let url = url.clone();
        opening.spawn(async move { PostgresStore::connect(&url).await });
    }
    while let Some(opened) = opening.join_next().await {
        opened.unwrap().unwrap();
    }
    let mut connection = PgConnection::connect(&url).await.unwrap();
    run(
        &mut connection,
        "INSERT INTO llmgw.migration (version, description, success, checksum, execution_time)
         VALUES (9999, 'of a newer release', TRUE, '', 0)",
    )
    .await;
    let error = PostgresStore::connect(&url).await.unwrap_err();
    assert!(
        matches!(error, StoreError::Newer { found: 9_999, .. }),
        "{error:?}"
    );
    assert!(error.hint().unwrap().contains("newer release"));
}

#[tokio::test]
async fn a_database_of_an_earlier_release_is_brought_up_to_date() {
    let Some(server) = server() else { return };
    let url = server.database().await.unwrap();
    let store = PostgresStore::connect(&url).await.unwrap();
    let epoch = store.acquire_lease("a", LONG).await.unwrap().epoch;
    store.insert_model(epoch, &model("tiny")).await.unwrap();
    drop(store);
    // What came with the second version, taken away again.
    let mut connection = PgConnection::connect(&url).await.unwrap();
    run(
        &mut connection,
        "DROP TABLE llmgw.audit, llmgw.audit_head; DELETE FROM llmgw.migration WHERE version = 2",
    )
    .await;
    let store = PostgresStore::connect(&url).await.unwrap();
    let entry = NewAuditEntry {
        at: Timestamp(0),
        actor: "key:ops".to_owned(),
        action: "model.add".to_owned(),
        subject: "tiny".to_owned(),
    };
    let entry = store.append_audit(epoch, &entry).await.unwrap();
    let log = store.audit(0, 10).await.unwrap();
    assert_eq!(log, [entry]);
    assert_eq!(verify_chain(ChainHead::EMPTY, &log), Ok(()));
    assert_eq!(store.models().await.unwrap(), [model("tiny")]);
}

#[tokio::test]
async fn a_role_that_may_only_use_the_schema_can_open_it() {
    let Some(server) = server() else { return };
    let url = server.database().await.unwrap();
    let mut admin = PgConnection::connect(&url).await.unwrap();
    run(
        &mut admin,
        "CREATE ROLE tenant LOGIN; CREATE SCHEMA llmgw AUTHORIZATION tenant;",
    )
    .await;
    let as_tenant = url.replace("postgres@", "tenant@");
    let store = open(&as_tenant).await.unwrap();
    assert!(store.describe().contains("tenant@"), "{}", store.describe());
    store.acquire_lease("a", LONG).await.unwrap();
}

#[tokio::test]
async fn a_clock_that_was_set_back_does_not_hold_the_lease_for_ever() {
    let Some(server) = server() else { return };
    let url = server.database().await.unwrap();
    let store = PostgresStore::connect(&url).await.unwrap();
    store.acquire_lease("a", LONG).await.unwrap();
    let mut admin = PgConnection::connect(&url).await.unwrap();
    // As if it had been taken while the clock was an hour ahead.
    run(
        &mut admin,
        "UPDATE llmgw.lease SET
            renewed_at = renewed_at + interval '1 hour', expires_at = expires_at + interval '1 hour'",
    )
    .await;
    store.acquire_lease("b", LONG).await.unwrap();
    let held = store.acquire_lease("c", LONG).await.unwrap_err();
    assert!(matches!(held, StoreError::Held { .. }), "{held}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said_without_the_password() {
    let url = "postgres://me:hunter2@127.0.0.1:1/db";
    let error = open(url).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    let said = format!("{} {error:?}", Chain(&error));
    assert!(
        said.contains("connecting to PostgreSQL: Connection refused"),
        "{said}"
    );
    assert!(!said.contains("hunter2"), "{said}");

    let error = open("postgres://me:hunter2@h:port/db").await.unwrap_err();
    let said = format!("{} {error:?}", Chain(&error));
    assert!(said.contains("not a PostgreSQL URL"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}

#[tokio::test]
async fn a_thousand_records_take_well_under_a_second() {
    let Some(server) = server() else { return };
    let url = server.database().await.unwrap();
    let store = PostgresStore::connect(&url).await.unwrap();
    let records: Vec<UsageRecord> = (0..1_000).map(|_| usage()).collect();
    let begun = Instant::now();
    store.append_usage(&records).await.unwrap();
    let took = begun.elapsed();
    println!("1,000 records took {took:?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
}

struct InDatabase(String);

#[async_trait]
impl StoreFixture for InDatabase {
    async fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        open(&self.0).await
    }
}

/// The server that all tests of this process share. It ends with the process.
#[expect(clippy::print_stdout, reason = "who left tests out should see it")]
fn server() -> Option<&'static PostgresServer> {
    static SERVER: OnceLock<Option<PostgresServer>> = OnceLock::new();
    let started = SERVER.get_or_init(|| match PostgresServer::start() {
        Ok(server) => Some(server),
        Err(PostgresError::NotInstalled) if may_be_left_out() => None,
        Err(error) => panic!("{}; {}", Chain(&error), error.hint().unwrap_or_default()),
    });
    if started.is_none() {
        println!("skipped: PostgreSQL is not installed");
    }
    started.as_ref()
}

#[expect(clippy::disallowed_methods, reason = "tests have no flags")]
fn may_be_left_out() -> bool {
    std::env::var("LLMGW_TEST_NO_POSTGRES").is_ok_and(|value| value == "1")
}

async fn lease_is_locked(connection: &mut PgConnection) -> bool {
    sqlx::query("SELECT FROM llmgw.lease FOR UPDATE SKIP LOCKED")
        .fetch_optional(connection)
        .await
        .unwrap()
        .is_none()
}

async fn until_someone_waits_for_a_lock(url: &str) {
    let mut watcher = PgConnection::connect(url).await.unwrap();
    let waiting = async {
        let waits = sqlx::query_scalar::<_, bool>;
        while !waits(WAITING_FOR_LOCK)
            .fetch_one(&mut watcher)
            .await
            .unwrap()
        {
            sleep(POLL).await;
        }
    };
    timeout(LONG, waiting).await.unwrap();
}

async fn run(connection: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))
        .execute(connection)
        .await
        .unwrap();
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

const LONG: Duration = Duration::from_secs(60);
const SLOW: &str = "
    CREATE FUNCTION llmgw.slow() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN PERFORM pg_sleep(0.1); RETURN NULL; END $$";

const POLL: Duration = Duration::from_millis(2);

const WAITING_FOR_LOCK: &str = "
    SELECT EXISTS (
        SELECT FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'
    )";
