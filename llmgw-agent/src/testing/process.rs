//! What every [`ProcessRuntime`] must do, as checks that anyone can run on theirs.
//!
//! A [`ProcessFixture`] says how processes are described to a runtime and looks for itself at what runs;
//! [`conformance`] gets a new one for each check:
//!
//! ```
//! use llmgw_agent::testing::process::{ProcessFixture, conformance};
//!
//! async fn check(fixture: impl ProcessFixture + Clone) -> Result<(), Box<dyn std::error::Error>> {
//!     conformance(|| async { fixture.clone() }).await?;
//!     Ok(())
//! }
//! ```

mod lives;
mod start;
mod stop;

use std::{error::Error, fmt, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use llmgw_core::{error::Chain, id::ReplicaId};

use crate::process::{Exit, ProcessError, ProcessRuntime, ProcessStart, identity::ProcessIdentity};

/// A machine, or a part of one, on which runtimes run processes.
///
/// # Contract
/// * `open` makes a new life of the runtime on the same machine. It is called several times, and while earlier
///   ones are in use.
/// * What the others tell does not come from the runtime: they look for themselves.
/// * Dropping the fixture may end all that runs there.
#[async_trait]
pub trait ProcessFixture: Send + Sync {
    /// A new life of the runtime.
    async fn open(&self) -> Result<Arc<dyn ProcessRuntime>, ProcessError>;

    /// The start of a process that behaves so.
    fn start(&self, replica: ReplicaId, behaviour: &Behaviour) -> ProcessStart;

    /// The processes of a replica that run now.
    async fn running(&self, replica: ReplicaId) -> Vec<ProcessIdentity>;

    /// Whether this very process runs.
    async fn is_running(&self, process: &ProcessIdentity) -> bool;

    /// Kills one process with SIGKILL, as the kernel does when memory runs out.
    async fn kill(&self, process: &ProcessIdentity);

    /// Starts a process that no runtime knows of.
    async fn stranger(&self) -> ProcessIdentity;

    /// Whether the runtime promises to find children of this kind.
    fn finds(&self, kind: ChildKind) -> bool;
}

/// What the first process of a replica does.
#[derive(Clone, Debug, Default)]
pub struct Behaviour {
    /// How it ends by itself, when its children are up; it goes on for ever when absent.
    pub end: Option<Exit>,
    /// Whether it and its children ignore SIGTERM.
    pub stubborn: bool,
    /// The children that it starts first.
    pub children: Vec<ChildKind>,
    /// Whether the program is not there.
    pub missing: bool,
}

/// What a child does to get away from its parent.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ChildKind {
    /// Nothing.
    Plain,
    /// It leads a group of its own.
    Group,
    /// It leads a session of its own.
    Session,
    /// It leads a session, and its parent has ended.
    Daemon,
    /// It is another program, with an empty environment.
    Bare,
    /// It leads a session, its parent has ended, and it is another program, with an empty environment.
    Vanished,
}

/// Checks a runtime against every sentence of its contract; each check on a fresh machine.
///
/// # Errors
/// All breaches that were found.
pub async fn conformance<F, Fut, X>(fresh: F) -> Result<(), Nonconforming>
where
    F: Fn() -> Fut,
    Fut: Future<Output = X>,
    X: ProcessFixture,
{
    let mut breaches = Vec::new();
    for (check, run) in CHECKS {
        let fixture = fresh().await;
        let outcome = tokio::time::timeout(CHECK_LIMIT, run(&fixture)).await;
        let late = || Err(Failure(format!("it did not end within {CHECK_LIMIT:?}")));
        if let Err(Failure(saw)) = outcome.unwrap_or_else(|_| late()) {
            breaches.push(Breach { check, saw });
        }
    }
    if breaches.is_empty() {
        Ok(())
    } else {
        Err(Nonconforming { breaches })
    }
}

/// The names of all checks.
pub fn checks() -> impl Iterator<Item = &'static str> {
    CHECKS.iter().map(|(check, _)| *check)
}

/// A runtime does not keep its contract.
#[derive(Debug)]
pub struct Nonconforming {
    breaches: Vec<Breach>,
}

/// A check that a runtime did not pass.
#[derive(Debug)]
pub struct Breach {
    check: &'static str,
    saw: String,
}

/// What a check saw; becomes a [`Breach`] with the check's name.
#[derive(Debug)]
struct Failure(String);

type Check =
    for<'a> fn(&'a dyn ProcessFixture) -> Pin<Box<dyn Future<Output = Checked> + Send + 'a>>;

type Checked = Result<(), Failure>;

// === impl Behaviour ===

impl Behaviour {
    /// A process that starts these children and goes on.
    fn with(children: &[ChildKind]) -> Self {
        Self {
            children: children.to_vec(),
            ..Self::default()
        }
    }
}

// === impl ChildKind ===

impl ChildKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Plain,
        Self::Group,
        Self::Session,
        Self::Daemon,
        Self::Bare,
        Self::Vanished,
    ];
}

// === impl Nonconforming ===

impl Nonconforming {
    /// What was found, in the order of the checks.
    #[must_use]
    pub fn breaches(&self) -> &[Breach] {
        &self.breaches
    }
}

impl Error for Nonconforming {}

impl fmt::Display for Nonconforming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} checks failed", self.breaches.len())?;
        for Breach { check, saw } in &self.breaches {
            write!(f, "\n- {check}: {saw}")?;
        }
        Ok(())
    }
}

// === impl Breach ===

impl Breach {
    /// The check's name: a sentence.
    #[must_use]
    pub fn check(&self) -> &'static str {
        self.check
    }
}

// === impl Failure ===

impl From<ProcessError> for Failure {
    fn from(error: ProcessError) -> Self {
        Self(format!("a call failed: {}", Chain(&error)))
    }
}

macro_rules! ensure {
    ($holds:expr, $($saw:tt)+) => {
        if !$holds {
            return Err(crate::testing::process::Failure(format!($($saw)+)));
        }
    };
}
use ensure;

/// Waits until so many processes of a replica run: children take their time.
async fn grown(fixture: &dyn ProcessFixture, replica: ReplicaId, count: usize) -> Grown {
    loop {
        let running = fixture.running(replica).await;
        if running.len() >= count {
            ensure!(
                running.len() == count,
                "{} processes instead of {count}",
                running.len()
            );
            return Ok(running);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

type Grown = Result<Vec<ProcessIdentity>, Failure>;

/// That no process of the replica runs now.
async fn gone(fixture: &dyn ProcessFixture, replica: ReplicaId, when: &str) -> Checked {
    let left = fixture.running(replica).await;
    ensure!(left.is_empty(), "{when}, {left:?} run");
    Ok(())
}

macro_rules! checks {
    ($($room:ident: $($check:ident),+;)+) => {
        &[$($((stringify!($check), |fixture| Box::pin($room::$check(fixture)))),+),+]
    };
}

const CHECKS: &[(&str, Check)] = checks! {
    start:
        a_start_is_known_until_it_is_stopped,
        a_replica_has_one_tree_at_most,
        a_program_that_can_not_be_run_is_told_and_leaves_nothing,
        an_end_is_told_as_often_as_it_is_asked,
        an_end_is_told_while_children_go_on,
        who_is_unknown_is_not_waited_for,
        what_runs_uses_something,
        a_dropped_start_leaves_nothing_that_a_stop_does_not_find;
    stop:
        a_stop_ends_the_whole_tree,
        who_ends_when_asked_is_not_made_to,
        who_does_not_end_when_asked_is_made_to_after_the_grace,
        what_an_ended_first_process_has_left_is_ended,
        a_stop_may_be_made_again_and_for_nothing,
        a_stop_touches_no_other_replica,
        a_stopped_replica_may_be_started_again,
        a_dropped_stop_can_be_finished,
        the_end_is_told_to_who_waits_while_it_is_stopped,
        one_replica_does_not_wait_for_another;
    lives:
        a_release_ends_nothing_and_forgets,
        the_next_life_adopts_and_is_told_of_the_end,
        only_the_very_process_is_adopted,
        what_is_adopted_is_stopped_as_a_whole,
        leftovers_are_what_nobody_knows,
        leftovers_end_to_the_last,
        a_stop_finds_the_tree_of_an_earlier_life,
        who_has_a_number_of_before_is_not_hit;
};

/// Several times what the slowest check takes on a slow machine; a runtime that hangs fails, and the suite ends.
const CHECK_LIMIT: Duration = Duration::from_secs(60);

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Long: who has to be made to end is told so with a short one.
const GRACE: Duration = Duration::from_secs(30);
