//! The replicas that the gateway knows: what each is answering now, and its idle connections.
//!
//! An entry is made when a replica is first chosen and goes when the route table no longer has it: a connection
//! is never kept beyond the life of its replica, so that a port which another one listens on later can't get
//! its requests.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use http::HeaderValue;
use tokio::time::Instant;

use super::{queue::Queue, wire::Wire};
use crate::{
    id::{ModelName, ReplicaId},
    route::{
        Endpoint, RouteTable,
        balance::{Candidate, WARM_UP},
        circuit::{Circuit, Standing},
        prefix::PrefixIndex,
    },
};

/// What the gateway is doing; readable at any time, by anyone who holds it.
#[derive(Clone, Debug)]
pub struct LoadTable {
    upstreams: Arc<Upstreams>,
    queue: Arc<Queue>,
}

/// What one replica is doing for this gateway.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReplicaLoad {
    /// The replica.
    pub replica: ReplicaId,
    /// Calls that it is answering now.
    pub in_flight: u64,
    /// Calls that it was given since this gateway knows it.
    pub requests: u64,
    /// Those of them that it failed: it could not be reached, went away, or answered that it had failed.
    pub failures: u64,
}

#[derive(Debug)]
pub(super) struct Upstreams {
    replicas: ArcSwap<HashMap<ReplicaId, Arc<Upstream>>>,
    calls: AtomicU64,
    in_flight: AtomicU64,
    /// Which replica was given which prompts. Locked for a look, never while anything is waited for.
    prefixes: Mutex<PrefixIndex>,
}

#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) endpoint: Endpoint,
    /// The replica id, as it stands in every answer's header.
    pub(super) header: HeaderValue,
    /// The `Host` that it is asked for.
    pub(super) host: HeaderValue,
    in_flight: AtomicU64,
    /// Tokens of the calls that it is answering now, about.
    tokens: AtomicU64,
    requests: AtomicU64,
    failures: AtomicU64,
    circuit: Mutex<Circuit>,
    known_since: Instant,
    /// Idle connections; the one used last is used next, so that those not needed time out.
    idle: Mutex<Vec<Idle>>,
    retired: AtomicBool,
    /// APIs that its engine has not, by their paths.
    lacks: [OnceLock<&'static str>; 2],
}

#[derive(Debug)]
struct Idle {
    wire: Box<Wire>,
    since: Instant,
}

/// Counts a call while it lives.
#[derive(Debug)]
pub(super) struct CallGuard(Arc<Upstreams>);

/// Counts a call on a replica while it lives.
#[derive(Debug)]
pub(super) struct LoadGuard {
    upstream: Arc<Upstream>,
    /// Tokens of its prompt, and those that it may be answered with.
    tokens: u64,
}

// === impl LoadTable ===

impl LoadTable {
    pub(super) fn new(upstreams: Arc<Upstreams>, queue: Arc<Queue>) -> Self {
        Self { upstreams, queue }
    }

    /// Calls that wait for a model on demand.
    #[must_use]
    pub fn waiting_for(&self, model: &ModelName) -> u64 {
        u64::try_from(self.queue.waiting(model)).unwrap_or(u64::MAX)
    }

    /// What a replica is doing; `None` while it has been given no call.
    #[must_use]
    pub fn replica(&self, replica: ReplicaId) -> Option<ReplicaLoad> {
        let replicas = self.upstreams.replicas.load();
        Some(replicas.get(&replica)?.load(replica))
    }

    /// The replicas that have been given calls and still serve, by id.
    #[must_use]
    pub fn replicas(&self) -> Vec<ReplicaLoad> {
        let replicas = self.upstreams.replicas.load();
        let mut loads: Vec<ReplicaLoad> = replicas
            .iter()
            .map(|(replica, upstream)| upstream.load(*replica))
            .collect();
        loads.sort_unstable_by_key(|load| load.replica);
        loads
    }

    /// Calls that this replica is answering now.
    #[must_use]
    pub fn in_flight_of(&self, replica: ReplicaId) -> u64 {
        self.upstreams.outstanding(replica)
    }

    /// Client calls that are being answered now, those that wait or are refused included.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.upstreams.in_flight()
    }

    /// Client calls since the start.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.upstreams.calls()
    }
}

// === impl Upstreams ===

impl Default for Upstreams {
    fn default() -> Self {
        Self {
            replicas: ArcSwap::default(),
            calls: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            prefixes: Mutex::new(PrefixIndex::new(PREFIXES)),
        }
    }
}

impl Upstreams {
    /// Which replica was given which prompts.
    pub(super) fn prefixes(&self) -> MutexGuard<'_, PrefixIndex> {
        // Guesses are as good as ever after any panic.
        self.prefixes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Client calls that are being answered now.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Client calls since the start.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Counts a client call until the guard is dropped.
    pub(super) fn begin_call(self: &Arc<Self>) -> CallGuard {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        CallGuard(Arc::clone(self))
    }

    /// Calls that this replica is answering now.
    pub(super) fn outstanding(&self, replica: ReplicaId) -> u64 {
        let replicas = self.replicas.load();
        let upstream = replicas.get(&replica);
        upstream.map_or(0, |upstream| upstream.in_flight.load(Ordering::Relaxed))
    }

    /// The entry of a replica; made when it is not there, or when the replica listens elsewhere now.
    pub(super) fn entry(&self, endpoint: Endpoint) -> Arc<Upstream> {
        let known = |replicas: &HashMap<ReplicaId, Arc<Upstream>>| {
            let upstream = replicas.get(&endpoint.replica)?;
            (upstream.endpoint == endpoint).then(|| Arc::clone(upstream))
        };
        if let Some(upstream) = known(&self.replicas.load()) {
            return upstream;
        }
        let made = Arc::new(Upstream::new(endpoint));
        let mut entry = Arc::clone(&made);
        self.replicas.rcu(|replicas| {
            if let Some(upstream) = known(replicas) {
                entry = upstream;
                return HashMap::clone(replicas);
            }
            entry = Arc::clone(&made);
            let mut replicas = HashMap::clone(replicas);
            replicas.insert(endpoint.replica, Arc::clone(&made));
            replicas
        });
        entry
    }

    /// Retires the replicas that are not in the table, or are elsewhere now: their idle connections are closed.
    ///
    /// Calls that are under way go on, and until the last has ended the replica stays counted: whoever stops it
    /// waits for that.
    pub(super) fn keep(&self, table: &RouteTable) {
        let serving: HashMap<ReplicaId, Endpoint> = table
            .models()
            .flat_map(|model| &model.endpoints)
            .map(|endpoint| (endpoint.replica, *endpoint))
            .collect();
        let serves = |upstream: &Upstream| {
            serving.get(&upstream.endpoint.replica) == Some(&upstream.endpoint)
        };
        let replicas = self.replicas.load();
        for upstream in replicas.values().filter(|upstream| !serves(upstream)) {
            upstream.retire();
        }
        self.prefixes()
            .keep(|replica| serving.contains_key(&replica));
        let stays = |upstream: &Upstream| serves(upstream) || upstream.is_busy();
        if replicas.values().all(|upstream| stays(upstream)) {
            return;
        }
        self.replicas.rcu(|replicas| {
            let kept = replicas.iter().filter(|(_, upstream)| stays(upstream));
            kept.map(|(replica, upstream)| (*replica, Arc::clone(upstream)))
                .collect::<HashMap<_, _>>()
        });
    }

    /// Closes the connections that have been idle for longer than `limit`.
    pub(super) fn close_idle(&self, limit: Duration) {
        for upstream in self.replicas.load().values() {
            let mut idle = upstream.lock();
            idle.retain(|idle| idle.since.elapsed() < limit);
        }
    }

    /// Closes all idle connections, and keeps none from now on.
    pub(super) fn retire(&self) {
        for upstream in self.replicas.load().values() {
            upstream.retire();
        }
    }
}

// === impl Upstream ===

impl Upstream {
    fn new(endpoint: Endpoint) -> Self {
        // Ids and addresses are plain ASCII.
        let value =
            |text: String| HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("-"));
        Self {
            endpoint,
            header: value(endpoint.replica.to_string()),
            host: value(endpoint.address.to_string()),
            in_flight: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            circuit: Mutex::default(),
            known_since: Instant::now(),
            idle: Mutex::default(),
            retired: AtomicBool::new(false),
            lacks: Default::default(),
        }
    }

    /// Counts a call with a prompt of so many tokens on this replica until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>, prompt: u64, now: Instant) -> LoadGuard {
        let tokens = prompt + ANSWER;
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.tokens.fetch_add(tokens, Ordering::Relaxed);
        self.circuit()
            .begin(now.saturating_duration_since(self.known_since));
        LoadGuard {
            upstream: Arc::clone(self),
            tokens,
        }
    }

    /// Its engine has not the API of this path.
    pub(super) fn note_lack(&self, path: &'static str) {
        // There is a place for each API that is put into another.
        for place in &self.lacks {
            if *place.get_or_init(|| path) == path {
                return;
            }
        }
    }

    /// Whether its engine is known to lack it.
    pub(super) fn lacks(&self, path: &str) -> bool {
        let mut known = self.lacks.iter().filter_map(OnceLock::get);
        known.any(|lacked| *lacked == path)
    }

    /// How it looks to a call of whose prompt it has likely seen so many tokens.
    pub(super) fn candidate(&self, cached: u64, now: Instant) -> Candidate {
        let known = now.saturating_duration_since(self.known_since);
        Candidate {
            replica: self.endpoint.replica,
            outstanding: self.tokens.load(Ordering::Relaxed),
            calls: self.in_flight.load(Ordering::Relaxed),
            slots: self.endpoint.slots.map(u64::from),
            cached,
            weight: WHOLE,
            serving: (known < WARM_UP).then_some(known),
            standing: self.circuit().standing(known),
        }
    }

    /// Counts a call that the replica failed.
    pub(super) fn fail(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let now = self.known_since.elapsed();
        let mut circuit = self.circuit();
        circuit.fail(now);
        let (failures, standing) = (circuit.failures(), circuit.standing(now));
        drop(circuit);
        if let Standing::Open(rest) = standing {
            let replica = self.endpoint.replica;
            let seconds = rest.as_secs();
            tracing::warn!(%replica, failures, seconds, "a replica that fails is left alone for a while");
        }
    }

    /// The replica answered a call.
    pub(super) fn succeed(&self) {
        self.circuit().succeed();
    }

    fn circuit(&self) -> MutexGuard<'_, Circuit> {
        // A few numbers are right after any panic.
        self.circuit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self, replica: ReplicaId) -> ReplicaLoad {
        ReplicaLoad {
            replica,
            in_flight: self.in_flight.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }

    /// An idle connection that is still open and has been idle for less than `limit`.
    pub(super) fn take(&self, limit: Duration) -> Option<Box<Wire>> {
        loop {
            let Idle { mut wire, since } = self.lock().pop()?;
            if since.elapsed() < limit && wire.is_open() {
                return Some(wire);
            }
        }
    }

    /// Keeps a connection for the next call.
    pub(super) fn put(&self, wire: Box<Wire>) {
        let mut idle = self.lock();
        if idle.len() < MAX_IDLE && !self.retired.load(Ordering::Acquire) {
            let since = Instant::now();
            idle.push(Idle { wire, since });
        }
    }

    fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0
    }

    fn retire(&self) {
        let mut idle = self.lock();
        self.retired.store(true, Ordering::Release);
        idle.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Idle>> {
        // A list of connections is right after any panic.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl CallGuard ===

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl LoadGuard ===

impl LoadGuard {
    pub(super) fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }
}

impl Drop for LoadGuard {
    fn drop(&mut self) {
        let Self { upstream, tokens } = self;
        upstream.in_flight.fetch_sub(1, Ordering::Relaxed);
        upstream.tokens.fetch_sub(*tokens, Ordering::Relaxed);
    }
}

/// Tokens that a call is taken to be answered with, as long as nobody knows.
const ANSWER: u64 = 256;

/// The weight of a replica that is like the others.
const WHOLE: u32 = 100;

/// Blocks of prompts that are remembered, over all replicas: those of 128 MiB of text, in 25 MB or less.
const PREFIXES: usize = 1 << 18;

/// Idle connections per replica: more calls than this at once are rare, and only cost a new connection.
const MAX_IDLE: usize = 256;

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::{
        clock::Timestamp,
        route::{ModelRoute, Progress, Waiting},
    };

    fn endpoint(port: u16) -> Endpoint {
        Endpoint {
            replica: ReplicaId::generate(),
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            slots: None,
        }
    }

    fn table(endpoints: Vec<Endpoint>) -> RouteTable {
        RouteTable::new([ModelRoute {
            name: "m".parse().unwrap(),
            aliases: Vec::new(),
            created_at: Timestamp(0),
            endpoints,
            on_demand: false,
            waiting: Waiting::Loading("starting".into()),
            progress: Progress::default(),
            fallbacks: Vec::new(),
        }])
    }

    #[test]
    fn calls_are_counted_while_their_guards_live() {
        let upstreams = Arc::new(Upstreams::default());
        let load = LoadTable::new(
            Arc::clone(&upstreams),
            Arc::new(Queue::new(crate::gateway::queue::Bounds {
                per_model: 1,
                all: 1,
                patience: Duration::ZERO,
            })),
        );
        let (a, b) = (endpoint(1), endpoint(2));
        let call = upstreams.begin_call();
        let first = upstreams.entry(a).begin(0, Instant::now());
        let second = upstreams.entry(a).begin(0, Instant::now());
        upstreams.entry(b);
        assert_eq!(
            (load.in_flight_of(a.replica), load.in_flight_of(b.replica)),
            (2, 0)
        );
        assert_eq!((load.in_flight(), load.requests()), (1, 1));
        drop((first, second, call));
        assert_eq!((load.in_flight_of(a.replica), load.in_flight()), (0, 0));
        assert_eq!(load.replicas().len(), 2);
        assert_eq!(
            load.replicas()
                .iter()
                .map(|load| load.requests)
                .sum::<u64>(),
            2
        );
    }

    #[test]
    fn a_replica_that_left_the_table_is_counted_until_its_last_call_has_ended() {
        let upstreams = Arc::new(Upstreams::default());
        let load = LoadTable::new(
            Arc::clone(&upstreams),
            Arc::new(Queue::new(crate::gateway::queue::Bounds {
                per_model: 1,
                all: 1,
                patience: Duration::ZERO,
            })),
        );
        let leaving = endpoint(1);
        let call = upstreams.entry(leaving).begin(0, Instant::now());
        upstreams.keep(&table(Vec::new()));
        assert_eq!(load.in_flight_of(leaving.replica), 1);
        drop(call);
        upstreams.keep(&table(Vec::new()));
        assert!(load.replicas().is_empty());
    }

    #[test]
    fn a_replica_that_left_the_table_or_moved_is_forgotten() {
        let upstreams = Arc::new(Upstreams::default());
        let (stays, goes, moves) = (endpoint(1), endpoint(2), endpoint(3));
        let entries = [stays, goes, moves].map(|endpoint| upstreams.entry(endpoint));
        let moved = Endpoint {
            address: SocketAddr::from(([127, 0, 0, 1], 4)),
            ..moves
        };
        upstreams.keep(&table(vec![stays, moved]));
        let retired = entries.map(|entry| entry.retired.load(Ordering::Acquire));
        assert_eq!(retired, [false, true, true]);
        let replicas = LoadTable::new(
            upstreams,
            Arc::new(Queue::new(crate::gateway::queue::Bounds {
                per_model: 1,
                all: 1,
                patience: Duration::ZERO,
            })),
        )
        .replicas();
        let known: Vec<ReplicaId> = replicas.iter().map(|load| load.replica).collect();
        assert_eq!(known, [stays.replica]);
    }
}
