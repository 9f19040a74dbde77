//! What was seen, in one table.

use serde_json::{Value, json};

use crate::{Args, Trouble, check::Checked, memory::Memory};

/// The whole run.
#[derive(Debug)]
pub(crate) struct Report {
    rows: Vec<(&'static str, bool, String)>,
    examples: Vec<String>,
    json: Value,
}

impl Report {
    pub(crate) fn new(args: &Args, trouble: &Trouble, memory: &Memory, checked: Checked) -> Self {
        let Checked {
            outcomes,
            wrong_ends,
            wrong_counts,
            seen,
            compared,
            tokens,
            estimated,
        } = checked;
        let all: usize = outcomes.values().sum();
        let ways: Vec<String> = outcomes
            .iter()
            .map(|(way, count)| format!("{count} {way}"))
            .collect();
        let mut rows = vec![
            (
                "work",
                seen * 100 >= all * 95 && seen > 0,
                format!("engines saw {seen} of {all} calls; 95 of 100 are the least"),
            ),
            (
                "ends",
                wrong_ends.is_empty() && all > 0,
                format!(
                    "{} of {all} calls ended as none may ({})",
                    wrong_ends.len(),
                    ways.join(", ")
                ),
            ),
            (
                "usage",
                wrong_counts.is_empty() && compared > 0 && tokens.0 == tokens.1,
                format!(
                    "{} records differ: {compared} of {seen} calls that engines saw are in the store; whole answers have {} tokens \
                     there and {} by the engines' counts; {estimated} estimated",
                    wrong_counts.len(),
                    tokens.1,
                    tokens.0,
                ),
            ),
        ];
        let mut grown = Vec::new();
        for process in memory.processes() {
            let (flat, said) = match process.slope() {
                None => (
                    false,
                    format!(
                        "{}: too few samples; run for a minute at least",
                        process.name
                    ),
                ),
                Some(slope) => (
                    slope.is_flat(),
                    format!(
                        "{}: {:.1} MiB to {:.1} MiB over the second half ({:+.1} MiB/h), {:.1} more are allowed",
                        process.name,
                        slope.from,
                        slope.to,
                        slope.hourly,
                        slope.allowed()
                    ),
                ),
            };
            grown.push(json!({
                "process": process.name, "flat": flat,
                "samples": process.samples.iter().map(|(at, kib)| json!([at.round(), kib])).collect::<Vec<_>>(),
                "mib_per_hour": process.slope().map(|slope| slope.hourly),
            }));
            rows.push(("memory", flat, said));
        }
        let away = trouble.away.as_secs_f64() / trouble.whole.as_secs_f64() * 100.0;
        rows.push((
            "trouble",
            trouble.kills > 0 && trouble.aways > 0,
            format!(
                "{} engines killed; the store was away {} times, {away:.0} % of the time",
                trouble.kills, trouble.aways
            ),
        ));
        let json = json!({
            "minutes": args.minutes, "streams": args.streams, "seed": args.seed, "outcomes": outcomes,
            "wrong_ends": wrong_ends, "wrong_counts": wrong_counts, "calls_seen": seen, "records_compared": compared,
            "tokens_counted": tokens.0, "tokens_stored": tokens.1, "estimated": estimated, "memory": grown,
            "kills": trouble.kills, "store_away_percent": away,
        });
        let examples = wrong_ends
            .into_iter()
            .take(8)
            .chain(wrong_counts.into_iter().take(8))
            .collect();
        Self {
            rows,
            examples,
            json,
        }
    }

    pub(crate) fn is_right(&self) -> bool {
        self.rows.iter().all(|(_, right, _)| *right)
    }

    pub(crate) fn table(&self) -> String {
        let mut text = String::from("\nCHECK    RESULT  SEEN\n");
        for (check, right, said) in &self.rows {
            let result = if *right { "ok" } else { "BROKEN" };
            text.push_str(&format!("{check:<8} {result:<7} {said}\n"));
        }
        for example in &self.examples {
            text.push_str(&format!("such as  {example}\n"));
        }
        text
    }

    pub(crate) fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(&self.json)?)
    }
}
