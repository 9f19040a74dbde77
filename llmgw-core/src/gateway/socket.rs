//! A client's socket that does not wait for ever for a client that does not read, that sees one leave, and that lets
//! in only what is framed as it should be.
//!
//! hyper looks at what comes in only while it holds no byte that it has not parsed. Bytes behind a request's
//! body, a stray line end or the next request, would hide from it that the client is gone, and the engine would
//! go on working for nobody. [`HangUp`] asks the system instead, which tells the end of a connection past
//! whatever lies unread before it.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::Sleep,
};

use super::door::Door;

/// Fails a write that makes no progress for a while. Without this, a client that stops reading would keep an
/// engine's slot for as long as it keeps its connection.
#[derive(Debug)]
pub(super) struct ClientSocket {
    stream: OwnedWriteHalf,
    door: Door,
    limit: Duration,
    /// Runs while a write makes no progress.
    stalled: Option<Pin<Box<Sleep>>>,
}

/// Sees a client leave.
#[derive(Debug)]
pub(super) struct HangUp(OwnedReadHalf);

// === impl ClientSocket ===

impl ClientSocket {
    pub(super) fn new(stream: TcpStream, door: Door, limit: Duration) -> (Self, HangUp) {
        let (reads, stream) = stream.into_split();
        let socket = Self {
            stream,
            door,
            limit,
            stalled: None,
        };
        (socket, HangUp(reads))
    }

    fn bounded<T>(
        &mut self,
        progress: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.stalled = None;
            return progress;
        }
        let limit = self.limit;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, door, .. } = self.get_mut();
        let stream: &TcpStream = stream.as_ref();
        loop {
            match door.hand_on(buffer)? {
                Some(true) => return Poll::Ready(Ok(())),
                Some(false) => {}
                // What wakes hyper is the answer to its last request, or the end of the connection.
                None => return Poll::Pending,
            }
            ready!(stream.poll_read_ready(cx))?;
            match door.take_in(stream, buffer) {
                Ok(true) => return Poll::Ready(Ok(())),
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bounded(progress, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.bounded(progress, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

// === impl HangUp ===

impl HangUp {
    /// Writes to a client to which hyper writes no more, as much as its socket takes at once.
    pub(super) fn say(&self, text: &[u8]) {
        // A client that takes no more, or is gone, is not waited for.
        drop(self.0.as_ref().try_write(text));
    }

    /// Reads and forgets what the client still sends, until it ends. Closed on bytes that were not read, a connection
    /// is reset, and the last answer with it.
    pub(super) async fn forget(&self) {
        let stream: &TcpStream = self.0.as_ref();
        let mut forgotten = [0; 4096];
        while stream.readable().await.is_ok() {
            match stream.try_read(&mut forgotten) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    /// Waits until the client has closed its side, whatever it sent before that and is still unread. (The end comes
    /// behind the bytes: it is seen once the system's buffer, which has at least some ten KiB, has them all.)
    ///
    /// A client that closes only its own direction counts as gone, as it always did for hyper: no client of this
    /// API does that and then waits, and it can't be told from one that closed its socket.
    pub(super) async fn wait(&self) {
        loop {
            match self.0.ready(CLOSED).await {
                Ok(ready) if !ready.is_read_closed() => {}
                // A socket that can't be asked any more is no client's either.
                Ok(_) | Err(_) => return,
            }
        }
    }
}

/// Wakes for the end of a stream and, unlike `READABLE`, not for what comes before it. (Its other meaning, urgent
/// data, is not asked of the system for a TCP stream.)
const CLOSED: Interest = Interest::PRIORITY;
