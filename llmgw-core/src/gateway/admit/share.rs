//! What this gateway holds of one quota: arithmetic alone.
//!
//! A gateway may spend and reserve up to a *bound*: what it had spent when it asked the store last, and what it was given
//! then. While it asks again, it keeps within what it asks for too: the store may count with that already. An answer that
//! was lost leaves the lower of both in force.

use std::time::Duration;

use super::usage::Usage;
use crate::cluster::tenancy::quota::Share;

/// A gateway's share of one quota.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Local {
    /// All that may be used of the quota, by all gateways.
    pub(super) limit: u64,
    /// What this gateway has spent.
    pub(super) spent: u64,
    /// What calls under way may still spend.
    pub(super) reserved: u64,
    /// What calls that wait need.
    pub(super) waiting: u64,
    /// What may be spent and reserved in all.
    bound: u64,
    /// What had been spent when the bound was made.
    told: u64,
    /// Until when the bound holds, on the monotonic clock.
    until: Duration,
    /// What is asked for and not answered: the bound that it would make, and what was told of spending.
    asking: Option<(u64, u64)>,
    answered: Option<Answered>,
    /// How much is used.
    usage: Usage,
    /// The most that a call has reserved lately.
    largest: u64,
    /// When a call used it last.
    used: Duration,
}

/// The last answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Answered {
    pub(super) share: Share,
    at: Duration,
    /// What this gateway had spent then.
    told: u64,
    /// Whether less was given than asked for: all is spent or held.
    is_short: bool,
}

// === impl Local ===

impl Local {
    /// What may be reserved now.
    pub(super) fn room(&self, now: Duration) -> u64 {
        if !self.is_live(now) {
            return 0;
        }
        let asked = self.asking.map_or(u64::MAX, |(bound, _)| bound);
        self.bound.min(asked).saturating_sub(self.in_use())
    }

    /// What may be reserved when the store is away: this gateway's part of the whole, as far as it knows how many they are.
    pub(super) fn room_alone(&self) -> u64 {
        let others = self.answered.map_or(0, |answered| answered.share.others);
        let part = self.limit / others.saturating_add(1);
        part.max(1).min(self.limit).saturating_sub(self.in_use())
    }

    /// Whether the store stands behind what is held.
    pub(super) fn is_live(&self, now: Duration) -> bool {
        now < self.until
    }

    /// Whether the store has said so lately that there is no more that asking again is of no use.
    pub(super) fn is_known_to_be_short(&self, now: Duration) -> bool {
        self.is_live(now)
            && self.answered.is_some_and(|answered| {
                answered.is_short && now.saturating_sub(answered.at) < FRESH
            })
    }

    /// What is left of the quota for all gateways, as far as this one knows; what its own calls have reserved is not left.
    pub(super) fn remaining(&self) -> u64 {
        let others = self.answered.map_or(0, |answered| {
            let Share {
                spent,
                held_by_others,
                ..
            } = answered.share;
            spent
                .saturating_sub(answered.told)
                .saturating_add(held_by_others)
        });
        self.limit
            .saturating_sub(others)
            .saturating_sub(self.in_use())
    }

    /// Whether calls may soon find too little, and the store could have more.
    pub(super) fn runs_low(&self, now: Duration) -> bool {
        let soon = self.usage.in_a_second(now) / 4;
        // What is held ahead of need as a quota runs out is not more for being asked for again.
        let low = soon.max(self.largest).min(self.remaining() / PART / 4);
        self.room(now) < low && !self.is_known_to_be_short(now)
    }

    pub(super) fn reserve(&mut self, amount: u64, now: Duration) {
        self.reserved = self.reserved.saturating_add(amount);
        self.largest = self.largest.max(amount);
        self.usage.note(0, self.reserved, now);
        self.used = now;
    }

    /// A call that had reserved so much is over, and has spent so much.
    pub(super) fn settle(&mut self, reserved: u64, spent: u64, now: Duration) {
        self.reserved = self.reserved.saturating_sub(reserved);
        self.spent = self.spent.saturating_add(spent);
        self.usage.note(spent, self.reserved, now);
    }

    /// What to tell and to ask for: what was spent, what is wanted besides. `None` when there is nothing to say. The last
    /// time, nothing is wanted.
    pub(super) fn ask(&mut self, now: Duration, is_last: bool) -> Option<(u64, u64)> {
        let holds = self.bound > self.told && self.is_live(now);
        let news = self.spent != self.told || self.waiting > 0 || self.reserved > 0;
        if !news && !holds {
            return None;
        }
        // Ahead of need: what is used until the next ask but one, as it goes now, and room for as many calls at the same time
        // as there were; or enough for two calls, or for as many again as are under way, for those that come one after the
        // other and stay; and less as the quota runs out.
        let is_used = now.saturating_sub(self.used) < IDLE;
        let spare = if is_used && !is_last {
            let spent = self.usage.in_a_second(now).saturating_mul(AHEAD);
            let at_once = self.usage.most_reserved(now).saturating_sub(self.reserved);
            let ahead = spent.saturating_add(at_once).max(self.waiting);
            let ahead = ahead.max(self.largest.saturating_mul(2)).max(self.reserved);
            ahead.min(self.remaining() / PART)
        } else {
            self.largest = 0;
            0
        };
        let wanted = self
            .reserved
            .saturating_add(self.waiting)
            .saturating_add(spare);
        self.asking = Some((self.spent.saturating_add(wanted), self.spent));
        Some((self.spent, wanted))
    }

    /// Takes an answer in: `until` is when the share runs out, by the time at which it was asked for.
    pub(super) fn answer(&mut self, share: Share, now: Duration, until: Duration) {
        let Some((asked, told)) = self.asking.take() else {
            return;
        };
        self.bound = told.saturating_add(share.held);
        self.told = told;
        self.until = until;
        self.answered = Some(Answered {
            share,
            at: now,
            told,
            is_short: self.bound < asked,
        });
    }

    /// No answer came: whether the store has heard is not known.
    pub(super) fn unanswered(&mut self) {
        if let Some((asked, _)) = self.asking.take() {
            self.bound = self.bound.min(asked);
        }
    }

    /// Whether nothing would be lost without it, but for what was spent.
    pub(super) fn is_idle(&self) -> bool {
        self.reserved == 0 && self.waiting == 0 && self.spent == self.told && self.asking.is_none()
    }

    /// Whether nothing is held of it.
    pub(super) fn holds_nothing(&self) -> bool {
        self.bound == self.told
    }

    fn in_use(&self) -> u64 {
        self.spent.saturating_add(self.reserved)
    }
}

/// How long an answer is believed that there is no more.
const FRESH: Duration = Duration::from_millis(250);
/// Seconds whose use is held ahead of need: the next ask comes after one, and may take a while.
const AHEAD: u64 = 2;
/// What nobody has used for so long is given back.
const IDLE: Duration = Duration::from_secs(10);
/// No more than this part of what is left is held ahead of need.
const PART: u64 = 8;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::cluster::tenancy::{
        LevelPath, Party, Period, Window,
        quota::{Measure, Own, Quota, ShareAsk, Standing},
    };

    const NOW: Duration = Duration::from_secs(100);
    const LATER: Duration = Duration::from_secs(110);

    fn share(held: u64, spent: u64, held_by_others: u64) -> Share {
        Share {
            held,
            spent,
            held_by_others,
            others: 1,
        }
    }

    fn local(limit: u64) -> Local {
        Local {
            limit,
            ..Local::default()
        }
    }

    #[test]
    fn nothing_may_be_reserved_before_an_answer_and_after_its_time() {
        let mut local = local(100);
        assert_eq!((local.room(NOW), local.ask(NOW, false)), (0, None));
        local.waiting = 10;
        let (told, wanted) = local.ask(NOW, false).unwrap();
        assert!(told == 0 && wanted >= 10, "{wanted}");
        local.answer(share(wanted, 0, 0), NOW, LATER);
        local.waiting = 0;
        assert_eq!(local.room(NOW), wanted);
        local.reserve(6, NOW);
        assert_eq!(local.room(NOW), wanted - 6);
        assert_eq!(local.room(LATER), 0);
        // Alone, it is one of two.
        assert_eq!(local.room_alone(), 44);
        local.settle(6, 4, NOW);
        assert_eq!((local.room(NOW), local.spent), (wanted - 4, 4));
    }

    #[test]
    fn while_it_asks_and_when_no_answer_came_the_lower_bound_holds() {
        let mut local = local(1_000);
        local.waiting = 100;
        local.ask(NOW, false).unwrap();
        local.answer(share(100, 0, 0), NOW, LATER);
        local.waiting = 0;
        local.reserve(10, NOW);
        // What was not used is given back: the store may count with it while the answer is on its way.
        let (_, wanted) = local.ask(NOW + IDLE, false).unwrap();
        assert!(wanted < 100, "{wanted}");
        assert_eq!(local.room(NOW), wanted - 10);
        local.unanswered();
        assert_eq!(local.room(NOW), wanted - 10);
        // More was asked for in vain: nothing came of it.
        local.waiting = 500;
        local.ask(NOW, false).unwrap();
        local.unanswered();
        assert_eq!(local.room(NOW), wanted - 10);
    }

    #[test]
    fn calls_that_come_one_after_the_other_and_stay_are_asked_for_a_dozen_times_and_not_each() {
        let mut local = local(1 << 40);
        let mut asks = 0;
        for _ in 0..1_000 {
            if local.room(NOW) == 0 {
                local.waiting = 1;
                let (spent, wanted) = local.ask(NOW, false).unwrap();
                local.answer(share(wanted, spent, 0), NOW, LATER);
                local.waiting = 0;
                asks += 1;
            }
            local.reserve(1, NOW);
        }
        assert!(asks <= 12, "{asks}");
    }

    #[test]
    fn that_there_is_no_more_is_believed_for_a_moment() {
        let mut local = local(10);
        local.waiting = 20;
        local.ask(NOW, false).unwrap();
        local.answer(share(4, 6, 0), NOW, LATER);
        assert!(local.is_known_to_be_short(NOW));
        assert!(!local.is_known_to_be_short(NOW + FRESH));
        assert_eq!(local.remaining(), 4);
    }

    /// A store in a few lines.
    #[derive(Default)]
    struct Store(BTreeMap<usize, Own>);

    impl Store {
        fn grant(&mut self, who: usize, turn: u64, limit: u64, spent: u64, wanted: u64) -> Share {
            let others = self.0.iter().filter(|(id, _)| **id != who);
            let standing = Standing {
                spent_by_others: others.clone().map(|(_, own)| own.spent).sum(),
                held_by_others: others.clone().map(|(_, own)| own.held).sum(),
                others: others.count() as u64,
                own: self.0.get(&who).copied(),
            };
            let quota = Quota {
                party: Party::Level(LevelPath::CLUSTER),
                measure: Measure::Tokens,
                window: Window {
                    period: Period::Total,
                    begins: crate::clock::Timestamp(0),
                },
            };
            let ask = ShareAsk {
                quota,
                limit,
                spent,
                wanted,
            };
            let (share, own) = standing.grant(turn, &ask);
            self.0.extend(own.map(|own| (who, own)));
            share
        }
    }

    proptest! {
        /// Whatever calls come to whichever gateway, whichever answers are lost: as long as calls spend no more than they
        /// reserved, all of them together spend no more than the limit.
        #[test]
        fn gateways_together_keep_the_limit(
            limit in 1_u64..500,
            steps in prop::collection::vec((0_usize..3, 0_u8..6, 1_u64..60), 1..200),
        ) {
            let mut store = Store::default();
            let mut gateways = [(); 3].map(|()| (local(limit), Vec::<u64>::new(), None::<(u64, u64)>));
            for (turn, (who, what, amount)) in (1..).zip(steps) {
                let (local, calls, asking) = &mut gateways[who];
                match what {
                    0 if asking.is_none() => {
                        local.waiting = amount;
                        *asking = local.ask(NOW, false);
                        local.waiting = 0;
                    }
                    // The store hears it; the answer comes, or is lost.
                    1 | 2 => if let Some((spent, wanted)) = asking.take() {
                        let share = store.grant(who, turn, limit, spent, wanted);
                        if what == 1 {
                            local.answer(share, NOW, LATER);
                        } else {
                            local.unanswered();
                        }
                    },
                    3 => if asking.take().is_some() {
                        local.unanswered();
                    },
                    4 => {
                        let room = local.room(NOW).min(amount);
                        local.reserve(room, NOW);
                        calls.push(room);
                    }
                    _ => if let Some(reserved) = calls.pop() {
                        local.settle(reserved, reserved.min(amount), NOW);
                    },
                }
                let used: u64 = gateways.iter().map(|(local, ..)| local.spent + local.reserved).sum();
                prop_assert!(used <= limit, "{used} of {limit}");
            }
        }
    }
}
