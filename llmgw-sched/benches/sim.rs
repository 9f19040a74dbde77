//! Runs the simulation from many seeds, on all cores: `cargo xtask sim`.
//!
//! A seed that breaks a promise is shown with the line that replays it; with one such seed and `--trace`, everything that
//! happened is shown too.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it tells people what it measures by the real clock"
)]

use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use clap::Parser;
use llmgw_sched::sim::{Counts, Options, Planted, Run, run};

/// Run the simulation from many seeds
#[derive(Debug, Parser)]
#[command(name = "cargo xtask sim", bin_name = "cargo xtask sim")]
struct Args {
    /// How many seeds
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Show everything that happens
    #[arg(long)]
    trace: bool,
    /// Put each known fault in on purpose, and say how many seeds it takes to find it
    #[arg(long)]
    planted: bool,
    /// What cargo tells a bench
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.planted {
        return plant(&args);
    }
    let start = Instant::now();
    let options = Options {
        trace: args.trace && args.seeds == 1,
        ..Options::default()
    };
    let (counts, failed) = run_all(&args, &options);
    for run in failed.values() {
        tell(run);
    }
    println!(
        "{} seeds from {} in {:.1} s: {} broke a promise",
        args.seeds,
        args.from,
        start.elapsed().as_secs_f64(),
        failed.len(),
    );
    println!("{counts:?}");
    ExitCode::from(u8::from(!failed.is_empty()))
}

/// Shows a run that broke a promise, or that was to be shown.
fn tell(run: &Run) {
    // Run once more, now with everything written down.
    let options = Options {
        trace: true,
        ..Options::default()
    };
    let again = self::run(run.seed, &options);
    let skipped = again.trace.len().saturating_sub(TRACE);
    for line in again.trace.iter().skip(skipped) {
        println!("{line}");
    }
    if let Some(violation) = &run.violation {
        println!("{violation}");
        println!(
            "seed {}: replay with `cargo xtask sim --seeds 1 --from {} --trace`",
            run.seed, run.seed
        );
    }
}

fn run_all(args: &Args, options: &Options) -> (Counts, BTreeMap<u64, Run>) {
    let next = AtomicU64::new(args.from);
    let results = Mutex::new((Counts::default(), BTreeMap::new()));
    let end = args.from.saturating_add(args.seeds);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let run = run(seed, options);
                    for line in &run.trace {
                        println!("{line}");
                    }
                    if let Ok(mut results) = results.lock() {
                        results.0.add(run.counts);
                        if run.violation.is_some() {
                            results.1.insert(seed, run);
                        }
                    }
                }
            });
        }
    });
    results.into_inner().unwrap_or_default()
}

/// How many seeds it takes to find each planted fault.
fn plant(args: &Args) -> ExitCode {
    let mut all_found = true;
    for planted in Planted::ALL {
        let options = Options {
            planted: Some(planted),
            ..Options::default()
        };
        let seeds = args.from..args.from.saturating_add(args.seeds);
        let found = seeds
            .zip(1_u64..)
            .find_map(|(seed, tried)| Some((seed, tried, run(seed, &options).violation?)));
        match found {
            Some((seed, tried, violation)) => {
                println!("{planted:?}: found after {tried} seeds (seed {seed}): {violation}");
            }
            None => {
                println!("{planted:?}: not found by {} seeds", args.seeds);
                all_found = false;
            }
        }
    }
    ExitCode::from(u8::from(!all_found))
}

/// The last lines of a run that are shown: what broke the promise is not far from its end.
const TRACE: usize = 400;
