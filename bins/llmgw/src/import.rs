//! `llmgw import`: from the configuration of another gateway to settings, levels and keys.

mod apply;

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Subcommand};
use llmgw::litellm::{self, Fate, Given, Imported, Options, Remark};
use llmgw_core::clock::{Clock, SystemClock};
use serde::Serialize;

use self::apply::Applied;
use crate::{
    ctl::{connection::Connection, limited},
    document,
    failure::{Cause, Failure},
    grid::grid,
    output::Format,
};

/// Read the configuration of another gateway, and make settings, levels and keys of it
#[derive(Args, Clone, Debug)]
pub(crate) struct ImportArgs {
    #[command(subcommand)]
    from: From,
}

#[derive(Clone, Debug, Subcommand)]
enum From {
    Litellm(Box<LitellmArgs>),
}

/// From LiteLLM's proxy: models, aliases, fallbacks, prices, levels, keys; and what could not be carried
///
/// What is carried is never wider than it was there. No secret is carried, and none is shown but those of new keys.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
struct LitellmArgs {
    /// The proxy's config.yaml; and, as JSON, what its admin API answered to /organization/list, /team/list, /project/list
    /// and /key/list?return_full_object=true
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Where a model's weights are, for one that names none or others; may be given for each
    #[arg(long = "source", value_name = "MODEL=SOURCE", value_parser = source)]
    sources: Vec<(String, String)>,
    /// Write the settings file there; one that is there already is not replaced
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Make the levels, the keys and the prices, of which each key's secret is shown this once. What is there already
    /// stays as it is
    #[arg(long)]
    apply: bool,
    /// How to show the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    // Last, as its heading is for all that comes after it.
    #[command(flatten)]
    connection: Connection,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Answer {
    #[serde(flatten)]
    imported: Imported,
    /// What was made, with `--apply`.
    #[serde(skip_serializing_if = "Option::is_none")]
    applied: Option<Applied>,
}

/// Runs the command.
pub(crate) async fn run(args: ImportArgs) -> ExitCode {
    let From::Litellm(args) = args.from;
    match from_litellm(*args).await {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

async fn from_litellm(args: LitellmArgs) -> Result<ExitCode, Failure> {
    let LitellmArgs {
        files,
        sources,
        out,
        apply,
        output,
        connection,
    } = args;
    let mut texts = Vec::new();
    for path in &files {
        texts.push((
            path.display().to_string(),
            document::text(path, &CONFIGURATION)?,
        ));
    }
    let given: Vec<Given<'_>> = texts
        .iter()
        .map(|(name, text)| Given { name, text })
        .collect();
    let options = Options {
        sources: sources.into_iter().collect(),
        now: SystemClock::new().now(),
    };
    let imported = litellm::read(&given, &options).map_err(|misread| {
        Failure::new(Cause::Usage, misread.to_string()).with_hint(CONFIGURATION.wrong)
    })?;
    if let Some(path) = &out {
        write_settings(path, &imported)?;
    }
    // Whoever can't be asked is told of before anything is made.
    let control = apply.then(|| connection.control()).transpose()?;
    let applied = match &control {
        None => None,
        Some(control) => {
            let applied = apply::apply(control, &imported.accounts).await;
            Some(applied.map_err(|failure| connection.explain(failure))?)
        }
    };
    let failed = applied.as_ref().is_some_and(Applied::has_failures);
    let answer = Answer { imported, applied };
    let shown = output.show(&answer, |answer| people(answer, out.as_deref()))?;
    shown.write()?;
    Ok(if failed {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

/// A new file, for nobody else to read: an address of weights may hold a secret.
fn write_settings(path: &Path, imported: &Imported) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        let hint = "name a file that is not there yet";
        let failure = Failure::new(
            Cause::Refused,
            format!("writing {}: {error}", path.display()),
        );
        if error.kind() == std::io::ErrorKind::AlreadyExists {
            failure.with_cause(Cause::Usage).with_hint(hint)
        } else {
            failure
        }
    };
    let text = serde_saphyr::to_string(&imported.settings)
        .map_err(|error| Failure::new(Cause::Refused, error.to_string()))?;
    let mut file = File::create_new(path).map_err(failed)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all());
    written.map_err(|error| {
        // Half a file is none.
        drop(fs::remove_file(path));
        failed(error)
    })
}

fn people(answer: &Answer, out: Option<&Path>) -> String {
    let Answer { imported, applied } = answer;
    let Imported {
        settings,
        accounts,
        remarks,
    } = imported;
    let mut text = String::new();
    let count = |number: usize, what: &str| {
        let s = if number == 1 { "" } else { "s" };
        format!("{number} {what}{s}")
    };
    let written = match out {
        Some(path) => format!("written to {}", path.display()),
        None => "--out FILE writes them as settings".to_owned(),
    };
    text.push_str(&format!(
        "Models    {} ({written})\n",
        settings.models.len()
    ));
    let made = if applied.is_some() {
        ""
    } else {
        " (--apply makes them)"
    };
    text.push_str(&format!(
        "Accounts  {}, {}, {}{made}\n",
        count(accounts.levels.len(), "level"),
        count(accounts.keys.len(), "key"),
        count(accounts.prices.len(), "price"),
    ));
    if !settings.models.is_empty() {
        let rows = settings.models.iter().map(|model| {
            let source = match &model.source {
                llmgw_core::cluster::catalog::OneOrMany::One(source) => source.clone(),
                llmgw_core::cluster::catalog::OneOrMany::Many(sources) => sources.join(", "),
            };
            vec![
                model.name.clone(),
                source,
                dash(model.aliases.join(", ")),
                dash(model.fallbacks.join(", ")),
            ]
        });
        text.push('\n');
        text.push_str(&grid(
            &["MODEL", "SOURCE", "ALIASES", "FALLBACKS"],
            &[],
            rows,
        ));
    }
    if !accounts.levels.is_empty() {
        let levels = accounts.levels.iter();
        let rows = levels.map(|level| vec![level.path.to_string(), limited(&level.limits)]);
        text.push('\n');
        text.push_str(&grid(&["LEVEL", "LIMITS"], &[], rows));
    }
    if !accounts.keys.is_empty() && applied.is_none() {
        let rows = accounts.keys.iter().map(|key| {
            vec![
                key.name.clone(),
                key.level.to_string(),
                limited(&key.limits),
            ]
        });
        text.push('\n');
        text.push_str(&grid(&["KEY", "LEVEL", "LIMITS"], &[], rows));
    }
    for (fate, heading) in [
        (Fate::Changed, "CHANGED"),
        (Fate::NotCarried, "NOT CARRIED"),
    ] {
        let mut rows = remarks
            .iter()
            .filter(|remark| remark.fate == fate)
            .map(row)
            .peekable();
        if rows.peek().is_some() {
            text.push('\n');
            text.push_str(&grid(&[heading, "WHY", "WHAT HELPS"], &[], rows));
        }
    }
    if let Some(applied) = applied {
        text.push('\n');
        text.push_str(&applied.people());
    }
    text
}

fn row(remark: &Remark) -> Vec<String> {
    let Remark {
        file,
        line,
        path,
        others,
        fate: _,
        why,
        help,
    } = remark;
    let line = line.map_or_else(String::new, |line| format!(":{line}"));
    let others = match others {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let help = help.clone().unwrap_or_default();
    vec![
        format!("{file}{line} {path}{others}"),
        why.clone(),
        dash(help),
    ]
}

fn dash(text: String) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}

fn source(text: &str) -> Result<(String, String), String> {
    let (model, source) = text.split_once('=').ok_or("write MODEL=SOURCE")?;
    if model.is_empty() || source.is_empty() {
        return Err("write MODEL=SOURCE".to_owned());
    }
    Ok((model.to_owned(), source.to_owned()))
}

const CONFIGURATION: document::Kind = document::Kind {
    most: 16,
    missing: Cause::NotFound,
    unreadable: "name LiteLLM's config.yaml, or a file with what its admin API answered",
    wrong: "`llmgw import litellm --help` says which files there are",
};
const AFTER_HELP: &str = "\
Examples:
  llmgw import litellm config.yaml --out settings.yaml
  llmgw import litellm config.yaml --source gpt-4o=hf:OWNER/REPO/FILE.gguf --out settings.yaml
  curl -H \"Authorization: Bearer $KEY\" 'http://litellm:4000/key/list?return_full_object=true' > keys.json
  llmgw import litellm config.yaml teams.json keys.json --apply

LiteLLM keeps hashes of its keys: each gets a new secret here, to be handed to whom it belongs.
Exit status: 0, or 1 when something of --apply was refused; what could not be carried is told, and is no failure.";
