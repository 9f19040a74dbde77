//! Replicas as plain processes of this machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs, io,
    os::unix::{fs::OpenOptionsExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use llmgw_core::id::ReplicaId;
use rustix::process::Signal;
use tokio::{
    process::{Child, Command},
    sync::watch,
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    DATA_DIR_MARK, Exit, Leftover, ProcessError, ProcessRuntime, ProcessStart, REPLICA_MARK, Usage,
    identity::ProcessIdentity,
    table::{Mark, ProcessTable},
};

/// What a [`NativeRuntime`] is made of.
#[derive(Clone, Debug)]
pub struct NativeConfig {
    /// The agent's data directory, which must exist; it marks the processes.
    pub data_dir: PathBuf,
    /// The variables that every process gets: those of [`super::INHERITED`], as the binary found them.
    pub environment: Vec<(OsString, OsString)>,
}

/// Runs replicas as processes, each in a group of its own and with marks in its environment.
///
/// A tree is found again by three signs: the marks, which every child inherits unless it clears its
/// environment; the group, which it inherits unless it leaves; and its parents. A child that does away with all
/// three, and whose parent has ended, is found by none.
#[derive(Debug)]
pub struct NativeRuntime {
    config: NativeConfig,
    known: Mutex<BTreeMap<ReplicaId, Known>>,
    tasks: TaskTracker,
    released: CancellationToken,
}

#[derive(Clone, Debug)]
struct Known {
    leader: ProcessIdentity,
    exit: watch::Receiver<Option<Exit>>,
}

// === impl NativeConfig ===

impl NativeConfig {
    /// Makes the runtime.
    ///
    /// # Errors
    /// When the data directory does not exist.
    pub fn build(mut self) -> Result<NativeRuntime, ProcessError> {
        // One directory has one name, so that the next life of the agent finds the marks of this one.
        self.data_dir = fs::canonicalize(&self.data_dir).map_err(|source| ProcessError::File {
            path: self.data_dir.clone(),
            source,
        })?;
        Ok(NativeRuntime {
            config: self,
            known: Mutex::default(),
            tasks: TaskTracker::new(),
            released: CancellationToken::new(),
        })
    }
}

// === impl NativeRuntime ===

impl NativeRuntime {
    fn known(&self, replica: ReplicaId) -> Option<Known> {
        self.with_known(|known| known.get(&replica).cloned())
    }

    fn with_known<T>(&self, act: impl FnOnce(&mut BTreeMap<ReplicaId, Known>) -> T) -> T {
        act(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn command(&self, start: &ProcessStart) -> Result<Command, ProcessError> {
        let log = open_log(&start.log).and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) = log.map_err(|source| ProcessError::File {
            path: start.log.clone(),
            source,
        })?;
        let mut command = Command::new(&start.program);
        command
            .args(&start.args)
            .env_clear()
            .envs(self.config.environment.iter().cloned())
            .envs(start.env.iter().cloned())
            .env(DATA_DIR_MARK, &self.config.data_dir)
            .env(REPLICA_MARK, start.replica.to_string())
            .current_dir(&self.config.data_dir)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .process_group(0);
        Ok(command)
    }

    /// Makes a process known, with a task that waits for its end.
    fn watch<F>(&self, replica: ReplicaId, leader: ProcessIdentity, ended: F)
    where
        F: Future<Output = Exit> + Send + 'static,
    {
        let (sender, exit) = watch::channel(None);
        self.with_known(|known| known.insert(replica, Known { leader, exit }));
        let released = self.released.clone();
        self.tasks.spawn(async move {
            if let Some(exit) = released.run_until_cancelled(ended).await {
                sender.send_replace(Some(exit));
            }
        });
    }

    async fn table(&self) -> Result<ProcessTable, ProcessError> {
        let data_dir = self.config.data_dir.clone();
        // Joining fails only while the runtime goes down; the table is then read here.
        tokio::task::spawn_blocking(move || ProcessTable::read(&data_dir))
            .await
            .unwrap_or_else(|_| ProcessTable::read(&self.config.data_dir))
            .map_err(unseen)
    }

    /// Ends what `select` finds until it finds nothing more. Members that were seen once stay members, whatever
    /// becomes of their parents.
    async fn end_tree<S>(&self, grace: Duration, select: S) -> Result<(), ProcessError>
    where
        S: Fn(&ProcessTable) -> BTreeSet<u32> + Send + Sync,
    {
        let mut seen: BTreeSet<ProcessIdentity> = BTreeSet::new();
        let mut asked: BTreeSet<ProcessIdentity> = BTreeSet::new();
        let begin = Instant::now();
        loop {
            let table = self.table().await?;
            let remembered = seen
                .iter()
                .filter(|process| table.identity(process.pid).as_ref() == Some(*process))
                .map(|process| process.pid);
            let members = table.closure(select(&table).into_iter().chain(remembered));
            if members.is_empty() {
                return Ok(());
            }
            let elapsed = begin.elapsed();
            if elapsed < grace {
                for process in &members {
                    if asked.insert(process.clone()) {
                        process.signal(Signal::TERM).map_err(unseen)?;
                    }
                }
            } else {
                for process in &members {
                    process.signal(Signal::KILL).map_err(unseen)?;
                }
            }
            if elapsed > grace + KILL_PATIENCE {
                let pids = members.iter().map(|process| process.pid).collect();
                return Err(ProcessError::Unending { pids });
            }
            seen.extend(members);
            let left = grace.saturating_sub(elapsed);
            let nap = if left.is_zero() {
                LOOK_EVERY
            } else {
                LOOK_EVERY.min(left)
            };
            tokio::time::sleep(nap).await;
        }
    }
}

#[async_trait]
impl ProcessRuntime for NativeRuntime {
    async fn start(&self, start: &ProcessStart) -> Result<ProcessIdentity, ProcessError> {
        if self.known(start.replica).is_some() {
            return Err(ProcessError::Running(start.replica));
        }
        let mut command = self.command(start)?;
        let failed = |source| ProcessError::Start {
            program: start.program.clone(),
            source,
        };
        // From here to `watch` nothing waits, so that a dropped future leaves no unknown process.
        let mut child = command.spawn().map_err(failed)?;
        let leader = match leader_of(&child) {
            Ok(leader) => leader,
            Err(source) => {
                // A process that can't be written down must not run. It is its own group's only member yet.
                if let Err(error) = child.start_kill() {
                    tracing::error!(replica = %start.replica, %error, "a process without identity runs on");
                }
                return Err(failed(source));
            }
        };
        self.watch(start.replica, leader.clone(), exit_of(child));
        Ok(leader)
    }

    async fn adopt(
        &self,
        replica: ReplicaId,
        identity: &ProcessIdentity,
    ) -> Result<(), ProcessError> {
        if self.known(replica).is_some() {
            return Err(ProcessError::Running(replica));
        }
        let stranger = || ProcessError::Stranger {
            replica,
            pid: identity.pid,
        };
        let table = self.table().await?;
        let ours = table.identity(identity.pid).as_ref() == Some(identity)
            && table.mark(identity.pid) == Some(Mark::Replica(replica));
        if !ours {
            return Err(stranger());
        }
        self.watch(replica, identity.clone(), end_of(identity.clone()));
        Ok(())
    }

    async fn wait(&self, replica: ReplicaId) -> Result<Exit, ProcessError> {
        let unknown = || ProcessError::Unknown(replica);
        let mut exit = self.known(replica).ok_or_else(unknown)?.exit;
        // The sender goes without a word only when everything is released.
        let seen = exit
            .wait_for(Option::is_some)
            .await
            .map_err(|_| unknown())?;
        (*seen).ok_or_else(unknown)
    }

    async fn stop(&self, replica: ReplicaId, grace: Duration) -> Result<(), ProcessError> {
        let known = self.known(replica);
        let leader = known.as_ref().map(|known| known.leader.clone());
        self.end_tree(grace, |table| {
            let marked = table
                .marked()
                .filter(|(_, mark)| *mark == Mark::Replica(replica));
            let group = leader.as_ref().map(|leader| table.group(leader));
            marked
                .map(|(pid, _)| pid)
                .chain(group.into_iter().flatten())
                .collect()
        })
        .await?;
        if known.is_some() {
            // It has ended, so that this waits for no more than our own task to notice.
            drop(self.wait(replica).await);
            self.with_known(|known| known.remove(&replica));
        }
        Ok(())
    }

    async fn usage(&self) -> Result<BTreeMap<ReplicaId, Usage>, ProcessError> {
        let data_dir = self.config.data_dir.clone();
        tokio::task::spawn_blocking(move || ProcessTable::read(&data_dir)?.usage())
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(unseen)
    }

    async fn leftovers(&self) -> Result<Vec<Leftover>, ProcessError> {
        let table = self.table().await?;
        let mut trees: BTreeMap<Option<ReplicaId>, BTreeSet<u32>> = BTreeMap::new();
        for (pid, mark) in table.marked() {
            let replica = match mark {
                Mark::Replica(replica) if self.known(replica).is_some() => continue,
                Mark::Replica(replica) => Some(replica),
                // An installation that this life of the agent has started.
                Mark::Task if table.descends_from_us(pid) => continue,
                Mark::Task => None,
            };
            trees.entry(replica).or_default().insert(pid);
        }
        Ok(trees
            .into_iter()
            .map(|(replica, pids)| Leftover {
                replica,
                processes: table.closure(pids),
            })
            .collect())
    }

    async fn end(&self, leftovers: &[Leftover], grace: Duration) -> Result<(), ProcessError> {
        let replicas: BTreeSet<ReplicaId> = leftovers
            .iter()
            .filter_map(|leftover| leftover.replica)
            .collect();
        let processes: BTreeSet<&ProcessIdentity> = leftovers
            .iter()
            .flat_map(|leftover| &leftover.processes)
            .collect();
        self.end_tree(grace, |table| {
            let marked = table.marked().filter(|(_, mark)| match mark {
                Mark::Replica(replica) => replicas.contains(replica),
                Mark::Task => false,
            });
            let listed = processes
                .iter()
                .filter(|process| table.identity(process.pid).as_ref() == Some(**process))
                .map(|process| process.pid);
            marked.map(|(pid, _)| pid).chain(listed).collect()
        })
        .await
    }

    async fn release(&self) {
        self.released.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.with_known(BTreeMap::clear);
    }
}

impl Drop for NativeRuntime {
    fn drop(&mut self) {
        self.released.cancel();
    }
}

/// Who a child is that nobody has waited for: it is there even if it has ended.
fn leader_of(child: &Child) -> io::Result<ProcessIdentity> {
    let gone = || io::Error::from(io::ErrorKind::NotFound);
    let pid = child.id().ok_or_else(gone)?;
    let stat = super::table::stat(pid)?.ok_or_else(gone)?;
    ProcessIdentity::with_start(pid, stat.start_time)
}

/// The processes can't be looked at.
fn unseen(source: io::Error) -> ProcessError {
    ProcessError::File {
        path: "/proc".into(),
        source,
    }
}

/// Waits for a child; dropping it leaves it running.
async fn exit_of(mut child: Child) -> Exit {
    match child.wait().await {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => Exit::Unseen,
        },
        // Somebody else has waited for it.
        Err(_) => Exit::Unseen,
    }
}

/// Waits for a process that is not our child: the kernel tells only parents, so it is looked at. (A process
/// descriptor would tell too; waiting for one needs unsafe code.)
async fn end_of(process: ProcessIdentity) -> Exit {
    // An error says nothing of the process.
    while process.is_alive().unwrap_or(true) {
        tokio::time::sleep(POLL_EVERY).await;
    }
    Exit::Unseen
}

fn open_log(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}

/// How long a process may take to vanish after SIGKILL: the kernel frees tens of gigabytes in less.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// Between two looks at a tree that is ending.
const LOOK_EVERY: Duration = Duration::from_millis(30);

/// Between two looks at an adopted process.
const POLL_EVERY: Duration = Duration::from_millis(250);
