//! A control plane at the other end of an agent's pipe, which does what the test says.

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use llmgw_core::{
    api::agent::{DesiredState, Hello, MAX_FRAME, NodeReport, PROTOCOL, ToAgent, ToServer},
    cluster::{
        engine::{EngineSource, WantedEngine},
        replica::ReplicaSpec,
    },
    id::NodeId,
};
use tokio::io::DuplexStream;
use tokio_util::codec::{Framed, LengthDelimitedCodec};

use crate::asking::within;

pub(crate) struct Server {
    frames: Framed<DuplexStream, LengthDelimitedCodec>,
    pub(crate) hello: Hello,
}

impl Server {
    /// Welcomes the agent at the other end.
    pub(crate) async fn at(pipe: DuplexStream) -> Self {
        let codec = LengthDelimitedCodec::builder()
            .max_frame_length(MAX_FRAME)
            .new_codec();
        let mut server = Self {
            frames: Framed::new(pipe, codec),
            hello: Hello {
                node: NodeId::generate(),
                token: None,
                protocol: 0,
                agent_version: String::new(),
                tells_logs: false,
            },
        };
        let ToServer::Hello(hello) = server.hear().await else {
            panic!("a hello comes first");
        };
        server.hello = hello;
        server.say(&ToAgent::Welcome { protocol: PROTOCOL }).await;
        server
    }

    pub(crate) async fn hear(&mut self) -> ToServer {
        let frame = within(self.frames.next()).await.unwrap().unwrap();
        serde_json::from_slice(&frame).unwrap()
    }

    pub(crate) async fn say(&mut self, frame: &ToAgent) {
        let json = serde_json::to_vec(frame).unwrap();
        self.frames.send(Bytes::from(json)).await.unwrap();
    }

    pub(crate) async fn want(&mut self, epoch: u64, revision: u64, replicas: &[&ReplicaSpec]) {
        self.want_from(EngineSource::Auto, epoch, revision, replicas)
            .await;
    }

    pub(crate) async fn want_from(
        &mut self,
        source: EngineSource,
        epoch: u64,
        revision: u64,
        replicas: &[&ReplicaSpec],
    ) {
        let engines = vec![WantedEngine::new("llamacpp".parse().unwrap(), source)];
        let replicas = replicas.iter().copied().cloned().collect();
        self.say(&ToAgent::Desired(Box::new(DesiredState {
            epoch,
            revision,
            engines,
            replicas,
            weights: Default::default(),
        })))
        .await;
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
}
