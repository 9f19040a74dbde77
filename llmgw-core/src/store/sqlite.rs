//! The store of a cluster with one control plane: a SQLite file.
//!
//! # What we store, why, and what not
//! | table | holds | why |
//! |---|---|---|
//! | `lease` | one row: the epoch counter, who holds it, until when | fencing; the row is never deleted, because the counter must only rise |
//! | `model` | the definition as JSON | intent: nobody else knows it |
//! | `level` | organisations, teams, projects and what is limited there, as JSON | intent |
//! | `api_key` | name, level, end, limits and keyed hash | intent; the secret is not stored |
//! | `usage` | a row for each request | accounts; the request's id makes a repeated batch harmless |
//! | `price` | what models cost, from when on | a call costs what was valid then |
//! | `quota_share` | what each gateway has spent and holds of each limit | a limit holds for all gateways together |
//! | `audit` | a row for each thing done, chained by hashes | who did what; rows are only ever added |
//! | `standing_order` | what operators ordered, as JSON, one row a subject | intent |
//! | `operator_token` | name, role and keyed hash | who may use the admin API; the secret is not stored |
//! | `settings` | every version of the cluster's own settings | intent; what was in force can be brought back |
//! | `capacity` | what a model was measured to do on a profile, as JSON | measuring takes minutes |
//! | `audit_head` | one row: the last entry's number and hash | numbers are given once, even if rows were removed by hand |
//!
//! Nodes, replicas and what is on their disks are not stored: agents tell it, and it is known again a heartbeat
//! after a restart.
//!
//! # How
//! * The write-ahead log with `synchronous=FULL`: a write that was acknowledged survives a loss of power, which
//!   `NORMAL` doesn't promise.
//! * Every write begins with `BEGIN IMMEDIATE`, so that the lease that it checks can't change before it commits.
//! * One connection writes, a few read; readers are not stopped by the writer.
//! * The files can be read by their owner only. SQLite gives the log the mode of the database.
//! * Leases run on this machine's wall clock, as SQLite tells it, because it is the only one that outlives the
//!   process. Should the clock be set back, a lease that claims more than twice its length counts as run out.
//!
//! A network file system will not do: its locks can't be trusted, and the log needs shared memory.

mod file;
mod schema;
mod settings;
mod shares;
mod writes;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::LazyLock,
    time::Duration,
};

use async_trait::async_trait;
use sqlx::{
    Sqlite, Transaction,
    query::Query,
    sqlite::{
        SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
        SqliteSynchronous,
    },
};

use super::{
    Epoch, Lease, Store, StoreError, StoredModel, UsageStep, UsageTotal, Write,
    rows::{self, AuditRow, GuardedRow, KeyRow, ModelRow, TotalRow},
};
use crate::{
    clock::Timestamp,
    cluster::{
        account::{ApiKey, OperatorToken, UsageRecord},
        audit::{AuditEntry, NewAuditEntry},
        capacity::Capacity,
        guard::GuardedCall,
        order::StoredOrder,
        settings::{AboutSettings, StoredSettings},
        tenancy::{
            Level, Price,
            quota::{Quota, Share, ShareAsk, Standing},
        },
    },
    id::{GatewayId, KeyId, ModelName},
};

/// Keeps everything in a SQLite file. Another handle, in this process or another, may be open on the same file.
#[derive(Clone)]
pub struct SqliteStore {
    path: PathBuf,
    /// Which file that is: device and inode.
    file: (u64, u64),
    /// Of one connection.
    writer: SqlitePool,
    readers: SqlitePool,
}

// === impl SqliteStore ===

impl SqliteStore {
    /// Opens the file at `path`, makes it when it is not there, and brings its schema up to date.
    ///
    /// The directory must be there already: who makes it decides who may look into it.
    ///
    /// # Errors
    /// [`StoreError::Newer`] when a newer release wrote the file; [`StoreError::Unavailable`] when it can't be
    /// opened; [`StoreError::Unreadable`] when it isn't a database, or is damaged.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        // SQLite takes a name that begins with `file:` for a URL, and `:memory:` for no file at all.
        let path = Path::new(".").join(path);
        file::create_private(&path)
            .await
            .map_err(|source| rows::unavailable("creating the database file", source))?;
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_TIMEOUT);
        // A pool that closes its last connection would give the log up while readers still need it.
        let pool = SqlitePoolOptions::new()
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .idle_timeout(None)
            .max_lifetime(None);
        let one = pool.clone().min_connections(1).max_connections(1);
        let begun = tokio::time::Instant::now();
        // Of many who switch a new file to the write-ahead log at once, SQLite lets all but one fail without a wait.
        let writer = loop {
            match one.clone().connect_with(options.clone()).await {
                Err(error) if is_busy(&error) && begun.elapsed() < BUSY_TIMEOUT => {
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                opened => break opened.map_err(failed(&path, "opening the database file"))?,
            }
        };
        let file = file::identity(&path)
            .await
            .map_err(|source| rows::unavailable("looking at the database file", source))?;
        let store = Self {
            path,
            file,
            readers: pool
                .max_connections(READERS)
                .connect_lazy_with(options.read_only(true)),
            writer,
        };
        store.migrate().await?;
        Ok(store)
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        let doing = "bringing the store's schema up to date";
        let mut transaction = self.begin(doing).await?;
        rows::migrate("migration", schema::MIGRATIONS, &mut *transaction).await?;
        transaction.commit().await.map_err(self.failed(doing))
    }

    /// Makes an error of ours, which names the file when it is the file that is at fault.
    fn failed(&self, doing: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
        failed(&self.path, doing)
    }

    /// Writes what is in the log into the file, and empties the log: a copy of the file alone is whole then.
    ///
    /// Nothing is lost when it can't be done now, because another process reads: the next who opens the file does it.
    async fn empty_log(&self) {
        let emptied: Result<(i64, i64, i64), _> = sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)")
            .fetch_one(&self.writer)
            .await;
        match emptied {
            Ok((0, ..)) => {}
            Ok(_) => tracing::debug!("the store's log is in use and was not emptied"),
            Err(error) => tracing::warn!(%error, "the store's log can't be emptied"),
        }
    }

    /// Begins a transaction that nobody can write beside.
    async fn begin(&self, doing: &'static str) -> Result<Transaction<'static, Sqlite>, StoreError> {
        self.still_there(doing).await?;
        match self.writer.begin_with("BEGIN IMMEDIATE").await {
            // SQLite ends a transaction by itself on a full disk, and then the connection and its count of open
            // transactions disagree for ever: a new one is right again.
            Err(sqlx::Error::InvalidSavePointStatement | sqlx::Error::BeginFailed) => {
                if let Ok(connection) = self.writer.acquire().await {
                    drop(connection.close().await);
                }
                let again = self.writer.begin_with("BEGIN IMMEDIATE").await;
                again.map_err(self.failed(doing))
            }
            begun => begun.map_err(self.failed(doing)),
        }
    }

    /// Begins a transaction in which `epoch` holds the lease, to its end.
    async fn begin_fenced(
        &self,
        epoch: Epoch,
        doing: &'static str,
    ) -> Result<Transaction<'static, Sqlite>, StoreError> {
        let mut transaction = self.begin(doing).await?;
        let current: Option<i64> =
            sqlx::query_scalar("SELECT epoch FROM lease WHERE holder IS NOT NULL")
                .fetch_optional(&mut *transaction)
                .await
                .map_err(self.failed(doing))?;
        if current.is_some() && current == i64::try_from(epoch.0).ok() {
            Ok(transaction)
        } else {
            Err(StoreError::Fenced { epoch })
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for SqliteStore {
    fn describe(&self) -> String {
        format!("sqlite:{}", self.path.display())
    }

    fn is_lasting(&self) -> bool {
        true
    }

    async fn acquire_lease(&self, holder: &str, ttl: Duration) -> Result<Lease, StoreError> {
        let doing = "taking the lease";
        let mut transaction = self.begin(doing).await?;
        let (held_by, remaining): (Option<String>, i64) = sqlx::query_as(REMAINING)
            .fetch_one(&mut *transaction)
            .await
            .map_err(self.failed(doing))?;
        if let Some(other) = held_by.filter(|other| other != holder)
            && remaining > 0
        {
            return Err(StoreError::Held {
                holder: other,
                remaining: rows::remaining(remaining),
            });
        }
        let epoch: i64 = sqlx::query_scalar(TAKE)
            .bind(holder)
            .bind(rows::ttl_millis(ttl))
            .fetch_one(&mut *transaction)
            .await
            .map_err(self.failed(doing))?;
        transaction.commit().await.map_err(self.failed(doing))?;
        Ok(Lease {
            epoch: Epoch(epoch.unsigned_abs()),
        })
    }

    async fn renew_lease(&self, epoch: Epoch, ttl: Duration) -> Result<(), StoreError> {
        let doing = "renewing the lease";
        let mut transaction = self.begin_fenced(epoch, doing).await?;
        sqlx::query(RENEW)
            .bind(rows::ttl_millis(ttl))
            .execute(&mut *transaction)
            .await
            .map_err(self.failed(doing))?;
        transaction.commit().await.map_err(self.failed(doing))
    }

    async fn release_lease(&self, epoch: Epoch) -> Result<(), StoreError> {
        let doing = "giving the lease up";
        let mut transaction = match self.begin_fenced(epoch, doing).await {
            Err(StoreError::Fenced { .. }) => return Ok(()),
            begun => begun?,
        };
        sqlx::query("UPDATE lease SET holder = NULL")
            .execute(&mut *transaction)
            .await
            .map_err(self.failed(doing))?;
        transaction.commit().await.map_err(self.failed(doing))?;
        // Who leads no more has written its last.
        self.empty_log().await;
        Ok(())
    }

    async fn raise_epoch(&self, above: Epoch) -> Result<(), StoreError> {
        let doing = "raising the epoch";
        let above = rows::epoch(above.raisable()?);
        let mut transaction = self.begin(doing).await?;
        sqlx::query("UPDATE lease SET epoch = ?1, holder = NULL WHERE epoch < ?1")
            .bind(above)
            .execute(&mut *transaction)
            .await
            .map_err(self.failed(doing))?;
        transaction.commit().await.map_err(self.failed(doing))
    }

    async fn models(&self) -> Result<Vec<StoredModel>, StoreError> {
        let found: Vec<ModelRow> =
            sqlx::query_as("SELECT name, definition, added_at FROM model ORDER BY name")
                .fetch_all(&self.readers)
                .await
                .map_err(self.failed("reading the models"))?;
        found.into_iter().map(rows::model).collect()
    }

    async fn insert_model(&self, epoch: Epoch, model: &StoredModel) -> Result<(), StoreError> {
        let write = Write::AddModel(Box::new(model.clone()));
        self.write(epoch, &write).await.map(drop)
    }

    async fn delete_model(&self, epoch: Epoch, name: &ModelName) -> Result<bool, StoreError> {
        self.write(epoch, &Write::RemoveModel(name.clone())).await
    }

    async fn keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        let found: Vec<KeyRow> = sqlx::query_as(KEYS)
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("reading the keys"))?;
        found.into_iter().map(rows::key).collect()
    }

    async fn insert_key(&self, epoch: Epoch, key: &ApiKey) -> Result<(), StoreError> {
        self.write(epoch, &Write::AddKey(Box::new(key.clone())))
            .await
            .map(drop)
    }

    async fn delete_key(&self, epoch: Epoch, id: KeyId) -> Result<bool, StoreError> {
        self.write(epoch, &Write::RemoveKey(id)).await
    }

    async fn levels(&self) -> Result<Vec<Level>, StoreError> {
        self.list_levels().await
    }

    async fn orders(&self) -> Result<Vec<StoredOrder>, StoreError> {
        self.list_orders().await
    }

    async fn tokens(&self) -> Result<Vec<OperatorToken>, StoreError> {
        self.list_tokens().await
    }

    async fn capacities(&self) -> Result<Vec<Capacity>, StoreError> {
        self.list_capacities().await
    }

    async fn settings(&self, version: Option<u64>) -> Result<Option<StoredSettings>, StoreError> {
        self.read_settings(version).await
    }

    async fn settings_history(
        &self,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<(u64, AboutSettings)>, StoreError> {
        self.list_settings(before, limit).await
    }

    async fn commit(
        &self,
        epoch: Epoch,
        writes: &[Write],
        entry: &NewAuditEntry,
    ) -> Result<AuditEntry, StoreError> {
        self.commit_all(epoch, writes, entry).await
    }

    async fn append_usage(&self, records: &[UsageRecord]) -> Result<(), StoreError> {
        if records.is_empty() {
            return Ok(());
        }
        let doing = "appending usage";
        let mut transaction = self.begin(doing).await?;
        let mut rest = records;
        // Each statement goes to the thread of the connection and back, which costs more than a row does.
        for (rows, append) in APPENDS.iter() {
            while let Some((chunk, others)) = rest.split_at_checked(*rows) {
                rest = others;
                let insert = chunk.iter().fold(sqlx::query(append.as_str()), bind_usage);
                insert
                    .execute(&mut *transaction)
                    .await
                    .map_err(self.failed(doing))?;
            }
        }
        transaction.commit().await.map_err(self.failed(doing))
    }

    async fn usage_totals(
        &self,
        since: Timestamp,
        step: Option<UsageStep>,
    ) -> Result<Vec<UsageTotal>, StoreError> {
        let found: Vec<TotalRow> = sqlx::query_as(TOTALS)
            .bind(since.0)
            .bind(step.map(UsageStep::millis))
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("summing usage up"))?;
        found.into_iter().map(rows::total).collect()
    }

    async fn guarded(&self, since: Timestamp, limit: u32) -> Result<Vec<GuardedCall>, StoreError> {
        let found: Vec<GuardedRow> = sqlx::query_as(GUARDED)
            .bind(since.0)
            .bind(rows::guard_page(limit))
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("reading what the guard did"))?;
        Ok(found.into_iter().filter_map(rows::guarded).collect())
    }

    async fn prices(&self) -> Result<Vec<Price>, StoreError> {
        self.list_prices().await
    }

    async fn quota_uses(&self, quotas: &[Quota]) -> Result<Vec<Standing>, StoreError> {
        self.standings(quotas).await
    }

    async fn share_quotas(
        &self,
        gateway: GatewayId,
        turn: u64,
        asks: &[ShareAsk],
        ttl: Duration,
    ) -> Result<Vec<Share>, StoreError> {
        self.share_all((gateway, turn), asks, ttl).await
    }

    async fn append_audit(
        &self,
        epoch: Epoch,
        entry: &NewAuditEntry,
    ) -> Result<AuditEntry, StoreError> {
        self.commit_all(epoch, &[], entry).await
    }

    async fn audit(&self, after: u64, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
        let found: Vec<AuditRow> = sqlx::query_as(AUDIT)
            .bind(rows::seq(after))
            .bind(rows::page(limit))
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("reading the audit log"))?;
        found.into_iter().map(rows::audit_entry).collect()
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Binds a row of usage, in the order of the columns.
fn bind_usage<'q>(
    insert: Query<'q, Sqlite, SqliteArguments>,
    record: &UsageRecord,
) -> Query<'q, Sqlite, SqliteArguments> {
    insert
        .bind(record.request.as_uuid())
        .bind(record.key.as_uuid())
        .bind(record.model.to_string())
        .bind(record.replica.map(|replica| replica.as_uuid()))
        .bind(rows::count(record.prompt_tokens))
        .bind(rows::count(record.cached_tokens))
        .bind(rows::count(record.completion_tokens))
        .bind(record.estimated)
        .bind(record.status)
        .bind(record.started_at.0)
        .bind(rows::micros(record.duration))
        .bind(record.time_to_first_token.map(rows::micros))
        .bind(record.level.to_string())
        .bind(record.cost.0.max(0))
        .bind(rows::guard(record))
}

fn is_busy(error: &sqlx::Error) -> bool {
    plain_code(error) == Some(SQLITE_BUSY)
}

/// The lowest byte of SQLite's extended code.
fn plain_code(error: &sqlx::Error) -> Option<u32> {
    let code = error.as_database_error().and_then(|error| error.code());
    let code: u32 = code?.parse().ok()?;
    Some(code & 0xff)
}

/// [`StoreError::Unreadable`] with the path for a file that is damaged or no database; else what SQL errors become.
fn failed(path: &Path, doing: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |error| {
        let damaged = matches!(plain_code(&error), Some(SQLITE_CORRUPT | SQLITE_NOTADB));
        match rows::failed(doing)(error) {
            StoreError::Unavailable { source, .. } if damaged => StoreError::Unreadable {
                what: format!("the database file {}", path.display()),
                source,
            },
            error => error,
        }
    }
}

/// Who holds the lease, and for how long still: at most 0 when it has run out.
const REMAINING: &str = "
    SELECT
        holder,
        CASE
            WHEN expires_at - now.millis > 2 * (expires_at - renewed_at) THEN 0
            ELSE expires_at - now.millis
        END
    FROM
        lease,
        (SELECT CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) AS millis) AS now";

const TAKE: &str = "
    UPDATE lease SET
        epoch = epoch + 1,
        holder = ?1,
        renewed_at = CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER),
        expires_at = CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) + ?2
    RETURNING epoch";

const RENEW: &str = "
    UPDATE lease SET
        renewed_at = CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER),
        expires_at = CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) + ?1";

const APPEND: &str = "
    INSERT INTO usage (
        request, api_key, model, replica, prompt_tokens, cached_tokens, completion_tokens, estimated,
        status, started_at, duration, time_to_first_token, level, cost, guard
    )";

/// Statements that append so many rows of usage, the most first: few, so that each stays prepared.
static APPENDS: LazyLock<[(usize, String); 3]> = LazyLock::new(|| {
    [128, 16, 1].map(|rows| {
        let row = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let values = vec![row; rows].join(", ");
        (
            rows,
            format!("{APPEND} VALUES {values} ON CONFLICT DO NOTHING"),
        )
    })
});

const KEYS: &str = "
    SELECT id, name, hash, created_at, level, expires_at, limits
    FROM api_key
    ORDER BY id";

const AUDIT: &str = "
    SELECT seq, at, actor, action, subject, previous, hash
    FROM audit
    WHERE seq > ?1
    ORDER BY seq
    LIMIT ?2";

const GUARDED: &str = "
    SELECT started_at, request, api_key, level, model, status, guard
    FROM usage
    WHERE guard IS NOT NULL AND started_at >= ?1
    ORDER BY started_at DESC, request DESC
    LIMIT ?2";

const TOTALS: &str = "
    SELECT
        -- Rounded down, also before 1970.
        (started_at - ((started_at % ?2) + ?2) % ?2) AS at,
        model,
        api_key,
        level,
        COUNT(*),
        SUM(status >= 400),
        SUM(prompt_tokens >> 32),
        SUM(prompt_tokens & 4294967295),
        SUM(cached_tokens >> 32),
        SUM(cached_tokens & 4294967295),
        SUM(completion_tokens >> 32),
        SUM(completion_tokens & 4294967295),
        SUM(cost >> 32),
        SUM(cost & 4294967295),
        MAX(started_at)
    FROM usage
    WHERE started_at >= ?1
    GROUP BY 1, model, api_key, level
    ORDER BY 1, model, api_key, level";

/// Longer than any write of ours takes, so that two control planes on one file wait for each other.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than the busy timeout, so that the error that comes first is the one that says why.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
const BUSY_PAUSE: Duration = Duration::from_millis(10);
const SQLITE_BUSY: u32 = 5;
const SQLITE_CORRUPT: u32 = 11;
const SQLITE_NOTADB: u32 = 26;
const READERS: u32 = 4;

#[cfg(test)]
mod tests;
