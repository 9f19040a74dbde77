//! A runtime that has, on demand, one of the bugs that people put into runtimes.

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use llmgw_agent::{
    process::{
        Exit, Leftover, ProcessError, ProcessRuntime, ProcessStart, Usage,
        identity::ProcessIdentity,
    },
    testing::World,
};
use llmgw_core::{id::ReplicaId, units::Bytes};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::script;

macro_rules! bugs {
    ($($bug:ident),+ $(,)?) => {
        /// What people get wrong in a runtime.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub(crate) enum Bug { None, $($bug),+ }

        pub(crate) const BUGS: &[Bug] = &[$(Bug::$bug),+];
    };
}

bugs! {
    StartsTwice,
    StartsAgainWhatHasEnded,
    StartTellsAnotherProcess,
    StartIsNotKept,
    MissingProgramsAreKnown,
    MissingProgramsRun,
    DroppedStartIsLost,
    DroppedStartIsMarkedLate,
    EndIsToldOnce,
    EndIsUnseen,
    SignalsAreCodes,
    EndIsToldAtTheLast,
    UnknownIsWaitedFor,
    StopEndsTheFirstAlone,
    StopEndsWhatTheFirstHolds,
    StopReturnsBeforeTheEnd,
    StopKillsAtOnce,
    StopWaitsForTheGrace,
    StopNeverKills,
    StopFailsForNothing,
    StopEndsAll,
    StopForgetsNothing,
    DroppedStopForgets,
    StopKnowsNoEarlierLives,
    WaitersAreForgotten,
    OneAtATime,
    ReleaseEnds,
    ReleaseForgetsNothing,
    AdoptsAnything,
    AdoptsByNumber,
    AdoptsForOthers,
    AdoptsTwice,
    AdoptsNothing,
    AdoptEnds,
    AdoptedIsStoppedAlone,
    AdoptedEndIsMissed,
    FailedAdoptionIsKnown,
    LeftoversAreNone,
    LeftoversAreAll,
    LeftoversAreTheFirst,
    EndsNothing,
    EndsTheFirst,
    EndsByNumber,
    EndsAll,
    UsageOfNothing,
    UsageOfTheEnded,
}

#[derive(Debug)]
pub(crate) struct BrokenRuntime {
    world: World,
    bug: Bug,
    known: Mutex<BTreeMap<ReplicaId, ProcessIdentity>>,
    told: Mutex<Vec<ReplicaId>>,
    ended: Mutex<Vec<ReplicaId>>,
    turn: tokio::sync::Mutex<()>,
    released: CancellationToken,
}

impl BrokenRuntime {
    pub(crate) fn new(world: World, bug: Bug) -> Self {
        Self {
            world,
            bug,
            known: Mutex::default(),
            told: Mutex::default(),
            ended: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            released: CancellationToken::new(),
        }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == bug
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<ReplicaId, ProcessIdentity>> {
        self.known.lock().unwrap()
    }

    async fn end_all(&self, processes: &[ProcessIdentity], grace: Duration) {
        if self.has(Bug::StopKillsAtOnce) {
            for process in processes {
                self.world.end(process, Exit::Signal(9));
            }
            return;
        }
        let mut stubborn = self.has(Bug::StopWaitsForTheGrace);
        for process in processes {
            stubborn |= !self.world.ask(process) && self.world.is_running(process);
        }
        if stubborn && !self.has(Bug::StopReturnsBeforeTheEnd) {
            if self.has(Bug::StopNeverKills) {
                pending::<()>().await;
            }
            sleep(grace).await;
            for process in processes {
                self.world.end(process, Exit::Signal(9));
            }
        }
    }
}

#[async_trait]
impl ProcessRuntime for BrokenRuntime {
    async fn start(&self, start: &ProcessStart) -> Result<ProcessIdentity, ProcessError> {
        let replica = start.replica;
        let before = self.known().get(&replica).cloned();
        let refused = before.is_some_and(|before| {
            self.world.is_running(&before) || !self.has(Bug::StartsAgainWhatHasEnded)
        });
        if refused && !self.has(Bug::StartsTwice) {
            return Err(ProcessError::Running(replica));
        }
        let script = match script(start) {
            Ok(script) => script,
            Err(_) if self.has(Bug::MissingProgramsRun) => Default::default(),
            Err(source) => {
                if self.has(Bug::MissingProgramsAreKnown) {
                    let nobody = self.world.stranger();
                    self.world.end(&nobody, Exit::Unseen);
                    self.known().insert(replica, nobody);
                }
                let program = start.program.clone();
                return Err(ProcessError::Start { program, source });
            }
        };
        if self.has(Bug::OneAtATime) {
            drop(self.turn.lock().await);
        }
        if self.has(Bug::DroppedStartIsMarkedLate) {
            let (world, script) = (self.world.clone(), script.clone());
            // The process is there some time after whoever asked for it has gone.
            let late = async move {
                sleep(LATE).await;
                world.spawn(replica, &script)
            };
            let first = tokio_util::task::TaskTracker::new()
                .spawn(late)
                .await
                .unwrap();
            self.known().insert(replica, first.clone());
            return Ok(first);
        }
        let first = self.world.spawn(replica, &script);
        if self.has(Bug::DroppedStartIsLost) {
            // Until here nobody knows it, and it carries no mark.
            let orphan = self.world.stranger();
            self.world.end(&orphan, Exit::Unseen);
            sleep(STEP).await;
        }
        if !self.has(Bug::StartIsNotKept) {
            self.known().insert(replica, first.clone());
        }
        if self.has(Bug::StartTellsAnotherProcess) {
            return Ok(ProcessIdentity {
                pid: first.pid + 1,
                ..first
            });
        }
        Ok(first)
    }

    async fn adopt(
        &self,
        replica: ReplicaId,
        identity: &ProcessIdentity,
    ) -> Result<(), ProcessError> {
        if self.known().contains_key(&replica) && !self.has(Bug::AdoptsTwice) {
            return Err(ProcessError::Running(replica));
        }
        let mine = self.world.owner(identity.pid) == Some(replica);
        let ours = (self.world.is_running(identity) && (mine || self.has(Bug::AdoptsForOthers)))
            || (mine && self.has(Bug::AdoptsByNumber))
            || self.has(Bug::AdoptsAnything);
        if !ours || self.has(Bug::AdoptsNothing) {
            if self.has(Bug::FailedAdoptionIsKnown) {
                self.known().insert(replica, identity.clone());
            }
            let pid = identity.pid;
            return Err(ProcessError::Stranger { replica, pid });
        }
        if self.has(Bug::AdoptEnds) {
            self.world.end(identity, Exit::Signal(1));
        }
        self.known().insert(replica, identity.clone());
        if self.has(Bug::AdoptedEndIsMissed) {
            self.ended.lock().unwrap().push(replica);
        }
        if self.has(Bug::AdoptedIsStoppedAlone) {
            self.told.lock().unwrap().push(replica);
        }
        Ok(())
    }

    async fn wait(&self, replica: ReplicaId) -> Result<Exit, ProcessError> {
        let unknown = || ProcessError::Unknown(replica);
        if self.has(Bug::UnknownIsWaitedFor) && !self.known().contains_key(&replica) {
            pending::<()>().await;
        }
        let first = self.known().get(&replica).cloned().ok_or_else(unknown)?;
        if self.ended.lock().unwrap().contains(&replica) {
            pending::<()>().await;
        }
        if self.has(Bug::EndIsToldOnce) {
            let mut told = self.told.lock().unwrap();
            if told.contains(&replica) {
                return Err(unknown());
            }
            told.push(replica);
        }
        let ended = self
            .released
            .run_until_cancelled(self.world.ended(&first))
            .await;
        if self.has(Bug::EndIsToldAtTheLast) {
            for process in self.world.running(replica) {
                self.world.ended(&process).await;
            }
        }
        if self.has(Bug::WaitersAreForgotten) && !self.known().contains_key(&replica) {
            return Err(unknown());
        }
        let exit = ended.flatten().ok_or_else(unknown)?;
        Ok(match exit {
            _ if self.has(Bug::EndIsUnseen) => Exit::Unseen,
            Exit::Signal(signal) if self.has(Bug::SignalsAreCodes) => Exit::Code(128 + signal),
            exit => exit,
        })
    }

    async fn stop(&self, replica: ReplicaId, grace: Duration) -> Result<(), ProcessError> {
        let _turn = match self.bug {
            Bug::OneAtATime => Some(self.turn.lock().await),
            _ => None,
        };
        let known = self.known().get(&replica).cloned();
        if known.is_none() && self.has(Bug::StopFailsForNothing) {
            return Err(ProcessError::Unknown(replica));
        }
        if known.is_none()
            && (self.has(Bug::StopKnowsNoEarlierLives) || self.has(Bug::DroppedStartIsLost))
        {
            return Ok(());
        }
        let mut processes = self.world.running(replica);
        let first_runs = known
            .as_ref()
            .is_some_and(|first| self.world.is_running(first));
        if self.has(Bug::StopEndsTheFirstAlone)
            || self.told.lock().unwrap().contains(&replica) && self.has(Bug::AdoptedIsStoppedAlone)
        {
            processes.retain(|process| Some(process) == known.as_ref());
        }
        if self.has(Bug::StopEndsWhatTheFirstHolds) && known.is_some() && !first_runs {
            processes.clear();
        }
        if self.has(Bug::StopEndsAll) {
            processes = self.world.replicas().into_values().flatten().collect();
        }
        if self.has(Bug::WaitersAreForgotten) {
            self.known().remove(&replica);
        }
        if self.has(Bug::DroppedStopForgets) {
            self.known().remove(&replica);
            self.ended.lock().unwrap().push(replica);
        }
        self.end_all(&processes, grace).await;
        if !self.has(Bug::StopForgetsNothing) && !self.has(Bug::UsageOfTheEnded) {
            self.known().remove(&replica);
        }
        Ok(())
    }

    async fn usage(&self) -> Result<BTreeMap<ReplicaId, Usage>, ProcessError> {
        if self.has(Bug::UsageOfNothing) {
            return Ok(BTreeMap::new());
        }
        let known: Vec<ReplicaId> = self.known().keys().copied().collect();
        let used = Usage {
            held: Bytes::mib(1),
            cpu: Duration::ZERO,
        };
        let runs =
            |id: &ReplicaId| !self.world.running(*id).is_empty() || self.has(Bug::UsageOfTheEnded);
        Ok(known
            .into_iter()
            .filter(runs)
            .map(|id| (id, used))
            .collect())
    }

    async fn leftovers(&self) -> Result<Vec<Leftover>, ProcessError> {
        if self.has(Bug::LeftoversAreNone) {
            return Ok(Vec::new());
        }
        let forgotten = self.ended.lock().unwrap().clone();
        let known = self.known();
        let unknown = |id: &ReplicaId| {
            let dropped = self.has(Bug::DroppedStopForgets) && forgotten.contains(id);
            (!known.contains_key(id) || self.has(Bug::LeftoversAreAll)) && !dropped
        };
        let replicas = self.world.replicas().into_iter();
        Ok(replicas
            .filter(|(id, _)| unknown(id))
            .map(|(id, mut processes)| {
                if self.has(Bug::LeftoversAreTheFirst) {
                    processes.truncate(1);
                }
                Leftover {
                    replica: Some(id),
                    processes,
                }
            })
            .collect())
    }

    async fn end(&self, leftovers: &[Leftover], grace: Duration) -> Result<(), ProcessError> {
        if self.has(Bug::EndsNothing) {
            return Ok(());
        }
        if self.has(Bug::EndsAll) {
            let all: Vec<_> = self.world.replicas().into_values().flatten().collect();
            self.end_all(&all, grace).await;
        }
        for leftover in leftovers {
            let mut processes = leftover.processes.clone();
            if self.has(Bug::EndsByNumber) {
                // Whoever has the number, however it began.
                for process in &mut processes {
                    process.start_time = u64::from(process.pid) * 100;
                    process.boot_id = "scripted".to_owned();
                }
            }
            if let Some(replica) = leftover.replica
                && !self.has(Bug::EndsTheFirst)
            {
                processes.extend(self.world.running(replica));
            }
            if self.has(Bug::EndsTheFirst) {
                processes.truncate(1);
            }
            self.end_all(&processes, grace).await;
        }
        Ok(())
    }

    async fn release(&self) {
        if self.has(Bug::ReleaseEnds) {
            let known: Vec<ReplicaId> = self.known().keys().copied().collect();
            for replica in known {
                self.end_all(&self.world.running(replica), Duration::ZERO)
                    .await;
            }
        }
        if !self.has(Bug::ReleaseForgetsNothing) {
            self.released.cancel();
            self.known().clear();
        }
    }
}

const STEP: Duration = Duration::from_millis(3);

/// Longer than the suite waits for what was just begun.
const LATE: Duration = Duration::from_millis(320);
