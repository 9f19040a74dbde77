//! What was used, what it cost, and what models cost.

use clap::{Args, Subcommand, ValueEnum};
use llmgw_core::{
    api::usage::{PriceRequest, UsageBy, UsageOf, UsageView},
    cluster::tenancy::Price,
    control::Control,
    id::ModelName,
    units::{Micros, Span},
};

use super::text::moment;
use crate::{
    failure::{Cause, Failure},
    grid::grid,
    output::{Format, Shown},
};

#[derive(Args, Clone, Debug)]
pub(super) struct UsageArgs {
    /// Sum up by these, with commas between them: model, key, level, organisation, team, hour, day, month
    #[arg(long, default_value = "key,model")]
    by: UsageBy,
    /// Over the last so long, such as 1h or 30days
    #[arg(long, value_name = "TIME", default_value = "24h")]
    since: Span,
    /// For a spreadsheet or for programs: each line whole
    #[arg(long, value_enum, value_name = "FORM")]
    export: Option<Export>,
}

/// How usage is exported.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Export {
    /// Values with commas between them, and a line of names first (RFC 4180)
    Csv,
    /// An object on each line
    Jsonl,
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum PriceOrder {
    /// Have a model cost so much from now on
    Set {
        /// A model or an alias
        model: ModelName,
        /// For a million tokens of prompts, such as 0.50
        #[arg(long, value_name = "AMOUNT")]
        prompt: Micros,
        /// For a million tokens of prompts that the engine had in its cache; as for all others when left out
        #[arg(long, value_name = "AMOUNT")]
        cached: Option<Micros>,
        /// For a million tokens of answers
        #[arg(long, value_name = "AMOUNT")]
        completion: Micros,
    },
}

pub(super) async fn usage(
    control: &Control,
    format: Format,
    args: UsageArgs,
) -> Result<Shown, Failure> {
    let UsageArgs { by, since, export } = args;
    let usage = control.accounts.usage(by, since.into()).await?;
    match export {
        Some(Export::Csv) => Ok(Shown::line(csv(&usage, by))),
        Some(Export::Jsonl) => Ok(Shown::line(json_lines(&usage)?)),
        None => format.list(
            &usage,
            |usage| table(usage, by),
            "nothing was used in that time",
        ),
    }
}

pub(super) async fn prices(
    control: &Control,
    format: Format,
    order: Option<PriceOrder>,
) -> Result<Shown, Failure> {
    match order {
        None => {
            let prices = control.accounts.prices().await?;
            format.list(&prices, price_table, "no model has a price: all are free")
        }
        Some(PriceOrder::Set {
            model,
            prompt,
            cached,
            completion,
        }) => {
            let request = PriceRequest {
                model,
                prompt,
                cached,
                completion,
            };
            let price = control.accounts.set_price(request).await?;
            format.show(&price, |price| price_table(std::slice::from_ref(price)))
        }
    }
}

/// What stands in the columns that say what a line is for, and their names.
fn places(used: &UsageView, by: UsageBy) -> Vec<(&'static str, String)> {
    let UsageBy {
        model,
        key,
        level,
        time,
    } = by;
    let shown = |value: Option<String>| value.unwrap_or_default();
    let mut places = Vec::new();
    if time.is_some() {
        places.push(("begins", shown(used.at.map(moment))));
    }
    if level.is_some() {
        places.push(("level", shown(used.level.as_ref().map(ToString::to_string))));
    }
    if model {
        places.push(("model", shown(used.model.as_ref().map(ToString::to_string))));
    }
    if key {
        places.push(("key", shown(used.key.clone())));
    }
    places
}

/// How much of its own budget a level or a key has spent, in words.
fn budget(used: &UsageView) -> String {
    let UsageOf {
        budget_micros: Some(amount),
        budget_period: Some(period),
        fraction: Some(fraction),
        ..
    } = &used.of
    else {
        return String::new();
    };
    format!(
        "{:.1} % of {}/{}",
        fraction * 100.0,
        amount.shortest(),
        period.as_str()
    )
}

fn numbers(used: &UsageView) -> [(&'static str, String); 6] {
    [
        ("requests", used.requests.to_string()),
        ("errors", used.errors.to_string()),
        ("prompt tokens", used.prompt_tokens.to_string()),
        ("cached tokens", used.cached_tokens.to_string()),
        ("completion tokens", used.completion_tokens.to_string()),
        ("cost", used.cost_micros.to_string()),
    ]
}

fn table(usage: &[UsageView], by: UsageBy) -> String {
    let has_budgets = usage.iter().any(|used| used.of.fraction.is_some());
    let cells = |used: &UsageView| {
        let mut cells = places(used, by);
        cells.extend(numbers(used));
        if has_budgets {
            cells.push(("budget", budget(used)));
        }
        cells
    };
    let sample = UsageView::default();
    let names: Vec<String> = cells(&sample)
        .into_iter()
        .map(|(name, _)| name.to_uppercase())
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let first = places(&sample, by).len();
    let right: Vec<usize> = (first..names.len()).collect();
    let rows = usage
        .iter()
        .map(|used| cells(used).into_iter().map(|(_, value)| value).collect());
    grid(&names, &right, rows)
}

fn csv(usage: &[UsageView], by: UsageBy) -> String {
    let cells = |used: &UsageView| {
        let mut cells = places(used, by);
        cells.extend(numbers(used));
        cells
    };
    let line = |cells: Vec<String>| format!("{}\r\n", cells.join(","));
    let names = cells(&UsageView::default()).into_iter();
    let mut text = line(names.map(|(name, _)| name.replace(' ', "_")).collect());
    for used in usage {
        let values = cells(used).into_iter();
        text.push_str(&line(values.map(|(_, value)| quoted(&value)).collect()));
    }
    text
}

/// A value as RFC 4180 has it; and one that a spreadsheet would take for a formula, as a text.
fn quoted(value: &str) -> String {
    let risky = value.starts_with(['=', '+', '-', '@']);
    if risky || value.contains(['"', ',', '\r', '\n']) {
        let mark = if risky { "'" } else { "" };
        return format!("\"{mark}{}\"", value.replace('"', "\"\""));
    }
    value.to_owned()
}

fn json_lines(usage: &[UsageView]) -> Result<String, Failure> {
    let mut text = String::new();
    for used in usage {
        let json = serde_json::to_string(used)
            .map_err(|error| Failure::new(Cause::Refused, error.to_string()))?;
        text.push_str(&json);
        text.push('\n');
    }
    Ok(text)
}

fn price_table(prices: &[Price]) -> String {
    let row = |price: &Price| {
        vec![
            price.model.to_string(),
            moment(price.valid_from),
            price.prompt.shortest(),
            price.cached.shortest(),
            price.completion.shortest(),
        ]
    };
    grid(
        &["MODEL", "FROM", "PROMPT", "CACHED", "COMPLETION"],
        &[2, 3, 4],
        prices.iter().map(row),
    )
}

#[cfg(test)]
mod tests {
    use llmgw_core::{clock::Timestamp, testing::control::MemoryControl, units::Tokens};

    use super::*;

    fn used() -> UsageView {
        UsageView {
            at: Some(Timestamp(1_749_945_600_000)),
            level: "acme/search".parse().ok(),
            model: "org/m:7b".parse().ok(),
            requests: 3,
            prompt_tokens: Tokens(40),
            cost_micros: Micros(1_500_000),
            ..UsageView::default()
        }
    }

    #[test]
    fn what_is_exported_has_the_columns_that_were_asked_for() {
        let by: UsageBy = "level,model,day".parse().unwrap();
        assert_eq!(
            csv(&[used()], by),
            "begins,level,model,requests,errors,prompt_tokens,cached_tokens,completion_tokens,cost\r\n\
             2025-06-15 00:00:00Z,acme/search,org/m:7b,3,0,40,0,0,1.500000\r\n"
        );
        let lines = json_lines(&[used(), used()]).unwrap();
        let first: UsageView = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        assert_eq!((first, lines.lines().count()), (used(), 2));
        let shown = table(&[used()], by);
        assert!(
            shown.contains("BEGINS") && shown.contains("acme/search"),
            "{shown}"
        );
    }

    #[test]
    fn a_budget_is_shown_where_there_is_one() {
        let mut of_a_level = used();
        of_a_level.of.budget_micros = Some(Micros(25_000_000));
        of_a_level.of.budget_period = Some(llmgw_core::cluster::tenancy::Period::Month);
        of_a_level.of.fraction = Some(0.06);
        let by: UsageBy = "team".parse().unwrap();
        let shown = table(&[of_a_level, used()], by);
        assert!(shown.contains("6.0 % of 25/month"), "{shown}");
        assert!(!table(&[used()], by).contains("BUDGET"));
    }

    #[tokio::test]
    async fn usage_is_set_right() {
        let accounts = MemoryControl::sample().control().accounts;
        let day = std::time::Duration::from_secs(86_400);
        let usage = accounts.usage(UsageBy::BOTH, day).await.unwrap();
        let shown = table(&usage, UsageBy::BOTH);
        let lines: Vec<&str> = shown.lines().collect();
        let expected = [
            "MODEL         KEY    REQUESTS  ERRORS  PROMPT TOKENS  CACHED TOKENS  COMPLETION TOKENS      COST",
            "org/qwen:7b   key-1        12       0           3400           1000                560  0.002540",
            "smollm2-135m  key-1      1024       7        1234567              0              89012  0.000000",
        ];
        assert_eq!(lines, expected, "\n{shown}");
    }

    #[test]
    fn a_value_is_no_column_and_no_formula() {
        assert_eq!(quoted("a,b"), "\"a,b\"");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
        assert_eq!(quoted("=1+1"), "\"'=1+1\"");
        assert_eq!(quoted("acme/search"), "acme/search");
    }
}
