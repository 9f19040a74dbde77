//! Starts, and how their ends are told.

use std::time::Duration;

use llmgw_core::id::ReplicaId;

use super::{Behaviour, Checked, ChildKind, GRACE, ProcessFixture, ensure, gone, grown};
use crate::process::{Exit, ProcessError};

pub(super) async fn a_start_is_known_until_it_is_stopped(fixture: &dyn ProcessFixture) -> Checked {
    let runtime = fixture.open().await?;
    let replica = ReplicaId::generate();
    let start = fixture.start(replica, &Behaviour::default());
    let first = runtime.start(&start).await?;
    let running = grown(fixture, replica, 1).await?;
    ensure!(
        running == [first.clone()],
        "{first:?} was told, and {running:?} run"
    );
    let leftovers = runtime.leftovers().await?;
    ensure!(
        leftovers.is_empty(),
        "a known one is left over: {leftovers:?}"
    );
    runtime.stop(replica, GRACE).await?;
    gone(fixture, replica, "after the stop").await?;
    let after = runtime.wait(replica).await;
    ensure!(
        matches!(after, Err(ProcessError::Unknown(_))),
        "after the stop, {after:?} was told of it"
    );
    Ok(())
}

pub(super) async fn a_replica_has_one_tree_at_most(fixture: &dyn ProcessFixture) -> Checked {
    let runtime = fixture.open().await?;
    let replica = ReplicaId::generate();
    let start = fixture.start(replica, &Behaviour::default());
    let first = runtime.start(&start).await?;
    let again = runtime.start(&start).await;
    ensure!(
        matches!(again, Err(ProcessError::Running(_))),
        "a second start gave {again:?}"
    );
    let adopted = runtime.adopt(replica, &first).await;
    ensure!(
        matches!(adopted, Err(ProcessError::Running(_))),
        "adopting what was started gave {adopted:?}"
    );
    grown(fixture, replica, 1).await?;
    // Also when the first process has ended: its children may go on.
    fixture.kill(&first).await;
    runtime.wait(replica).await?;
    let again = runtime.start(&start).await;
    ensure!(
        matches!(again, Err(ProcessError::Running(_))),
        "a start before the stop of what has ended gave {again:?}"
    );
    runtime.stop(replica, GRACE).await?;
    Ok(())
}

pub(super) async fn a_program_that_can_not_be_run_is_told_and_leaves_nothing(
    fixture: &dyn ProcessFixture,
) -> Checked {
    let runtime = fixture.open().await?;
    let replica = ReplicaId::generate();
    let missing = Behaviour {
        missing: true,
        ..Behaviour::default()
    };
    let start = fixture.start(replica, &missing);
    match runtime.start(&start).await {
        Err(ProcessError::Start { program, .. }) if program == start.program => {}
        answer => {
            let program = start.program.display();
            ensure!(
                false,
                "starting {program}, which is not there, gave {answer:?}"
            );
        }
    }
    let told = runtime.wait(replica).await;
    ensure!(
        matches!(told, Err(ProcessError::Unknown(_))),
        "{told:?} was told of what never ran"
    );
    runtime
        .start(&fixture.start(replica, &Behaviour::default()))
        .await?;
    grown(fixture, replica, 1).await?;
    runtime.stop(replica, GRACE).await?;
    Ok(())
}

pub(super) async fn an_end_is_told_as_often_as_it_is_asked(
    fixture: &dyn ProcessFixture,
) -> Checked {
    let runtime = fixture.open().await?;
    for exit in [
        Exit::Code(3),
        Exit::Code(0),
        Exit::Signal(9),
        Exit::Signal(6),
    ] {
        let replica = ReplicaId::generate();
        let behaviour = Behaviour {
            end: Some(exit),
            ..Behaviour::default()
        };
        runtime.start(&fixture.start(replica, &behaviour)).await?;
        for _ in 0..2 {
            let told = runtime.wait(replica).await?;
            ensure!(told == exit, "{told:?} was told of {exit:?}");
        }
        runtime.stop(replica, GRACE).await?;
    }
    Ok(())
}

pub(super) async fn an_end_is_told_while_children_go_on(fixture: &dyn ProcessFixture) -> Checked {
    let runtime = fixture.open().await?;
    let replica = ReplicaId::generate();
    let behaviour = Behaviour {
        end: Some(Exit::Code(7)),
        ..Behaviour::with(&[ChildKind::Plain, ChildKind::Session])
    };
    runtime.start(&fixture.start(replica, &behaviour)).await?;
    let told = runtime.wait(replica).await?;
    ensure!(told == Exit::Code(7), "{told:?} was told");
    let running = fixture.running(replica).await;
    ensure!(running.len() == 2, "{running:?} run when the end is told");
    runtime.stop(replica, GRACE).await?;
    Ok(())
}

pub(super) async fn who_is_unknown_is_not_waited_for(fixture: &dyn ProcessFixture) -> Checked {
    let runtime = fixture.open().await?;
    let told = tokio::time::timeout(SOON, runtime.wait(ReplicaId::generate())).await;
    ensure!(
        matches!(told, Ok(Err(ProcessError::Unknown(_)))),
        "{told:?} was told of a replica that never was"
    );
    Ok(())
}

pub(super) async fn what_runs_uses_something(fixture: &dyn ProcessFixture) -> Checked {
    let runtime = fixture.open().await?;
    let usage = runtime.usage().await?;
    ensure!(usage.is_empty(), "nothing runs, and uses {usage:?}");
    let replica = ReplicaId::generate();
    let start = fixture.start(replica, &Behaviour::with(&[ChildKind::Session]));
    runtime.start(&start).await?;
    grown(fixture, replica, 2).await?;
    let usage = runtime.usage().await?;
    let used = usage.get(&replica);
    ensure!(
        usage.len() == 1 && used.is_some_and(|used| used.held.0 > 0),
        "one replica runs, and {usage:?} are used"
    );
    runtime.stop(replica, GRACE).await?;
    let usage = runtime.usage().await?;
    ensure!(usage.is_empty(), "what has ended uses {usage:?}");
    Ok(())
}

pub(super) async fn a_dropped_start_leaves_nothing_that_a_stop_does_not_find(
    fixture: &dyn ProcessFixture,
) -> Checked {
    let runtime = fixture.open().await?;
    for delay in [0, 1, 2, 4, 8, 16, 32] {
        let replica = ReplicaId::generate();
        let start = fixture.start(replica, &Behaviour::with(&[ChildKind::Session]));
        let delay = Duration::from_millis(delay);
        let started = tokio::time::timeout(delay, runtime.start(&start)).await;
        // What was just begun has to be there before it can be found.
        if matches!(started, Ok(Ok(_))) {
            grown(fixture, replica, 2).await?;
        } else {
            tokio::time::sleep(SETTLE).await;
        }
        runtime.stop(replica, GRACE).await?;
        gone(fixture, replica, "after the stop").await?;
        tokio::time::sleep(SETTLE).await;
        gone(fixture, replica, "some time after the stop").await?;
        let leftovers = runtime.leftovers().await?;
        ensure!(
            leftovers.is_empty(),
            "after the stop, {leftovers:?} are left"
        );
    }
    Ok(())
}

const SOON: Duration = Duration::from_secs(10);

/// What a program takes from its start to its first word.
const SETTLE: Duration = Duration::from_millis(300);
