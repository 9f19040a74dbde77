//! Connections: accepted, served up to a number and turned away beyond it, and drained at the end.

use std::{
    convert::Infallible,
    io,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use http::{HeaderValue, StatusCode, header};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    GatewayConfig, Shared,
    door::Door,
    refusal::Refusal,
    seldom::Seldom,
    socket::{ClientSocket, HangUp},
    turned_away::TurnedAway,
};
use crate::error::{Chain, Code};

/// Serves until `shutdown`; then lets what is under way finish until the deadline, tells the rest that it is
/// over, and closes. Says how many connections did not finish.
pub(super) async fn listen(
    shared: &Arc<Shared>,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> usize {
    let connections = TaskTracker::new();
    // Apart from those that are served: the end does not wait for them.
    let turning = TaskTracker::new();
    let kill = CancellationToken::new();
    // When this future is dropped, so are all connections.
    let _killed_on_drop = kill.clone().drop_guard();
    let http = http(&shared.config);
    let permits = Arc::new(Semaphore::new(shared.config.max_connections));
    let mut turned_away = TurnedAway::new(shared.config.max_connections);
    let mut failures = Seldom::new(FAILURE_INTERVAL);
    let accepting = async {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _peer)) => stream,
                Err(error) => {
                    accept_failed(&error, &mut failures).await;
                    continue;
                }
            };
            match Arc::clone(&permits).try_acquire_owned() {
                Ok(permit) => {
                    let shared = Arc::clone(shared);
                    let tokens = (shutdown.clone(), kill.clone());
                    connections.spawn(connection(shared, http.clone(), stream, permit, tokens));
                }
                Err(_) => turned_away.turn_away(stream, &turning, kill.clone()),
            }
        }
    };
    tokio::select! {
        () = accepting => {}
        () = shutdown.cancelled() => {}
    }
    drop(listener);
    connections.close();
    let why = tokio::select! {
        biased;
        () = connections.wait() => return 0,
        () = shared.cut.cancelled() => "calls are cut, as was asked",
        () = tokio::time::sleep(shared.config.drain_deadline) => {
            "calls did not finish before the deadline and are cut"
        }
    };
    let unfinished = connections.len();
    tracing::warn!(connections = unfinished, "{why}");
    shared.cut.cancel();
    if tokio::time::timeout(LAST_WORDS, connections.wait())
        .await
        .is_err()
    {
        kill.cancel();
        connections.wait().await;
    }
    unfinished
}

async fn connection(
    shared: Arc<Shared>,
    http: http1::Builder,
    stream: TcpStream,
    permit: OwnedSemaphorePermit,
    (shutdown, kill): (CancellationToken, CancellationToken),
) {
    let _permit = permit;
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a client's connection is gone already");
        return;
    }
    let (door, porter) = Door::new(shared.config.head_bounds());
    let (socket, hang_up) = ClientSocket::new(stream, door, shared.config.client_stall_timeout);
    let header_read_timeout = shared.config.header_read_timeout;
    let service = service_fn(|request| {
        let shared = Arc::clone(&shared);
        let porter = &porter;
        let (place, refused) = porter.next();
        async move {
            let mut response = match refused {
                Some(refusal) => shared.refuse_unread(&refusal),
                None => shared.answer(request).await,
            };
            if porter.is_broken(place) {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            Ok::<_, Infallible>(response)
        }
    });
    let serving = async {
        let mut connection = pin!(http.serve_connection(TokioIo::new(socket), service));
        let mut signals = signals(&hang_up, &shutdown, &kill);
        let ended = loop {
            tokio::select! {
                biased;
                ended = connection.as_mut() => break ended,
                signal = signals.next() => match signal {
                    Some(Signal::Drain) => connection.as_mut().graceful_shutdown(),
                    Some(Signal::Gone) | None => return false,
                },
            }
        };
        let Err(error) = ended else {
            return porter.is_shut();
        };
        if error.is_timeout() && porter.waits() {
            hang_up.say(&too_slow(header_read_timeout).last_words());
            return true;
        }
        // Clients leave all the time; that is no fault of ours.
        tracing::debug!(error = %Chain(&error), "a client's connection ended early");
        porter.is_shut()
    };
    if serving.await {
        // It has its last answer, if it comes to read it: it may still be sending.
        tokio::select! {
            _elapsed = tokio::time::timeout(LINGER, hang_up.forget()) => {}
            () = kill.cancelled() => {}
        }
    }
}

/// What a connection is told from outside.
#[derive(Clone, Copy, Debug)]
enum Signal {
    /// The client has left, or the connection is to be closed at once.
    Gone,
    /// It is to end with what it is doing.
    Drain,
}

/// All that may happen to a connection. They are asked only when something did, and not whenever a byte comes.
fn signals<'c>(
    hang_up: &'c HangUp,
    shutdown: &'c CancellationToken,
    kill: &'c CancellationToken,
) -> FuturesUnordered<Pin<Box<dyn Future<Output = Signal> + Send + 'c>>> {
    let signals = FuturesUnordered::<Pin<Box<dyn Future<Output = Signal> + Send + 'c>>>::new();
    signals.push(Box::pin(async {
        hang_up.wait().await;
        Signal::Gone
    }));
    signals.push(Box::pin(async {
        kill.cancelled().await;
        Signal::Gone
    }));
    signals.push(Box::pin(async {
        shutdown.cancelled().await;
        Signal::Drain
    }));
    signals
}

fn too_slow(timeout: Duration) -> Refusal {
    let message = format!(
        "the head of a request did not come within {} s",
        timeout.as_secs_f32()
    );
    Refusal::new(Code::InvalidRequest, message).with_status(StatusCode::REQUEST_TIMEOUT)
}

fn http(config: &GatewayConfig) -> http1::Builder {
    let most = config.head_bounds().most();
    let mut http = http1::Builder::new();
    // What is beyond our own limits never reaches hyper: the refusal is ours and has a body that says why.
    // Nor does it look for the end of a connection while it answers, for which it would hold a buffer ready:
    // `HangUp` sees that.
    http.half_close(true)
        .timer(TokioTimer::new())
        .header_read_timeout(config.header_read_timeout)
        .max_header_size(most)
        .max_buf_size(most.saturating_mul(2).max(BUFFER));
    // Within its own default, hyper needs no memory for the list.
    if config.header_count > HEADERS_OF_HYPER {
        http.max_headers(config.header_count);
    }
    http
}

async fn accept_failed(error: &io::Error, failures: &mut Seldom) {
    if matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    ) {
        return;
    }
    // Out of file descriptors, as a rule: some will be free in a moment. The client stays in the system's queue,
    // and to ask again at once would only burn the processor.
    if let Some(times) = failures.again() {
        tracing::error!(%error, times, "can't accept connections");
    }
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// How long a cut stream has to write its error event.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long a client that was refused may take to read why.
const LINGER: Duration = Duration::from_secs(1);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often it is said that connections can't be accepted.
const FAILURE_INTERVAL: Duration = Duration::from_secs(10);
/// The most that is read or written at once for one connection.
const BUFFER: usize = 256 << 10;
const HEADERS_OF_HYPER: usize = 100;
