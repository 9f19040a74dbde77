//! Build, run, drain: a server from its parts.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use llmgw_core::{
    clock::{Clock, SystemClock},
    control::{Activation, Control, Traffic},
    gateway::{Gateway, GatewayConfig, GatewayDeps, LoadTable, UsageSpool},
    id::{ModelName, ReplicaId},
    keys::HashingKey,
    store::{self, Epoch, Store},
    units::Bytes,
};
use llmgw_sched::controller::{
    Admission, Controller, ControllerConfig, ControllerDeps, ControllerHandle, TermsReader,
    findings::WeightsReader,
};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    admin::{self, AdminConfig, AdminDeps, AdminToken, RoleTokens},
    cluster,
    data_dir::DataDir,
    descriptors::{self, bounded_connections},
    fault::{ADMIN, AGENTS, CLIENTS, Fault},
    first_key::{self, FirstKey},
    releases::Releases,
    settings::{QueueBounds, Sources, watch},
    signals::Stop,
    weights::RemoteReader,
};

/// What a server is told. Plain data.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where its files are.
    pub data_dir: PathBuf,
    /// Where the store is; `None` for SQLite in the data directory.
    pub store: Option<String>,
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where the admin API listens.
    pub admin_listen: SocketAddr,
    /// Where agents connect; `None` when the only agent is in this process.
    pub cluster_listen: Option<SocketAddr>,
    /// Where the API key is to be written; `None` to tell it once.
    pub api_key_file: Option<PathBuf>,
    /// Where settings are said, besides the cluster's document.
    pub settings: Sources,
    /// Whether the cluster's document is left aside: for a start when it can't be right any more.
    pub without_document: bool,
    /// The list of releases that engines come from; absent when nothing is looked up.
    pub releases: Option<String>,
    /// How long to listen for agents that ran on before anything is placed.
    pub settle: Duration,
}

/// A server that is ready to run: every port is bound, the lease is held.
#[derive(Debug)]
pub struct Server {
    data: DataDir,
    controller: Controller,
    gateway: Gateway,
    clients: TcpListener,
    admin: TcpListener,
    agents: Option<(TcpListener, Admission)>,
    admin_token: String,
    hashing_key: HashingKey,
    first_key: FirstKey,
    releases: Option<Releases>,
    following: Following,
}

/// What follows the settings while a server runs.
#[derive(Debug)]
struct Following {
    file: Option<PathBuf>,
    reader: Arc<RemoteReader>,
}

/// A server that runs.
#[derive(Debug)]
pub struct Running {
    data: DataDir,
    handle: ControllerHandle,
    /// Ends the listeners for clients and operators, when what they do is done.
    drain: CancellationToken,
    /// Ends them at once.
    cut: CancellationToken,
    load: LoadTable,
    /// How long calls may go on after the order to stop.
    patience: Duration,
    /// Ends the rest.
    finish: CancellationToken,
    /// The control loop has ended without being asked to.
    broken: CancellationToken,
    fronts: TaskTracker,
    backs: TaskTracker,
    listen: SocketAddr,
    admin_listen: SocketAddr,
    cluster_listen: Option<SocketAddr>,
}

/// The gateway's load as the controller sees it.
#[derive(Debug)]
struct GatewayTraffic(LoadTable);

// === impl ServerConfig ===

impl ServerConfig {
    /// Opens the data directory and the store, takes the lease, binds every port. Before that, it raises this
    /// process's limit of open files as far as it may.
    ///
    /// # Errors
    /// The first thing that stands in the way, before anything is started.
    pub async fn build(self) -> Result<Server, Fault> {
        let Self {
            data_dir,
            store,
            listen,
            admin_listen,
            cluster_listen,
            api_key_file,
            settings: sources,
            without_document,
            releases,
            settle,
        } = self;
        require_loopback(ADMIN, admin_listen, ADMIN_LOOPBACK_ONLY)?;
        if let Some(address) = cluster_listen {
            require_loopback(AGENTS, address, cluster::LOOPBACK_ONLY)?;
        }
        let open_files = descriptors::raise();
        let data = DataDir::open(&data_dir)?;
        let clients = bind(CLIENTS, listen).await?;
        let admin = bind(ADMIN, admin_listen).await?;
        let agents_listener = match cluster_listen {
            Some(address) => Some(bind(AGENTS, address).await?),
            None => None,
        };

        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let url = store.unwrap_or_else(|| sqlite_url(data.path()));
        let store: Arc<dyn Store> = store::open(&url).await.map_err(Fault::Store)?;
        let hashing_key = data.hashing_key()?;

        let stored = store.settings(None).await.map_err(Fault::Store)?;
        let version = stored.as_ref().map_or(0, |stored| stored.version);
        let text = stored.as_ref().map_or("", |stored| &stored.text);
        if without_document && version > 0 {
            tracing::warn!(
                version,
                "the settings in the store are left aside until others are written"
            );
        }
        let settings = sources.read(if without_document { "" } else { text });
        let settings = settings.map_err(|fault| fault.with_document(version))?;
        let mut terms = settings.terms();
        let engines = terms.engines.clone();
        let (engines, releases) = match releases {
            None => (engines, None),
            Some(list) => {
                let asking = Releases::asking(&engines);
                (
                    asking,
                    Some(Releases::of(&list, engines, Arc::clone(&clock))?),
                )
            }
        };
        terms.engines = engines;
        let config = ControllerConfig {
            holder: data.server_id()?,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            lease_ttl: LEASE_TTL,
            settle,
            terms,
            version_of_terms: version,
        };
        let found = data.path().join("weights-found");
        let reader = Arc::new(RemoteReader::new(&settings.weights, found)?);
        let (settings_file, sources) = (sources.file.clone(), Arc::new(sources));
        let deps = ControllerDeps {
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            hashing_key: hashing_key.clone(),
            weights_reader: Some(Arc::clone(&reader) as Arc<dyn WeightsReader>),
            terms_reader: Some(sources as Arc<dyn TermsReader>),
        };
        let controller = config.build(deps).await.map_err(Fault::Controller)?;
        let handle = controller.handle();
        let epoch = Epoch(handle.leading().borrow().unwrap_or(0));
        let file = api_key_file.as_deref();
        let first_key =
            first_key::ensure(&data, file, &hashing_key, &*store, epoch, &*clock).await?;

        handle.reload_keys().await.map_err(Fault::Store)?;
        let spool = open_spool(&data).await?;
        let gateway = build_gateway(
            &handle,
            hashing_key.clone(),
            store,
            spool,
            clock,
            (open_files, settings.queue),
        );
        let agents = match agents_listener {
            None => None,
            Some(listener) => {
                let token = data.agent_token()?;
                let hash = hashing_key.hash(&token);
                Some((
                    listener,
                    Admission::Token {
                        hashing_key: hashing_key.clone(),
                        hash,
                    },
                ))
            }
        };
        let admin_token = data.admin_token()?;
        Ok(Server {
            data,
            controller,
            gateway,
            clients,
            admin,
            agents,
            admin_token,
            hashing_key,
            first_key,
            releases,
            following: Following {
                file: settings_file,
                reader,
            },
        })
    }
}

// === impl Server ===

impl Server {
    /// What can be told of the API key.
    #[must_use]
    pub fn first_key(&self) -> &FirstKey {
        &self.first_key
    }

    /// Starts every part.
    ///
    /// # Errors
    /// When a bound port can't say its address.
    pub fn start(self) -> Result<Running, Fault> {
        let Self {
            data,
            controller,
            gateway,
            clients,
            admin,
            agents,
            admin_token,
            hashing_key,
            releases,
            following,
            ..
        } = self;
        let handle = controller.handle();
        let drain = CancellationToken::new();
        let finish = CancellationToken::new();
        let fronts = TaskTracker::new();
        let backs = TaskTracker::new();
        let listen = local(CLIENTS, &clients)?;
        let admin_listen = local(ADMIN, &admin)?;
        data.note_admin_url(&format!("http://{admin_listen}"))?;
        let cluster_listen = agents
            .as_ref()
            .map(|(listener, _)| local(AGENTS, listener))
            .transpose()?;

        let load = gateway.load();
        let waiting = gateway.waiting();
        let numbers = gateway.numbers();
        let cut = gateway.cut();
        let serving = gateway.serve(clients, drain.clone());
        fronts.spawn(async move {
            let drained = serving.await;
            // That connections were cut has been said by the gateway itself.
            if drained.usage_lost > 0 {
                tracing::error!(
                    calls = drained.usage_lost,
                    "the usage of some calls could not be written and is lost"
                );
            }
        });
        let deps = AdminDeps {
            control: handle.control(),
            token: AdminToken::new(&admin_token),
            roles: Some(RoleTokens {
                hashing_key,
                ring: handle.tokens(),
            }),
            config: AdminConfig::default(),
            gateway: Some(numbers),
        };
        let serving = admin::serve(admin, deps, drain.clone());
        fronts.spawn(cut.clone().run_until_cancelled_owned(serving));
        if let Some((listener, admission)) = agents {
            let serving = cluster::serve(listener, handle.clone(), admission, finish.clone());
            backs.spawn(serving);
        }
        if let Some(releases) = releases {
            backs.spawn(releases.keep(handle.clone(), finish.clone()));
        }
        let Following { file, reader } = following;
        backs.spawn(watch::follow(
            handle.clone(),
            waiting,
            reader,
            finish.clone(),
        ));
        backs.spawn(watch::look(handle.clone(), file, finish.clone()));
        let broken = CancellationToken::new();
        backs.spawn({
            let (finish, broken) = (finish.clone(), broken.clone());
            async move {
                // Whatever it is that ends it: nobody must go on believing that something is decided.
                let _ended = broken.drop_guard();
                controller.run(finish).await;
            }
        });
        Ok(Running {
            data,
            handle,
            drain,
            cut,
            load,
            patience: GatewayConfig::default().drain_deadline,
            finish,
            broken,
            fronts,
            backs,
            listen,
            admin_listen,
            cluster_listen,
        })
    }
}

// === impl Running ===

impl Running {
    /// Waits until the control loop has ended. Before [`finish`](Self::finish) that is a fault of llmgw's own.
    pub async fn broken(&self) {
        self.broken.cancelled().await;
    }

    /// Where clients connect.
    #[must_use]
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Where the admin API listens.
    #[must_use]
    pub fn admin_listen(&self) -> SocketAddr {
        self.admin_listen
    }

    /// Where agents connect; `None` when the only agent is in this process.
    #[must_use]
    pub fn cluster_listen(&self) -> Option<SocketAddr> {
        self.cluster_listen
    }

    /// The data directory.
    #[must_use]
    pub fn data(&self) -> &DataDir {
        &self.data
    }

    /// How to speak to the controller.
    #[must_use]
    pub fn controller(&self) -> &ControllerHandle {
        &self.handle
    }

    /// The control roles.
    #[must_use]
    pub fn control(&self) -> Control {
        self.handle.control()
    }

    /// Stops deciding and stops accepting; what is being answered is finished, up to the gateway's deadline.
    pub async fn drain(&self) {
        self.handle.stand_down();
        self.drain.cancel();
        self.fronts.close();
        self.fronts.wait().await;
    }

    /// [`drain`](Self::drain)s, and cuts off what is left of it as soon as a second signal comes.
    pub async fn drain_until_insisted(&self, stop: &Stop) {
        tokio::select! {
            () = self.drain() => {}
            () = stop.insisted() => {
                self.cut.cancel();
                self.drain().await;
            }
        }
    }

    /// What [`drain`](Self::drain) will do, for the person who asked for the end.
    #[must_use]
    pub fn farewell(&self) -> String {
        let seconds = self.patience.as_secs();
        let requests = match self.load.in_flight() {
            0 => return "stopping: nothing is being answered".to_owned(),
            1 => "1 request".to_owned(),
            many => format!("{many} requests"),
        };
        format!(
            "stopping: draining {requests}, up to {seconds} s; press Ctrl-C again to cut them off"
        )
    }

    /// Ends the rest, after [`drain`](Self::drain): sessions, the lease, the store.
    pub async fn finish(self) {
        self.drain().await;
        self.finish.cancel();
        self.backs.close();
        self.backs.wait().await;
    }
}

// === impl GatewayTraffic ===

impl Traffic for GatewayTraffic {
    fn outstanding(&self, replica: ReplicaId) -> u64 {
        self.0.in_flight_of(replica)
    }

    fn calls(&self, replica: ReplicaId) -> (u64, u64) {
        let load = self.0.replica(replica);
        load.map_or((0, 0), |load| (load.requests, load.failures))
    }

    fn waiting(&self, model: &ModelName) -> u64 {
        self.0.waiting_for(model)
    }

    fn requests(&self) -> u64 {
        self.0.requests()
    }
}

/// Opens where usage waits for the store. Looks at what an earlier process left there, on a thread that may be kept by
/// the disk.
async fn open_spool(data: &DataDir) -> Result<UsageSpool, Fault> {
    let directory = data.path().join("usage");
    let opening = tokio::task::spawn_blocking(move || UsageSpool::open(&directory, SPOOL_LIMIT));
    let opened = opening.await.map_err(|error| Fault::DataDir {
        path: data.path().to_owned(),
        source: io::Error::other(error),
    })?;
    opened.map_err(Fault::Usage)
}

fn build_gateway(
    handle: &ControllerHandle,
    hashing_key: HashingKey,
    store: Arc<dyn Store>,
    spool: UsageSpool,
    clock: Arc<dyn Clock>,
    (open_files, queue): (Option<u64>, QueueBounds),
) -> Gateway {
    let activation: Arc<dyn Activation> = Arc::new(handle.clone());
    let deps = GatewayDeps {
        routes: handle.routes(),
        keys: handle.keys(),
        prices: handle.prices(),
        hashing_key,
        activation,
        guard: handle.guard(),
        store,
        spool: Some(spool),
        clock,
    };
    let mut config = GatewayConfig::default();
    queue.bound(&mut config);
    config.max_connections = bounded_connections(config.max_connections, open_files);
    let gateway = config.build(deps);
    handle.observe_traffic(Arc::new(GatewayTraffic(gateway.load())));
    gateway
}

fn require_loopback(
    what: &'static str,
    address: SocketAddr,
    why: &'static str,
) -> Result<(), Fault> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    Err(Fault::NotLoopback { what, address, why })
}

async fn bind(what: &'static str, address: SocketAddr) -> Result<TcpListener, Fault> {
    TcpListener::bind(address)
        .await
        .map_err(|source| Fault::Listen {
            what,
            address,
            source,
        })
}

fn local(what: &'static str, listener: &TcpListener) -> Result<SocketAddr, Fault> {
    let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
    listener.local_addr().map_err(|source| Fault::Listen {
        what,
        address: unknown,
        source,
    })
}

fn sqlite_url(data_dir: &Path) -> String {
    format!("sqlite:{}", data_dir.join("llmgw.db").display())
}

const ADMIN_LOOPBACK_ONLY: &str = "it speaks plain HTTP, and its token must not cross a network";
/// A control plane that was killed takes its own lease back at once; another waits for this long.
/// Usage that is kept on the disk at most while the store is away: about 700,000 calls.
const SPOOL_LIMIT: Bytes = Bytes::mib(256);

const LEASE_TTL: Duration = Duration::from_secs(10);
