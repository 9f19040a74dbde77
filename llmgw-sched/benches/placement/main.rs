//! Replays a public GPU trace through the planner, and sets its means beside the published ones.
//!
//! `cargo xtask bench placement --data DIR [--workloads a,b] [--csv FILE]`. The directory holds
//! `openb_node_list_gpu_node.csv`, `openb_pod_list_*.csv`, and where there are any `published.csv` and
//! `orders/WORKLOAD_SEED.txt.gz`. With the published orders the published policies have to come out as published:
//! then filters, accounting and scores are right, for this is the code that places models.

mod random;
mod replay;
mod table;
mod trace;

use std::{path::PathBuf, process::ExitCode, sync::Mutex};

use anyhow::{Context as _, bail};
use clap::Parser;
use llmgw_sched::planner::policy::PolicyName;

use crate::{
    replay::{Replay, Sums, TieOrder},
    table::{Published, Row},
    trace::Trace,
};

/// Replays a public GPU trace through the planner
#[derive(Debug, Parser)]
struct Args {
    /// Where the trace lies
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Only these workloads
    #[arg(long, value_delimiter = ',')]
    workloads: Vec<String>,
    /// Only these policies, by the names of the table
    #[arg(long, value_delimiter = ',')]
    policies: Vec<String>,
    /// The seeds of the runs
    #[arg(long, value_delimiter = ',', default_values_t = 42..=51)]
    seeds: Vec<u64>,
    /// How ties between nodes are broken: by the order of the run, or by the fixed hash of production
    #[arg(long, value_enum, default_value_t = TieOrder::Run)]
    ties: TieOrder,
    /// Write the means there, in the columns of `published.csv`
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// What cargo says to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

/// A policy of the benchmark: one of the planner's, or the coin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Contender {
    /// Any node that fits.
    Random,
    /// One of the planner's own.
    Planner(PolicyName),
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let trace = Trace::open(&args.data)?;
    let published = Published::read(&args.data.join("published.csv"))?;
    let workloads = if args.workloads.is_empty() {
        trace.workloads()?
    } else {
        args.workloads.clone()
    };
    let contenders: Vec<(&str, Contender)> = CONTENDERS
        .iter()
        .copied()
        .filter(|(name, _)| args.policies.is_empty() || args.policies.iter().any(|p| p == name))
        .collect();
    if contenders.is_empty() {
        bail!(
            "no such policy; there are {}",
            CONTENDERS.map(|(name, _)| name).join(", ")
        );
    }
    let mut rows = Vec::new();
    let mut ordered = true;
    say(&format!(
        "{} nodes, {} seeds, ties by {}",
        trace.nodes(),
        args.seeds.len(),
        args.ties
    ));
    say(table::HEADING);
    for workload in &workloads {
        let replay = Replay::new(&trace, workload)?;
        for (name, contender) in &contenders {
            let sums = all_seeds(&replay, *contender, args)?;
            ordered &= sums.ordered;
            let row = Row::of(workload, name, &sums);
            say(&row.line(published.of(workload, name)));
            rows.push(row);
        }
    }
    say("");
    for (name, _) in &contenders {
        say(&table::mean_line(&rows, &published, name));
    }
    if let Some(memory) = peak_memory_mib() {
        say(&format!("peak memory {memory} MiB"));
    }
    if let Some(path) = &args.csv {
        std::fs::write(path, table::csv(&rows)).with_context(|| path.display().to_string())?;
    }
    if !ordered || args.ties != TieOrder::Run || args.seeds.len() != 10 {
        say("not compared: the published means are those of ten given orders of arrival and ties");
        return Ok(ExitCode::SUCCESS);
    }
    let (text, holds) = table::verdict(&rows, &published);
    say(&text);
    Ok(if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The runs of all seeds, on all cores.
fn all_seeds(replay: &Replay<'_>, contender: Contender, args: &Args) -> anyhow::Result<Sums> {
    let waiting = Mutex::new(args.seeds.clone());
    let done: Mutex<Vec<(u64, Sums)>> = Mutex::new(Vec::new());
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        let worker = || -> anyhow::Result<()> {
            loop {
                let next = waiting.lock().ok().and_then(|mut seeds| seeds.pop());
                let Some(seed) = next else { return Ok(()) };
                let sums = replay.run(contender, seed, args.ties)?;
                if let Ok(mut done) = done.lock() {
                    done.push((seed, sums));
                }
            }
        };
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| match worker.join() {
                Ok(result) => result,
                Err(_) => bail!("a run panicked"),
            })
    })?;
    let mut runs = done.into_inner().unwrap_or_default();
    // Sums of reals depend on their order.
    runs.sort_by_key(|(seed, _)| *seed);
    Ok(Sums::total(runs.into_iter().map(|(_, sums)| sums)))
}

/// The most memory that this process ever had, in MiB.
fn peak_memory_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib / 1_024)
}

#[expect(clippy::print_stdout, reason = "a benchmark shows what it measured")]
pub(crate) fn say(text: &str) {
    println!("{text}");
}

/// The published policies under their published names, and what the planner has besides.
const CONTENDERS: [(&str, Contender); 8] = [
    ("Random", Contender::Random),
    ("DotProd", Contender::Planner(PolicyName::DotProduct)),
    ("GpuClustering", Contender::Planner(PolicyName::Clustering)),
    ("GpuPacking", Contender::Planner(PolicyName::Packing)),
    ("BestFit", Contender::Planner(PolicyName::BestFit)),
    ("FGD", Contender::Planner(PolicyName::FragmentationGradient)),
    ("Scarcity", Contender::Planner(PolicyName::Scarcity)),
    ("Spread", Contender::Planner(PolicyName::Spread)),
];
