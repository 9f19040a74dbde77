//! The async shell around the [`conductor`]: agent sessions, leadership, the control roles.
//!
//! One task owns all state; everybody else sends it events or reads the snapshot that it publishes. Long work
//! (the store, a stream) never runs on that task, so that heartbeats are never late.
//!
//! ```text
//! agents ── sessions ──▶ events ──▶ loop: step ──▶ desired states ──▶ sessions ──▶ agents
//! roles  ───────────────────┘        └──▶ snapshot, route table (watch) ──▶ roles, gateway
//! ```

mod accounts;
mod chronicle;
mod entries;
mod feed;
pub mod findings;
mod guard;
mod leadership;
mod logs;
mod loop_task;
mod ordering;
mod own_orders;
mod record;
mod roles;
mod session;
mod storage;
mod tenancy;
mod terms;
mod views;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use llmgw_core::{
    api::{event::Event as ClusterEvent, settings::SettingsView},
    clock::Clock,
    cluster::{
        account::KeyHash, catalog::DefinitionError, engine::WantedEngine, order::Orders,
        tenancy::PriceList,
    },
    control::{Actor, Control, Traffic},
    guard::Guard,
    id::ModelName,
    keys::{HashingKey, KeyRing, TokenRing},
    route::RouteTable,
    store::{Store, StoreError},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Mutex, Semaphore, broadcast, mpsc, watch},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::terms::{Terms, TermsReader};
use self::{
    entries::entries,
    findings::WeightsReader,
    leadership::Leadership,
    logs::Switchboard,
    loop_task::{Event, LoopTask},
    terms::InForce,
};
use crate::{
    conductor::{self, Conductor, OwnOrder, Setup, snapshot::Snapshot},
    lease::Elector,
    reconcile::Memory,
};

/// What a controller is told.
#[derive(Clone, Debug)]
pub struct ControllerConfig {
    /// Who holds the lease: lasting, and unique among the control planes of a store.
    pub holder: String,
    /// The release, for people.
    pub version: String,
    /// How long a lease lasts; it is renewed after a third of that.
    pub lease_ttl: Duration,
    /// How long to listen for agents that ran on before anything is placed.
    pub settle: Duration,
    /// What holds, with the document of that version.
    pub terms: Terms,
    /// The version of the cluster's document that the terms were made with; 0 without one.
    pub version_of_terms: u64,
}

/// What a controller works with.
#[derive(Clone, Debug)]
pub struct ControllerDeps {
    /// What must survive a restart.
    pub store: Arc<dyn Store>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What API keys are hashed with.
    pub hashing_key: HashingKey,
    /// Finds out what weights are before a node has them; absent: models must say all themselves.
    pub weights_reader: Option<Arc<dyn WeightsReader>>,
    /// Makes terms of the cluster's document; absent: it takes none while it runs.
    pub terms_reader: Option<Arc<dyn TermsReader>>,
}

/// Who may open an agent session.
#[derive(Clone)]
pub enum Admission {
    /// Whoever holds the other end of the stream: a pipe inside this process.
    Anyone,
    /// Whoever knows the secret.
    Token {
        /// The key that the secret is hashed with.
        hashing_key: HashingKey,
        /// What the hash must be.
        hash: KeyHash,
    },
}

/// Why a controller could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// Another control plane leads, and goes on leading.
    #[error("another control plane leads on this store")]
    AnotherLeads(#[source] StoreError),
    /// The store does not answer.
    #[error("reading the store")]
    Store(#[source] StoreError),
    /// Two declared models claim one name.
    #[error("the name {name} is declared twice")]
    DeclaredTwice {
        /// The name.
        name: String,
    },
    /// A declared model asks for what no engine can start.
    #[error("the declared model {name} can't be run: {problem}")]
    CannotStart {
        /// The model.
        name: String,
        /// What it is, and where.
        problem: DefinitionError,
    },
    /// The guard's rules can't be made ready.
    #[error("the guard's rules can't be used")]
    Guard(#[source] DefinitionError),
    /// A declared model falls back to what is no declared model, or in a circle.
    #[error("the declared model {name} can't fall back so: {problem}")]
    Fallbacks {
        /// The model.
        name: String,
        /// What is wrong, and where.
        problem: DefinitionError,
    },
}

/// A controller that is ready to run.
#[derive(Debug)]
pub struct Controller {
    handle: ControllerHandle,
    task: LoopTask,
    leadership: Leadership,
    weights_reader: Option<Arc<dyn WeightsReader>>,
    own_orders: mpsc::Receiver<OwnOrder>,
}

/// How others speak to a controller; cheap to clone.
#[derive(Clone)]
pub struct ControllerHandle {
    shared: Arc<Shared>,
    /// Who orders through it.
    actor: Actor,
}

struct Shared {
    version: String,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    started: Duration,
    events: mpsc::Sender<Event>,
    snapshot: watch::Receiver<Arc<Snapshot>>,
    routes: watch::Receiver<Arc<RouteTable>>,
    leading: watch::Receiver<Option<u64>>,
    /// An epoch that is too low: an agent has followed it, and a later order than any of ours.
    outranked: watch::Sender<u64>,
    /// Why the lease could not be taken or kept the last time.
    store_trouble: watch::Receiver<Option<String>>,
    traffic: OnceLock<Arc<dyn Traffic>>,
    /// When models that fit nowhere were last tried for a client. Held for a look only, never across a wait.
    attempts: std::sync::Mutex<BTreeMap<ModelName, Duration>>,
    hashing_key: HashingKey,
    keys: watch::Sender<Arc<KeyRing>>,
    prices: watch::Sender<Arc<PriceList>>,
    tokens: watch::Sender<Arc<TokenRing>>,
    /// What holds, and how it is shown.
    in_force: watch::Sender<InForce>,
    /// What holds, for those who follow it.
    terms: watch::Sender<Arc<Terms>>,
    terms_reader: Option<Arc<dyn TermsReader>>,
    /// The rules that prompts and answers are checked by.
    guard: Arc<Guard>,
    /// Which engines are wanted, without what is found out about their releases.
    engines: watch::Sender<Vec<WantedEngine>>,
    /// What happens, for whoever follows.
    feed: broadcast::Sender<ClusterEvent>,
    /// How agents are asked for logs.
    switchboard: Switchboard,
    /// Writes, one at a time: each is checked against what the last one left.
    writes: Mutex<()>,
    /// Whoever plans what nobody does holds it meanwhile.
    plans: Arc<Semaphore>,
    tasks: TaskTracker,
    stopping: CancellationToken,
    standing_down: CancellationToken,
}

// === impl ControllerConfig ===

impl ControllerConfig {
    /// Takes the lease and reads what should run.
    ///
    /// When another control plane has the lease, waits until it runs out, once.
    ///
    /// # Errors
    /// When another goes on leading, the store does not answer, or the declared models contradict each other.
    ///
    /// # Cancellation
    /// Dropping the future may leave the lease taken until it runs out.
    pub async fn build(self, deps: ControllerDeps) -> Result<Controller, ControllerError> {
        let Self {
            holder,
            version,
            lease_ttl,
            settle,
            terms,
            version_of_terms,
        } = self;
        let ControllerDeps {
            store,
            clock,
            hashing_key,
            weights_reader,
            terms_reader,
        } = deps;

        let mut elector = Elector::new(lease_ttl);
        let epoch =
            leadership::first_lease(&*store, &*clock, &holder, lease_ttl, &mut elector).await?;
        let added = store.models().await.map_err(ControllerError::Store)?;
        let keys = tenancy::ring(&*store).await;
        let keys = keys.map_err(ControllerError::Store)?;
        let prices = store.prices().await.map_err(ControllerError::Store)?;
        let tokens = store.tokens().await.map_err(ControllerError::Store)?;
        let orders: Orders = store
            .orders()
            .await
            .map_err(ControllerError::Store)?
            .into_iter()
            .collect();
        let of_this_process = SettingsView {
            lease_ttl_seconds: lease_ttl.as_secs(),
            settle_seconds: settle.as_secs(),
            ..SettingsView::default()
        };
        let view = terms.view(version_of_terms, &of_this_process);
        let entries = entries(terms.declared.clone(), added, clock.now())?;
        let rules = terms::ready_rules(&terms).map_err(ControllerError::Guard)?;

        let (events, received) = mpsc::channel(EVENTS);
        let (trouble_tx, store_trouble) = watch::channel(None);
        let (leading_tx, leading) = watch::channel(Some(epoch.0));
        let (snapshot_tx, snapshot) = watch::channel(Arc::new(Snapshot::default()));
        let (routes_tx, routes) = watch::channel(Arc::new(RouteTable::default()));
        let now = clock.monotonic();
        let shared = Arc::new(Shared {
            version,
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            started: now,
            events: events.clone(),
            snapshot,
            routes,
            leading,
            outranked: watch::Sender::new(0),
            store_trouble,
            traffic: OnceLock::new(),
            attempts: std::sync::Mutex::default(),
            hashing_key,
            keys: watch::channel(Arc::new(keys)).0,
            prices: watch::channel(Arc::new(PriceList::new(prices))).0,
            tokens: watch::channel(Arc::new(TokenRing::new(tokens))).0,
            engines: watch::channel(orders.engines_over(&view.engines)).0,
            feed: broadcast::channel(FEED).0,
            in_force: watch::Sender::new(InForce {
                view,
                terms: Arc::new(terms.clone()),
            }),
            terms: watch::Sender::new(Arc::new(terms.clone())),
            terms_reader,
            guard: Arc::new(Guard::new(rules)),
            switchboard: Switchboard::default(),
            writes: Mutex::new(()),
            plans: Arc::new(Semaphore::new(1)),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
            standing_down: CancellationToken::new(),
        });
        let memory = Memory {
            settle_until: now + settle,
            settle,
            ..Memory::default()
        };
        let (own, own_orders) = mpsc::channel(OWN_ORDERS);
        let conductor = Conductor::new(Setup {
            entries,
            engines: terms.engines,
            pools: terms.pools,
            pacing: terms.pacing,
            orders,
            policy: terms.policy,
            weights: terms.weights,
            memory,
            epoch: epoch.0,
        });
        let task = LoopTask::new(loop_task::Setup {
            conductor,
            shared: Arc::clone(&shared),
            received,
            snapshot: snapshot_tx,
            routes: routes_tx,
            own,
        });
        let shared_tokens = shared.tokens.clone();
        let leadership = Leadership {
            store,
            clock,
            holder,
            ttl: lease_ttl,
            elector,
            leading: leading_tx,
            outranked: shared.outranked.subscribe(),
            trouble: trouble_tx,
            events,
            tokens: shared_tokens,
        };
        Ok(Controller {
            handle: ControllerHandle {
                shared,
                actor: Actor::admin(),
            },
            task,
            leadership,
            weights_reader,
            own_orders,
        })
    }
}

// === impl Controller ===

impl Controller {
    /// How others speak to it.
    #[must_use]
    pub fn handle(&self) -> ControllerHandle {
        self.handle.clone()
    }

    /// Runs until `stop` is cancelled; then closes the sessions, finishes writes that were begun, and gives the
    /// lease up. Engines run on: whoever wants them to end stops the agents first.
    pub async fn run(self, stop: CancellationToken) {
        let Self {
            handle,
            task,
            leadership,
            weights_reader,
            own_orders,
        } = self;
        let shared = handle.shared;
        if let Some(reader) = weights_reader {
            let stop = shared.stopping.clone();
            let finding = findings::keep_finding_out(Arc::clone(&shared), reader, stop);
            shared.tasks.spawn(finding);
        }
        let keeping = own_orders::keep(Arc::clone(&shared), own_orders);
        shared.tasks.spawn(keeping);
        let reading = tenancy::keep_reading(Arc::clone(&shared), shared.stopping.clone());
        shared.tasks.spawn(reading);
        let telling = feed::keep_telling(Arc::clone(&shared));
        shared.tasks.spawn(telling);
        let lead = leadership.run(shared.stopping.clone());
        let work = async {
            tokio::select! {
                () = task.run() => {}
                () = stop.cancelled() => {}
            }
            shared.tasks.close();
            shared.stopping.cancel();
            shared.tasks.wait().await;
        };
        tokio::join!(work, lead);
    }
}

// === impl ControllerHandle ===

impl ControllerHandle {
    /// The control roles.
    #[must_use]
    pub fn control(&self) -> Control {
        Control {
            catalog: Arc::new(self.clone()),
            fleet: Arc::new(self.clone()),
            tenancy: Arc::new(self.clone()),
            accounts: Arc::new(self.clone()),
            settings: Arc::new(self.clone()),
            jobs: Arc::new(self.clone()),
            audit: Arc::new(self.clone()),
            storage: Arc::new(self.clone()),
            engines: Arc::new(self.clone()),
            holds: Arc::new(self.clone()),
            capacities: Arc::new(self.clone()),
            operators: Arc::new(self.clone()),
            events: Arc::new(self.clone()),
            logs: Arc::new(self.clone()),
            guard: Arc::new(self.clone()),
            acting: Arc::new(self.clone()),
        }
    }

    /// What the gateway routes by; replaced whenever it changes.
    #[must_use]
    pub fn routes(&self) -> watch::Receiver<Arc<RouteTable>> {
        self.shared.routes.clone()
    }

    /// The keys that are good, and what holds for each; replaced whenever that changes.
    #[must_use]
    pub fn keys(&self) -> watch::Receiver<Arc<KeyRing>> {
        self.shared.keys.subscribe()
    }

    /// The rules that prompts and answers are checked by; replaced whenever the settings say others.
    #[must_use]
    pub fn guard(&self) -> Arc<Guard> {
        Arc::clone(&self.shared.guard)
    }

    /// What models cost, and have cost; replaced whenever that changes.
    #[must_use]
    pub fn prices(&self) -> watch::Receiver<Arc<PriceList>> {
        self.shared.prices.subscribe()
    }

    /// Reads the keys again, for keys that were put into the store by other ways.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn reload_keys(&self) -> Result<(), StoreError> {
        self.shared.reload_keys().await
    }

    /// The admin tokens that are good; replaced whenever one is made or revoked.
    #[must_use]
    pub fn tokens(&self) -> watch::Receiver<Arc<TokenRing>> {
        self.shared.tokens.subscribe()
    }

    /// The engines that are wanted: what operators chose, over what the settings say, without what is found out about
    /// releases. Replaced whenever a choice is made or taken back.
    #[must_use]
    pub fn engines_wanted(&self) -> watch::Receiver<Vec<WantedEngine>> {
        self.shared.engines.subscribe()
    }

    /// Tells what was found out about the releases of engines; nodes are told with the next step. An engine that is not
    /// wanted so any more is passed over.
    pub async fn want_engines(&self, engines: Vec<WantedEngine>) {
        // Nobody is left to be told when the loop has ended.
        let wanted = Event::Happened(conductor::Event::Engines(engines));
        drop(self.shared.events.send(wanted).await);
    }

    /// The epoch that this control plane leads with; `None` while it does not.
    #[must_use]
    pub fn leading(&self) -> watch::Receiver<Option<u64>> {
        self.shared.leading.clone()
    }

    /// Tells the controller what the gateway is doing. The first call counts.
    pub fn observe_traffic(&self, traffic: Arc<dyn Traffic>) {
        // A second gateway in one process would be a mistake in the composition; the first stays.
        drop(self.shared.traffic.set(traffic));
    }

    /// Stops deciding: nothing is placed, stopped or blamed from now on. For a shutdown, while agents end what
    /// they run; there is no way back.
    pub fn stand_down(&self) {
        self.shared.standing_down.cancel();
    }

    /// Takes an agent's stream and speaks with it until either side ends it.
    pub fn accept<S>(&self, stream: S, admission: Admission)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let shared = Arc::clone(&self.shared);
        self.shared.tasks.spawn(async move {
            let session = session::run(
                stream,
                admission,
                shared.events.clone(),
                &shared.switchboard,
                shared.clock.as_ref(),
            );
            tokio::select! {
                ended = session => {
                    if let Err(error) = ended {
                        tracing::warn!(error = %llmgw_core::error::Chain(&error), "agent session ended");
                    }
                }
                () = shared.stopping.cancelled() => {}
            }
        });
    }
}

impl fmt::Debug for ControllerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerHandle").finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anyone => "Anyone",
            Self::Token { .. } => "Token(…)",
        })
    }
}

/// Events that a follower may be behind before it misses some: the life of some hundred replicas.
const FEED: usize = 1024;
/// Orders of the loop's own that may wait for the store: more models than fail while it is away.
const OWN_ORDERS: usize = 1024;
/// Events that may wait for the loop: several reports of each of some hundred nodes.
const EVENTS: usize = 1024;

#[cfg(test)]
mod tests;
