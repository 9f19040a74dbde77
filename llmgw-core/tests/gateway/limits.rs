//! Clients that are slow, greedy or sly.

use std::time::Duration;

use llmgw_core::{
    gateway::GatewayConfig,
    id::ReplicaId,
    route::Endpoint,
    testing::engine::{Script, ScriptedEngine},
    units::Bytes,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
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
    assert!(silent.is_closed().await, "who said nothing is told nothing");
    let mut slow = Client::connect(rig.address).await;
    slow.send("GET", "/healthz", &[], b"").await;
    assert_eq!(slow.reply().await.head.status, 200);
    slow.raw(b"POST /v1/chat/completions HTTP/1.1\r\nhost:")
        .await;
    let reply = slow.reply().await;
    let (code, message) = reply.error();
    assert_eq!((reply.head.status, code.as_str()), (408, "invalid_request"));
    assert!(message.contains("0.15 s"), "{message}");
    assert_eq!(reply.head.get("connection"), Some("close"));
    assert!(slow.is_closed().await);
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_has_no_more_time() {
    let config = GatewayConfig {
        header_read_timeout: Duration::from_secs(1),
        ..config()
    };
    let rig = Rig::with(config, Vec::new()).await;
    let mut client = Client::connect(rig.address).await;
    let (mut reads, mut writes) = client.stream.get_mut().split();
    let trickle = async {
        loop {
            if writes.write_all(b"x").await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let mut answer = String::new();
    let reading = within(reads.read_to_string(&mut answer));
    tokio::select! {
        read = reading => drop(read),
        () = trickle => {}
    }
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
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
    // Not even read to its end.
    let mut client = Client::connect(rig.address).await;
    let endless = format!("GET / HTTP/1.1\r\nx-a: {}", "x".repeat(20_000));
    client.raw(endless.as_bytes()).await;
    let reply = client.reply().await;
    assert_eq!(
        (reply.head.status, reply.error().0.as_str()),
        (431, "request_too_large")
    );
    assert!(client.is_closed().await);
    let mut client = Client::connect(rig.address).await;
    let path = format!("/v1/models/{}", "x".repeat(9000));
    client.send("GET", &path, &[], b"").await;
    let reply = client.reply().await;
    assert_eq!(
        (reply.head.status, reply.error().0.as_str()),
        (414, "request_too_large")
    );
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn an_engine_whose_headers_are_beyond_the_limits_has_given_no_answer() {
    let large = "x".repeat(70_000);
    let many = (0..101).map(|number| format!("x-{number}: a\r\n"));
    let bodiless = [format!("x-a: {large}\r\n"), many.collect::<String>()];
    for headers in bodiless {
        let answer = format!("HTTP/1.1 200 OK\r\n{headers}content-length: 2\r\n\r\n{{}}");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let endpoint = Endpoint {
            replica: ReplicaId::generate(),
            address: listener.local_addr().unwrap(),
            slots: None,
        };
        let mut engine = JoinSet::new();
        engine.spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut came = [0; 4096];
                while stream
                    .read(&mut came)
                    .await
                    .is_ok_and(|length| length == came.len())
                {}
                // The gateway may have closed it before all of it was written.
                drop(stream.write_all(answer.as_bytes()).await);
            }
        });
        let rig = Rig::with(config(), vec![endpoint]).await;
        let reply = rig.chat(&request()).await;
        assert_eq!(reply.head.status, 502, "{}", reply.text());
        assert!(reply.error().0.starts_with("upstream_"), "{}", reply.text());
    }
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
