//! An agent in this process, and the control plane's end of its pipe.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't set itself up fails"
)]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use llmgw_agent::agent::{Agent, AgentConfig, AgentError, PipeConnector};
use llmgw_core::{
    api::agent::{DesiredState, MAX_FRAME, NodeReport, PROTOCOL, ToAgent, ToServer},
    clock::SystemClock,
    cluster::{engine::WantedEngine, replica::ReplicaSpec},
};
use tokio::{io::DuplexStream, sync::mpsc, task::JoinHandle};
use tokio_util::{
    codec::{Framed, LengthDelimitedCodec},
    sync::CancellationToken,
    task::TaskTracker,
};

/// A control plane that does what the test says, and the agent that it talks to.
pub(crate) struct Plane {
    frames: Framed<DuplexStream, LengthDelimitedCodec>,
    ended: JoinHandle<Result<(), AgentError>>,
    shutdown: CancellationToken,
    revision: u64,
    epoch: u64,
}

impl Plane {
    /// Starts an agent and welcomes it; `epoch` is higher in each of its lives.
    pub(crate) async fn of(config: AgentConfig, epoch: u64) -> Self {
        let agent = Agent::build(config, Arc::new(SystemClock::new())).unwrap();
        let shutdown = CancellationToken::new();
        let (offers, mut pipes) = mpsc::unbounded_channel();
        let connector = PipeConnector::new(move |pipe| drop(offers.send(pipe)));
        let ended = TaskTracker::new().spawn(agent.run(connector, shutdown.clone()));
        let pipe = within(pipes.recv()).await.unwrap();
        // Further pipes of this life are not taken.
        TaskTracker::new().spawn(async move { while pipes.recv().await.is_some() {} });
        let codec = LengthDelimitedCodec::builder()
            .max_frame_length(MAX_FRAME)
            .new_codec();
        let mut plane = Self {
            frames: Framed::new(pipe, codec),
            ended,
            shutdown,
            revision: 0,
            epoch,
        };
        assert!(matches!(plane.hear().await, ToServer::Hello(_)));
        plane.say(&ToAgent::Welcome { protocol: PROTOCOL }).await;
        plane
    }

    async fn hear(&mut self) -> ToServer {
        let frame = within(self.frames.next()).await.unwrap().unwrap();
        serde_json::from_slice(&frame).unwrap()
    }

    async fn say(&mut self, frame: &ToAgent) {
        let json = serde_json::to_vec(frame).unwrap();
        self.frames.send(Bytes::from(json)).await.unwrap();
    }

    /// Wants these engines and replicas, and no others.
    pub(crate) async fn want(&mut self, engines: &[WantedEngine], replicas: &[&ReplicaSpec]) {
        self.revision += 1;
        let desired = DesiredState {
            epoch: self.epoch,
            revision: self.revision,
            engines: engines.to_vec(),
            replicas: replicas.iter().copied().cloned().collect(),
            weights: Default::default(),
        };
        self.say(&ToAgent::Desired(Box::new(desired))).await;
    }

    /// Listens until a report is as it should be.
    pub(crate) async fn until(&mut self, holds: impl Fn(&NodeReport) -> bool) -> NodeReport {
        loop {
            if let ToServer::Report(report) = self.hear().await
                && holds(&report)
            {
                return *report;
            }
        }
    }

    /// Tells the agent to end, and waits for it.
    pub(crate) async fn end(self) {
        self.shutdown.cancel();
        within(self.ended).await.unwrap().unwrap();
    }
}

/// What a future gives, in any time that is short of for ever.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    match tokio::time::timeout(Duration::from_secs(300), future).await {
        Ok(output) => output,
        Err(_) => panic!("it takes too long"),
    }
}
