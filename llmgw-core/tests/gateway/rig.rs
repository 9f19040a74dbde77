//! A served gateway with all that is around it.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use llmgw_core::{
    clock::{Clock, RuntimeClock, Timestamp},
    cluster::{account::ApiKey, tenancy::PriceList},
    control::Activation,
    gateway::{Drained, GatewayConfig, GatewayDeps, LoadTable, Numbers},
    guard::Guard,
    id::{KeyId, ModelName},
    keys::{HashingKey, KeyRing},
    route::{Endpoint, ModelRoute, Progress, RouteTable, Waiting},
    store::{Faults, FaultyStore, MemoryStore, Store, UsageTotal},
    testing::engine::ScriptedEngine,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::client::{Client, Reply, within};

pub(crate) struct Rig {
    pub(crate) address: SocketAddr,
    pub(crate) routes: watch::Sender<Arc<RouteTable>>,
    pub(crate) activation: Arc<ScriptedActivation>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) faults: Faults,
    pub(crate) load: LoadTable,
    pub(crate) numbers: Numbers,
    pub(crate) shutdown: CancellationToken,
    pub(crate) cut: CancellationToken,
    pub(crate) served: JoinHandle<Drained>,
    pub(crate) keys: watch::Sender<Arc<KeyRing>>,
    pub(crate) prices: watch::Sender<Arc<PriceList>>,
    pub(crate) guard: Arc<Guard>,
}

/// Answers from a list; the last answer stays.
#[derive(Debug)]
pub(crate) struct ScriptedActivation {
    pub(crate) asked: watch::Sender<u32>,
    pub(crate) answers: Mutex<Vec<Answer>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Waiting(Waiting),
    /// It is served by now.
    Served,
    Never,
}

impl Rig {
    /// A gateway with short timeouts in front of these engines, which all serve `org/served`, alias `asked`.
    pub(crate) async fn start(engines: &[&ScriptedEngine]) -> Self {
        Self::with(
            config(),
            engines.iter().map(|engine| engine.endpoint()).collect(),
        )
        .await
    }

    pub(crate) async fn with(config: GatewayConfig, endpoints: Vec<Endpoint>) -> Self {
        Self::on(clock(), config, endpoints).await
    }

    /// The same by another clock.
    pub(crate) async fn on(
        clock: Arc<dyn Clock>,
        config: GatewayConfig,
        endpoints: Vec<Endpoint>,
    ) -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::clone(&clock)));
        Self::beside(store, clock, config, endpoints).await
    }

    /// A gateway on a store that others may use too.
    pub(crate) async fn beside(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        config: GatewayConfig,
        endpoints: Vec<Endpoint>,
    ) -> Self {
        let hashing_key = hashing_key();
        let (keys, keys_read) = watch::channel(Arc::new(KeyRing::new([key()])));
        let (prices, prices_read) = watch::channel(Arc::default());
        let (routes, routes_read) = watch::channel(Arc::new(table(endpoints)));
        let faulty = FaultyStore::new(Arc::clone(&store));
        let faults = faulty.faults().clone();
        let guard = Arc::<Guard>::default();
        let activation = Arc::new(ScriptedActivation {
            asked: watch::Sender::default(),
            answers: Mutex::new(vec![Answer::Waiting(loading())]),
        });
        let gateway = config.build(GatewayDeps {
            routes: routes_read,
            keys: keys_read,
            prices: prices_read,
            hashing_key,
            activation: Arc::<ScriptedActivation>::clone(&activation),
            guard: Arc::clone(&guard),
            store: Arc::new(faulty),
            spool: None,
            clock,
        });
        let load = gateway.load();
        let numbers = gateway.numbers();
        let cut = gateway.cut();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let served = TaskTracker::new().spawn(gateway.serve(listener, shutdown.clone()));
        Self {
            address,
            routes,
            activation,
            store,
            faults,
            load,
            numbers,
            shutdown,
            cut,
            served,
            keys,
            prices,
            guard,
        }
    }

    /// Makes one call over a connection of its own.
    pub(crate) async fn call(&self, method: &str, path: &str, body: &str) -> Reply {
        let mut client = Client::connect(self.address).await;
        client
            .send(method, path, &[AUTHORIZATION], body.as_bytes())
            .await;
        client.reply().await
    }

    pub(crate) async fn chat(&self, body: &Value) -> Reply {
        self.call("POST", CHAT, &body.to_string()).await
    }

    /// Sends a chat call and leaves the answer to be read.
    pub(crate) async fn open(&self, body: &Value) -> Client {
        self.open_with(body, &[]).await
    }

    /// The same with more headers.
    pub(crate) async fn open_with(&self, body: &Value, headers: &[(&str, &str)]) -> Client {
        let mut client = Client::connect(self.address).await;
        let headers = [&[AUTHORIZATION], headers].concat();
        let body = body.to_string();
        client.send("POST", CHAT, &headers, body.as_bytes()).await;
        client
    }

    /// Publishes the model as one that starts with the first call, and as `change` makes it.
    pub(crate) fn publish_on_demand(&self, change: impl FnOnce(&mut ModelRoute)) {
        let mut route = model("org/served", &["asked"], Vec::new());
        route.on_demand = true;
        change(&mut route);
        self.routes.send_replace(Arc::new(RouteTable::new([route])));
    }

    /// Waits until so many calls wait for the model.
    pub(crate) async fn until_waiting(&self, calls: u64) {
        let model = "org/served".parse().unwrap();
        within(async {
            while self.load.waiting_for(&model) != calls {
                // There is nothing to subscribe to in a queue.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// Waits until so many calls are in the accounts, and adds them up.
    pub(crate) async fn usage(&self, calls: u64) -> UsageTotal {
        within(async {
            loop {
                let totals = self.store.usage_totals(Timestamp(0), None).await.unwrap();
                if let Some(total) = totals.into_iter().find(|total| total.requests >= calls) {
                    return total;
                }
                // There is nothing to subscribe to in a store.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }

    /// Waits until no call is under way.
    pub(crate) async fn until_idle(&self) {
        within(async {
            while self.load.in_flight() > 0 || self.load.replicas().iter().any(|r| r.in_flight > 0)
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    pub(crate) fn publish(&self, endpoints: Vec<Endpoint>) {
        self.routes.send_replace(Arc::new(table(endpoints)));
    }
}

#[async_trait]
impl Activation for ScriptedActivation {
    async fn activate(&self, _model: &ModelName) -> Option<Waiting> {
        self.asked.send_modify(|asked| *asked += 1);
        let answer = {
            let mut answers = self.answers.lock().unwrap();
            if answers.len() > 1 {
                answers.remove(0)
            } else {
                answers[0].clone()
            }
        };
        match answer {
            Answer::Waiting(waiting) => Some(waiting),
            Answer::Served => None,
            Answer::Never => std::future::pending().await,
        }
    }
}

/// Nothing here needs longer than this, on a busy machine too; nothing that times out takes longer.
pub(crate) fn config() -> GatewayConfig {
    GatewayConfig {
        connect_timeout: Duration::from_secs(2),
        first_byte_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(10),
        drain_deadline: Duration::from_secs(10),
        journal_interval: Duration::from_millis(20),
        ..GatewayConfig::default()
    }
}

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(RuntimeClock::starting_at(Timestamp(1_000)))
}

pub(crate) fn hashing_key() -> HashingKey {
    HashingKey::from_bytes([7; 32])
}

/// The key that calls are made with.
pub(crate) fn key() -> ApiKey {
    let hash = hashing_key().hash(KEY);
    ApiKey::new(KeyId::generate(), "test", hash, Timestamp(0))
}

pub(crate) fn table(endpoints: Vec<Endpoint>) -> RouteTable {
    RouteTable::new([model("org/served", &["asked"], endpoints)])
}

pub(crate) fn model(name: &str, aliases: &[&str], mut endpoints: Vec<Endpoint>) -> ModelRoute {
    endpoints.sort();
    ModelRoute {
        name: name.parse().unwrap(),
        aliases: aliases.iter().map(|alias| alias.parse().unwrap()).collect(),
        created_at: Timestamp(1_700_000_000_123),
        endpoints,
        on_demand: false,
        waiting: loading(),
        progress: Progress::default(),
        fallbacks: Vec::new(),
    }
}

pub(crate) fn loading() -> Waiting {
    Waiting::Loading("fetching weights (43 %)".into())
}

pub(crate) fn request() -> Value {
    json!({"model": "asked", "messages": [{"role": "user", "content": "hi"}]})
}

pub(crate) fn streamed() -> Value {
    let mut body = request();
    body["stream"] = json!(true);
    body
}

/// A chunk of a streamed chat answer.
pub(crate) fn chunk(content: &str) -> String {
    let delta = json!({"index": 0, "delta": {"content": content}, "finish_reason": null});
    json!({"id": "c", "model": "org/served", "choices": [delta]}).to_string()
}

/// The chunk that has only usage.
pub(crate) fn usage_chunk() -> String {
    let usage = json!({
        "prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 3},
    });
    json!({"id": "c", "model": "org/served", "choices": [], "usage": usage}).to_string()
}

pub(crate) const KEY: &str = "sk-llmgw-test";
pub(crate) const AUTHORIZATION: (&str, &str) = ("authorization", "Bearer sk-llmgw-test");
pub(crate) const CHAT: &str = "/v1/chat/completions";
