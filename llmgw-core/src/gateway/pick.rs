//! Stage 5, pick: which replica takes the call, and counts it there until the call is over.

use std::sync::Arc;

use super::upstreams::{LoadGuard, Upstreams};
use crate::{
    id::ReplicaId,
    route::{ModelRoute, NoRoute},
};

/// The replica with the least outstanding work among those that have not failed this call.
pub(super) fn pick(
    route: &ModelRoute,
    tried: &[ReplicaId],
    upstreams: &Arc<Upstreams>,
) -> Result<LoadGuard, NoRoute> {
    let endpoint = route.choose(tried, |replica| upstreams.outstanding(replica))?;
    Ok(upstreams.entry(endpoint).begin())
}
