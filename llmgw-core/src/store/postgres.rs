//! The store of a cluster with several control planes: a PostgreSQL database.
//!
//! # What we store, why, and what not
//! The same tables as the SQLite store, for the same reasons, in a schema of their own, `llmgw`, so that the
//! database may be shared: `lease` (one row that is never deleted: the epoch counter must only rise), `model`
//! (definitions: intent), `level` (what is limited where: intent), `api_key` (names,
//! levels, limits and keyed hashes; the secret is not stored), `usage` (a row for each
//! request: accounts), `price` (what models cost, from when on), `quota_share` (what each
//! gateway has spent and holds of each limit), `audit` (a row for each thing done, chained by hashes; only ever added to) and `audit_head`
//! (one row: the last entry's number and hash), `standing_order` (what operators ordered: intent), `operator_token`
//! (who may use the admin API, as keyed hashes) and `capacity` (what models were measured to do). Nodes and replicas are not stored: agents tell them.
//!
//! # How
//! * A fenced write begins with `SELECT … FOR SHARE` on the lease row, and who takes the lease locks that row
//!   for itself: either the write is committed before the new epoch is made, or it sees the new epoch and fails.
//!   A condition such as `WHERE EXISTS (… epoch = …)` would not do: it reads and does not lock.
//! * Whoever appends to the audit log locks `audit_head` too, after the lease: the log is one chain, and other
//!   writes go on meanwhile.
//! * Whoever asks for shares of quotas takes a lock for each first, of the transaction: those are asked for one after the
//!   other, and nobody else waits.
//! * The isolation level is named in every `BEGIN`: under a stricter one that the server may have as its
//!   default, the lock would be given on a row that is out of date.
//! * Who locks that row and then falls silent would hold a takeover up until the server notices that the
//!   connection is dead, which may take hours. Each transaction therefore carries its own limits; set inside the
//!   transaction, they also hold behind a pooler.
//! * Every call has a limit of its own, because a connection may hang without an error.
//! * Every write is a transaction, also when it is one statement: a `BEGIN` whose future is dropped may leave a
//!   connection inside an open transaction, where a bare statement would be acknowledged and then lost.
//! * Leases run on the server's `clock_timestamp()`. Should that clock be set back, a lease that claims more
//!   than twice its length counts as run out.

mod schema;
mod settings;
mod shares;
mod totals;
mod writes;

use std::{fmt, str::FromStr, time::Duration};

use async_trait::async_trait;
use sqlx::{
    ConnectOptions, Connection, Postgres, Transaction,
    postgres::{PgConnectOptions, PgPool, PgPoolOptions},
};
use uuid::Uuid;

use super::{
    Epoch, Lease, Store, StoreError, StoredModel, UsageStep, UsageTotal, Write, open,
    rows::{self, AuditRow, GuardedRow, KeyRow, ModelRow, TotalRow, failed},
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

/// Keeps everything in a PostgreSQL database. A clone shares the connections.
#[derive(Clone)]
pub struct PostgresStore {
    place: String,
    pool: PgPool,
}

// === impl PostgresStore ===

impl PostgresStore {
    /// Connects to `url` (`postgres://user:password@host/database?…`) and brings the schema up to date.
    ///
    /// What the URL leaves out is taken from where PostgreSQL's own programs take it: the variables `PGHOST` and
    /// so on, and the password file.
    ///
    /// # Errors
    /// [`StoreError::Url`] when the text makes no sense; [`StoreError::Newer`] when a newer release wrote the
    /// schema; [`StoreError::Unavailable`] when the server does not answer.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let options = PgConnectOptions::from_str(url)
            .map_err(|_| open::refused(url, "it is not a PostgreSQL URL"))?;
        let options = match options.get_application_name() {
            Some(_) => options,
            None => options.application_name("llmgw"),
        };
        let place = place(&options);
        // The pool would try until its time is up, and then say that it is.
        let doing = "connecting to PostgreSQL";
        bounded(doing, async {
            let connection = options.connect().await.map_err(failed(doing))?;
            connection.close().await.map_err(failed(doing))
        })
        .await?;
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .after_connect(|connection, _| {
                Box::pin(async move {
                    sqlx::query(SYNCHRONOUS).execute(connection).await?;
                    Ok(())
                })
            })
            .connect_lazy_with(options);
        let store = Self { place, pool };
        store.migrate().await?;
        Ok(store)
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        let doing = "bringing the store's schema up to date";
        let begun = self
            .pool
            .begin_with("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE");
        let mut transaction = begun.await.map_err(failed(doing))?;
        // Of the transaction, not of the session: it can't outlive a dropped future.
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(MIGRATION_LOCK)
            .execute(&mut *transaction)
            .await
            .map_err(failed(doing))?;
        // `CREATE SCHEMA IF NOT EXISTS` asks for the right to create one even when it is there.
        let absent: bool = sqlx::query_scalar("SELECT to_regnamespace('llmgw') IS NULL")
            .fetch_one(&mut *transaction)
            .await
            .map_err(failed(doing))?;
        if absent {
            sqlx::query("CREATE SCHEMA llmgw")
                .execute(&mut *transaction)
                .await
                .map_err(failed(doing))?;
        }
        rows::migrate("llmgw.migration", schema::MIGRATIONS, &mut *transaction).await?;
        transaction.commit().await.map_err(failed(doing))
    }

    async fn begin(
        &self,
        doing: &'static str,
    ) -> Result<Transaction<'static, Postgres>, StoreError> {
        self.pool.begin_with(BEGIN).await.map_err(failed(doing))
    }

    /// Begins a transaction in which `epoch` holds the lease, to its end.
    async fn begin_fenced(
        &self,
        epoch: Epoch,
        lock: &'static str,
        doing: &'static str,
    ) -> Result<Transaction<'static, Postgres>, StoreError> {
        let mut transaction = self.begin(doing).await?;
        let (current, holder): (i64, Option<String>) = sqlx::query_as(lock)
            .fetch_one(&mut *transaction)
            .await
            .map_err(failed(doing))?;
        if holder.is_some() && i64::try_from(epoch.0) == Ok(current) {
            Ok(transaction)
        } else {
            Err(StoreError::Fenced { epoch })
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for PostgresStore {
    fn describe(&self) -> String {
        self.place.clone()
    }

    fn is_lasting(&self) -> bool {
        true
    }

    async fn acquire_lease(&self, holder: &str, ttl: Duration) -> Result<Lease, StoreError> {
        let doing = "taking the lease";
        bounded(doing, async {
            let mut transaction = self.begin(doing).await?;
            // The row is locked first and the clock is read after: the wait for the lock counts for nobody.
            sqlx::query(LOCK_TO_CHANGE)
                .execute(&mut *transaction)
                .await
                .map_err(failed(doing))?;
            let (held_by, remaining): (Option<String>, i64) = sqlx::query_as(REMAINING)
                .fetch_one(&mut *transaction)
                .await
                .map_err(failed(doing))?;
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
                .map_err(failed(doing))?;
            transaction.commit().await.map_err(failed(doing))?;
            Ok(Lease {
                epoch: Epoch(epoch.unsigned_abs()),
            })
        })
        .await
    }

    async fn renew_lease(&self, epoch: Epoch, ttl: Duration) -> Result<(), StoreError> {
        let doing = "renewing the lease";
        bounded(doing, async {
            let mut transaction = self.begin_fenced(epoch, LOCK_TO_CHANGE, doing).await?;
            sqlx::query(RENEW)
                .bind(rows::ttl_millis(ttl))
                .execute(&mut *transaction)
                .await
                .map_err(failed(doing))?;
            transaction.commit().await.map_err(failed(doing))
        })
        .await
    }

    async fn release_lease(&self, epoch: Epoch) -> Result<(), StoreError> {
        let doing = "giving the lease up";
        bounded(doing, async {
            let begun = self.begin_fenced(epoch, LOCK_TO_CHANGE, doing).await;
            let mut transaction = match begun {
                Err(StoreError::Fenced { .. }) => return Ok(()),
                begun => begun?,
            };
            sqlx::query("UPDATE llmgw.lease SET holder = NULL")
                .execute(&mut *transaction)
                .await
                .map_err(failed(doing))?;
            transaction.commit().await.map_err(failed(doing))
        })
        .await
    }

    async fn raise_epoch(&self, above: Epoch) -> Result<(), StoreError> {
        let doing = "raising the epoch";
        let above = rows::epoch(above.raisable()?);
        bounded(doing, async {
            let mut transaction = self.begin(doing).await?;
            sqlx::query("UPDATE llmgw.lease SET epoch = $1, holder = NULL WHERE epoch < $1")
                .bind(above)
                .execute(&mut *transaction)
                .await
                .map_err(failed(doing))?;
            transaction.commit().await.map_err(failed(doing))
        })
        .await
    }

    async fn models(&self) -> Result<Vec<StoredModel>, StoreError> {
        let doing = "reading the models";
        let found: Vec<ModelRow> = bounded(doing, async {
            sqlx::query_as("SELECT name, definition, added_at FROM llmgw.model ORDER BY name")
                .fetch_all(&self.pool)
                .await
                .map_err(failed(doing))
        })
        .await?;
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
        let doing = "reading the keys";
        let found: Vec<KeyRow> = bounded(doing, async {
            sqlx::query_as(KEYS)
                .fetch_all(&self.pool)
                .await
                .map_err(failed(doing))
        })
        .await?;
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
        // In one order, whoever writes: two batches that share requests would else wait for each other.
        let mut sorted: Vec<&UsageRecord> = records.iter().collect();
        sorted.sort_by_key(|record| record.request);
        bounded(doing, async {
            let mut transaction = self.begin(doing).await?;
            for chunk in sorted.chunks(CHUNK) {
                append(chunk, &mut transaction)
                    .await
                    .map_err(failed(doing))?;
            }
            transaction.commit().await.map_err(failed(doing))
        })
        .await
    }

    async fn usage_totals(
        &self,
        since: Timestamp,
        step: Option<UsageStep>,
    ) -> Result<Vec<UsageTotal>, StoreError> {
        let doing = "summing usage up";
        let found: Vec<TotalRow> = bounded(doing, async {
            sqlx::query_as(totals::TOTALS)
                .bind(since.0)
                .bind(step.map(UsageStep::millis))
                .fetch_all(&self.pool)
                .await
                .map_err(failed(doing))
        })
        .await?;
        found.into_iter().map(rows::total).collect()
    }

    async fn guarded(&self, since: Timestamp, limit: u32) -> Result<Vec<GuardedCall>, StoreError> {
        let doing = "reading what the guard did";
        let found: Vec<GuardedRow> = bounded(doing, async {
            sqlx::query_as(GUARDED)
                .bind(since.0)
                .bind(rows::guard_page(limit))
                .fetch_all(&self.pool)
                .await
                .map_err(failed(doing))
        })
        .await?;
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
        let doing = "reading the audit log";
        let found: Vec<AuditRow> = bounded(doing, async {
            sqlx::query_as(AUDIT)
                .bind(rows::seq(after))
                .bind(rows::page(limit))
                .fetch_all(&self.pool)
                .await
                .map_err(failed(doing))
        })
        .await?;
        found.into_iter().map(rows::audit_entry).collect()
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

/// Where it is, without the password.
fn place(options: &PgConnectOptions) -> String {
    let user = options.get_username();
    let database = options.get_database().unwrap_or(user);
    match options.get_socket() {
        Some(socket) => format!("postgres://{user}@{}/{database}", socket.display()),
        None => {
            let (host, port) = (options.get_host(), options.get_port());
            format!("postgres://{user}@{host}:{port}/{database}")
        }
    }
}

async fn bounded<T>(
    doing: &'static str,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::time::timeout(CALL_LIMIT, work)
        .await
        .unwrap_or_else(|elapsed| Err(rows::unavailable(doing, elapsed)))
}

/// Inserts all records with one statement, whose arguments are columns.
async fn append(
    records: &[&UsageRecord],
    transaction: &mut Transaction<'static, Postgres>,
) -> Result<(), sqlx::Error> {
    fn column<T>(records: &[&UsageRecord], of: impl Fn(&UsageRecord) -> T) -> Vec<T> {
        records.iter().map(|record| of(record)).collect()
    }
    sqlx::query(APPEND)
        .bind(column::<Uuid>(records, |r| r.request.as_uuid()))
        .bind(column::<Uuid>(records, |r| r.key.as_uuid()))
        .bind(column::<String>(records, |r| r.model.to_string()))
        .bind(column::<Option<Uuid>>(records, |r| {
            r.replica.map(|replica| replica.as_uuid())
        }))
        .bind(column::<i64>(records, |r| rows::count(r.prompt_tokens)))
        .bind(column::<i64>(records, |r| rows::count(r.cached_tokens)))
        .bind(column::<i64>(records, |r| rows::count(r.completion_tokens)))
        .bind(column::<bool>(records, |r| r.estimated))
        .bind(column::<i32>(records, |r| i32::from(r.status)))
        .bind(column::<i64>(records, |r| r.started_at.0))
        .bind(column::<i64>(records, |r| rows::micros(r.duration)))
        .bind(column::<Option<i64>>(records, |r| {
            r.time_to_first_token.map(rows::micros)
        }))
        .bind(column::<String>(records, |r| r.level.to_string()))
        .bind(column::<i64>(records, |r| r.cost.0.max(0)))
        .bind(column::<Option<String>>(records, rows::guard))
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// "llmgw" in ASCII: tells our lock from those of others in the same database.
const MIGRATION_LOCK: i64 = 0x6c_6c_6d_67_77;

/// A server, or a role, may be set to acknowledge before it has written; ours must not.
const SYNCHRONOUS: &str = "
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off'";

/// Two seconds of silence inside a transaction mean that its owner is gone: a takeover waits no longer than that
/// for a write that will never be finished.
const BEGIN: &str = "
    BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
    SET LOCAL idle_in_transaction_session_timeout = '2s';
    SET LOCAL lock_timeout = '5s';
    SET LOCAL statement_timeout = '8s'";

/// Shared among writers, in the way of whoever wants to change the lease.
const LOCK_TO_WRITE: &str = "SELECT epoch, holder FROM llmgw.lease FOR SHARE";

const LOCK_TO_CHANGE: &str = "SELECT epoch, holder FROM llmgw.lease FOR UPDATE";

/// Who holds the lease, and for how many milliseconds still: at most 0 when it has run out.
const REMAINING: &str = "
    SELECT
        holder,
        CASE
            WHEN expires_at - now.time > 2 * (expires_at - renewed_at) THEN 0
            ELSE ceil(extract(epoch FROM expires_at - now.time) * 1000)::bigint
        END
    FROM
        llmgw.lease,
        (SELECT clock_timestamp() AS time) AS now";

const TAKE: &str = "
    UPDATE llmgw.lease SET
        epoch = epoch + 1,
        holder = $1,
        renewed_at = now.time,
        expires_at = now.time + $2 * interval '1 millisecond'
    FROM (SELECT clock_timestamp() AS time) AS now
    RETURNING epoch";

const RENEW: &str = "
    UPDATE llmgw.lease SET
        renewed_at = now.time,
        expires_at = now.time + $1 * interval '1 millisecond'
    FROM (SELECT clock_timestamp() AS time) AS now";

const APPEND: &str = "
    INSERT INTO llmgw.usage (
        request, api_key, model, replica, prompt_tokens, cached_tokens, completion_tokens, estimated,
        status, started_at, duration, time_to_first_token, level, cost, guard
    )
    SELECT * FROM unnest(
        $1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::bigint[], $6::bigint[], $7::bigint[],
        $8::boolean[], $9::integer[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], $14::bigint[],
        $15::text[]
    )
    ON CONFLICT DO NOTHING";

const KEYS: &str = "
    SELECT id, name, hash, created_at, level, expires_at, limits
    FROM llmgw.api_key
    ORDER BY id";

const AUDIT: &str = "
    SELECT seq, at, actor, action, subject, previous, hash
    FROM llmgw.audit
    WHERE seq > $1
    ORDER BY seq
    LIMIT $2";

const GUARDED: &str = "
    SELECT started_at, request, api_key, level, model, status, guard
    FROM llmgw.usage
    WHERE guard IS NOT NULL AND started_at >= $1
    ORDER BY started_at DESC, request DESC
    LIMIT $2";

/// A control plane does few things at once here, and a server has few connections to give.
const CONNECTIONS: u32 = 8;
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than the limits that the server keeps, so that the error that comes first is the one that says why.
const CALL_LIMIT: Duration = Duration::from_secs(15);
/// Keeps one statement's arguments to a few hundred kilobytes.
const CHUNK: usize = 2_000;
