//! What is counted against a limit, and what gateways hold of it.
//!
//! Every gateway admits calls by itself, from a share of the quota that it holds for a while. The store knows what each
//! has spent and what each holds; what is left is for whoever asks next. So a limit holds for all gateways together, and
//! no call waits for the store while its gateway holds enough.

use std::fmt;

use super::{Party, Period, Window};

/// What is counted.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Measure {
    /// Calls.
    Requests,
    /// Tokens of prompts and of answers.
    Tokens,
    /// Calls that are answered at the same time: nothing of it is ever spent, only held.
    Concurrent,
    /// Money, in millionths.
    Cost,
}

/// What may be used by a party, of a measure, within a window of time.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Quota {
    /// Whose it is.
    pub party: Party,
    /// Of what.
    pub measure: Measure,
    /// When.
    pub window: Window,
}

/// What a gateway tells of its share of a quota, and asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ShareAsk {
    /// Of which.
    pub quota: Quota,
    /// All that may be spent and held of it.
    pub limit: u64,
    /// What the gateway has spent of it since it began.
    pub spent: u64,
    /// What it wants to hold besides.
    pub wanted: u64,
}

/// What a gateway was given.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Share {
    /// What it holds from now on, besides what it has spent: at most what it asked for.
    pub held: u64,
    /// What all gateways have spent.
    pub spent: u64,
    /// What other gateways hold.
    pub held_by_others: u64,
    /// Other gateways that hold a share, if only of nothing.
    pub others: u64,
}

/// What a store knows of a quota when a gateway asks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Standing {
    /// What other gateways have spent.
    pub spent_by_others: u64,
    /// What other gateways hold, those whose time has run out left out.
    pub held_by_others: u64,
    /// How many those are.
    pub others: u64,
    /// What the gateway that asks told and was given last, and with which turn.
    pub own: Option<Own>,
}

/// What a gateway told and was given last.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Own {
    /// What it told.
    pub spent: u64,
    /// What it was given.
    pub held: u64,
    /// With which turn.
    pub turn: u64,
}

// === impl Standing ===

impl Standing {
    /// What the gateway is given, and what is to be kept of it: `None` when what it asks was overtaken by a later turn
    /// of its own, and nothing changes.
    #[must_use]
    pub fn grant(&self, turn: u64, ask: &ShareAsk) -> (Share, Option<Own>) {
        let share = |own: Own| Share {
            held: own.held,
            spent: self.spent_by_others.saturating_add(own.spent),
            held_by_others: self.held_by_others,
            others: self.others,
        };
        let before = self.own.unwrap_or_default();
        if self.own.is_some() && turn <= before.turn {
            return (share(before), None);
        }
        // What was spent stays spent.
        let spent = before.spent.max(ask.spent.min(MOST));
        let taken = [spent, self.spent_by_others, self.held_by_others];
        let taken = taken.into_iter().fold(0, u64::saturating_add);
        let left = ask.limit.saturating_sub(taken);
        let held = left.min(ask.wanted).min(MOST);
        let own = Own { spent, held, turn };
        (share(own), Some(own))
    }
}

// === impl Measure ===

impl Measure {
    /// The measure as it stands in tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::Concurrent => "concurrent",
            Self::Cost => "cost",
        }
    }
}

// === impl Quota ===

impl Quota {
    /// The party as it stands in tables: told apart from every other, whatever levels are called.
    #[must_use]
    pub fn party_text(&self) -> String {
        match &self.party {
            Party::Key(id) => format!("key:{id}"),
            Party::Level(path) => format!("level:{path}"),
        }
    }

    /// A number for a lock on it; others may have the same.
    #[must_use]
    pub fn lock(&self) -> i64 {
        // FNV-1a, over all that stands in the key.
        let text = self.to_string();
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        i64::from_ne_bytes(hash.to_ne_bytes())
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Window { period, begins } = self.window;
        let measure = self.measure.as_str();
        write!(f, "{} {measure} {period} {}", self.party_text(), begins.0)
    }
}

impl Period {
    /// Whether what was told of such a window, which began so many milliseconds ago, is of no use to anybody any more.
    #[must_use]
    pub fn is_forgotten_after(self) -> Option<i64> {
        const DAY: i64 = 86_400_000;
        match self {
            Self::Minute => Some(10 * 60_000),
            Self::Hour => Some(7 * DAY),
            Self::Day => Some(62 * DAY),
            Self::Month => Some(800 * DAY),
            Self::Total => None,
        }
    }
}

/// 2^53: more money, in millionths, and more tokens than anybody spends; and a thousand gateways' sums are numbers in SQL.
const MOST: u64 = 1 << 53;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{clock::Timestamp, cluster::tenancy::LevelPath};

    fn ask(limit: u64, spent: u64, wanted: u64) -> ShareAsk {
        let quota = Quota {
            party: Party::Level(LevelPath::CLUSTER),
            measure: Measure::Tokens,
            window: Window::of(Period::Minute, Timestamp(0)),
        };
        ShareAsk {
            quota,
            limit,
            spent,
            wanted,
        }
    }

    #[test]
    fn what_is_left_is_granted_and_no_more() {
        let standing = Standing {
            spent_by_others: 30,
            held_by_others: 20,
            others: 1,
            own: None,
        };
        let (share, own) = standing.grant(1, &ask(100, 10, 25));
        assert_eq!((share.held, share.spent), (25, 40));
        assert_eq!(own.map(|own| own.held), Some(25));
        let (share, _) = standing.grant(1, &ask(100, 10, 100));
        assert_eq!(share.held, 40);
        let (share, _) = standing.grant(1, &ask(40, 10, 100));
        assert_eq!(share.held, 0);
    }

    #[test]
    fn a_turn_that_was_overtaken_changes_nothing() {
        let own = Own {
            spent: 5,
            held: 7,
            turn: 3,
        };
        let standing = Standing {
            own: Some(own),
            ..Standing::default()
        };
        for turn in [2, 3] {
            let (share, kept) = standing.grant(turn, &ask(100, 50, 50));
            assert_eq!((share.held, share.spent, kept), (7, 5, None));
        }
        let (share, _) = standing.grant(4, &ask(100, 4, 1));
        assert_eq!((share.held, share.spent), (1, 5));
    }

    proptest! {
        /// However gateways ask, and in whatever order: what is spent and held is within the limit, where what was spent was.
        #[test]
        fn the_shares_are_within_the_limit(
            limit in 0_u64..1_000,
            asks in prop::collection::vec((0_usize..4, 0_u64..300, 0_u64..600), 1..60),
        ) {
            let mut gateways = [Own::default(); 4];
            for (turn, (who, more, wanted)) in asks.into_iter().enumerate() {
                let others = gateways.iter().enumerate().filter(|(index, _)| *index != who);
                let standing = Standing {
                    spent_by_others: others.clone().map(|(_, own)| own.spent).sum(),
                    held_by_others: others.clone().map(|(_, own)| own.held).sum(),
                    others: 3,
                    own: Some(gateways[who]),
                };
                // A gateway spends of what it holds.
                let spent = gateways[who].spent + more.min(gateways[who].held);
                let (_, own) = standing.grant(turn as u64 + 1, &ask(limit, spent, wanted));
                gateways[who] = own.unwrap();
                let all: u64 = gateways.iter().map(|own| own.spent + own.held).sum();
                prop_assert!(all <= limit, "{all} of {limit}");
            }
        }
    }
}
