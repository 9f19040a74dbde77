//! Replays a trace of prompts against simulated caches: `cargo xtask bench routing --trace FILE`.
//!
//! Each line of the trace is a request: when it came (`timestamp`, in milliseconds), how many tokens its prompt has
//! (`input_length`), and the names of the prompt's blocks of 512 tokens (`hash_ids`), where equal names mean equal
//! blocks after equal beginnings. The format, and the trace that the figures in the README are from, are those of
//! Mooncake (Qin et al., FAST '25).
//!
//! A replica keeps the blocks used last, as many as its cache has room for, and works prompts off one after another,
//! at a speed that makes the whole fleet 70 % busy. What it has in its cache is not hidden in its speed: load is counted
//! in all tokens, so that a policy can't look even by computing less. Shown for each policy:
//! * the part of all prompt tokens that were in the cache of the replica that was chosen, beside the part that one
//!   cache without end would have had;
//! * the tokens given to the busiest replica, over the mean of all;
//! * the tokens that waited, over time, at the replica where most did, over the mean of all;
//! * the tokens before a request when it came, at the median and for one in a hundred.

#![expect(clippy::print_stdout, reason = "it tells people what it measures")]

mod policy;
mod replay;
mod trace;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;

use self::{
    policy::Policy,
    replay::{Fleet, Outcome},
    trace::Request,
};

/// Replay a trace of prompts against simulated caches
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask bench routing",
    bin_name = "cargo xtask bench routing"
)]
struct Args {
    /// The trace: a request per line, as JSON
    #[arg(long)]
    trace: PathBuf,
    /// How many replicas; may be given several times
    #[arg(long, default_values_t = [16, 4, 64])]
    replicas: Vec<usize>,
    /// Tokens that each replica's cache has room for; may be given several times
    #[arg(long, default_values_t = [3_000_000, 1_500_000])]
    cache: Vec<u64>,
    /// How busy the fleet is, in percent
    #[arg(long, default_value_t = 70, value_parser = clap::value_parser!(u64).range(1..=99))]
    busy: u64,
    /// What cargo tells a bench
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let requests = match trace::read(&args.trace) {
        Ok(requests) => requests,
        Err(error) => {
            println!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let tokens: u64 = requests.iter().map(|request| request.tokens).sum();
    println!(
        "{} requests, {tokens} tokens of prompts; one cache without end would have {:.1} % of them",
        requests.len(),
        100.0 * replay::ceiling(&requests)
    );
    for &cache in &args.cache {
        for &replicas in &args.replicas {
            show(
                &requests,
                &Fleet::new(&requests, replicas, cache, args.busy),
            );
        }
    }
    ExitCode::SUCCESS
}

fn show(requests: &[Request], fleet: &Fleet) {
    println!("\n{fleet}");
    println!(
        "  {:<44} {:>6} {:>8} {:>8} {:>10} {:>10}",
        "policy", "hits", "max/mean", "waiting", "ahead p50", "ahead p99"
    );
    for policy in Policy::all(fleet) {
        let name = policy.to_string();
        let Outcome {
            hits,
            given,
            waiting,
            ahead_p50,
            ahead_p99,
        } = fleet.replay(requests, policy);
        println!(
            "  {name:<44} {:>5.1}% {given:>8.2} {waiting:>8.2} {ahead_p50:>10} {ahead_p99:>10}",
            100.0 * hits
        );
    }
}
