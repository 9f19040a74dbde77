//! Everything at once, for as long as it is told: `cargo xtask soak --minutes 60`.
//!
//! A server and two agents as they are shipped, each a process; engines of our own beneath them, which write down what
//! they count; a PostgreSQL server behind a door that is shut for a third of the time; clients that stream all the time,
//! some of which leave. Engines are killed at random. In the end:
//!
//! - engines saw all calls but a few, for most of them run at any time;
//! - every stream has ended in `[DONE]` or in an error event, and every other call in an answer or an error with a code;
//! - the store has one record for each call that an engine saw, and it says what that engine counted: of a whole answer
//!   exactly that, of one that broke what was delivered, of one whose client left what lies between the two;
//! - the memory of the server and of the agents is flat: a line fitted through the second half of the samples rises by no
//!   more than a tenth of what it began with, or 12 MiB.

#![expect(clippy::print_stdout, reason = "it tells people what it sees")]
#![expect(
    clippy::disallowed_methods,
    reason = "it waits as a user would wait, and its tasks end with it"
)]

mod chance;
mod check;
mod counts;
mod crowd;
mod door;
mod engine;
mod fleet;
mod memory;
mod report;

use std::{
    fs,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use llmgw_core::testing::postgres::PostgresServer;
use tokio::time::{Instant, sleep, timeout};

use self::{
    chance::Chance,
    crowd::Crowd,
    door::{Door, Shut},
    fleet::Fleet,
    memory::Memory,
    report::Report,
};

/// Run everything at once, and check that it kept what it promises
#[derive(Debug, Parser)]
#[command(name = "cargo xtask soak", bin_name = "cargo xtask soak")]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// How long
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// So many clients, each with one call after another
    #[arg(long, default_value_t = 200)]
    streams: usize,
    /// What is done at random is done so again
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write what was seen to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where llmgw-server and llmgw-agent are [default: those that were built with this]
    #[arg(long, value_name = "DIRECTORY")]
    programs: Option<PathBuf>,
    /// Do as if this were so, to see that it is found
    #[arg(long, value_enum)]
    planted: Option<check::Fault>,
    /// What cargo tells a bench
    #[arg(long, hide = true)]
    bench: bool,
}

/// What this program is when it is started by an agent.
#[derive(Debug, Subcommand)]
enum Role {
    /// An engine
    #[command(hide = true)]
    Engine {
        /// Where it listens
        #[arg(long)]
        port: u16,
        /// Where it writes down what it counts
        #[arg(long)]
        directory: PathBuf,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let ended = runtime
        .context("the async runtime")
        .and_then(|runtime| runtime.block_on(run(args)));
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> anyhow::Result<bool> {
    match args.role {
        Some(Role::Engine { port, directory }) => {
            engine::serve(port, &directory).await?;
            Ok(true)
        }
        None => soak(&args).await,
    }
}

/// Whether nothing was broken.
async fn soak(args: &Args) -> anyhow::Result<bool> {
    let home = tempfile::Builder::new()
        .prefix("llmgw-soak-")
        .tempdir_in("/tmp")?;
    let counts = home.path().join("counts");
    fs::create_dir(&counts)?;
    let postgres = tokio::task::spawn_blocking(PostgresServer::start).await??;
    let store = postgres.database().await?;
    let door = Door::open(home.path(), &store)?;
    println!("starting a server, two agents and {REPLICAS} engines");
    let mut fleet = Fleet::start(home.path(), args.programs.as_deref(), door.url(), REPLICAS)?;
    fleet.until_ready(REPLICAS).await?;
    let keys = fleet.keys().await?;

    println!(
        "{} clients for {} minutes, seed {}",
        args.streams, args.minutes, args.seed
    );
    let ends = Arc::new(AtomicBool::new(false));
    let begun = Instant::now();
    let crowd = Crowd::start(args.streams, fleet.clients(), &keys, args.seed, &ends);
    let mut memory = Memory::of(fleet.processes());
    let mut trouble = Trouble::new(args.seed, Duration::from_secs_f64(args.minutes * 60.0));
    while begun.elapsed() < trouble.whole {
        sleep(STEP).await;
        trouble.step(begun.elapsed(), &door, &fleet)?;
        memory.sample(begun.elapsed(), &crowd);
        fleet.still_runs()?;
    }
    door.set(Shut::No);
    ends.store(true, Ordering::Relaxed);
    let calls = timeout(PATIENCE, crowd.end())
        .await
        .context("clients did not come to an end")??;
    let engines = counts::read(&counts)?;
    let rows = check::rows(&store, &calls, &engines).await?;
    fleet.end()?;
    let report = Report::new(
        args,
        &trouble,
        &memory,
        check::check(&calls, &engines, &rows, args.planted),
    );
    println!("{}", report.table());
    if let Some(path) = &args.json {
        fs::write(path, report.json()?).with_context(|| path.display().to_string())?;
    }
    Ok(report.is_right())
}

/// What is done to it all, and when.
struct Trouble {
    chance: Chance,
    whole: Duration,
    /// When the door is opened or shut next, and when an engine is killed next.
    door_at: Duration,
    kill_at: Duration,
    shut_since: Option<Duration>,
    /// How long the store was away, how often, and how many engines were killed.
    away: Duration,
    aways: usize,
    kills: usize,
}

impl Trouble {
    fn new(seed: u64, whole: Duration) -> Self {
        Self {
            chance: Chance::new(seed),
            whole,
            door_at: Duration::from_secs(15),
            kill_at: Duration::from_secs(10),
            shut_since: None,
            away: Duration::ZERO,
            aways: 0,
            kills: 0,
        }
    }

    fn step(&mut self, now: Duration, door: &Door, fleet: &Fleet) -> anyhow::Result<()> {
        if now >= self.door_at {
            // Half as long away as there.
            if let Some(since) = self.shut_since.take() {
                door.set(Shut::No);
                let away = now.saturating_sub(since);
                self.away += away;
                self.door_at = now + away * 2;
                println!("{:>5} s  the store is back", now.as_secs());
            } else {
                let how = if self.chance.below(2) == 0 {
                    Shut::Cut
                } else {
                    Shut::Silent
                };
                door.set(how);
                self.aways += 1;
                self.shut_since = Some(now);
                self.door_at = now + Duration::from_secs(5 + self.chance.below(26));
                println!("{:>5} s  the store is away: {how:?}", now.as_secs());
            }
        }
        if now >= self.kill_at {
            // A model that fails again before a replica has served for a minute is taken for one that can't run, and is
            // parked in the end.
            self.kill_at = now + Duration::from_secs(90 + self.chance.below(61));
            let engines = fleet.engines();
            let index = self.chance.below(engines.len().max(1) as u64);
            if let Some(engine) = engines.get(usize::try_from(index)?) {
                fleet::kill(*engine)?;
                self.kills += 1;
                println!(
                    "{:>5} s  killed one of {} engines",
                    now.as_secs(),
                    engines.len()
                );
            }
        }
        Ok(())
    }
}

const REPLICAS: usize = 4;
const STEP: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(180);
