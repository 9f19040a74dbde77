//! The agent's daemon: `llmgw-agent run` beside a control plane, `llmgw-agent facts` to look at the machine,
//! `llmgw-agent unpack` to extract an archive as engines are.

mod check;
mod facts;
mod failure;
mod flags;
mod unpack;

use std::{io::IsTerminal as _, process::ExitCode, sync::Arc, time::Duration};

use clap::Parser as _;
use llmgw_agent::{
    agent::{Agent, TcpConnector},
    process::launcher,
};
use llmgw_core::clock::SystemClock;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use self::{
    failure::Failure,
    flags::{Cli, Command, RunArgs},
};

fn main() -> ExitCode {
    if let Some(code) = launcher::run_if_asked(std::env::args_os()) {
        return code;
    }
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Run(args) => run(args).map(|()| ExitCode::SUCCESS),
        Command::Facts(args) => facts::show(&args).map(|()| ExitCode::SUCCESS),
        Command::Check(args) => check::check(&args),
        Command::Unpack(args) => unpack::run(args).map(|()| ExitCode::SUCCESS),
    };
    match done {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn run(args: RunArgs) -> Result<(), Failure> {
    log_to_stderr();
    let server: TcpConnector = args
        .server
        .parse()
        .map_err(|error| Failure::input(&error))?;
    let agent = Agent::build(args.into_config()?, Arc::new(SystemClock::new()))
        .map_err(|error| Failure::of(&error))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::plain(format!("the async runtime can't start: {error}")))?;
    let ended = runtime.block_on(async {
        let shutdown = CancellationToken::new();
        let hurry = agent.hurry();
        let check = agent.engine_check();
        let running = agent.run(server, shutdown.clone());
        tokio::select! {
            failed = on_hangup(check) => match failed {
                Err(error) => Err(Failure::plain(format!("listening for signals: {error}"))),
                Ok(never) => match never {},
            },
            stopping = until_signalled(shutdown, hurry) => match stopping {
                Err(error) => Err(Failure::plain(format!("listening for signals: {error}"))),
                Ok(never) => match never {},
            },
            ended = running => ended.map_err(|error| Failure::of(&error)),
        }
    });
    // A disk that hangs must not keep the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

/// Waits for SIGINT or SIGTERM.
async fn interrupted() -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminate.recv() => Ok(()),
    }
}

/// Orders the shutdown at the first SIGINT or SIGTERM, and cuts it short at the second: engines are still ended to
/// their last process, and nothing that they compute is waited for.
async fn until_signalled(
    shutdown: CancellationToken,
    hurry: CancellationToken,
) -> std::io::Result<std::convert::Infallible> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut last: Option<Instant> = None;
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        // Some that stop a program tell it and its group: that is one order.
        if last.is_some_and(|last| last.elapsed() < ONE_ORDER) {
            continue;
        }
        last = Some(Instant::now());
        if !shutdown.is_cancelled() {
            tracing::info!("stopping: what is being answered is finished first");
            shutdown.cancel();
        } else if !hurry.is_cancelled() {
            tracing::warn!("stopping at once: what is being answered is cut off");
            hurry.cancel();
        }
    }
}

/// Calls `check` for each SIGHUP.
async fn on_hangup(check: impl Fn()) -> std::io::Result<std::convert::Infallible> {
    let mut hangup = signal(SignalKind::hangup())?;
    loop {
        hangup.recv().await;
        check();
    }
}

/// Signals that come within this time of one are the same order: `timeout` and others that stop a program tell it
/// and its group.
const ONE_ORDER: Duration = Duration::from_millis(500);

fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .with_writer(std::io::stderr)
        .init();
}
