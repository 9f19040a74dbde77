//! Our gateway, in a process of its own: as the product runs it, without the control plane beside it.
//!
//! Keys are checked against a ring of a thousand, the one that is used has rates and a budget, its model a price; usage goes through a spool on the disk into a SQLite store; each call
//! is routed to one of two replicas by its prompt and their work.

use std::{
    error::Error,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
};

use async_trait::async_trait;
use llmgw_core::{
    clock::{Clock, SystemClock, Timestamp},
    cluster::{
        account::ApiKey,
        tenancy::{Limits, Price, PriceList},
    },
    control::Activation,
    gateway::{GatewayConfig, GatewayDeps, UsageSpool},
    id::{KeyId, ModelName, ReplicaId},
    keys::{HashingKey, KeyRing},
    route::{Endpoint, ModelRoute, Progress, RouteTable, Waiting},
    store::SqliteStore,
    units::{Bytes, Micros},
};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::call::{KEY, MODEL};

/// Serves until its task is dropped.
pub(crate) async fn serve(
    port: u16,
    upstreams: &[u16],
    directory: &Path,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let hashing_key = HashingKey::from_bytes([7; HashingKey::LENGTH]);
    let key = |secret: &str| {
        let hash = hashing_key.hash(secret);
        ApiKey::new(KeyId::generate(), "bench", hash, clock.now())
    };
    let others = (0..KEYS).map(|number| key(&format!("sk-llmgw-{number}")));
    let measured = ApiKey {
        limits: Limits {
            requests_per_minute: Some(PLENTY),
            tokens_per_minute: Some(PLENTY),
            concurrent: Some(100_000),
            budgets: vec!["1000000/day".parse()?],
            ..Limits::default()
        },
        ..key(KEY)
    };
    let ring = KeyRing::new(others.chain([measured]));
    let (_keys, keys) = watch::channel(Arc::new(ring));
    let mut endpoints: Vec<Endpoint> = upstreams
        .iter()
        .map(|port| Endpoint {
            replica: ReplicaId::generate(),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, *port)),
            slots: None,
        })
        .collect();
    endpoints.sort();
    let table = RouteTable::new([ModelRoute {
        name: MODEL.parse()?,
        aliases: Vec::new(),
        created_at: Timestamp(1_764_500_000_000),
        endpoints,
        on_demand: false,
        waiting: Waiting::Loading("starting".into()),
        progress: Progress::default(),
        fallbacks: Vec::new(),
    }]);
    let (_routes, routes) = watch::channel(Arc::new(table));
    let (_prices, prices) = watch::channel(Arc::new(PriceList::new([Price {
        model: MODEL.parse()?,
        valid_from: Timestamp(0),
        prompt: Micros(250_000),
        cached: Micros(25_000),
        completion: Micros(1_000_000),
    }])));
    let gateway = GatewayConfig::default().build(GatewayDeps {
        routes,
        keys,
        prices,
        hashing_key,
        activation: Arc::new(Asleep),
        guard: Arc::default(),
        store: Arc::new(SqliteStore::open(directory.join("store.db")).await?),
        spool: Some(UsageSpool::open(
            &directory.join("usage"),
            Bytes::mib(1024),
        )?),
        clock,
    });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    gateway.serve(listener, CancellationToken::new()).await;
    Ok(())
}

/// Wakes nothing: all replicas serve.
#[derive(Debug)]
struct Asleep;

#[async_trait]
impl Activation for Asleep {
    async fn activate(&self, _: &ModelName) -> Option<Waiting> {
        Some(Waiting::Off("the bench wakes nothing".into()))
    }
}

/// More than is used.
const PLENTY: u64 = 1_000_000_000_000;
/// Other keys that are valid.
const KEYS: usize = 1_000;
