//! Logs of engines: asked of the agent that has them, past the loop.
//!
//! Each session has a [`Link`], by which questions reach it; it sends them on, and gives each answer to whoever asked.
//! A question is not repeated: when the session ends or the agent is silent, whoever asked is told.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use llmgw_core::{
    api::{
        agent::ToAgent,
        decision::Outcome,
        log::{LogAnswer, LogAsk, LogEnd, LogEnded, LogFrom, LogPart, LogProblem},
    },
    control::{ControlError, LONGEST_WAIT, Logs, unknown_log},
    error::Code,
    id::{NodeId, ReplicaId},
    units::Bytes,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep, timeout},
};

use super::ControllerHandle;
use crate::conductor::snapshot::Snapshot;

/// The sessions that can be asked, by node.
#[derive(Debug, Default)]
pub(super) struct Switchboard {
    /// Held for a look or a change only, never across a wait.
    links: Mutex<BTreeMap<NodeId, Link>>,
}

#[derive(Clone, Debug)]
struct Link {
    questions: mpsc::Sender<Question>,
    tells_logs: bool,
}

/// A session's end of its link; the link ends with it.
#[derive(Debug)]
pub(super) struct Line<'s> {
    switchboard: &'s Switchboard,
    node: NodeId,
    questions: mpsc::Receiver<Question>,
    /// Who waits for which answer.
    asked: BTreeMap<u64, oneshot::Sender<LogAnswer>>,
    last: u64,
}

#[derive(Debug)]
struct Question {
    replica: ReplicaId,
    from: LogFrom,
    wait: Duration,
    answer: oneshot::Sender<LogAnswer>,
}

// === impl Switchboard ===

impl Switchboard {
    /// A line for a session of this node; an earlier session's is asked no more.
    pub(super) fn line(&self, node: NodeId, tells_logs: bool) -> Line<'_> {
        let (sender, questions) = mpsc::channel(AT_A_TIME);
        let link = Link {
            questions: sender,
            tells_logs,
        };
        self.links().insert(node, link);
        Line {
            switchboard: self,
            node,
            questions,
            asked: BTreeMap::new(),
            last: 0,
        }
    }

    fn links(&self) -> MutexGuard<'_, BTreeMap<NodeId, Link>> {
        // The links are right after any panic.
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn link(&self, node: NodeId) -> Option<Link> {
        self.links().get(&node).cloned()
    }
}

// === impl Line ===

impl Line<'_> {
    /// The next question to send, as long as the agent answers fewer than it may be asked at a time. Dropping the future
    /// loses nothing.
    pub(super) async fn question(&mut self) -> ToAgent {
        // A place is free again when its answer has come, also if nobody waits for that any more: the agent is at it.
        if self.asked.len() >= AT_A_TIME {
            return std::future::pending().await;
        }
        let Some(question) = self.questions.recv().await else {
            // A newer session of the node has its own.
            return std::future::pending().await;
        };
        let Question {
            replica,
            from,
            wait,
            answer,
        } = question;
        self.last += 1;
        self.asked.insert(self.last, answer);
        let (after, lines) = match from {
            LogFrom::After(cursor) => (Some(cursor), 0),
            LogFrom::Last(lines) => (None, lines),
        };
        ToAgent::ReadLog(LogAsk {
            ask: self.last,
            replica,
            after,
            lines,
            most: MOST,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Gives an answer to whoever has asked; one that nobody has asked for is passed over.
    pub(super) fn answered(&mut self, answer: LogAnswer) {
        if let Some(asker) = self.asked.remove(&answer.ask) {
            // Whoever asked may have gone.
            drop(asker.send(answer));
        }
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        // A newer session of the node may have its own by now.
        self.questions.close();
        let mut links = self.switchboard.links();
        if let Entry::Occupied(link) = links.entry(self.node)
            && link.get().questions.is_closed()
        {
            link.remove();
        }
    }
}

#[async_trait]
impl Logs for ControllerHandle {
    async fn read_log(
        &self,
        replica: ReplicaId,
        from: LogFrom,
        wait: Duration,
    ) -> Result<LogPart, ControlError> {
        let wait = wait.min(LONGEST_WAIT);
        let begun = Instant::now();
        loop {
            let left = wait.saturating_sub(begun.elapsed());
            let answer = self.ask(replica, from, left).await?;
            if answer.problem != Some(LogProblem::NoLog) || !self.is_to_come(replica) {
                return part(&self.shared.snapshot(), replica, answer);
            }
            if left.is_zero() {
                let nothing = LogAnswer {
                    problem: None,
                    ..answer
                };
                return part(&self.shared.snapshot(), replica, nothing);
            }
            sleep(AGAIN.min(left)).await;
        }
    }
}

impl ControllerHandle {
    /// Asks the agent that has a replica's log, once.
    async fn ask(
        &self,
        replica: ReplicaId,
        from: LogFrom,
        wait: Duration,
    ) -> Result<LogAnswer, ControlError> {
        let shared = &self.shared;
        let snapshot = shared.snapshot();
        let node = node_of(&snapshot, replica).ok_or_else(|| unknown_log(replica))?;
        let hostname = snapshot.hostname(node);
        let away = || {
            unavailable(format!(
                "{hostname} is not heard, and has the log of {replica}"
            ))
            .with_hint(
                "`llmgw ctl nodes` says since when; the log is there when the node comes back",
            )
        };
        let link = shared.switchboard.link(node).ok_or_else(away)?;
        if !link.tells_logs {
            let message = format!("the agent on {hostname} is too old to tell its logs");
            return Err(
                unavailable(message).with_hint("bring it to the release of this control plane")
            );
        }
        let (answer, answered) = oneshot::channel();
        let question = Question {
            replica,
            from,
            wait,
            answer,
        };
        let Link { questions, .. } = link;
        let asking = async {
            questions.send(question).await.ok()?;
            // Else a session that ends would be waited for.
            drop(questions);
            answered.await.ok()
        };
        let patience = wait + ANSWER_WITHIN;
        match timeout(patience, asking).await {
            Ok(answer) => answer.ok_or_else(away),
            Err(_) => Err(unavailable(format!(
                "the agent on {hostname} did not tell the log of {replica} within {} s",
                patience.as_secs()
            ))),
        }
    }

    /// Whether a replica was given to a node that has not said anything of it yet.
    fn is_to_come(&self, replica: ReplicaId) -> bool {
        let snapshot = self.shared.snapshot();
        let given = snapshot.memory.assignments.get(&replica);
        given.is_some_and(|given| {
            let node = snapshot.observed.nodes.get(&given.node);
            node.is_none_or(|node| !node.replicas.contains_key(&replica))
        })
    }
}

fn part(
    snapshot: &Snapshot,
    replica: ReplicaId,
    answer: LogAnswer,
) -> Result<LogPart, ControlError> {
    let node = node_of(snapshot, replica);
    let hostname = node.map_or_else(String::new, |node| snapshot.hostname(node));
    let LogAnswer {
        ask: _,
        replica: _,
        cursor,
        lines,
        skipped,
        end,
        problem,
    } = answer;
    match problem {
        None => Ok(LogPart {
            replica,
            hostname,
            cursor,
            lines,
            skipped: Bytes(skipped),
            end: end.map(|end| explained(snapshot, replica, end)),
        }),
        Some(LogProblem::NoLog) => {
            let message = format!("{hostname} has no log of {replica}");
            Err(ControlError::new(Code::NotFound, message)
                .with_hint("a node keeps the logs of the last few replicas of each model"))
        }
        Some(LogProblem::Busy) => {
            let message = format!("{hostname} answers as many questions about logs as it may");
            Err(unavailable(message).with_hint("ask again in a few seconds"))
        }
        Some(LogProblem::Unreadable) => {
            let message = format!("the disk of {hostname} does not give the log of {replica}");
            Err(unavailable(message).with_hint("the agent's own log says why"))
        }
        Some(LogProblem::Unknown) => Err(unavailable(format!(
            "{hostname} does not tell the log of {replica}, for a reason that a newer release knows"
        ))),
    }
}

fn unavailable(message: String) -> ControlError {
    ControlError::new(Code::Unavailable, message)
}

/// The node that has a replica, or had it.
fn node_of(snapshot: &Snapshot, replica: ReplicaId) -> Option<NodeId> {
    if let Some(given) = snapshot.memory.assignments.get(&replica) {
        return Some(given.node);
    }
    let mut heard = snapshot.observed.nodes.iter();
    if let Some((node, _)) = heard.find(|(_, node)| node.replicas.contains_key(&replica)) {
        return Some(*node);
    }
    snapshot.journal.latest(|what| match what {
        Outcome::Placed {
            replica: placed,
            node,
            ..
        }
        | Outcome::Adopted {
            replica: placed,
            node,
            ..
        } if *placed == replica => Some(*node),
        _ => None,
    })
}

/// An agent knows that a replica was stopped, and not why.
fn explained(snapshot: &Snapshot, replica: ReplicaId, end: LogEnd) -> LogEnd {
    if end.reason != LogEnded::Stopped {
        return end;
    }
    let why = snapshot.journal.latest(|what| match what {
        Outcome::Draining {
            replica: ended,
            why,
        }
        | Outcome::Stopped {
            replica: ended,
            why,
        }
        | Outcome::LetGo {
            replica: ended,
            why,
        } if *ended == replica => Some(LogEnd {
            reason: LogEnded::Stopped,
            text: format!("stopped: {why}"),
        }),
        Outcome::Failed {
            replica: ended,
            error,
        } if *ended == replica => Some(LogEnd {
            reason: LogEnded::Failed,
            text: format!("failed: {error}"),
        }),
        _ => None,
    });
    why.unwrap_or(end)
}

/// Questions that an agent answers at a time.
const AT_A_TIME: usize = 16;

/// Between two questions about a replica that its node has not heard of yet.
const AGAIN: Duration = Duration::from_millis(500);

/// Bytes of a log in one answer: thousands of lines.
const MOST: u64 = 256 << 10;

/// An agent that has something to tell, and whose disk and stream are well, needs milliseconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
