//! The control roles are the same on both sides of the admin API.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::sync::Arc;

use llmgw_core::{
    admin_client::AdminClient,
    control::{Control, ControlError},
    error::Code,
    testing::control::{Fixture, MemoryControl, conformance, same_answers},
};
use llmgw_server::admin::{AdminDeps, serve};
use tokio::net::TcpListener;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

const TOKEN: &str = "0123456789abcdef";

/// The control plane as it is seen through the admin API, for as long as the guard lives.
async fn over_http(memory: &Arc<MemoryControl>) -> (Control, String, DropGuard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let deps = AdminDeps::new(memory.control(), TOKEN);
    TaskTracker::new().spawn(serve(listener, deps, stop.clone()));
    let control = AdminClient::new(&base, TOKEN).unwrap().control();
    (control, base, stop.drop_guard())
}

#[tokio::test]
async fn the_roles_keep_their_promises_over_http() {
    let memory = MemoryControl::sample();
    let (control, _base, _serving) = over_http(&memory).await;
    let fixture = Fixture {
        control,
        ..memory.fixture()
    };
    conformance(&fixture).await.unwrap();
}

#[tokio::test]
async fn nothing_is_lost_on_the_way() {
    let memory = MemoryControl::sample();
    let (control, _base, _serving) = over_http(&memory).await;
    same_answers(&memory.control(), &control).await.unwrap();
}

#[tokio::test]
async fn a_failure_keeps_its_code_message_and_hint() {
    let memory = MemoryControl::sample();
    let (control, _base, _serving) = over_http(&memory).await;
    for code in [
        Code::Unavailable,
        Code::Fenced,
        Code::PermissionDenied,
        Code::Internal,
        Code::UpstreamTimeout,
    ] {
        let failure = ControlError::new(code, "the store is away").with_hint("wait for it");
        memory.fail_with(Some(failure.clone()));
        assert_eq!(control.fleet.nodes().await.unwrap_err(), failure);
        assert_eq!(control.holds.holds().await.unwrap_err(), failure);
    }
}

#[tokio::test]
async fn a_wrong_token_is_refused_with_where_to_find_the_right_one() {
    let memory = MemoryControl::sample();
    let (_control, base, _serving) = over_http(&memory).await;
    let client = AdminClient::new(&base, "wrong").unwrap().control();
    let error = client.fleet.nodes().await.unwrap_err();
    assert_eq!(error.code, Code::InvalidApiKey);
    assert_eq!(error.message, "that is not the admin token");
    let hint = error.hint.unwrap();
    assert!(
        hint.contains("the token is in admin.token in the data directory"),
        "{hint}"
    );
}
