//! What a client gets that comes when there are as many as may be: an answer that says so, and the end of its
//! connection, at once and whatever it sends.
//!
//! To leave it in the system's queue would be cheaper, and would look to it like a gateway that hangs. The answer
//! is written before anything is read, which HTTP allows. What the client sends meanwhile is read and forgotten
//! for a moment: closed on unread bytes, a connection is reset, and the answer with it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{refusal::Refusal, seldom::Seldom};
use crate::error::Code;

/// Turns clients away.
#[derive(Debug)]
pub(super) struct TurnedAway {
    answer: Bytes,
    most: usize,
    /// Each connection that is being closed holds a file descriptor, of which there may be few.
    places: Arc<Semaphore>,
    log: Seldom,
}

// === impl TurnedAway ===

impl TurnedAway {
    /// For a gateway that takes `most` connections.
    pub(super) fn new(most: usize) -> Self {
        let message = format!("this gateway has {most} client connections, the most it takes");
        let refusal = Refusal::new(Code::QueueFull, message);
        Self {
            answer: refusal.last_words(),
            most,
            places: Arc::new(Semaphore::new(PLACES)),
            log: Seldom::new(LOG_INTERVAL),
        }
    }

    /// Answers and closes, in a task of its own; only closes when too many are being answered already.
    pub(super) fn turn_away(
        &mut self,
        mut stream: TcpStream,
        tasks: &TaskTracker,
        stop: CancellationToken,
    ) {
        if let Some(clients) = self.log.again() {
            let most = self.most;
            tracing::warn!(
                most,
                clients,
                "clients were turned away: all connections are taken"
            );
        }
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return;
        };
        let answer = self.answer.clone();
        tasks.spawn(async move {
            let _place = place;
            let telling = async {
                stream.write_all(&answer).await?;
                stream.shutdown().await?;
                let mut forgotten = [0; 4096];
                while stream.read(&mut forgotten).await? > 0 {}
                std::io::Result::Ok(())
            };
            tokio::select! {
                told = tokio::time::timeout(LINGER, telling) => {
                    // A client that is gone, or stays on in silence, was told what there was to tell.
                    tracing::debug!(?told, "a client was turned away");
                }
                () = stop.cancelled() => {}
            }
        });
    }
}

/// The most connections that are being closed at once.
const PLACES: usize = 32;
/// How long a client may take to read the answer.
const LINGER: Duration = Duration::from_secs(1);
const LOG_INTERVAL: Duration = Duration::from_secs(10);
