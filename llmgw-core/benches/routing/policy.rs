//! The policies that are compared.

use std::fmt;

use llmgw_core::{
    id::ReplicaId,
    route::{
        balance::{Balance, Candidate},
        circuit::Standing,
        prefix::PrefixIndex,
    },
};

use crate::{
    replay::Fleet,
    trace::{BLOCK, Request},
};

/// Chooses replicas, by what a gateway can know: what it gave to whom, and what has come back.
#[derive(Debug)]
pub(crate) enum Policy {
    /// Any.
    Random(u64),
    /// One after another.
    RoundRobin(usize),
    /// The one with the least unfinished work.
    LeastOutstanding,
    /// The one that was given most of the prompt, whatever it has to do.
    LongestPrefix(PrefixIndex),
    /// Ours.
    PrefixAffinity { index: PrefixIndex, room: Room },
}

/// What is known of the caches' size.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Room {
    /// So many percent of what it is.
    Percent(usize),
    /// Nothing: the index has its usual size.
    Unknown,
}

impl Policy {
    pub(crate) fn all(fleet: &Fleet) -> Vec<Self> {
        let index = |room: Room| {
            let mut index = PrefixIndex::new(match room {
                Room::Percent(_) => usize::MAX,
                Room::Unknown => USUAL,
            });
            if let Room::Percent(percent) = room {
                for replica in fleet.replicas() {
                    index.room(replica, fleet.room * percent / 100);
                }
            }
            index
        };
        let ours = |room| Self::PrefixAffinity {
            index: index(room),
            room,
        };
        vec![
            Self::Random(1),
            Self::RoundRobin(0),
            Self::LeastOutstanding,
            Self::LongestPrefix(index(Room::Percent(100))),
            ours(Room::Percent(100)),
            ours(Room::Percent(50)),
            ours(Room::Percent(200)),
            ours(Room::Unknown),
        ]
    }

    /// The place in the fleet of the replica that gets this request. `load` has the unfinished tokens and requests.
    pub(crate) fn choose(&mut self, request: &Request, load: &[(u64, u64)]) -> usize {
        let candidates = |index: Option<&PrefixIndex>| -> Vec<Candidate> {
            let matches = index.map(|index| index.matches(&request.blocks));
            let of = |replica| {
                let matches = matches.iter().flatten();
                matches
                    .clone()
                    .find(|(known, _)| *known == replica)
                    .map_or(0, |(_, blocks)| *blocks as u64 * BLOCK)
            };
            (0_u64..)
                .map(ReplicaId::imagined)
                .zip(load)
                .map(|(replica, &(outstanding, calls))| Candidate {
                    replica,
                    outstanding,
                    calls,
                    slots: None,
                    cached: of(replica).min(request.tokens),
                    weight: 100,
                    serving: None,
                    standing: Standing::Closed,
                })
                .collect()
        };
        let place = |candidates: &[Candidate], chosen: Option<&Candidate>| {
            let at = candidates
                .iter()
                .position(|one| Some(one.replica) == chosen.map(|chosen| chosen.replica));
            at.unwrap_or_default()
        };
        match self {
            Self::Random(state) => {
                // SplitMix64.
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut mixed = *state;
                mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                let fair = (mixed ^ (mixed >> 31)) % load.len() as u64;
                usize::try_from(fair).unwrap_or_default()
            }
            Self::RoundRobin(next) => {
                *next = (*next + 1) % load.len();
                *next
            }
            Self::LeastOutstanding => {
                let candidates = candidates(None);
                let chosen = Balance::LeastOutstanding.choose(request.tokens, &candidates);
                place(&candidates, chosen)
            }
            Self::LongestPrefix(index) => {
                let candidates = candidates(Some(index));
                let chosen = candidates.iter().max_by_key(|one| {
                    (
                        one.cached,
                        std::cmp::Reverse((one.outstanding, one.replica)),
                    )
                });
                let at = place(&candidates, chosen);
                index.record(candidates[at].replica, &request.blocks);
                at
            }
            Self::PrefixAffinity { index, .. } => {
                let candidates = candidates(Some(index));
                let chosen = Balance::PrefixAffinity.choose(request.tokens, &candidates);
                let at = place(&candidates, chosen);
                index.record(candidates[at].replica, &request.blocks);
                at
            }
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random(_) => f.write_str("random"),
            Self::RoundRobin(_) => f.write_str("round robin"),
            Self::LeastOutstanding => f.write_str("least outstanding"),
            Self::LongestPrefix(_) => f.write_str("longest prefix, whatever the load"),
            Self::PrefixAffinity { room, .. } => match room {
                Room::Percent(100) => f.write_str("prefix affinity (default)"),
                Room::Percent(percent) => {
                    write!(f, "prefix affinity, caches taken for {percent} %")
                }
                Room::Unknown => f.write_str("prefix affinity, caches unknown"),
            },
        }
    }
}

/// Blocks that a gateway remembers when it knows nothing of the caches.
const USUAL: usize = 1 << 18;
