//! The task that asks the store for shares of quotas: when somebody lacks something, and every second.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::ledger::Ledger;
use crate::{error::Chain, id::GatewayId, store::Store};

/// Keeps what the ledger holds, until `stop`; then tells what was spent last, and gives the rest back.
pub(super) async fn keep_shares(ledger: &Ledger, store: &dyn Store, stop: &CancellationToken) {
    let gateway = GatewayId::generate();
    let mut tick = interval(PERIOD);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failed = false;
    loop {
        let is_last = tokio::select! {
            () = ledger.lacking.notified() => false,
            _ = tick.tick() => false,
            () = stop.cancelled() => true,
        };
        let round = ledger.begin(is_last);
        let shares = if round.asks.is_empty() {
            Some(Vec::new())
        } else {
            // Nobody waits for the end of this but calls that can't go on without; they have a limit of their own.
            let asking = store.share_quotas(gateway, round.number, &round.asks, TTL);
            match timeout(PATIENCE, asking).await {
                Ok(Ok(shares)) => {
                    failed = false;
                    Some(shares)
                }
                Ok(Err(error)) => {
                    if !failed {
                        tracing::warn!(error = %Chain(&error), "asking for shares of limits");
                    }
                    failed = true;
                    None
                }
                Err(_) => {
                    if !failed {
                        tracing::warn!("asking for shares of limits took too long");
                    }
                    failed = true;
                    None
                }
            }
        };
        ledger.end(&round, shares, TTL);
        if is_last {
            return;
        }
        if failed {
            // A store that is away is not asked as often as calls come.
            tokio::select! {
                _ = tick.tick() => {}
                () = stop.cancelled() => {}
            }
        }
    }
}

/// How often a share is renewed, and what was spent is told.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a share is held without being renewed: some rounds may fail, and what a gateway that was killed held is free
/// soon.
const TTL: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(1);
