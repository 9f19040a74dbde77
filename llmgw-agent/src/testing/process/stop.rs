//! Stops, of whole trees and of nothing else.

use std::time::Duration;

use llmgw_core::id::ReplicaId;
use tokio::time::Instant;

use super::{Behaviour, Checked, ChildKind, GRACE, ProcessFixture, ensure, gone, grown};
use crate::process::Exit;

pub(super) async fn a_stop_ends_the_whole_tree(fixture: &dyn ProcessFixture) -> Checked {
    let runtime = fixture.open().await?;
    for kind in ChildKind::ALL {
        if !fixture.finds(kind) {
            continue;
        }
        for stubborn in [false, true] {
            let replica = ReplicaId::generate();
            let behaviour = Behaviour {
                stubborn,
                ..Behaviour::with(&[kind, kind])
            };
            runtime.start(&fixture.start(replica, &behaviour)).await?;
            grown(fixture, replica, 3).await?;
            let grace = if stubborn { SHORT } else { GRACE };
            runtime.stop(replica, grace).await?;
            gone(
                fixture,
                replica,
                &format!("after the stop of {kind:?} children"),
            )
            .await?;
        }
    }
    Ok(())
}

pub(super) async fn who_ends_when_asked_is_not_made_to(fixture: &dyn ProcessFixture) -> Checked {
    let runtime = fixture.open().await?;
    let replica = ReplicaId::generate();
    let start = fixture.start(replica, &Behaviour::default());
    runtime.start(&start).await?;
    grown(fixture, replica, 1).await?;
    let begin = Instant::now();
    // Who waits has begun to before the stop.
    let (told, stopped) = tokio::join!(
        biased;
        runtime.wait(replica),
        runtime.stop(replica, GRACE),
    );
    stopped?;
    ensure!(
        begin.elapsed() < GRACE,
        "it was waited for {:?}",
        begin.elapsed()
    );
    // By the request, or by itself after it.
    let told = told?;
    ensure!(told != Exit::Signal(9), "it was killed within its time");
    Ok(())
}

pub(super) async fn who_does_not_end_when_asked_is_made_to_after_the_grace(
    fixture: &dyn ProcessFixture,
) -> Checked {
    let runtime = fixture.open().await?;
    let replica = ReplicaId::generate();
    let behaviour = Behaviour {
        stubborn: true,
        ..Behaviour::with(&[ChildKind::Plain])
    };
    runtime.start(&fixture.start(replica, &behaviour)).await?;
    grown(fixture, replica, 2).await?;
    let begin = Instant::now();
    runtime.stop(replica, SHORT).await?;
    ensure!(
        begin.elapsed() >= SHORT,
        "it had {:?} of {SHORT:?}",
        begin.elapsed()
    );
    gone(fixture, replica, "after the stop").await
}

pub(super) async fn what_an_ended_first_process_has_left_is_ended(
    fixture: &dyn ProcessFixture,
) -> Checked {
    let runtime = fixture.open().await?;
    let kinds: Vec<ChildKind> = ChildKind::ALL
        .into_iter()
        .filter(|kind| fixture.finds(*kind))
        .collect();
    let replica = ReplicaId::generate();
    let start = fixture.start(replica, &Behaviour::with(&kinds));
    let first = runtime.start(&start).await?;
    grown(fixture, replica, kinds.len() + 1).await?;
    fixture.kill(&first).await;
    runtime.wait(replica).await?;
    grown(fixture, replica, kinds.len()).await?;
    runtime.stop(replica, GRACE).await?;
    gone(fixture, replica, "after the stop").await
}

pub(super) async fn a_stop_may_be_made_again_and_for_nothing(
    fixture: &dyn ProcessFixture,
) -> Checked {
    let runtime = fixture.open().await?;
    let replica = ReplicaId::generate();
    runtime.stop(replica, GRACE).await?;
    let start = fixture.start(replica, &Behaviour::default());
    runtime.start(&start).await?;
    runtime.stop(replica, GRACE).await?;
    runtime.stop(replica, GRACE).await?;
    Ok(())
}

pub(super) async fn a_stop_touches_no_other_replica(fixture: &dyn ProcessFixture) -> Checked {
    let runtime = fixture.open().await?;
    let (one, other) = (ReplicaId::generate(), ReplicaId::generate());
    let behaviour = Behaviour::with(&[ChildKind::Plain, ChildKind::Session]);
    for replica in [one, other] {
        runtime.start(&fixture.start(replica, &behaviour)).await?;
    }
    grown(fixture, one, 3).await?;
    grown(fixture, other, 3).await?;
    let stranger = fixture.stranger().await;
    runtime.stop(one, GRACE).await?;
    let running = fixture.running(other).await;
    ensure!(running.len() == 3, "of the other one, {running:?} run");
    ensure!(fixture.is_running(&stranger).await, "a stranger has ended");
    fixture.kill(&stranger).await;
    runtime.stop(other, GRACE).await?;
    Ok(())
}

pub(super) async fn a_stopped_replica_may_be_started_again(
    fixture: &dyn ProcessFixture,
) -> Checked {
    let runtime = fixture.open().await?;
    let replica = ReplicaId::generate();
    for code in [1, 2] {
        let behaviour = Behaviour {
            end: Some(Exit::Code(code)),
            ..Behaviour::default()
        };
        runtime.start(&fixture.start(replica, &behaviour)).await?;
        let told = runtime.wait(replica).await?;
        ensure!(told == Exit::Code(code), "{told:?} was told in life {code}");
        runtime.stop(replica, GRACE).await?;
    }
    Ok(())
}

pub(super) async fn a_dropped_stop_can_be_finished(fixture: &dyn ProcessFixture) -> Checked {
    let runtime = fixture.open().await?;
    let replica = ReplicaId::generate();
    let behaviour = Behaviour {
        stubborn: true,
        ..Behaviour::with(&[ChildKind::Session])
    };
    runtime.start(&fixture.start(replica, &behaviour)).await?;
    grown(fixture, replica, 2).await?;
    let dropped = tokio::time::timeout(SHORT, runtime.stop(replica, GRACE)).await;
    ensure!(
        dropped.is_err(),
        "who ignores the request was stopped: {dropped:?}"
    );
    let leftovers = runtime.leftovers().await?;
    let running = fixture.running(replica).await;
    ensure!(running.len() == 2, "within its grace, {running:?} run");
    let known = tokio::time::timeout(SHORT, runtime.wait(replica)).await;
    ensure!(
        known.is_err() || leftovers.iter().any(|one| one.replica == Some(replica)),
        "after a dropped stop it is neither known nor found"
    );
    runtime.stop(replica, SHORT).await?;
    gone(fixture, replica, "after the second stop").await
}

pub(super) async fn the_end_is_told_to_who_waits_while_it_is_stopped(
    fixture: &dyn ProcessFixture,
) -> Checked {
    let runtime = fixture.open().await?;
    let replica = ReplicaId::generate();
    let behaviour = Behaviour {
        stubborn: true,
        ..Behaviour::default()
    };
    runtime.start(&fixture.start(replica, &behaviour)).await?;
    grown(fixture, replica, 1).await?;
    let (told, stopped) = tokio::join!(
        biased;
        runtime.wait(replica),
        runtime.stop(replica, SHORT),
    );
    stopped?;
    let told = told?;
    ensure!(told == Exit::Signal(9), "{told:?} was told");
    Ok(())
}

pub(super) async fn one_replica_does_not_wait_for_another(fixture: &dyn ProcessFixture) -> Checked {
    let runtime = fixture.open().await?;
    let (slow, quick) = (ReplicaId::generate(), ReplicaId::generate());
    let stubborn = Behaviour {
        stubborn: true,
        ..Behaviour::default()
    };
    runtime.start(&fixture.start(slow, &stubborn)).await?;
    grown(fixture, slow, 1).await?;
    let stopping = runtime.stop(slow, GRACE);
    let others = async {
        let start = fixture.start(quick, &Behaviour::default());
        runtime.start(&start).await?;
        runtime.usage().await?;
        runtime.stop(quick, GRACE).await
    };
    tokio::pin!(stopping);
    tokio::select! {
        biased;
        stopped = &mut stopping => ensure!(false, "who ignores the request was stopped: {stopped:?}"),
        done = others => done?,
    }
    runtime.stop(slow, Duration::ZERO).await?;
    gone(fixture, slow, "after the stop").await
}

const SHORT: Duration = Duration::from_millis(300);
