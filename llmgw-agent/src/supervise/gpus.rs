//! The memory of the GPUs that replicas use: whose start may measure it, and whether it came back.
//!
//! A driver frees a GPU's memory some time after the last process has ended, and an engine that starts meanwhile
//! takes what it sees for all that there is. So starts on a GPU go one after the other, each measured from its
//! beginning until it is ready, and after a replica's end its GPUs are watched until they hold what the others
//! hold, and no more.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use llmgw_core::{cluster::replica::GpuMemoryUse, id::ReplicaId, units::Bytes};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::Instant,
};

use super::Failure;

/// Tells how much of a GPU's memory is used now.
///
/// # Contract
/// * A GPU is named by its number in the node's facts, which replicas' specs use too.
/// * `used` counts all programs' use. It is `None` when that can't be told, never zero then.
/// * It may block for as long as a driver does.
pub trait GpuMemory: Debug + Send + Sync + 'static {
    /// The memory of this GPU that is used now.
    fn used(&self, gpu: u32) -> Option<Bytes>;

    /// What these processes hold of this GPU now; `None` where a driver does not tell that by process, or knows the
    /// processes by other numbers.
    fn held_by(&self, gpu: u32, pids: &BTreeSet<u32>) -> Option<Bytes> {
        let _ = (gpu, pids);
        None
    }
}

/// A machine whose GPUs can't be asked: nothing is waited for.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoGpuMemory;

impl GpuMemory for NoGpuMemory {
    fn used(&self, _gpu: u32) -> Option<Bytes> {
        None
    }
}

/// A GPU whose memory did not come back after a replica had ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("memory of GPU {gpu} is not back: {used} are used, and {expected} should be")]
pub struct GpuNotBack {
    /// Which one.
    pub gpu: u32,
    /// What is used.
    pub used: Bytes,
    /// What others use, as far as that was measured.
    pub expected: Bytes,
}

/// The GPUs of one node.
#[derive(Debug)]
pub(super) struct Gpus {
    memory: Arc<dyn GpuMemory>,
    turns: Mutex<BTreeMap<u32, Arc<Semaphore>>>,
    uses: Mutex<BTreeMap<u32, Use>>,
    problems: watch::Sender<BTreeMap<u32, GpuNotBack>>,
}

/// What a GPU's memory is used for.
#[derive(Debug, Default)]
struct Use {
    /// What no replica uses, when it was last measured.
    foreign: Option<Bytes>,
    /// What each replica used when it was ready.
    shares: BTreeMap<ReplicaId, Bytes>,
}

/// The right to change what some GPUs hold; others wait until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _permits: Vec<OwnedSemaphorePermit>,
}

impl Gpus {
    pub(super) fn new(memory: Arc<dyn GpuMemory>) -> Self {
        Self {
            memory,
            turns: Mutex::default(),
            uses: Mutex::default(),
            problems: watch::Sender::default(),
        }
    }

    /// GPUs whose memory is not back.
    pub(super) fn problems(&self) -> watch::Receiver<BTreeMap<u32, GpuNotBack>> {
        self.problems.subscribe()
    }

    /// Waits until no other start or end is under way on these GPUs.
    pub(super) async fn turn(&self, gpus: &[u32]) -> Turn {
        let mut gpus = gpus.to_vec();
        // In one order, so that no two wait for each other.
        gpus.sort_unstable();
        gpus.dedup();
        let mut permits = Vec::new();
        for gpu in gpus {
            let turn = {
                let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
                Arc::clone(
                    turns
                        .entry(gpu)
                        .or_insert_with(|| Arc::new(Semaphore::new(1))),
                )
            };
            // It fails only when it is closed, which nobody does.
            permits.extend(turn.acquire_owned().await);
        }
        Turn { _permits: permits }
    }

    /// Measures before a start, of which `turn` says that it is the only one.
    pub(super) async fn begin(&self, _turn: &Turn, gpus: &[u32]) {
        for gpu in gpus {
            let used = self.used(*gpu).await;
            let mut uses = self.uses();
            let one = uses.entry(*gpu).or_default();
            let shares: Bytes = one.shares.values().copied().sum();
            one.foreign = used.map(|used| Bytes(used.0.saturating_sub(shares.0)));
            drop(uses);
            // What did not come back is taken for another program's from here on.
            self.clear(*gpu);
        }
    }

    /// Measures what a replica that is ready now has taken. What can't be told is absent.
    pub(super) async fn ready(
        &self,
        _turn: &Turn,
        id: ReplicaId,
        gpus: &[u32],
    ) -> BTreeMap<u32, Bytes> {
        let mut shares = BTreeMap::new();
        for gpu in gpus {
            let used = self.used(*gpu).await;
            let mut uses = self.uses();
            let one = uses.entry(*gpu).or_default();
            if let (Some(used), Some(expected)) = (used, one.expected()) {
                let share = Bytes(used.0.saturating_sub(expected.0));
                one.shares.insert(id, share);
                shares.insert(*gpu, share);
            }
        }
        shares
    }

    /// What a replica holds of its GPUs: what the driver says of its processes, else what it had taken when it was ready.
    pub(super) async fn held(
        &self,
        id: ReplicaId,
        gpus: &[u32],
        pids: &BTreeSet<u32>,
    ) -> Vec<GpuMemoryUse> {
        let mut held = Vec::new();
        for gpu in gpus {
            let (memory, asked, pids) = (Arc::clone(&self.memory), *gpu, pids.clone());
            let told = tokio::task::spawn_blocking(move || memory.held_by(asked, &pids));
            let told = told.await.ok().flatten();
            let share = || self.uses().get(gpu)?.shares.get(&id).copied();
            held.extend(
                told.or_else(share)
                    .map(|memory| GpuMemoryUse { gpu: *gpu, memory }),
            );
        }
        held
    }

    /// Takes over what an earlier life of the agent has measured.
    pub(super) fn adopt(&self, id: ReplicaId, shares: &BTreeMap<u32, Bytes>) {
        let mut uses = self.uses();
        for (gpu, share) in shares {
            uses.entry(*gpu).or_default().shares.insert(id, *share);
        }
    }

    /// Measures what others use, after all replicas of an earlier life were taken over.
    pub(super) async fn measure_adopted(&self) {
        let gpus: Vec<u32> = self.uses().keys().copied().collect();
        let turn = self.turn(&gpus).await;
        self.begin(&turn, &gpus).await;
    }

    /// Waits until the memory of a replica that has ended is free again. Says what is wrong after `patience`
    /// through `late`, waits on until `give_up`, and then takes what is still used for another program's.
    pub(super) async fn end(
        &self,
        id: ReplicaId,
        gpus: &[u32],
        patience: Duration,
        late: &(dyn Fn(GpuNotBack) + Send + Sync),
        give_up: impl Future<Output = ()> + Send,
    ) {
        for one in self.uses().values_mut() {
            one.shares.remove(&id);
        }
        if gpus.is_empty() {
            return;
        }
        // A start that is under way there changes what is used all the time: nothing can be told then.
        let Ok(_turn) = tokio::time::timeout(patience, self.turn(gpus)).await else {
            return;
        };
        let back = async {
            for gpu in gpus {
                self.back(*gpu, patience, late).await;
            }
        };
        tokio::select! {
            () = back => {}
            () = give_up => {}
            () = tokio::time::sleep(patience.saturating_mul(GIVE_UP_AFTER)) => {
                tracing::warn!(replica = %id, ?gpus, "GPU memory that is not back is taken for another program's");
            }
        }
    }

    /// Waits until a GPU holds no more than it should, or can't be asked.
    async fn back(&self, gpu: u32, patience: Duration, late: &(dyn Fn(GpuNotBack) + Send + Sync)) {
        let begin = Instant::now();
        loop {
            let used = self.used(gpu).await;
            let expected = self.uses().get(&gpu).and_then(Use::expected);
            let (Some(used), Some(expected)) = (used, expected) else {
                break;
            };
            if used.0 <= expected.0.saturating_add(SLACK.0) {
                break;
            }
            if begin.elapsed() >= patience {
                let problem = GpuNotBack {
                    gpu,
                    used,
                    expected,
                };
                if self.note(problem) {
                    late(problem);
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.clear(gpu);
    }

    fn clear(&self, gpu: u32) {
        self.problems
            .send_if_modified(|problems| problems.remove(&gpu).is_some());
    }

    /// Says whether it is news.
    fn note(&self, problem: GpuNotBack) -> bool {
        let mut news = false;
        self.problems.send_if_modified(|problems| {
            news = problems.insert(problem.gpu, problem).is_none();
            news
        });
        news
    }

    async fn used(&self, gpu: u32) -> Option<Bytes> {
        let memory = Arc::clone(&self.memory);
        let used = tokio::task::spawn_blocking(move || memory.used(gpu));
        used.await.ok()?
    }

    fn uses(&self) -> MutexGuard<'_, BTreeMap<u32, Use>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Use {
    /// What should be used by all that are known.
    fn expected(&self) -> Option<Bytes> {
        let shares: Bytes = self.shares.values().copied().sum();
        Some(self.foreign? + shares)
    }
}

impl From<GpuNotBack> for Failure {
    fn from(problem: GpuNotBack) -> Self {
        Self {
            error: problem.to_string(),
            hint: Some(
                "another program may have taken it, or a driver hangs: look with nvidia-smi or rocm-smi"
                    .to_owned(),
            ),
        }
    }
}

/// What neighbours on the same GPU may have taken since they were measured: kernels that are loaded when they
/// are first used, and workspaces of libraries.
const SLACK: Bytes = Bytes::mib(512);

/// Drivers free memory within milliseconds, rarely seconds.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How many times the patience an end waits at most, for starts wait for it.
const GIVE_UP_AFTER: u32 = 6;

#[cfg(test)]
mod tests;
