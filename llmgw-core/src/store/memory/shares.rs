//! What gateways have spent and hold of quotas.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    cluster::tenancy::quota::{Own, Quota, Share, ShareAsk, Standing},
    id::GatewayId,
};

/// By quota, then by gateway.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares(BTreeMap<Quota, BTreeMap<GatewayId, Held>>);

#[derive(Clone, Copy, Debug)]
struct Held {
    own: Own,
    /// On the clock's monotonic time.
    until: Duration,
}

// === impl Shares ===

impl Shares {
    /// Grants a gateway its share, from now until then.
    pub(super) fn grant(
        &mut self,
        gateway: GatewayId,
        turn: u64,
        ask: &ShareAsk,
        (now, until): (Duration, Duration),
    ) -> Share {
        let shares = self.0.entry(ask.quota.clone()).or_default();
        let mut standing = Standing {
            own: shares.get(&gateway).map(|held| held.own),
            ..Standing::default()
        };
        for (_, other) in shares.iter().filter(|(id, _)| **id != gateway) {
            let Standing {
                spent_by_others,
                held_by_others,
                others,
                own: _,
            } = &mut standing;
            *spent_by_others = spent_by_others.saturating_add(other.own.spent);
            if other.until > now {
                *held_by_others = held_by_others.saturating_add(other.own.held);
                *others += 1;
            }
        }
        let (share, kept) = standing.grant(turn, ask);
        if let Some(own) = kept {
            shares.insert(gateway, Held { own, until });
        }
        share
    }
}
