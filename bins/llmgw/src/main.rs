//! The command line: `llmgw up`, `llmgw ctl`, `llmgw fit`, `llmgw plan`, `llmgw import`, `llmgw bench`, and
//! what shells and `man` know of these.

mod bench;
mod ctl;
mod document;
mod failure;
mod fit;
mod grid;
mod import;
mod output;
mod pages;
mod plan;
mod up;

use std::{process::ExitCode, time::Duration};

use clap::{CommandFactory as _, Parser, Subcommand};
use llmgw_agent::process::launcher;
use llmgw_server::signals;

/// Runs language models on machines that you own
#[derive(Parser)]
#[command(name = "llmgw", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(up::UpArgs),
    Ctl(ctl::CtlArgs),
    Fit(fit::FitArgs),
    Plan(plan::PlanArgs),
    Import(import::ImportArgs),
    Bench(bench::BenchArgs),
    Completions(pages::CompletionsArgs),
    Man(pages::ManArgs),
}

fn main() -> ExitCode {
    if let Some(code) = launcher::run_if_asked(std::env::args_os()) {
        return code;
    }
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            let message = format!("the async runtime can't start: {error}");
            return failure::Failure::new(failure::Cause::Refused, message).report();
        }
    };
    let code = runtime.block_on(async {
        match cli.command {
            Command::Up(args) => {
                signals::init_logging_at(LOGGED);
                match up::run(args).await {
                    Ok(()) => ExitCode::SUCCESS,
                    Err(failure) => failure.report(),
                }
            }
            Command::Ctl(args) => ctl::run(args).await,
            Command::Fit(args) => fit::run(&args),
            Command::Plan(args) => plan::run(&args),
            Command::Import(args) => import::run(args).await,
            Command::Bench(args) => bench::run(args).await,
            Command::Completions(args) => pages::completions(&args, Cli::command()),
            Command::Man(args) => pages::man(&args, Cli::command()),
        }
    });
    // A name that is still being looked up must not hold up the end.
    runtime.shutdown_timeout(Duration::from_millis(200));
    code
}

/// What the controller and the agent warn of here is shown as progress already.
const LOGGED: &str = "warn,llmgw_sched=error,llmgw_agent::supervise=error,llmgw_agent::agent::engines=error,\
                      llmgw_agent::weights=error,llmgw_agent::weights::shelf=warn,llmgw_server::releases=error";
