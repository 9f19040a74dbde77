//! What is found out of weights before a node has them, and what lies on nodes that nobody refers to.

use std::sync::Mutex;

use async_trait::async_trait;
use llmgw_core::{
    cluster::{
        replica::MemoryUse,
        weights::{HubToken, WeightsOrders},
    },
    gguf::{self, TensorType, Value, write::Draft},
    header::Progress,
    reason::remedy::{Awaited, Change as Remedying},
};

use super::*;
use crate::{
    conductor::{
        findings::{Findings, NotFound},
        weights::orders,
    },
    fit::Shape,
};

/// A reader that answers with what the test tells it to.
#[derive(Debug)]
struct Told {
    answer: Mutex<Result<Findings, NotFound>>,
    asked: Mutex<Vec<Weights>>,
}

#[async_trait]
impl WeightsReader for Told {
    async fn find_out(&self, weights: &Weights) -> Result<Findings, NotFound> {
        self.asked.lock().unwrap().push(weights.clone());
        self.answer.lock().unwrap().clone()
    }
}

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn pinned() -> Weights {
    Weights {
        sources: vec![format!("hf:o/r/m.gguf@{COMMIT}").parse().unwrap()],
        sha256: Some(Sha256Digest([7; 32])),
        // The scripted agent says nothing of its disk, and nothing of a known size is placed on an unknown one.
        size: None,
        files: Vec::new(),
    }
}

fn header() -> gguf::Header {
    let bytes = Draft::default()
        .with("general.architecture", Value::Text("llama".into()))
        .with("llama.block_count", Value::U32(1))
        .with("llama.embedding_length", Value::U32(1024))
        .with("llama.feed_forward_length", Value::U32(2048))
        .with("llama.attention.head_count", Value::U32(8))
        .with("llama.attention.head_count_kv", Value::U32(8))
        .with("llama.context_length", Value::U32(32_768))
        .with("llama.vocab_size", Value::U32(1000))
        .tensor("token_embd.weight", &[1024, 1000], TensorType::F16)
        .tensor("blk.0.attn_q.weight", &[1024, 1024], TensorType::F16)
        .header()
        .unwrap();
    let Progress::Done(header) = gguf::Header::parse(&bytes, &gguf::Limits::default()).unwrap()
    else {
        panic!();
    };
    header
}

fn shape() -> Shape {
    Shape::from_gguf(&header(), None).unwrap()
}

fn model(json: serde_json::Value) -> Model {
    serde_json::from_value(json).unwrap()
}

/// A model that says no more than its source.
fn open() -> Model {
    model(serde_json::json!({
        "name": "open", "source": "hf:o/r/m.gguf", "profiles": [{"context": 512, "parallel": 1}],
    }))
}

async fn running(model: Model, answer: Result<Findings, NotFound>) -> (Running, Arc<Told>) {
    let reader = Arc::new(Told {
        answer: Mutex::new(answer),
        asked: Mutex::default(),
    });
    let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::starting_at(Timestamp(0)));
    let store = Arc::new(MemoryStore::new(Arc::clone(&clock)));
    let told = Arc::clone(&reader) as Arc<dyn WeightsReader>;
    (reading(vec![model], store, clock, Some(told)).await, reader)
}

fn name(text: &str) -> ModelName {
    text.parse().unwrap()
}

/// The next desired state with a replica in it.
async fn given(agent: &mut ScriptedAgent) -> llmgw_core::cluster::replica::ReplicaSpec {
    loop {
        if let Some(spec) = agent.told().await.replicas.first() {
            return spec.clone();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_says_no_more_than_its_source_is_pinned_sized_and_placed() {
    let found = Findings {
        weights: pinned(),
        shape: Ok(shape()),
    };
    let (running, reader) = running(open(), Ok(found)).await;
    let mut agent = running.agent().await;
    agent.report_replicas(Vec::new()).await;
    let spec = given(&mut agent).await;
    assert_eq!(
        spec.weights,
        pinned(),
        "every node gets the same commit and digest"
    );
    assert!(spec.profile.is_sized());
    let view = running.handle.models().await.unwrap().remove(0);
    assert_eq!(view.profiles[0].memory, Some(spec.profile.memory));
    assert!(view.profiles[0].memory_estimated);
    // What was found makes no replica stale.
    agent
        .report_all(vec![status(&spec, ReplicaState::Ready)], None)
        .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let replicas = running.handle.replicas(None).await.unwrap();
    assert_eq!((replicas.len(), replicas[0].stale), (1, false));
    assert_eq!(reader.asked.lock().unwrap().len(), 1, "it is asked once");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_bounded_is_not_placed_and_says_how_to_declare_it() {
    let error = NotFound::for_good(
        "cannot bound newarch: no rules",
        Some("measure it once and declare it: profiles: [{memory: 12GiB}]".into()),
    );
    let found = Findings {
        weights: pinned(),
        shape: Err(error),
    };
    let (running, _reader) = running(open(), Ok(found)).await;
    let mut agent = running.agent().await;
    agent.report_replicas(Vec::new()).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let explained = running.handle.explain(&name("open")).await.unwrap();
    let expected = "open can't be placed: cannot bound newarch: no rules; measure it once and declare it: \
                    profiles: [{memory: 12GiB}]";
    assert_eq!(explained.headline, expected);
    assert!(!explained.placed && explained.report.fits.is_none());
    let view = running.handle.models().await.unwrap().remove(0);
    assert_eq!(view.unplaceable.as_deref(), Some(expected));
    assert_eq!(view.profiles[0].memory, None, "what is not known is not 0");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_does_not_answer_is_asked_again() {
    let error = NotFound::with_code("hub could not be reached", None, Code::Unavailable);
    let (running, reader) = running(open(), Err(error)).await;
    let mut agent = running.agent().await;
    agent.report_replicas(Vec::new()).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let explained = running.handle.explain(&name("open")).await.unwrap();
    assert!(
        explained
            .headline
            .starts_with("open waits until it is known what its weights are, asked again in"),
        "{}",
        explained.headline
    );
    *reader.answer.lock().unwrap() = Ok(Findings {
        weights: pinned(),
        shape: Ok(shape()),
    });
    given(&mut agent).await;
    assert_eq!(reader.asked.lock().unwrap().len(), 2);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_header_that_was_read_offers_less_context() {
    let declared = model(serde_json::json!({
        "name": "wide", "source": "hf:o/r/m.gguf",
        "profiles": [{"memory": "9GiB", "context": 1_000_000, "parallel": 1}],
    }));
    let found = Findings {
        weights: pinned(),
        shape: Ok(shape()),
    };
    let (running, _reader) = running(declared, Ok(found)).await;
    let mut agent = running.agent().await;
    agent.report_replicas(Vec::new()).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let explained = running.handle.explain(&name("wide")).await.unwrap();
    let remedies = &explained.report.remedies;
    let less = remedies
        .iter()
        .find(|remedy| matches!(remedy.change, Remedying::Context { .. }));
    assert!(
        less.is_some_and(|remedy| remedy.places.is_some()),
        "{remedies:?}"
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_download_is_waited_for_with_its_end() {
    let found = Findings {
        weights: pinned(),
        shape: Ok(shape()),
    };
    let (running, _reader) = running(open(), Ok(found)).await;
    let mut agent = running.agent().await;
    agent.report_replicas(Vec::new()).await;
    let spec = given(&mut agent).await;
    let mut fetching = status(&spec, ReplicaState::Fetching);
    fetching.fetch = Some(FetchProgress {
        bytes_per_second: Some(Size::mib(10)),
        eta_seconds: Some(125),
        ..FetchProgress::new(
            spec.weights.sources[0].clone(),
            Size::mib(100),
            Some(Size::mib(500)),
        )
    });
    agent.report_all(vec![fetching], None).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let explained = running.handle.explain(&name("open")).await.unwrap();
    let remedy = &explained.report.remedies[0];
    assert_eq!(remedy.when(), "in ~2 min");
    let Remedying::Wait {
        until: Awaited::Weights { state, .. },
        percent,
        seconds,
    } = &remedy.change
    else {
        panic!("{remedy:?}");
    };
    assert_eq!((*percent, *seconds), (Some(20), Some(125)));
    assert_eq!(
        state,
        "100.0 MiB of 500.0 MiB (20 %), 10.0 MiB/s, ~2 min left"
    );
    running.stop().await;
}

fn status(spec: &llmgw_core::cluster::replica::ReplicaSpec, state: ReplicaState) -> ReplicaStatus {
    ReplicaStatus {
        spec: spec.clone(),
        state,
        since: Timestamp(0),
        endpoint: Some("127.0.0.1:9".into()),
        fetch: None,
        measured: None,
        error: None,
        hint: None,
        log_tail: Vec::new(),
    }
}

fn lying(byte: u8, in_use: bool) -> WeightsOnDisk {
    WeightsOnDisk {
        sha256: Sha256Digest([byte; 32]),
        size: Size::mib(1),
        name: "m.gguf".into(),
        in_place: false,
        in_use,
        last_used: None,
        fingerprint: None,
    }
}

fn known(byte: u8) -> Model {
    model(serde_json::json!({
        "name": "known", "source": "https://host/m.gguf", "sha256": Sha256Digest([byte; 32]).to_string(),
        "profiles": [{"memory": "1GiB"}],
    }))
}

#[tokio::test(start_paused = true)]
async fn weights_that_no_model_refers_to_are_listed_and_collected_once_ordered() {
    let running = controller(vec![known(1)]).await;
    let mut agent = running.agent().await;
    let there = vec![lying(1, false), lying(2, false), lying(3, true)];
    agent.report_all(Vec::new(), Some(there.clone())).await;
    given(&mut agent).await;
    let orphans = running.handle.orphans().await.unwrap();
    let listed: Vec<(u8, bool)> = orphans
        .iter()
        .map(|one| (one.sha256.0[0], one.kept.is_none()))
        .collect();
    assert_eq!(
        listed,
        [(2, true), (3, false)],
        "that of the model is none, and what is used stays"
    );
    let node = running.handle.nodes().await.unwrap().remove(0);
    assert_eq!(node.models_on_disk, Some(vec![name("known")]));
    let digests: Vec<Sha256Digest> = orphans.iter().map(|one| one.sha256).collect();
    let answer = running.handle.collect(&digests).await.unwrap();
    assert_eq!(
        answer.iter().map(|one| one.collecting).collect::<Vec<_>>(),
        [true, false]
    );
    let collect = agent.told().await.weights.collect.clone();
    assert_eq!(
        collect.into_iter().collect::<Vec<_>>(),
        [Sha256Digest([2; 32])]
    );
    let refused = running
        .handle
        .collect(&[Sha256Digest([1; 32])])
        .await
        .unwrap_err();
    assert_eq!(refused.code, Code::NotFound, "a model refers to it");
    let entries = running.handle.audit(0, 10).await.unwrap();
    assert_eq!(entries.last().unwrap().action, "weights.collect");
    // Once they are gone, nothing is ordered any more.
    agent
        .report_all(Vec::new(), Some(vec![lying(1, false)]))
        .await;
    assert!(agent.told().await.weights.collect.is_empty());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_an_orphan_while_it_is_not_known_what_a_model_is_made_of() {
    let error = NotFound::with_code("hub could not be reached", None, Code::Unavailable);
    let (running, _reader) = running(open(), Err(error)).await;
    let mut agent = running.agent().await;
    agent
        .report_all(Vec::new(), Some(vec![lying(2, false)]))
        .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let orphans = running.handle.orphans().await.unwrap();
    assert_eq!(
        orphans[0].kept.as_deref(),
        Some("it is not known yet which files open is made of")
    );
    let answer = running.handle.collect(&[orphans[0].sha256]).await.unwrap();
    assert!(!answer[0].collecting);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_holds_the_weights_is_preferred() {
    let running = controller(vec![known(1)]).await;
    let mut agents = Vec::new();
    for _ in 0..8 {
        agents.push(running.agent().await);
    }
    // Whichever it is, its id decides nothing.
    for (at, agent) in agents.iter_mut().enumerate() {
        let weights = if at == 5 {
            vec![lying(1, false)]
        } else {
            Vec::new()
        };
        agent.report_all(Vec::new(), Some(weights)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let replicas = running.handle.replicas(None).await.unwrap();
    assert_eq!(replicas[0].node, agents[5].node);
    running.stop().await;
}

#[test]
fn a_token_goes_to_nodes_that_need_it_and_is_shown_nowhere() {
    let weights_orders = WeightsOrders {
        hub_token: HubToken::parse("hf_secret"),
        ..WeightsOrders::default()
    };
    assert!(!format!("{weights_orders:?}").contains("hf_secret"));
    let snapshot = Snapshot {
        weights_orders,
        ..Snapshot::default()
    };
    let node = NodeId::generate();
    assert!(orders(&snapshot, node).is_empty());
    let mut given = snapshot;
    let spec = llmgw_core::cluster::replica::ReplicaSpec {
        id: llmgw_core::id::ReplicaId::generate(),
        model: name("open"),
        profile: open().profiles()[0].clone(),
        weights: pinned(),
        fingerprint: llmgw_core::fingerprint::Fingerprint(1),
        gpus: Vec::new(),
    };
    given.memory.given(spec, node, Duration::ZERO);
    assert!(orders(&given, node).hub_token.is_some());
    assert!(orders(&given, NodeId::generate()).hub_token.is_none());
}

#[tokio::test(start_paused = true)]
async fn no_view_gives_out_the_secrets_of_an_address_and_what_a_view_tells_is_not_run() {
    let source = "https://user:hunter2@host/m.gguf?token=hunter3";
    let kept = model(serde_json::json!({
        "name": "kept", "source": source, "sha256": "7".repeat(64),
        "profiles": [{"memory": "1GiB", "context": 512, "parallel": 1}],
    }));
    let found = Findings {
        weights: kept.weights().clone(),
        shape: Ok(shape()),
    };
    let (running, _reader) = running(kept, Ok(found)).await;
    let mut agent = running.agent().await;
    agent.report_replicas(Vec::new()).await;
    let spec = given(&mut agent).await;
    assert_eq!(
        spec.weights.sources[0].to_string(),
        source,
        "the node fetches by it"
    );
    let fetching = ReplicaStatus {
        fetch: Some(FetchProgress::new(
            spec.weights.sources[0].clone(),
            Size(1),
            None,
        )),
        ..status(&spec, ReplicaState::Fetching)
    };
    agent.report_all(vec![fetching], None).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let handle = &running.handle;
    let snapshot = handle.snapshot().await.unwrap();
    let replicas = handle.replicas(None).await.unwrap();
    assert!(replicas[0].fetch.is_some());
    let told = serde_json::json!([
        snapshot,
        replicas,
        handle.models().await.unwrap(),
        handle.settings().await.unwrap(),
        handle.explain(&name("kept")).await.unwrap(),
        handle.decisions(None, 0, 100).await.unwrap(),
    ])
    .to_string();
    assert!(!told.contains("hunter"), "{told}");
    assert!(told.contains("https://…@host/m.gguf?…"), "{told}");

    // What was shown can be planned with, and not be given back as if it were whole.
    let mut shown = snapshot.models[0].clone();
    Model::try_from(shown.clone()).unwrap();
    shown.name = "again".to_owned();
    let error = handle.add(shown).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidRequest);
    assert!(error.message.contains("left out"), "{}", error.message);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_file_of_a_node_is_pending_until_the_node_tells_its_header_and_is_sized_by_that() {
    let here = model(serde_json::json!({
        "name": "here", "source": "file:/models/m.gguf",
        "profiles": [{"context": 512, "parallel": 1}],
    }));
    let nobody = NotFound::for_good("nobody is asked", None);
    let weights = here.weights().clone();
    let (running, reader) = running(here, Err(nobody)).await;
    let mut agent = running.agent().await;
    agent.report_replicas(Vec::new()).await;
    let asked = agent.told().await.weights.headers.clone();
    assert_eq!(asked, std::slice::from_ref(&weights));
    let explained = running.handle.explain(&name("here")).await.unwrap();
    let expected = "here is pending: header: no node that has file:/models/m.gguf has told yet";
    assert!(
        explained.headline.starts_with(expected),
        "{}",
        explained.headline
    );

    // What is no header is said, and the node is asked on.
    let of = ToldHeader::name(&weights).unwrap();
    agent.headers = vec![ToldHeader::new(of, Err("it is a page".into()))];
    for _ in 0..5 {
        agent.report_replicas(Vec::new()).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let explained = running.handle.explain(&name("here")).await.unwrap();
    assert!(
        explained.headline.contains("says: it is a page"),
        "{}",
        explained.headline
    );

    agent.headers = vec![ToldHeader::new(of, Ok(&header()))];
    agent.report_replicas(Vec::new()).await;
    let spec = given(&mut agent).await;
    assert!(spec.profile.is_sized());
    assert_eq!(spec.weights, weights);
    assert!(
        agent.desired.as_ref().unwrap().weights.headers.is_empty(),
        "it is asked no more"
    );
    assert!(reader.asked.lock().unwrap().is_empty());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_measured_counts_where_it_is_more_than_the_estimate() {
    let found = Findings {
        weights: pinned(),
        shape: Ok(shape()),
    };
    let (running, _reader) = running(open(), Ok(found)).await;
    let mut agent = running.agent().await;
    agent.report_replicas(Vec::new()).await;
    let spec = given(&mut agent).await;
    let estimated = spec.profile.memory;
    let measured = |memory| {
        let measured = MemoryUse {
            main: Some(memory),
            gpus: Vec::new(),
        };
        ReplicaStatus {
            measured: Some(measured),
            ..status(&spec, ReplicaState::Ready)
        }
    };
    let less = Size(estimated.0 / 2);
    let more = estimated + Size::mib(100);
    for (held, counts) in [(less, estimated), (more, more), (less, more)] {
        agent.report_all(vec![measured(held)], None).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let view = running.handle.models().await.unwrap().remove(0);
        assert_eq!(
            view.profiles[0].memory,
            Some(counts),
            "{held} of {estimated}"
        );
        let replica = running.handle.replicas(None).await.unwrap().remove(0);
        assert_eq!(replica.memory, Some(estimated), "what it was given stays");
        assert_eq!(replica.measured.unwrap().main, Some(held));
        assert!(!replica.stale);
    }
    running.stop().await;
}
