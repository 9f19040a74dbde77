//! Lives of replicas with processes in memory, under a clock that a test moves: what takes minutes, and what no
//! real process does on demand.
#![cfg(feature = "testing")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't set itself up fails"
)]

#[path = "scene/in_memory.rs"]
mod in_memory;
#[path = "scene/replicas.rs"]
#[expect(dead_code, reason = "others use the rest")]
mod replicas;
#[path = "scene/home.rs"]
#[expect(dead_code, reason = "others use the rest")]
mod scene;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use llmgw_agent::{
    process::{Exit, ProcessRuntime},
    supervise::{
        Adoption, Ending, GpuMemory, NoGpuMemory, PORTS, SuperviseConfig, SuperviseDeps,
        Supervisor, Timing,
    },
    testing::{Call, Fault, Faulty},
};
use llmgw_core::{
    clock::SystemClock,
    cluster::replica::{ReplicaSpec, ReplicaState, ReplicaStatus},
    id::ReplicaId,
    units::Bytes,
};
use replicas::StandIn;
use scene::Home;
use serde_json::json;
use tokio::time::Instant;

use crate::in_memory::{Acts, Stage};

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_another_replicas_is_never_ready() {
    for (acts, problem) in [
        (
            Acts {
                name: Some("r-somebody-else".into()),
                ..Acts::default()
            },
            "another program",
        ),
        (
            Acts {
                tokenless: true,
                ..Acts::default()
            },
            "without one",
        ),
        (
            Acts {
                loading: true,
                ..Acts::default()
            },
            "503",
        ),
    ] {
        let (home, stage) = (Home::new(), Stage::new(acts));
        let supervisor = supervisor(&home, stage.runtime());
        let spec = home.spec(json!({}));
        let begin = Instant::now();
        supervisor.converge(std::slice::from_ref(&spec));
        let failed = reported(&supervisor, spec.id, ReplicaState::Failed).await;
        let error = failed.error.unwrap();
        assert!(error.contains(problem), "{error}");
        assert!(begin.elapsed() >= Timing::default().start_base);
        assert!(stage.world.running(spec.id).is_empty());
        supervisor.shutdown(Ending::StopEngines).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_falls_silent_is_ended_and_one_that_computes_is_given_time() {
    for busy in [false, true] {
        let (home, stage) = (Home::new(), Stage::new(Acts::default()));
        let supervisor = supervisor(&home, stage.runtime());
        let spec = home.spec(json!({}));
        supervisor.converge(std::slice::from_ref(&spec));
        reported(&supervisor, spec.id, ReplicaState::Ready).await;
        let begin = Instant::now();
        stage.change(|acts| {
            // The health check fails, and the question for its work is answered: by three requests, or none.
            acts.loading = true;
            acts.busy = if busy { 3 } else { 0 };
        });
        let failed = reported(&supervisor, spec.id, ReplicaState::Failed).await;
        assert!(failed.error.unwrap().contains("no health check"));
        let patience = Timing::default().busy_patience;
        assert_eq!(begin.elapsed() >= patience, busy, "{:?}", begin.elapsed());
        supervisor.shutdown(Ending::StopEngines).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_lasts_as_long_as_it_may_and_no_longer() {
    let (home, stage) = (Home::new(), Stage::new(Acts::default()));
    let supervisor = supervisor(&home, stage.runtime());
    let spec = home.spec(json!({}));
    supervisor.converge(std::slice::from_ref(&spec));
    reported(&supervisor, spec.id, ReplicaState::Ready).await;
    stage.change(|acts| acts.busy = 1);
    let begin = Instant::now();
    supervisor.shutdown(Ending::StopEngines).await;
    assert!(begin.elapsed() >= Timing::default().drain);
    assert!(stage.world.running(spec.id).is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_is_in_a_hurry_waits_neither_for_requests_nor_for_the_stubborn() {
    let acts = Acts {
        stubborn: true,
        ..Acts::default()
    };
    let (home, stage) = (Home::new(), Stage::new(acts));
    let supervisor = supervisor(&home, stage.runtime());
    let spec = home.spec(json!({}));
    supervisor.converge(std::slice::from_ref(&spec));
    reported(&supervisor, spec.id, ReplicaState::Ready).await;
    stage.change(|acts| acts.busy = 1);
    let begin = Instant::now();
    let hurry = async {
        tokio::time::sleep(SOON).await;
        supervisor.hurry().cancel();
    };
    tokio::join!(supervisor.shutdown(Ending::StopEngines), hurry);
    assert!(begin.elapsed() < SOON * 2, "{:?}", begin.elapsed());
    assert!(stage.world.running(spec.id).is_empty());
}

#[tokio::test(start_paused = true)]
async fn processes_that_can_not_be_ended_are_told_and_tried_again() {
    let (home, stage) = (Home::new(), Stage::new(Acts::default()));
    let runtime = Faulty::new(stage.runtime());
    let faults = runtime.faults().clone();
    let supervisor = supervisor(&home, runtime);
    let spec = home.spec(json!({}));
    supervisor.converge(std::slice::from_ref(&spec));
    reported(&supervisor, spec.id, ReplicaState::Ready).await;
    for _ in 0..3 {
        faults.next(Call::Stop, Fault::Fail);
    }
    supervisor.converge(&[]);
    let mut statuses = supervisor.statuses();
    let told = statuses.wait_for(|all| {
        all.get(&spec.id)
            .is_some_and(|one| one.state == ReplicaState::Draining && one.error.is_some())
    });
    told.await.unwrap();
    // Not said to have ended before it has.
    let mut statuses = supervisor.statuses();
    statuses
        .wait_for(|all| !all.contains_key(&spec.id))
        .await
        .unwrap();
    assert!(stage.world.running(spec.id).is_empty());
    assert!(home.entries().is_empty());
    supervisor.shutdown(Ending::StopEngines).await;
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_after_it_began_leaves_nothing() {
    let (home, stage) = (Home::new(), Stage::new(Acts::default()));
    let runtime = Faulty::new(stage.runtime());
    runtime.faults().next(Call::Start, Fault::LoseAnswer);
    let supervisor = supervisor(&home, runtime);
    let spec = home.spec(json!({}));
    supervisor.converge(std::slice::from_ref(&spec));
    let failed = reported(&supervisor, spec.id, ReplicaState::Failed).await;
    assert!(failed.error.unwrap().contains("a test asked for"));
    assert!(stage.world.running(spec.id).is_empty());
    assert!(home.entries().is_empty());
    supervisor.shutdown(Ending::StopEngines).await;
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_looked_at_is_neither_taken_over_nor_ended() {
    let (home, stage) = (Home::new(), Stage::new(Acts::default()));
    let before = supervisor(&home, stage.runtime());
    let spec = home.spec(json!({}));
    before.converge(std::slice::from_ref(&spec));
    reported(&before, spec.id, ReplicaState::Ready).await;
    before.shutdown(Ending::KeepEngines).await;

    let runtime = Faulty::new(stage.runtime());
    runtime.faults().next(Call::Leftovers, Fault::Fail);
    let after = supervisor(&home, runtime);
    after.adopt().await.unwrap_err();
    assert_eq!(stage.world.running(spec.id).len(), 2);
    after.shutdown(Ending::KeepEngines).await;

    let last = supervisor(&home, stage.runtime());
    let adoption = last.adopt().await.unwrap();
    assert_eq!(
        adoption,
        Adoption {
            adopted: 1,
            ended: 0
        }
    );
    reported(&last, spec.id, ReplicaState::Ready).await;
    last.shutdown(Ending::StopEngines).await;
    assert!(stage.world.running(spec.id).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_end_for_memory_is_told_with_the_limit() {
    let (home, stage) = (Home::new(), Stage::new(Acts::default()));
    let supervisor = supervisor(&home, stage.runtime());
    let spec = home.spec(json!({}));
    supervisor.converge(std::slice::from_ref(&spec));
    reported(&supervisor, spec.id, ReplicaState::Ready).await;
    let first = stage.world.running(spec.id).remove(0);
    stage.world.end(&first, Exit::Memory(Bytes::gib(2)));
    let failed = reported(&supervisor, spec.id, ReplicaState::Failed).await;
    let error = failed.error.unwrap();
    assert!(error.contains("more than 2.0 GiB of memory"), "{error}");
    assert!(failed.hint.unwrap().contains("memory"));
    supervisor.shutdown(Ending::StopEngines).await;
}

/// A GPU whose memory a test gives and takes.
#[derive(Debug, Default)]
struct Card(Mutex<Bytes>);

impl GpuMemory for Card {
    fn used(&self, _gpu: u32) -> Option<Bytes> {
        Some(*self.0.lock().unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_has_stopped_when_its_gpu_memory_is_back_and_the_next_waits_for_that() {
    let (home, stage) = (Home::new(), Stage::new(Acts::default()));
    // Slow enough for the card to be filled while it starts.
    stage.change(|acts| acts.loading = true);
    let card = Arc::new(Card::default());
    let supervisor = with_gpus(&home, stage.runtime(), Arc::clone(&card) as _);
    let on_gpu = || ReplicaSpec {
        gpus: vec![0],
        ..home.spec(json!({}))
    };
    let (first, second) = (on_gpu(), on_gpu());
    supervisor.converge(std::slice::from_ref(&first));
    reported(&supervisor, first.id, ReplicaState::Starting).await;
    *card.0.lock().unwrap() = Bytes::gib(20);
    stage.change(|acts| acts.loading = false);
    reported(&supervisor, first.id, ReplicaState::Ready).await;
    assert_eq!(home.entries()[0].gpu_memory[&0], Bytes::gib(20));

    // Its processes end at once; its memory does not.
    supervisor.converge(&[]);
    let mut problems = supervisor.gpu_problems();
    let problem = problems.wait_for(|all| !all.is_empty()).await.unwrap()[&0];
    assert_eq!(
        (problem.used, problem.expected),
        (Bytes::gib(20), Bytes::ZERO)
    );
    let statuses = supervisor.statuses().borrow().clone();
    assert_eq!(statuses[&first.id].state, ReplicaState::Draining);
    let error = statuses[&first.id].error.clone().unwrap();
    assert!(error.contains("GPU 0 is not back"), "{error}");
    assert!(stage.world.running(first.id).is_empty());
    supervisor.converge(std::slice::from_ref(&second));
    let mut statuses = supervisor.statuses();
    let waits = |one: &ReplicaStatus| one.state == ReplicaState::Fetching && one.error.is_some();
    statuses
        .wait_for(|all| all.get(&second.id).is_some_and(waits))
        .await
        .unwrap();
    assert!(stage.world.running(second.id).is_empty(), "the next waits");

    *card.0.lock().unwrap() = Bytes::ZERO;
    reported(&supervisor, second.id, ReplicaState::Ready).await;
    assert!(supervisor.gpu_problems().borrow().is_empty());
    assert!(!supervisor.statuses().borrow().contains_key(&first.id));
    supervisor.shutdown(Ending::StopEngines).await;
}

fn supervisor(home: &Home, runtime: impl ProcessRuntime) -> Supervisor {
    with_gpus(home, runtime, Arc::new(NoGpuMemory))
}

fn with_gpus(
    home: &Home,
    runtime: impl ProcessRuntime,
    gpu_memory: Arc<dyn GpuMemory>,
) -> Supervisor {
    let config = SuperviseConfig {
        data_dir: home.path().to_owned(),
        timing: Timing::default(),
        ports: PORTS,
    };
    let deps = SuperviseDeps {
        runtime: Arc::new(runtime),
        parts: StandIn::open(),
        clock: Arc::new(SystemClock::new()),
        gpu_memory,
    };
    config.build(deps).unwrap()
}

/// Waits until the replica is reported in this state: for ever, for time is not real here.
async fn reported(supervisor: &Supervisor, id: ReplicaId, state: ReplicaState) -> ReplicaStatus {
    let mut statuses = supervisor.statuses();
    let found = statuses
        .wait_for(|all| all.get(&id).is_some_and(|one| one.state == state))
        .await;
    found.unwrap()[&id].clone()
}

const SOON: Duration = Duration::from_secs(1);
