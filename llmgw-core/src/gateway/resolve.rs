//! Stage 3, resolve: the model that a name stands for; and waking it, when nothing serves it.

use std::sync::Arc;

use tokio::{
    sync::watch,
    time::{Instant, timeout, timeout_at},
};

use super::{
    bulletin::Bulletin,
    config::GatewayConfig,
    queue::{Full, Place, Queue, Turn},
    refusal::{Refusal, without_paths},
};
use crate::{
    cluster::tenancy::Party,
    control::Activation,
    error::Code,
    route::{ModelRoute, NoRoute, RouteTable, Waiting},
};

/// The model that answers to `name`.
pub(super) fn resolve(table: &RouteTable, name: &str) -> Result<Arc<ModelRoute>, Refusal> {
    Ok(Arc::clone(table.resolve(name)?))
}

/// What a model is woken with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waking<'a> {
    pub(super) config: &'a GatewayConfig,
    pub(super) routes: &'a watch::Receiver<Arc<RouteTable>>,
    pub(super) activation: &'a dyn Activation,
    pub(super) queue: &'a Arc<Queue>,
    /// When the call has waited for long enough, for all its models together.
    pub(super) deadline: Instant,
    /// Where a call that waits says what it waits for.
    pub(super) bulletin: &'a Bulletin,
}

impl Waking<'_> {
    /// The model with at least one replica that serves. When there is none, asks for one, once.
    ///
    /// A call for a model on demand then waits for it, unless there is nothing to wait for; any other is told what the
    /// model waits for. A parked model, and one that is switched off, is not asked for: only an operator can help.
    pub(super) async fn awake(
        &self,
        route: Arc<ModelRoute>,
        tenant: &Party,
    ) -> Result<Arc<ModelRoute>, Refusal> {
        if !route.endpoints.is_empty() {
            return Ok(route);
        }
        if matches!(route.waiting, Waiting::Parked(_) | Waiting::Off(_)) {
            return Err(none(&route, &route.waiting));
        }
        if route.on_demand {
            return self.wait(route, tenant).await;
        }
        let served = async {
            if let Some(waiting) = self.activation.activate(&route.name).await {
                return Err(none(&self.latest(&route), &waiting));
            }
            // It is served by now: the table that says so is on its way.
            let mut routes = self.routes.clone();
            let mut found = None;
            let table = routes
                .wait_for(|table| {
                    found = table.resolve(route.name.as_str()).ok().map(Arc::clone);
                    found
                        .as_ref()
                        .is_none_or(|route| !route.endpoints.is_empty())
                })
                .await;
            match (table.is_ok(), found) {
                (true, Some(route)) => Ok(route),
                (true, None) => Err(NoRoute::UnknownModel(route.name.to_string()).into()),
                // Nobody publishes any more; the last table stays good.
                (false, _) => Err(none(&route, &route.waiting)),
            }
        };
        match timeout(self.config.activation_patience, served).await {
            Ok(served) => served,
            Err(_) => Err(none(&self.latest(&route), &route.waiting)),
        }
    }

    /// The model as the newest table has it.
    fn latest(&self, route: &Arc<ModelRoute>) -> Arc<ModelRoute> {
        let table = self.routes.borrow();
        let found = table.resolve(route.name.as_str());
        Arc::clone(found.unwrap_or(route))
    }

    /// Waits for a model on demand, in a place of the queue.
    async fn wait(
        &self,
        route: Arc<ModelRoute>,
        tenant: &Party,
    ) -> Result<Arc<ModelRoute>, Refusal> {
        let name = &route.name;
        let mut place = self
            .queue
            .enter(name, tenant)
            .map_err(|full| queue_full(&route, full))?;
        let mut state = match &route.waiting {
            Waiting::Loading(state) => state.clone(),
            Waiting::Unplaceable(why) | Waiting::Parked(why) | Waiting::Off(why) => why.clone(),
        };
        let patience = self.queue.patience();
        let served = self.until_served(&route, &mut place, &mut state);
        match timeout_at(self.deadline, served).await {
            Ok(served) => served,
            Err(_) => {
                let seconds = patience.as_secs();
                let message = format!(
                    "{name} was not ready within {seconds} s: {}",
                    without_paths(&state)
                );
                Err(Refusal::new(Code::ActivationTimeout, message))
            }
        }
    }

    async fn until_served(
        &self,
        route: &Arc<ModelRoute>,
        place: &mut Place,
        state: &mut String,
    ) -> Result<Arc<ModelRoute>, Refusal> {
        let name = &route.name;
        let mut routes = self.routes.clone();
        let asked = self.activation.activate(name);
        // Whoever does not answer is not waited for: the table says how it goes on.
        if let Ok(Some(waiting)) = timeout(self.config.activation_patience, asked).await {
            match waiting {
                Waiting::Loading(doing) => *state = doing,
                refused => return Err(none(&self.latest(route), &refused)),
            }
        }
        let mut published = true;
        loop {
            let found = match routes.borrow_and_update().resolve(name.as_str()) {
                Ok(route) => Arc::clone(route),
                Err(gone) => return Err(gone.into()),
            };
            if found.endpoints.is_empty() {
                match &found.waiting {
                    Waiting::Loading(doing) => state.clone_from(doing),
                    refused => return Err(none(&found, refused)),
                }
                self.bulletin.waits(&found, state);
            } else {
                // Whoever sees it first tells all, in their order, and itself.
                self.queue.release(&found);
            }
            tokio::select! {
                biased;
                turn = &mut place.turn => {
                    return match turn {
                        Ok(Turn::Served(route)) => {
                            self.bulletin.served(&route);
                            Ok(route)
                        }
                        Ok(Turn::Displaced) => Err(displaced(&found)),
                        // Its place can't be given up while it is held.
                        Err(_) => Err(Refusal::new(Code::Internal, "a place in the queue was lost")),
                    };
                }
                changed = routes.changed(), if published => published = changed.is_ok(),
            }
        }
    }
}

fn none(route: &ModelRoute, waiting: &Waiting) -> Refusal {
    let none = NoRoute::NoEndpoint(route.name.clone(), waiting.clone());
    Refusal::from(none).with_eta(route.progress.eta)
}

fn queue_full(route: &ModelRoute, full: Full) -> Refusal {
    let name = &route.name;
    let message = match full {
        Full::Model(waiting) => {
            format!("{waiting} calls wait for {name} already, the most that may")
        }
        Full::All(waiting) => format!(
            "{name} is not ready yet, and {waiting} calls wait for models already, the most that may"
        ),
    };
    Refusal::new(Code::QueueFull, message).with_eta(route.progress.eta)
}

fn displaced(route: &ModelRoute) -> Refusal {
    let name = &route.name;
    let message = format!(
        "as many calls wait for {name} as may, this key's tenant has most of them, and others wait with fewer"
    );
    Refusal::new(Code::QueueFull, message).with_eta(route.progress.eta)
}
