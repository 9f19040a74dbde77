//! Takes the lease and keeps it: the [`Elector`] with a store and a timer.

use std::{sync::Arc, time::Duration};

use llmgw_core::{
    clock::Clock,
    cluster::order::Orders,
    error::Chain,
    keys::TokenRing,
    store::{Epoch, Store, StoreError, StoredModel},
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{ControllerError, loop_task::Event};
use crate::{
    conductor::{self, snapshot::Entry},
    lease::{Elector, Event as Turn, Next},
};

/// Keeps the lease while the controller runs.
#[derive(Debug)]
pub(super) struct Leadership {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) holder: String,
    pub(super) ttl: Duration,
    pub(super) elector: Elector,
    pub(super) leading: watch::Sender<Option<u64>>,
    pub(super) outranked: watch::Receiver<u64>,
    /// Why the lease could not be taken or kept the last time.
    pub(super) trouble: watch::Sender<Option<String>>,
    pub(super) events: mpsc::Sender<Event>,
    /// Who may use the admin API.
    pub(super) tokens: watch::Sender<Arc<TokenRing>>,
}

/// Takes the lease; when another has it, waits for as long as that one's lasts, and tries once more.
pub(super) async fn first_lease(
    store: &dyn Store,
    clock: &dyn Clock,
    holder: &str,
    ttl: Duration,
    elector: &mut Elector,
) -> Result<Epoch, ControllerError> {
    let mut called_at = clock.monotonic();
    let lease = match store.acquire_lease(holder, ttl).await {
        Err(StoreError::Held {
            holder: other,
            remaining,
        }) => {
            tracing::info!(holder = %other, ?remaining, "waiting for another control plane's lease");
            tokio::time::sleep(remaining + Duration::from_millis(50)).await;
            called_at = clock.monotonic();
            store.acquire_lease(holder, ttl).await
        }
        first => first,
    };
    match lease {
        Ok(lease) => {
            let epoch = lease.epoch.0;
            elector.on(Turn::Acquired { epoch, called_at }, clock.monotonic());
            Ok(lease.epoch)
        }
        Err(held @ StoreError::Held { .. }) => Err(ControllerError::AnotherLeads(held)),
        Err(error) => Err(ControllerError::Store(error)),
    }
}

impl Leadership {
    /// Runs until `stop`; then gives the lease up, so that the next control plane need not wait.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        loop {
            let now = self.clock.monotonic();
            self.publish(now);
            let seen = *self.outranked.borrow_and_update();
            if self.elector.leading(now).is_some_and(|epoch| epoch <= seen) {
                tokio::select! {
                    () = self.raise(seen) => {}
                    () = stop.cancelled() => break,
                }
            }
            match self.elector.next(now) {
                Next::Wait(until) => {
                    // Also awake when the lease runs out, should renewals hang until then.
                    let pause = until.saturating_sub(now).min(self.ttl / 3);
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        Ok(()) = self.outranked.changed() => {}
                        () = stop.cancelled() => break,
                    }
                }
                Next::Acquire => {
                    tokio::select! {
                        () = self.acquire(now) => {}
                        () = stop.cancelled() => break,
                    }
                }
                Next::Renew(epoch) => {
                    let renewed = tokio::select! {
                        renewed = self.store.renew_lease(Epoch(epoch), self.ttl) => Some(renewed),
                        () = tokio::time::sleep(self.ttl / 3) => None,
                        () = stop.cancelled() => break,
                    };
                    self.renewed(renewed, now);
                }
            }
        }
        if let Some(epoch) = self.elector.leading(self.clock.monotonic()) {
            let release = self.store.release_lease(Epoch(epoch));
            match tokio::time::timeout(RELEASE_DEADLINE, release).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(error = %Chain(&error), "releasing the lease"),
                Err(_) => tracing::warn!("releasing the lease took too long"),
            }
        }
    }

    /// Agents follow nobody whose epoch is lower than one that they have followed. Such a one is in a store that
    /// was lost and made anew, or was brought back from an older copy.
    async fn raise(&mut self, seen: u64) {
        let raised = self.store.raise_epoch(Epoch(seen)).await;
        match raised {
            Ok(()) => {
                tracing::error!(
                    seen,
                    "nodes have followed a later control plane than this store knows: it was lost, or is an older \
                     copy; leading with a higher epoch",
                );
                self.elector.on(Turn::Outranked, self.clock.monotonic());
            }
            Err(error) => tracing::warn!(error = %Chain(&error), "raising the epoch"),
        }
    }

    async fn acquire(&mut self, called_at: Duration) {
        let taken = self.store.acquire_lease(&self.holder, self.ttl).await;
        let now = self.clock.monotonic();
        let turn = match taken {
            Ok(lease) => {
                let epoch = lease.epoch.0;
                tracing::info!(epoch, "leading");
                self.trouble.send_replace(None);
                match self.intent().await {
                    Ok((models, orders)) => {
                        let seen = *self.outranked.borrow();
                        let added =
                            |stored: StoredModel| Entry::added(stored.model, stored.added_at);
                        let lead = conductor::Event::Leading {
                            epoch,
                            entries: models.into_iter().map(added).collect(),
                            orders,
                            raised: seen > 0,
                        };
                        if self.events.send(Event::Happened(lead)).await.is_err() {
                            return;
                        }
                        Turn::Acquired { epoch, called_at }
                    }
                    Err(error) => {
                        tracing::warn!(error = %Chain(&error), "reading what to lead with");
                        Turn::Failed
                    }
                }
            }
            Err(StoreError::Held { .. }) => {
                self.trouble.send_replace(None);
                Turn::Held
            }
            Err(error) => {
                self.failed("taking the lease", &Chain(&error));
                Turn::Failed
            }
        };
        self.elector.on(turn, now);
    }

    /// What should run, and what was ordered: what another may have left since.
    async fn intent(&self) -> Result<(Vec<StoredModel>, Orders), StoreError> {
        let models = self.store.models().await?;
        let orders = self.store.orders().await?;
        let tokens = self.store.tokens().await?;
        self.tokens.send_replace(Arc::new(TokenRing::new(tokens)));
        Ok((models, orders.into_iter().collect()))
    }

    fn renewed(&mut self, renewed: Option<Result<(), StoreError>>, called_at: Duration) {
        let turn = match renewed {
            Some(Ok(())) => {
                self.trouble.send_replace(None);
                Turn::Renewed { called_at }
            }
            Some(Err(StoreError::Fenced { .. })) => {
                tracing::error!("another control plane has taken over; standing by");
                self.trouble.send_replace(None);
                Turn::Fenced
            }
            Some(Err(error)) => {
                self.failed("renewing the lease", &Chain(&error));
                Turn::Failed
            }
            None => {
                self.failed("renewing the lease", &"it took too long");
                Turn::Failed
            }
        };
        self.elector.on(turn, self.clock.monotonic());
    }

    /// Says once what goes wrong, and keeps it for those who ask why nobody leads.
    fn failed(&self, doing: &str, error: &dyn std::fmt::Display) {
        let error = error.to_string();
        let news = self.trouble.send_if_modified(|known| {
            let news = known.as_ref() != Some(&error);
            *known = Some(error.clone());
            news
        });
        if news {
            tracing::error!(%error, "{doing}");
        }
    }

    fn publish(&self, now: Duration) {
        let leading = self.elector.leading(now);
        self.leading.send_if_modified(|shown| {
            let changed = *shown != leading;
            *shown = leading;
            changed
        });
    }
}

/// A store that does not answer must not hold up a shutdown; the lease then runs out by itself.
const RELEASE_DEADLINE: Duration = Duration::from_secs(2);
