//! Keeps the loop's own orders: that a model is parked must outlive a take-over.

use std::{sync::Arc, time::Duration};

use llmgw_core::{
    cluster::order::{Order, StoredOrder, Subject},
    control::Actor,
    error::Code,
    store::Write,
};
use tokio::sync::mpsc;

use super::Shared;
use crate::conductor::OwnOrder;

/// Writes them into the store, one after the other, until the controller stops.
pub(super) async fn keep(shared: Arc<Shared>, mut orders: mpsc::Receiver<OwnOrder>) {
    loop {
        let order = tokio::select! {
            order = orders.recv() => match order {
                Some(order) => order,
                None => return,
            },
            () = shared.stopping.cancelled() => return,
        };
        tokio::select! {
            () = write(&shared, order) => {}
            () = shared.stopping.cancelled() => return,
        }
    }
}

/// Tries until the store takes it, or it stands no more.
async fn write(shared: &Shared, order: OwnOrder) {
    if !shared.store.is_lasting() {
        return;
    }
    loop {
        let written = {
            // Held, so that no operator's order on the same subject comes in between.
            let _one_at_a_time = shared.writes.lock().await;
            let snapshot = shared.snapshot();
            let (action, subject, write) = match &order {
                OwnOrder::Put(stored) => {
                    let subject = stored.order.subject();
                    if snapshot.orders.get(&subject) != Some(stored) {
                        return;
                    }
                    let write = Write::PutOrder(Box::new(stored.clone()));
                    (action(stored), subject, write)
                }
                OwnOrder::Lift(subject) => {
                    if snapshot.orders.get(subject).is_some() || !is_kept(shared, subject).await {
                        return;
                    }
                    let write = Write::LiftOrder(subject.clone());
                    (lifted(subject), subject.clone(), write)
                }
            };
            let itself = Actor::itself();
            shared
                .commit(&itself, action, &subject.name(), &[write])
                .await
        };
        match written {
            Ok(()) => return,
            // Whoever leads now finds out itself.
            Err(error) if error.code == Code::Fenced => return,
            Err(error) => {
                tracing::warn!(%error, "an order of the loop's own is not kept yet");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Whether the store has an order on this subject; it has, as far as is known, when it does not say.
async fn is_kept(shared: &Shared, subject: &Subject) -> bool {
    match shared.store.orders().await {
        Ok(orders) => orders.iter().any(|one| one.order.subject() == *subject),
        Err(_) => true,
    }
}

fn action(stored: &StoredOrder) -> &'static str {
    match stored.order {
        Order::Park { .. } => "model.park",
        _ => "order.set",
    }
}

fn lifted(subject: &Subject) -> &'static str {
    match subject {
        Subject::Park(_) => "model.unpark",
        Subject::Roll(_) => "model.rolled",
        _ => "order.lift",
    }
}

const PAUSE: Duration = Duration::from_secs(1);
