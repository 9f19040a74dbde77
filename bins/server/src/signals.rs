//! What every daemon does at its start: listen for signals, log to stderr.

use std::io::IsTerminal;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing_subscriber::EnvFilter;

use crate::fault::Fault;

/// What signals have asked for so far.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    asked: CancellationToken,
    insisted: CancellationToken,
}

// === impl Stop ===

impl Stop {
    /// Waits for the first SIGINT or SIGTERM: the process should end when it has finished what it does.
    pub async fn asked(&self) {
        self.asked.cancelled().await;
    }

    /// Waits for the second: what is being done should not be waited for.
    pub async fn insisted(&self) {
        self.insisted.cancelled().await;
    }

    /// Takes a signal in. Those after the second change nothing: an end that is cut short would leave engines
    /// behind.
    fn take(&self) {
        if !self.asked.is_cancelled() {
            self.asked.cancel();
        } else if !self.insisted.is_cancelled() {
            self.insisted.cancel();
        } else {
            tracing::warn!("already stopping");
        }
    }
}

/// Listens for SIGINT and SIGTERM from now on.
///
/// # Errors
/// When the handlers can't be installed.
pub fn stop_on_signal() -> Result<Stop, Fault> {
    let stop = Stop::default();
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Fault::Signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Fault::Signals)?;
    let told = stop.clone();
    // Ends with the process: a signal may come at any time until then.
    TaskTracker::new().spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            told.take();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_signal_insists_and_later_ones_change_nothing() {
        let stop = Stop::default();
        let said = || (stop.asked.is_cancelled(), stop.insisted.is_cancelled());
        let mut seen = vec![said()];
        for _ in 0..4 {
            stop.take();
            seen.push(said());
        }
        let expected = [
            (false, false),
            (true, false),
            (true, true),
            (true, true),
            (true, true),
        ];
        assert_eq!(seen, expected);
    }
}
