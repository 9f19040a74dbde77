//! Stage 3, resolve: the model that a name stands for; and waking it, when nothing serves it.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::refusal::Refusal;
use crate::{
    control::Activation,
    route::{ModelRoute, NoRoute, RouteTable, Waiting},
};

/// The model that answers to `name`.
pub(super) fn resolve(table: &RouteTable, name: &str) -> Result<Arc<ModelRoute>, Refusal> {
    Ok(Arc::clone(table.resolve(name)?))
}

/// The model with at least one replica that serves; when there is none, asks for one, once, and says what it
/// waits for.
///
/// A parked model is not asked for: only an operator lets it be tried again.
pub(super) async fn awake(
    route: Arc<ModelRoute>,
    routes: &watch::Receiver<Arc<RouteTable>>,
    activation: &dyn Activation,
    patience: Duration,
) -> Result<Arc<ModelRoute>, Refusal> {
    if !route.endpoints.is_empty() {
        return Ok(route);
    }
    let none = |waiting: &Waiting| NoRoute::NoEndpoint(route.name.clone(), waiting.clone()).into();
    if matches!(route.waiting, Waiting::Parked(_)) {
        return Err(none(&route.waiting));
    }
    let served = async {
        if let Some(waiting) = activation.activate(&route.name).await {
            return Err(none(&waiting));
        }
        // It is served by now: the table that says so is on its way.
        let mut routes = routes.clone();
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
            (false, _) => Err(none(&route.waiting)),
        }
    };
    match tokio::time::timeout(patience, served).await {
        Ok(served) => served,
        Err(_) => Err(none(&route.waiting)),
    }
}
