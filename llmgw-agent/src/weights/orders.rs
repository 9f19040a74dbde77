use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use llmgw_core::cluster::weights::WeightsOrders;

/// What the control plane said last. In memory alone: it may hold a secret.
#[derive(Clone, Debug, Default)]
pub(super) struct Orders(Arc<Mutex<WeightsOrders>>);

impl Orders {
    pub(super) fn get(&self) -> WeightsOrders {
        self.lock().clone()
    }

    /// Says whether that is news.
    pub(super) fn set(&self, orders: WeightsOrders) -> bool {
        let mut kept = self.lock();
        let news = *kept != orders;
        *kept = orders;
        news
    }

    fn lock(&self) -> MutexGuard<'_, WeightsOrders> {
        // Replaced whole: right at every moment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
