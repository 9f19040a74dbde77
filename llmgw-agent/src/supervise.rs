//! Replicas, from the order to run one until its last process has ended.
//!
//! The [`Supervisor`] is told which replicas should run, as a whole, and converges: each replica has a task of
//! its own that gets its parts, starts its engine, asks it until it has given a real token, and watches it.
//! Nothing here decides to start a replica again: a failed one is reported, with the end of its log, until it
//! is not asked for any more.

pub(crate) mod ask;
mod check;
mod gpus;
mod listener;
mod model;
mod parts;
mod ports;
mod reading;
mod replica;
mod serve;
mod timing;

pub use self::{
    gpus::{GpuMemory, GpuNotBack, NoGpuMemory},
    parts::{Failure, Parts},
    timing::Timing,
};

use std::{
    collections::BTreeMap,
    io,
    ops::RangeInclusive,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use llmgw_core::{
    clock::Clock,
    cluster::replica::{ReplicaSpec, ReplicaState, ReplicaStatus},
    id::ReplicaId,
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    gpus::Gpus,
    ports::Ports,
    replica::{Order, Origin},
};
use crate::process::{
    ProcessRuntime,
    ledger::{Ledger, LedgerEntry},
    log::Logs,
};

/// What a [`Supervisor`] is made of.
#[derive(Clone, Debug)]
pub struct SuperviseConfig {
    /// The agent's data directory.
    pub data_dir: PathBuf,
    /// How long things may take.
    pub timing: Timing,
    /// Where engines listen; [`PORTS`] unless something else is there.
    pub ports: RangeInclusive<u16>,
}

/// What a supervisor needs from others.
#[derive(Clone, Debug)]
pub struct SuperviseDeps {
    /// Runs the processes.
    pub runtime: Arc<dyn ProcessRuntime>,
    /// Gets engines and weights.
    pub parts: Arc<dyn Parts>,
    /// Tells the time for people.
    pub clock: Arc<dyn Clock>,
    /// Tells how much of the GPUs is used; [`NoGpuMemory`] where that can't be told.
    pub gpu_memory: Arc<dyn GpuMemory>,
}

/// What becomes of running engines when the supervisor ends.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Ending {
    /// They are drained and stopped.
    #[default]
    StopEngines,
    /// They go on, and the agent's next life adopts them.
    KeepEngines,
}

/// What was found of an earlier life.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Adoption {
    /// Replicas that run on.
    pub adopted: usize,
    /// Trees of processes that were ended, because nobody knew them any more.
    pub ended: usize,
}

/// Runs the replicas of one node.
#[derive(Debug)]
pub struct Supervisor {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: SuperviseConfig,
    deps: SuperviseDeps,
    ledger: Ledger,
    logs: Logs,
    ports: Arc<Mutex<Ports>>,
    gpus: Gpus,
    roster: Mutex<Roster>,
    statuses: watch::Sender<BTreeMap<ReplicaId, ReplicaStatus>>,
    detach: CancellationToken,
    /// The supervisor ends: nothing is waited for that can be left to the next life.
    closing: CancellationToken,
    /// What is being drained is cut off.
    hurry: CancellationToken,
    tasks: TaskTracker,
}

/// Who should run, and who has a task.
#[derive(Debug, Default)]
struct Roster {
    /// Absent before the first order: then nothing is stopped.
    desired: Option<BTreeMap<ReplicaId, ReplicaSpec>>,
    workers: BTreeMap<ReplicaId, CancellationToken>,
    closing: bool,
}

// === impl SuperviseConfig ===

impl SuperviseConfig {
    /// Makes the supervisor, which runs nothing yet.
    ///
    /// # Errors
    /// When the data directory can't be used.
    pub fn build(self, deps: SuperviseDeps) -> io::Result<Supervisor> {
        let ledger = Ledger::open(self.data_dir.join("replicas"))?;
        let logs = Logs::open(self.data_dir.join("logs"))?;
        let ports = Ports::open(self.data_dir.join("next-port"), self.ports.clone());
        let gpus = Gpus::new(Arc::clone(&deps.gpu_memory));
        Ok(Supervisor {
            shared: Arc::new(Shared {
                config: self,
                deps,
                ledger,
                logs,
                ports: Arc::new(Mutex::new(ports)),
                gpus,
                roster: Mutex::default(),
                statuses: watch::Sender::default(),
                detach: CancellationToken::new(),
                closing: CancellationToken::new(),
                hurry: CancellationToken::new(),
                tasks: TaskTracker::new(),
            }),
        })
    }
}

// === impl Supervisor ===

impl Supervisor {
    /// What is, of every replica that is asked for or runs.
    #[must_use]
    pub fn statuses(&self) -> watch::Receiver<BTreeMap<ReplicaId, ReplicaStatus>> {
        self.shared.statuses.subscribe()
    }

    /// GPUs that hold memory of replicas that have ended.
    #[must_use]
    pub fn gpu_problems(&self) -> watch::Receiver<BTreeMap<u32, GpuNotBack>> {
        self.shared.gpus.problems()
    }

    /// Cancelled by who does not want to wait any more: requests in flight are cut off, now and from then on, and
    /// engines are ended without asking first.
    #[must_use]
    pub fn hurry(&self) -> CancellationToken {
        self.shared.hurry.clone()
    }

    /// Takes over what an earlier life of the agent has left running, and ends what it can't take over. To be
    /// called once, before the first [`converge`](Self::converge).
    ///
    /// # Errors
    /// When the ledger or the processes can't be read: what runs is then neither ended nor taken over.
    pub async fn adopt(&self) -> io::Result<Adoption> {
        let shared = &self.shared;
        let ledger = shared.ledger.clone();
        let entries = blocking(move || ledger.load()).await?;
        let mut adoption = Adoption::default();
        let mut orphans = Vec::new();
        for entry in entries {
            let id = entry.spec.id;
            if shared.take_over(&entry).await {
                adoption.adopted += 1;
                shared.gpus.adopt(id, &entry.gpu_memory);
                Shared::begin(shared, entry.spec.clone(), Origin::Adopted(Box::new(entry)));
            } else {
                orphans.push(id);
            }
        }
        shared.gpus.measure_adopted().await;
        let leftovers = shared.deps.runtime.leftovers().await;
        let leftovers = leftovers.map_err(io::Error::other)?;
        for leftover in &leftovers {
            let pids: Vec<u32> = leftover
                .processes
                .iter()
                .map(|process| process.pid)
                .collect();
            tracing::warn!(replica = ?leftover.replica, ?pids, "ending what an earlier agent has left");
        }
        match shared
            .deps
            .runtime
            .end(&leftovers, shared.config.timing.grace)
            .await
        {
            Ok(()) => {
                adoption.ended = leftovers.len();
                for id in orphans {
                    shared.strike(id).await;
                }
            }
            Err(error) => tracing::error!(%error, "what an earlier agent has left can't be ended"),
        }
        Ok(adoption)
    }

    /// Makes these replicas run, and no others. Returns at once.
    pub fn converge(&self, desired: &[ReplicaSpec]) {
        let desired: BTreeMap<ReplicaId, ReplicaSpec> =
            desired.iter().map(|spec| (spec.id, spec.clone())).collect();
        let mut roster = self.shared.roster();
        if roster.closing {
            return;
        }
        for (id, stop) in &roster.workers {
            if !desired.contains_key(id) {
                stop.cancel();
            }
        }
        roster.desired = Some(desired);
        drop(roster);
        Shared::settle(&self.shared);
    }

    /// Ends all tasks, and with them the engines or not. Takes as long as draining and ending take.
    pub async fn shutdown(&self, ending: Ending) {
        {
            let mut roster = self.shared.roster();
            roster.closing = true;
            self.shared.closing.cancel();
            match ending {
                Ending::StopEngines => roster.workers.values().for_each(CancellationToken::cancel),
                Ending::KeepEngines => self.shared.detach.cancel(),
            }
        }
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        self.shared.deps.runtime.release().await;
    }
}

impl Drop for Supervisor {
    /// Ends the tasks and no engine: who wants that says so by [`shutdown`](Self::shutdown).
    fn drop(&mut self) {
        self.shared.detach.cancel();
    }
}

// === impl Shared ===

impl Shared {
    fn roster(&self) -> std::sync::MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts what is asked for and has no task, and forgets what is not asked for and has none.
    fn settle(this: &Arc<Self>) {
        let starts: Vec<ReplicaSpec> = {
            let roster = this.roster();
            let Some(desired) = roster.desired.as_ref().filter(|_| !roster.closing) else {
                return;
            };
            this.statuses.send_if_modified(|statuses| {
                let before = statuses.len();
                statuses
                    .retain(|id, _| desired.contains_key(id) || roster.workers.contains_key(id));
                statuses.len() != before
            });
            let statuses = this.statuses.borrow();
            desired
                .values()
                .filter(|spec| !roster.workers.contains_key(&spec.id))
                .filter(|spec| {
                    // A failed one stays failed. A stopped one was stopped by an order that is taken back.
                    statuses
                        .get(&spec.id)
                        .is_none_or(|status| status.state != ReplicaState::Failed)
                })
                .cloned()
                .collect()
        };
        for spec in starts {
            Self::begin(this, spec, Origin::New);
        }
    }

    /// Gives a replica its task.
    fn begin(this: &Arc<Self>, spec: ReplicaSpec, origin: Origin) {
        let id = spec.id;
        let stop = CancellationToken::new();
        {
            let mut roster = this.roster();
            if roster.closing || roster.workers.contains_key(&id) {
                return;
            }
            roster.workers.insert(id, stop.clone());
        }
        let status = ReplicaStatus {
            state: match origin {
                Origin::New => ReplicaState::Provisioning,
                Origin::Adopted(_) => ReplicaState::Starting,
            },
            since: this.deps.clock.now(),
            endpoint: None,
            fetch: None,
            measured: None,
            error: None,
            hint: None,
            log_tail: Vec::new(),
            spec: spec.clone(),
        };
        this.statuses.send_modify(|statuses| {
            statuses.insert(id, status);
        });
        let shared = Arc::clone(this);
        this.tasks.spawn(async move {
            replica::run(&shared, Order { spec, origin, stop }).await;
            shared.roster().workers.remove(&id);
            Self::settle(&shared);
        });
    }

    /// Whether a process of an earlier life is still the replica that the ledger says.
    async fn take_over(&self, entry: &LedgerEntry) -> bool {
        let id = entry.spec.id;
        let Some(process) = &entry.process else {
            return false;
        };
        if self.deps.parts.engine(&entry.spec.profile.engine).is_none() {
            return false;
        }
        match self.deps.runtime.adopt(id, process).await {
            Ok(()) => {
                tracing::info!(replica = %id, pid = process.pid, "taking over a running engine");
                true
            }
            Err(error) => {
                tracing::info!(replica = %id, %error, "not taking over");
                false
            }
        }
    }

    /// Removes a replica from the ledger.
    async fn strike(&self, id: ReplicaId) {
        let ledger = self.ledger.clone();
        if let Err(error) = blocking(move || ledger.remove(id)).await {
            // It names a process that has ended; the next life of the agent finds that out.
            tracing::warn!(replica = %id, %error, "the ledger entry could not be removed");
        }
    }

    fn update(&self, id: ReplicaId, change: impl FnOnce(&mut ReplicaStatus)) {
        let now = self.deps.clock.now();
        self.statuses.send_if_modified(|statuses| {
            let Some(status) = statuses.get_mut(&id) else {
                return false;
            };
            let before = status.clone();
            change(status);
            if status.state != before.state {
                status.since = now;
            }
            *status != before
        });
    }
}

/// Runs what may wait for a disk where waiting is allowed.
async fn blocking<T, F>(work: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Where engines listen: below the range that Linux takes the ports of connections from (32768 to 60999,
/// ip(7)), and above what is registered for well-known programs of servers.
pub const PORTS: RangeInclusive<u16> = 23_000..=31_999;
