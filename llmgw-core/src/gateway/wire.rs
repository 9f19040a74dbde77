//! One connection to an engine, driven by the call that uses it.
//!
//! No task of its own reads or writes it: the call that waits for the answer moves it on. Dropping the call is
//! therefore closing the connection, at once, which is how an engine learns that nobody wants its work any
//! more; and no byte goes from one task to another on its way to the client.

use std::{
    fmt,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::{
    body::Incoming,
    client::conn::http1::{self, Connection, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::{splice::Spliced, upstreams::LoadGuard};
use crate::route::Endpoint;

/// An open connection.
pub(super) struct Wire {
    sender: SendRequest<Spliced>,
    connection: Connection<TokioIo<TcpStream>, Spliced>,
    /// The connection has ended; it must not be polled again.
    ended: bool,
    /// It has carried a call before, and may have died since.
    pub(super) reused: bool,
}

/// An answer that is coming in.
#[derive(Debug)]
pub(super) struct Exchange {
    wire: Option<Box<Wire>>,
    body: Incoming,
    load: LoadGuard,
}

// === impl Wire ===

impl Wire {
    /// Opens a connection.
    pub(super) async fn connect(endpoint: Endpoint, timeout: Duration) -> io::Result<Box<Self>> {
        let connecting = TcpStream::connect(endpoint.address);
        let stream = tokio::time::timeout(timeout, connecting)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        // Short events must not wait for the acknowledgement of the one before.
        stream.set_nodelay(true)?;
        // The list of headers is hyper's own, of 100: a number that is set would be allocated for each answer.
        let (sender, connection) = http1::Builder::new()
            .max_header_size(MAX_HEAD)
            .max_buf_size(BUFFER)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        Ok(Box::new(Self {
            sender,
            connection,
            ended: false,
            reused: false,
        }))
    }

    /// Whether the other side has neither closed the connection nor sent anything unasked.
    pub(super) fn is_open(&mut self) -> bool {
        // Whoever uses the connection next polls it with a waker of its own.
        self.drive(&mut Context::from_waker(Waker::noop()));
        !self.ended && self.sender.is_ready()
    }

    /// Sends a request and waits for the head of the answer. `waits` is called whenever the engine is waited for: once
    /// the system has of the request what it takes at once.
    pub(super) async fn send(
        &mut self,
        request: Request<Spliced>,
        mut waits: impl FnMut(),
    ) -> hyper::Result<Response<Incoming>> {
        let mut answer = pin!(self.sender.send_request(request));
        let (connection, ended) = (&mut self.connection, &mut self.ended);
        poll_fn(|cx| {
            drive(connection, ended, cx);
            let polled = answer.as_mut().poll(cx);
            if polled.is_pending() {
                waits();
            }
            polled
        })
        .await
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.connection, &mut self.ended, cx);
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire")
            .field("ended", &self.ended)
            .field("reused", &self.reused)
            .finish_non_exhaustive()
    }
}

// === impl Exchange ===

impl Exchange {
    /// The body of an answer that came over `wire`.
    pub(super) fn new(wire: Box<Wire>, body: Incoming, load: LoadGuard) -> Self {
        Self {
            wire: Some(wire),
            body,
            load,
        }
    }

    /// The next bytes; `None` after the last, when the connection is kept for the next call.
    pub(super) fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Bytes>>> {
        loop {
            if let Some(wire) = &mut self.wire {
                wire.drive(cx);
            }
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if self.body.is_end_stream() {
                        // Of a length that was told, the last: to see its end, nothing need be driven.
                        self.keep_connection();
                    }
                    // Trailers say nothing that a client of this API reads.
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    self.wire = None;
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(None) => {
                    self.keep_connection();
                    return Poll::Ready(None);
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn keep_connection(&mut self) {
        // Whether it is open is asked when it is used next. To ask now, while the answer's last bytes are in our hands,
        // would only make hyper get itself another buffer.
        if let Some(mut wire) = self.wire.take().filter(|wire| !wire.ended) {
            wire.reused = true;
            self.load.upstream().put(wire);
        }
    }
}

fn drive(
    connection: &mut Connection<TokioIo<TcpStream>, Spliced>,
    ended: &mut bool,
    cx: &mut Context<'_>,
) {
    // How it ended, the answer's head or body tells.
    if !*ended && Pin::new(connection).poll(cx).is_ready() {
        *ended = true;
    }
}

/// The most bytes of the head of an engine's answer.
const MAX_HEAD: usize = 64 << 10;
/// The most bytes of an answer that are read and not passed on yet: more wait at the engine.
const BUFFER: usize = 256 << 10;
