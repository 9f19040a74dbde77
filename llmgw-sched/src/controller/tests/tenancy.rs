//! Keys and levels, as the gateways of this process know them.

use llmgw_core::{
    api::tenancy::{KeyRequest, LevelRequest},
    cluster::tenancy::{Limits, Party},
    control::Tenancy,
    keys::HashingKey,
    store::{Epoch, Write},
};

use super::*;

/// Whether a secret opens anything, and who limits it.
fn known(handle: &ControllerHandle, secret: &str) -> Option<Vec<Party>> {
    let ring = handle.keys().borrow().clone();
    let pass = ring.check(&HashingKey::from_bytes([1; 32]), secret)?;
    Some(pass.held().iter().map(|held| held.party.clone()).collect())
}

#[tokio::test(start_paused = true)]
async fn what_is_changed_here_is_known_when_the_answer_is_given() {
    let running = controller(Vec::new()).await;
    let handle = &running.handle;
    let acme = LevelRequest {
        path: "acme".parse().unwrap(),
        limits: Limits::default(),
    };
    handle.create_level(acme.clone()).await.unwrap();
    let request = KeyRequest {
        level: acme.path.clone(),
        ..KeyRequest::named("a")
    };
    let key = handle.create_key(request).await.unwrap();
    assert_eq!(known(handle, &key.secret), Some(Vec::new()));
    let limits = Limits {
        models: Some(Vec::new()),
        ..Limits::default()
    };
    let limited = LevelRequest {
        limits,
        ..acme.clone()
    };
    handle.limit_level(limited).await.unwrap();
    let party = Party::Level(acme.path.clone());
    assert_eq!(known(handle, &key.secret), Some(vec![party]));
    handle.revoke_key(key.key.id).await.unwrap();
    assert_eq!(known(handle, &key.secret), None);
    handle.remove_level(&acme.path).await.unwrap();
    running.stop().await;
}

/// Another control plane on the same store changes keys and levels without a word.
#[tokio::test(start_paused = true)]
async fn what_is_changed_elsewhere_is_known_within_two_seconds() {
    let running = controller(Vec::new()).await;
    let handle = &running.handle;
    let key = handle.create_key(KeyRequest::named("a")).await.unwrap();
    let mut keys = handle.keys();
    keys.borrow_and_update();
    let epoch = Epoch(handle.leading().borrow().unwrap());
    running.store.delete_key(epoch, key.key.id).await.unwrap();
    let changed = tokio::time::timeout(Duration::from_secs(2), keys.changed());
    changed
        .await
        .expect("a revocation was not heard of")
        .unwrap();
    assert_eq!(known(handle, &key.secret), None);
    // Nothing is told where nothing changed.
    let entry = llmgw_core::cluster::audit::NewAuditEntry {
        at: Timestamp(0),
        actor: "other".into(),
        action: "level.create".into(),
        subject: "acme".into(),
    };
    let level = llmgw_core::cluster::tenancy::Level {
        path: "acme".parse().unwrap(),
        limits: Limits::default(),
        created_at: Timestamp(0),
    };
    let writes = [Write::PutLevel(Box::new(level))];
    running.store.commit(epoch, &writes, &entry).await.unwrap();
    let quiet = tokio::time::timeout(Duration::from_secs(9), keys.changed()).await;
    assert!(quiet.is_err(), "no key is of that level");
    running.stop().await;
}
