//! The controller against scripted agents, over pipes, with paused time.

use futures_util::{SinkExt, StreamExt};
use llmgw_core::{
    api::{
        agent::{DesiredState, Hello, NodeReport, PROTOCOL, ToAgent, ToServer},
        whatif::Change,
    },
    clock::{RuntimeClock, Timestamp},
    cluster::{
        catalog::Model,
        engine::{Provision, ProvisionState},
        node::{Memory, NodeFacts, NodeState},
        pool::Pools,
        replica::{ReplicaState, ReplicaStatus},
        weights::{FetchProgress, Sha256Digest, ToldHeader, Weights, WeightsOnDisk},
    },
    control::{Activation, Audit, Catalog, Fleet, Settings, Storage},
    error::Code,
    id::{ModelName, NodeId},
    route::Waiting,
    store::{MemoryStore, StoredModel},
    units::Bytes as Size,
};
use tokio::io::DuplexStream;
use tokio_util::codec::{Framed, LengthDelimitedCodec};

use super::*;

mod epochs;

mod decisions;
mod demand;
mod fallbacks;
mod logs;
mod machines;
mod ordered;
mod tenancy;
mod terms;
mod weights;

/// A controller that runs, and the store behind it.
struct Running {
    handle: ControllerHandle,
    store: Arc<MemoryStore>,
    stop: CancellationToken,
    task: tokio_util::task::AbortOnDropHandle<()>,
}

/// An agent that says what the test tells it to.
struct ScriptedAgent {
    /// What it tells of headers.
    headers: Vec<ToldHeader>,
    frames: Framed<DuplexStream, LengthDelimitedCodec>,
    node: NodeId,
    desired: Option<DesiredState>,
    highest_epoch: u64,
    highest_revision: u64,
    leaving: bool,
    /// What it found on its machine.
    facts: NodeFacts,
}

async fn controller(declared: Vec<Model>) -> Running {
    let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::starting_at(Timestamp(0)));
    let store = Arc::new(MemoryStore::new(Arc::clone(&clock)));
    restarted(declared, store, clock).await
}

async fn restarted(
    declared: Vec<Model>,
    store: Arc<MemoryStore>,
    clock: Arc<dyn Clock>,
) -> Running {
    reading(declared, store, clock, None).await
}

/// A controller that asks `reader` what weights are.
async fn reading(
    declared: Vec<Model>,
    store: Arc<MemoryStore>,
    clock: Arc<dyn Clock>,
    reader: Option<Arc<dyn WeightsReader>>,
) -> Running {
    let config = ControllerConfig {
        terms: Terms {
            declared,
            ..Terms::default()
        },
        ..alone()
    };
    started(config, store, clock, reader).await
}

/// Of a controller that is told of nothing.
fn alone() -> ControllerConfig {
    ControllerConfig {
        holder: "test".into(),
        version: "0".into(),
        lease_ttl: Duration::from_secs(9),
        settle: Duration::ZERO,
        terms: Terms::default(),
        version_of_terms: 0,
    }
}

async fn started(
    config: ControllerConfig,
    store: Arc<MemoryStore>,
    clock: Arc<dyn Clock>,
    reader: Option<Arc<dyn WeightsReader>>,
) -> Running {
    let deps = ControllerDeps {
        store: Arc::clone(&store) as Arc<dyn Store>,
        clock,
        hashing_key: HashingKey::from_bytes([1; 32]),
        weights_reader: reader,
        terms_reader: None,
    };
    let controller = config.build(deps).await.unwrap();
    let handle = controller.handle();
    let stop = CancellationToken::new();
    let running = TaskTracker::new().spawn(controller.run(stop.clone()));
    let task = tokio_util::task::AbortOnDropHandle::new(running);
    Running {
        handle,
        store,
        stop,
        task,
    }
}

impl Running {
    async fn agent(&self) -> ScriptedAgent {
        self.agent_of(NodeId::generate()).await
    }

    async fn agent_of(&self, node: NodeId) -> ScriptedAgent {
        self.agent_that(node, true).await
    }

    async fn agent_that(&self, node: NodeId, tells_logs: bool) -> ScriptedAgent {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        self.handle.accept(theirs, Admission::Anyone);
        let mut frames = Framed::new(ours, LengthDelimitedCodec::new());
        let hello = Hello {
            node,
            token: None,
            protocol: PROTOCOL,
            agent_version: "0".into(),
            tells_logs,
        };
        send(&mut frames, &ToServer::Hello(hello)).await;
        assert_eq!(
            receive(&mut frames).await,
            Some(ToAgent::Welcome { protocol: PROTOCOL })
        );
        assert!(matches!(
            receive(&mut frames).await,
            Some(ToAgent::Time { .. })
        ));
        ScriptedAgent {
            frames,
            node,
            desired: None,
            highest_epoch: 0,
            highest_revision: 0,
            leaving: false,
            headers: Vec::new(),
            facts: NodeFacts {
                hostname: "box".into(),
                memory: Some(Memory {
                    total: Size::gib(8),
                    allocatable: Size::gib(8),
                }),
                ..NodeFacts::default()
            },
        }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

impl ScriptedAgent {
    /// Reports that everything that is desired is in this state.
    async fn report(&mut self, state: ReplicaState) {
        let specs = self
            .desired
            .as_ref()
            .map(|desired| desired.replicas.clone());
        let replicas = specs
            .unwrap_or_default()
            .into_iter()
            .map(|spec| ReplicaStatus {
                spec,
                state,
                since: Timestamp(0),
                endpoint: Some("127.0.0.1:9".into()),
                fetch: None,
                measured: None,
                error: (state == ReplicaState::Failed).then(|| "it broke".to_owned()),
                hint: None,
                log_tail: Vec::new(),
            });
        self.report_replicas(replicas.collect()).await;
    }

    async fn report_replicas(&mut self, replicas: Vec<ReplicaStatus>) {
        self.report_all(replicas, None).await;
    }

    async fn report_all(
        &mut self,
        replicas: Vec<ReplicaStatus>,
        weights: Option<Vec<WeightsOnDisk>>,
    ) {
        let report = NodeReport {
            revision: self.desired.as_ref().map_or(0, |desired| desired.revision),
            epoch: self.desired.as_ref().map_or(0, |desired| desired.epoch),
            highest_epoch: self.highest_epoch,
            highest_revision: self.highest_revision,
            leaving: self.leaving,
            facts: self.facts.clone(),
            provision: vec![Provision::new(
                "llamacpp".parse().unwrap(),
                ProvisionState::Installed {
                    version: "1".into(),
                    variant: "path".into(),
                },
            )],
            replicas,
            weights,
            headers: self.headers.clone(),
        };
        send(&mut self.frames, &ToServer::Report(Box::new(report))).await;
    }

    /// The next desired state.
    async fn told(&mut self) -> &DesiredState {
        let frame = receive(&mut self.frames).await;
        let Some(ToAgent::Desired(desired)) = frame else {
            panic!("{frame:?}")
        };
        self.desired = Some(*desired);
        self.desired.as_ref().unwrap()
    }
}

async fn send(frames: &mut Framed<DuplexStream, LengthDelimitedCodec>, frame: &ToServer) {
    frames
        .send(bytes::Bytes::from(serde_json::to_vec(frame).unwrap()))
        .await
        .unwrap();
}

async fn receive(frames: &mut Framed<DuplexStream, LengthDelimitedCodec>) -> Option<ToAgent> {
    let frame = frames.next().await?.unwrap();
    Some(serde_json::from_slice(&frame).unwrap())
}

fn model(name: &str, memory: &str) -> Model {
    serde_json::from_value(definition(name, memory)).unwrap()
}

fn definition(name: &str, memory: &str) -> serde_json::Value {
    serde_json::json!({
        "name": name, "source": "file:/m.gguf", "profiles": [{"memory": memory}],
    })
}

fn name(text: &str) -> ModelName {
    text.parse().unwrap()
}

/// Waits until the gateway's table is as it should be.
async fn routed(handle: &ControllerHandle, model: &str, endpoints: usize) {
    let mut routes = handle.routes();
    let as_it_should_be = |table: &Arc<RouteTable>| {
        table
            .resolve(model)
            .is_ok_and(|route| route.endpoints.len() == endpoints)
    };
    routes.wait_for(as_it_should_be).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_declared_model_is_placed_and_routed_once_ready() {
    let running = controller(vec![model("m", "1GiB")]).await;
    let mut agent = running.agent().await;
    agent.report(ReplicaState::Ready).await;
    assert_eq!(agent.told().await.replicas.len(), 1);
    agent.report(ReplicaState::Starting).await;
    agent.report(ReplicaState::Ready).await;
    routed(&running.handle, "m", 1).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_added_model_outlives_the_control_plane_and_a_removed_one_does_not() {
    let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::starting_at(Timestamp(0)));
    let store = Arc::new(MemoryStore::new(Arc::clone(&clock)));
    let first = restarted(Vec::new(), Arc::clone(&store), Arc::clone(&clock)).await;
    for model in ["a", "b"] {
        let definition = serde_json::from_value(definition(model, "1GiB")).unwrap();
        first.handle.add(definition).await.unwrap();
    }
    first.handle.remove(&name("a")).await.unwrap();
    // No goodbye: the next start finds what was answered.
    drop(first);
    let second = restarted(Vec::new(), store, clock).await;
    let models = second.handle.models().await.unwrap();
    let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
    assert_eq!(names, ["b"]);
    second.stop().await;
}

#[tokio::test]
async fn what_changes_would_do_is_said_of_what_runs_and_nothing_is_done() {
    let running = controller(vec![model("m", "1GiB")]).await;
    let mut agent = running.agent().await;
    agent.report(ReplicaState::Ready).await;
    let replica = agent.told().await.replicas[0].id;
    agent.report(ReplicaState::Ready).await;
    routed(&running.handle, "m", 1).await;
    let entries = running.handle.audit(0, 1_000).await.unwrap();
    let nothing = running.handle.plan(&[]).await.unwrap();
    assert!(nothing.is_nothing(), "{nothing:?}");

    let fresh = serde_json::from_value(definition("new", "7GiB")).unwrap();
    let changes = [Change::Remove(name("m")), Change::Add(Box::new(fresh))];
    let outcome = running.handle.plan(&changes).await.unwrap();
    let stops: Vec<_> = outcome.stops.iter().map(|stop| stop.replica).collect();
    assert_eq!(stops, [replica]);
    let starts: Vec<&str> = outcome
        .starts
        .iter()
        .map(|start| start.hostname.as_str())
        .collect();
    assert_eq!(starts, ["box"]);
    let lost = [Change::Lose(agent.node.to_string())];
    let outcome = running.handle.plan(&lost).await.unwrap();
    assert_eq!(outcome.unplaceable[0].model, name("m"));
    let error = running.handle.plan(&[Change::Drain("x".into())]).await;
    let message = error.unwrap_err().message;
    assert_eq!(message, "changes[0].drain: there is no node x");

    let models = running.handle.models().await.unwrap();
    assert_eq!((models.len(), models[0].ready_replicas), (1, 1));
    assert_eq!(running.handle.audit(0, 1_000).await.unwrap(), entries);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_running_replica_is_adopted_and_not_doubled() {
    let running = controller(vec![model("m", "1GiB")]).await;
    let mut agent = running.agent().await;
    agent.report(ReplicaState::Ready).await;
    let replica = agent.told().await.replicas[0].id;
    agent.report(ReplicaState::Ready).await;
    routed(&running.handle, "m", 1).await;
    let (node, specs) = (agent.node, agent.desired.clone());
    let (store, clock) = (
        Arc::clone(&running.store),
        Arc::clone(&running.handle.shared.clock),
    );
    drop((running, agent));

    let running = restarted(vec![model("m", "1GiB")], store, clock).await;
    let mut agent = running.agent_of(node).await;
    agent.desired = specs;
    agent.report(ReplicaState::Ready).await;
    let replicas = &agent.told().await.replicas;
    assert_eq!(
        replicas.iter().map(|spec| spec.id).collect::<Vec<_>>(),
        [replica]
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fits_nowhere_is_answered_with_the_reason() {
    let running = controller(vec![model("big", "400GB")]).await;
    let mut agent = running.agent().await;
    agent.report(ReplicaState::Ready).await;
    agent.told().await;
    let waiting = running.handle.activate(&name("big")).await;
    let Some(Waiting::Unplaceable(reason)) = waiting else {
        panic!("{waiting:?}")
    };
    assert!(
        reason.contains("needs 372.5 GiB, has 8.0 GiB free, short by 364.5 GiB"),
        "{reason}"
    );
    let explained = running.handle.explain(&name("big")).await.unwrap();
    assert_eq!(explained.report.rejections.len(), 1);
    assert!(!explained.placed);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_catalog_refuses_what_it_must() {
    let running = controller(vec![model("declared", "1GiB")]).await;
    let add = |json: serde_json::Value| {
        let definition = serde_json::from_value(json).unwrap();
        let handle = running.handle.clone();
        async move { handle.add(definition).await }
    };
    add(definition("a", "1GiB")).await.unwrap();
    assert_eq!(
        add(definition("a", "1GiB")).await.unwrap_err().code,
        Code::Conflict
    );
    assert_eq!(
        add(definition("b c", "1GiB")).await.unwrap_err().code,
        Code::InvalidRequest
    );
    let mut sharded = definition("c", "1GiB");
    sharded["profiles"][0]["shards"] = serde_json::json!({"count": 2});
    let refused = add(sharded).await.unwrap_err();
    assert_eq!(refused.code, Code::InvalidRequest);
    assert!(
        refused
            .message
            .starts_with("profiles[0].shards: sharding over nodes"),
        "{}",
        refused.message
    );
    let remove = |model: &str| {
        let (handle, model) = (running.handle.clone(), name(model));
        async move { handle.remove(&model).await }
    };
    assert_eq!(remove("declared").await.unwrap_err().code, Code::Conflict);
    assert_eq!(remove("nobody").await.unwrap_err().code, Code::NotFound);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_simultaneous_additions_of_one_name_give_one_model() {
    let running = controller(Vec::new()).await;
    let add = || {
        let definition = serde_json::from_value(definition("a", "1GiB")).unwrap();
        let handle = running.handle.clone();
        async move { handle.add(definition).await }
    };
    let (first, second) = tokio::join!(add(), add());
    assert!(first.is_ok() ^ second.is_ok(), "{first:?} {second:?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_the_token_is_refused_with_the_reason() {
    let running = controller(Vec::new()).await;
    let hashing_key = HashingKey::from_bytes([7; 32]);
    let hash = hashing_key.hash("right");
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    running
        .handle
        .accept(theirs, Admission::Token { hashing_key, hash });
    let mut frames = Framed::new(ours, LengthDelimitedCodec::new());
    let hello = Hello {
        node: NodeId::generate(),
        token: Some("wrong".into()),
        protocol: PROTOCOL,
        agent_version: "0".into(),
        tells_logs: false,
    };
    send(&mut frames, &ToServer::Hello(hello)).await;
    let answer = receive(&mut frames).await;
    let Some(ToAgent::Refused { reason }) = answer else {
        panic!("{answer:?}")
    };
    assert!(reason.contains("agent.token"), "{reason}");
    assert_eq!(receive(&mut frames).await, None);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_node_that_is_heard_again_keeps_what_it_runs() {
    let running = controller(vec![model("m", "1GiB")]).await;
    let mut agent = running.agent().await;
    agent.report(ReplicaState::Ready).await;
    agent.told().await;
    agent.report(ReplicaState::Ready).await;
    routed(&running.handle, "m", 1).await;
    // The machine sleeps for longer than the grace; the stream stays open.
    let told = tokio::time::timeout(Duration::from_secs(25), agent.told()).await;
    assert!(told.is_err(), "a lost node was told {told:?}");
    assert_eq!(
        running.handle.nodes().await.unwrap()[0].state,
        NodeState::Lost
    );
    agent.report(ReplicaState::Ready).await;
    routed(&running.handle, "m", 1).await;
    while let Ok(told) = tokio::time::timeout(Duration::from_secs(1), agent.told()).await {
        assert_eq!(told.replicas.len(), 1, "{told:?}");
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_is_pointed_out_before_it_is_parked() {
    let running = controller(vec![model("m", "1GiB")]).await;
    let mut agent = running.agent().await;
    agent.report(ReplicaState::Ready).await;
    agent.told().await;
    agent.report(ReplicaState::Failed).await;
    // It is told to end what has failed: the failure was taken in.
    agent.told().await;
    let summary = running.handle.summary().await.unwrap();
    let line = "m has failed once: it broke; `llmgw ctl logs m` has what its engine wrote";
    assert!(
        summary.attention.iter().any(|told| told == line),
        "{summary:?}"
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_agent_has_ended_is_not_waited_for() {
    let running = controller(vec![model("m", "1GiB")]).await;
    let mut agent = running.agent().await;
    let mut other = running.agent().await;
    agent.report(ReplicaState::Ready).await;
    assert_eq!(agent.told().await.replicas.len(), 1);
    agent.report(ReplicaState::Ready).await;
    other.report(ReplicaState::Ready).await;
    routed(&running.handle, "m", 1).await;
    agent.leaving = true;
    let begun = tokio::time::Instant::now();
    agent.report_replicas(Vec::new()).await;
    while other.told().await.replicas.is_empty() {}
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    let summary = running.handle.summary().await.unwrap();
    assert!(
        summary
            .attention
            .iter()
            .any(|line| line.contains("has left")),
        "{summary:?}"
    );
    // It comes back.
    let mut again = running.agent_of(agent.node).await;
    again.report_replicas(Vec::new()).await;
    again.told().await;
    let nodes = running.handle.nodes().await.unwrap();
    assert!(nodes.iter().all(|node| node.state == NodeState::Ready));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn while_standing_down_nothing_is_decided() {
    let running = controller(vec![model("m", "1GiB")]).await;
    let mut agent = running.agent().await;
    agent.report(ReplicaState::Ready).await;
    agent.told().await;
    agent.report(ReplicaState::Ready).await;
    routed(&running.handle, "m", 1).await;
    running.handle.stand_down();
    agent.report(ReplicaState::Stopped).await;
    routed(&running.handle, "m", 0).await;
    let models = running.handle.models().await.unwrap();
    assert_eq!((models[0].failures, models[0].total_replicas), (0, 1));
    running.stop().await;
}
