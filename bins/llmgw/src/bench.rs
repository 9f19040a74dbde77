//! `llmgw bench`: how much a model takes, measured through the gateway as clients see it.

mod call;
mod plot;
mod record;
mod sweep;

use std::{
    fs,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use llmgw_core::{
    error::Chain,
    id::{ModelName, ProfileName},
    units::Span,
};
use serde::Serialize;

use self::{
    call::{Gateway, Work},
    record::Subject,
    sweep::{Goal, Level, Sweep},
};
use crate::{
    ctl::connection::Connection,
    failure::{Cause, Failure},
    grid::grid,
    output::Format,
};

/// Measure how many requests at the same time a model takes within a latency goal
///
/// Sends streamed chat requests to the gateway, more and more at the same time, each with a prompt of its own so that no
/// cache of prefixes helps. Everything else that uses the model at that time is measured along.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct BenchArgs {
    /// The model, or an alias
    model: ModelName,
    /// Where clients connect
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// A file with an API key
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// An API key
    #[arg(
        long,
        value_name = "KEY",
        env = "LLMGW_API_KEY",
        hide_env_values = true,
        conflicts_with = "api_key_file"
    )]
    api_key: Option<Secret>,
    /// The most requests at the same time; doubled from 1 until the goal is missed
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    most: u32,
    /// How long each step lasts; a step also lasts until each of its requests has been answered once
    #[arg(long, value_name = "TIME", default_value = "10s")]
    step: Span,
    /// About how many tokens a prompt has
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    prompt_tokens: u32,
    /// How many tokens an answer has
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    answer_tokens: u32,
    /// The goal: 95 of 100 requests have their first token within this time
    #[arg(long, value_name = "TIME", default_value = "2s")]
    first_token: Span,
    /// The goal: 95 of 100 requests have this mean time between tokens, or less
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    between_tokens: Span,
    /// Keep the result with the control plane, as the capacity of one replica (`llmgw ctl capacity` lists them)
    #[arg(long)]
    record: bool,
    /// Refuse to record unless the replicas that answer run with this profile
    #[arg(long, value_name = "PROFILE", requires = "record")]
    profile: Option<ProfileName>,
    /// Draw it into this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// How to show the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    connection: Connection,
}

/// A key that is in no message.
#[derive(Clone)]
struct Secret(String);

/// What was measured.
#[derive(Debug, Serialize)]
struct Measured {
    model: ModelName,
    prompt_tokens: u32,
    answer_tokens: u32,
    goal: Goal,
    levels: Vec<Level>,
    /// The most requests at the same time within the goal; absent when not even one was.
    capacity: Option<Level>,
    /// Whether the goal was missed by more; else the model may take more than was tried.
    bounded: bool,
}

/// Runs the command.
pub(crate) async fn run(args: BenchArgs) -> ExitCode {
    let output = args.output;
    let measured = tokio::select! {
        measured = measure(args) => measured,
        _ = tokio::signal::ctrl_c() => Err(Failure::new(Cause::Refused, "interrupted")),
    };
    let shown = measured.and_then(|measured| {
        output.show(&measured, table)?.write()?;
        Ok(measured.capacity.is_some())
    });
    match shown {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(failure) => failure.report(),
    }
}

async fn measure(args: BenchArgs) -> Result<Measured, Failure> {
    let key = args.key()?;
    let gateway = Gateway::new(&args.url, key.as_deref())?;
    let work = Work {
        model: args.model.clone(),
        prompt_tokens: args.prompt_tokens,
        answer_tokens: args.answer_tokens,
    };
    let goal = Goal {
        first_token: args.first_token,
        between_tokens: args.between_tokens,
    };
    // Wakes the model, warms it, and says what is wrong before anything is measured.
    gateway.call(&work, 0).await.map_err(|problem| {
        Failure::new(
            Cause::Unavailable,
            format!("{} does not answer at {}: {problem}", args.model, args.url),
        )
        .with_hint(
            "is the model ready (`llmgw ctl models`), and is the key right (--api-key-file)?",
        )
    })?;
    let mut sweep = Sweep::new(args.most);
    while let Some(concurrency) = sweep.next(&goal) {
        let level = gateway
            .level(&work, concurrency, Duration::from(args.step))
            .await;
        tell(&level.line(&goal));
        sweep.measured(level);
    }
    let bounded = sweep.is_bounded(&goal);
    let capacity = sweep.capacity(&goal).cloned();
    let measured = Measured {
        model: args.model.clone(),
        prompt_tokens: args.prompt_tokens,
        answer_tokens: args.answer_tokens,
        goal,
        levels: sweep.into_levels(),
        capacity,
        bounded,
    };
    if let (true, Some(level)) = (args.record, &measured.capacity) {
        let recorded = record(&args.connection, &measured, level, args.profile.as_ref()).await;
        recorded.map_err(|failure| args.connection.explain(failure))?;
    }
    if let Some(path) = &args.plot {
        let failed = |problem: String| {
            Failure::new(Cause::Refused, format!("{}: {problem}", path.display()))
        };
        let drawing = plot::svg(measured.model.as_str(), &measured.levels).map_err(failed)?;
        fs::write(path, drawing).map_err(|error| failed(Chain(&error).to_string()))?;
        tell(&format!("drawn into {}", path.display()));
    }
    Ok(measured)
}

async fn record(
    connection: &Connection,
    measured: &Measured,
    level: &Level,
    profile: Option<&ProfileName>,
) -> Result<(), Failure> {
    let control = connection.control()?;
    let subject = Subject::of(&control, measured, profile).await?;
    let measurement = subject.measurement(measured, level);
    let kept = control
        .capacities
        .record(&measured.model, measurement)
        .await?;
    tell(&format!(
        "recorded: a replica of {} on {} takes {} at the same time",
        kept.model, kept.measurement.profile, kept.measurement.concurrency
    ));
    Ok(())
}

/// Says how far it is. Whoever has closed standard error does not want to know.
fn tell(line: &str) {
    drop(writeln!(io::stderr().lock(), "{line}"));
}

fn table(measured: &Measured) -> String {
    let time = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), sweep::shown);
    let rows = measured.levels.iter().map(|level| {
        vec![
            level.concurrency.to_string(),
            level.calls.to_string(),
            level.errors.to_string(),
            time(level.first_token_p50),
            time(level.first_token_p95),
            time(level.between_tokens_p50),
            time(level.between_tokens_p95),
            format!("{:.1}", level.tokens_per_second),
            format!("{:.2}", level.calls_per_second),
        ]
    });
    let mut text = grid(
        &[
            "AT ONCE",
            "CALLS",
            "ERRORS",
            "FIRST p50",
            "p95",
            "BETWEEN p50",
            "p95",
            "TOKENS/S",
            "CALLS/S",
        ],
        &[0, 1, 2, 3, 4, 5, 6, 7, 8],
        rows,
    );
    text.push_str(&match &measured.capacity {
        Some(level) => format!(
            "{} takes {}{} at the same time within the goal ({}): {:.1} tokens/s\n",
            measured.model,
            if measured.bounded { "" } else { "at least " },
            level.concurrency,
            measured.goal,
            level.tokens_per_second,
        ),
        None => format!(
            "{} misses the goal ({}) with one request at a time already\n",
            measured.model, measured.goal,
        ),
    });
    text
}

// === impl BenchArgs ===

impl BenchArgs {
    fn key(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.api_key_file else {
            let given = self.api_key.as_ref().filter(|key| !key.0.is_empty());
            return Ok(given.map(|key| key.0.clone()));
        };
        let text = fs::read_to_string(path).map_err(|error| {
            Failure::new(Cause::Refused, format!("{}: {error}", path.display()))
        })?;
        Ok(Some(text.trim().to_owned()))
    }
}

// === impl Secret ===

impl std::str::FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.trim().to_owned()))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

const EXIT_CODES: &str = "Exit codes: 0 measured; 1 the goal is missed with one request already; 4 the model does not answer";
