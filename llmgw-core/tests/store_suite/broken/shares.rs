//! What people get wrong when they share a quota.

use std::{collections::BTreeMap, time::Duration};

use llmgw_core::{
    clock::Timestamp,
    cluster::tenancy::{
        Window,
        quota::{Own, Quota, Share, ShareAsk, Standing},
    },
    id::GatewayId,
};
use tokio::time::{Instant, sleep};

use super::{BrokenStore, Bug, STEP};

pub(super) type Shares = BTreeMap<(Quota, GatewayId), (Own, Option<Instant>)>;

impl BrokenStore {
    pub(super) async fn share_all(
        &self,
        gateway: GatewayId,
        turn: u64,
        asks: &[ShareAsk],
        ttl: Duration,
    ) -> Vec<Share> {
        let mut answers = Vec::new();
        for ask in asks {
            let quota = self.quota(&ask.quota);
            let standing = self.standing(&quota, gateway);
            let mut ask = ask.clone();
            if self.has(Bug::SpentIsAddedUp) {
                ask.spent += standing.own.map_or(0, |own| own.spent);
            }
            let turn = match standing.own {
                Some(own) if self.has(Bug::LateAsksCount) => turn.max(own.turn + 1),
                _ => turn,
            };
            let (mut share, kept) = standing.grant(turn, &ask);
            if self.has(Bug::LimitsAreOfEachGateway) {
                share.held = ask.wanted;
            }
            if self.has(Bug::SharesAreDecidedBeforeTheyAreWritten) {
                sleep(STEP).await;
            }
            if let Some(own) = kept {
                let until = Instant::now().checked_add(ttl);
                self.data().shares.insert((quota, gateway), (own, until));
            }
            answers.push(share);
        }
        answers
    }

    fn quota(&self, quota: &Quota) -> Quota {
        let mut quota = quota.clone();
        if self.has(Bug::MinutesAreOne) {
            quota.window = Window {
                begins: Timestamp(0),
                ..quota.window
            };
        }
        quota
    }

    pub(super) fn standing(&self, quota: &Quota, gateway: GatewayId) -> Standing {
        let mut standing = Standing::default();
        let now = Instant::now();
        let data = self.data();
        for ((_, holder), (own, until)) in data.shares.iter().filter(|((q, _), _)| q == quota) {
            let over = until.is_some_and(|until| until <= now) && !self.has(Bug::SharesLastForEver);
            if *holder == gateway {
                standing.own = Some(*own);
                continue;
            }
            if !over {
                standing.held_by_others += own.held;
                standing.others += 1;
            }
            if !(over && self.has(Bug::SpentRunsOut)) {
                standing.spent_by_others += own.spent;
            }
        }
        standing
    }
}
