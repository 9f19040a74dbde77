//! One connection of a client: makes a call after another, and says what it saw of each.

use std::{io, net::SocketAddr, time::Duration};

use memchr::memmem;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::Instant,
};

use crate::{
    call::{EVENTS, Mode},
    http::{Body, Chunks, Head},
};

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    came: Vec<u8>,
    data: Vec<u8>,
    closed: bool,
}

/// What was seen of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// From the call to the end of the answer.
    pub(crate) whole: Duration,
    /// From the call to the first event.
    pub(crate) first_event: Option<Duration>,
}

// === impl Client ===

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            came: Vec::with_capacity(16 << 10),
            data: Vec::with_capacity(16 << 10),
            closed: false,
        })
    }

    /// Whether the other side keeps the connection no longer.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Makes a call and reads its answer to the end. Times between events that came apart go to `gaps`.
    ///
    /// # Errors
    /// When there is no answer, when it is no success, and when it is not the whole of one.
    pub(crate) async fn call(
        &mut self,
        request: &[u8],
        mode: Mode,
        gaps: &mut Vec<Duration>,
    ) -> io::Result<Seen> {
        let start = Instant::now();
        self.closed = true;
        self.stream.write_all(request).await?;
        let head = self.head().await?;
        let (mut first_event, mut last_event, mut events) = (None, start, 0);
        let mut chunks = Chunks::default();
        loop {
            let ended = match head.body {
                Body::Length(length) => {
                    self.data.append(&mut self.came);
                    self.data.len() >= length
                }
                Body::Chunked => {
                    chunks.take(&mut self.came, &mut self.data)?;
                    chunks.ended
                }
                Body::UntilClosed => {
                    self.data.append(&mut self.came);
                    self.data.ends_with(DONE)
                }
            };
            if mode != Mode::Unary {
                let before = events;
                events = memmem::find_iter(&self.data, b"data: ").count();
                if events > before {
                    let now = Instant::now();
                    if before == 0 {
                        first_event = Some(now - start);
                    } else {
                        gaps.push(now - last_event);
                    }
                    last_event = now;
                }
            }
            if ended || mode == Mode::Held && events > 0 {
                break;
            }
            if self.stream.read_buf(&mut self.came).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.closed = head.closes;
        // One event less where a proxy asks for usage by itself and strips it again.
        let is_whole = match mode {
            Mode::Unary => memmem::find(&self.data, b"\"finish_reason\"").is_some(),
            Mode::Held => true,
            Mode::Sse | Mode::SsePaced => events >= EVENTS - 1 && self.data.ends_with(DONE),
        };
        if !is_whole {
            let said = String::from_utf8_lossy(&self.data);
            let message = format!("{events} events, and not the whole answer: {said}");
            return Err(io::Error::other(message));
        }
        self.data.clear();
        let whole = start.elapsed();
        Ok(Seen { whole, first_event })
    }

    async fn head(&mut self) -> io::Result<Head> {
        loop {
            if let Some(head) = Head::read(&self.came)? {
                if head.status != 200 {
                    let said = String::from_utf8_lossy(&self.came);
                    return Err(io::Error::other(format!("answered with {said}")));
                }
                self.came.drain(..head.length);
                return Ok(head);
            }
            if self.stream.read_buf(&mut self.came).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

const DONE: &[u8] = b"data: [DONE]\n\n";
