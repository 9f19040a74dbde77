//! Who leads, and whom agents follow.

use super::*;

/// The store was lost, or an older copy of it was brought back.
#[tokio::test(start_paused = true)]
async fn agents_that_followed_a_later_epoch_are_led_by_a_higher_one() {
    let running = controller(vec![model("m", "1GiB")]).await;
    let mut agent = running.agent().await;
    agent.highest_epoch = 41;
    agent.report(ReplicaState::Ready).await;
    while agent.told().await.epoch <= 41 {}
    // It is in office: it decides, and writes.
    agent.report(ReplicaState::Ready).await;
    routed(&running.handle, "m", 1).await;
    let added = serde_json::from_value(definition("a", "1GiB")).unwrap();
    running.handle.add(added).await.unwrap();
    let summary = running.handle.summary().await.unwrap();
    assert!(
        summary.attention[0].contains("older copy"),
        "{:?}",
        summary.attention
    );
    // What can't be is not followed up.
    agent.highest_epoch = u64::MAX;
    agent.report(ReplicaState::Ready).await;
    assert_eq!(agent.told().await.replicas.len(), 2);
    running.stop().await;
}

/// A new store begins with the epoch that the lost one had begun with.
#[tokio::test(start_paused = true)]
async fn an_agent_that_followed_a_later_revision_of_our_epoch_is_led_by_a_higher_one() {
    let running = controller(vec![model("m", "1GiB")]).await;
    let mut agent = running.agent().await;
    (agent.highest_epoch, agent.highest_revision) = (1, 7);
    agent.report(ReplicaState::Ready).await;
    while agent.told().await.epoch <= 1 {}
    agent.report(ReplicaState::Ready).await;
    routed(&running.handle, "m", 1).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_followed_what_we_said_raises_nothing() {
    let running = controller(vec![model("m", "1GiB")]).await;
    let mut agent = running.agent().await;
    agent.report(ReplicaState::Ready).await;
    let told = agent.told().await;
    let rank = (told.epoch, told.revision);
    (agent.highest_epoch, agent.highest_revision) = rank;
    agent.report(ReplicaState::Ready).await;
    routed(&running.handle, "m", 1).await;
    let told = tokio::time::timeout(Duration::from_secs(10), agent.told()).await;
    assert!(told.is_err(), "{told:?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_that_was_overtaken_writes_nothing() {
    let running = controller(Vec::new()).await;
    running
        .store
        .release_lease(llmgw_core::store::Epoch(1))
        .await
        .unwrap();
    running
        .store
        .acquire_lease("other", Duration::from_secs(60))
        .await
        .unwrap();
    let definition = serde_json::from_value(definition("a", "1GiB")).unwrap();
    assert_eq!(
        running.handle.add(definition).await.unwrap_err().code,
        Code::Fenced
    );
    assert_eq!(
        running.store.models().await.unwrap(),
        Vec::<StoredModel>::new()
    );
    // It finds out by itself, says so, and goes on serving what it knows.
    let mut leading = running.handle.leading();
    leading.wait_for(Option::is_none).await.unwrap();
    let summary = running.handle.summary().await.unwrap();
    assert!(
        summary.attention[0].contains("does not lead"),
        "{:?}",
        summary.attention
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_clean_stop_gives_the_lease_up() {
    let running = controller(Vec::new()).await;
    let store = Arc::clone(&running.store);
    running.stop().await;
    store
        .acquire_lease("other", Duration::from_secs(60))
        .await
        .unwrap();
}
