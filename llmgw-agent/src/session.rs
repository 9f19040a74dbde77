//! One conversation with a control plane, over any stream of bytes.
//!
//! The agent says who it is, and then what is: at once when that changes, but not more often than ten times a
//! second, and at least every [`HEARTBEAT_MS`]. The control plane says what should be. Reading and writing wait
//! for each other nowhere, and nothing that takes long is done here: what is heard is put where others look.
//! What is heard may be late, doubled or out of order; the [`fence`] decides what counts.

mod asks;
pub mod fence;
pub mod time;

pub use self::asks::EngineLogs;

use std::{io, pin::pin, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use llmgw_core::{
    api::{
        agent::{
            DesiredState, HEARTBEAT_MS, Hello, MAX_FRAME, NodeReport, PROTOCOL, ToAgent, ToServer,
        },
        log::LogAnswer,
    },
    clock::{Clock, Timestamp},
    error::{Code, Coded},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, watch},
    time::timeout,
};
use tokio_util::{
    codec::{Framed, LengthDelimitedCodec},
    sync::CancellationToken,
};

use self::{asks::Desk, time::ServerTime};

/// What a session speaks with, and of.
#[derive(Debug)]
pub struct Session<'a> {
    /// Who the agent is.
    pub hello: Hello,
    /// What is; the last value counts.
    pub reports: watch::Receiver<NodeReport>,
    /// Where the highest desired state of those that were heard is put.
    pub desired: &'a watch::Sender<Option<DesiredState>>,
    /// Where the control plane's time is put.
    pub time: &'a watch::Sender<Option<ServerTime>>,
    /// Who tells what engines wrote.
    pub logs: &'a dyn EngineLogs,
    /// Our own clock.
    pub clock: &'a dyn Clock,
    /// Ends the session, after one more report.
    pub closing: CancellationToken,
}

/// Where what is heard is put.
struct Heard<'a> {
    desired: &'a watch::Sender<Option<DesiredState>>,
    tell: &'a (dyn Fn(Timestamp) + Send + Sync),
    desk: Desk,
}

/// How a session went.
#[derive(Debug)]
pub struct SessionEnd {
    /// Whether the control plane has accepted the agent.
    pub welcomed: bool,
    /// Why it ended.
    pub why: SessionError,
}

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The agent ends.
    #[error("the agent is stopping")]
    Closing,
    /// The control plane has closed the stream.
    #[error("the control plane closed the session")]
    Closed,
    /// The control plane does not want this agent.
    #[error("the control plane refused this agent: {0}")]
    Refused(String),
    /// The stream broke.
    #[error("the stream to the control plane broke")]
    Stream(#[source] io::Error),
    /// The stream does not carry frames of this protocol.
    #[error("the control plane sent something that is no frame")]
    Malformed(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// What is to be sent is larger than a frame may be, or has no JSON form.
    #[error("the report can't be sent")]
    Unsendable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The control plane does not read.
    #[error("the control plane took no report for {} s", .0.as_secs())]
    Stuck(Duration),
}

// === impl Session ===

impl Session<'_> {
    /// Speaks until either side ends.
    pub async fn run<S>(self, stream: S) -> SessionEnd
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let Self {
            hello,
            reports,
            desired,
            time,
            logs,
            clock,
            closing,
        } = self;
        let asked = clock.monotonic();
        let tell = |now| {
            time.send_replace(Some(ServerTime {
                theirs: now,
                asked,
                heard: clock.monotonic(),
            }));
        };
        let codec = LengthDelimitedCodec::builder()
            .max_frame_length(MAX_FRAME)
            .new_codec();
        let (sink, stream) = Framed::new(stream, codec).split();
        let mut welcomed = false;
        let (desk, clerk, answers) = asks::desk();
        let heard = Heard {
            desired,
            tell: &tell,
            desk,
        };
        let conversation = async {
            tokio::select! {
                why = speak(sink, hello, reports, answers, &closing) => why,
                why = hear(stream, &heard, &mut welcomed) => why,
            }
        };
        let why = tokio::select! {
            why = conversation => why,
            never = clerk.work(logs) => match never {},
        };
        SessionEnd { welcomed, why }
    }
}

async fn speak<S>(
    mut sink: S,
    hello: Hello,
    mut reports: watch::Receiver<NodeReport>,
    mut answers: mpsc::Receiver<LogAnswer>,
    closing: &CancellationToken,
) -> SessionError
where
    S: Sink<Bytes, Error = io::Error> + Unpin,
{
    if let Err(error) = send(&mut sink, &ToServer::Hello(hello)).await {
        return error;
    }
    loop {
        let last = closing.is_cancelled();
        let report = reports.borrow_and_update().clone();
        if let Err(error) = send(&mut sink, &ToServer::Report(Box::new(report))).await {
            return error;
        }
        if last {
            return SessionError::Closing;
        }
        let next = async {
            tokio::time::sleep(REPORT_GAP).await;
            // Neither a heartbeat that is due nor the end of those who report ends the session: the first is
            // why we wake up, the second is followed by the order to close.
            match timeout(HEARTBEAT - REPORT_GAP, reports.changed()).await {
                Ok(Ok(())) | Err(_) => {}
                Ok(Err(_)) => closing.cancelled().await,
            }
        };
        let mut next = pin!(closing.run_until_cancelled(next));
        loop {
            // A report that is due goes before answers.
            let answer = tokio::select! {
                biased;
                _ = &mut next => break,
                Some(answer) = answers.recv() => answer,
            };
            if let Err(error) = send(&mut sink, &ToServer::Log(Box::new(answer))).await {
                return error;
            }
        }
    }
}

async fn send<S>(sink: &mut S, frame: &ToServer) -> Result<(), SessionError>
where
    S: Sink<Bytes, Error = io::Error> + Unpin,
{
    let json = serde_json::to_vec(frame).map_err(|error| SessionError::Unsendable(error.into()))?;
    match timeout(SEND_WITHIN, sink.send(Bytes::from(json))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => {
            Err(SessionError::Unsendable(error.into()))
        }
        Ok(Err(error)) => Err(SessionError::Stream(error)),
        Err(_) => Err(SessionError::Stuck(SEND_WITHIN)),
    }
}

async fn hear<S>(mut stream: S, heard: &Heard<'_>, welcomed: &mut bool) -> SessionError
where
    S: Stream<Item = io::Result<BytesMut>> + Unpin,
{
    loop {
        let frame = match stream.next().await {
            None => return SessionError::Closed,
            Some(Ok(frame)) => frame,
            Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                return SessionError::Malformed(error.into());
            }
            Some(Err(error)) => return SessionError::Stream(error),
        };
        match serde_json::from_slice(&frame) {
            Ok(ToAgent::Welcome { protocol }) => {
                if protocol != PROTOCOL {
                    tracing::info!(
                        theirs = protocol,
                        ours = PROTOCOL,
                        "another protocol version"
                    );
                }
                *welcomed = true;
            }
            Ok(ToAgent::Refused { reason }) => return SessionError::Refused(reason),
            Ok(ToAgent::Time { now }) => (heard.tell)(now),
            Ok(ToAgent::Desired(state)) => offer(heard.desired, *state),
            Ok(ToAgent::ReadLog(ask)) => heard.desk.take(ask),
            Ok(ToAgent::Unknown) => {
                tracing::debug!("passing over a frame of a newer control plane");
            }
            Err(error) => return SessionError::Malformed(error.into()),
        }
    }
}

/// Puts a state where it is looked for, unless one that was heard before it counts more.
fn offer(desired: &watch::Sender<Option<DesiredState>>, state: DesiredState) {
    let rank = |state: &DesiredState| (state.epoch, state.revision);
    desired.send_if_modified(|kept| {
        let newer = kept.as_ref().is_none_or(|kept| rank(kept) <= rank(&state));
        if newer {
            *kept = Some(state);
        } else {
            tracing::warn!(
                epoch = state.epoch,
                revision = state.revision,
                "ignoring a desired state that was overtaken",
            );
        }
        newer
    });
}

// === impl SessionError ===

impl Coded for SessionError {
    fn code(&self) -> Code {
        match self {
            Self::Refused(_) => Code::PermissionDenied,
            Self::Malformed(_) => Code::InvalidRequest,
            Self::Unsendable(_) => Code::Internal,
            Self::Closing => Code::ShuttingDown,
            Self::Closed | Self::Stream(_) | Self::Stuck(_) => Code::Unavailable,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Malformed(_) => Some(
                "the address must be the control plane's port for agents, not its HTTP port"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

/// Changes within this time go into one report.
const REPORT_GAP: Duration = Duration::from_millis(100);

const HEARTBEAT: Duration = Duration::from_millis(HEARTBEAT_MS);

/// A control plane that takes nothing for so long is gone; another may have come.
const SEND_WITHIN: Duration = Duration::from_secs(10);
