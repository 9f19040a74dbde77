//! Replicas as plain processes of this machine.

mod ending;
mod start;
mod watching;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use llmgw_core::{cluster::node::Warning, id::ReplicaId, units::Bytes};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(super) use self::start::leader_of;
use self::{
    ending::Target,
    watching::{end_of, exit_of},
};
use super::{
    Exit, Leftover, ProcessError, ProcessRuntime, ProcessStart, Resident, Usage,
    cgroup::{CgroupError, Cgroups, unlimited},
    identity::ProcessIdentity,
    launcher::Launcher,
    table::{Mark, ProcessTable, resident},
};

/// What a [`NativeRuntime`] is made of.
#[derive(Debug)]
pub struct NativeConfig {
    /// The agent's data directory, which must exist; it marks the processes.
    pub data_dir: PathBuf,
    /// The variables that every process gets: those of [`super::INHERITED`], as the binary found them.
    pub environment: Vec<(OsString, OsString)>,
    /// What tells processes apart.
    pub containment: Containment,
}

/// What keeps the processes of a replica together, from the weakest to the strongest.
#[derive(Debug, Default)]
pub enum Containment {
    /// A group, and marks in the environment: for programs that can't be a launcher.
    #[default]
    Groups,
    /// A launcher too, to which the tree's orphans come; and the reason why there is no control group.
    Launched(Launcher, Option<CgroupError>),
    /// A control group of its own too, which it can't leave.
    Cgroups(Launcher, Cgroups),
}

/// Runs replicas as processes, each in a group of its own and with marks in its environment.
///
/// A tree is found again by up to five signs: its control group, which it can't leave; its launcher, to which
/// its orphans come; the marks, which every child inherits unless it clears its environment; the group, which it
/// inherits unless it leaves; and its parents. Which there are [`Containment`] says. With groups alone, a child
/// that does away with its marks and its group, and whose parent has ended, is found by none.
#[derive(Debug)]
pub struct NativeRuntime {
    config: NativeConfig,
    /// Where launchers tell how engines ended.
    exits: PathBuf,
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
    /// Processes that are told apart by their groups and their marks alone.
    #[must_use]
    pub fn of_groups(data_dir: impl Into<PathBuf>, environment: Vec<(OsString, OsString)>) -> Self {
        Self {
            data_dir: data_dir.into(),
            environment,
            containment: Containment::Groups,
        }
    }

    /// Makes the runtime.
    ///
    /// # Errors
    /// When the data directory does not exist or can't be written to.
    pub fn build(mut self) -> Result<NativeRuntime, ProcessError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ProcessError::File { path, source }
        };
        // One directory has one name, so that the next life of the agent finds the marks of this one.
        self.data_dir = fs::canonicalize(&self.data_dir).map_err(failed(&self.data_dir))?;
        let exits = self.data_dir.join("exits");
        match fs::create_dir(&exits) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(&exits)(error));
            }
            _ => {}
        }
        Ok(NativeRuntime {
            config: self,
            exits,
            known: Mutex::default(),
            tasks: TaskTracker::new(),
            released: CancellationToken::new(),
        })
    }
}

// === impl Containment ===

impl Containment {
    /// The strongest that this machine and this user allow, of the agent in `data_dir`.
    #[must_use]
    pub fn strongest(launcher: Option<Launcher>, data_dir: &Path) -> Self {
        let Some(launcher) = launcher else {
            return Self::Groups;
        };
        match Cgroups::detect(data_dir) {
            Ok(cgroups) => Self::Cgroups(launcher, cgroups),
            Err(error) => Self::Launched(launcher, Some(error)),
        }
    }

    /// That nothing holds engines to their memory; `None` where the kernel does.
    #[must_use]
    pub fn warning(&self) -> Option<Warning> {
        match self {
            Self::Cgroups(_, cgroups) => cgroups.warning(),
            Self::Launched(_, Some(why)) => Some(why.warning()),
            Self::Launched(_, None) | Self::Groups => {
                Some(unlimited("this program does not use them"))
            }
        }
    }

    fn launcher(&self) -> Option<&Launcher> {
        match self {
            Self::Groups => None,
            Self::Launched(launcher, _) | Self::Cgroups(launcher, _) => Some(launcher),
        }
    }

    fn cgroups(&self) -> Option<&Cgroups> {
        match self {
            Self::Groups | Self::Launched(..) => None,
            Self::Cgroups(_, cgroups) => Some(cgroups),
        }
    }
}

impl fmt::Display for Containment {
    /// For one line of a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Groups => f.write_str("process groups"),
            Self::Launched(_, None) => f.write_str("a launcher each"),
            Self::Launched(_, Some(why)) => {
                write!(f, "a launcher each, without control groups: {why}")
            }
            Self::Cgroups(_, cgroups) => {
                let limited = cgroups.limited().unwrap_or("nothing");
                let parent = cgroups.parent().display();
                write!(f, "control groups in {parent} that limit {limited}")
            }
        }
    }
}

// === impl NativeRuntime ===

impl NativeRuntime {
    /// What keeps the processes of a replica together here.
    #[must_use]
    pub fn containment(&self) -> &Containment {
        &self.config.containment
    }

    fn known(&self, replica: ReplicaId) -> Option<Known> {
        self.with_known(|known| known.get(&replica).cloned())
    }

    fn with_known<T>(&self, act: impl FnOnce(&mut BTreeMap<ReplicaId, Known>) -> T) -> T {
        act(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The processes of a replica that can be seen.
    fn tree(
        &self,
        table: &ProcessTable,
        replica: ReplicaId,
    ) -> Result<Vec<ProcessIdentity>, ProcessError> {
        let marked = table
            .marked()
            .filter(|(_, mark)| *mark == Mark::Replica(replica));
        let seeds: BTreeSet<u32> = marked.map(|(pid, _)| pid).collect();
        Ok(table.closure(seeds.into_iter().chain(self.grouped(replica)?)))
    }

    fn exit_file(&self, replica: ReplicaId) -> PathBuf {
        self.exits.join(format!("{replica}.json"))
    }

    /// Makes a process known, with a task that waits for its end.
    fn watch<F>(&self, replica: ReplicaId, leader: ProcessIdentity, ended: F)
    where
        F: Future<Output = Exit> + Send + 'static,
    {
        let (sender, exit) = watch::channel(None);
        self.with_known(|known| known.insert(replica, Known { leader, exit }));
        let released = self.released.clone();
        let cgroups = self.config.containment.cgroups().cloned();
        self.tasks.spawn(async move {
            let Some(exit) = released.run_until_cancelled(ended).await else {
                return;
            };
            let killed = matches!(exit, Exit::Signal(9) | Exit::Unseen);
            let limit = cgroups
                .filter(|_| killed)
                .and_then(|cgroups| cgroups.exceeded(replica));
            sender.send_replace(Some(limit.map_or(exit, Exit::Memory)));
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

    /// The processes in the control group of a replica.
    fn grouped(&self, replica: ReplicaId) -> Result<BTreeSet<u32>, ProcessError> {
        match self.config.containment.cgroups() {
            Some(cgroups) => cgroups.members(replica).map_err(|source| {
                let path = cgroups.parent().to_owned();
                ProcessError::File { path, source }
            }),
            None => Ok(BTreeSet::new()),
        }
    }

    /// Forgets what the control group and the launcher of an ended tree have left.
    fn sweep(&self, replica: ReplicaId) {
        let removed = match self.config.containment.cgroups() {
            Some(cgroups) => cgroups.remove(replica),
            None => Ok(()),
        };
        if let Err(error) = removed {
            tracing::warn!(%replica, %error, "the control group of a replica could not be removed");
        }
        match fs::remove_file(self.exit_file(replica)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%replica, %error, "the word on how it ended could not be removed");
            }
            _ => {}
        }
    }
}

#[async_trait]
impl ProcessRuntime for NativeRuntime {
    async fn start(&self, start: &ProcessStart) -> Result<ProcessIdentity, ProcessError> {
        if self.known(start.replica).is_some() {
            return Err(ProcessError::Running(start.replica));
        }
        match self.config.containment.launcher() {
            None => self.start_child(start),
            Some(launcher) => self.start_launched(launcher, start).await,
        }
    }

    async fn adopt(
        &self,
        replica: ReplicaId,
        identity: &ProcessIdentity,
    ) -> Result<(), ProcessError> {
        if self.known(replica).is_some() {
            return Err(ProcessError::Running(replica));
        }
        let table = self.table().await?;
        let ours = table.identity(identity.pid).as_ref() == Some(identity)
            && (table.mark(identity.pid) == Some(Mark::Replica(replica))
                || self.grouped(replica)?.contains(&identity.pid));
        if !ours {
            return Err(ProcessError::Stranger {
                replica,
                pid: identity.pid,
            });
        }
        let launcher = table
            .marked()
            .find(|(_, mark)| *mark == Mark::Launcher(replica))
            .and_then(|(pid, _)| table.identity(pid));
        let ended = end_of(identity.clone(), launcher, self.exit_file(replica));
        self.watch(replica, identity.clone(), ended);
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
        let target = Target {
            replicas: BTreeSet::from([replica]),
            leaders: known.iter().map(|known| known.leader.clone()).collect(),
            listed: BTreeSet::new(),
        };
        self.end_tree(grace, &target).await?;
        if known.is_some() {
            // It has ended, so that this waits for no more than our own task to notice.
            drop(self.wait(replica).await);
            self.with_known(|known| known.remove(&replica));
        }
        self.sweep(replica);
        Ok(())
    }

    async fn usage(&self) -> Result<BTreeMap<ReplicaId, Usage>, ProcessError> {
        let known: Vec<ReplicaId> = self.with_known(|known| known.keys().copied().collect());
        let mut usage = BTreeMap::new();
        if let Some(cgroups) = self.config.containment.cgroups() {
            for replica in &known {
                usage.extend(cgroups.usage(*replica).map(|used| (*replica, used)));
            }
        }
        if usage.len() == known.len() {
            // An idle agent looks at no process.
            return Ok(usage);
        }
        let table = self.table().await?;
        for replica in known {
            if usage.contains_key(&replica) {
                continue;
            }
            let tree = self.tree(&table, replica)?;
            if tree.is_empty() {
                continue;
            }
            let mut used = table.usage(&tree).map_err(unseen)?;
            let counted = self.config.containment.cgroups();
            used.cpu = counted
                .and_then(|cgroups| cgroups.cpu(replica))
                .unwrap_or(used.cpu);
            usage.insert(replica, used);
        }
        Ok(usage)
    }

    async fn resident(&self, replica: ReplicaId) -> Result<Option<Resident>, ProcessError> {
        let table = self.table().await?;
        let tree = self.tree(&table, replica)?;
        if tree.is_empty() {
            return Ok(None);
        }
        let pids: BTreeSet<u32> = tree.iter().map(|process| process.pid).collect();
        let counted = self.config.containment.cgroups();
        let counted = counted.and_then(|cgroups| cgroups.resident(replica));
        let summed = tokio::task::spawn_blocking(move || resident(&tree)).await;
        let summed = summed.map_err(|error| unseen(io::Error::other(error)))?;
        // Pages of files are counted for the group that has read them first, which may have been another's.
        let memory = summed.map_err(unseen)?.max(counted.unwrap_or(Bytes::ZERO));
        Ok(Some(Resident { memory, pids }))
    }

    async fn leftovers(&self) -> Result<Vec<Leftover>, ProcessError> {
        let table = self.table().await?;
        let mut trees: BTreeMap<Option<ReplicaId>, BTreeSet<u32>> = BTreeMap::new();
        for (pid, mark) in table.marked() {
            let replica = match mark {
                Mark::Replica(replica) | Mark::Launcher(replica) => {
                    if self.known(replica).is_some() {
                        continue;
                    }
                    Some(replica)
                }
                // An installation that this life of the agent has started.
                Mark::Task if table.descends_from_us(pid) => continue,
                Mark::Task => None,
            };
            trees.entry(replica).or_default().insert(pid);
        }
        if let Some(cgroups) = self.config.containment.cgroups() {
            let grouped = cgroups.replicas().map_err(|source| ProcessError::File {
                path: cgroups.parent().to_owned(),
                source,
            })?;
            for replica in grouped {
                if self.known(replica).is_some() {
                    continue;
                }
                let members = self.grouped(replica)?;
                if members.is_empty() {
                    self.sweep(replica);
                } else {
                    trees.entry(Some(replica)).or_default().extend(members);
                }
            }
        }
        Ok(trees
            .into_iter()
            .map(|(replica, pids)| Leftover {
                replica,
                processes: table.closure(pids),
            })
            .filter(|leftover| !leftover.processes.is_empty())
            .collect())
    }

    async fn end(&self, leftovers: &[Leftover], grace: Duration) -> Result<(), ProcessError> {
        let target = Target {
            replicas: leftovers
                .iter()
                .filter_map(|leftover| leftover.replica)
                .collect(),
            leaders: Vec::new(),
            listed: leftovers
                .iter()
                .flat_map(|leftover| leftover.processes.iter().cloned())
                .collect(),
        };
        self.end_tree(grace, &target).await?;
        for replica in target.replicas {
            self.sweep(replica);
        }
        Ok(())
    }

    async fn release(&self) {
        self.released.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.with_known(BTreeMap::clear);
        if let Some(cgroups) = self.config.containment.cgroups() {
            cgroups.leave();
        }
    }
}

impl Drop for NativeRuntime {
    fn drop(&mut self) {
        self.released.cancel();
    }
}

/// The processes can't be looked at.
fn unseen(source: io::Error) -> ProcessError {
    ProcessError::File {
        path: "/proc".into(),
        source,
    }
}
