use llmgw_core::api::decision::Outcome;

use super::*;

#[tokio::test(start_paused = true)]
async fn what_was_decided_is_told_later_with_its_reasons() {
    let running = controller(vec![model("big", "400GB"), model("m", "1GiB")]).await;
    let handle = running.handle.clone();
    let mut agent = running.agent().await;
    agent.report(ReplicaState::Ready).await;
    agent.told().await;
    let placed = handle.decisions(Some(&name("m")), 0, 10).await.unwrap();
    // Before, there was no node.
    let decision = placed.last().unwrap();
    let Outcome::Placed {
        replica, hostname, ..
    } = &decision.what
    else {
        panic!("{decision:?}")
    };
    let given = agent.desired.as_ref().unwrap().replicas[0].id;
    assert_eq!((*replica, hostname.as_str()), (given, "box"));
    assert_eq!((decision.epoch, decision.policy.as_str()), (1, "scarcity"));

    // The loop looks again every second, and finds nothing new.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let big = name("big");
    let unplaced = handle.decisions(Some(&big), 0, 10).await.unwrap();
    let last = unplaced.last().unwrap();
    let Outcome::NotPlaced { report } = &last.what else {
        panic!("{last:?}")
    };
    assert_eq!(report.rejections.len(), 1);
    assert!(last.again >= 4 && last.last_at > last.at, "{last:?}");
    // Both were decided in one step, from the same.
    assert_eq!(last.inputs, decision.inputs);

    agent.report(ReplicaState::Failed).await;
    agent.told().await;
    let m = handle
        .decisions(Some(&name("m")), decision.number, 10)
        .await;
    let failed = m.unwrap();
    assert_eq!(failed[0].what.verb(), "failed");
    assert!(failed[0].what.why().ends_with(": it broke"));
    assert_ne!(failed[0].inputs, decision.inputs);
    let again = handle.decisions(Some(&big), last.number, 10).await.unwrap();
    assert_eq!(again, [], "nothing has changed for it");

    let all = handle.decisions(None, 0, 10).await.unwrap();
    assert!(all.is_sorted_by(|a, b| a.number < b.number));
    let unknown = handle.decisions(Some(&name("nobody")), 0, 10).await;
    assert_eq!(unknown.unwrap_err().code, Code::NotFound);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_decisions_on_a_removed_model_can_be_read() {
    let running = controller(Vec::new()).await;
    let handle = running.handle.clone();
    let mut agent = running.agent().await;
    agent.report(ReplicaState::Ready).await;
    agent.told().await;
    let added = serde_json::from_value(definition("m", "1GiB")).unwrap();
    handle.add(added).await.unwrap();
    handle.remove(&name("m")).await.unwrap();
    let all = handle.decisions(Some(&name("m")), 0, 10).await.unwrap();
    let verbs: Vec<&str> = all.iter().map(|decision| decision.what.verb()).collect();
    assert_eq!(verbs, ["placed", "draining", "stopped"]);
    assert!(all[2].what.why().ends_with(": its model was removed"));
    running.stop().await;
}
