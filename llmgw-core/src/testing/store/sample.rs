//! What the checks write.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use super::Failure;
use crate::{
    clock::Timestamp,
    cluster::{
        account::{ApiKey, KeyHash, OperatorToken, Role, UsageRecord},
        audit::NewAuditEntry,
        capacity::{Capacity, Measurement},
        catalog::{Model, ModelDefinition, OneOrMany, ProfileDefinition},
        engine::{EngineSource, WantedEngine},
        order::{Duty, Hold, HoldScope, NodeOrder, Order, StoredOrder},
        scaling::Scaling,
        settings::{AboutSettings, StoredSettings},
        tenancy::{Level, Limits, Price},
    },
    id::{KeyId, ModelName, NodeId, ReplicaId, RequestId, TokenId},
    store::{Store, StoredModel},
    units::{Bytes, Micros, Tokens},
};

pub(super) fn model(name: &str) -> Result<StoredModel, Failure> {
    model_described(name, "a model for a check")
}

/// A model that uses every part of a definition.
pub(super) fn model_described(name: &str, description: &str) -> Result<StoredModel, Failure> {
    let definition = ModelDefinition {
        files: Vec::new(),
        name: name.to_owned(),
        description: description.to_owned(),
        aliases: vec![format!("{name}-alias")],
        fallbacks: vec![format!("{name}-fallback")],
        source: OneOrMany::Many(vec![
            "hf:owner/repo/model.gguf@main".to_owned(),
            "file:/models/model.gguf".to_owned(),
        ]),
        sha256: Some("b1".repeat(32)),
        size: Some(Bytes(98_362_432)),
        replicas: Some(3),
        min_replicas: None,
        max_replicas: None,
        idle_timeout: None,
        profiles: vec![
            profile("small", Bytes(700_000_001)),
            profile("large", Bytes::gib(400)),
        ],
    };
    Ok(StoredModel {
        model: Model::try_from(definition)?,
        added_at: NOW,
    })
}

pub(super) fn key(name: &str) -> ApiKey {
    let id = KeyId::generate();
    // Different for each key, and all bytes occur over some keys.
    let mut hash = [0; 32];
    for (byte, digit) in hash.iter_mut().zip(id.as_uuid().as_bytes().iter().cycle()) {
        *byte = *digit;
    }
    ApiKey::new(id, name, KeyHash(hash), NOW)
}

pub(super) fn level(path: &str, limits: Limits) -> Result<Level, Failure> {
    Ok(Level {
        path: path.parse()?,
        limits,
        created_at: NOW,
    })
}

pub(super) fn price(model: &str, valid_from: i64, prompt: i64) -> Result<Price, Failure> {
    Ok(Price {
        model: name(model)?,
        valid_from: Timestamp(valid_from),
        prompt: Micros(prompt),
        cached: Micros(1),
        completion: Micros(i64::MAX),
    })
}

pub(super) fn settings(version: u64, text: &str, brings_back: Option<u64>) -> StoredSettings {
    StoredSettings {
        version,
        text: text.to_owned(),
        about: AboutSettings {
            by: "admin".to_owned(),
            at: NOW,
            brings_back,
        },
    }
}

pub(super) fn limits(models: &[&str]) -> Result<Limits, Failure> {
    let models: Result<_, Failure> = models.iter().map(|text| name(text)).collect();
    Ok(Limits {
        models: Some(models?),
        ..Limits::default()
    })
}

pub(super) fn usage(model: &str, key: KeyId) -> Result<UsageRecord, Failure> {
    Ok(UsageRecord {
        request: RequestId::generate(),
        key,
        model: name(model)?,
        replica: Some(ReplicaId::generate()),
        prompt_tokens: Tokens(100),
        cached_tokens: Tokens(10),
        completion_tokens: Tokens(7),
        estimated: false,
        status: 200,
        started_at: NOW,
        duration: Duration::from_micros(1_234_567),
        time_to_first_token: Some(Duration::from_millis(250)),
        level: "acme/search".parse()?,
        cost: Micros(1_234),
        guard: Vec::new(),
    })
}

pub(super) fn batch(model: &str, key: KeyId, size: usize) -> Result<Vec<UsageRecord>, Failure> {
    (0..size).map(|_| usage(model, key)).collect()
}

pub(super) fn audit_entry(subject: &str) -> NewAuditEntry {
    NewAuditEntry {
        at: NOW,
        actor: "key:ops".to_owned(),
        action: "model.add".to_owned(),
        subject: subject.to_owned(),
    }
}

pub(super) fn token(name: &str, role: Role) -> OperatorToken {
    OperatorToken {
        id: TokenId::generate(),
        name: name.to_owned(),
        role,
        hash: KeyHash([9; 32]),
        created_at: NOW,
    }
}

pub(super) fn capacity(model: &str, profile: &str, concurrency: u32) -> Result<Capacity, Failure> {
    Ok(Capacity {
        model: name(model)?,
        measurement: Measurement {
            profile: profile.parse()?,
            concurrency,
            tokens_per_second: 700,
            time_to_first_token_ms: Some(250),
            inter_token_ms: None,
            prompt_tokens: Some(Tokens(128)),
            completion_tokens: None,
            goal: "first token within 500 ms".to_owned(),
        },
        measured_by: "ops".to_owned(),
        measured_at: NOW,
    })
}

pub(super) fn scaled(model: &str, replicas: u32) -> Result<StoredOrder, Failure> {
    let model = name(model)?;
    let scaling = Scaling::fixed(replicas);
    Ok(stored(Order::Scale { model, scaling }))
}

/// One order of several kinds, in the order in which a store lists them.
pub(super) fn orders() -> Result<Vec<StoredOrder>, Failure> {
    let hold = |name: &str| -> Result<Order, Failure> {
        Ok(Order::Hold(Hold {
            name: name.parse()?,
            scope: HoldScope::Facility("North, \"2nd\" floor".to_owned()),
            reason: "\u{fc}ber \u{1f600}".to_owned(),
            until: Some(NOW),
        }))
    };
    let engine = WantedEngine::new("llamacpp".parse()?, EngineSource::Wheel);
    Ok(vec![
        stored(Order::Engine(Box::new(engine))),
        stored(hold("B")?),
        stored(hold("a")?),
        stored(Order::Node(NodeOrder {
            node: NodeId::generate(),
            duty: Duty::Draining,
            reason: String::new(),
            force: true,
        })),
        stored(Order::Roll {
            model: name("a/b")?,
            number: 3,
            force: true,
        }),
        scaled("Z", 0)?,
        scaled("a/b", 2)?,
    ])
}

fn stored(order: Order) -> StoredOrder {
    StoredOrder {
        order,
        by: "ops".to_owned(),
        since: NOW,
    }
}

pub(super) fn name(text: &str) -> Result<ModelName, Failure> {
    Ok(text.parse::<ModelName>()?)
}

pub(super) async fn model_names(store: &dyn Store) -> Result<Vec<String>, Failure> {
    let models = store.models().await?;
    Ok(models.iter().map(|m| m.model.name().to_string()).collect())
}

fn profile(name: &str, memory: Bytes) -> ProfileDefinition {
    ProfileDefinition {
        name: Some(name.to_owned()),
        engine: Some("llamacpp".to_owned()),
        context: Some(4_096),
        parallel: Some(2),
        ..ProfileDefinition::of_memory(memory)
    }
}

/// Polls a future this many times and then drops it, at the latest: at one of the places where it waits.
pub(super) async fn polled<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = times;
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left <= 1 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Long enough that no lease runs out in a check that does not want it to.
pub(super) const LONG: Duration = Duration::from_secs(600);

/// What a writer pauses for, so that others get to run.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// Some time in 2025.
pub(super) const NOW: Timestamp = Timestamp(1_750_000_000_123);
