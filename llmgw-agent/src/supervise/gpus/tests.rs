use std::{
    future::pending,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::*;

/// One GPU that holds what a test says; `None` when it can't be asked.
#[derive(Debug, Default)]
struct Fake(Mutex<Option<Bytes>>);

impl Fake {
    fn holds(&self, used: Bytes) {
        *self.0.lock().unwrap() = Some(used);
    }
}

impl GpuMemory for Fake {
    fn used(&self, _gpu: u32) -> Option<Bytes> {
        *self.0.lock().unwrap()
    }
}

fn scene(used: Bytes) -> (Arc<Fake>, Arc<Gpus>) {
    let fake = Arc::new(Fake::default());
    fake.holds(used);
    let gpus = Gpus::new(Arc::clone(&fake) as _);
    (fake, Arc::new(gpus))
}

/// Starts a replica that takes so much.
async fn start(fake: &Fake, gpus: &Gpus, takes: Bytes) -> ReplicaId {
    let id = ReplicaId::generate();
    let turn = gpus.turn(&[0]).await;
    gpus.begin(&turn, &[0]).await;
    fake.holds(fake.used(0).unwrap() + takes);
    let shares = gpus.ready(&turn, id, &[0]).await;
    assert_eq!(shares[&0], takes);
    id
}

#[tokio::test(start_paused = true)]
async fn an_end_lasts_until_the_memory_is_back() {
    let (fake, gpus) = scene(Bytes::gib(1));
    let first = start(&fake, &gpus, Bytes::gib(10)).await;
    let second = start(&fake, &gpus, Bytes::gib(4)).await;
    let late = AtomicUsize::new(0);
    let count = |_| {
        late.fetch_add(1, Ordering::Relaxed);
    };
    let ending = gpus.end(first, &[0], PATIENCE, &count, pending());
    tokio::pin!(ending);
    assert!(
        tokio::time::timeout(PATIENCE / 2, &mut ending)
            .await
            .is_err()
    );
    fake.holds(Bytes::gib(5));
    ending.await;
    assert_eq!(late.load(Ordering::Relaxed), 0);
    // The second holds its own, and the first is forgotten.
    fake.holds(Bytes::gib(1));
    gpus.end(second, &[0], PATIENCE, &count, pending()).await;
    assert!(gpus.problems().borrow().is_empty());
}

#[tokio::test(start_paused = true)]
async fn memory_that_does_not_come_back_is_said_and_taken_back_when_it_does() {
    let (fake, gpus) = scene(Bytes::gib(1));
    let id = start(&fake, &gpus, Bytes::gib(10)).await;
    let mut problems = gpus.problems();
    let tasks = tokio_util::task::TaskTracker::new();
    let ending = tasks.spawn({
        let gpus = Arc::clone(&gpus);
        async move { gpus.end(id, &[0], PATIENCE, &|_| {}, pending()).await }
    });
    let problem = problems.wait_for(|all| !all.is_empty()).await.unwrap()[&0];
    assert_eq!(problem.used, Bytes::gib(11));
    assert_eq!(problem.expected, Bytes::gib(1));
    let said = Failure::from(problem);
    assert!(said.error.contains("GPU 0 is not back"), "{said:?}");
    // A start waits for it.
    let turn = tokio::time::timeout(PATIENCE, gpus.turn(&[0])).await;
    assert!(turn.is_err());
    fake.holds(Bytes::gib(1));
    ending.await.unwrap();
    assert!(gpus.problems().borrow().is_empty());
    gpus.turn(&[0]).await;
}

#[tokio::test(start_paused = true)]
async fn memory_that_another_program_takes_does_not_block_the_gpu_for_ever() {
    let (fake, gpus) = scene(Bytes::gib(1));
    let id = start(&fake, &gpus, Bytes::gib(10)).await;
    let late = AtomicUsize::new(0);
    let count = |_| {
        late.fetch_add(1, Ordering::Relaxed);
    };
    gpus.end(id, &[0], PATIENCE, &count, pending()).await;
    assert_eq!(late.load(Ordering::Relaxed), 1);
    assert_eq!(gpus.problems().borrow().len(), 1);
    let next = start(&fake, &gpus, Bytes::gib(2)).await;
    fake.holds(Bytes::gib(11));
    gpus.end(next, &[0], PATIENCE, &count, pending()).await;
    assert!(gpus.problems().borrow().is_empty());
}

#[tokio::test(start_paused = true)]
async fn starts_on_a_gpu_go_one_after_the_other() {
    let (_fake, gpus) = scene(Bytes::gib(1));
    let first = gpus.turn(&[1, 0]).await;
    let second = tokio::time::timeout(PATIENCE, gpus.turn(&[0, 1])).await;
    assert!(second.is_err());
    tokio::time::timeout(PATIENCE, gpus.turn(&[2]))
        .await
        .unwrap();
    drop(first);
    gpus.turn(&[0, 1]).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_measured_before_the_agent_was_killed_still_counts() {
    let (fake, before) = scene(Bytes::gib(1));
    let id = start(&fake, &before, Bytes::gib(10)).await;
    let after = Gpus::new(Arc::clone(&fake) as _);
    after.adopt(id, &BTreeMap::from([(0, Bytes::gib(10))]));
    after.measure_adopted().await;
    let ending = after.end(id, &[0], PATIENCE, &|_| {}, pending());
    tokio::pin!(ending);
    assert!(
        tokio::time::timeout(PATIENCE / 2, &mut ending)
            .await
            .is_err()
    );
    fake.holds(Bytes::gib(1));
    ending.await;
}

#[tokio::test(start_paused = true)]
async fn a_gpu_that_can_not_be_asked_is_not_waited_for() {
    let gpus = Gpus::new(Arc::new(NoGpuMemory));
    let id = ReplicaId::generate();
    let turn = gpus.turn(&[0]).await;
    gpus.begin(&turn, &[0]).await;
    assert!(gpus.ready(&turn, id, &[0]).await.is_empty());
    drop(turn);
    let begin = Instant::now();
    gpus.end(id, &[0], PATIENCE, &|_| {}, pending()).await;
    assert!(begin.elapsed() < PATIENCE);
}

const PATIENCE: Duration = Duration::from_secs(10);
