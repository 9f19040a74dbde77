//! Clients that are slow, greedy or sly.

use std::time::Duration;

use llmgw_core::{
    gateway::GatewayConfig,
    testing::engine::{Script, ScriptedEngine},
    units::Bytes,
};

use crate::{
    client::{Client, within},
    rig::{AUTHORIZATION, CHAT, KEY, Rig, chunk, config, request, streamed},
};

const SHORT: Duration = Duration::from_millis(150);

#[tokio::test]
async fn a_head_that_does_not_come_ends_the_connection() {
    let config = GatewayConfig {
        header_read_timeout: SHORT,
        ..config()
    };
    let rig = Rig::with(config, Vec::new()).await;
    let mut silent = Client::connect(rig.address).await;
    assert!(silent.is_closed().await);
    let mut slow = Client::connect(rig.address).await;
    slow.raw(b"POST /v1/chat/completions HTTP/1.1\r\nhost:")
        .await;
    assert!(slow.is_closed().await);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_refused() {
    let config = GatewayConfig {
        body_read_timeout: SHORT,
        ..config()
    };
    let rig = Rig::with(config, Vec::new()).await;
    let mut client = Client::connect(rig.address).await;
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: 100\r\n\r\n{{"
    );
    client.raw(head.as_bytes()).await;
    assert_eq!(client.reply().await.head.status, 408);
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn headers_beyond_the_limits_are_refused() {
    let config = GatewayConfig {
        header_limit: Bytes(4096),
        header_count: 8,
        ..config()
    };
    let rig = Rig::with(config, Vec::new()).await;
    let large = "x".repeat(5000);
    let many: Vec<(&str, &str)> = vec![("x-a", "b"); 9];
    for headers in [vec![("x-a", large.as_str())], many] {
        let mut client = Client::connect(rig.address).await;
        client.send("GET", "/healthz", &headers, b"").await;
        let reply = client.reply().await;
        assert_eq!(
            (reply.head.status, reply.error().0.as_str()),
            (431, "request_too_large")
        );
    }
    let mut client = Client::connect(rig.address).await;
    client
        .send("GET", "/healthz", &[("x-a", &"x".repeat(20_000))], b"")
        .await;
    assert_eq!(
        client.head().await.status,
        431,
        "beyond twice the limit, not even read"
    );
}

#[tokio::test]
async fn connections_beyond_the_limit_are_told_so_and_closed_at_once() {
    let config = GatewayConfig {
        max_connections: 2,
        ..config()
    };
    let rig = Rig::with(config, Vec::new()).await;
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(rig.address).await;
        client.send("GET", "/healthz", &[], b"").await;
        assert_eq!(client.reply().await.head.status, 200);
        clients.push(client);
    }
    // One that has said nothing yet, and one that sends more than the buffers on the way hold, before it reads.
    for body in ["", &"x".repeat(16 << 20)] {
        let mut third = Client::connect(rig.address).await;
        if !body.is_empty() {
            third
                .send("POST", CHAT, &[AUTHORIZATION], body.as_bytes())
                .await;
        }
        let reply = third.reply().await;
        let (code, message) = reply.error();
        assert_eq!((reply.head.status, code.as_str()), (503, "queue_full"));
        assert!(message.contains("2 client connections"), "{message}");
        assert_eq!(reply.head.get("retry-after"), Some("1"));
        assert_eq!(reply.head.get("connection"), Some("close"));
        assert!(third.is_closed().await);
    }
    clients.pop();
    until_taken(&rig).await;
}

#[tokio::test]
async fn silent_connections_give_their_places_back() {
    let config = GatewayConfig {
        max_connections: 2,
        // Long enough for the third to come in time on a busy machine.
        header_read_timeout: Duration::from_secs(2),
        ..config()
    };
    let rig = Rig::with(config, Vec::new()).await;
    let mut silent = Vec::new();
    for _ in 0..2 {
        silent.push(Client::connect(rig.address).await);
    }
    assert_eq!(Client::connect(rig.address).await.head().await.status, 503);
    for client in &mut silent {
        assert!(client.is_closed().await);
    }
    until_taken(&rig).await;
}

#[tokio::test]
async fn a_flood_of_connections_is_closed_and_the_clients_before_it_are_served() {
    let config = GatewayConfig {
        max_connections: 1,
        ..config()
    };
    let rig = Rig::with(config, Vec::new()).await;
    let mut first = Client::connect(rig.address).await;
    first.send("GET", "/healthz", &[], b"").await;
    assert_eq!(first.reply().await.head.status, 200);
    let mut flood = Vec::new();
    for _ in 0..200 {
        flood.push(Client::connect(rig.address).await);
    }
    for client in &mut flood {
        let head = client.try_head().await;
        assert!(head.is_none_or(|head| head.status == 503));
    }
    first.send("GET", "/healthz", &[], b"").await;
    assert_eq!(first.reply().await.head.status, 200);
}

/// Waits until a new client is served.
async fn until_taken(rig: &Rig) {
    within(async {
        loop {
            let mut client = Client::connect(rig.address).await;
            client.send("GET", "/healthz", &[], b"").await;
            if client
                .try_head()
                .await
                .is_some_and(|head| head.status == 200)
            {
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_that_hides_another_one_reaches_one_engine_once() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    let hidden = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: 17\r\n\r\n{{\"model\":\"asked\"}}"
    );
    let body = "11\r\n{\"model\":\"asked\"}\r\n0\r\n\r\n";
    for lengths in [
        format!(
            "content-length: {}\r\ntransfer-encoding: chunked",
            body.len() + hidden.len()
        ),
        "transfer-encoding: chunked\r\ncontent-length: 4".to_owned(),
    ] {
        let before = engine.seen().len();
        let mut client = Client::connect(rig.address).await;
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n{lengths}\r\n\r\n"
        );
        client.raw(format!("{head}{body}{hidden}").as_bytes()).await;
        assert_eq!(client.reply().await.head.status, 200);
        assert!(
            client.try_head().await.is_none(),
            "and the connection is closed"
        );
        let seen = engine.seen();
        assert_eq!(seen.len(), before + 1);
        assert_eq!(seen[before].body, "{\"model\":\"org/served\"}");
    }
    for lengths in [
        "transfer-encoding: gzip, identity",
        "content-length: 17\r\ncontent-length: 18",
        "content-length: +17",
        "transfer-encoding: chunked, gzip",
    ] {
        let before = engine.seen().len();
        let mut client = Client::connect(rig.address).await;
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n{lengths}\r\n\r\n{{\"model\":\"asked\"}}"
        );
        client.raw(head.as_bytes()).await;
        let head = client.try_head().await;
        assert!(head.is_none_or(|head| head.status == 400), "{lengths}");
        assert_eq!(engine.seen().len(), before);
    }
}

#[tokio::test]
async fn requests_in_a_row_on_one_connection_are_answered_in_order() {
    let engine = ScriptedEngine::start().await.unwrap();
    let rig = Rig::start(&[&engine]).await;
    for answer in ["{\"n\":1}", "{\"n\":2}", "{\"n\":3}"] {
        engine.next(Script::json(200, answer));
    }
    let mut client = Client::connect(rig.address).await;
    for _ in 0..3 {
        client
            .send(
                "POST",
                CHAT,
                &[AUTHORIZATION],
                request().to_string().as_bytes(),
            )
            .await;
    }
    for n in 1..=3 {
        assert_eq!(client.reply().await.json()["n"], n);
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_the_engine_back_and_is_cut_off_in_the_end() {
    let engine = ScriptedEngine::start().await.unwrap();
    let config = GatewayConfig {
        client_stall_timeout: Duration::from_secs(1),
        ..config()
    };
    let rig = Rig::with(config, vec![engine.endpoint()]).await;
    let event = chunk(&"x".repeat(1 << 16));
    let mut script = Script::events();
    // More than all buffers on the way hold.
    for _ in 0..1000 {
        script = script.event(&event);
    }
    engine.always(script.done());
    let mut client = rig.open(&streamed()).await;
    client.head().await;
    within(engine.until(|seen| seen[0].was_abandoned())).await;
    rig.until_idle().await;
    assert_eq!(rig.usage(1).await.errors, 1);
}
