//! The project's own chores: `cargo xtask ci`, `cargo xtask test`, `cargo xtask sim`, `cargo xtask soak`,
//! `cargo xtask bench`.

mod alone;
mod bench;
mod console;
mod gates;
mod job;
mod leftovers;
mod manifest;
mod python;
mod readme;
mod rust;
mod sim;
mod soak;
mod steps;
mod structure;
mod summary;
mod tools;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{console::say, workspace::Workspace};

/// The project's own chores
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Check everything that a change must pass, and sum it up at the end
    Ci {
        /// Only these steps, and what they need
        #[arg(value_name = "STEP")]
        only: Vec<String>,
        /// List the steps and end
        #[arg(long)]
        list: bool,
    },
    /// Run the Rust tests, all or those whose name, package or file matches
    Test {
        /// A part of a test's name, of its package or of its file
        filter: Option<String>,
    },
    /// Run the simulation of a whole cluster from many seeds; a thousand by default
    Sim {
        /// `--seeds N`, `--from S`, `--trace`, `--planted`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run everything at once for a while, under trouble, and check that it kept what it promises
    Soak {
        /// `--minutes N`, `--streams N`, `--seed S`, `--json FILE`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// List the benches, or run one
    Bench {
        /// The bench to run
        name: Option<String>,
        /// What the bench is told
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

fn main() -> ExitCode {
    let Args { chore } = Args::parse();
    match run(chore) {
        Ok(code) => code,
        Err(error) => {
            say(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Chore) -> anyhow::Result<ExitCode> {
    if let Chore::Ci { list: true, .. } = chore {
        steps::list();
        return Ok(ExitCode::SUCCESS);
    }
    leftovers::adopt_orphans()?;
    let workspace = Workspace::load()?;
    match chore {
        Chore::Ci { only, .. } => {
            let results = steps::run(&workspace, &only)?;
            say(results.render());
            Ok(results.exit_code())
        }
        Chore::Test { filter } => {
            rust::build(&workspace)?;
            rust::test(&workspace, filter.as_deref())?;
            Ok(ExitCode::SUCCESS)
        }
        Chore::Sim { args } => {
            sim::run(&args)?;
            Ok(ExitCode::SUCCESS)
        }
        Chore::Soak { args } => {
            soak::run(&args)?;
            Ok(ExitCode::SUCCESS)
        }
        Chore::Bench { name, args } => {
            bench::run(&workspace, name.as_deref(), &args)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
