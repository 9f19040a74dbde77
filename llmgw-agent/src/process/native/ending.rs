//! The end of a tree, to its last process.

use std::{collections::BTreeSet, time::Duration};

use llmgw_core::id::ReplicaId;
use rustix::process::Signal;
use tokio::time::Instant;

use super::{NativeRuntime, unseen};
use crate::process::{
    ProcessError,
    identity::ProcessIdentity,
    table::{Mark, ProcessTable},
};

/// What is to end.
#[derive(Debug)]
pub(super) struct Target {
    /// All that carries their marks, or is in their control groups.
    pub(super) replicas: BTreeSet<ReplicaId>,
    /// All that is in their groups.
    pub(super) leaders: Vec<ProcessIdentity>,
    /// These.
    pub(super) listed: BTreeSet<ProcessIdentity>,
}

/// What was found of it at one time.
#[derive(Debug)]
struct Found {
    engines: Vec<ProcessIdentity>,
    launchers: Vec<ProcessIdentity>,
    /// Processes of a control group that are younger than the table.
    unnamed: BTreeSet<u32>,
}

impl NativeRuntime {
    /// Ends the target until nothing more of it is found. Members that were seen once stay members, whatever
    /// becomes of their parents.
    pub(super) async fn end_tree(
        &self,
        grace: Duration,
        target: &Target,
    ) -> Result<(), ProcessError> {
        let mut seen: BTreeSet<ProcessIdentity> = target.listed.clone();
        let mut asked: BTreeSet<ProcessIdentity> = BTreeSet::new();
        let begin = Instant::now();
        let mut alone = None;
        loop {
            let found = self.find(target, &seen).await?;
            if found.is_empty() {
                return Ok(());
            }
            let elapsed = begin.elapsed();
            if elapsed < grace {
                for process in &found.engines {
                    if asked.insert(process.clone()) {
                        process.signal(Signal::TERM).map_err(unseen)?;
                    }
                }
            } else {
                // One by one first, so that the launcher lives to tell how the engine ended.
                if elapsed >= grace + SINGLY {
                    self.kill_groups(target)?;
                }
                for process in &found.engines {
                    process.signal(Signal::KILL).map_err(unseen)?;
                }
            }
            // A launcher is what its tree is found by, and ends with the last of it.
            let stuck = if found.engines.is_empty() && found.unnamed.is_empty() {
                alone
                    .get_or_insert(elapsed)
                    .saturating_add(LAUNCHER_PATIENCE)
                    < elapsed
            } else {
                alone = None;
                elapsed > grace + LAUNCHER_PATIENCE
            };
            if stuck {
                for process in &found.launchers {
                    process.signal(Signal::KILL).map_err(unseen)?;
                }
            }
            if elapsed > grace + KILL_PATIENCE {
                return Err(ProcessError::Unending { pids: found.pids() });
            }
            seen.extend(found.engines);
            seen.extend(found.launchers);
            let left = grace.saturating_sub(elapsed);
            let nap = if left.is_zero() {
                LOOK_EVERY
            } else {
                LOOK_EVERY.min(left)
            };
            tokio::time::sleep(nap).await;
        }
    }

    async fn find(
        &self,
        target: &Target,
        seen: &BTreeSet<ProcessIdentity>,
    ) -> Result<Found, ProcessError> {
        let table = self.table().await?;
        // Read after the table: a number that has gone to another process between the two is then one with an
        // earlier start, which no signal hits.
        let mut grouped = BTreeSet::new();
        for replica in &target.replicas {
            grouped.extend(self.grouped(*replica)?);
        }
        let marked = table.marked().filter(|(_, mark)| match mark {
            Mark::Replica(replica) | Mark::Launcher(replica) => target.replicas.contains(replica),
            Mark::Task => false,
        });
        let remembered = seen
            .iter()
            .filter(|process| table.identity(process.pid).as_ref() == Some(*process))
            .map(|process| process.pid);
        let led = target.leaders.iter().flat_map(|leader| table.group(leader));
        let seeds: BTreeSet<u32> = marked
            .map(|(pid, _)| pid)
            .chain(remembered)
            .chain(led)
            .chain(grouped.iter().copied())
            .collect();
        Ok(Found::sort(&table, seeds, grouped))
    }

    fn kill_groups(&self, target: &Target) -> Result<(), ProcessError> {
        let Some(cgroups) = self.config.containment.cgroups() else {
            return Ok(());
        };
        for replica in &target.replicas {
            cgroups
                .kill(*replica)
                .map_err(|source| ProcessError::File {
                    path: cgroups.parent().to_owned(),
                    source,
                })?;
        }
        Ok(())
    }
}

impl Found {
    fn sort(table: &ProcessTable, seeds: BTreeSet<u32>, grouped: BTreeSet<u32>) -> Self {
        let (launchers, engines) = table
            .closure(seeds)
            .into_iter()
            .partition(|process| matches!(table.mark(process.pid), Some(Mark::Launcher(_))));
        Self {
            engines,
            launchers,
            unnamed: grouped.into_iter().filter(|pid| !table.has(*pid)).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        let Self {
            engines,
            launchers,
            unnamed,
        } = self;
        engines.is_empty() && launchers.is_empty() && unnamed.is_empty()
    }

    fn pids(&self) -> Vec<u32> {
        let named = self.engines.iter().chain(&self.launchers);
        named
            .map(|process| process.pid)
            .chain(self.unnamed.iter().copied())
            .collect()
    }
}

/// How long a process may take to vanish after SIGKILL: the kernel frees tens of gigabytes in less.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// How long processes are killed one by one. Who makes new ones as fast ends with the whole group.
const SINGLY: Duration = Duration::from_millis(200);

/// How long a launcher may take to end when it has no children any more, or only ones that do not end.
const LAUNCHER_PATIENCE: Duration = Duration::from_secs(2);

/// Between two looks at a tree that is ending.
const LOOK_EVERY: Duration = Duration::from_millis(30);
