//! Closed-loop load: so many connections, each making its next call when it has the answer to its last.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Barrier,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    call::{Calls, Mode},
    client::Client,
    process::{Group, Used},
};

/// What is measured.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Cell {
    pub(crate) mode: Mode,
    pub(crate) connections: usize,
}

/// What came of a load.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    pub(crate) whole: Vec<Duration>,
    pub(crate) first_event: Vec<Duration>,
    pub(crate) gaps: Vec<Duration>,
    /// Calls that were not answered as they should be, and what came of one of them.
    pub(crate) failed: u64,
    pub(crate) failure: Option<String>,
    /// How long it took.
    pub(crate) took: Duration,
    /// What the processes under test used meanwhile.
    pub(crate) used: Used,
}

// === impl Samples ===

impl Samples {
    fn join(&mut self, other: Self) {
        self.whole.extend(other.whole);
        self.first_event.extend(other.first_event);
        self.gaps.extend(other.gaps);
        self.failed += other.failed;
        self.failure = self.failure.take().or(other.failure);
    }
}

/// Loads whoever listens at `address` for so long; each connection finishes its last call.
///
/// Connections are opened, and have made a call, before the time begins.
pub(crate) async fn run(
    cell: Cell,
    address: SocketAddr,
    group: &Group,
    span: Duration,
) -> io::Result<Samples> {
    let calls = Arc::new(Calls::new(cell.mode, address));
    let next = Arc::new(AtomicUsize::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let warm = Arc::new(Barrier::new(cell.connections + 1));
    let begin = Arc::new(Barrier::new(cell.connections + 1));
    let mut clients = JoinSet::new();
    for _ in 0..cell.connections {
        let (calls, next, over) = (Arc::clone(&calls), Arc::clone(&next), Arc::clone(&over));
        let (warm, begin) = (Arc::clone(&warm), Arc::clone(&begin));
        clients.spawn(async move {
            let number = || next.fetch_add(1, Ordering::Relaxed);
            let mut samples = Samples::default();
            let mut client = None;
            one(
                &mut client,
                address,
                &calls,
                number(),
                cell.mode,
                &mut samples,
            )
            .await;
            samples = Samples {
                failed: samples.failed,
                failure: samples.failure,
                ..Samples::default()
            };
            warm.wait().await;
            begin.wait().await;
            while !over.load(Ordering::Relaxed) {
                one(
                    &mut client,
                    address,
                    &calls,
                    number(),
                    cell.mode,
                    &mut samples,
                )
                .await;
            }
            samples
        });
    }
    warm.wait().await;
    let before = group.used()?;
    let start = Instant::now();
    begin.wait().await;
    sleep(span).await;
    over.store(true, Ordering::Relaxed);
    let mut samples = Samples::default();
    while let Some(client) = clients.join_next().await {
        samples.join(client.map_err(io::Error::other)?);
    }
    samples.took = start.elapsed();
    samples.used = group.used()?.since(before);
    Ok(samples)
}

/// Makes one call, over a new connection where there is none that is kept.
async fn one(
    client: &mut Option<Client>,
    address: SocketAddr,
    calls: &Calls,
    number: usize,
    mode: Mode,
    samples: &mut Samples,
) {
    let calling = async {
        let kept = match client.take().filter(|client| !client.is_closed()) {
            Some(kept) => kept,
            None => Client::connect(address).await?,
        };
        let seen = client
            .insert(kept)
            .call(calls.get(number), mode, &mut samples.gaps)
            .await?;
        io::Result::Ok(seen)
    };
    match timeout(LONGEST, calling).await.unwrap_or_else(|_| {
        let message = format!("no whole answer within {} s", LONGEST.as_secs());
        Err(io::Error::other(message))
    }) {
        Ok(seen) => {
            samples.whole.push(seen.whole);
            samples.first_event.extend(seen.first_event);
        }
        Err(error) => {
            *client = None;
            samples.failed += 1;
            samples.failure.get_or_insert_with(|| error.to_string());
        }
    }
}

/// So many streams that are open and say nothing more.
pub(crate) async fn hold(address: SocketAddr, streams: usize) -> io::Result<Vec<Client>> {
    let calls = Calls::new(Mode::Held, address);
    let mut held = Vec::with_capacity(streams);
    let opening = async {
        for number in 0..streams {
            let mut client = Client::connect(address).await?;
            client
                .call(calls.get(number), Mode::Held, &mut Vec::new())
                .await?;
            held.push(client);
        }
        Ok(())
    };
    match timeout(OPENING, opening).await {
        Ok(opened) => opened.map(|()| held),
        Err(_) => {
            let (opened, seconds) = (held.len(), OPENING.as_secs());
            let message = format!("{opened} streams were open after {seconds} s");
            Err(io::Error::other(message))
        }
    }
}

/// Whoever has not opened all streams after so long is left out.
const OPENING: Duration = Duration::from_secs(10);
/// Whoever does not answer for so long has failed.
const LONGEST: Duration = Duration::from_secs(20);
