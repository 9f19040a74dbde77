//! The command line: `llmgw ctl`.

mod ctl;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs language models on machines that you own
#[derive(Parser)]
#[command(name = "llmgw", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Ctl(ctl::CtlArgs),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Ctl(args) => ctl::run(args).await,
    }
}
