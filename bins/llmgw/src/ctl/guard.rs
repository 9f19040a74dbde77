//! The guard: the rules that hold, what they would find, what they did.

use std::io::Read as _;

use clap::Subcommand;
use llmgw_core::{
    api::guard::{GuardTrial, GuardTry, GuardView},
    clock::{Clock, SystemClock, Timestamp},
    cluster::{
        guard::{GuardedCall, RuleDefinition, Stage, StageNames},
        tenancy::LevelPath,
    },
    control::Control,
    terminal::one_line,
    units::Span,
};

use super::text::span;
use crate::{
    failure::{Cause, Failure},
    grid::grid,
    output::{Format, Shown},
};

#[derive(Clone, Debug, Subcommand)]
pub(super) enum GuardOrder {
    /// The rules that hold for a level, in their order
    Show {
        /// Such as acme/search; the whole cluster when left out
        #[arg(long, default_value = "/")]
        level: LevelPath,
    },
    /// What the rules would find in a text, and do about it; models are not asked, and the text is kept nowhere
    Test {
        /// The text; `-` for standard input
        text: String,
        /// By the rules of this level
        #[arg(long, default_value = "/")]
        level: LevelPath,
        /// As what clients send, or as what models answer: input, output
        #[arg(long, default_value = "input")]
        stage: Stage,
    },
    /// The calls that rules matched, the newest first, and what was done: nothing of what they said
    Decisions {
        /// Over the last so long, such as 1h or 30days
        #[arg(long, value_name = "TIME", default_value = "24h")]
        since: Span,
        /// No more than this many; 1,000 are the most
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
}

// === impl GuardOrder ===

impl GuardOrder {
    /// What is asked when nothing is.
    pub(super) fn show() -> Self {
        Self::Show {
            level: LevelPath::CLUSTER,
        }
    }
}

pub(super) async fn guard(
    control: &Control,
    format: Format,
    order: GuardOrder,
) -> Result<Shown, Failure> {
    let guard = &control.guard;
    match order {
        GuardOrder::Show { level } => format.show(&guard.rules(&level).await?, rules),
        GuardOrder::Test { text, level, stage } => {
            let text = match text.as_str() {
                "-" => piped()?,
                _ => text,
            };
            let request = GuardTry { text, level, stage };
            format.show(&guard.try_text(request).await?, trial)
        }
        GuardOrder::Decisions { since, limit } => {
            let calls = guard.guarded(since.0, limit).await?;
            let now = SystemClock::new().now();
            format.list(&calls, |all| decisions(all, now), "no rule matched a call")
        }
    }
}

fn piped() -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().take(MOST + 1).read_to_string(&mut text);
    read.map_err(|error| Failure::new(Cause::Usage, format!("standard input: {error}")))?;
    Ok(text)
}

/// The rules that hold.
fn rules(view: &GuardView) -> String {
    let mut text = match (view.baseline, view.rules.is_empty()) {
        (true, _) => "The baseline stands: no policy was given.\n".to_owned(),
        (false, true) => return "No rule holds: nothing is checked.\n".to_owned(),
        (false, false) => String::new(),
    };
    let row = |held: &llmgw_core::api::guard::HeldRule| {
        vec![
            held.rule.name.clone(),
            held.by.to_string(),
            match held.rule.stages {
                None | Some(StageNames::Input) => "input".to_owned(),
                Some(StageNames::Output) => "output".to_owned(),
                Some(StageNames::Both) => "both".to_owned(),
            },
            held.rule.action.to_string(),
            if held.rule.locked { "yes" } else { "" }.to_owned(),
            looks_for(&held.rule),
        ]
    };
    text.push_str(&grid(
        &["RULE", "BY", "STAGES", "ACTION", "LOCKED", "LOOKS FOR"],
        &[],
        view.rules.iter().map(row),
    ));
    text
}

fn looks_for(rule: &RuleDefinition) -> String {
    let words = match (&rule.keywords, &rule.regex, &rule.pii, &rule.judge) {
        (Some(words), ..) => format!("words: {}", words.join(", ")),
        (_, Some(regex), ..) => format!("regex: {regex}"),
        (_, _, Some(kinds), _) => {
            let kinds = kinds.iter().map(|kind| format!("{kind:?}").to_lowercase());
            kinds.collect::<Vec<_>>().join(", ")
        }
        (.., Some(judge)) => format!("judge {}: {}", judge.model, judge.prompt),
        (None, None, None, None) => String::new(),
    };
    let mut line: String = one_line(&words).chars().take(WIDEST).collect();
    if line.len() < one_line(&words).len() {
        line.push('…');
    }
    line
}

/// What was found in a text.
fn trial(trial: &GuardTrial) -> String {
    let mut text = match trial.action {
        None => "nothing is found\n".to_owned(),
        Some(action) => {
            let rows = trial.matched.iter().map(|one| {
                vec![
                    one.rule.to_string(),
                    one.by.to_string(),
                    one.action.to_string(),
                    one.count.to_string(),
                ]
            });
            let table = grid(&["RULE", "BY", "ACTION", "TIMES"], &[3], rows);
            format!("{action}\n{table}")
        }
    };
    if let Some(changed) = &trial.text {
        text.push_str(&format!("goes on as: {}\n", one_line(changed)));
    }
    if !trial.not_asked.is_empty() {
        let names: Vec<&str> = trial.not_asked.iter().map(|name| name.as_str()).collect();
        text.push_str(&format!("not asked: the judges of {}\n", names.join(", ")));
    }
    text
}

/// A line for each rule that matched a call.
fn decisions(calls: &[GuardedCall], now: Timestamp) -> String {
    let rows = calls.iter().flat_map(|call| {
        call.decisions.iter().map(move |decision| {
            vec![
                span(now.since(call.at).as_secs()),
                decision.rule.to_string(),
                decision.by.to_string(),
                decision.stage.to_string(),
                match decision.failed {
                    true => format!("{} (no score)", decision.action),
                    false => decision.action.to_string(),
                },
                decision.count.to_string(),
                call.model.to_string(),
                call.level.to_string(),
                call.key.short(),
                call.request.to_string(),
            ]
        })
    });
    grid(
        &[
            "AGO", "RULE", "BY", "STAGE", "ACTION", "TIMES", "MODEL", "LEVEL", "KEY", "REQUEST",
        ],
        &[5],
        rows,
    )
}

/// More than what may be tried, so that it is refused and not cut.
const MOST: u64 = 1 << 20;
const WIDEST: usize = 60;
