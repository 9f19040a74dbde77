//! One agent's session: frames in, events out; desired states in, frames out.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use llmgw_core::{
    api::agent::{DesiredState, Hello, MAX_FRAME, PROTOCOL, ToAgent, ToServer},
    clock::Clock,
    id::NodeId,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, watch},
    time::timeout,
};
use tokio_util::codec::{Framed, LengthDelimitedCodec};

use super::{Admission, logs::Switchboard, loop_task::Event};

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("the stream broke")]
    Stream(#[from] std::io::Error),
    #[error("a frame is not what the protocol says")]
    Frame(#[from] serde_json::Error),
    #[error("the agent said nothing for {} s", .0.as_secs())]
    Silent(Duration),
    #[error("refused: {0}")]
    Refused(String),
}

type Frames<S> = Framed<S, LengthDelimitedCodec>;

/// What the loop tells a session: the last desired state counts, those before it need not be sent.
pub(super) type Outbox = watch::Sender<Option<Arc<DesiredState>>>;

/// Speaks with an agent until either side ends it.
pub(super) async fn run<S>(
    stream: S,
    admission: Admission,
    events: mpsc::Sender<Event>,
    switchboard: &Switchboard,
    clock: &dyn Clock,
) -> Result<(), SessionError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let codec = LengthDelimitedCodec::builder()
        .max_frame_length(MAX_FRAME)
        .new_codec();
    let mut frames = Framed::new(stream, codec);
    let Some(hello) = next(&mut frames, HELLO_DEADLINE).await? else {
        return Ok(());
    };
    let (node, tells_logs) = match admit(hello, &admission) {
        Ok(admitted) => admitted,
        Err(reason) => {
            send(
                &mut frames,
                &ToAgent::Refused {
                    reason: reason.clone(),
                },
            )
            .await?;
            return Err(SessionError::Refused(reason));
        }
    };
    send(&mut frames, &ToAgent::Welcome { protocol: PROTOCOL }).await?;
    // So that a node whose clock is off says so.
    send(&mut frames, &ToAgent::Time { now: clock.now() }).await?;

    let (outbox, mut desired) = watch::channel(None);
    if events.send(Event::Opened { node, outbox }).await.is_err() {
        return Ok(());
    }
    let mut line = switchboard.line(node, tells_logs);
    loop {
        tokio::select! {
            frame = next(&mut frames, SILENCE_DEADLINE) => match frame? {
                None => return Ok(()),
                Some(ToServer::Report(report)) => {
                    if events.send(Event::Report { node, report }).await.is_err() {
                        return Ok(());
                    }
                }
                Some(ToServer::Hello(_)) => {
                    return Err(SessionError::Refused("a second hello".to_owned()));
                }
                Some(ToServer::Log(answer)) => line.answered(*answer),
                Some(ToServer::Unknown) => {}
            },
            question = line.question() => send(&mut frames, &question).await?,
            changed = desired.changed() => {
                // The loop has dropped its end: a newer session of this node has taken over.
                if changed.is_err() {
                    return Ok(());
                }
                let state = desired.borrow_and_update().clone();
                if let Some(state) = state {
                    send(&mut frames, &ToAgent::Desired(Box::new((*state).clone()))).await?;
                }
            }
        }
    }
}

/// Which node it is, and whether it tells logs.
fn admit(frame: ToServer, admission: &Admission) -> Result<(NodeId, bool), String> {
    let ToServer::Hello(Hello {
        node,
        token,
        protocol,
        agent_version,
        tells_logs,
    }) = frame
    else {
        return Err("the first frame must be a hello".to_owned());
    };
    if protocol.abs_diff(PROTOCOL) > 1 {
        return Err(format!(
            "the agent ({agent_version}) speaks protocol {protocol}, this control plane speaks {PROTOCOL}; \
             one version apart is allowed"
        ));
    }
    match admission {
        Admission::Anyone => Ok((node, tells_logs)),
        Admission::Token { hashing_key, hash } => {
            let known = token.is_some_and(|token| hashing_key.hash(&token) == *hash);
            known.then_some((node, tells_logs)).ok_or_else(|| {
                "the agent's token is not the one of this control plane; \
                 it is in agent.token in the control plane's data directory"
                    .to_owned()
            })
        }
    }
}

/// The next frame; `None` at the end of the stream.
async fn next<S>(
    frames: &mut Frames<S>,
    deadline: Duration,
) -> Result<Option<ToServer>, SessionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match timeout(deadline, frames.next()).await {
        Err(_) => Err(SessionError::Silent(deadline)),
        Ok(None) => Ok(None),
        Ok(Some(frame)) => Ok(Some(serde_json::from_slice(&frame?)?)),
    }
}

async fn send<S>(frames: &mut Frames<S>, frame: &ToAgent) -> Result<(), SessionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let bytes = Bytes::from(serde_json::to_vec(frame)?);
    match timeout(SEND_DEADLINE, frames.send(bytes)).await {
        Err(_) => Err(SessionError::Silent(SEND_DEADLINE)),
        Ok(sent) => Ok(sent?),
    }
}

const HELLO_DEADLINE: Duration = Duration::from_secs(10);
/// Agents report every two seconds; a stream that is silent for this long is dead.
const SILENCE_DEADLINE: Duration = Duration::from_secs(30);
/// An agent that does not read for this long is dead.
const SEND_DEADLINE: Duration = Duration::from_secs(10);
