//! The task that asks the store for shares of quotas: when somebody lacks something, though not for each call,
//! and every second.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::ledger::{Lack, Ledger, Need, Reserved};
use crate::{error::Chain, id::GatewayId, store::Store};

/// How often the store is asked, whatever comes: some times at once, as while a load begins, and then now and then.
#[derive(Debug)]
struct Pace {
    /// When it may be asked as often at once as ever.
    full: Instant,
}

/// Keeps what the ledger holds, until `stop`; then tells what was spent last, and gives the rest back.
pub(super) async fn keep_shares(ledger: &Ledger, store: &dyn Store, stop: &CancellationToken) {
    let gateway = GatewayId::generate();
    let mut tick = interval(PERIOD);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pace = Pace::new();
    let mut failed = false;
    loop {
        let lacking = async {
            pace.ready().await;
            ledger.lacking.notified().await;
        };
        let is_last = tokio::select! {
            () = lacking => false,
            _ = tick.tick() => false,
            () = stop.cancelled() => true,
        };
        let round = ledger.begin(is_last);
        let shares = if round.asks.is_empty() {
            Some(Vec::new())
        } else {
            pace.take();
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

/// Reserves all that is needed; waits for the store where this gateway holds too little.
///
/// # Cancellation
/// Dropping the future reserves nothing.
pub(super) async fn obtain(ledger: &Ledger, needs: &[Need]) -> Result<Vec<Reserved>, Lack> {
    let deadline = Instant::now() + WAIT;
    loop {
        let lack = match ledger.reserve(needs) {
            Ok(reserved) => return Ok(reserved),
            Err(lack) if lack.is_known => return Err(lack),
            Err(lack) => lack,
        };
        // Another call may take what came with the answer: then there is more, and this one waits again.
        let waiting = ledger.wait_for(needs);
        if timeout_at(deadline, waiting.asked()).await.is_err() {
            return Err(lack);
        }
    }
}

// === impl Pace ===

impl Pace {
    fn new() -> Self {
        Self {
            full: Instant::now(),
        }
    }

    /// Waits until the store may be asked again.
    async fn ready(&self) {
        let ahead = EACH * (AT_ONCE - 1);
        if let Some(at) = self.full.checked_sub(ahead) {
            sleep_until(at).await;
        }
    }

    /// The store is asked.
    fn take(&mut self) {
        self.full = self.full.max(Instant::now()) + EACH;
    }
}

/// How often a share is renewed, and what was spent is told.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a share is held without being renewed: some rounds may fail, and what a gateway that was killed held is free
/// soon.
const TTL: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a call waits until its gateway holds enough: a store answers within a few milliseconds.
const WAIT: Duration = Duration::from_secs(2);
/// How many times the store may be asked at once, and how long each takes to be earned again.
const AT_ONCE: u32 = 8;
const EACH: Duration = Duration::from_millis(250);
