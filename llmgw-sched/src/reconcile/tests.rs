use llmgw_core::{
    clock::Timestamp,
    cluster::{engine::ProvisionState, node},
    fingerprint::Fingerprint,
    units::Bytes,
};

use super::*;
use crate::reconcile::memory::PARKED_AFTER;

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
            nodes: BTreeMap::from([(node, observed_node(0))]),
            outstanding: BTreeMap::new(),
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
        self.memory.observe(&self.observed, now);
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

    /// The agent reports everything that was given to it, in this state.
    fn report(&mut self, state: ReplicaState) {
        let specs: Vec<ReplicaSpec> = self
            .memory
            .assignments
            .values()
            .map(|given| given.spec.clone())
            .collect();
        let node = self.observed.nodes.get_mut(&self.node).unwrap();
        node.heard_at = seconds(self.now);
        node.replicas = specs
            .into_iter()
            .map(|spec| (spec.id, status(spec, state)))
            .collect();
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
    let node = cluster.observed.nodes.get_mut(&cluster.node).unwrap();
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
        let node = cluster.observed.nodes.get_mut(&cluster.node).unwrap();
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
        assert!(matches!(actions[..], [Action::Fail { .. }]), "{actions:?}");
        assert_eq!(
            cluster.step(),
            [],
            "failure {failure}: not tried again at once"
        );
        cluster.now += 64;
        cluster.report(ReplicaState::Failed);
    }
    assert_eq!(cluster.step(), []);
    let name: ModelName = "m".parse().unwrap();
    let model = model(1);
    let waiting = standing::waiting(
        &model,
        &cluster.observed,
        &cluster.memory,
        None,
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
            [Action::Forget {
                why: Why::NodeLost,
                ..
            }]
        ),
        "{actions:?}"
    );
    assert!(cluster.memory.histories.is_empty());
    // When it is heard again with the replica still running, that one is taken back.
    cluster
        .observed
        .nodes
        .get_mut(&cluster.node)
        .unwrap()
        .heard_at = seconds(16);
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
    let node = cluster.observed.nodes.get_mut(&cluster.node).unwrap();
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

fn with_gpus(cluster: &mut Cluster, profile: serde_json::Value) {
    let node = cluster.observed.nodes.get_mut(&cluster.node).unwrap();
    let gpu = |index| Gpu {
        index,
        vendor: "nvidia".into(),
        class: Some("H100".into()),
        memory_total: Some(Bytes::gib(80)),
        memory_others: Some(Bytes::ZERO),
        fault: (index == 0).then(|| "XID 79".to_owned()),
        ..Gpu::default()
    };
    node.facts.gpus = Some(vec![gpu(0), gpu(1)]);
    let model: Model = serde_json::from_value(serde_json::json!({
        "name": "m", "source": "file:/m.gguf", "replicas": 2, "profiles": [profile],
    }))
    .unwrap();
    cluster.intent.models.insert(model.name().clone(), model);
}

#[test]
fn starts_on_one_gpu_wait_for_each_other_and_keep_their_room() {
    let mut cluster = Cluster::new(1);
    with_gpus(
        &mut cluster,
        serde_json::json!({"memory": "1GiB", "gpus": {"count": 1, "memory": "30GiB"}}),
    );
    let placed = |actions: &[Action]| {
        let gpus = actions.iter().filter_map(|action| match action {
            Action::Place { gpus, .. } => Some(gpus.clone()),
            _ => None,
        });
        gpus.collect::<Vec<_>>()
    };
    // Both fit on the GPU that works; the second waits until the first serves.
    assert_eq!(placed(&cluster.step()), [vec![1]]);
    cluster.report(ReplicaState::Starting);
    assert_eq!(placed(&cluster.step()), Vec::<Vec<u32>>::new());
    cluster.report(ReplicaState::Ready);
    assert_eq!(placed(&cluster.step()), [vec![1]]);
    let fleet = fleet(
        &cluster.intent,
        &cluster.observed,
        &cluster.memory,
        seconds(0),
    );
    let shares: Vec<Option<Bytes>> = fleet.nodes[0]
        .replicas
        .iter()
        .map(|r| r.gpus[0].memory)
        .collect();
    assert_eq!(shares, [Some(Bytes::gib(30)); 2]);
}

#[test]
fn a_model_with_shards_is_explained_and_never_started() {
    let mut cluster = Cluster::new(1);
    let other = NodeId::generate();
    cluster.observed.nodes.insert(other, observed_node(0));
    with_gpus(
        &mut cluster,
        serde_json::json!({"memory": "1GiB", "shards": {"count": 2}}),
    );
    let step = step(
        &cluster.intent,
        &cluster.observed,
        &cluster.memory,
        seconds(0),
    );
    assert_eq!(step.actions, []);
    assert!(step.reports.values().next().unwrap().fits.is_some());
}

#[test]
fn cards_that_have_no_number_of_their_own_are_numbered_by_their_place() {
    let card = Gpu {
        index: 0,
        vendor: "amd".into(),
        memory_total: Some(Bytes::ZERO),
        memory_others: Some(Bytes::ZERO),
        ..Gpu::default()
    };
    let gpus = fleet_gpus(&[card.clone(), card]);
    assert_eq!(gpus.iter().map(|gpu| gpu.index).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(gpus[0].memory, None);
}

#[test]
fn what_the_agent_keeps_free_of_its_disk_is_not_placed_on() {
    let mut node = observed_node(1);
    node.facts.disk = Some(node::Disk {
        mount: "/".into(),
        total: Bytes::gib(10),
        free: Bytes::gib(3),
        shared: false,
        source: None,
    });
    let observed = Observed {
        nodes: BTreeMap::from([(NodeId::generate(), node)]),
        ..Observed::default()
    };
    let fleet = fleet(&intent(1), &observed, &Memory::default(), seconds(1));
    assert_eq!(fleet.nodes[0].disk_free, Some(Bytes::gib(2)));
}

#[test]
fn what_others_use_of_a_gpu_is_not_given_out() {
    let card = |others| Gpu {
        memory_total: Some(Bytes::gib(80)),
        memory_others: others,
        ..Gpu::default()
    };
    let free = |others| {
        let gpu = fleet_gpus(&[card(others)]).remove(0);
        (gpu.memory, gpu.in_use, gpu.fault.is_some())
    };
    // A display leaves the card whole; a training job leaves what is left; what nobody could ask is not free.
    assert_eq!(
        free(Some(Bytes::gib(1))),
        (Some(Bytes::gib(79)), false, false)
    );
    assert_eq!(
        free(Some(Bytes::gib(60))),
        (Some(Bytes::gib(20)), true, false)
    );
    assert_eq!(free(Some(Bytes::gib(80))), (None, true, true));
    assert_eq!(free(None), (None, false, false));
}

#[test]
fn a_gpu_that_others_use_is_shared_and_never_given_out_whole() {
    let placed = |gpus: serde_json::Value| {
        let mut cluster = Cluster::new(1);
        with_gpus(
            &mut cluster,
            serde_json::json!({"memory": "1GiB", "gpus": gpus}),
        );
        let node = cluster.observed.nodes.get_mut(&cluster.node).unwrap();
        for gpu in node.facts.gpus.iter_mut().flatten() {
            gpu.memory_others = Some(Bytes::gib(60));
        }
        let step = step(
            &cluster.intent,
            &cluster.observed,
            &cluster.memory,
            seconds(0),
        );
        let place = |action: &&Action| matches!(action, Action::Place { .. });
        step.actions.iter().filter(place).count()
    };
    assert_eq!(placed(serde_json::json!({"count": 1})), 0);
    assert_eq!(
        placed(serde_json::json!({"count": 1, "memory": "30GiB"})),
        0
    );
    assert_eq!(
        placed(serde_json::json!({"count": 1, "memory": "15GiB"})),
        1
    );
}

#[test]
fn a_node_is_on_the_networks_of_its_ports_that_are_up() {
    let port = |kind: &str, name: Option<&str>, up| node::Fabric {
        kind: kind.into(),
        name: name.map(str::to_owned),
        port: "mlx5_0/1".into(),
        gbps: Some(400),
        up,
    };
    let mut facts = observed_node(1).facts;
    facts.fabrics = Some(vec![
        port("infiniband", Some("infiniband"), true),
        port("infiniband", Some("infiniband"), true),
        port("roce", Some("roce-10.0.0.0/24"), false),
        port("ethernet", None, true),
    ]);
    let names = |facts: &NodeFacts| {
        let fabrics = fleet_fabrics(facts).into_iter();
        fabrics.map(|fabric| fabric.name).collect::<Vec<_>>()
    };
    assert_eq!(names(&facts), ["infiniband"]);
    facts
        .labels
        .insert("fabric.infiniband".into(), "hall-2".into());
    assert_eq!(names(&facts), ["hall-2"]);
}
