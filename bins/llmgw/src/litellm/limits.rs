//! What limits a level or a key: never wider here than it was there.

use llmgw_core::{
    cluster::tenancy::{Budget, BudgetKind, Limits, Period},
    id::ModelName,
    units::Micros,
};

use super::{
    document::{Fields, Node, Place},
    models::whole,
    told::{Told, short},
};

/// Reads the limits among the fields of a key, a team or a project, or of the whole.
pub(super) fn read<'a>(fields: &mut Fields<'a>, told: &mut Told) -> Limits {
    let mut limits = Limits::default();
    if let Some(node) = fields.take("models") {
        limits.models = models(node, &fields.place.key("models"), told);
    }
    rates_and_money(fields, &mut limits, told);
    // Of a budget that several share here and there: what is not said at the place itself.
    if let Some(table) = fields.take("litellm_budget_table") {
        let place = fields.place.key("litellm_budget_table");
        if let Some(mut inner) = Fields::of(table, &place) {
            let mut of_table = Limits::default();
            rates_and_money(&mut inner, &mut of_table, told);
            unknown(&inner, told);
            let nobody = of_table.models.is_some();
            limits.requests_per_minute =
                limits.requests_per_minute.or(of_table.requests_per_minute);
            limits.tokens_per_minute = limits.tokens_per_minute.or(of_table.tokens_per_minute);
            limits.concurrent = limits.concurrent.or(of_table.concurrent);
            if limits.budgets.is_empty() {
                limits.budgets = of_table.budgets;
            }
            if nobody {
                limits.models = Some(Vec::new());
            }
        }
    }
    if fields.take("blocked").is_some_and(Node::is_true) {
        limits.models = Some(Vec::new());
    }
    limits
}

fn rates_and_money<'a>(fields: &mut Fields<'a>, limits: &mut Limits, told: &mut Told) {
    for (key, limit) in [
        ("rpm_limit", &mut limits.requests_per_minute),
        ("tpm_limit", &mut limits.tokens_per_minute),
        ("max_parallel_requests", &mut limits.concurrent),
    ] {
        let place = fields.place.key(key);
        let Some(node) = fields.take(key) else {
            continue;
        };
        if told.is_variable(&place, node) {
            limits.models = Some(Vec::new());
            continue;
        }
        match node.number().and_then(whole) {
            Some(0) => nobody(&mut limits.models, node, &place, told),
            Some(number) => *limit = Some(number),
            None => {
                told.left(&place, node, "it is no limit", "");
                limits.models = Some(Vec::new());
            }
        }
    }
    budgets(fields, limits, told);
}

/// Reads the budgets alone: those of the whole stand in a section of the configuration.
pub(super) fn budgets<'a>(fields: &mut Fields<'a>, limits: &mut Limits, told: &mut Told) {
    let duration = fields.take("budget_duration");
    let duration_at = fields.place.key("budget_duration");
    if let Some(node) = fields.take("max_budget") {
        let place = fields.place.key("max_budget");
        money(
            node,
            &place,
            duration.map(|node| (node, &duration_at)),
            limits,
            told,
        );
    }
    if let Some(node) = fields.take("budget_limits") {
        let place = fields.place.key("budget_limits");
        for (index, one) in node.list().unwrap_or_default().iter().enumerate() {
            let place = place.index(index);
            let duration_at = place.key("budget_duration");
            if let Some(amount) = one.get("max_budget") {
                let duration = one.get("budget_duration").map(|node| (node, &duration_at));
                money(amount, &place.key("max_budget"), duration, limits, told);
            }
        }
    }
}

fn money(
    node: &Node,
    place: &Place,
    duration: Option<(&Node, &Place)>,
    limits: &mut Limits,
    told: &mut Told,
) {
    let is_variable = told.is_variable(place, node);
    let amount = node
        .number()
        .filter(|amount| *amount >= 0.0 && !is_variable);
    let Some(amount) = amount else {
        if !is_variable {
            told.left(place, node, "it is no amount", "");
        }
        limits.models = Some(Vec::new());
        return;
    };
    if amount == 0.0 {
        nobody(&mut limits.models, node, place, told);
        return;
    }
    let (period, parts) = match duration {
        None => (Period::Total, 1),
        Some((node, place)) => match node.text().and_then(period) {
            Some((period, 1)) => (period, 1),
            Some((period, parts)) => {
                let why = format!(
                    "there are budgets of an hour, a day, a month and in total: a part of it is to be spent in each {}",
                    period.as_str()
                );
                told.changed(place, node, why, "");
                (period, parts)
            }
            None => {
                told.changed(
                    place,
                    node,
                    "it is no length of time: the budget is never renewed",
                    "",
                );
                (Period::Total, 1)
            }
        },
    };
    #[expect(
        clippy::cast_precision_loss,
        reason = "as many as a long time has days"
    )]
    let micros = (amount * 1e6 / parts as f64).floor().clamp(1.0, 1e15);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it is clamped to whole numbers below 2^53"
    )]
    let budget = Budget {
        amount_micros: Micros(micros as i64),
        period,
        kind: BudgetKind::Hard,
    };
    match limits
        .budgets
        .iter_mut()
        .find(|other| other.period == period)
    {
        Some(other) => other.amount_micros = other.amount_micros.min(budget.amount_micros),
        None => limits.budgets.push(budget),
    }
}

/// The longest period that is no longer than what is said, and how many of it that is; such as `30d`, `1mo`, `daily`.
/// What is shorter than an hour is an hour.
fn period(text: &str) -> Option<(Period, u64)> {
    let text = text.trim().to_ascii_lowercase();
    let text = match text.as_str() {
        "hourly" => "1h",
        "daily" => "1d",
        "weekly" => "7d",
        "monthly" => "1mo",
        text => text,
    };
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(digits)?;
    let number: u64 = number.parse().ok().filter(|number| *number > 0)?;
    let days = |days: u64| match days {
        // LiteLLM's 30 days are a calendar month.
        30 => (Period::Month, 1),
        days => (Period::Day, days),
    };
    let hours = |hours: u64| match hours {
        hours if hours % 24 == 0 => days(hours / 24),
        hours => (Period::Hour, hours),
    };
    Some(match unit {
        "s" => hours(number.div_ceil(3_600)),
        "m" => hours(number.div_ceil(60)),
        "h" => hours(number),
        "d" => days(number),
        "w" => days(number.checked_mul(7)?),
        "mo" => (Period::Month, number),
        _ => return None,
    })
}

/// The models that may be used; `None` for all of them.
fn models(node: &Node, place: &Place, told: &mut Told) -> Option<Vec<ModelName>> {
    let texts = node.value.texts();
    // An empty list is no list there, and all that the team may use is what the level says here.
    if texts.is_empty() || texts.iter().any(|text| ALL.contains(text)) {
        return None;
    }
    let mut models: Vec<ModelName> = Vec::new();
    for text in texts {
        match text.parse::<ModelName>() {
            _ if text == NONE => {}
            Ok(name) if !models.contains(&name) => models.push(name),
            Ok(_) => {}
            Err(_) => {
                let why = format!("{} is no name of a model: it allows none here", short(text));
                told.left(place, node, why, "name the models");
            }
        }
    }
    Some(models)
}

fn nobody(models: &mut Option<Vec<ModelName>>, node: &Node, place: &Place, told: &mut Told) {
    *models = Some(Vec::new());
    let why = "nothing could be done with it: it is allowed no model";
    told.changed(place, node, why, "");
}

/// Says what else is there.
pub(super) fn unknown(fields: &Fields<'_>, told: &mut Told) {
    for (key, node) in fields.rest() {
        let place = fields.place.key(key);
        let (why, help) = match key {
            "spend" | "total_spend" | "model_spend" => {
                ("what was spent is not carried: budgets begin anew", "")
            }
            "soft_budget" => (
                "it only warned",
                "alerts on the metrics of budgets warn, where Prometheus reads them",
            ),
            "model_max_budget" | "model_rpm_limit" | "model_tpm_limit" | "tpd_limit" => {
                ("limits hold for all models, by the minute and by money", "")
            }
            "aliases" | "model_aliases" | "litellm_model_table" => (
                "aliases are the model's, for all keys",
                "add them to the model: aliases: [NAME]",
            ),
            "user_id" | "users" | "members" | "members_with_roles" | "admins"
            | "team_memberships" => (
                "there are no users: keys belong to levels, and limits of users are not in these files",
                "make a project for whom is to be limited apart",
            ),
            "access_group_ids" => ("there are no groups of models", "name the models"),
            _ => ("llmgw has no such thing", ""),
        };
        told.left(&place, node, why, help);
    }
}

const ALL: [&str; 3] = ["all-team-models", "all-proxy-models", "*"];
const NONE: &str = "no-default-models";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_so_many_of_the_longest_period_in_it() {
        for (text, expected) in [
            ("1h", Some((Period::Hour, 1))),
            ("24h", Some((Period::Day, 1))),
            ("daily", Some((Period::Day, 1))),
            ("7d", Some((Period::Day, 7))),
            ("weekly", Some((Period::Day, 7))),
            ("2w", Some((Period::Day, 14))),
            ("30d", Some((Period::Month, 1))),
            ("1mo", Some((Period::Month, 1))),
            ("3mo", Some((Period::Month, 3))),
            ("30s", Some((Period::Hour, 1))),
            ("90m", Some((Period::Hour, 2))),
            ("720h", Some((Period::Month, 1))),
            ("0d", None),
            ("d", None),
            ("30", None),
            ("30y", None),
            ("99999999999999999999d", None),
        ] {
            assert_eq!(period(text), expected, "{text}");
        }
    }
}
