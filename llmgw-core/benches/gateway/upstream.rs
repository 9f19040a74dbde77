//! The fixed upstream: answers like an engine, and costs as little as it can.
//!
//! It reads a request as far as it must and writes answers that were made before. Each event is one write.

use std::{io, net::Ipv4Addr, sync::Arc, time::Duration};

use memchr::memmem;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};

use crate::{
    call::{Answers, HELD, PACED},
    http::{Body, Head},
};

/// Listens on these ports until its task is dropped.
pub(crate) async fn serve(ports: &[u16]) -> io::Result<()> {
    let answers = Arc::new(Answers::new());
    let mut listening = JoinSet::new();
    for port in ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).await?;
        let answers = Arc::clone(&answers);
        listening.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                        connections.spawn(connection(stream, Arc::clone(&answers)));
                    },
                    Some(_) = connections.join_next() => {}
                }
            }
        });
    }
    while listening.join_next().await.is_some() {}
    Ok(())
}

async fn connection(mut stream: TcpStream, answers: Arc<Answers>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut came = Vec::with_capacity(8 << 10);
    loop {
        let (length, answer) = loop {
            if let Some((length, answer)) = request(&came)? {
                break (length, answer);
            }
            if stream.read_buf(&mut came).await? == 0 {
                return Ok(());
            }
        };
        match answer {
            Asked::Models => stream.write_all(&answers.models).await?,
            Asked::Info => stream.write_all(&answers.info).await?,
            Asked::Unary => stream.write_all(&answers.unary).await?,
            Asked::Events { pace, usage } => {
                let events = if usage {
                    &answers.events_with_usage
                } else {
                    &answers.events
                };
                stream.write_all(&answers.head).await?;
                let mut tick = pace.map(|pace| {
                    let mut tick = tokio::time::interval_at(Instant::now() + pace, pace);
                    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
                    tick
                });
                for event in events {
                    if let Some(tick) = &mut tick {
                        tick.tick().await;
                    }
                    stream.write_all(event).await?;
                }
                stream.write_all(b"0\r\n\r\n").await?;
            }
            Asked::Held => {
                stream.write_all(&answers.head).await?;
                let first = answers.events.first().map_or(&[][..], Vec::as_slice);
                stream.write_all(first).await?;
                let mut rest = [0; 64];
                while stream.read(&mut rest).await? > 0 {}
                return Ok(());
            }
        }
        came.drain(..length);
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Models,
    Info,
    Unary,
    Events { pace: Option<Duration>, usage: bool },
    Held,
}

/// The first request among these bytes, once it is whole: how long it is.
fn request(came: &[u8]) -> io::Result<Option<(usize, Asked)>> {
    let Some(head) = Head::read(came)? else {
        return Ok(None);
    };
    let behind = came.get(head.length..).unwrap_or_default();
    let (length, body) = match head.body {
        Body::Length(length) => match behind.get(..length) {
            Some(body) => (head.length + length, body),
            None => return Ok(None),
        },
        Body::Chunked => match memmem::find(behind, b"0\r\n\r\n") {
            // No chunk of a body of ours has this in it: what is looked for in it is whole, too.
            Some(end) => (head.length + end + 5, behind),
            None => return Ok(None),
        },
        Body::UntilClosed => (head.length, &[][..]),
    };
    let path = came.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let has = |what: &[u8]| memmem::find(body, what).is_some();
    let asked = if !path.ends_with(b"/completions") {
        if path.ends_with(b"/models") {
            Asked::Models
        } else {
            Asked::Info
        }
    } else if has(HELD.as_bytes()) {
        Asked::Held
    } else if has(b"\"stream\":true") || has(b"\"stream\": true") {
        Asked::Events {
            pace: has(PACED.as_bytes()).then_some(PACE),
            usage: has(b"\"include_usage\":true") || has(b"\"include_usage\": true"),
        }
    } else {
        Asked::Unary
    };
    Ok(Some((length, asked)))
}

/// Between two events of a paced stream.
const PACE: Duration = Duration::from_millis(10);
