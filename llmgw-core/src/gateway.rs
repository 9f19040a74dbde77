//! The client-facing HTTP stack: the APIs of OpenAI, Anthropic and Ollama, in front of the engines of a cluster.
//!
//! What comes in passes a `door` first, which knows where each request ends (`framing`) and lets no other pass; clients
//! speak HTTP/1.1. A call then goes through its stages in this order; each is a file, `Shared::infer` below reads as the
//! beginning of the list, and `serving` as the rest of it:
//!
//! | stage | does |
//! |---|---|
//! | `identify` | finds the key |
//! | `inspect` | reads the body within its limit, finds `model`, `stream`, `stream_options` |
//! | `resolve` | finds the model of that name, and wakes it when nothing serves it; calls wait in a `queue` |
//! | `authorise` | whether the key may use the model |
//! | `admit` | whether the call is within what its key and the levels above it may use |
//! | `guard` | what rules say of its words: some are taken out, or the call is refused; and of its answer |
//! | `pick` | the replica that costs the call least: by its work, and by what of the `prompt` it has seen |
//! | `forward` | sends, and sends again where that can help |
//! | `account` | what was used, however the call ends |
//! | `respond` | the answer, edited while it passes |
//!
//! What differs from one API to the next stands in `dialect`.
//!
//! The stages are plain functions, not layers around each other: each needs what the one before found out, and a
//! function can say so in its arguments. A whole call, its engine's connection included, lives in the task of
//! its client's connection. Dropping it, which is what happens when the client leaves, drops all of it. A client
//! has left when it closes its socket or the sending half of it, whatever it sent before.
//!
//! What the gateway routes by comes through `watch` channels and stays good when nobody sends any more.

mod account;
mod admit;
mod authorise;
mod bulletin;
mod call;
mod config;
mod dialect;
mod door;
mod feed;
mod forward;
mod framing;
mod guard;
mod health;
#[cfg(feature = "testing")]
pub mod hostile;
mod identify;
mod idle;
mod inspect;
mod journal;
mod json;
mod listen;
mod models;
mod ollama;
mod overhead;
mod paths;
mod pick;
mod prompt;
mod queue;
mod refusal;
mod resolve;
mod respond;
mod rewrite;
mod seldom;
mod serving;
mod socket;
mod splice;
mod sse;
mod translate;
mod turned_away;
mod upstreams;
mod wire;

use std::{fmt, hash::RandomState, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Request, Response, header, request};
use http_body::Body;
use hyper::body::Incoming;
use tokio::{net::TcpListener, sync::watch, time::MissedTickBehavior};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    account::{Account, Payer},
    admit::{Admission, Admitted},
    authorise::authorise,
    call::{Call, PROGRESS, Trail},
    dialect::{Dialect, ErrorShape},
    guard::{Bench, Watch},
    identify::{Caller, identify},
    inspect::{Inspected, discard},
    journal::Journal,
    paths::Target,
    queue::{Bounds, Queue},
    refusal::Refusal,
    resolve::resolve,
    respond::AnswerBody,
    serving::Serving,
    upstreams::{CallGuard, Upstreams},
};
pub use self::{
    config::GatewayConfig,
    journal::{SpoolError, UsageSpool},
    queue::WaitingBounds,
    upstreams::{LoadTable, ReplicaLoad},
};
use crate::{
    clock::Clock,
    cluster::tenancy::PriceList,
    control::Activation,
    guard::Guard,
    keys::{HashingKey, KeyRing},
    metrics::{GatewayGauges, GatewayMeters},
    route::{ModelRoute, RouteTable},
    store::Store,
};

/// What a gateway works with.
#[derive(Debug)]
pub struct GatewayDeps {
    /// Which replicas serve.
    pub routes: watch::Receiver<Arc<RouteTable>>,
    /// Which keys are good, and what holds for each.
    pub keys: watch::Receiver<Arc<KeyRing>>,
    /// What models cost.
    pub prices: watch::Receiver<Arc<PriceList>>,
    /// What keys are hashed with.
    pub hashing_key: HashingKey,
    /// Whom to ask for a model that nothing serves.
    pub activation: Arc<dyn Activation>,
    /// The rules that prompts and answers are checked by.
    pub guard: Arc<Guard>,
    /// Where usage goes, and what gateways share limits through; not asked for anything else.
    pub store: Arc<dyn Store>,
    /// Where usage waits for the store, so that it outlives this process; in memory alone when absent.
    pub spool: Option<UsageSpool>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// A gateway that can be served.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    store: Arc<dyn Store>,
}

/// What a gateway counts, for whoever is asked by Prometheus. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Numbers(Arc<Shared>);

/// How serving ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Drained {
    /// Client connections whose calls had not finished at the deadline.
    pub connections_cut: usize,
    /// Usage records that were lost since the start.
    pub usage_lost: u64,
}

/// What all calls share.
struct Shared {
    config: GatewayConfig,
    routes: watch::Receiver<Arc<RouteTable>>,
    keys: watch::Receiver<Arc<KeyRing>>,
    prices: watch::Receiver<Arc<PriceList>>,
    hashing_key: HashingKey,
    activation: Arc<dyn Activation>,
    clock: Arc<dyn Clock>,
    guard: Arc<Guard>,
    bench: Bench,
    upstreams: Arc<Upstreams>,
    /// What blocks of prompts are named with.
    prompt_key: RandomState,
    queue: Arc<Queue>,
    admission: Arc<Admission>,
    journal: Arc<Journal>,
    meters: Arc<GatewayMeters>,
    /// The drain's deadline has passed.
    cut: CancellationToken,
}

// === impl GatewayConfig ===

impl GatewayConfig {
    /// Makes the gateway.
    #[must_use]
    pub fn build(self, deps: GatewayDeps) -> Gateway {
        let GatewayDeps {
            routes,
            keys,
            prices,
            hashing_key,
            activation,
            guard,
            store,
            spool,
            clock,
        } = deps;
        let shared = Arc::new(Shared {
            journal: Arc::new(Journal::new(self.journal_limit, spool)),
            queue: Arc::new(Queue::new(Bounds {
                per_model: self.waiting_per_model,
                all: self.waiting,
                patience: self.activation_deadline,
            })),
            admission: Arc::new(Admission::new(Arc::clone(&clock), prices.clone())),
            config: self,
            routes,
            keys,
            prices,
            hashing_key,
            activation,
            clock,
            guard,
            bench: Bench::default(),
            upstreams: Arc::default(),
            prompt_key: RandomState::new(),
            meters: Arc::default(),
            cut: CancellationToken::new(),
        });
        Gateway { shared, store }
    }
}

// === impl Numbers ===

impl Numbers {
    /// The text that Prometheus reads.
    #[must_use]
    pub fn text(&self) -> String {
        let Self(shared) = self;
        shared.meters.text(GatewayGauges {
            in_flight: shared.upstreams.in_flight(),
            received: shared.upstreams.calls(),
            journal: shared.journal.waiting(),
            lost: shared.journal.lost(),
        })
    }
}

// === impl Gateway ===

impl Gateway {
    /// What the gateway is doing; stays readable while it is served.
    #[must_use]
    pub fn load(&self) -> LoadTable {
        LoadTable::new(
            Arc::clone(&self.shared.upstreams),
            Arc::clone(&self.shared.queue),
        )
    }

    /// How many calls wait for models on demand, and how long: to be told otherwise while it is served.
    #[must_use]
    pub fn waiting(&self) -> WaitingBounds {
        WaitingBounds::of(&self.shared.queue)
    }

    /// What the gateway counts; stays readable while it is served.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        Numbers(Arc::clone(&self.shared))
    }

    /// Ends the draining when it is cancelled: what is not over is cut as at the deadline, with an error to the
    /// client, and its usage is written.
    #[must_use]
    pub fn cut(&self) -> CancellationToken {
        self.shared.cut.clone()
    }

    /// Serves clients until `shutdown`, then drains: accepts no more, lets calls finish until the deadline (or
    /// until [`cut`](Self::cut)), and writes the usage that is left.
    ///
    /// Dropping the future closes all connections at once.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) -> Drained {
        let Self { shared, store } = self;
        let stop = CancellationToken::new();
        let _stopped_on_drop = stop.clone().drop_guard();
        let tasks = TaskTracker::new();
        tasks.spawn(keep_house(Arc::clone(&shared), stop.clone()));
        tasks.spawn({
            let (shared, store) = (Arc::clone(&shared), Arc::clone(&store));
            let stop = stop.clone();
            async move { shared.admission.keep(&*store, &stop).await }
        });
        tasks.spawn({
            let (shared, stop) = (Arc::clone(&shared), stop.clone());
            async move {
                let config = &shared.config;
                let (interval, farewell) = (config.journal_interval, config.journal_farewell);
                shared
                    .journal
                    .ship(&*store, interval, farewell, &stop)
                    .await;
            }
        });
        let connections_cut = listen::listen(&shared, listener, shutdown).await;
        // All calls are over, and their usage is in the journal.
        stop.cancel();
        tasks.close();
        tasks.wait().await;
        Drained {
            connections_cut,
            usage_lost: shared.journal.lost(),
        }
    }
}

// === impl Shared ===

impl Shared {
    /// Answers anything.
    async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> Response<AnswerBody> {
        let (head, mut body) = request.into_parts();
        let call = Call::begin(&*self.clock);
        let mut trail = Trail::new(&call, &head.headers);
        let shape = ErrorShape::of(head.uri.path());
        let answered = tokio::select! {
            biased;
            answered = self.route(call, &head, &mut body, &mut trail) => answered,
            () = self.cut.cancelled() => Err(Refusal::shutting_down()),
        };
        let mut response = match answered {
            Ok(response) => response,
            Err(refusal) => {
                if !body.is_end_stream() {
                    discard(&head.headers, &mut body).await;
                }
                respond::refuse(&refusal, shape)
            }
        };
        trail.sign(response.headers_mut());
        if shape == ErrorShape::Anthropic {
            trail.sign_for_anthropic(response.headers_mut());
        }
        response
    }

    /// Answers what is no request that can be read.
    fn refuse_unread(&self, refusal: &Refusal) -> Response<AnswerBody> {
        let mut response = respond::refuse(refusal, ErrorShape::OpenAi);
        let call = Call::begin(&*self.clock);
        Trail::new(&call, &HeaderMap::new()).sign(response.headers_mut());
        response
    }

    async fn route(
        self: &Arc<Self>,
        call: Call,
        head: &request::Parts,
        body: &mut Incoming,
        trail: &mut Trail,
    ) -> Result<Response<AnswerBody>, Refusal> {
        match Target::of(&head.method, head.uri.path())? {
            Target::Inference(dialect) => self.infer(dialect, call, head, body, trail).await,
            Target::Models => Ok(models::list(&self.caller(head)?, &self.table())),
            Target::Model(name) => models::one(&self.caller(head)?, &self.table(), name),
            Target::Ollama(question) => {
                let caller = self.caller(head)?;
                let text = inspect::read(&head.headers, body, self.config.body_bounds()).await?;
                question.answer(&caller, &self.table(), &text)
            }
            Target::Health => Ok(health::health()),
            Target::Ready => health::ready(&self.table()),
        }
    }

    /// The stages of an inference call, in their order.
    async fn infer(
        self: &Arc<Self>,
        dialect: &'static Dialect,
        call: Call,
        head: &request::Parts,
        body: &mut Incoming,
        trail: &mut Trail,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let counted = self.upstreams.begin_call();
        // 1. identify
        let caller = self.caller(head)?;
        // 2. inspect
        let text = inspect::read(&head.headers, body, self.config.body_bounds()).await?;
        let asked = match dialect.translation {
            None => Inspected::new(text, dialect, head.headers.get(header::CONTENT_TYPE))?,
            Some(translation) => {
                let translated = translation.request(&text, dialect.errors, call.started_at)?;
                Inspected::of_translated(translated)?
            }
        };
        // 3. resolve
        let route = resolve(&self.table(), &asked.model)?;
        trail.model(&route.name);
        // 4. authorise
        authorise(&caller, &route)?;
        // 5. admit
        let admitted = self.admission.admit(&caller, &route.name, &asked).await;
        let admitted = match admitted {
            Ok((admitted, rates)) => {
                trail.rates(rates);
                admitted
            }
            Err((refusal, rates)) => {
                trail.rates(rates);
                return Err(refusal);
            }
        };
        // From here on, the call has an account, which is written when it is dropped.
        let counted = (call, counted, admitted);
        let account = self.open_account(counted, &caller, &route, asked.n);
        // What is no stream of events has no comments.
        let told = asked.stream
            && asked.errors != ErrorShape::Ollama
            && self.wants_progress(&head.headers);
        let client = &head.headers;
        let watch = Watch::new(self, &caller, trail.request_id.clone());
        let call = (caller, route, Some(watch));
        let serving = Serving::new(self, client, asked, call, trail.clone(), account);
        if told {
            let interval = self.config.progress_interval;
            return serving.tell(trail, interval).await;
        }
        // 6. to 10.
        let answered;
        (*trail, answered) = serving.run().await;
        answered
    }

    /// Whether a streamed call is told how far its model is, while it waits for it.
    fn wants_progress(&self, client: &HeaderMap) -> bool {
        match client.get(&PROGRESS).map(HeaderValue::as_bytes) {
            Some(b"1" | b"true") => true,
            Some(_) => false,
            None => self.config.progress_comments,
        }
    }

    fn caller(&self, head: &request::Parts) -> Result<Caller, Refusal> {
        let ring = Arc::clone(&self.keys.borrow());
        identify(&head.headers, &ring, &self.hashing_key, self.clock.now())
    }

    fn table(&self) -> Arc<RouteTable> {
        Arc::clone(&self.routes.borrow())
    }

    fn open_account(
        &self,
        (call, counted, admitted): (Call, CallGuard, Admitted),
        caller: &Caller,
        route: &ModelRoute,
        choices_per_prompt: u64,
    ) -> Account {
        let payer = Payer {
            pass: Arc::clone(&caller.pass),
            prices: Arc::clone(&self.prices.borrow()),
        };
        let counted_by = (Arc::clone(&self.journal), Arc::clone(&self.meters));
        Account::open(
            counted_by,
            Arc::clone(&self.clock),
            call,
            payer,
            route.name.clone(),
            choices_per_prompt,
            (counted, admitted),
        )
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Closes connections to engines that left the table or are idle for too long.
async fn keep_house(shared: Arc<Shared>, stop: CancellationToken) {
    let mut routes = shared.routes.clone();
    let mut tick = tokio::time::interval(HOUSEKEEPING);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut published = true;
    loop {
        tokio::select! {
            changed = routes.changed(), if published => published = changed.is_ok(),
            _ = tick.tick() => shared.upstreams.close_idle(shared.config.upstream_idle),
            () = stop.cancelled() => break,
        }
        // Also without a change: a call that held an old table may have made an entry anew.
        let table = Arc::clone(&routes.borrow_and_update());
        shared.upstreams.keep(&table);
        shared
            .meters
            .keep(|model| table.resolve(model.as_str()).is_ok());
    }
    shared.upstreams.retire();
}

const HOUSEKEEPING: Duration = Duration::from_secs(1);
