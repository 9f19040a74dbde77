//! Stage 6, pick: which replica takes the call, and counts it there until the call is over.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    prompt::Prompt,
    upstreams::{LoadGuard, Upstream, Upstreams},
};
use crate::{
    id::ReplicaId,
    route::{
        ModelRoute, NoRoute,
        balance::{Balance, Candidate},
    },
};

/// The replica that costs the call least, among those that have not failed it.
pub(super) fn pick(
    route: &ModelRoute,
    tried: &[ReplicaId],
    upstreams: &Upstreams,
    prompt: &Prompt,
) -> Result<LoadGuard, NoRoute> {
    let left = route
        .endpoints
        .iter()
        .filter(|endpoint| !tried.contains(&endpoint.replica));
    let entries: Vec<Arc<Upstream>> = left.map(|endpoint| upstreams.entry(*endpoint)).collect();
    let now = Instant::now();
    let chosen = match entries.as_slice() {
        [] => None,
        [only] => Some(only),
        several => {
            let matches = upstreams.prefixes().matches(&prompt.blocks);
            let cached = |replica: ReplicaId| {
                let found = matches.iter().find(|(known, _)| *known == replica);
                found.map_or(0, |(_, blocks)| Prompt::cached(*blocks))
            };
            let candidates: Vec<Candidate> = several
                .iter()
                .map(|entry| entry.candidate(cached(entry.endpoint.replica), now))
                .collect();
            let chosen = Balance::default().choose(prompt.tokens, &candidates);
            chosen.and_then(|chosen| {
                several
                    .iter()
                    .find(|entry| entry.endpoint.replica == chosen.replica)
            })
        }
    };
    let Some(chosen) = chosen else {
        return Err(NoRoute::NoEndpoint(
            route.name.clone(),
            route.waiting.clone(),
        ));
    };
    if !prompt.blocks.is_empty() {
        let replica = chosen.endpoint.replica;
        upstreams.prefixes().record(replica, &prompt.blocks);
    }
    Ok(chosen.begin(prompt.tokens, now))
}
