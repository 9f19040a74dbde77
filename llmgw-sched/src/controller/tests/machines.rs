//! What agents find on their machines, as operators see it and as it is placed on.

use llmgw_core::cluster::{
    engine::EngineSource,
    node::{Disk, Fabric, Gpu},
};

use super::*;

/// Two cards, of which one is broken and of the other others use a part.
fn two_cards() -> Vec<Gpu> {
    let card = |index, fault: Option<&str>| Gpu {
        index,
        vendor: "nvidia".into(),
        class: Some("H200".into()),
        memory_total: Some(Size::gib(140)),
        memory_others: Some(Size::gib(1)),
        fault: fault.map(str::to_owned),
        ..Gpu::default()
    };
    vec![card(0, Some("it has fallen off the bus")), card(1, None)]
}

#[tokio::test(start_paused = true)]
async fn a_model_on_gpus_runs_on_the_card_that_works_and_the_node_says_so() {
    let on_gpu: Model = serde_json::from_value(serde_json::json!({
        "name": "m", "source": "file:/m.gguf",
        "profiles": [{"memory": "1GiB", "gpus": {"count": 1, "class": "h200", "memory": "139GiB"}}],
    }))
    .unwrap();
    let running = controller(vec![on_gpu]).await;
    let mut agent = running.agent().await;
    agent.facts.gpus = Some(two_cards());
    agent.facts.management_address = Some("10.0.0.7".into());
    agent.facts.fabrics = Some(vec![Fabric {
        kind: Fabric::INFINIBAND.into(),
        name: Some("infiniband".into()),
        port: "mlx5_0/1".into(),
        gbps: Some(400),
        up: true,
    }]);
    agent.facts.disk = Some(Disk {
        mount: "/".into(),
        total: Size::gib(500),
        free: Size::gib(99) + Size::mib(900),
        shared: false,
        source: None,
    });
    agent.report(ReplicaState::Ready).await;
    assert_eq!(agent.told().await.replicas[0].gpus, [1]);
    let node = running.handle.nodes().await.unwrap().remove(0);
    assert_eq!((node.gpu_total, node.gpu_free), (Some(2), Some(0)));
    assert_eq!(node.gpu_classes.unwrap(), ["H200"]);
    let sick = node.unhealthy_gpus.unwrap();
    assert_eq!(
        (sick.len(), sick[0].index, sick[0].fault.as_str()),
        (1, 0, "it has fallen off the bus")
    );
    assert_eq!(node.mgmt_addr.as_deref(), Some("10.0.0.7"));
    assert_eq!(node.fabrics.unwrap()[0].name.as_deref(), Some("infiniband"));
    let sizes = (node.memory_gb, node.disk_free_gb, node.disk_total_gb);
    assert_eq!(sizes, (Some(8), Some(99), Some(500)));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_could_not_see_is_absent_and_not_nothing() {
    let running = controller(vec![model("m", "1GiB")]).await;
    let mut agent = running.agent().await;
    agent.report(ReplicaState::Ready).await;
    agent.told().await;
    let node = running.handle.nodes().await.unwrap().remove(0);
    assert_eq!((node.gpu_total, node.gpu_free), (None, None));
    assert_eq!((node.gpu_classes, node.unhealthy_gpus), (None, None));
    assert_eq!((node.fabrics, node.mgmt_addr), (None, None));
    assert_eq!((node.disk_free_gb, node.disk_total_gb), (None, None));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_fell_silent_at_once_freeze_moves_until_an_operator_gives_them_up() {
    let running = controller(vec![model("m", "1GiB")]).await;
    let nothing = running.handle.thaw().await.unwrap_err();
    assert_eq!(nothing.code, Code::Conflict);
    let mut one = running.agent().await;
    let mut two = running.agent().await;
    one.report(ReplicaState::Ready).await;
    one.told().await;
    two.report(ReplicaState::Ready).await;
    two.told().await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    let summary = running.handle.summary().await.unwrap();
    let frozen = summary.frozen.unwrap();
    assert_eq!((frozen.silent.len(), frozen.of), (2, 2));
    assert!(frozen.seconds > 15, "{frozen:?}");
    assert!(summary.attention.contains(&frozen.to_string()));
    let placed = |running: &Running| running.handle.shared.snapshot().memory.assignments.len();
    assert_eq!(placed(&running), 1);

    let thawed = running.handle.thaw().await.unwrap().thawed;
    assert_eq!(thawed.silent, frozen.silent);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let summary = running.handle.summary().await.unwrap();
    assert_eq!(summary.frozen, None);
    assert_eq!(placed(&running), 0, "what they ran is let go");
    let log = running.handle.audit(0, 10).await.unwrap();
    assert_eq!((log[0].action.as_str(), log.len()), ("fleet.thaw", 1));
    assert_eq!(log[0].subject, thawed.subject());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_of_a_pool_is_told_to_its_nodes_alone_and_views_say_who_is_in_it() {
    let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::starting_at(Timestamp(0)));
    let labels = [("gpu".to_owned(), "h200".to_owned())];
    let pooled = |name: &str, pool: Option<&str>| WantedEngine {
        pool: pool.map(str::to_owned),
        ..WantedEngine::new(name.parse().unwrap(), EngineSource::Auto)
    };
    let pools = [("fast".to_owned(), labels.clone().into())];
    let terms = Terms {
        engines: vec![pooled("llamacpp", None), pooled("vllm", Some("fast"))],
        pools: Pools::checked(pools.into()).unwrap(),
        declared: vec![
            serde_json::from_value(serde_json::json!({
                "name": "m", "source": "file:/m.gguf", "profiles": [{"memory": "1GiB", "pool": "fast"}],
            }))
            .unwrap(),
        ],
        ..Terms::default()
    };
    let config = ControllerConfig { terms, ..alone() };
    let store = Arc::new(MemoryStore::new(Arc::clone(&clock)));
    let running = started(config, store, clock, None).await;
    let mut slow = running.agent().await;
    slow.report(ReplicaState::Ready).await;
    let told = slow.told().await;
    assert_eq!((told.engines.len(), told.replicas.len()), (1, 0));
    let mut fast = running.agent().await;
    fast.facts.hostname = "fast".into();
    fast.facts.labels = labels.into();
    fast.report(ReplicaState::Ready).await;
    let told = fast.told().await;
    assert_eq!((told.engines.len(), told.replicas.len()), (2, 1));

    let nodes = running.handle.nodes().await.unwrap();
    let of: Vec<_> = nodes
        .iter()
        .map(|one| (one.hostname.as_str(), one.pools.len()))
        .collect();
    assert_eq!(of, [("box", 0), ("fast", 1)]);
    let replicas = running.handle.replicas(None).await.unwrap();
    assert_eq!(replicas[0].pool.as_deref(), Some("fast"));
    let settings = running.handle.settings().await.unwrap();
    assert_eq!(settings.pools["fast"]["gpu"], "h200");
    running.stop().await;
}
