//! What the gateway costs, side by side with others: `cargo xtask bench gateway`.
//!
//! One run, on loopback, against a fixed upstream of our own: nginx and haproxy as the floor, gateways from the package
//! index as peers. Each is a process of its own, so that the processor time that the kernel counts for it is its own;
//! the upstream is another, and the client is this one. nginx has one worker, haproxy one thread, and ours one worker
//! thread (`llmgw`) or two (`llmgw-2`). Ours does what it does in earnest: keys, routing, usage to the disk and to a
//! SQLite store. nginx and haproxy do nothing of that.
//!
//! Only what is compared within one run counts: another machine, or the same one on another day, gives other figures.

#![expect(clippy::print_stdout, reason = "it tells people what it measures")]
#![expect(
    clippy::cast_precision_loss,
    reason = "counts of calls and of KiB are far below 2^52"
)]

mod call;
mod client;
mod http;
mod load;
mod memory;
mod ours;
mod peers;
mod process;
mod proxies;
mod report;
mod rounds;
mod upstream;

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use rustix::process::{Resource, getrlimit, setrlimit};

use self::{
    call::Mode,
    proxies::{Kind, Place, Proxy, free_port},
    rounds::{Effort, Row},
};

/// Measure what the gateway costs, side by side with others
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask bench gateway",
    bin_name = "cargo xtask bench gateway"
)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// Fewer and shorter rounds: under three minutes
    #[arg(long)]
    quick: bool,
    /// Write the rows to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only these: nginx, haproxy, llmgw, llmgw-2, sglang-router, vllm-router, smg, litellm; may be given several
    /// times
    #[arg(long, value_name = "NAME")]
    proxy: Vec<String>,
    /// Only these kinds of answers; may be given several times
    #[arg(long)]
    mode: Vec<Mode>,
    /// So many connections; may be given several times
    #[arg(long, default_values_t = [1, 32, 256])]
    connections: Vec<usize>,
    /// Rounds, instead of what is usual
    #[arg(long)]
    rounds: Option<usize>,
    /// Seconds of one load in one round, instead of what is usual
    #[arg(long)]
    seconds: Option<f64>,
    /// Open streams whose memory is measured; 0 for none
    #[arg(long, default_value_t = 1_000)]
    streams: usize,
    /// Load ours alone for so many seconds, and show its memory
    #[arg(long, value_name = "SECONDS")]
    soak: Option<u64>,
    /// Another build of this bench, whose gateway is measured beside this one's as llmgw-other
    #[arg(long, value_name = "PROGRAM")]
    other: Option<PathBuf>,
    /// Where peers are installed [default: the user's cache]
    #[arg(long, value_name = "DIRECTORY")]
    cache: Option<PathBuf>,
    /// What cargo tells a bench
    #[arg(long, hide = true)]
    bench: bool,
}

/// What this program is when it is started by itself.
#[derive(Debug, Subcommand)]
enum Role {
    /// The upstream
    #[command(hide = true)]
    Upstream {
        /// Where it listens
        ports: Vec<u16>,
    },
    /// Our gateway
    #[command(hide = true)]
    Gateway {
        /// Where it listens
        #[arg(long)]
        port: u16,
        /// Worker threads
        #[arg(long)]
        threads: usize,
        /// Where usage is kept
        #[arg(long)]
        directory: PathBuf,
        /// Where its replicas listen
        upstreams: Vec<u16>,
    },
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut args: Args) -> anyhow::Result<()> {
    match args.role.take() {
        None => one_thread()?.block_on(async {
            tokio::select! {
                ended = measure(args) => ended,
                // What was started is ended when it is dropped.
                stopped = tokio::signal::ctrl_c() => Ok(stopped?),
            }
        }),
        Some(Role::Upstream { ports }) => Ok(one_thread()?.block_on(upstream::serve(&ports))?),
        Some(Role::Gateway {
            port,
            threads,
            directory,
            upstreams,
        }) => {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(threads)
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let mut serving = tokio::task::JoinSet::new();
                // On a worker, where what it spawns stays.
                serving.spawn(async move { ours::serve(port, &upstreams, &directory).await });
                match serving.join_next().await {
                    Some(ended) => ended?.map_err(anyhow::Error::from_boxed),
                    None => Ok(()),
                }
            })
        }
    }
}

fn one_thread() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

async fn measure(args: Args) -> anyhow::Result<()> {
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files)?;
    let directory = tempfile::tempdir()?;
    let cache = args.cache.clone().map_or_else(default_cache, Ok)?;
    fs::create_dir_all(&cache)?;
    let upstreams = [free_port()?, free_port()?];
    let place = Place {
        directory: directory.path(),
        cache: &cache,
        other: args.other.as_deref(),
        upstreams: &upstreams,
    };
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("upstream")
        .args(upstreams.map(|port| port.to_string()));
    let (_upstream, _) = proxies::spawn(&mut command, &directory.path().join("upstream.log"))?;
    let proxies = start(&args, &place).await?;
    if let Some(seconds) = args.soak {
        let ours = proxies.iter().find(|proxy| proxy.name.starts_with("llmgw"));
        let ours = ours.context("there is nothing of ours to load")?;
        return memory::soak(ours, Duration::from_secs(seconds)).await;
    }
    let (rounds, seconds) = if args.quick { (3, 0.25) } else { (5, 1.5) };
    let effort = Effort {
        rounds: args.rounds.unwrap_or(rounds),
        span: Duration::from_secs_f64(args.seconds.unwrap_or(seconds)),
    };
    let held = match args.streams {
        0 => Vec::new(),
        streams => memory::hold(&proxies, streams).await?,
    };
    let modes = if args.mode.is_empty() {
        Mode::ALL.to_vec()
    } else {
        args.mode
    };
    let upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, upstreams[0]));
    let mut rows = Vec::new();
    for cell in rounds::cells(&modes, &args.connections) {
        let too_slow = |proxy: &&Proxy| {
            let mut rows = rows.iter().filter(|row: &&Row| row.proxy == proxy.name);
            rows.any(|row| row.is_too_slow_for(cell))
        };
        let (slow, others): (Vec<&Proxy>, Vec<&Proxy>) = proxies.iter().partition(too_slow);
        let of_cell = rounds::run(cell, effort, upstream, &others, &held).await?;
        report::cell(cell, &of_cell);
        for proxy in slow {
            println!(
                "  {:<14} left out: with fewer connections it is slow already",
                proxy.name
            );
        }
        rows.extend(of_cell);
    }
    report::ratios(&rows);
    report::goals(&rows, &held);
    if let Some(file) = args.json {
        write(&file, &rows).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

/// Starts all that are asked for. What can't be had is said, and left out.
async fn start(args: &Args, place: &Place<'_>) -> anyhow::Result<Vec<Proxy>> {
    for name in &args.proxy {
        let mut names = Kind::all().map(Kind::name);
        names
            .find(|known| known == name)
            .with_context(|| format!("there is no proxy {name}"))?;
    }
    let mut proxies = Vec::new();
    let asked = |kind: &Kind| match kind {
        Kind::Other => args.other.is_some(),
        _ => args.proxy.is_empty() || args.proxy.iter().any(|name| name == kind.name()),
    };
    for kind in Kind::all().filter(asked) {
        match kind.start(place).await {
            Ok(proxy) => proxies.push(proxy),
            Err(error) => println!("{} is left out: {error:#}", kind.name()),
        }
    }
    Ok(proxies)
}

fn default_cache() -> anyhow::Result<PathBuf> {
    let set = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cache = set.or_else(|| Some(home?.join(".cache")));
    let cache = cache.context("there is no home folder for a cache: give one with --cache")?;
    Ok(cache.join("llmgw/bench"))
}

fn write(file: &std::path::Path, rows: &[Row]) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(rows)?;
    Ok(fs::write(file, text + "\n")?)
}
