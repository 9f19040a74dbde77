//! Which replica has likely seen the beginning of a prompt: a bounded, approximate tree of prefixes.
//!
//! A prompt is cut into blocks, and each block is named by a hash of itself and all before it. Two prompts that
//! begin alike so share the names of their first blocks, and the names alone make the tree: a name stands for the
//! one path that leads to it. The index remembers, for each replica, the names of the prompts that it was given, and
//! forgets those used longest ago, as an engine's own cache does.
//!
//! What it says is a guess. An engine may have evicted what the index remembers, or keep what the index forgot; a
//! wrong guess costs a prefill and nothing else.

use std::collections::{HashMap, VecDeque};

use crate::id::ReplicaId;

/// The prefixes that replicas were given, the most recent ones of each.
#[derive(Debug)]
pub struct PrefixIndex {
    blocks: HashMap<u64, Vec<Holder>>,
    replicas: HashMap<ReplicaId, Recent>,
    /// Blocks that are remembered at most, over all replicas.
    limit: usize,
    /// Counts the uses of blocks: a later one is greater.
    now: u64,
}

/// A replica that was given a block.
#[derive(Clone, Copy, Debug)]
struct Holder {
    replica: ReplicaId,
    used: u64,
}

/// What is remembered of one replica.
#[derive(Debug, Default)]
struct Recent {
    /// Blocks that it holds.
    held: usize,
    /// Blocks that it can hold itself; absent while nobody has said.
    room: Option<usize>,
    /// Uses of its blocks, the oldest first. One that is not the last use of its block says nothing any more.
    uses: VecDeque<(u64, u64)>,
}

// === impl PrefixIndex ===

impl PrefixIndex {
    /// An index that remembers at most so many blocks, over all replicas: each has an equal part of them.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            blocks: HashMap::new(),
            replicas: HashMap::new(),
            limit,
            now: 0,
        }
    }

    /// Says how many blocks a replica's own cache has room for: no more of it are remembered.
    pub fn room(&mut self, replica: ReplicaId, blocks: usize) {
        self.admit(replica).room = Some(blocks);
        self.shrink(replica);
    }

    /// How many blocks of this prompt, from its beginning, each replica was given; those that were given none are left
    /// out. In no particular order.
    #[must_use]
    pub fn matches(&self, prompt: &[u64]) -> Vec<(ReplicaId, usize)> {
        let Some(first) = prompt.first().and_then(|block| self.blocks.get(block)) else {
            return Vec::new();
        };
        let mut matches: Vec<(ReplicaId, usize)> =
            first.iter().map(|holder| (holder.replica, 1)).collect();
        for (index, block) in prompt.iter().enumerate().skip(1) {
            let Some(holders) = self.blocks.get(block) else {
                break;
            };
            let mut any = false;
            for (replica, length) in &mut matches {
                if *length == index && holders.iter().any(|holder| holder.replica == *replica) {
                    *length += 1;
                    any = true;
                }
            }
            if !any {
                break;
            }
        }
        matches
    }

    /// Remembers that a replica was given this prompt.
    pub fn record(&mut self, replica: ReplicaId, prompt: &[u64]) {
        self.admit(replica);
        let Some(recent) = self.replicas.get_mut(&replica) else {
            return;
        };
        // The end first: what is forgotten first is the end of a prompt, as without its beginning it is of no use.
        for block in prompt.iter().rev() {
            self.now += 1;
            let holders = self.blocks.entry(*block).or_default();
            match holders.iter_mut().find(|holder| holder.replica == replica) {
                Some(holder) => holder.used = self.now,
                None => {
                    let used = self.now;
                    holders.push(Holder { replica, used });
                    recent.held += 1;
                }
            }
            recent.uses.push_back((*block, self.now));
        }
        self.shrink(replica);
    }

    /// Forgets all replicas but these.
    pub fn keep(&mut self, stays: impl Fn(ReplicaId) -> bool) {
        let gone: Vec<ReplicaId> = self
            .replicas
            .keys()
            .filter(|replica| !stays(**replica))
            .copied()
            .collect();
        for replica in gone {
            self.forget(replica);
        }
    }

    /// Blocks that are remembered of a replica.
    #[must_use]
    pub fn held(&self, replica: ReplicaId) -> usize {
        self.replicas.get(&replica).map_or(0, |recent| recent.held)
    }

    /// Forgets a replica: it has restarted, and its cache is empty.
    pub fn forget(&mut self, replica: ReplicaId) {
        let Some(recent) = self.replicas.remove(&replica) else {
            return;
        };
        for (block, _) in recent.uses {
            drop_holder(&mut self.blocks, block, |holder| holder.replica == replica);
        }
    }

    /// The entry of a replica. A new one takes its part from the others.
    fn admit(&mut self, replica: ReplicaId) -> &mut Recent {
        let before = self.replicas.len();
        self.replicas.entry(replica).or_default();
        if self.replicas.len() > before {
            let all: Vec<ReplicaId> = self.replicas.keys().copied().collect();
            for replica in all {
                self.shrink(replica);
            }
        }
        self.replicas.entry(replica).or_default()
    }

    /// Forgets what of a replica is more than it may have.
    fn shrink(&mut self, replica: ReplicaId) {
        let part = self.limit / self.replicas.len().max(1);
        let Some(recent) = self.replicas.get_mut(&replica) else {
            return;
        };
        let most = recent.room.map_or(part, |room| room.min(part));
        while recent.held > most {
            let Some((block, used)) = recent.uses.pop_front() else {
                break;
            };
            let last = |holder: &Holder| holder.replica == replica && holder.used == used;
            if drop_holder(&mut self.blocks, block, last) {
                recent.held -= 1;
            }
        }
        // Uses that are not the last of their block pile up only as far as this.
        if recent.uses.len() > 2 * recent.held + SLACK {
            let blocks = &self.blocks;
            recent.uses.retain(|(block, used)| {
                let holders = blocks.get(block).into_iter().flatten();
                holders
                    .into_iter()
                    .any(|holder| holder.replica == replica && holder.used == *used)
            });
        }
    }
}

/// Removes the one holder of a block that is meant, if it is there.
fn drop_holder(
    blocks: &mut HashMap<u64, Vec<Holder>>,
    block: u64,
    meant: impl Fn(&Holder) -> bool,
) -> bool {
    let Some(holders) = blocks.get_mut(&block) else {
        return false;
    };
    let Some(at) = holders.iter().position(meant) else {
        return false;
    };
    holders.swap_remove(at);
    if holders.is_empty() {
        blocks.remove(&block);
    }
    true
}

const SLACK: usize = 256;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn replica(number: u64) -> ReplicaId {
        ReplicaId::imagined(number)
    }

    fn matches(index: &PrefixIndex, prompt: &[u64]) -> BTreeMap<ReplicaId, usize> {
        index.matches(prompt).into_iter().collect()
    }

    #[test]
    fn a_prompt_matches_as_far_as_a_replica_was_given_the_same() {
        let mut index = PrefixIndex::new(100);
        index.record(replica(1), &[1, 2, 3]);
        index.record(replica(2), &[1, 2, 9]);
        assert_eq!(
            matches(&index, &[1, 2, 3, 4]),
            BTreeMap::from([(replica(1), 3), (replica(2), 2)])
        );
        assert!(index.matches(&[5, 3]).is_empty());
        assert!(index.matches(&[]).is_empty());
    }

    #[test]
    fn what_was_used_longest_ago_is_forgotten_from_its_end() {
        let mut index = PrefixIndex::new(100);
        index.room(replica(1), 4);
        index.record(replica(1), &[1, 2, 3]);
        index.record(replica(1), &[1, 7]);
        assert_eq!(matches(&index, &[1, 2, 3])[&replica(1)], 3);
        index.record(replica(1), &[1, 8]);
        assert_eq!(matches(&index, &[1, 2, 3])[&replica(1)], 2);
        assert_eq!(matches(&index, &[1, 7])[&replica(1)], 2);
        assert_eq!(index.held(replica(1)), 4);
    }

    #[test]
    fn a_replica_that_left_is_forgotten_whole() {
        let mut index = PrefixIndex::new(100);
        index.record(replica(1), &[1, 2]);
        index.record(replica(2), &[1]);
        index.keep(|known| known == replica(2));
        assert_eq!(matches(&index, &[1, 2]), BTreeMap::from([(replica(2), 1)]));
        assert_eq!(index.blocks.len(), 1);
    }

    /// What the index should say, worked out anew each time from all that happened.
    fn reference(history: &[Vec<u64>], room: usize, prompt: &[u64]) -> usize {
        let mut recent: Vec<u64> = Vec::new();
        for given in history {
            for block in given.iter().rev() {
                recent.retain(|known| known != block);
                recent.push(*block);
            }
            let from = recent.len().saturating_sub(room);
            recent.drain(..from);
        }
        prompt
            .iter()
            .take_while(|block| recent.contains(block))
            .count()
    }

    proptest! {
        #[test]
        fn it_remembers_as_a_plain_list_of_the_most_recent_would(
            history in prop::collection::vec(prop::collection::vec(0_u64..30, 1..8), 1..200),
            room in 1_usize..24,
            prompt in prop::collection::vec(0_u64..30, 1..8),
        ) {
            let mut index = PrefixIndex::new(1_000);
            index.room(replica(1), room);
            for given in &history {
                index.record(replica(1), given);
                prop_assert!(index.held(replica(1)) <= room);
                let recent = &index.replicas[&replica(1)];
                prop_assert!(recent.uses.len() <= 2 * recent.held + SLACK);
            }
            let found = matches(&index, &prompt).get(&replica(1)).copied().unwrap_or(0);
            prop_assert_eq!(found, reference(&history, room, &prompt));
            let held: usize = index.blocks.values().map(Vec::len).sum();
            prop_assert_eq!(held, index.held(replica(1)));
        }

        #[test]
        fn all_replicas_together_have_no_more_than_the_limit(
            given in prop::collection::vec((0_u64..4, prop::collection::vec(0_u64..60, 1..8)), 1..100),
            limit in 4_usize..40,
        ) {
            let mut index = PrefixIndex::new(limit);
            for (number, prompt) in &given {
                index.record(replica(*number), prompt);
                let held: usize = index.blocks.values().map(Vec::len).sum();
                prop_assert!(held <= limit, "{held} of {limit}");
            }
        }
    }
}
