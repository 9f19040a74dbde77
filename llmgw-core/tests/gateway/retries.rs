//! What is tried again, and what is not.

use std::net::{Ipv4Addr, SocketAddr};

use llmgw_core::{
    id::ReplicaId,
    route::Endpoint,
    testing::engine::{Script, ScriptedEngine},
};
use tokio::net::TcpListener;

use crate::rig::{Rig, chunk, config, request, streamed};

/// A replica that nobody can connect to, and that is chosen before all others.
async fn dead() -> Endpoint {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    Endpoint {
        replica: ReplicaId::from_uuid(uuid::Uuid::nil()),
        address: listener.local_addr().unwrap(),
        slots: None,
    }
}

/// Two engines; the first is chosen first.
async fn two() -> [ScriptedEngine; 2] {
    let engines = [
        ScriptedEngine::start().await.unwrap(),
        ScriptedEngine::start().await.unwrap(),
    ];
    assert!(
        engines[0].endpoint() < engines[1].endpoint(),
        "ids are ordered by time"
    );
    engines
}

#[tokio::test]
async fn a_replica_that_can_not_be_reached_is_passed_over() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::with(config(), vec![dead().await, engine.endpoint()]).await;
    let reply = rig.chat(&request()).await;
    assert_eq!(reply.head.status, 200);
    assert_eq!(reply.head.get("x-llmgw-attempts"), Some("2"));
    let replica = engine.endpoint().replica.to_string();
    assert_eq!(reply.head.get("x-llmgw-replica"), Some(replica.as_str()));
}

#[tokio::test]
async fn when_none_can_be_reached_the_client_is_told() {
    let rig = Rig::with(config(), vec![dead().await]).await;
    let reply = rig.chat(&streamed()).await;
    assert_eq!(
        (reply.head.status, reply.error().0.as_str()),
        (502, "upstream_disconnected")
    );
    assert_eq!(reply.head.get("x-llmgw-attempts"), Some("1"));
    assert_eq!(rig.usage(1).await.errors, 1);
}

#[tokio::test]
async fn a_kept_connection_that_died_is_made_anew_on_the_same_replica() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    assert_eq!(rig.chat(&request()).await.head.status, 200);
    // The engine closes the kept connection on the next call, without an answer.
    engine.next(Script::new());
    let reply = rig.chat(&request()).await;
    assert_eq!(reply.head.status, 200);
    assert_eq!(reply.head.get("x-llmgw-attempts"), Some("2"));
    let connections: Vec<usize> = engine.seen().iter().map(|call| call.connection).collect();
    assert_eq!(connections, [0, 0, 1]);
}

#[tokio::test]
async fn a_connection_that_the_engine_closed_meanwhile_is_not_used() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let closing = Script::json(200, "{}").header("connection", "close");
    engine.always(closing);
    for _ in 0..3 {
        let reply = rig.chat(&request()).await;
        assert_eq!(reply.head.get("x-llmgw-attempts"), Some("1"));
    }
}

#[tokio::test]
async fn a_replica_that_dies_with_the_call_is_replaced_once() {
    let engines = two().await;
    let rig = Rig::start(&[&engines[0], &engines[1]]).await;
    engines[0].always(Script::new());
    let reply = rig.chat(&request()).await;
    assert_eq!(reply.head.status, 200);
    assert_eq!(reply.head.get("x-llmgw-attempts"), Some("2"));
}

#[tokio::test]
async fn a_stream_that_dies_before_its_first_event_goes_to_another_replica() {
    let engines = two().await;
    let rig = Rig::start(&[&engines[0], &engines[1]]).await;
    engines[0].always(Script::events().bytes(": soon\n\n").abort());
    engines[1].always(Script::events().event(&chunk("b")).done());
    let reply = rig.chat(&streamed()).await;
    assert_eq!(reply.head.status, 200);
    assert!(
        reply.text().ends_with("data: [DONE]\n\n"),
        "{}",
        reply.text()
    );
    assert_eq!(reply.head.get("x-llmgw-attempts"), Some("2"));
}

#[tokio::test]
async fn a_call_that_ends_two_replicas_is_not_given_to_a_third() {
    let engines = two().await;
    let third = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engines[0], &engines[1], &third]).await;
    for engine in &engines {
        engine.always(Script::new());
    }
    let reply = rig.chat(&request()).await;
    assert_eq!(
        (reply.head.status, reply.error().0.as_str()),
        (502, "upstream_disconnected")
    );
    assert!(third.seen().is_empty());
}

#[tokio::test]
async fn nothing_is_sent_again_after_the_first_event_or_after_a_refusal() {
    let engines = two().await;
    let rig = Rig::start(&[&engines[0], &engines[1]]).await;
    engines[0].next(Script::events().event(&chunk("a")).abort());
    let reply = rig.chat(&streamed()).await;
    assert!(
        reply.text().contains("upstream_disconnected"),
        "{}",
        reply.text()
    );
    for status in [400, 429, 500, 503] {
        engines[0].next(Script::json(status, "{}"));
        assert_eq!(rig.chat(&streamed()).await.head.status, status);
    }
    assert!(engines[1].seen().is_empty());
}

#[tokio::test]
async fn calls_go_to_the_replica_with_the_least_work() {
    let engines = two().await;
    let rig = Rig::start(&[&engines[0], &engines[1]]).await;
    engines[0].next(Script::events().event(&chunk("a")).wait().done());
    let mut busy = rig.open(&streamed()).await;
    busy.head().await;
    assert_eq!(rig.load.in_flight_of(engines[0].endpoint().replica), 1);
    assert_eq!(rig.chat(&request()).await.head.status, 200);
    assert_eq!(engines[1].seen().len(), 1);
    engines[0].go(1);
    busy.chunks_until("[DONE]").await;
    rig.until_idle().await;
    assert_eq!(rig.chat(&request()).await.head.status, 200);
    assert_eq!(engines[0].seen().len(), 2);
}

#[tokio::test]
async fn a_replica_that_moved_is_asked_at_its_new_address() {
    let engines = two().await;
    let rig = Rig::start(&[&engines[0]]).await;
    assert_eq!(rig.chat(&request()).await.head.status, 200);
    let address: SocketAddr = engines[1].address();
    rig.publish(vec![Endpoint {
        address,
        ..engines[0].endpoint()
    }]);
    assert_eq!(rig.chat(&request()).await.head.status, 200);
    assert_eq!((engines[0].seen().len(), engines[1].seen().len()), (1, 1));
}
