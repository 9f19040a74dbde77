//! Models on demand, as the gateway asks for them.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;
use llmgw_core::{control::Traffic, id::ReplicaId};

use super::*;

fn on_demand(name: &str, memory: &str) -> Model {
    let mut definition = definition(name, memory);
    definition["min_replicas"] = 0.into();
    definition["idle_timeout"] = "2s".into();
    serde_json::from_value(definition).unwrap()
}

#[tokio::test(start_paused = true)]
async fn fifty_calls_at_once_start_a_model_on_demand_once() {
    let running = controller(vec![on_demand("m", "1GiB")]).await;
    let handle = running.handle.clone();
    let mut agent = running.agent().await;
    agent.report(ReplicaState::Ready).await;
    assert_eq!(agent.told().await.replicas.len(), 0);
    let routes = handle.routes();
    let route = routes.borrow().resolve("m").unwrap().clone();
    let asleep = Waiting::Loading("m is not running: a call starts it".into());
    assert_eq!((route.on_demand, &route.waiting), (true, &asleep));

    let model = name("m");
    let asked = join_all((0..50).map(|_| handle.activate(&model))).await;
    let waits = |waiting: &Option<Waiting>| matches!(waiting, Some(Waiting::Loading(_)));
    assert!(asked.iter().all(waits), "{asked:?}");
    assert_eq!(agent.told().await.replicas.len(), 1);
    agent.report(ReplicaState::Ready).await;
    routed(&handle, "m", 1).await;
    assert_eq!(handle.activate(&model).await, None);

    // Nobody asks again: it ends. Asked again, it starts again.
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        agent.report(ReplicaState::Ready).await;
    }
    assert_eq!(agent.told().await.replicas.len(), 0);
    agent.report_replicas(Vec::new()).await;
    handle.activate(&model).await;
    assert_eq!(agent.told().await.replicas.len(), 1);
    let decisions = handle.decisions(None, 0, 100).await.unwrap();
    let verbs: Vec<&str> = decisions.iter().map(|one| one.what.verb()).collect();
    let expected = [
        "scaled", "placed", "scaled", "draining", "stopped", "scaled", "placed",
    ];
    assert_eq!(verbs, expected);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_model_that_was_asked_for_and_fits_nowhere_is_not_satisfied_and_tried_once_a_second() {
    let running = controller(vec![on_demand("m", "400GB")]).await;
    let handle = running.handle.clone();
    let mut agent = running.agent().await;
    agent.report(ReplicaState::Ready).await;
    agent.told().await;
    let satisfied = async || handle.summary().await.unwrap().models_satisfied;
    assert_eq!(satisfied().await, 1, "nobody has asked");
    let model = name("m");
    let attempts = async || {
        let decisions = handle.decisions(None, 0, 100).await.unwrap();
        let again = decisions.iter().map(|one| one.again + 1);
        again.sum::<u64>()
    };
    let first = handle.activate(&model).await;
    assert!(
        matches!(&first, Some(Waiting::Unplaceable(why)) if why.contains("short by")),
        "{first:?}"
    );
    assert_eq!(satisfied().await, 0);
    let tried = attempts().await;
    for _ in 0..20 {
        assert_eq!(handle.activate(&model).await, first);
    }
    assert_eq!(
        attempts().await,
        tried,
        "the last attempt stands for a second"
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_switched_off_says_so() {
    let mut off = definition("m", "1GiB");
    off["max_replicas"] = 0.into();
    let running = controller(vec![serde_json::from_value(off).unwrap()]).await;
    let routes = running.handle.routes();
    let waiting = routes.borrow().resolve("m").unwrap().waiting.clone();
    let expected = Waiting::Off("m is switched off: it is to have no replicas".into());
    assert_eq!(waiting, expected);
    running.stop().await;
}

/// A gateway that has given every replica so many calls, of which some are under way.
#[derive(Debug, Default)]
struct Counting {
    given: AtomicU64,
    under_way: AtomicU64,
}

impl Traffic for Counting {
    fn outstanding(&self, _: ReplicaId) -> u64 {
        self.under_way.load(Ordering::Relaxed)
    }

    fn calls(&self, _: ReplicaId) -> (u64, u64) {
        (self.given.load(Ordering::Relaxed), 0)
    }

    fn waiting(&self, _: &ModelName) -> u64 {
        0
    }

    fn requests(&self) -> u64 {
        0
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_says_for_how_long_it_has_been_idle() {
    let running = controller(vec![model("m", "1GiB")]).await;
    let calls = Arc::new(Counting::default());
    running
        .handle
        .observe_traffic(Arc::clone(&calls) as Arc<dyn Traffic>);
    let mut agent = running.agent().await;
    agent.report(ReplicaState::Ready).await;
    agent.told().await;
    let idle = async || running.handle.replicas(None).await.unwrap()[0].idle_seconds;
    assert_eq!(idle().await, -1, "its node has not told of it");
    agent.report(ReplicaState::Ready).await;
    routed(&running.handle, "m", 1).await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    let before = idle().await;
    assert!((6..=8).contains(&before), "{before}");
    calls.under_way.store(1, Ordering::Relaxed);
    assert_eq!(idle().await, 0, "at work");
    // A call that has come and gone between two steps counts too.
    calls.under_way.store(0, Ordering::Relaxed);
    calls.given.store(1, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = idle().await;
    assert!((1..=3).contains(&after), "{after}");
    running.stop().await;
}
