//! What the two SQL stores share: how values become columns and come back, and how SQL errors become ours.

use std::{collections::BTreeMap, error::Error, time::Duration};

use sqlx::{
    SqlSafeStr,
    migrate::{Migrate, MigrateError, Migration, MigrationType},
};
use uuid::Uuid;

use super::{AUDIT_PAGE, GUARD_PAGE, StoreError, StoredModel, UsageTotal};
use crate::{
    clock::Timestamp,
    cluster::{
        account::{ApiKey, KeyHash, OperatorToken, UsageRecord},
        audit::{AuditEntry, ChainHead},
        capacity::Capacity,
        guard::GuardedCall,
        order::{StoredOrder, Subject},
        settings::{AboutSettings, StoredSettings},
        tenancy::{
            Level, Period, Price,
            quota::{Own, Standing},
        },
        weights::Sha256Digest,
    },
    id::{KeyId, RequestId, TokenId},
    units::{Micros, Tokens},
};

/// `name, definition, added_at`: a model is kept in its serial form, so that a new field of a definition needs
/// no new column.
pub(super) type ModelRow = (String, String, i64);

/// `kind, name, definition`: an order is kept in its serial form too.
pub(super) type OrderRow = (String, String, String);

/// `id, name, role, hash, created_at`.
pub(super) type TokenRow = (Uuid, String, String, Vec<u8>, i64);

/// `model, profile, definition`.
pub(super) type CapacityRow = (String, String, String);

/// `version, written_by, written_at, brings_back, document`.
pub(super) type SettingsRow = (i64, String, i64, Option<i64>, String);

/// `version, written_by, written_at, brings_back`.
pub(super) type AboutRow = (i64, String, i64, Option<i64>);

/// `id, name, hash, created_at, level, expires_at, limits`; the limits are in their serial form.
pub(super) type KeyRow = (Uuid, String, Vec<u8>, i64, String, Option<i64>, String);

/// What others have spent, hold, and how many they are; what the own gateway told, was given, and with which turn.
pub(super) type StandingRow = (i64, i64, i64, Option<i64>, Option<i64>, Option<i64>);

/// `started_at, request, key, level, model, status, guard`; what was done is in its serial form.
pub(super) type GuardedRow = (i64, Uuid, Uuid, String, String, i32, String);

/// `path, limits, created_at`.
pub(super) type LevelRow = (String, String, i64);

/// When the step began, `model, key, level, requests, errors`, then the high and the low half of the sums of
/// `prompt_tokens`, of `cached_tokens`, of `completion_tokens` and of `cost`.
///
/// Sums are made of halves (the count shifted right by 32 bits, and its lowest 32 bits) because a sum of whole
/// counts overflows in SQL, and one absurd count from an engine would then make all totals unreadable for ever.
pub(super) type TotalRow = (
    Option<i64>,
    String,
    Uuid,
    String,
    i64,
    i64,
    i64,
    i64,
    i64,
    i64,
    i64,
    i64,
    i64,
    i64,
    i64,
);

/// `model, valid_from, prompt, cached, completion`.
pub(super) type PriceRow = (String, i64, i64, i64, i64);

/// `seq, at, actor, action, subject, previous, hash`.
pub(super) type AuditRow = (i64, i64, String, String, String, Vec<u8>, Vec<u8>);

/// `seq, hash`.
pub(super) type HeadRow = (i64, Vec<u8>);

/// A migration: its version, what it is about, and its text.
pub(super) type MigrationText = (i64, &'static str, &'static str);

pub(super) fn model((name, definition, added_at): ModelRow) -> Result<StoredModel, StoreError> {
    match serde_json::from_str(&definition) {
        Ok(model) => Ok(StoredModel {
            model,
            added_at: Timestamp(added_at),
        }),
        Err(source) => Err(StoreError::Unreadable {
            what: format!("model {name}"),
            source: source.into(),
        }),
    }
}

pub(super) fn json<T: serde::Serialize>(
    doing: &'static str,
    value: &T,
) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|source| StoreError::Refused {
        doing,
        source: source.into(),
    })
}

/// `None` for an order of a kind that this release does not know.
pub(super) fn order((kind, name, definition): OrderRow) -> Option<Result<StoredOrder, StoreError>> {
    if !Subject::KINDS.contains(&kind.as_str()) {
        tracing::warn!(
            kind,
            name,
            "an order that a newer release gave is not known and not followed"
        );
        return None;
    }
    let read = serde_json::from_str(&definition).map_err(|source| StoreError::Unreadable {
        what: format!("order {kind} {name}"),
        source: source.into(),
    });
    Some(read)
}

/// `None` for a token whose role this release does not know.
pub(super) fn token(
    (id, name, role, hash, created_at): TokenRow,
) -> Option<Result<OperatorToken, StoreError>> {
    let id = TokenId::from_uuid(id);
    let Ok(role) = role.parse() else {
        tracing::warn!(%id, role, "an admin token has a role that is not known, and opens nothing");
        return None;
    };
    let hash: Result<[u8; 32], _> = hash.try_into();
    Some(match hash {
        Ok(hash) => Ok(OperatorToken {
            id,
            name,
            role,
            hash: KeyHash(hash),
            created_at: Timestamp(created_at),
        }),
        Err(_) => Err(StoreError::Unreadable {
            what: id.to_string(),
            source: "its hash has not 32 bytes".into(),
        }),
    })
}

/// `None` for a measurement that this release can't read.
pub(super) fn settings((version, by, at, brings_back, text): SettingsRow) -> StoredSettings {
    let (version, about) = about_settings((version, by, at, brings_back));
    StoredSettings {
        version,
        text,
        about,
    }
}

pub(super) fn about_settings((version, by, at, brings_back): AboutRow) -> (u64, AboutSettings) {
    let about = AboutSettings {
        by,
        at: Timestamp(at),
        brings_back: brings_back.map(narrow),
    };
    (narrow(version), about)
}

/// A number that counts up, as we have it.
fn narrow(number: i64) -> u64 {
    number.unsigned_abs()
}

pub(super) fn capacity((model, profile, definition): CapacityRow) -> Option<Capacity> {
    match serde_json::from_str(&definition) {
        Ok(capacity) => Some(capacity),
        Err(error) => {
            tracing::warn!(model, profile, %error, "a measurement can't be read and is passed over");
            None
        }
    }
}

pub(super) fn key(row: KeyRow) -> Result<ApiKey, StoreError> {
    let (id, name, hash, created_at, level, expires_at, limits) = row;
    let id = KeyId::from_uuid(id);
    let unreadable = |source: Box<dyn Error + Send + Sync>| StoreError::Unreadable {
        what: id.to_string(),
        source,
    };
    let hash = hash
        .try_into()
        .map_err(|_| unreadable("its hash has not 32 bytes".into()))?;
    Ok(ApiKey {
        level: level.parse().map_err(|error| unreadable(Box::new(error)))?,
        expires_at: expires_at.map(Timestamp),
        limits: serde_json::from_str(&limits).map_err(|error| unreadable(error.into()))?,
        ..ApiKey::new(id, name, KeyHash(hash), Timestamp(created_at))
    })
}

pub(super) fn level((path, limits, created_at): LevelRow) -> Result<Level, StoreError> {
    let unreadable = |source: Box<dyn Error + Send + Sync>| StoreError::Unreadable {
        what: format!("level {path}"),
        source,
    };
    Ok(Level {
        path: path.parse().map_err(|error| unreadable(Box::new(error)))?,
        limits: serde_json::from_str(&limits).map_err(|error| unreadable(error.into()))?,
        created_at: Timestamp(created_at),
    })
}

pub(super) fn standing(row: StandingRow) -> Standing {
    let (spent_by_others, held_by_others, others, spent, held, turn) = row;
    let own = |(spent, held, turn): (i64, i64, i64)| Own {
        spent: spent.unsigned_abs(),
        held: held.unsigned_abs(),
        turn: turn.unsigned_abs(),
    };
    Standing {
        spent_by_others: spent_by_others.unsigned_abs(),
        held_by_others: held_by_others.unsigned_abs(),
        others: others.unsigned_abs(),
        own: spent
            .zip(held)
            .zip(turn)
            .map(|((spent, held), turn)| own((spent, held, turn))),
    }
}

/// The periods whose windows are forgotten some day, and after how many milliseconds from their beginning.
pub(super) fn forgotten() -> impl Iterator<Item = (&'static str, i64)> {
    let all = [
        Period::Minute,
        Period::Hour,
        Period::Day,
        Period::Month,
        Period::Total,
    ];
    let millis = |period: Period| period.is_forgotten_after().unwrap_or(i64::MAX / 4);
    all.into_iter()
        .map(move |period| (period.as_str(), millis(period)))
}

/// What the guard did to a call, as it is kept; nothing when it did nothing.
pub(super) fn guard(record: &UsageRecord) -> Option<String> {
    if record.guard.is_empty() {
        return None;
    }
    serde_json::to_string(&record.guard).ok()
}

/// A call that rules matched. What can't be read any more is passed over: it is of another release.
pub(super) fn guarded(row: GuardedRow) -> Option<GuardedCall> {
    let (at, request, key, level, model, status, guard) = row;
    Some(GuardedCall {
        at: Timestamp(at),
        request: RequestId::from_uuid(request),
        key: KeyId::from_uuid(key),
        level: level.parse().ok()?,
        model: model.parse().ok()?,
        status: u16::try_from(status).ok()?,
        decisions: serde_json::from_str(&guard).ok()?,
    })
}

/// How many such calls are read at once.
pub(super) fn guard_page(limit: u32) -> i64 {
    i64::from(limit.min(GUARD_PAGE))
}

pub(super) fn total(row: TotalRow) -> Result<UsageTotal, StoreError> {
    let (at, model, key, level, requests, errors, ph, pl, ch, cl, ah, al, mh, ml, last) = row;
    let unreadable = |what: &str, source: Box<dyn Error + Send + Sync>| StoreError::Unreadable {
        what: format!("the {what} in a usage row"),
        source,
    };
    let cost = joined(mh, ml).0;
    Ok(UsageTotal {
        at: at.map(Timestamp),
        model: model
            .parse()
            .map_err(|error| unreadable("model's name", Box::new(error)))?,
        key: KeyId::from_uuid(key),
        level: level
            .parse()
            .map_err(|error| unreadable("level", Box::new(error)))?,
        requests: requests.unsigned_abs(),
        errors: errors.unsigned_abs(),
        prompt_tokens: joined(ph, pl),
        cached_tokens: joined(ch, cl),
        completion_tokens: joined(ah, al),
        cost: Micros(i64::try_from(cost).unwrap_or(i64::MAX)),
        last_at: Timestamp(last),
    })
}

pub(super) fn price(row: PriceRow) -> Result<Price, StoreError> {
    let (model, valid_from, prompt, cached, completion) = row;
    Ok(Price {
        model: model.parse().map_err(|source| StoreError::Unreadable {
            what: "the model's name of a price".to_owned(),
            source: Box::new(source),
        })?,
        valid_from: Timestamp(valid_from),
        prompt: Micros(prompt),
        cached: Micros(cached),
        completion: Micros(completion),
    })
}

pub(super) fn audit_entry(row: AuditRow) -> Result<AuditEntry, StoreError> {
    let (seq, at, actor, action, subject, previous, hash) = row;
    let what = || format!("audit entry {seq}");
    Ok(AuditEntry {
        seq: seq.unsigned_abs(),
        at: Timestamp(at),
        actor,
        action,
        subject,
        previous: digest(previous, what)?,
        hash: digest(hash, what)?,
    })
}

pub(super) fn head((seq, hash): HeadRow) -> Result<ChainHead, StoreError> {
    Ok(ChainHead {
        seq: seq.unsigned_abs(),
        hash: digest(hash, || "the audit log's last entry".to_owned())?,
    })
}

/// A number in the audit log, or of a version of the settings, as SQL has it: signed.
pub(super) fn seq(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn page(limit: u32) -> i64 {
    i64::from(limit.min(AUDIT_PAGE))
}

/// A count as SQL has it: signed.
pub(super) fn count(tokens: Tokens) -> i64 {
    i64::try_from(tokens.0).unwrap_or(i64::MAX)
}

pub(super) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// A lease's time in milliseconds, rounded up, and short enough to be added to a date.
pub(super) fn ttl_millis(ttl: Duration) -> i64 {
    let millis = ttl.min(MAX_TTL).as_micros().div_ceil(1_000);
    i64::try_from(millis).unwrap_or(i64::MAX)
}

/// An epoch as it stands in a table.
pub(super) fn epoch(epoch: super::Epoch) -> i64 {
    i64::try_from(epoch.0).unwrap_or(i64::MAX)
}

pub(super) fn remaining(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// Makes [`StoreError::Unavailable`], or [`StoreError::Refused`] when the database says that the value is at
/// fault. The source says nothing twice: SQL errors that only wrap another are taken off.
pub(super) fn failed(doing: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |error| match error {
        sqlx::Error::Database(error) => {
            // Class 22 of SQLSTATE is "data exception", such as a NUL character in a text.
            let refused = error.code().is_some_and(|code| {
                code.len() == SQLSTATE_LENGTH && code.starts_with(DATA_EXCEPTION)
            });
            // Its own text may name a line of the server's source, which helps nobody here.
            let source = match error.code() {
                Some(code) => format!("{} ({code})", error.message()).into(),
                None => error.message().to_owned().into(),
            };
            if refused {
                StoreError::Refused { doing, source }
            } else {
                StoreError::Unavailable { doing, source }
            }
        }
        sqlx::Error::Io(error) => unavailable(doing, error),
        sqlx::Error::Configuration(source) | sqlx::Error::Tls(source) => {
            StoreError::Unavailable { doing, source }
        }
        error => unavailable(doing, error),
    }
}

pub(super) fn unavailable(
    doing: &'static str,
    source: impl Error + Send + Sync + 'static,
) -> StoreError {
    StoreError::Unavailable {
        doing,
        source: Box::new(source),
    }
}

/// Brings a schema up to date: applies those of `known` that `table` does not list.
///
/// The caller has begun a transaction, and locked others out: the whole is done, or nothing, and once. (sqlx's own
/// `Migrator` locks for the session, which a dropped future would leave behind, and on SQLite not at all.)
pub(super) async fn migrate<C: Migrate + Send>(
    table: &str,
    known: &[MigrationText],
    connection: &mut C,
) -> Result<(), StoreError> {
    let prepared = connection.ensure_migrations_table(table).await;
    prepared.map_err(migration_failed)?;
    let applied = connection.list_applied_migrations(table).await;
    let mut applied: BTreeMap<i64, _> = applied
        .map_err(migration_failed)?
        .into_iter()
        .map(|migration| (migration.version, migration.checksum))
        .collect();
    let newest = known.iter().map(|(version, ..)| *version).max();
    for (version, about, sql) in known {
        let migration = Migration::new(
            *version,
            (*about).into(),
            MigrationType::Simple,
            sql.into_sql_str(),
            false,
        );
        match applied.remove(version) {
            None => {
                let applied = connection.apply(table, &migration).await;
                applied.map_err(migration_failed)?;
            }
            Some(checksum) if checksum == migration.checksum => {}
            Some(_) => {
                let source = MigrateError::VersionMismatch(*version);
                return Err(migration_failed(source));
            }
        }
    }
    match applied.last_key_value() {
        None => Ok(()),
        Some((found, _)) => Err(StoreError::Newer {
            found: *found,
            known: newest.unwrap_or(0),
        }),
    }
}

fn migration_failed(error: MigrateError) -> StoreError {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            failed("bringing the store's schema up to date")(error)
        }
        error => StoreError::Unreadable {
            what: "the schema".to_owned(),
            source: Box::new(error),
        },
    }
}

fn digest(bytes: Vec<u8>, what: impl FnOnce() -> String) -> Result<Sha256Digest, StoreError> {
    let bytes = bytes.try_into().map_err(|_| StoreError::Unreadable {
        what: what(),
        source: "a hash has not 32 bytes".into(),
    })?;
    Ok(Sha256Digest(bytes))
}

fn joined(high: i64, low: i64) -> Tokens {
    let sum = (i128::from(high) << 32) + i128::from(low);
    Tokens(u64::try_from(sum.max(0)).unwrap_or(u64::MAX))
}

/// Every so many turns of a gateway, what nobody asks for any more is removed.
pub(super) const FORGET_EVERY: u64 = 300;
const MAX_TTL: Duration = Duration::from_secs(366 * 24 * 60 * 60);
const SQLSTATE_LENGTH: usize = 5;
const DATA_EXCEPTION: &str = "22";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_row_that_cannot_be_read_is_named() {
        let error = model(("tiny".into(), "{\"name\":".into(), 0)).unwrap_err();
        assert_eq!(error.to_string(), "reading model tiny from the store");
        let key = |hash: usize, level: &str, limits: &str| {
            let (name, level, limits) = ("a".to_owned(), level.to_owned(), limits.to_owned());
            key((Uuid::nil(), name, vec![0; hash], 0, level, None, limits))
        };
        key(32, "/", "{}").unwrap();
        for (hash, level, limits) in [(31, "/", "{}"), (32, "a//b", "{}"), (32, "/", "{\"x\":1}")] {
            let error = key(hash, level, limits).unwrap_err();
            assert!(error.to_string().contains("key-0000"), "{error}");
        }
        let error = level(("acme".into(), "{\"x\":1}".into(), 0)).unwrap_err();
        assert_eq!(error.to_string(), "reading level acme from the store");
        let row = (
            7,
            0,
            "a".into(),
            "b".into(),
            "c".into(),
            vec![0; 32],
            vec![0; 33],
        );
        let error = audit_entry(row).unwrap_err();
        assert_eq!(error.to_string(), "reading audit entry 7 from the store");
        assert!(head((7, vec![])).is_err());
        let order = order(("hold".into(), "north".into(), "{}".into())).unwrap();
        let error = order.unwrap_err().to_string();
        assert_eq!(error, "reading order hold north from the store");
        let total = |model: &str, level: &str| {
            let (model, level) = (model.to_owned(), level.to_owned());
            total((
                None,
                model,
                Uuid::nil(),
                level,
                1,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
            ))
        };
        assert!(total("m", "a/b").is_ok());
        assert!(total("a b", "/").is_err() && total("m", "a//b").is_err());
    }

    #[test]
    fn what_a_newer_release_wrote_is_passed_over() {
        assert!(order(("frob".into(), "x".into(), "?".into())).is_none());
        let token_of =
            |role: &str| token((Uuid::nil(), "a".into(), role.into(), vec![0; 32], 0)).is_some();
        assert!(token_of("viewer") && !token_of("emperor"));
        assert!(capacity(("m".into(), "p".into(), "{\"speed\":3}".into())).is_none());
    }

    #[test]
    fn a_lease_is_never_shorter_than_asked() {
        assert_eq!(ttl_millis(Duration::ZERO), 0);
        assert_eq!(ttl_millis(Duration::from_micros(1)), 1);
        assert_eq!(ttl_millis(Duration::from_micros(1_000)), 1);
        assert_eq!(ttl_millis(Duration::from_micros(1_001)), 2);
        assert_eq!(ttl_millis(Duration::MAX), 366 * 24 * 60 * 60 * 1_000);
    }

    proptest! {
        #[test]
        fn sums_of_halves_are_sums_of_wholes(counts in prop::collection::vec(0..=i64::MAX, 0..50)) {
            let high: i64 = counts.iter().map(|count| count >> 32).sum();
            let low: i64 = counts.iter().map(|count| count & 0xffff_ffff).sum();
            let whole: u128 = counts.iter().map(|count| u128::from(count.unsigned_abs())).sum();
            let expected = u64::try_from(whole).unwrap_or(u64::MAX);
            prop_assert_eq!(joined(high, low), Tokens(expected));
        }
    }
}
