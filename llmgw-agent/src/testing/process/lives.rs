//! What one life of the agent leaves to the next.

use std::collections::BTreeSet;

use llmgw_core::id::ReplicaId;

use super::{Behaviour, Checked, ChildKind, GRACE, ProcessFixture, ensure, gone, grown};
use crate::process::{Exit, Leftover, ProcessError, identity::ProcessIdentity};

pub(super) async fn a_release_ends_nothing_and_forgets(fixture: &dyn ProcessFixture) -> Checked {
    let runtime = fixture.open().await?;
    let replica = ReplicaId::generate();
    let start = fixture.start(replica, &Behaviour::with(&[ChildKind::Session]));
    runtime.start(&start).await?;
    grown(fixture, replica, 2).await?;
    runtime.release().await;
    let running = fixture.running(replica).await;
    ensure!(running.len() == 2, "after the release, {running:?} run");
    let told = runtime.wait(replica).await;
    ensure!(
        matches!(told, Err(ProcessError::Unknown(_))),
        "after the release, {told:?} was told"
    );
    fixture.open().await?.stop(replica, GRACE).await?;
    gone(fixture, replica, "after the stop").await
}

pub(super) async fn the_next_life_adopts_and_is_told_of_the_end(
    fixture: &dyn ProcessFixture,
) -> Checked {
    let replica = ReplicaId::generate();
    let first = left(fixture, replica, &Behaviour::default()).await?;
    let runtime = fixture.open().await?;
    runtime.adopt(replica, &first).await?;
    ensure!(fixture.is_running(&first).await, "adopting has ended it");
    let leftovers = runtime.leftovers().await?;
    ensure!(
        leftovers.is_empty(),
        "an adopted one is left over: {leftovers:?}"
    );
    let again = runtime.adopt(replica, &first).await;
    ensure!(
        matches!(again, Err(ProcessError::Running(_))),
        "adopting it again gave {again:?}"
    );
    let usage = runtime.usage().await?;
    ensure!(usage.contains_key(&replica), "an adopted one uses nothing");
    fixture.kill(&first).await;
    let told = runtime.wait(replica).await?;
    ensure!(
        matches!(told, Exit::Signal(9) | Exit::Unseen),
        "{told:?} was told of a kill"
    );
    runtime.stop(replica, GRACE).await?;
    let gone = runtime.adopt(replica, &first).await;
    ensure!(is_stranger(&gone), "adopting what has ended gave {gone:?}");
    Ok(())
}

pub(super) async fn only_the_very_process_is_adopted(fixture: &dyn ProcessFixture) -> Checked {
    let replica = ReplicaId::generate();
    let first = left(fixture, replica, &Behaviour::default()).await?;
    let runtime = fixture.open().await?;
    let stranger = fixture.stranger().await;
    let [earlier, other_boot] = impostors(&first);
    for (what, process) in [
        ("an earlier holder of the number", &earlier),
        ("a process of an earlier start of the machine", &other_boot),
        ("a stranger", &stranger),
    ] {
        let adopted = runtime.adopt(replica, process).await;
        ensure!(is_stranger(&adopted), "adopting {what} gave {adopted:?}");
    }
    let other = ReplicaId::generate();
    let adopted = runtime.adopt(other, &first).await;
    ensure!(
        is_stranger(&adopted),
        "adopting another replica's gave {adopted:?}"
    );
    let told = runtime.wait(other).await;
    ensure!(
        matches!(told, Err(ProcessError::Unknown(_))),
        "{told:?} was told of what was not adopted"
    );
    runtime.adopt(replica, &first).await?;
    runtime.stop(replica, GRACE).await?;
    fixture.kill(&stranger).await;
    Ok(())
}

pub(super) async fn what_is_adopted_is_stopped_as_a_whole(fixture: &dyn ProcessFixture) -> Checked {
    let kinds = found(fixture);
    let replica = ReplicaId::generate();
    let first = left(fixture, replica, &Behaviour::with(&kinds)).await?;
    let runtime = fixture.open().await?;
    runtime.adopt(replica, &first).await?;
    runtime.stop(replica, GRACE).await?;
    gone(fixture, replica, "after the stop").await
}

pub(super) async fn leftovers_are_what_nobody_knows(fixture: &dyn ProcessFixture) -> Checked {
    let (forgotten, known) = (ReplicaId::generate(), ReplicaId::generate());
    left(fixture, forgotten, &Behaviour::with(&[ChildKind::Session])).await?;
    let runtime = fixture.open().await?;
    let start = fixture.start(known, &Behaviour::default());
    runtime.start(&start).await?;
    grown(fixture, known, 1).await?;
    let stranger = fixture.stranger().await;
    let leftovers = runtime.leftovers().await?;
    let replicas: Vec<Option<ReplicaId>> = leftovers.iter().map(|one| one.replica).collect();
    ensure!(
        replicas == [Some(forgotten)],
        "of {replicas:?} something is left"
    );
    let named: BTreeSet<&ProcessIdentity> =
        leftovers.iter().flat_map(|one| &one.processes).collect();
    let running = fixture.running(forgotten).await;
    ensure!(
        running.iter().all(|process| named.contains(process)),
        "{running:?} run, and {named:?} were named"
    );
    ensure!(!named.contains(&stranger), "a stranger is left over");
    runtime.end(&leftovers, GRACE).await?;
    gone(fixture, forgotten, "after the end of leftovers").await?;
    ensure!(fixture.is_running(&stranger).await, "a stranger has ended");
    ensure!(
        fixture.running(known).await.len() == 1,
        "a known one has ended with leftovers"
    );
    let leftovers = runtime.leftovers().await?;
    ensure!(
        leftovers.is_empty(),
        "after their end, {leftovers:?} are left"
    );
    fixture.kill(&stranger).await;
    runtime.stop(known, GRACE).await?;
    Ok(())
}

pub(super) async fn leftovers_end_to_the_last(fixture: &dyn ProcessFixture) -> Checked {
    let kinds = found(fixture);
    let replica = ReplicaId::generate();
    let first = left(fixture, replica, &Behaviour::with(&kinds)).await?;
    // The first process is gone when the next life begins.
    fixture.kill(&first).await;
    let runtime = fixture.open().await?;
    let leftovers = runtime.leftovers().await?;
    runtime.end(&leftovers, GRACE).await?;
    gone(fixture, replica, "after the end of leftovers").await?;
    // For nothing.
    runtime.end(&leftovers, GRACE).await?;
    runtime.end(&[], GRACE).await?;
    Ok(())
}

pub(super) async fn a_stop_finds_the_tree_of_an_earlier_life(
    fixture: &dyn ProcessFixture,
) -> Checked {
    let kinds = found(fixture);
    let replica = ReplicaId::generate();
    left(fixture, replica, &Behaviour::with(&kinds)).await?;
    let runtime = fixture.open().await?;
    runtime.stop(replica, GRACE).await?;
    gone(fixture, replica, "after the stop").await
}

pub(super) async fn who_has_a_number_of_before_is_not_hit(fixture: &dyn ProcessFixture) -> Checked {
    let runtime = fixture.open().await?;
    let stranger = fixture.stranger().await;
    let leftover = Leftover {
        replica: Some(ReplicaId::generate()),
        processes: impostors(&stranger).to_vec(),
    };
    runtime.end(&[leftover], std::time::Duration::ZERO).await?;
    ensure!(
        fixture.is_running(&stranger).await,
        "who has the number of a leftover was ended"
    );
    fixture.kill(&stranger).await;
    Ok(())
}

/// A tree that an earlier life has left running.
async fn left(
    fixture: &dyn ProcessFixture,
    replica: ReplicaId,
    behaviour: &Behaviour,
) -> Result<ProcessIdentity, super::Failure> {
    let before = fixture.open().await?;
    let first = before.start(&fixture.start(replica, behaviour)).await?;
    grown(fixture, replica, behaviour.children.len() + 1).await?;
    before.release().await;
    Ok(first)
}

/// The kinds of children that the runtime finds in any case: also when their first process has ended.
fn found(fixture: &dyn ProcessFixture) -> Vec<ChildKind> {
    let kinds = ChildKind::ALL.into_iter();
    kinds.filter(|kind| fixture.finds(*kind)).collect()
}

/// Processes that had the number before.
fn impostors(process: &ProcessIdentity) -> [ProcessIdentity; 2] {
    let earlier = ProcessIdentity {
        start_time: process.start_time.saturating_sub(1),
        ..process.clone()
    };
    let other_boot = ProcessIdentity {
        boot_id: "another".to_owned(),
        ..process.clone()
    };
    [earlier, other_boot]
}

fn is_stranger(answer: &Result<(), ProcessError>) -> bool {
    matches!(answer, Err(ProcessError::Stranger { .. }))
}
