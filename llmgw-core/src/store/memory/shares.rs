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
        let standing = self.standing(&ask.quota, Some(gateway), now);
        let (share, kept) = standing.grant(turn, ask);
        if let Some(own) = kept {
            let shares = self.0.entry(ask.quota.clone()).or_default();
            shares.insert(gateway, Held { own, until });
        }
        share
    }

    /// What stands of a quota, for a gateway that asks, or for nobody.
    pub(super) fn standing(
        &self,
        quota: &Quota,
        asks: Option<GatewayId>,
        now: Duration,
    ) -> Standing {
        let mut standing = Standing::default();
        for (gateway, held) in self.0.get(quota).into_iter().flatten() {
            if Some(*gateway) == asks {
                standing.own = Some(held.own);
                continue;
            }
            let Standing {
                spent_by_others,
                held_by_others,
                others,
                own: _,
            } = &mut standing;
            *spent_by_others = spent_by_others.saturating_add(held.own.spent);
            if held.until > now {
                *held_by_others = held_by_others.saturating_add(held.own.held);
                *others += 1;
            }
        }
        standing
    }
}
