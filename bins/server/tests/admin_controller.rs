//! The real controller keeps the promises of the control roles, asked directly and through the admin API.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::{sync::Arc, time::Duration};

use llmgw_core::{
    admin_client::AdminClient,
    api::agent::{Hello, NodeReport, PROTOCOL, ToServer},
    clock::{Clock, SystemClock},
    cluster::{
        catalog::{Model, ModelDefinition},
        node::{Memory, NodeFacts},
        pool::Pools,
    },
    control::{Control, ControlError},
    error::Code,
    id::NodeId,
    keys::HashingKey,
    store::MemoryStore,
    testing::control::{Fixture, conformance},
    units::Bytes,
};
use llmgw_sched::controller::{
    Admission, ControllerConfig, ControllerDeps, ControllerHandle, Terms, TermsReader,
};
use llmgw_server::{
    admin::{AdminDeps, serve},
    settings::Sources,
};
use serde_json::json;
use tokio::{
    io::{AsyncWriteExt, DuplexStream},
    net::TcpListener,
    task::yield_now,
    time::timeout,
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

const TOKEN: &str = "0123456789abcdef";

struct Running {
    handle: ControllerHandle,
    _agents: Vec<DuplexStream>,
    _running: DropGuard,
}

fn declared() -> Model {
    let definition: ModelDefinition = serde_json::from_value(json!({
        "name": "declared",
        "aliases": ["known/as:this"],
        "source": "file:/models/declared.gguf",
        "profiles": [{"memory": "1GiB"}],
    }))
    .unwrap();
    definition.try_into().unwrap()
}

/// Reads which policy places, over terms that stay.
#[derive(Debug)]
struct PolicyOver(Terms);

impl TermsReader for PolicyOver {
    fn read(&self, document: &str) -> Result<Terms, ControlError> {
        let over = Sources::default().read(document);
        let over =
            over.map_err(|fault| ControlError::new(Code::InvalidRequest, fault.to_string()))?;
        Ok(Terms {
            policy: over.policy,
            ..self.0.clone()
        })
    }
}

/// A controller with two nodes: one whose memory is known, and one whose agent does not say.
async fn controller() -> Running {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let fast = [("speed".to_owned(), "fast".to_owned())];
    let pools = [("fast".to_owned(), fast.into())];
    let terms = Terms {
        declared: vec![declared()],
        pools: Pools::checked(pools.into()).unwrap(),
        ..Terms::default()
    };
    let config = ControllerConfig {
        holder: "test".to_owned(),
        version: "0".to_owned(),
        lease_ttl: Duration::from_secs(9),
        settle: Duration::ZERO,
        terms: terms.clone(),
        version_of_terms: 0,
    };
    let deps = ControllerDeps {
        weights_reader: None,
        terms_reader: Some(Arc::new(PolicyOver(terms))),
        hashing_key: HashingKey::from_bytes([1; 32]),
        store: Arc::new(MemoryStore::new(Arc::clone(&clock))),
        clock,
    };
    let controller = config.build(deps).await.unwrap();
    let handle = controller.handle();
    let stop = CancellationToken::new();
    TaskTracker::new().spawn(controller.run(stop.clone()));
    let memory = Memory {
        total: Bytes::gib(8),
        allocatable: Bytes::gib(6),
    };
    let agents = vec![
        agent(&handle, "alpha", Some(memory)).await,
        agent(&handle, "beta", None).await,
    ];
    let control = handle.control();
    let both = async {
        while control.fleet.nodes().await.unwrap().len() < agents.len() {
            yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), both).await.unwrap();
    Running {
        handle,
        _agents: agents,
        _running: stop.drop_guard(),
    }
}

/// A node that says once what it has.
async fn agent(handle: &ControllerHandle, hostname: &str, memory: Option<Memory>) -> DuplexStream {
    let (mut ours, theirs) = tokio::io::duplex(1 << 20);
    handle.accept(theirs, Admission::Anyone);
    let hello = ToServer::Hello(Hello {
        node: NodeId::generate(),
        token: None,
        protocol: PROTOCOL,
        agent_version: "0".to_owned(),
        tells_logs: false,
    });
    let speed = if memory.is_some() { "fast" } else { "slow" };
    let report = ToServer::Report(Box::new(NodeReport {
        revision: 0,
        epoch: 0,
        highest_epoch: 0,
        highest_revision: 0,
        leaving: false,
        facts: NodeFacts {
            hostname: hostname.to_owned(),
            labels: [("speed".to_owned(), speed.to_owned())].into(),
            memory,
            ..NodeFacts::default()
        },
        provision: Vec::new(),
        weights: None,
        headers: Vec::new(),
        replicas: Vec::new(),
    }));
    for frame in [hello, report] {
        let json = serde_json::to_vec(&frame).unwrap();
        ours.write_u32(json.len().try_into().unwrap())
            .await
            .unwrap();
        ours.write_all(&json).await.unwrap();
    }
    ours
}

fn fixture(control: Control) -> Fixture {
    Fixture {
        control,
        declared: declared().name().clone(),
        alias: "known/as:this".parse().unwrap(),
        parked: None,
    }
}

#[tokio::test]
async fn the_controller_keeps_its_promises() {
    let running = controller().await;
    conformance(&fixture(running.handle.control()))
        .await
        .unwrap();
}

#[tokio::test]
async fn the_controller_keeps_its_promises_over_http() {
    let running = controller().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let _serving = stop.clone().drop_guard();
    let deps = AdminDeps::new(running.handle.control(), TOKEN);
    TaskTracker::new().spawn(serve(listener, deps, stop));
    let control = AdminClient::new(&base, TOKEN).unwrap().control();
    conformance(&fixture(control)).await.unwrap();
}
