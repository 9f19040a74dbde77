//! API keys, and the organisations, teams and projects that they belong to.

use clap::{Args, Subcommand};
use llmgw_core::{
    api::tenancy::{
        KeyRequest, KeyView, LevelRemoved, LevelRequest, LevelView, Revoked, SpendingView,
    },
    clock::{Clock, SystemClock, Timestamp},
    cluster::tenancy::{Budget, LevelPath, Limits},
    control::Control,
    id::{KeyId, ModelName},
    terminal::one_line,
    units::{Micros, Span},
};

use super::{tables::UNKNOWN, text::moment};
use crate::{
    failure::Failure,
    grid::grid,
    output::{Format, Shown},
};

#[derive(Clone, Debug, Subcommand)]
pub(super) enum KeyOrder {
    /// Make a key; its secret is shown this once
    Create(CreateKeyArgs),
    /// Limit a key so, in the place of all that was limited for it alone; what it has spent stays spent
    Limit(LimitKeyArgs),
    /// Revoke a key: it opens nothing from now on
    Revoke {
        /// The key's id
        id: KeyId,
    },
}

#[derive(Args, Clone, Debug)]
pub(super) struct CreateKeyArgs {
    /// What people call it
    name: String,
    /// Whose it is: an organisation, a team or a project, such as acme/search; the cluster's own when left out
    #[arg(long, default_value = "/")]
    level: LevelPath,
    /// How long it opens anything, such as 30days; until it is revoked when left out
    #[arg(long, value_name = "TIME")]
    expires: Option<Span>,
    #[command(flatten)]
    limits: LimitArgs,
}

#[derive(Args, Clone, Debug)]
pub(super) struct LimitKeyArgs {
    /// The key's id
    id: KeyId,
    #[command(flatten)]
    limits: LimitArgs,
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum TenantOrder {
    /// Make an organisation, a team of one, or a project of a team
    Create(LevelArgs),
    /// Limit a level so, in the place of all that was limited there; `/` is the cluster itself
    Limit(LevelArgs),
    /// Remove a level that no key and no other level is in
    Remove {
        /// Which, such as acme/search
        level: LevelPath,
    },
}

#[derive(Args, Clone, Debug)]
pub(super) struct LevelArgs {
    /// Which: the names of the organisation, the team and the project with slashes between them
    level: LevelPath,
    #[command(flatten)]
    limits: LimitArgs,
}

#[derive(Args, Clone, Debug)]
struct LimitArgs {
    /// Only these models, by name or alias, with commas between them; all when left out
    #[arg(long, value_delimiter = ',', value_name = "MODEL")]
    models: Option<Vec<ModelName>>,
    /// So many requests within a minute, from one full minute to the next
    #[arg(long, value_name = "NUMBER")]
    requests_per_minute: Option<u64>,
    /// So many tokens of prompts and answers within a minute
    #[arg(long, value_name = "NUMBER")]
    tokens_per_minute: Option<u64>,
    /// So many requests at the same time
    #[arg(long, value_name = "NUMBER")]
    concurrent: Option<u64>,
    /// So much may be spent within an hour, a day, a month or in total, such as 25/month; 25/month/soft goes on being
    /// served while the store is away. May be given for each period
    #[arg(long = "budget", value_name = "AMOUNT/PERIOD")]
    budgets: Vec<Budget>,
}

// === impl LimitArgs ===

impl From<LimitArgs> for Limits {
    fn from(args: LimitArgs) -> Self {
        let LimitArgs {
            models,
            requests_per_minute,
            tokens_per_minute,
            concurrent,
            budgets,
        } = args;
        Self {
            models,
            requests_per_minute,
            tokens_per_minute,
            concurrent,
            budgets,
        }
    }
}

// === impl LevelArgs ===

impl From<LevelArgs> for LevelRequest {
    fn from(args: LevelArgs) -> Self {
        Self {
            path: args.level,
            limits: args.limits.into(),
        }
    }
}

pub(super) async fn keys(
    control: &Control,
    format: Format,
    order: Option<KeyOrder>,
) -> Result<Shown, Failure> {
    match order {
        None => {
            let keys = control.tenancy.keys().await?;
            let now = SystemClock::new().now();
            format.list(&keys, |keys| key_table(keys, now), "there is no key yet")
        }
        Some(KeyOrder::Create(args)) => {
            let limits: Limits = args.limits.into();
            let unknown = unknown_models(control, &limits).await?;
            let request = KeyRequest {
                name: args.name,
                level: args.level,
                expires_in: args.expires,
                limits,
            };
            let created = control.tenancy.create_key(request).await?;
            let shown = format.show(&created, |created| format!("{}\n", created.secret))?;
            let id = &created.key.id;
            Ok(match format {
                // The secret alone is the answer, so that a script can take it.
                Format::Table => shown.with_remark(format!(
                    "its id is {id}: `llmgw ctl keys revoke {id}` ends it{unknown}"
                )),
                Format::Json | Format::Yaml if unknown.is_empty() => shown,
                Format::Json | Format::Yaml => shown.with_remark(unknown),
            })
        }
        Some(KeyOrder::Limit(LimitKeyArgs { id, limits })) => {
            let limits: Limits = limits.into();
            let unknown = unknown_models(control, &limits).await?;
            let key = control.tenancy.limit_key(id, limits).await?;
            let now = SystemClock::new().now();
            let shown = format.show(&key, |key| key_table(std::slice::from_ref(key), now))?;
            Ok(if unknown.is_empty() {
                shown
            } else {
                shown.with_remark(unknown)
            })
        }
        Some(KeyOrder::Revoke { id }) => {
            control.tenancy.revoke_key(id).await?;
            format.show(&Revoked { revoked: id }, |answer| {
                format!("revoked {}\n", answer.revoked)
            })
        }
    }
}

pub(super) async fn tenants(
    control: &Control,
    format: Format,
    order: Option<TenantOrder>,
) -> Result<Shown, Failure> {
    let one = |level: &LevelView| level_table(std::slice::from_ref(level));
    match order {
        None => {
            let levels = control.tenancy.levels().await?;
            format.list(&levels, level_table, "there is no level")
        }
        Some(TenantOrder::Create(args)) => {
            let level = control.tenancy.create_level(args.into()).await?;
            format.show(&level, one)
        }
        Some(TenantOrder::Limit(args)) => {
            let level = control.tenancy.limit_level(args.into()).await?;
            format.show(&level, one)
        }
        Some(TenantOrder::Remove { level }) => {
            control.tenancy.remove_level(&level).await?;
            format.show(&LevelRemoved { removed: level }, |answer| {
                format!("removed {}\n", answer.removed)
            })
        }
    }
}

/// What is said of models that a key may use and that there are none of: they may come yet. Empty when there is none.
async fn unknown_models(control: &Control, limits: &Limits) -> Result<String, Failure> {
    let Some(wanted) = limits.models.as_ref().filter(|models| !models.is_empty()) else {
        return Ok(String::new());
    };
    let models = control.catalog.models().await?;
    let known = |name: &&ModelName| {
        let mut all = models.iter();
        all.any(|model| model.name == **name || model.aliases.contains(name))
    };
    let unknown: Vec<&str> = wanted
        .iter()
        .filter(|name| !known(name))
        .map(ModelName::as_str)
        .collect();
    Ok(match unknown.as_slice() {
        [] => String::new(),
        [one] => {
            format!("; warning: there is no model {one} (`llmgw ctl models` lists those there are)")
        }
        some => format!(
            "; warning: there are no models {} (`llmgw ctl models` lists those there are)",
            some.join(", ")
        ),
    })
}

fn key_table(keys: &[KeyView], now: Timestamp) -> String {
    let row = |key: &KeyView| {
        let ends = match key.expires_at {
            None => "never".to_owned(),
            Some(end) if end <= now => format!("has expired, {}", moment(end)),
            Some(end) => moment(end),
        };
        vec![
            key.id.to_string(),
            one_line(&key.name),
            key.level.to_string(),
            moment(key.created_at),
            ends,
            limited(&key.limits),
            spent(&key.spending),
        ]
    };
    grid(
        &["ID", "NAME", "LEVEL", "MADE", "EXPIRES", "LIMITS", "SPENT"],
        &[],
        keys.iter().map(row),
    )
}

fn level_table(levels: &[LevelView]) -> String {
    let row = |level: &LevelView| {
        vec![
            level.path.to_string(),
            one_line(&level.kind),
            level.keys.to_string(),
            level.created_at.map_or_else(|| UNKNOWN.to_owned(), moment),
            limited(&level.limits),
            spent(&level.spending),
        ]
    };
    grid(
        &["LEVEL", "KIND", "KEYS", "MADE", "LIMITS", "SPENT"],
        &[2],
        levels.iter().map(row),
    )
}

/// What is spent of each budget, and what is held of it, in one line.
fn spent(spending: &[SpendingView]) -> String {
    let said = |one: &SpendingView| {
        let spent = one.spent_micros.shortest();
        let held = match one.reserved_micros {
            Micros(0) => String::new(),
            held => format!(" (and {} reserved)", held.shortest()),
        };
        let resets = one.resets_at.map(|at| format!(", until {}", moment(at)));
        let resets = resets.unwrap_or_default();
        format!("{spent}{held} of {}{resets}", one.amount_micros.shortest())
    };
    match spending {
        [] => UNKNOWN.to_owned(),
        some => some.iter().map(said).collect::<Vec<_>>().join("; "),
    }
}

/// What is limited, in one line.
pub(crate) fn limited(limits: &Limits) -> String {
    let Limits {
        models,
        requests_per_minute,
        tokens_per_minute,
        concurrent,
        budgets,
    } = limits;
    let mut said = Vec::new();
    if let Some(models) = models {
        said.push(match models.as_slice() {
            [] => "no model".to_owned(),
            some => {
                let names: Vec<&str> = some.iter().map(ModelName::as_str).collect();
                format!("only {}", names.join(", "))
            }
        });
    }
    for (limit, what) in [
        (requests_per_minute, "requests per minute"),
        (tokens_per_minute, "tokens per minute"),
        (concurrent, "at the same time"),
    ] {
        said.extend(limit.map(|limit| format!("{limit} {what}")));
    }
    said.extend(budgets.iter().map(ToString::to_string));
    if said.is_empty() {
        return "none".to_owned();
    }
    said.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_is_said_with_when_it_begins_anew() {
        let one = SpendingView {
            period: llmgw_core::cluster::tenancy::Period::Day,
            amount_micros: Micros(25_000_000),
            spent_micros: Micros(1_500_000),
            reserved_micros: Micros(20_000),
            resets_at: Some(Timestamp(86_400_000)),
        };
        let said = "1.5 (and 0.02 reserved) of 25, until 1970-01-02 00:00:00Z";
        assert_eq!(spent(&[one]), said);
        assert_eq!(spent(&[]), "-");
    }

    #[test]
    fn limits_are_said_in_one_line() {
        let some = |models: &[&str]| Limits {
            models: Some(models.iter().map(|name| name.parse().unwrap()).collect()),
            concurrent: Some(4),
            budgets: vec!["25/month".parse().unwrap()],
            ..Limits::default()
        };
        assert_eq!(limited(&Limits::default()), "none");
        assert_eq!(
            limited(&some(&[])),
            "no model; 4 at the same time; 25/month"
        );
        assert_eq!(
            limited(&some(&["a", "b/c"])),
            "only a, b/c; 4 at the same time; 25/month"
        );
    }
}
