//! An engine that does as it is told: for tests of what stands in front of engines.
//!
//! It speaks real HTTP over a real socket on loopback. Each call is answered by a [`Script`], step by step; what
//! came in, and whether the caller stayed until the end, can be asked for at any time.
//!
//! ```
//! # use llmgw_core::testing::engine::{Script, ScriptedEngine};
//! # async fn example() -> std::io::Result<()> {
//! let engine = ScriptedEngine::start().await?;
//! engine.next(Script::events().event(r#"{"choices":[{"delta":{"content":"a"}}]}"#).hang());
//! // … call `engine.address()`, and leave …
//! engine.until(|seen| seen.iter().any(|call| call.was_abandoned())).await;
//! # Ok(())
//! # }
//! ```

mod script;

use std::{
    collections::VecDeque,
    fmt,
    future::{Future, pending},
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

pub use self::script::Script;
use self::script::Step;
use crate::{id::ReplicaId, route::Endpoint};

/// A running engine; stops when it is dropped.
#[derive(Debug)]
pub struct ScriptedEngine {
    endpoint: Endpoint,
    state: Arc<State>,
    _stop: DropGuard,
}

/// A call as it came in.
#[derive(Clone, Debug)]
pub struct SeenCall {
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// Which connection it came over; they are counted from 0.
    pub connection: usize,
    /// How far its answer is.
    pub progress: Progress,
}

/// How far an answer is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Progress {
    /// The script is running.
    Answering,
    /// The script has ended.
    Finished,
    /// The caller went away before the script had ended.
    Abandoned,
}

struct State {
    always: Mutex<Script>,
    next: Mutex<VecDeque<Script>>,
    seen: watch::Sender<Vec<SeenCall>>,
    gate: Semaphore,
}

/// Tells the end of an answer.
struct ProgressGuard {
    state: Arc<State>,
    index: usize,
    finished: bool,
}

struct ScriptBody {
    steps: VecDeque<Step>,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    request: Bytes,
    guard: ProgressGuard,
}

/// The script told the engine to break the connection.
#[derive(Debug, thiserror::Error)]
#[error("the script says so")]
struct Aborted;

// === impl ScriptedEngine ===

impl ScriptedEngine {
    /// Starts an engine that answers every call with a small chat completion, until it is told otherwise.
    ///
    /// # Errors
    /// When no port on loopback is to be had.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let endpoint = Endpoint {
            replica: ReplicaId::generate(),
            address: listener.local_addr()?,
            slots: None,
        };
        let state = Arc::new(State {
            always: Mutex::new(Script::json(200, COMPLETION)),
            next: Mutex::default(),
            seen: watch::Sender::default(),
            gate: Semaphore::new(0),
        });
        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        let accepting = accept(listener, Arc::clone(&state), stop.clone(), tasks.clone());
        tasks.spawn(accepting);
        Ok(Self {
            endpoint,
            state,
            _stop: stop.drop_guard(),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.endpoint.address
    }

    /// The same as a route table names it.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// Answers every call so for which nothing else was said.
    pub fn always(&self, script: Script) {
        *lock(&self.state.always) = script;
    }

    /// Answers the next call so, after those that were said before.
    pub fn next(&self, script: Script) {
        lock(&self.state.next).push_back(script);
    }

    /// Lets this many [`Script::wait`] go on.
    pub fn go(&self, count: usize) {
        self.state.gate.add_permits(count);
    }

    /// The calls that came in, in their order.
    #[must_use]
    pub fn seen(&self) -> Vec<SeenCall> {
        self.state.seen.borrow().clone()
    }

    /// Waits until the calls are as `predicate` wants them.
    pub async fn until(&self, predicate: impl Fn(&[SeenCall]) -> bool) {
        let mut seen = self.state.seen.subscribe();
        // The sender lives as long as this engine.
        drop(seen.wait_for(|seen| predicate(seen)).await);
    }
}

// === impl SeenCall ===

impl SeenCall {
    /// Whether the caller went away before the answer had ended.
    #[must_use]
    pub fn was_abandoned(&self) -> bool {
        self.progress == Progress::Abandoned
    }

    /// A header's value, if it is there and is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

// === impl State ===

impl State {
    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: usize,
    ) -> Result<Response<ScriptBody>, Aborted> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Aborted)?.to_bytes();
        let script = lock(&self.next).pop_front();
        let script = script.unwrap_or_else(|| lock(&self.always).clone());
        let mut index = 0;
        self.seen.send_modify(|seen| {
            index = seen.len();
            seen.push(SeenCall {
                method: head.method.clone(),
                path: head.uri.to_string(),
                headers: head.headers.clone(),
                body: body.clone(),
                connection,
                progress: Progress::Answering,
            });
        });
        let mut guard = ProgressGuard {
            state: Arc::clone(&self),
            index,
            finished: false,
        };
        for step in script.before {
            match self.waiting(&step) {
                Some(waiting) => waiting.await,
                None => {
                    guard.finished = true;
                    return Err(Aborted);
                }
            }
        }
        let Some(head) = script.head else {
            guard.finished = true;
            return Err(Aborted);
        };
        let mut response = Response::new(ScriptBody {
            steps: script.after.into(),
            waiting: None,
            request: body,
            guard,
        });
        *response.status_mut() = head.status;
        *response.headers_mut() = head.headers;
        let headers = response.headers_mut();
        headers.insert(header::SERVER, HeaderValue::from_static("scripted"));
        Ok(response)
    }

    /// What a step waits for; `None` when it does not wait.
    fn waiting(self: &Arc<Self>, step: &Step) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        match step {
            Step::Pause(span) => Some(Box::pin(tokio::time::sleep(*span))),
            Step::Wait => {
                let state = Arc::clone(self);
                Some(Box::pin(async move {
                    // The gate is never closed.
                    if let Ok(permit) = state.gate.acquire().await {
                        permit.forget();
                    }
                }))
            }
            Step::Hang => Some(Box::pin(pending())),
            // A body that is not ready is when hyper writes.
            Step::Flush => Some(Box::pin(tokio::task::yield_now())),
            Step::Bytes(_) | Step::Echo | Step::Abort => None,
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("seen", &self.seen.borrow().len())
            .finish_non_exhaustive()
    }
}

// === impl ProgressGuard ===

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        self.state.seen.send_modify(|seen| {
            if let Some(call) = seen.get_mut(self.index) {
                call.progress = if self.finished {
                    Progress::Finished
                } else {
                    Progress::Abandoned
                };
            }
        });
    }
}

// === impl ScriptBody ===

impl Body for ScriptBody {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        let this = self.get_mut();
        loop {
            if let Some(waiting) = &mut this.waiting {
                ready!(waiting.as_mut().poll(cx));
                this.waiting = None;
            }
            let Some(step) = this.steps.pop_front() else {
                this.guard.finished = true;
                return Poll::Ready(None);
            };
            let bytes = match step {
                Step::Bytes(bytes) => bytes,
                Step::Echo => this.request.clone(),
                Step::Abort => {
                    this.guard.finished = true;
                    return Poll::Ready(Some(Err(Aborted)));
                }
                Step::Pause(_) | Step::Wait | Step::Hang | Step::Flush => {
                    this.waiting = this.guard.state.waiting(&step);
                    continue;
                }
            };
            // With a known length, nobody asks for the end again.
            this.guard.finished = this.steps.is_empty();
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.waiting.is_none() && self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let mut length = 0;
        for step in &self.steps {
            length += match step {
                Step::Bytes(bytes) => bytes.len() as u64,
                Step::Echo => self.request.len() as u64,
                Step::Pause(_) | Step::Wait | Step::Hang | Step::Flush | Step::Abort => {
                    return SizeHint::default();
                }
            };
        }
        SizeHint::with_exact(length)
    }
}

async fn accept(
    listener: TcpListener,
    state: Arc<State>,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    let mut count = 0;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((stream, _peer)) = accepted else {
            continue;
        };
        tasks.spawn(serve(stream, Arc::clone(&state), count, stop.clone()));
        count += 1;
    }
}

async fn serve(stream: TcpStream, state: Arc<State>, number: usize, stop: CancellationToken) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let service = service_fn(move |request| Arc::clone(&state).answer(request, number));
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // A connection that ends early is what the scripts are for.
    tokio::select! {
        _ended = connection => {}
        () = stop.cancelled() => {}
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const COMPLETION: &str = r#"{"id":"c","object":"chat.completion","created":1,"model":"served","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}"#;
