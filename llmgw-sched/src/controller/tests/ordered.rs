//! What is ordered, by operators and by the loop itself, reaches nodes and outlives the control plane.

use llmgw_core::{
    api::orders::EngineRequest,
    cluster::order::Order,
    control::{Audit as _, Engines as _},
};

use super::*;

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
