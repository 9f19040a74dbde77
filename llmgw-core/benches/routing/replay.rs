//! The simulated fleet.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    fmt,
};

use llmgw_core::id::ReplicaId;

use crate::{
    policy::Policy,
    trace::{BLOCK, Request},
};

/// The setting of a run.
#[derive(Debug)]
pub(crate) struct Fleet {
    replicas: usize,
    cache: u64,
    busy: u64,
    /// Blocks that a cache has room for.
    pub(crate) room: usize,
    /// Tokens that a replica works off in a second.
    speed: f64,
}

/// What a policy made of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The part of all tokens that was cached where it was needed.
    pub(crate) hits: f64,
    /// Tokens of the replica that was given most, over the mean.
    pub(crate) given: f64,
    /// The same of tokens that wait, over time.
    pub(crate) waiting: f64,
    /// Tokens before a request where it was sent: the median.
    pub(crate) ahead_p50: u64,
    /// The same for one request in a hundred.
    pub(crate) ahead_p99: u64,
}

#[derive(Debug, Default)]
struct Replica {
    cache: Cache,
    /// When each unfinished request will be finished, and its tokens.
    queue: VecDeque<(f64, u64)>,
    tokens: u64,
    given: u64,
    /// Tokens times seconds.
    waited: f64,
}

/// The blocks that were used last.
#[derive(Debug, Default)]
struct Cache {
    used: HashMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
    now: u64,
}

impl Fleet {
    pub(crate) fn new(requests: &[Request], replicas: usize, cache: u64, busy: u64) -> Self {
        let tokens: u64 = requests.iter().map(|request| request.tokens).sum();
        let seconds = requests.last().map_or(0.0, |last| seconds(last.at));
        Self {
            replicas,
            cache,
            busy,
            room: usize::try_from(cache / BLOCK).unwrap_or(usize::MAX),
            speed: tokens as f64 / seconds / replicas as f64 * 100.0 / busy as f64,
        }
    }

    pub(crate) fn replicas(&self) -> impl Iterator<Item = ReplicaId> {
        (0..self.replicas as u64).map(ReplicaId::imagined)
    }

    pub(crate) fn replay(&self, requests: &[Request], mut policy: Policy) -> Outcome {
        let mut replicas: Vec<Replica> = Vec::new();
        replicas.resize_with(self.replicas, Replica::default);
        let mut hits = 0;
        let mut ahead = Vec::with_capacity(requests.len());
        let mut before = 0.0;
        for request in requests {
            let now = seconds(request.at);
            for replica in &mut replicas {
                replica.pass(before, now);
            }
            before = now;
            let load: Vec<(u64, u64)> = replicas
                .iter()
                .map(|replica| (replica.tokens, replica.queue.len() as u64))
                .collect();
            let replica = &mut replicas[policy.choose(request, &load)];
            ahead.push(replica.tokens);
            hits += replica.cache.give(request, self.room);
            let start = replica.queue.back().map_or(now, |(end, _)| end.max(now));
            let end = start + request.tokens as f64 / self.speed;
            replica.queue.push_back((end, request.tokens));
            replica.tokens += request.tokens;
            replica.given += request.tokens;
        }
        let tokens: u64 = replicas.iter().map(|replica| replica.given).sum();
        ahead.sort_unstable();
        let at = |percent: usize| ahead[(ahead.len() - 1) * percent / 100];
        Outcome {
            hits: hits as f64 / tokens as f64,
            given: over_mean(replicas.iter().map(|replica| replica.given as f64)),
            waiting: over_mean(replicas.iter().map(|replica| replica.waited)),
            ahead_p50: at(50),
            ahead_p99: at(99),
        }
    }
}

impl fmt::Display for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            replicas,
            cache,
            busy,
            speed,
            ..
        } = self;
        write!(
            f,
            "{replicas} replicas, each with a cache of {cache} tokens and working off {speed:.0} a second ({busy} % busy)"
        )
    }
}

impl Replica {
    /// Time passes. A request counts whole until it is finished, which is all that a gateway can see.
    fn pass(&mut self, from: f64, to: f64) {
        let mut at = from;
        while let Some(&(end, tokens)) = self.queue.front()
            && end <= to
        {
            self.waited += self.tokens as f64 * (end - at).max(0.0);
            at = at.max(end);
            self.tokens -= tokens;
            self.queue.pop_front();
        }
        self.waited += self.tokens as f64 * (to - at);
    }
}

impl Cache {
    /// Takes a prompt in; says how many of its tokens were there.
    fn give(&mut self, request: &Request, room: usize) -> u64 {
        let there = request
            .blocks
            .iter()
            .take_while(|block| self.used.contains_key(block))
            .count() as u64;
        for block in &request.blocks {
            self.now += 1;
            if let Some(before) = self.used.insert(*block, self.now) {
                self.by_use.remove(&before);
            }
            self.by_use.insert(self.now, *block);
        }
        while self.used.len() > room {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                break;
            };
            self.used.remove(&oldest);
        }
        (there * BLOCK).min(request.tokens)
    }
}

/// The part of all tokens that one cache without end would have had.
pub(crate) fn ceiling(requests: &[Request]) -> f64 {
    let mut seen: HashSet<u64> = HashSet::new();
    let (mut hits, mut tokens) = (0, 0);
    for request in requests {
        let there = request
            .blocks
            .iter()
            .take_while(|block| seen.contains(*block));
        hits += (there.count() as u64 * BLOCK).min(request.tokens);
        tokens += request.tokens;
        seen.extend(&request.blocks);
    }
    hits as f64 / tokens as f64
}

fn over_mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().copied().fold(0.0, f64::max) / mean
}

fn seconds(millis: u64) -> f64 {
    millis as f64 / 1_000.0
}
