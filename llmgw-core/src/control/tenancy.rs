//! Who may use the models: API keys, and the levels that they belong to.

use std::{collections::BTreeMap, fmt, ops::RangeInclusive, time::Duration};

use async_trait::async_trait;

use super::ControlError;
use crate::{
    api::tenancy::{CreatedKey, KeyRequest, KeyView, LevelRequest, LevelView, SpendingView},
    clock::Timestamp,
    cluster::{
        account::{ApiKey, KeyHash},
        tenancy::{
            Budget, Level, LevelPath, Limits, Party, Window,
            quota::{Measure, Quota, Standing},
        },
    },
    error::Code,
    id::KeyId,
    terminal,
    units::Micros,
};

/// Who may use the models, and how much.
///
/// # Contract
/// As for [`Catalog`](super::Catalog); and a key that was made or revoked, and a level that was changed, are known to
/// every gateway of this process when the answer is given, and to those of other processes within two seconds.
#[async_trait]
pub trait Tenancy: fmt::Debug + Send + Sync + 'static {
    /// All keys, by id: without their secrets, which nobody knows.
    async fn keys(&self) -> Result<Vec<KeyView>, ControlError>;

    /// Makes a key. Its secret is in the answer, and never shown again.
    ///
    /// MUST refuse a name that is empty, longer than 128 characters, or has control characters, a level that there is
    /// not, a length of time that is less than a second or more than a hundred years, and limits that can't be meant
    /// ([`Code::InvalidRequest`]).
    async fn create_key(&self, request: KeyRequest) -> Result<CreatedKey, ControlError>;

    /// Limits a key so from now on, in the place of all that was limited for it alone. What it has spent stays spent.
    ///
    /// MUST refuse an unknown one ([`Code::NotFound`]) and limits that can't be meant ([`Code::InvalidRequest`]).
    async fn limit_key(&self, id: KeyId, limits: Limits) -> Result<KeyView, ControlError>;

    /// Revokes a key.
    ///
    /// MUST refuse an unknown one ([`Code::NotFound`]).
    async fn revoke_key(&self, id: KeyId) -> Result<(), ControlError>;

    /// All levels, by path (in the order of their bytes); the cluster itself is always one of them.
    async fn levels(&self) -> Result<Vec<LevelView>, ControlError>;

    /// Makes a level.
    ///
    /// MUST refuse one that is there ([`Code::Conflict`]), one in a level that there is not, and limits that can't be
    /// meant ([`Code::InvalidRequest`]).
    async fn create_level(&self, request: LevelRequest) -> Result<LevelView, ControlError>;

    /// Limits a level so from now on, in the place of all that was limited there.
    ///
    /// MUST refuse an unknown one ([`Code::NotFound`]) and limits that can't be meant ([`Code::InvalidRequest`]).
    async fn limit_level(&self, request: LevelRequest) -> Result<LevelView, ControlError>;

    /// Removes a level.
    ///
    /// MUST refuse an unknown one ([`Code::NotFound`]), and one that keys or levels are in ([`Code::Conflict`]); the
    /// cluster itself is such a one.
    async fn remove_level(&self, path: &LevelPath) -> Result<(), ControlError>;
}

/// Checks a key's name as [`Tenancy::create_key`] must.
///
/// # Errors
/// What `create_key` must answer.
pub fn check_key_name(name: &str) -> Result<&str, ControlError> {
    let wrong = |problem: &str| {
        Err(
            ControlError::new(Code::InvalidRequest, format!("name: {problem}"))
                .with_hint("a key's name says whose it is, such as \"build server\""),
        )
    };
    let name = name.trim();
    if name.is_empty() {
        return wrong("it is empty");
    }
    if name.chars().count() > 128 {
        return wrong("it is longer than 128 characters");
    }
    if terminal::line(name) != name {
        return wrong("it has a control character");
    }
    Ok(name)
}

/// The key that is asked for, as [`Tenancy::create_key`] must check it among these levels.
///
/// # Errors
/// What `create_key` must answer.
pub fn check_key(
    request: KeyRequest,
    levels: &[Level],
    hash: KeyHash,
    now: Timestamp,
) -> Result<ApiKey, ControlError> {
    let KeyRequest {
        name,
        level,
        expires_in,
        limits,
    } = request;
    let name = check_key_name(&name)?;
    if !is_there(&level, levels) {
        let message = format!("level: there is no {} {level}", level.kind());
        return Err(ControlError::new(Code::InvalidRequest, message)
            .with_hint(format!("`llmgw ctl tenants create {level}` makes it")));
    }
    if let Some(span) = expires_in.filter(|span| !LASTS.contains(&span.0)) {
        let message = format!("expires_in: {span} is not between 1 second and 100 years");
        return Err(ControlError::new(Code::InvalidRequest, message).with_hint(
            "write for example 30days, or leave it out for a key that never ends by itself",
        ));
    }
    limits.check("limits")?;
    Ok(ApiKey {
        level,
        expires_at: expires_in.map(|span| now.plus(span.0)),
        limits,
        ..ApiKey::new(KeyId::generate(), name, hash, now)
    })
}

/// The key as it is to be limited, as [`Tenancy::limit_key`] must check it among these.
///
/// # Errors
/// What `limit_key` must answer.
pub fn check_limited_key<'k>(
    id: KeyId,
    limits: Limits,
    mut keys: impl Iterator<Item = &'k ApiKey>,
) -> Result<ApiKey, ControlError> {
    let key = keys.find(|key| key.id == id);
    let key = key.ok_or_else(|| ControlError::unknown_key(id))?;
    limits.check("limits")?;
    Ok(ApiKey {
        limits,
        ..key.clone()
    })
}

/// A key as the audit log names it: by its id, and by what people called it, for the key may be gone when it is read.
#[must_use]
pub fn key_subject(key: &ApiKey) -> String {
    format!("{} {}", key.id, key.name)
}

/// A key as it is shown; `uses` says what is spent and held of a quota.
#[must_use]
pub fn key_view(key: &ApiKey, now: Timestamp, uses: &Uses) -> KeyView {
    KeyView {
        id: key.id,
        name: key.name.clone(),
        created_at: key.created_at,
        level: key.level.clone(),
        expires_at: key.expires_at,
        spending: spending(&Party::Key(key.id), &key.limits, now, uses),
        limits: key.limits.clone(),
    }
}

/// The level that is asked for, as [`Tenancy::create_level`] must check it among these.
///
/// # Errors
/// What `create_level` must answer.
pub fn check_new_level(
    request: LevelRequest,
    levels: &[Level],
    now: Timestamp,
) -> Result<Level, ControlError> {
    let LevelRequest { path, limits } = request;
    if is_there(&path, levels) {
        let message = format!("there is a {} {path} already", path.kind());
        return Err(
            ControlError::new(Code::Conflict, message).with_hint(format!(
                "`llmgw ctl tenants limit {path}` changes its limits"
            )),
        );
    }
    let parent = path.parent().unwrap_or_default();
    if !is_there(&parent, levels) {
        let message = format!("path: there is no {} {parent}", parent.kind());
        return Err(ControlError::new(Code::InvalidRequest, message)
            .with_hint(format!("`llmgw ctl tenants create {parent}` makes it")));
    }
    limits.check("limits")?;
    Ok(Level {
        path,
        limits,
        created_at: now,
    })
}

/// The level as it is to be limited, as [`Tenancy::limit_level`] must check it among these.
///
/// # Errors
/// What `limit_level` must answer.
pub fn check_limited_level(
    request: LevelRequest,
    levels: &[Level],
    now: Timestamp,
) -> Result<Level, ControlError> {
    let LevelRequest { path, limits } = request;
    if !is_there(&path, levels) {
        return Err(unknown_level(&path));
    }
    limits.check("limits")?;
    let known = levels.iter().find(|level| level.path == path);
    Ok(Level {
        created_at: known.map_or(now, |level| level.created_at),
        path,
        limits,
    })
}

/// Checks that a level may go, as [`Tenancy::remove_level`] must; `keys` are the levels of all keys.
///
/// # Errors
/// What `remove_level` must answer.
pub fn check_level_removal<'k>(
    path: &LevelPath,
    levels: &[Level],
    keys: impl Iterator<Item = &'k LevelPath>,
) -> Result<(), ControlError> {
    if path.is_cluster() {
        let message = "the cluster itself can't be removed";
        return Err(ControlError::new(Code::Conflict, message)
            .with_hint("`llmgw ctl tenants limit /` changes its limits"));
    }
    if !is_there(path, levels) {
        return Err(unknown_level(path));
    }
    let within = |other: &LevelPath| other != path && other.is_within(path);
    if let Some(inner) = levels.iter().find(|level| within(&level.path)) {
        let (kind, inner) = (inner.path.kind(), &inner.path);
        let message = format!("the {kind} {inner} is in {path}");
        return Err(ControlError::new(Code::Conflict, message)
            .with_hint(format!("`llmgw ctl tenants remove {inner}` removes it")));
    }
    match keys.filter(|level| *level == path).count() {
        0 => Ok(()),
        count => {
            let message = format!("{count} keys belong to {path}");
            Err(ControlError::new(Code::Conflict, message)
                .with_hint("`llmgw ctl keys` lists them, `llmgw ctl keys revoke` ends one"))
        }
    }
}

/// Levels as they are shown, by path, the cluster first; `keys` are the levels of all keys, `uses` say what is spent and
/// held of quotas.
#[must_use]
pub fn level_views<'k>(
    levels: &[Level],
    keys: impl Iterator<Item = &'k LevelPath> + Clone,
    now: Timestamp,
    uses: &Uses,
) -> Vec<LevelView> {
    let view = |path: &LevelPath, limits: &Limits, created_at| LevelView {
        path: path.clone(),
        kind: path.kind().to_owned(),
        limits: limits.clone(),
        spending: spending(&Party::Level(path.clone()), limits, now, uses),
        keys: keys.clone().filter(|level| *level == path).count(),
        created_at,
    };
    let mut views: Vec<LevelView> = levels
        .iter()
        .map(|level| view(&level.path, &level.limits, Some(level.created_at)))
        .collect();
    if !levels.iter().any(|level| level.path.is_cluster()) {
        views.push(view(&LevelPath::CLUSTER, &Limits::default(), None));
    }
    views.sort_by(|a, b| a.path.cmp(&b.path));
    views
}

/// What is spent and held of quotas; of one that is not there, nothing.
pub type Uses = BTreeMap<Quota, Standing>;

/// The quotas that a party's budgets are counted in now.
#[must_use]
pub fn spending_quotas(party: &Party, limits: &Limits, now: Timestamp) -> Vec<Quota> {
    let budgets = limits.budgets.iter();
    let quota = |budget: &Budget| Quota {
        party: party.clone(),
        measure: Measure::Cost,
        window: Window::of(budget.period, now),
    };
    budgets.map(quota).collect()
}

fn spending(party: &Party, limits: &Limits, now: Timestamp, uses: &Uses) -> Vec<SpendingView> {
    let quotas = spending_quotas(party, limits, now);
    let view = |(budget, quota): (&Budget, Quota)| {
        let used = uses.get(&quota).copied().unwrap_or_default();
        let micros = |amount: u64| Micros(i64::try_from(amount).unwrap_or(i64::MAX));
        SpendingView {
            period: budget.period,
            amount_micros: budget.amount_micros,
            spent_micros: micros(used.spent_by_others),
            reserved_micros: micros(used.held_by_others),
            resets_at: quota.window.ends(),
        }
    };
    limits.budgets.iter().zip(quotas).map(view).collect()
}

/// No level has this path.
#[must_use]
pub fn unknown_level(path: &LevelPath) -> ControlError {
    let message = format!("there is no {} {path}", path.kind());
    ControlError::new(Code::NotFound, message)
        .with_hint("`llmgw ctl tenants` lists those there are")
}

fn is_there(path: &LevelPath, levels: &[Level]) -> bool {
    path.is_cluster() || levels.iter().any(|level| level.path == *path)
}

/// How long keys last; years are of 365.25 days.
const LASTS: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(100 * 31_557_600);
