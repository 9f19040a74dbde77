//! What stands between a client's socket and hyper: bytes pass as [`Framing`] lets them.
//!
//! A request that can't be read must be answered after those before it that can. So hyper, which keeps that order,
//! is handed a small request in its place, and the gateway answers that one with what was wrong. It is the last of
//! its connection.

use std::{
    io,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::{Buf, BufMut, BytesMut};
use tokio::{
    io::{Interest, ReadBuf},
    net::TcpStream,
};

use super::{
    framing::{Fault, Framing, HeadBounds},
    refusal::Refusal,
};

/// Lets bytes in.
#[derive(Debug)]
pub(super) struct Door {
    framing: Framing,
    /// What may pass and has not, then what came of a head that is not whole.
    held: BytesMut,
    /// So many bytes of `held` may pass.
    passing: usize,
    shut: Option<Shut>,
    porter: Arc<Porter>,
}

/// Why nothing more comes in.
#[derive(Clone, Copy, Debug)]
enum Shut {
    /// A request was refused; hyper has one in its place.
    Refused,
    /// A body is not framed as it should be.
    Broken(&'static str),
}

/// Knows what was refused at the door of one connection.
#[derive(Debug, Default)]
pub(super) struct Porter {
    /// Requests that hyper has handed on.
    handed: AtomicU64,
    /// The place among them of the request that is refused.
    refused: Mutex<Option<(u64, Refusal)>>,
    /// The place of the request whose body is not framed as it should be.
    broken: OnceLock<u64>,
    /// Nothing more is let in.
    shut: AtomicBool,
    /// A head has begun and is not whole.
    waits: AtomicBool,
}

// === impl Door ===

impl Door {
    pub(super) fn new(bounds: HeadBounds) -> (Self, Arc<Porter>) {
        let porter = Arc::new(Porter::default());
        let door = Self {
            framing: Framing::new(bounds),
            held: BytesMut::new(),
            passing: 0,
            shut: None,
            porter: Arc::clone(&porter),
        };
        (door, porter)
    }

    /// Hands on what may pass: whether there was any. `None` when nothing will come any more, which is not an end:
    /// hyper takes an end for a client that has left.
    pub(super) fn hand_on(&mut self, buffer: &mut ReadBuf<'_>) -> io::Result<Option<bool>> {
        if self.passing > 0 {
            let length = self.passing.min(buffer.remaining());
            buffer.put_slice(self.held.get(..length).unwrap_or_default());
            self.held.advance(length);
            self.passing -= length;
            return Ok(Some(true));
        }
        match self.shut {
            None => Ok(Some(false)),
            Some(Shut::Refused) => Ok(None),
            Some(Shut::Broken(wrong)) => Err(io::Error::new(io::ErrorKind::InvalidData, wrong)),
        }
    }

    /// Reads what has come, without waiting: whether `buffer` has what may pass of it, or the client has ended.
    pub(super) fn take_in(
        &mut self,
        stream: &TcpStream,
        buffer: &mut ReadBuf<'_>,
    ) -> io::Result<bool> {
        let before = buffer.filled().len();
        if self.held.is_empty() {
            // As a rule, all of it passes where it is.
            if read(stream, buffer)? == 0 {
                return Ok(true);
            }
            let came = buffer.filled().get(before..).unwrap_or_default();
            let scan = self.framing.scan(came);
            let rest = came.get(scan.passed..).unwrap_or_default();
            self.held.extend_from_slice(rest);
            buffer.set_filled(before + scan.passed);
            self.note(scan.fault);
            return Ok(scan.passed > 0);
        }
        self.held.reserve(READ);
        if read(stream, &mut self.held)? == 0 {
            return Ok(true);
        }
        let scan = self.framing.scan(&self.held);
        self.passing = scan.passed;
        self.note(scan.fault);
        Ok(false)
    }

    fn note(&mut self, fault: Option<Fault>) {
        if fault.is_some() {
            self.porter.shut.store(true, Ordering::Relaxed);
        }
        match fault {
            None => {}
            Some(Fault::Head(refusal)) => {
                *self.porter.lock() = Some((self.framing.heads(), refusal));
                self.held.truncate(self.passing);
                self.held.extend_from_slice(IN_ITS_PLACE);
                self.passing = self.held.len();
                self.shut = Some(Shut::Refused);
            }
            Some(Fault::Body(wrong)) => {
                self.held.truncate(self.passing);
                self.shut = Some(Shut::Broken(wrong));
                let place = self.framing.heads().saturating_sub(1);
                self.porter.broken.get_or_init(|| place);
            }
        }
        let waits = self.held.len() > self.passing;
        self.porter.waits.store(waits, Ordering::Relaxed);
    }
}

// === impl Porter ===

impl Porter {
    /// hyper has handed on the next request: its place, and what it is refused with if it stands for another.
    pub(super) fn next(&self) -> (u64, Option<Refusal>) {
        let place = self.handed.fetch_add(1, Ordering::Relaxed);
        let mut refused = self.lock();
        let refused = refused.take_if(|(at, _)| *at == place);
        (place, refused.map(|(_, refusal)| refusal))
    }

    /// Whether the body of the request in this place is not framed as it should be.
    pub(super) fn is_broken(&self, place: u64) -> bool {
        self.broken.get() == Some(&place)
    }

    /// Whether nothing more is let in, because of what came.
    pub(super) fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Relaxed)
    }

    /// Whether the client has begun a head and not ended it.
    pub(super) fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(u64, Refusal)>> {
        // One assignment: it is right after any panic.
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads what is there. Where that leaves room, there is no more: the runtime is told so, and the next read waits for
/// the next bytes instead of asking the system for them in vain.
fn read(stream: &TcpStream, buffer: &mut impl BufMut) -> io::Result<usize> {
    let room = buffer.chunk_mut().len();
    let mut came = 0;
    let read = stream.try_io(Interest::READABLE, || {
        came = stream.try_read_buf(buffer)?;
        if came == 0 || came == room {
            return Ok(());
        }
        // What arrives from here on makes the socket ready anew.
        Err(io::ErrorKind::WouldBlock.into())
    });
    if came > 0 { Ok(came) } else { read.map(|()| 0) }
}

/// What hyper reads where a client's request can't be: after it, hyper reads no more and closes the connection.
const IN_ITS_PLACE: &[u8] = b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n";
const READ: usize = 4 << 10;
