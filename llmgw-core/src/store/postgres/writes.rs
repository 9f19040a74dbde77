//! What whoever leads writes: one change, or several with their entry in the audit log, in one transaction.

use sqlx::{Postgres, Transaction};

use super::{LOCK_TO_WRITE, PostgresStore, bounded};
use crate::{
    cluster::{
        account::OperatorToken,
        audit::{AuditEntry, NewAuditEntry},
        capacity::Capacity,
        order::StoredOrder,
        tenancy::{Level, Price},
    },
    store::{
        Epoch, StoreError, Write,
        rows::{self, CapacityRow, HeadRow, LevelRow, OrderRow, PriceRow, TokenRow, failed},
    },
};

impl PostgresStore {
    /// Makes one change; says whether it changed anything.
    pub(super) async fn write(&self, epoch: Epoch, write: &Write) -> Result<bool, StoreError> {
        let doing = write.doing();
        bounded(doing, async {
            let mut transaction = self.begin_fenced(epoch, LOCK_TO_WRITE, doing).await?;
            let changed = apply(&mut transaction, write).await?;
            transaction.commit().await.map_err(failed(doing))?;
            Ok(changed > 0)
        })
        .await
    }

    pub(super) async fn commit_all(
        &self,
        epoch: Epoch,
        writes: &[Write],
        entry: &NewAuditEntry,
    ) -> Result<AuditEntry, StoreError> {
        let doing = "committing an order and its entry in the audit log";
        bounded(doing, async {
            let mut transaction = self.begin_fenced(epoch, LOCK_TO_WRITE, doing).await?;
            for write in writes {
                apply(&mut transaction, write).await?;
            }
            let entry = append(&mut transaction, entry).await?;
            transaction.commit().await.map_err(failed(doing))?;
            Ok(entry)
        })
        .await
    }

    pub(super) async fn list_orders(&self) -> Result<Vec<StoredOrder>, StoreError> {
        let doing = "reading the orders";
        let found: Vec<OrderRow> = bounded(doing, async {
            sqlx::query_as(ORDERS)
                .fetch_all(&self.pool)
                .await
                .map_err(failed(doing))
        })
        .await?;
        found.into_iter().filter_map(rows::order).collect()
    }

    pub(super) async fn list_levels(&self) -> Result<Vec<Level>, StoreError> {
        let doing = "reading the levels";
        let found: Vec<LevelRow> = bounded(doing, async {
            sqlx::query_as(LEVELS)
                .fetch_all(&self.pool)
                .await
                .map_err(failed(doing))
        })
        .await?;
        found.into_iter().map(rows::level).collect()
    }

    pub(super) async fn list_prices(&self) -> Result<Vec<Price>, StoreError> {
        let doing = "reading the prices";
        let found: Vec<PriceRow> = bounded(doing, async {
            sqlx::query_as(PRICES)
                .fetch_all(&self.pool)
                .await
                .map_err(failed(doing))
        })
        .await?;
        found.into_iter().map(rows::price).collect()
    }

    pub(super) async fn list_tokens(&self) -> Result<Vec<OperatorToken>, StoreError> {
        let doing = "reading the admin tokens";
        let found: Vec<TokenRow> = bounded(doing, async {
            sqlx::query_as(TOKENS)
                .fetch_all(&self.pool)
                .await
                .map_err(failed(doing))
        })
        .await?;
        found.into_iter().filter_map(rows::token).collect()
    }

    pub(super) async fn list_capacities(&self) -> Result<Vec<Capacity>, StoreError> {
        let doing = "reading the measurements";
        let found: Vec<CapacityRow> = bounded(doing, async {
            sqlx::query_as(CAPACITIES)
                .fetch_all(&self.pool)
                .await
                .map_err(failed(doing))
        })
        .await?;
        Ok(found.into_iter().filter_map(rows::capacity).collect())
    }
}

/// Makes one change; says how many rows it touched.
async fn apply(
    transaction: &mut Transaction<'static, Postgres>,
    write: &Write,
) -> Result<u64, StoreError> {
    let doing = write.doing();
    let query = match write {
        Write::AddModel(model) => sqlx::query(ADD_MODEL)
            .bind(model.model.name().to_string())
            .bind(rows::json("writing a model as JSON", &model.model)?)
            .bind(model.added_at.0),
        Write::RemoveModel(name) => sqlx::query(REMOVE_MODEL).bind(name.to_string()),
        Write::AddKey(key) => sqlx::query(ADD_KEY)
            .bind(key.id.as_uuid())
            .bind(&key.name)
            .bind(key.hash.0.as_slice())
            .bind(key.created_at.0)
            .bind(key.level.to_string())
            .bind(key.expires_at.map(|end| end.0))
            .bind(rows::json("writing limits as JSON", &key.limits)?),
        Write::RemoveKey(id) => sqlx::query(REMOVE_KEY).bind(id.as_uuid()),
        Write::PutLevel(level) => sqlx::query(PUT_LEVEL)
            .bind(level.path.to_string())
            .bind(rows::json("writing limits as JSON", &level.limits)?)
            .bind(level.created_at.0),
        Write::RemoveLevel(path) => sqlx::query(REMOVE_LEVEL).bind(path.to_string()),
        Write::PutPrice(price) => sqlx::query(PUT_PRICE)
            .bind(price.model.to_string())
            .bind(price.valid_from.0)
            .bind(price.prompt.0)
            .bind(price.cached.0)
            .bind(price.completion.0),
        Write::PutOrder(order) => {
            let subject = order.order.subject();
            sqlx::query(PUT_ORDER)
                .bind(subject.kind())
                .bind(subject.name())
                .bind(rows::json("writing an order as JSON", order)?)
        }
        Write::LiftOrder(subject) => sqlx::query(LIFT_ORDER)
            .bind(subject.kind())
            .bind(subject.name()),
        Write::AddToken(token) => sqlx::query(ADD_TOKEN)
            .bind(token.id.as_uuid())
            .bind(&token.name)
            .bind(token.role.as_str())
            .bind(token.hash.0.as_slice())
            .bind(token.created_at.0),
        Write::RemoveToken(id) => sqlx::query(REMOVE_TOKEN).bind(id.as_uuid()),
        Write::PutCapacity(capacity) => sqlx::query(PUT_CAPACITY)
            .bind(capacity.model.to_string())
            .bind(capacity.measurement.profile.to_string())
            .bind(rows::json("writing a measurement as JSON", capacity)?),
        Write::AddSettings(settings) => sqlx::query(ADD_SETTINGS)
            .bind(rows::seq(settings.version))
            .bind(&settings.text)
            .bind(&settings.about.by)
            .bind(settings.about.at.0)
            .bind(settings.about.brings_back.map(rows::seq)),
    };
    let done = query
        .execute(&mut **transaction)
        .await
        .map_err(failed(doing))?;
    match write.exists() {
        Some(exists) if done.rows_affected() == 0 => Err(exists),
        _ => Ok(done.rows_affected()),
    }
}

/// Appends an entry of the audit log.
async fn append(
    transaction: &mut Transaction<'static, Postgres>,
    entry: &NewAuditEntry,
) -> Result<AuditEntry, StoreError> {
    let doing = "appending to the audit log";
    let head: HeadRow = sqlx::query_as(LOCK_HEAD)
        .fetch_one(&mut **transaction)
        .await
        .map_err(failed(doing))?;
    let entry = AuditEntry::chained(rows::head(head)?, entry);
    sqlx::query(APPEND_AUDIT)
        .bind(rows::seq(entry.seq))
        .bind(entry.at.0)
        .bind(&entry.actor)
        .bind(&entry.action)
        .bind(&entry.subject)
        .bind(entry.previous.0.as_slice())
        .bind(entry.hash.0.as_slice())
        .execute(&mut **transaction)
        .await
        .map_err(failed(doing))?;
    sqlx::query("UPDATE llmgw.audit_head SET seq = $1, hash = $2")
        .bind(rows::seq(entry.seq))
        .bind(entry.hash.0.as_slice())
        .execute(&mut **transaction)
        .await
        .map_err(failed(doing))?;
    Ok(entry)
}

const ADD_MODEL: &str = "
    INSERT INTO llmgw.model (name, definition, added_at) VALUES ($1, $2, $3)
    ON CONFLICT DO NOTHING";

const REMOVE_MODEL: &str = "DELETE FROM llmgw.model WHERE name = $1";

const ADD_KEY: &str = "
    INSERT INTO llmgw.api_key (id, name, hash, created_at, level, expires_at, limits)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT DO NOTHING";

const REMOVE_KEY: &str = "DELETE FROM llmgw.api_key WHERE id = $1";

const PUT_LEVEL: &str = "
    INSERT INTO llmgw.level (path, limits, created_at) VALUES ($1, $2, $3)
    ON CONFLICT (path) DO UPDATE SET limits = excluded.limits, created_at = excluded.created_at";

const REMOVE_LEVEL: &str = "DELETE FROM llmgw.level WHERE path = $1";

const PUT_PRICE: &str = "
    INSERT INTO llmgw.price (model, valid_from, prompt, cached, completion)
    VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (model, valid_from) DO UPDATE SET
        prompt = excluded.prompt, cached = excluded.cached, completion = excluded.completion";

const PUT_ORDER: &str = "
    INSERT INTO llmgw.standing_order (kind, name, definition) VALUES ($1, $2, $3)
    ON CONFLICT (kind, name) DO UPDATE SET definition = excluded.definition";

const LIFT_ORDER: &str = "DELETE FROM llmgw.standing_order WHERE kind = $1 AND name = $2";

const ADD_TOKEN: &str = "
    INSERT INTO llmgw.operator_token (id, name, role, hash, created_at) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT DO NOTHING";

const REMOVE_TOKEN: &str = "DELETE FROM llmgw.operator_token WHERE id = $1";

const PUT_CAPACITY: &str = "
    INSERT INTO llmgw.capacity (model, profile, definition) VALUES ($1, $2, $3)
    ON CONFLICT (model, profile) DO UPDATE SET definition = excluded.definition";

const ADD_SETTINGS: &str = "
    INSERT INTO llmgw.settings (version, document, written_by, written_at, brings_back)
    VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT DO NOTHING";

const ORDERS: &str = "SELECT kind, name, definition FROM llmgw.standing_order ORDER BY kind, name";

const LEVELS: &str = "SELECT path, limits, created_at FROM llmgw.level ORDER BY path";

const PRICES: &str = "
    SELECT model, valid_from, prompt, cached, completion
    FROM llmgw.price
    ORDER BY model, valid_from";

const TOKENS: &str =
    "SELECT id, name, role, hash, created_at FROM llmgw.operator_token ORDER BY id";

const CAPACITIES: &str =
    "SELECT model, profile, definition FROM llmgw.capacity ORDER BY model, profile";

/// Whoever appends waits here for whoever appended before, and reads what that one left.
const LOCK_HEAD: &str = "SELECT seq, hash FROM llmgw.audit_head FOR UPDATE";

const APPEND_AUDIT: &str = "
    INSERT INTO llmgw.audit (seq, at, actor, action, subject, previous, hash)
    VALUES ($1, $2, $3, $4, $5, $6, $7)";
