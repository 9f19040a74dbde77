//! Engine processes: started, adopted after a crash of the agent, and ended with all that they started.
//!
//! [`ProcessRuntime`] is the role; [`native::NativeRuntime`] plays it with plain processes, by a [`launcher`] and
//! in a control group ([`cgroup`]) each, where the machine has that. Beside it stand what
//! outlives the agent: the [`ledger`] of what runs, and the engines' [`log`] files. A process is named by its
//! [`identity::ProcessIdentity`], never by its number alone.

pub mod cgroup;
mod exit;
pub mod identity;
pub mod launcher;
pub mod ledger;
pub mod log;
pub mod native;
mod signals;
mod table;

pub use self::exit::Exit;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fmt, io,
    path::PathBuf,
    time::Duration,
};

use async_trait::async_trait;
use llmgw_core::{
    error::{Code, Coded},
    id::ReplicaId,
    units::Bytes,
};

use self::identity::ProcessIdentity;

/// Runs the processes of replicas.
///
/// # Contract
/// * A replica has at most one process tree. [`start`](Self::start) and [`adopt`](Self::adopt) make it known,
///   [`stop`](Self::stop) ends and forgets it; in between, [`wait`](Self::wait) tells how its first process
///   ended, as often as it is asked.
/// * Everything that descends from the first process belongs to its tree, whatever it did to its parents, its
///   group, its session or its signals. An implementation MUST find such a process again after the agent has
///   been killed and started anew, as long as the process kept the environment that it was given; it SHOULD find
///   one that did not.
/// * An engine gets no input, both its outputs go to the log, and its environment is what
///   [`ProcessStart::env`] says, the few variables of [`INHERITED`] and our marks.
/// * A process is signalled only when its identity was checked: a number that the kernel has given to another
///   process MUST NOT be hit.
/// * `stop` returns when no process of the tree is left, or with an error that says which are. It MAY be called
///   for a replica that was never started, and again after it has returned; then it ends what it finds.
/// * Not being able to look, for want of file descriptors say, is an error and MUST NOT be taken for the end of a
///   process.
/// * Dropping a future of `start` or `stop` leaves the tree known or findable, so that `stop` can finish.
/// * [`release`](Self::release) ends nothing: what runs goes on without the agent.
/// * Methods may be called at the same time for different replicas; for one replica, one at a time besides
///   `wait` and `usage`.
#[async_trait]
pub trait ProcessRuntime: fmt::Debug + Send + Sync + 'static {
    /// Starts the first process of a replica.
    ///
    /// # Errors
    /// When the program can't be run, or the replica has a process already.
    async fn start(&self, start: &ProcessStart) -> Result<ProcessIdentity, ProcessError>;

    /// Takes over a process that an earlier life of the agent has started.
    ///
    /// # Errors
    /// When the process is gone, or is another one, or is not marked as this replica's.
    async fn adopt(
        &self,
        replica: ReplicaId,
        identity: &ProcessIdentity,
    ) -> Result<(), ProcessError>;

    /// Waits until the first process has ended.
    ///
    /// # Errors
    /// When the replica is not known here.
    async fn wait(&self, replica: ReplicaId) -> Result<Exit, ProcessError>;

    /// Asks the whole tree to end, makes it end after `grace`, and waits until it has.
    ///
    /// # Errors
    /// When a process can't be ended.
    async fn stop(&self, replica: ReplicaId, grace: Duration) -> Result<(), ProcessError>;

    /// What each tree uses, of those that run.
    ///
    /// # Errors
    /// When that can't be told now.
    async fn usage(&self) -> Result<BTreeMap<ReplicaId, Usage>, ProcessError>;

    /// What the tree of a replica holds now, weights that it has mapped included, and which processes it has. It may
    /// take as long as it takes to walk their pages, so that it is asked for rarely. `None` where it can't be told.
    ///
    /// # Errors
    /// When that can't be told now.
    async fn resident(&self, replica: ReplicaId) -> Result<Option<Resident>, ProcessError> {
        let _ = replica;
        Ok(None)
    }

    /// Lists what earlier lives of the agent have left: trees that are marked as this agent's and belong to no
    /// replica that was started or adopted here.
    ///
    /// # Errors
    /// When that can't be told now.
    async fn leftovers(&self) -> Result<Vec<Leftover>, ProcessError>;

    /// Ends leftovers, and waits until they have ended.
    ///
    /// # Errors
    /// When a process can't be ended.
    async fn end(&self, leftovers: &[Leftover], grace: Duration) -> Result<(), ProcessError>;

    /// Forgets all trees and ends none.
    async fn release(&self);
}

/// How a replica's first process is started.
#[derive(Clone, Debug)]
pub struct ProcessStart {
    /// Whose process it is.
    pub replica: ReplicaId,
    /// What is run; looked up in `PATH` when it is a bare name.
    pub program: PathBuf,
    /// With which arguments.
    pub args: Vec<OsString>,
    /// With which variables, besides those that every process gets.
    pub env: Vec<(OsString, OsString)>,
    /// The file that both outputs are appended to.
    pub log: PathBuf,
    /// What the whole tree may use, where the machine can hold it to that.
    pub limits: Limits,
}

/// What a tree of processes may use.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Limits {
    /// Memory, page cache included; beyond it the kernel ends the whole tree. Absent for as much as there is.
    pub memory: Option<Bytes>,
    /// Processes and threads together; absent for as many as there may be.
    pub processes: Option<u32>,
}

/// What a tree of processes uses.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// Memory that is the tree's own; pages of mapped files are not, for they give way.
    pub held: Bytes,
    /// Processor time since the processes began.
    pub cpu: Duration,
}

/// What a tree of processes holds in main memory.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Resident {
    /// Its own memory, and the pages of files that it has mapped; what several of its processes share counts once.
    pub memory: Bytes,
    /// Its processes.
    pub pids: BTreeSet<u32>,
}

/// Processes that an earlier life of the agent has left.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Leftover {
    /// Whose they are; absent for those of an installation or a fetch.
    pub replica: Option<ReplicaId>,
    /// The processes that were seen.
    pub processes: Vec<ProcessIdentity>,
}

/// Says why a process could not be started, taken over or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// The program could not be run.
    #[error("starting {}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The launcher could not be run, or did not say what it did.
    #[error("starting an engine by the launcher {}", launcher.display())]
    Launch {
        /// The launcher's program.
        launcher: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A file or directory that belongs to processes could not be used.
    #[error("using {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The replica has a process already.
    #[error("replica {0} has a process already")]
    Running(ReplicaId),
    /// The replica has no process here.
    #[error("replica {0} has no process here")]
    Unknown(ReplicaId),
    /// The process is not the one that was looked for.
    #[error("process {pid} is not that of replica {replica} any more")]
    Stranger {
        /// The replica.
        replica: ReplicaId,
        /// The number under which another process, or none, was found.
        pid: u32,
    },
    /// Processes outlived the strongest signal.
    #[error("processes {pids:?} do not end")]
    Unending {
        /// Their numbers.
        pids: Vec<u32>,
    },
}

// === impl Limits ===

impl Limits {
    /// The limits for a replica whose profile says that it needs so much main memory.
    ///
    /// A quarter more than what was declared, and 1 GiB: estimates are right within that (it is the bound that
    /// they are tested with), and an engine that goes beyond has a leak, which is to end it and not its
    /// neighbours. Threads count as processes: 16,384 are more than an engine with a pool per core on the
    /// largest machines has, and few for a fork bomb.
    #[must_use]
    pub fn of_memory(need: Bytes) -> Self {
        let quarter = need.0 / 4;
        let most = need
            .0
            .saturating_add(quarter)
            .saturating_add(Bytes::gib(1).0);
        Self {
            memory: Some(Bytes(most)),
            processes: Some(16_384),
        }
    }
}

// === impl ProcessError ===

impl Coded for ProcessError {
    fn code(&self) -> Code {
        match self {
            Self::Start { .. }
            | Self::Launch { .. }
            | Self::File { .. }
            | Self::Unending { .. } => Code::Unavailable,
            Self::Running(_) => Code::Conflict,
            Self::Unknown(_) | Self::Stranger { .. } => Code::NotFound,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Start { source, program } if source.kind() == io::ErrorKind::NotFound => {
                Some(format!("there is no program {}", program.display()))
            }
            Self::Start { source, program } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some(format!(
                    "make {} executable for the agent's user",
                    program.display()
                ))
            }
            Self::Start { source, .. }
            | Self::Launch { source, .. }
            | Self::File { source, .. }
                if exhausted(source) =>
            {
                Some(DESCRIPTORS_HINT.to_owned())
            }
            Self::Unending { .. } => Some(
                "a process that ignores SIGKILL waits for a disk or a driver; look for it with ps"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

/// Whether an error says that this process, or the machine, has no means left: no file descriptors, no memory
/// for sockets, no port. It says nothing of whom the call was meant for.
pub(crate) fn exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        number,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::ADDRNOTAVAIL)
    )
}

/// What helps against the commonest of those.
pub(crate) const DESCRIPTORS_HINT: &str =
    "raise the limit of open files (ulimit -n, LimitNOFILE=), or close connections";

/// Chooses from a binary's environment what its engines get too.
pub fn inherited<I>(environment: I) -> Vec<(OsString, OsString)>
where
    I: IntoIterator<Item = (OsString, OsString)>,
{
    environment
        .into_iter()
        .filter(|(name, _)| INHERITED.iter().any(|inherited| name == inherited))
        .collect()
}

/// The variables of the agent's own environment that its engines get too.
pub const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

/// The variable that names the data directory of the agent to which a process belongs.
///
/// It marks a process only together with [`REPLICA_MARK`] or [`TASK_MARK`]: an operator may well have this one
/// in a shell, as the agent's own setting.
pub const DATA_DIR_MARK: &str = "LLMGW_DATA_DIR";

/// The variable that names the replica to which a process belongs.
pub const REPLICA_MARK: &str = "LLMGW_REPLICA";

/// The variable that marks the launcher of a replica, beside [`REPLICA_MARK`]; engines don't get it.
pub const LAUNCHER_MARK: &str = "LLMGW_LAUNCHER";

/// The variable that marks a process of an installation or a fetch; its value says of what.
pub const TASK_MARK: &str = "LLMGW_TASK";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_leaves_room_for_what_an_estimate_may_miss() {
        let limits = Limits::of_memory(Bytes::gib(8));
        assert_eq!(limits.memory, Some(Bytes::gib(11)));
        let absurd = Limits::of_memory(Bytes(u64::MAX));
        assert_eq!(absurd.memory, Some(Bytes(u64::MAX)));
    }
}
