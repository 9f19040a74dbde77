//! What is ordered, by operators and by the loop itself, reaches nodes and outlives the control plane.

use llmgw_core::{
    api::orders::{EngineRequest, NodeStateRequest, NodeUse, RollRequest},
    cluster::order::Order,
    control::Engines as _,
};

use super::*;
use crate::conductor::snapshot::Entry;

#[tokio::test(start_paused = true)]
async fn what_the_loop_parks_is_kept_and_found_by_the_next_control_plane() {
    let running = controller(vec![model("m", "1GiB")]).await;
    let store = Arc::clone(&running.store);
    let mut agent = running.agent().await;
    for _ in 0..5_000 {
        if !store.orders().await.unwrap().is_empty() {
            break;
        }
        agent.report(ReplicaState::Failed).await;
        drop(tokio::time::timeout(Duration::from_secs(1), agent.told()).await);
    }
    let orders = store.orders().await.unwrap();
    let [stored] = orders.as_slice() else {
        panic!("{orders:?}");
    };
    let Order::Park { parked, .. } = &stored.order else {
        panic!("{stored:?}");
    };
    assert_eq!((parked.failures, parked.error.as_str()), (5, "it broke"));
    running.stop().await;

    let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::starting_at(Timestamp(0)));
    let next = restarted(vec![model("m", "1GiB")], Arc::clone(&store), clock).await;
    let mut agent = next.agent().await;
    agent.report_replicas(Vec::new()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let models = next.handle.models().await.unwrap();
    assert!(models[0].parked, "{models:?}");
    next.handle.retry(&name("m")).await.unwrap();
    assert!(store.orders().await.unwrap().is_empty());
    let log = next.handle.audit(0, 10).await.unwrap();
    let told: Vec<(&str, &str)> = log
        .iter()
        .map(|entry| (entry.actor.as_str(), entry.action.as_str()))
        .collect();
    assert_eq!(told, [("llmgw", "model.park"), ("admin", "model.retry")]);
    next.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_chosen_engine_is_told_to_nodes_at_once_and_so_is_its_end() {
    let running = controller(Vec::new()).await;
    let mut agent = running.agent().await;
    agent.report_replicas(Vec::new()).await;
    assert!(agent.told().await.engines.is_empty());
    let request = EngineRequest {
        name: "llamacpp".parse().unwrap(),
        version: Some("b11000".into()),
        source: None,
        variant: None,
    };
    running.handle.choose(request).await.unwrap();
    let told = agent.told().await;
    assert_eq!(told.engines[0].version(), "b11000");
    let lifted = running
        .handle
        .unchoose(&"llamacpp".parse().unwrap())
        .await
        .unwrap();
    assert_eq!(lifted.wanted, None);
    assert!(agent.told().await.engines.is_empty());
    running.stop().await;
}

/// A model that is ready on the only node, which has room for one.
async fn one_that_serves() -> (Running, ScriptedAgent) {
    let running = controller(Vec::new()).await;
    let added = serde_json::from_value(definition("m", "5GiB")).unwrap();
    running.handle.add(added).await.unwrap();
    let mut agent = running.agent().await;
    agent.report(ReplicaState::Ready).await;
    while agent.told().await.replicas.is_empty() {}
    agent.report(ReplicaState::Ready).await;
    routed(&running.handle, "m", 1).await;
    (running, agent)
}

async fn attention(running: &Running, begins: &str) -> Option<String> {
    let summary = running.handle.summary().await.unwrap();
    let mut lines = summary.attention.into_iter();
    lines.find(|line| line.starts_with(begins))
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_waits_for_room_says_so_and_goes_on_by_force() {
    let (running, mut agent) = one_that_serves().await;
    let drain = |force| NodeStateRequest {
        force,
        ..NodeUse::Draining.into()
    };
    let answer = running.handle.use_node("box", drain(false)).await.unwrap();
    assert_eq!(answer.state, NodeState::Draining);
    let says = "box is draining and keeps m: no room for its successor. Nearest: box";
    let line = attention(&running, says).await.unwrap();
    let helps = "; `llmgw ctl drain box --force` stops it first";
    assert!(line.ends_with(helps), "{line}");
    routed(&running.handle, "m", 1).await;

    running.handle.use_node("box", drain(true)).await.unwrap();
    routed(&running.handle, "m", 0).await;
    while !agent.told().await.replicas.is_empty() {}
    let log = running.handle.audit(1, 10).await.unwrap();
    let told: Vec<&str> = log.iter().map(|entry| entry.subject.as_str()).collect();
    let node = agent.node;
    assert_eq!(
        told,
        [format!("{node} draining"), format!("{node} draining force")]
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_roll_that_waits_for_room_says_so_and_goes_on_by_force() {
    let (running, mut agent) = one_that_serves().await;
    let old = agent.desired.as_ref().unwrap().replicas[0].id;
    let mut other = model("m", "5GiB");
    other = serde_json::from_value(serde_json::json!({
        "name": other.name(), "source": "file:/new.gguf", "profiles": [{"memory": "5GiB"}],
    }))
    .unwrap();
    let entry = Box::new(Entry::added(other, Timestamp(0)));
    let edited = conductor::Event::Added { entry };
    running.handle.shared.tell(edited).await.unwrap();

    let own = name("m");
    let roll = |force| running.handle.roll_model(&own, RollRequest { force });
    assert!(!roll(false).await.unwrap().force);
    // The roll is begun in one step, and finds no room in the next.
    let mut line = None;
    while line.is_none() {
        agent.report(ReplicaState::Ready).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        line = attention(&running, "m is rolled, and waits: no room").await;
    }
    let helps = "; `llmgw ctl roll m --force` stops the old one first";
    assert!(line.as_ref().unwrap().ends_with(helps), "{line:?}");

    let rolled = roll(true).await.unwrap();
    assert_eq!((rolled.number, rolled.force), (2, true));
    loop {
        let told = agent.told().await;
        if told.replicas.iter().any(|spec| spec.id != old) {
            break;
        }
        agent.report(ReplicaState::Ready).await;
    }
    running.stop().await;
}
