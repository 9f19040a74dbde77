use llmgw_core::{
    clock::Timestamp,
    cluster::{
        engine::ProvisionState,
        node::{self, Gpu},
        order::{Order, StoredOrder},
        replica::ReplicaSpec,
        scaling::Scaling,
    },
    fingerprint::Fingerprint,
    units::Bytes,
};

use super::{
    fleet::{fleet_fabrics, fleet_gpus},
    memory::PARKED_AFTER,
    *,
};
use crate::fleet::Phase;

mod demand;
mod drain;
mod machines;
mod parking;
mod pools;
mod properties;
mod roll;
mod silence;
mod swap;
mod waiting;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn model(replicas: u32) -> Model {
    serde_json::from_value(serde_json::json!({
        "name": "m", "source": "file:/m.gguf", "replicas": replicas,
        "profiles": [{"memory": "1GiB"}],
    }))
    .unwrap()
}

fn intent(replicas: u32) -> Intent {
    let model = model(replicas);
    Intent {
        models: BTreeMap::from([(model.name().clone(), model)]),
        engines: Vec::new(),
        policy: PolicyName::default(),
        sizes: Arc::default(),
        ..Intent::default()
    }
}

fn observed_node(at: u64) -> ObservedNode {
    ObservedNode {
        heard_at: seconds(at),
        left: false,
        revision: 0,
        facts: NodeFacts {
            hostname: "box".into(),
            memory: Some(node::Memory {
                total: Bytes::gib(8),
                allocatable: Bytes::gib(8),
            }),
            ..NodeFacts::default()
        },
        provision: vec![Provision::new(
            "llamacpp".parse().unwrap(),
            ProvisionState::Installed {
                version: "1".into(),
                variant: "path".into(),
            },
        )],
        weights: None,
        replicas: BTreeMap::new(),
    }
}

/// One node, the loop, and an agent that does as it is told.
struct Cluster {
    intent: Intent,
    observed: Observed,
    memory: Memory,
    node: NodeId,
    now: u64,
}

impl Cluster {
    fn new(replicas: u32) -> Self {
        let node = NodeId::generate();
        let observed = Observed {
            nodes: BTreeMap::from([(node, Arc::new(observed_node(0)))]),
            ..Observed::default()
        };
        Self {
            intent: intent(replicas),
            observed,
            memory: Memory::default(),
            node,
            now: 0,
        }
    }

    fn step(&mut self) -> Vec<Action> {
        let now = seconds(self.now);
        self.memory.observe(&self.intent, &self.observed, now);
        let step = step(&self.intent, &self.observed, &self.memory, now);
        for action in &step.actions {
            if let Action::Place {
                model,
                profile,
                node,
                gpus,
            } = action
            {
                let model = &self.intent.models[model];
                let profile = model.profile(profile).unwrap().clone();
                let spec = ReplicaSpec {
                    id: ReplicaId::generate(),
                    model: model.name().clone(),
                    fingerprint: model.fingerprint(&profile),
                    weights: model.weights().clone(),
                    profile,
                    gpus: gpus.clone(),
                };
                self.memory.given(spec, *node, now);
            }
            self.memory.apply(action, now);
        }
        step.actions
    }

    /// The agents report everything that was given to them, in this state.
    fn report(&mut self, state: ReplicaState) {
        for (id, node) in &mut self.observed.nodes {
            let node = Arc::make_mut(node);
            node.heard_at = seconds(self.now);
            let given = self.memory.assignments.values();
            node.replicas = given
                .filter(|given| given.node == *id)
                .map(|given| {
                    (
                        given.spec.id,
                        status(ReplicaSpec::clone(&given.spec), state),
                    )
                })
                .collect();
        }
    }

    /// Lets time pass, a second at a time, with agents that start at once what they are given; says what was decided.
    fn run(&mut self, span: u64) -> Vec<Action> {
        let mut decided = Vec::new();
        for _ in 0..span {
            self.now += 1;
            self.report(ReplicaState::Ready);
            decided.extend(self.step());
        }
        decided
    }

    /// The same with one more node.
    fn and_node(mut self) -> (Self, NodeId) {
        let node = NodeId::generate();
        self.observed
            .nodes
            .insert(node, Arc::new(observed_node(self.now)));
        (self, node)
    }

    fn order(&mut self, order: Order) {
        Arc::make_mut(&mut self.intent.orders).put(StoredOrder {
            order,
            by: "test".into(),
            since: Timestamp(0),
        });
    }

    fn nodes(&self) -> Vec<NodeId> {
        let given = self.memory.assignments.values();
        given.map(|given| given.node).collect()
    }

    fn target(&self) -> u32 {
        let model = self.intent.models.values().next().unwrap();
        self.memory.target(model)
    }

    fn only(&self) -> ReplicaId {
        let ids: Vec<&ReplicaId> = self.memory.assignments.keys().collect();
        assert_eq!(ids.len(), 1);
        *ids[0]
    }
}

fn status(spec: ReplicaSpec, state: ReplicaState) -> ReplicaStatus {
    ReplicaStatus {
        spec,
        state,
        since: Timestamp(0),
        endpoint: None,
        fetch: None,
        measured: None,
        error: (state == ReplicaState::Failed).then(|| "it broke".to_owned()),
        hint: None,
        log_tail: vec!["last words".to_owned()],
    }
}

fn stranger(model: &Model) -> ReplicaSpec {
    ReplicaSpec {
        id: ReplicaId::generate(),
        model: model.name().clone(),
        profile: model.profiles()[0].clone(),
        weights: model.weights().clone(),
        fingerprint: Fingerprint(0),
        gpus: Vec::new(),
    }
}

#[test]
fn what_is_missing_is_placed_once() {
    let mut cluster = Cluster::new(2);
    assert_eq!(cluster.step().len(), 2);
    assert_eq!(cluster.step(), []);
    cluster.report(ReplicaState::Ready);
    assert_eq!(cluster.step(), []);
}

#[test]
fn a_running_replica_is_adopted_before_anything_is_placed() {
    let mut cluster = Cluster::new(1);
    let spec = stranger(&model(1));
    let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
    node.replicas
        .insert(spec.id, status(spec.clone(), ReplicaState::Ready));
    let adopted = Action::Adopt {
        spec: Box::new(spec),
        node: cluster.node,
    };
    assert_eq!(cluster.step(), [adopted]);
    assert_eq!(cluster.step(), []);
}

#[test]
fn of_two_running_replicas_of_one_slot_only_one_is_adopted() {
    let mut cluster = Cluster::new(1);
    for _ in 0..2 {
        let spec = stranger(&model(1));
        let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
        node.replicas
            .insert(spec.id, status(spec, ReplicaState::Ready));
    }
    assert_eq!(cluster.step().len(), 1);
    assert_eq!(cluster.memory.assignments.len(), 1);
}

#[test]
fn nothing_is_placed_before_the_fleet_has_settled() {
    let mut cluster = Cluster::new(1);
    cluster.memory.settle_until = seconds(5);
    assert_eq!(cluster.step(), []);
    cluster.now = 5;
    assert_eq!(cluster.step().len(), 1);
}

#[test]
fn failures_back_off_and_then_park() {
    let mut cluster = Cluster::new(1);
    for failure in 1..=PARKED_AFTER {
        assert_eq!(
            cluster.step().len(),
            1,
            "failure {failure}: a replica is placed"
        );
        cluster.report(ReplicaState::Failed);
        let actions = cluster.step();
        assert!(
            matches!(actions[..], [Action::Fail { .. }, ..]),
            "{actions:?}"
        );
        assert_eq!(
            cluster.step(),
            [],
            "failure {failure}: not tried again at once"
        );
        cluster.now += 64;
        cluster.report(ReplicaState::Failed);
    }
    assert!(matches!(cluster.step()[..], [Action::Park { .. }]));
    assert_eq!(cluster.step(), []);
    let name: ModelName = "m".parse().unwrap();
    let model = model(1);
    let waiting = standing::waiting(
        &model,
        &cluster.observed,
        &cluster.memory,
        standing::Trial::default(),
        seconds(cluster.now),
    );
    let expected = "m failed 5 times in a row and is not tried again: it broke: last words";
    assert_eq!(waiting, llmgw_core::route::Waiting::Parked(expected.into()));
    assert_eq!(cluster.memory.histories[&name].first_log, ["last words"]);
    assert!(cluster.memory.absolve(&name));
    assert_eq!(cluster.step().len(), 1);
}

#[test]
fn a_model_that_crashes_soon_after_ready_still_parks() {
    let mut cluster = Cluster::new(1);
    for _ in 0..PARKED_AFTER {
        cluster.step();
        cluster.report(ReplicaState::Ready);
        cluster.step();
        cluster.now += 30;
        cluster.report(ReplicaState::Failed);
        cluster.step();
        cluster.now += 64;
        cluster.report(ReplicaState::Failed);
    }
    assert!(
        cluster
            .memory
            .histories
            .values()
            .all(|history| history.parked)
    );
}

#[test]
fn a_minute_of_service_absolves() {
    let mut cluster = Cluster::new(1);
    cluster.step();
    cluster.report(ReplicaState::Failed);
    cluster.step();
    cluster.now += 10;
    cluster.report(ReplicaState::Failed);
    cluster.step();
    cluster.report(ReplicaState::Ready);
    cluster.step();
    cluster.now += 60;
    cluster.report(ReplicaState::Ready);
    assert!(matches!(cluster.step()[..], [Action::Absolve { .. }]));
    assert!(cluster.memory.histories.is_empty());
}

#[test]
fn a_removed_model_drains_and_stops_when_its_calls_have_ended() {
    let mut cluster = Cluster::new(1);
    cluster.step();
    cluster.report(ReplicaState::Ready);
    let replica = cluster.only();
    cluster.observed.outstanding.insert(replica, 1);
    cluster.intent.models.clear();
    assert_eq!(
        cluster.step(),
        [Action::Drain {
            replica,
            why: Why::ModelRemoved
        }]
    );
    cluster.now += 1;
    assert_eq!(cluster.step(), []);
    cluster.observed.outstanding.clear();
    assert_eq!(
        cluster.step(),
        [Action::Stop {
            replica,
            why: Why::ModelRemoved
        }]
    );
    assert_eq!(
        cluster.step(),
        [],
        "a replica that was stopped is not adopted again"
    );
}

#[test]
fn a_call_that_never_ends_does_not_hold_a_removed_model() {
    let mut cluster = Cluster::new(1);
    cluster.step();
    cluster.report(ReplicaState::Ready);
    let replica = cluster.only();
    cluster.observed.outstanding.insert(replica, 1);
    cluster.intent.models.clear();
    cluster.step();
    cluster.now += 60;
    cluster.report(ReplicaState::Ready);
    assert_eq!(
        cluster.step(),
        [Action::Stop {
            replica,
            why: Why::ModelRemoved
        }]
    );
}

#[test]
fn a_replica_that_is_leaving_holds_its_memory_until_it_is_gone() {
    let mut cluster = Cluster::new(1);
    cluster.step();
    cluster.report(ReplicaState::Ready);
    cluster.intent.models.clear();
    cluster.step();
    let fleet = fleet(
        &cluster.intent,
        &cluster.observed,
        &cluster.memory,
        seconds(0),
    );
    assert_eq!(fleet.nodes[0].memory_reserved(), Bytes::gib(1));
    assert_eq!(fleet.nodes[0].replicas[0].phase, Phase::Leaving);
}

#[test]
fn a_lost_node_loses_its_replicas_without_blame() {
    let mut cluster = Cluster::new(1);
    cluster.step();
    cluster.report(ReplicaState::Ready);
    cluster.now = 16;
    let actions = cluster.step();
    assert!(
        matches!(
            actions[..],
            [
                Action::Forget {
                    why: Why::NodeLost,
                    ..
                },
                Action::Warn { .. }
            ]
        ),
        "{actions:?}"
    );
    assert!(cluster.memory.histories.is_empty());
    // When it is heard again with the replica still running, that one is taken back.
    let node = cluster.observed.nodes.get_mut(&cluster.node).unwrap();
    Arc::make_mut(node).heard_at = seconds(16);
    assert!(matches!(cluster.step()[..], [Action::Adopt { .. }]));
}

#[test]
fn a_replica_that_its_node_forgot_is_placed_again() {
    let mut cluster = Cluster::new(1);
    cluster.step();
    let replica = cluster.only();
    cluster
        .memory
        .assignments
        .get_mut(&replica)
        .unwrap()
        .revision = Some(3);
    let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
    node.revision = 3;
    assert_eq!(cluster.step(), []);
    cluster.now = 10;
    let actions = cluster.step();
    assert!(
        matches!(
            actions[..],
            [
                Action::Forget {
                    why: Why::Vanished,
                    ..
                },
                Action::Place { .. }
            ]
        ),
        "{actions:?}"
    );
}

#[test]
fn an_agent_that_ends_its_engines_is_no_failure_of_the_model() {
    let mut cluster = Cluster::new(1);
    cluster.step();
    cluster.report(ReplicaState::Ready);
    cluster.step();
    cluster.report(ReplicaState::Stopped);
    let actions = cluster.step();
    assert!(
        matches!(
            actions[..],
            [
                Action::Forget {
                    why: Why::AgentEnded,
                    ..
                },
                Action::Place { .. }
            ]
        ),
        "{actions:?}"
    );
    assert!(cluster.memory.histories.is_empty());
}
