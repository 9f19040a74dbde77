//! What every daemon does at its start: listen for signals, log to stderr.

use std::io::IsTerminal;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing_subscriber::EnvFilter;

use crate::fault::Fault;

/// A token that is cancelled at the first SIGINT or SIGTERM.
///
/// # Errors
/// When the handlers can't be installed.
pub fn stop_on_signal() -> Result<CancellationToken, Fault> {
    let stop = CancellationToken::new();
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Fault::Signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Fault::Signals)?;
    let cancelled = stop.clone();
    // Ends with the process: a signal may come at any time until then.
    TaskTracker::new().spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        cancelled.cancel();
        // Later signals are taken in and change nothing: a drain that is cut short would leave engines behind.
        loop {
            tokio::select! {
                _ = interrupt.recv() => tracing::warn!("already stopping"),
                _ = terminate.recv() => tracing::warn!("already stopping"),
            }
        }
    });
    Ok(stop)
}

/// Logs to stderr at the level of `RUST_LOG`, by default `info`.
pub fn init_logging() {
    init_logging_at("info");
}

/// Logs to stderr at the level of `RUST_LOG`, by default `level`.
pub fn init_logging_at(level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let logging = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    // A second call, in a test, changes nothing.
    drop(logging.with_target(false).try_init());
}
