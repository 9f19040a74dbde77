//! What the loop makes of what a machine has.

use llmgw_core::cluster::weights::{FetchProgress, Sha256Digest};

use super::*;

fn with_gpus(cluster: &mut Cluster, profile: serde_json::Value) {
    let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
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
    cluster
        .observed
        .nodes
        .insert(other, Arc::new(observed_node(0)));
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
        nodes: BTreeMap::from([(NodeId::generate(), Arc::new(node))]),
        ..Observed::default()
    };
    let fleet = fleet(&intent(1), &observed, &Memory::default(), seconds(1));
    assert_eq!(fleet.nodes[0].disk_free, Some(Bytes::gib(2)));
}

/// Two models of 6 GiB of weights each, on a node that has room for one.
fn with_weights(digests: [u8; 2]) -> Cluster {
    let mut cluster = Cluster::new(1);
    cluster.intent.models.clear();
    for (name, digest) in ["a", "b"].into_iter().zip(digests) {
        let model: Model = serde_json::from_value(serde_json::json!({
            "name": name, "source": "https://weights.example/m.gguf", "size": "6GiB",
            "sha256": Sha256Digest([digest; 32]), "profiles": [{"memory": "1GiB"}],
        }))
        .unwrap();
        cluster.intent.models.insert(model.name().clone(), model);
    }
    let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
    node.facts.disk = Some(node::Disk {
        mount: "/".into(),
        total: Bytes::gib(20),
        free: Bytes::gib(10),
        shared: false,
        source: None,
    });
    node.weights = Some(Vec::new());
    cluster
}

#[test]
fn room_on_a_disk_is_kept_for_weights_that_are_on_their_way() {
    let places = |actions: &[Action]| {
        let places = |action: &&Action| matches!(action, Action::Place { .. });
        actions.iter().filter(places).count()
    };
    let mut cluster = with_weights([1, 2]);
    assert_eq!(places(&cluster.step()), 1);
    for state in [ReplicaState::Placing, ReplicaState::Fetching] {
        cluster.report(state);
        assert_eq!(places(&cluster.step()), 0, "{state:?}");
    }
    // Half of it has come, which the disk shows.
    let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
    node.facts.disk.as_mut().unwrap().free = Bytes::gib(7);
    let status = node.replicas.values_mut().next().unwrap();
    let source = status.spec.weights.sources[0].clone();
    status.fetch = Some(FetchProgress::new(
        source,
        Bytes::gib(3),
        Some(Bytes::gib(6)),
    ));
    let free = |cluster: &Cluster| {
        let now = seconds(cluster.now);
        fleet(&cluster.intent, &cluster.observed, &cluster.memory, now).nodes[0].disk_free
    };
    assert_eq!(free(&cluster), Some(Bytes::gib(3)));
    // What serves has all its weights, wherever they lie.
    cluster.report(ReplicaState::Ready);
    assert_eq!(free(&cluster), Some(Bytes::gib(6)));
    assert_eq!(places(&cluster.step()), 1);
    // Those of the same weights share them.
    let mut sharing = with_weights([1, 1]);
    sharing.step();
    sharing.report(ReplicaState::Fetching);
    assert_eq!(free(&sharing), Some(Bytes::gib(3)));
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
        let node = Arc::make_mut(cluster.observed.nodes.get_mut(&cluster.node).unwrap());
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
