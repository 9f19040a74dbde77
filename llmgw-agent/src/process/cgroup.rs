//! One control group (version 2) per replica: what belongs to it, what it may use, and how all of it ends.
//!
//! A process can clear its environment, leave its group, its session and its parents; it can't leave its control
//! group without a right that engines don't need. So membership is the surest sign of belonging, and a kill of
//! the group is the surest end.
//!
//! ```text
//!   the agent's own group        e.g. /sys/fs/cgroup/system.slice/llmgw-agent.service
//!   ├── llmgw-agent              the agent itself, where the kernel wants no processes beside groups
//!   └── llmgw-5f0c...            one per data directory, so that agents don't meet
//!       ├── r-0198...            one per replica
//!       └── r-0199...
//! ```
//! Root may make groups anywhere; another user needs a part of the tree of its own, which systemd gives to a
//! unit with `Delegate=yes`. Such a unit also wants `DelegateSubgroup=llmgw-agent`, so that it starts again
//! while engines run, and `KillMode=process`, so that engines outlive the agent.

mod files;
mod place;

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use llmgw_core::{cluster::node::Warning, id::ReplicaId, units::Bytes};

pub use self::place::AGENT_GROUP;

use self::{
    files::{absent, group_processes, groups_beneath, make, number, put, value},
    place::enable,
};
use super::{Limits, Usage};

/// The control groups of one data directory's replicas.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cgroups {
    /// The group that holds those of the replicas.
    parent: PathBuf,
    /// Where earlier lives of the agent had theirs.
    earlier: Vec<PathBuf>,
    /// What the kernel limits here.
    memory: bool,
    pids: bool,
}

/// Says why replicas get no control groups.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CgroupError {
    /// The machine has none of version 2, or does not show them.
    #[error("no control groups of version 2 are mounted")]
    Absent,
    /// The agent's own group lies outside of what is mounted here.
    #[error("the agent's control group, {own}, is not among those that are mounted")]
    Elsewhere {
        /// As the kernel names it.
        own: String,
    },
    /// The kernel counts no memory in such groups here.
    #[error("the control group {} comes without the memory controller", path.display())]
    Uncounted {
        /// The agent's own.
        path: PathBuf,
    },
    /// The agent may not make groups.
    #[error("{} can't be used: {source}", path.display())]
    Refused {
        /// The file or directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

// === impl CgroupError ===

impl CgroupError {
    /// What it means to who runs engines here.
    #[must_use]
    pub fn warning(&self) -> Warning {
        unlimited(&self.to_string())
    }
}

/// That nothing holds engines to their memory, and what there is instead of what it takes.
pub(super) fn unlimited(have: &str) -> Warning {
    let text = format!(
        "nothing holds engines to the memory that they were given, so that one that takes more can end its \
         neighbours: that needs a control group of version 2 with the memory controller, in which the agent may \
         make others, and {have}; a systemd unit with Delegate=yes and DelegateSubgroup={AGENT_GROUP} has one, on a \
         machine that was started with systemd.unified_cgroup_hierarchy=1"
    );
    Warning::new(Warning::ENGINE_MEMORY_UNLIMITED, text)
}

// === impl Cgroups ===

impl Cgroups {
    /// That the kernel holds no replica to its memory here; `None` where it does.
    #[must_use]
    pub fn warning(&self) -> Option<Warning> {
        let uncounted = || CgroupError::Uncounted {
            path: self.parent.clone(),
        };
        (!self.memory).then(|| uncounted().warning())
    }

    /// What the kernel limits for these groups; `None` for nothing.
    #[must_use]
    pub fn limited(&self) -> Option<&'static str> {
        match (self.memory, self.pids) {
            (true, true) => Some("memory and processes"),
            (true, false) => Some("memory"),
            (false, true) => Some("processes"),
            (false, false) => None,
        }
    }

    /// The group that holds those of the replicas.
    #[must_use]
    pub fn parent(&self) -> &Path {
        &self.parent
    }

    /// Makes a replica's group with its limits; one that is there is used again.
    pub(super) fn create(&self, replica: ReplicaId, limits: &Limits) -> io::Result<PathBuf> {
        let group = self.parent.join(replica.to_string());
        if let Err(error) = make(&group) {
            if !absent(&error) {
                return Err(error);
            }
            // Another user of the data directory has removed the place when it was done with it.
            make(&self.parent)?;
            enable(&self.parent);
            make(&group)?;
        }
        self.limit(&group, limits)?;
        Ok(group)
    }

    fn limit(&self, group: &Path, limits: &Limits) -> io::Result<()> {
        let Limits { memory, processes } = limits;
        if let Some(memory) = memory.filter(|_| self.memory) {
            put(&group.join("memory.max"), &memory.0.to_string())?;
            // An engine that has lost one of its processes is no engine: all of it ends, or nothing.
            put(&group.join("memory.oom.group"), "1")?;
        }
        if let Some(processes) = processes.filter(|_| self.pids) {
            put(&group.join("pids.max"), &processes.to_string())?;
        }
        Ok(())
    }

    /// The groups that a replica has or had.
    fn of(&self, replica: ReplicaId) -> impl Iterator<Item = PathBuf> + '_ {
        std::iter::once(&self.parent)
            .chain(&self.earlier)
            .map(move |parent| parent.join(replica.to_string()))
            .filter(|group| group.is_dir())
    }

    /// The processes in a replica's groups and in those beneath.
    ///
    /// # Errors
    /// When a group can't be read: its processes would look as if they had ended.
    pub(super) fn members(&self, replica: ReplicaId) -> io::Result<BTreeSet<u32>> {
        let mut members = BTreeSet::new();
        for group in self.of(replica) {
            for group in groups_beneath(&group)? {
                members.extend(group_processes(&group)?);
            }
        }
        Ok(members)
    }

    /// Kills all that is in a replica's groups, and all that it starts meanwhile. Whether it has ended is to be
    /// seen by [`members`](Self::members).
    ///
    /// # Errors
    /// When the kernel refuses; kernels before 5.14 can't, which is none.
    pub(super) fn kill(&self, replica: ReplicaId) -> io::Result<()> {
        for group in self.of(replica) {
            match put(&group.join("cgroup.kill"), "1") {
                Err(error) if !absent(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the groups of a replica that has ended.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn remove(&self, replica: ReplicaId) -> io::Result<()> {
        for group in self.of(replica) {
            // The deepest first.
            for group in groups_beneath(&group)?.into_iter().rev() {
                match fs::remove_dir(&group) {
                    Err(error) if !absent(&error) => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Removes the place when no replica has a group in it.
    pub(super) fn leave(&self) {
        drop(fs::remove_dir(&self.parent));
    }

    /// All replicas that have a group, whether processes are in it or not.
    ///
    /// # Errors
    /// When the groups can't be listed.
    pub(super) fn replicas(&self) -> io::Result<BTreeSet<ReplicaId>> {
        let mut replicas = BTreeSet::new();
        for parent in std::iter::once(&self.parent).chain(&self.earlier) {
            let entries = match fs::read_dir(parent) {
                Err(error) if absent(&error) => continue,
                entries => entries?,
            };
            for entry in entries {
                let name = entry?.file_name();
                replicas.extend(
                    name.to_str()
                        .and_then(|name| name.parse::<ReplicaId>().ok()),
                );
            }
        }
        Ok(replicas)
    }

    /// What a replica uses, as the kernel counts it for its group; `None` where it does not count memory.
    pub(super) fn usage(&self, replica: ReplicaId) -> Option<Usage> {
        let group = self.of(replica).next()?;
        let stat = fs::read_to_string(group.join("memory.stat")).ok()?;
        // Pages of mapped files, such as weights, are the page cache's and give way.
        let held = value(&stat, "anon")?.saturating_add(value(&stat, "shmem")?);
        Some(Usage {
            held: Bytes(held),
            cpu: self.cpu(replica)?,
        })
    }

    /// What a replica holds, pages of files that it has mapped included, and not those that it has read and let go: they
    /// give way. `None` where the kernel does not count memory.
    pub(super) fn resident(&self, replica: ReplicaId) -> Option<Bytes> {
        let group = self.of(replica).next()?;
        let stat = fs::read_to_string(group.join("memory.stat")).ok()?;
        let all = number(&group.join("memory.current"))?;
        let files = value(&stat, "active_file")?.saturating_add(value(&stat, "inactive_file")?);
        let mapped = value(&stat, "file_mapped")?;
        Some(Bytes(all.saturating_sub(files).saturating_add(mapped)))
    }

    /// Processor time of all that ever ran in the group, also of what has ended.
    pub(super) fn cpu(&self, replica: ReplicaId) -> Option<Duration> {
        let group = self.of(replica).next()?;
        let stat = fs::read_to_string(group.join("cpu.stat")).ok()?;
        value(&stat, "usage_usec").map(Duration::from_micros)
    }

    /// The limit of memory for which the kernel has ended processes of a replica; `None` when it has not.
    pub(super) fn exceeded(&self, replica: ReplicaId) -> Option<Bytes> {
        let group = self.of(replica).next()?;
        let events = fs::read_to_string(group.join("memory.events")).ok()?;
        value(&events, "oom_kill").filter(|kills| *kills > 0)?;
        number(&group.join("memory.max")).map(Bytes)
    }
}

#[cfg(test)]
mod tests;
