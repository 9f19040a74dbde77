//! Processes that exist in memory alone, and do what a test says.

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use llmgw_core::{id::ReplicaId, units::Bytes};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::process::{
    Exit, Leftover, ProcessError, ProcessRuntime, ProcessStart, Usage, identity::ProcessIdentity,
};

/// A machine's processes. It outlives the runtimes that use it, as a machine outlives its agents.
#[derive(Clone, Debug, Default)]
pub struct World {
    inner: Arc<Mutex<Inner>>,
}

/// What a process does.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// How it ends by itself, at once; it goes on for ever when absent.
    pub end: Option<Exit>,
    /// Whether it and its children ignore the request to end.
    pub stubborn: bool,
    /// How many children it starts first.
    pub children: usize,
    /// Cancelled when the first process has ended: for what a test runs in its place, a server say.
    pub over: CancellationToken,
}

/// Runs replicas in a [`World`]: no process of the machine is started.
pub struct ScriptedRuntime {
    world: World,
    program: Box<Program>,
    known: Mutex<BTreeMap<ReplicaId, ProcessIdentity>>,
    released: CancellationToken,
}

type Program = dyn Fn(&ProcessStart) -> io::Result<Script> + Send + Sync;

#[derive(Debug, Default)]
struct Inner {
    processes: BTreeMap<u32, Process>,
    next: u32,
}

#[derive(Debug)]
struct Process {
    identity: ProcessIdentity,
    /// Whose it is; absent for a program that no agent has started.
    replica: Option<ReplicaId>,
    stubborn: bool,
    over: CancellationToken,
    exit: watch::Sender<Option<Exit>>,
}

// === impl World ===

impl World {
    /// One without processes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a process that is none of ours.
    #[must_use]
    pub fn stranger(&self) -> ProcessIdentity {
        self.lock().spawn(None, &Script::default())
    }

    /// Starts the first process of a replica, and its children.
    #[must_use]
    pub fn spawn(&self, replica: ReplicaId, script: &Script) -> ProcessIdentity {
        let mut inner = self.lock();
        let first = inner.spawn(Some(replica), script);
        for _ in 0..script.children {
            let child = Script {
                stubborn: script.stubborn,
                ..Script::default()
            };
            drop(inner.spawn(Some(replica), &child));
        }
        if let Some(exit) = script.end {
            inner.end(&first, exit);
        }
        first
    }

    /// The processes of a replica that run, in the order of their starts.
    #[must_use]
    pub fn running(&self, replica: ReplicaId) -> Vec<ProcessIdentity> {
        self.running_of(|owner| owner == Some(replica))
    }

    /// All processes of replicas that run.
    #[must_use]
    pub fn replicas(&self) -> BTreeMap<ReplicaId, Vec<ProcessIdentity>> {
        let mut replicas: BTreeMap<ReplicaId, Vec<ProcessIdentity>> = BTreeMap::new();
        for process in self.lock().processes.values() {
            if let Some(replica) = process.replica.filter(|_| process.runs()) {
                replicas
                    .entry(replica)
                    .or_default()
                    .push(process.identity.clone());
            }
        }
        replicas
    }

    /// Whether this very process runs.
    #[must_use]
    pub fn is_running(&self, process: &ProcessIdentity) -> bool {
        let inner = self.lock();
        let found = inner.processes.get(&process.pid);
        found.is_some_and(|found| found.identity == *process && found.runs())
    }

    /// Whose process has this number.
    #[must_use]
    pub fn owner(&self, pid: u32) -> Option<ReplicaId> {
        self.lock().processes.get(&pid)?.replica
    }

    /// Asks a process to end; says whether it does.
    pub fn ask(&self, process: &ProcessIdentity) -> bool {
        let mut inner = self.lock();
        let stubborn = inner
            .processes
            .get(&process.pid)
            .is_none_or(|found| found.stubborn);
        if !stubborn {
            inner.end(process, Exit::Signal(15));
        }
        !stubborn
    }

    /// Makes a process end so; nothing happens to one that has ended, or to another one with its number.
    pub fn end(&self, process: &ProcessIdentity, exit: Exit) {
        self.lock().end(process, exit);
    }

    /// Waits until a process has ended; `None` when there never was one.
    pub async fn ended(&self, process: &ProcessIdentity) -> Option<Exit> {
        let mut exit = {
            let inner = self.lock();
            let found = inner.processes.get(&process.pid)?;
            found.exit.subscribe()
        };
        let exit = exit.wait_for(Option::is_some).await.ok()?;
        *exit
    }

    fn running_of(&self, mine: impl Fn(Option<ReplicaId>) -> bool) -> Vec<ProcessIdentity> {
        let inner = self.lock();
        let running = inner.processes.values();
        running
            .filter(|process| process.runs() && mine(process.replica))
            .map(|process| process.identity.clone())
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Inner ===

impl Inner {
    fn spawn(&mut self, replica: Option<ReplicaId>, script: &Script) -> ProcessIdentity {
        self.next += 1;
        let pid = FIRST_PID.saturating_add(self.next);
        let identity = ProcessIdentity {
            pid,
            start_time: u64::from(pid) * 100,
            boot_id: "scripted".to_owned(),
        };
        let process = Process {
            identity: identity.clone(),
            replica,
            stubborn: script.stubborn,
            over: script.over.clone(),
            exit: watch::Sender::new(None),
        };
        self.processes.insert(pid, process);
        identity
    }

    fn end(&mut self, process: &ProcessIdentity, exit: Exit) {
        let Some(found) = self.processes.get_mut(&process.pid) else {
            return;
        };
        if found.identity == *process && found.runs() {
            found.exit.send_replace(Some(exit));
            found.over.cancel();
        }
    }
}

impl Process {
    fn runs(&self) -> bool {
        self.exit.borrow().is_none()
    }
}

// === impl ScriptedRuntime ===

impl ScriptedRuntime {
    /// A new life of an agent in `world`. `program` says what each process does, or why it can't be run.
    #[must_use]
    pub fn new(
        world: World,
        program: impl Fn(&ProcessStart) -> io::Result<Script> + Send + Sync + 'static,
    ) -> Self {
        Self {
            world,
            program: Box::new(program),
            known: Mutex::default(),
            released: CancellationToken::new(),
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<ReplicaId, ProcessIdentity>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn end_all(&self, processes: &[ProcessIdentity], grace: Duration) {
        let mut stubborn = false;
        for process in processes {
            stubborn |= !self.world.ask(process) && self.world.is_running(process);
        }
        if stubborn {
            tokio::time::sleep(grace).await;
            for process in processes {
                self.world.end(process, Exit::Signal(9));
            }
        }
    }
}

#[async_trait]
impl ProcessRuntime for ScriptedRuntime {
    async fn start(&self, start: &ProcessStart) -> Result<ProcessIdentity, ProcessError> {
        if self.known().contains_key(&start.replica) {
            return Err(ProcessError::Running(start.replica));
        }
        let script = (self.program)(start).map_err(|source| ProcessError::Start {
            program: start.program.clone(),
            source,
        })?;
        let first = self.world.spawn(start.replica, &script);
        self.known().insert(start.replica, first.clone());
        Ok(first)
    }

    async fn adopt(
        &self,
        replica: ReplicaId,
        identity: &ProcessIdentity,
    ) -> Result<(), ProcessError> {
        if self.known().contains_key(&replica) {
            return Err(ProcessError::Running(replica));
        }
        let ours =
            self.world.is_running(identity) && self.world.owner(identity.pid) == Some(replica);
        if !ours {
            let pid = identity.pid;
            return Err(ProcessError::Stranger { replica, pid });
        }
        self.known().insert(replica, identity.clone());
        Ok(())
    }

    async fn wait(&self, replica: ReplicaId) -> Result<Exit, ProcessError> {
        let unknown = || ProcessError::Unknown(replica);
        let first = self.known().get(&replica).cloned().ok_or_else(unknown)?;
        let ended = self
            .released
            .run_until_cancelled(self.world.ended(&first))
            .await;
        ended.flatten().ok_or_else(unknown)
    }

    async fn stop(&self, replica: ReplicaId, grace: Duration) -> Result<(), ProcessError> {
        self.end_all(&self.world.running(replica), grace).await;
        self.known().remove(&replica);
        Ok(())
    }

    async fn usage(&self) -> Result<BTreeMap<ReplicaId, Usage>, ProcessError> {
        let replicas = self.world.replicas();
        let known = self.known();
        Ok(replicas
            .into_iter()
            .filter(|(replica, _)| known.contains_key(replica))
            .map(|(replica, processes)| {
                let count = u64::try_from(processes.len()).unwrap_or(u64::MAX);
                let used = Usage {
                    held: Bytes(Bytes::mib(1).0.saturating_mul(count)),
                    cpu: Duration::ZERO,
                };
                (replica, used)
            })
            .collect())
    }

    async fn leftovers(&self) -> Result<Vec<Leftover>, ProcessError> {
        let replicas = self.world.replicas();
        let known = self.known();
        Ok(replicas
            .into_iter()
            .filter(|(replica, _)| !known.contains_key(replica))
            .map(|(replica, processes)| Leftover {
                replica: Some(replica),
                processes,
            })
            .collect())
    }

    async fn end(&self, leftovers: &[Leftover], grace: Duration) -> Result<(), ProcessError> {
        for leftover in leftovers {
            let mut processes = leftover.processes.clone();
            if let Some(replica) = leftover.replica {
                processes.extend(self.world.running(replica));
            }
            self.end_all(&processes, grace).await;
        }
        Ok(())
    }

    async fn release(&self) {
        self.released.cancel();
        self.known().clear();
    }
}

impl fmt::Debug for ScriptedRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedRuntime")
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

/// Above what Linux gives out on any machine (`PID_MAX_LIMIT`, 2^22), so that no process of the machine is meant.
const FIRST_PID: u32 = 1 << 23;
