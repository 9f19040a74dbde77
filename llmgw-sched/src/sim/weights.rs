//! Weights: the files that models are made of, what lies on disks, and downloads, which all replicas of a node that wait
//! for the same file share.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use llmgw_core::{
    clock::Timestamp,
    cluster::{
        node,
        replica::{ReplicaSpec, ReplicaState},
        weights::{DISK_RESERVE, FetchProgress, Sha256Digest, WeightsOnDisk},
    },
    id::{NodeId, ReplicaId},
    units::Bytes,
};

use super::{
    engines::Stage,
    node::Node,
    world::{Due, World},
};

/// What is on a disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Shelf {
    size: Bytes,
    /// Whole files, and when each was last used.
    pub(super) whole: BTreeMap<Sha256Digest, Held>,
    /// What has come of others.
    parts: BTreeMap<Sha256Digest, Bytes>,
}

/// A whole file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) size: Bytes,
    used_at: Duration,
}

/// Downloads that are under way in one life of an agent, and who waits for them.
pub(super) type Fetching = BTreeMap<Sha256Digest, BTreeSet<ReplicaId>>;

/// The file of this number, as a part of a model's definition. There are few, so that several models are made of the same.
pub(super) fn file(number: u64) -> (String, String, String) {
    (
        format!("https://weights.example/{number}.gguf"),
        format!("{number:064x}"),
        format!("{}GiB", 1 + number % 7),
    )
}

/// What a replica runs on.
fn of(spec: &ReplicaSpec) -> Option<(Sha256Digest, Bytes)> {
    Some((spec.weights.sha256?, spec.weights.total()?))
}

// === impl Shelf ===

impl Shelf {
    pub(super) fn of(size: Bytes) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }

    pub(super) fn has(&self, spec: &ReplicaSpec) -> bool {
        of(spec).is_none_or(|(digest, _)| self.whole.contains_key(&digest))
    }

    pub(super) fn free(&self) -> Bytes {
        let whole = self.whole.values().map(|held| held.size);
        let used: Bytes = whole.chain(self.parts.values().copied()).sum();
        self.size.saturating_sub(used)
    }

    pub(super) fn facts(&self) -> node::Disk {
        node::Disk {
            mount: "/".to_owned(),
            total: self.size,
            free: self.free(),
            shared: false,
            source: None,
        }
    }

    pub(super) fn told(&self) -> Vec<WeightsOnDisk> {
        let told = |(digest, held): (&Sha256Digest, &Held)| WeightsOnDisk {
            sha256: *digest,
            size: held.size,
            name: "any.gguf".to_owned(),
            in_place: false,
            in_use: false,
            last_used: i64::try_from(held.used_at.as_millis()).ok().map(Timestamp),
            fingerprint: None,
        };
        self.whole.iter().map(told).collect()
    }

    /// Makes room for this much beside the reserve: by what is left of downloads that nobody waits for, then, where that
    /// is wanted, by what was used longest ago and is not used now. Says whether there is room.
    fn make_room(&mut self, need: Bytes, evict: bool, used: &BTreeSet<Sha256Digest>) -> bool {
        let has_room = |shelf: &Self| shelf.free().saturating_sub(DISK_RESERVE) >= need;
        if !has_room(self) {
            self.parts.retain(|digest, _| used.contains(digest));
        }
        while evict && !has_room(self) {
            let idle = self
                .whole
                .iter()
                .filter(|(digest, _)| !used.contains(digest));
            let oldest = idle.min_by_key(|(digest, held)| (held.used_at, **digest));
            let Some(digest) = oldest.map(|(digest, _)| *digest) else {
                break;
            };
            self.whole.remove(&digest);
        }
        has_room(self)
    }
}

// === impl Node ===

impl Node {
    /// The files that something here runs on, or waits for.
    fn used(&self) -> BTreeSet<Sha256Digest> {
        let statuses = self.agent.iter().flat_map(|agent| agent.statuses.values());
        let specs = statuses.map(|status| &status.spec);
        let specs = specs.chain(self.processes.values().map(|process| &process.spec));
        specs.filter_map(|spec| Some(of(spec)?.0)).collect()
    }
}

// === impl World ===

impl World {
    /// Sees to it that the weights of a replica come, if they are not there.
    pub(super) fn fetch(&mut self, id: NodeId, life: u64, replica: ReplicaId) {
        let Some(spec) = self.given.get(&replica).cloned() else {
            return;
        };
        let now = self.now;
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let Some((digest, size)) = of(&spec) else {
            return;
        };
        if let Some(held) = node.disk.shelf.whole.get_mut(&digest) {
            held.used_at = now;
            self.come_to(id, life, replica, Stage::Load, 20);
            return;
        }
        let used = node.used();
        let done = node.disk.shelf.parts.get(&digest).copied();
        let done = done.unwrap_or(Bytes::ZERO);
        let Some(agent) = node.agent.as_mut() else {
            return;
        };
        if let Some(waiting) = agent.fetching.get_mut(&digest) {
            waiting.insert(replica);
        } else {
            agent.fetching.insert(digest, BTreeSet::from([replica]));
            let evict = agent.evict;
            if !node.disk.shelf.make_room(size - done, evict, &used) {
                self.give_up(id, digest, "the disk has no room for the weights");
                return;
            }
            self.next_chunk(id, life, digest);
        }
        self.say_fetching(id, replica, done);
    }

    fn next_chunk(&mut self, node: NodeId, life: u64, digest: Sha256Digest) {
        let slow = self.nodes.get(&node).map_or(1, |node| node.slow);
        let pause = self.random.span(50, slow * 1_400);
        self.after(pause, Due::Chunk { node, life, digest });
    }

    /// Some more of a file has come, or nothing comes any more.
    pub(super) fn chunk(&mut self, id: NodeId, life: u64, digest: Sha256Digest) {
        let breaks = self.weather.bad && self.random.happens(10);
        let now = self.now;
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.life == life) else {
            return;
        };
        let used = node.used();
        let Node { disk, agent, .. } = node;
        let Some(agent) = agent.as_mut() else {
            return;
        };
        let Some(waiting) = agent.fetching.get_mut(&digest) else {
            return;
        };
        waiting.retain(|replica| agent.statuses.contains_key(replica));
        let waiting = waiting.clone();
        let size = waiting
            .first()
            .and_then(|one| of(&agent.statuses.get(one)?.spec));
        let Some((_, size)) = size else {
            agent.fetching.remove(&digest);
            return;
        };
        if breaks {
            self.give_up(id, digest, "the download broke");
            return;
        }
        let shelf = &mut disk.shelf;
        let done = shelf.parts.get(&digest).copied().unwrap_or(Bytes::ZERO);
        let more = CHUNK.min(size - done);
        if !shelf.make_room(more, agent.evict, &used) {
            self.give_up(id, digest, "the disk has no room for the weights");
            return;
        }
        let done = done + more;
        shelf.parts.insert(digest, done);
        if done >= size {
            shelf.parts.remove(&digest);
            let held = Held { size, used_at: now };
            shelf.whole.insert(digest, held);
            agent.fetching.remove(&digest);
            for replica in waiting {
                self.come_to(id, life, replica, Stage::Load, 20);
            }
            return;
        }
        for replica in waiting {
            self.say_fetching(id, replica, done);
        }
        self.next_chunk(id, life, digest);
    }

    /// A download has ended without its file: all who wait for it fail. What has come of it stays.
    fn give_up(&mut self, id: NodeId, digest: Sha256Digest, error: &str) {
        let agent = self.nodes.get_mut(&id).and_then(|node| node.agent.as_mut());
        let waiting = agent.and_then(|agent| agent.fetching.remove(&digest));
        for replica in waiting.into_iter().flatten() {
            self.fail(id, replica, error);
        }
    }

    fn say_fetching(&mut self, id: NodeId, replica: ReplicaId, done: Bytes) {
        let agent = self.nodes.get_mut(&id).and_then(|node| node.agent.as_mut());
        let known = agent.and_then(|agent| agent.statuses.get_mut(&replica));
        let Some(known) = known else { return };
        known.state = ReplicaState::Fetching;
        let weights = &known.spec.weights;
        let source = weights.sources.first().cloned();
        known.fetch = source.map(|source| FetchProgress::new(source, done, weights.total()));
    }
}

/// What comes between two looks at the disk.
const CHUNK: Bytes = Bytes::gib(1);
