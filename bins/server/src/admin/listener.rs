//! The admin listener: bounded connections, bounded heads, an end that comes.

use std::{convert::Infallible, future::poll_fn, io, time::Duration};

use axum::Router;
use hyper::{
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use rustix::net::{Shutdown, shutdown};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

use super::seats::{Answer, Seats};

/// How the admin listener treats those who connect.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AdminConfig {
    /// Connections at the same time. For one more, the one that has waited longest without a request is closed; when there
    /// are requests under way on all, it waits.
    pub max_connections: usize,
    /// How long the head of a request may take, and how long a connection may be idle.
    pub head_timeout: Duration,
    /// How long requests may take to end once the listener has been told to stop.
    pub drain_timeout: Duration,
}

// === impl AdminConfig ===

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            max_connections: 512,
            head_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(5),
        }
    }
}

pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    config: AdminConfig,
    stop: CancellationToken,
) {
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    // When this future is dropped, so are its connections.
    let _cut_when_dropped = cut.clone().drop_guard();
    let mut seats = Seats::new(config.max_connections);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(config.head_timeout)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD);
    loop {
        let next = async {
            let stream = accept(&listener).await;
            (seats.take().await, stream)
        };
        let (seat, stream) = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            next = next => next,
        };
        let service = TowerToHyperService::new(router.clone());
        let mark = seat.marker();
        let leave = seat.leave();
        let closing = seat.marker();
        let service = service_fn(move |request| {
            let (busy, answer) = (mark(), service.call(request));
            Box::pin(async move {
                let answer = answer.await?;
                Ok::<_, Infallible>(answer.map(|body| Answer::new(body, busy)))
            })
        });
        let mut connection = http.serve_connection(TokioIo::new(stream), service);
        let (stop, cut) = (stop.clone(), cut.clone());
        connections.spawn(async move {
            let _seat = seat;
            let ended = tokio::select! {
                ended = poll_fn(|cx| connection.poll_without_shutdown(cx)) => ended,
                () = cut.cancelled() => return,
                () = leave.cancelled() => return,
                () = stop.cancelled() => {
                    Pin::new(&mut connection).graceful_shutdown();
                    tokio::select! {
                        ended = poll_fn(|cx| connection.poll_without_shutdown(cx)) => ended,
                        () = cut.cancelled() => return,
                    }
                }
            };
            if let Err(error) = ended {
                debug!(%error, "an admin connection ended early");
                return;
            }
            // Whoever has not read its last answer yet keeps its place for that long.
            let _closing = closing();
            let stream = connection.into_parts().io.into_inner();
            tokio::select! {
                () = close(stream) => {}
                () = stop.cancelled() => {}
            }
        });
    }
    drop(listener);
    connections.close();
    if timeout(config.drain_timeout, connections.wait())
        .await
        .is_err()
    {
        warn!(
            connections = connections.len(),
            "admin requests that did not end in time were cut off"
        );
        cut.cancel();
        connections.wait().await;
    }
}

/// Closes a connection so that its last answer is read.
///
/// A client that still sends when its connection is gone is told of a reset, and loses the answer that says why
/// nobody listens. So what it sends is read and thrown away, within bounds, until it has seen that we are done.
async fn close(stream: TcpStream) {
    if shutdown(&stream, Shutdown::Write).is_err() {
        // The client is gone already.
        return;
    }
    let drained = async {
        let mut sink = vec![0; SINK];
        let mut left = MAX_DRAINED;
        while left > 0 && stream.readable().await.is_ok() {
            match stream.try_read(&mut sink) {
                Ok(0) => break,
                Ok(read) => left = left.saturating_sub(read),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
    };
    if timeout(DRAIN_TIMEOUT, drained).await.is_err() {
        debug!("a client of the admin API does not close its connection");
    }
}

async fn accept(listener: &TcpListener) -> TcpStream {
    let mut said = false;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if let Err(error) = stream.set_nodelay(true) {
                    debug!(%error, "the client left at once");
                }
                return stream;
            }
            Err(error) => {
                // Most often too many open files: to ask again at once would only burn the processor.
                if !std::mem::replace(&mut said, true) {
                    warn!(%error, "can't accept admin connections");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

const MAX_HEADERS: usize = 64;
const MAX_HEAD: usize = 64 << 10;
/// A client that sends more than this after its last answer loses it.
const MAX_DRAINED: usize = 64 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
const SINK: usize = 64 << 10;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
